// SPDX-License-Identifier: BSD-3-Clause
//! Edges to ranks of other hosts that are fetched: the receiver's side. `far.rs` has the whole.
//!
//! Invariants: `done` counts bytes that are stored, from the first one on; a step neither ends nor asks again
//! while a read of it is under way; an instance does not end before all servers know what was received.

use super::{Did, Execution};
use crate::far::{News, Read};
use crate::fault::{Corruption, Fault};
use crate::memory::{Reach, Region, Stop};
use crate::note::{self, Kind, Note, Place, Said, Taken};
use crate::record::{COMPLETE, Field, MESSAGE};
use crate::server;
use schedule::{Action, Blocks};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use sys::{Block, Span};
use telemetry::Counter;

/// The longest read (docs/measured/hosts.md). In tests an edge has several.
const READ_BYTES_MAX: u64 = if cfg!(test) { 700 } else { 128 << 10 };
/// The most reads of one edge under way: while the bytes of one read come, those of the next are on their
/// way.
const READS_MAX: usize = 2;
/// The failed reads in a row after which the server counts as lost although it lives.
const FAILURES_MAX: u32 = 16;

/// What a driver remembers about its fetches.
pub(super) struct Fetches {
    /// The fetches by step.
    fetches: Vec<Fetch>,
    /// The notes and reports to send.
    pub(super) said: Vec<Said>,
    attempts: u32,
    /// Whether another driver is to go on once no read is under way.
    is_stopped: bool,
}

/// The fetch of one step.
#[derive(Clone, Default)]
struct Fetch {
    /// The server that got the last note, and the number of that note.
    asked: Option<(u32, u32)>,
    /// Whether the step has asked before.
    is_again: bool,
    /// Whether the sender's operation does not wait for this receive.
    is_copied: bool,
    /// Whether the server knows that all has been received.
    is_known: bool,
    /// Whether the sending rank itself answers, not its server.
    is_elsewhere: bool,
    fault: Option<Fault>,
    /// Where the bytes can be read, up to which byte, and how many there will be.
    place: Option<Place>,
    readable: u64,
    total: u64,
    /// The reads under way or ended behind `done`, in their order: begin, end, whether the bytes are there.
    reads: VecDeque<(u64, u64, bool)>,
    /// The reads that have failed since the last one that did not.
    failures: u32,
}

impl Fetch {
    /// Whether a process may still write to the step's buffer.
    fn is_reading(&self) -> bool {
        self.reads.iter().any(|(.., is_there)| !is_there)
    }

    /// The bytes of the next read behind `done` bytes of at most `capacity`, or None if there may be no read
    /// now.
    fn next_read(&self, done: u64, capacity: u64) -> Option<(u64, u64)> {
        let begin = self.reads.back().map_or(done, |(_, end, _)| *end);
        let end = self.readable.min(capacity).min(begin.saturating_add(READ_BYTES_MAX));
        (begin < end && self.reads.len() < READS_MAX).then_some((begin, end))
    }
}

impl Fetches {
    pub(super) fn new(steps: usize) -> Fetches {
        Fetches { fetches: vec![Fetch::default(); steps], said: Vec::new(), attempts: 0, is_stopped: false }
    }

    /// Forgets all but the number of the last note, so that no earlier answer passes for a later one.
    pub(super) fn restart(&mut self) {
        self.is_stopped = false;
        self.fetches.fill(Fetch::default());
        self.said.clear();
    }

    /// Whether an answer has come that the step has not seen.
    pub(super) fn has_news(&self, step: u32) -> bool {
        let fetch = &self.fetches[step as usize];
        fetch.is_known || fetch.fault.is_some() || fetch.is_elsewhere && fetch.asked.is_none()
    }
}

impl Execution {
    /// Whether some edges to other hosts are fetched.
    pub fn fetches(&self) -> bool {
        self.fetches.is_some()
    }

    /// The next note or report to send.
    pub(crate) fn next_said(&mut self) -> Option<Said> {
        self.fetches.as_mut()?.said.pop()
    }

    /// Reports that a send has published its first bytes, except of a message, which nobody may want yet.
    pub(super) fn push(&mut self, step: u32, bytes: u64) {
        let Action::Send { to, edge, .. } = self.plan.schedule.steps[step as usize].action else { return };
        let is_message = self.record.step(step, Field::Total).load(Ordering::Relaxed) & MESSAGE != 0;
        let Some(fetches) = self.fetches.as_mut().filter(|_| !is_message) else { return };
        let note = Note {
            kind: Kind::Fetch,
            context: self.context,
            sequence: self.sequence,
            sender: self.rank.peer(),
            receiver: self.peers[to as usize].number(),
            to,
            edge,
            step: self.plan.schedule.rank,
            attempt: 0,
            offset: 0,
            total: bytes,
        };
        fetches.said.push(Said::Published(note));
    }

    /// The step that a note is about, or None.
    fn step_of(&self, note: &Note) -> Option<u32> {
        if note.attempt != 0 {
            return Some(note.step);
        }
        let peer = self.peers.get(note.step as usize)?;
        if peer.number() == note.sender { self.plan.receive_of(note.step, note.edge) } else { None }
    }

    /// Whether a note is about this instance.
    pub(crate) fn is_of(&self, note: &Note) -> bool {
        (note.receiver, note.context, note.sequence) == (self.rank.peer(), self.context, self.sequence)
    }

    /// Whether a read of any step is under way. Until it ends, no other driver may get the memory.
    pub(crate) fn is_reading(&self) -> bool {
        self.fetches.as_ref().is_some_and(|it| it.fetches.iter().any(Fetch::is_reading))
    }

    /// Starts no more reads, since another driver is to go on.
    pub(crate) fn stop(&mut self) {
        self.fetches.iter_mut().for_each(|it| it.is_stopped = true);
    }

    /// Whether another driver is to go on.
    pub(crate) fn is_stopped(&self) -> bool {
        self.fetches.as_ref().is_some_and(|it| it.is_stopped)
    }

    /// Takes a server's answer, or the end of a read. Adds the reads that can start.
    pub(crate) fn take_news(
        &mut self,
        news: News,
        reach: &Reach,
        reads: &mut VecDeque<Read>,
    ) -> Result<Taken, Stop> {
        let Some(step) = self.step_of(news.note()) else { return Ok(Taken::No) };
        let taken = match news {
            News::Note(from, note, data) => self.take_note(step, from, note, data, reach)?,
            News::Read(read, is_there) => {
                self.read_ended(read, is_there, reach)?;
                Taken::Yes
            }
        };
        self.read_on(step, reads);
        Ok(taken)
    }

    /// Takes a server's note. An answer to an earlier question means nothing any more.
    fn take_note(
        &mut self,
        step: u32,
        from: u32,
        note: &Note,
        data: Span,
        reach: &Reach,
    ) -> Result<Taken, Stop> {
        let Some(fetches) = &mut self.fetches else { return Ok(Taken::No) };
        let Some(fetch) = fetches.fetches.get_mut(step as usize) else { return Ok(Taken::No) };
        let state = &self.states[step as usize];
        let is_unasked = note.attempt == 0;
        match fetch.asked {
            None if is_unasked && !state.finished => return Ok(Taken::Early),
            Some((server, attempt)) if server == from && (is_unasked || attempt == note.attempt) => {}
            _ => return Ok(Taken::No),
        }
        let capacity = self.buffers.spots[step as usize].bytes;
        let has_bytes = matches!(note.kind, Kind::Data | Kind::Copied | Kind::Place);
        if has_bytes && !state.settling && !reach.claim(self.rank, &self.record) {
            return Ok(Taken::No);
        }
        if has_bytes && is_unasked && note.total != capacity {
            fetch.fault = Some(Fault::Truncated { peer: note.sender, sent: note.total, expected: capacity });
            return Ok(Taken::Yes);
        }
        match (note.kind, state.settling) {
            (Kind::Known, true) => fetch.is_known = true,
            (Kind::Elsewhere, _) => (fetch.is_elsewhere, fetch.asked) = (true, None),
            (Kind::Failed, false) => fetch.fault = Some(server::failed(note.sender, data)),
            (Kind::Place, false) => {
                let place = Place::from_words(&note::words(data));
                let has_changed = fetch.place.is_some() && fetch.total != note.total;
                if has_changed
                    || place.as_ref().is_none_or(|place| place.start > state.done)
                    || note.offset > note.total
                {
                    let corrupt = Fault::Corrupt { peer: note.sender, what: Corruption::Progress };
                    fetch.fault = Some(corrupt);
                    return Ok(Taken::Yes);
                }
                (fetch.place, fetch.total) = (place, note.total);
                fetch.readable = fetch.readable.max(note.offset);
            }
            (Kind::Data | Kind::Copied, false) => {
                fetch.is_copied = note.kind == Kind::Copied;
                let begun = state.done;
                let end = begun + data.bytes() as u64;
                if note.offset != begun || end > note.total.min(capacity) || !fetch.reads.is_empty() {
                    return Ok(Taken::No);
                }
                if self.store_or_fail(step, begun, data, reach) {
                    self.received(step, end, note.total, reach)?;
                }
            }
            _ => return Ok(Taken::No),
        }
        Ok(Taken::Yes)
    }

    /// Takes the end of a read. Its bytes count once all bytes before them are there.
    fn read_ended(&mut self, read: &Read, is_there: bool, reach: &Reach) -> Result<(), Stop> {
        let step = read.note.step;
        let begin = read.begin;
        let is_stored = is_there
            && read.bounce.as_ref().is_none_or(|block| {
                self.store_or_fail(step, begin, block.span().slice(0, read.to.bytes()), reach)
            });
        let Some(fetches) = &mut self.fetches else { return Ok(()) };
        let Some(fetch) = fetches.fetches.get_mut(step as usize) else { return Ok(()) };
        let Some(at) = fetch.reads.iter().position(|one| one.0 == begin) else { return Ok(()) };
        if !is_stored {
            // The reads behind it count for nothing: the step asks again.
            fetch.reads.remove(at);
            (fetch.place, fetch.asked) = (None, None);
            fetch.failures += 1;
            return Ok(());
        }
        fetch.reads[at].2 = true;
        fetch.failures = 0;
        let mut end = self.states[step as usize].done;
        while let Some(&(begin, next, true)) = fetch.reads.front()
            && begin == end
        {
            fetch.reads.pop_front();
            end = next;
        }
        let total = fetch.total;
        match end > self.states[step as usize].done {
            true => self.received(step, end, total, reach),
            false => Ok(()),
        }
    }

    /// Adds the next reads of a step.
    fn read_on(&mut self, step: u32, reads: &mut VecDeque<Read>) {
        let Some(fetches) = self.fetches.as_mut().filter(|it| !it.is_stopped) else { return };
        let Some(fetch) = fetches.fetches.get_mut(step as usize) else { return };
        let (Some(place), Some((from, attempt)), None) = (fetch.place.clone(), fetch.asked, fetch.fault)
        else {
            return;
        };
        let Action::Recv { from: sender, into, .. } = self.plan.schedule.steps[step as usize].action else {
            return;
        };
        let spot = self.buffers.spots[step as usize];
        let done = self.states[step as usize].done;
        while let Some((begin, end)) = fetch.next_read(done, spot.bytes) {
            let found = self.buffers.region(into.buffer, spot.at[0] + begin);
            let (to, bounce) = match found {
                Ok((Region::Local(span), offset, here)) if here > 0 => {
                    (span.slice(offset as usize, here.min(end - begin) as usize), None)
                }
                _ => {
                    let block = Block::new((end - begin) as usize);
                    (block.span(), Some(block))
                }
            };
            let end = begin + to.bytes() as u64;
            fetch.reads.push_back((begin, end, false));
            let note = Note {
                kind: Kind::Fetch,
                context: self.context,
                sequence: self.sequence,
                sender: self.peers[sender as usize].number(),
                receiver: self.rank.peer(),
                to: self.plan.schedule.rank,
                edge: 0,
                step,
                attempt,
                offset: begin,
                total: spot.bytes,
            };
            reads.push_back(Read { note, from, place: place.clone(), to, bounce, begin });
        }
    }

    /// Stores that `end` bytes of a step are there, of `total` that its send has.
    fn received(&mut self, step: u32, end: u64, total: u64, reach: &Reach) -> Result<(), Stop> {
        let begun = self.states[step as usize].done;
        let capacity = self.buffers.spots[step as usize].bytes;
        reach.count(Counter::FetchedBytes, end - begun);
        reach.fault_point()?;
        let is_whole = end == total.min(capacity);
        if is_whole && total > capacity {
            let Action::Recv { from, .. } = self.plan.schedule.steps[step as usize].action else {
                return Ok(());
            };
            let peer = self.peers[from as usize].number();
            self.record.set_fault(Fault::Truncated { peer, sent: total, expected: capacity });
        }
        let word = end | if is_whole { COMPLETE } else { 0 };
        self.record.step(step, Field::Done).store(word, Ordering::Release);
        reach.tell(self.rank, &self.record, step);
        reach.fault_point()?;
        self.states[step as usize].done = end;
        self.states[step as usize].said_all = is_whole;
        Ok(())
    }

    /// Copies bytes to where a step receives them. Returns whether that was possible; if not, the step gets
    /// the fault.
    fn store_or_fail(&mut self, step: u32, begun: u64, data: Span, reach: &Reach) -> bool {
        let Action::Recv { into, .. } = self.plan.schedule.steps[step as usize].action else { return false };
        let stored = self.store(step, into, begun, data, reach);
        if let (Err(fault), Some(fetches)) = (stored, &mut self.fetches) {
            fetches.fetches[step as usize].fault = Some(fault);
        }
        stored.is_ok()
    }

    /// Copies bytes to where a step receives them.
    fn store(&self, step: u32, into: Blocks, begun: u64, data: Span, reach: &Reach) -> Result<(), Fault> {
        let spot = self.buffers.spots[step as usize];
        let mut at = 0;
        while at < data.bytes() {
            let (region, offset, here) = self.buffers.region(into.buffer, spot.at[0] + begun + at as u64)?;
            let bytes = here.min((data.bytes() - at) as u64) as usize;
            reach.put(region, offset, data.slice(at, bytes))?;
            at += bytes;
        }
        Ok(())
    }

    /// Drives a receive from another host.
    pub(super) fn fetch(&mut self, step: u32, peer: u32, edge: u32, reach: &Reach) -> Result<Did, Stop> {
        let may_begin = self.limit(step).1;
        let bytes = self.buffers.spots[step as usize].bytes;
        let state = &self.states[step as usize];
        let (done, is_settling) = (state.done, state.settling);
        let Some(fetches) = &mut self.fetches else { return Ok(Did::Nothing) };
        let fetch = &mut fetches.fetches[step as usize];
        if fetch.is_reading() || fetches.is_stopped {
            return Ok(Did::Nothing);
        }
        if fetch.failures >= FAILURES_MAX {
            fetch.fault.get_or_insert(Fault::Lost { peer });
        }
        if let Some(fault) = fetch.fault.take() {
            fetch.asked = None;
            return Err(fault.into());
        }
        if state.said_all && !is_settling {
            fetch.asked = None;
            return Ok(Did::All);
        }
        if fetch.is_known {
            return Ok(Did::All);
        }
        let is_withdrawn = self.record.is_withdrawn();
        if is_withdrawn && !is_settling {
            fetch.asked = None;
            return self.leave(step, reach);
        }
        if !may_begin && !is_settling {
            return Ok(Did::Nothing);
        }
        let server = if fetch.is_elsewhere { peer } else { reach.segment.server_of(peer) };
        if fetch.asked.is_some_and(|(asked, _)| asked == server) {
            return Ok(Did::Nothing);
        }
        (fetch.place, fetch.readable) = (None, 0);
        fetch.reads.clear();
        // The number 0 is for notes that come unasked.
        fetches.attempts = fetches.attempts.wrapping_add(1).max(1);
        fetch.asked = Some((server, fetches.attempts));
        let note = Note {
            kind: match is_settling {
                false if std::mem::replace(&mut fetch.is_again, true) => Kind::Again,
                false => Kind::Fetch,
                true if is_withdrawn => Kind::Leave,
                true => Kind::Done,
            },
            context: self.context,
            sequence: self.sequence,
            sender: peer,
            receiver: self.rank.peer(),
            to: self.plan.schedule.rank,
            edge,
            step,
            attempt: fetches.attempts,
            offset: done,
            total: bytes,
        };
        let is_awaited = !(is_settling && fetch.is_copied);
        fetches.said.push(Said::Note { to: server, note, is_awaited });
        Ok(Did::Something)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture;
    use transport::route::RemoteRange;

    const BYTES: u64 = 4096;

    /// What becomes of an answer: the fault of the receive, and how many reads it starts.
    fn answer(change: impl FnOnce(&mut u32, &mut Note, &mut Vec<u64>)) -> (Option<Fault>, usize) {
        let (mut run, reach) = fixture::broadcast(1, BYTES, 0);
        run.poll(&reach).unwrap();
        let Some(Said::Note { to: mut from, note: asked, .. }) = run.next_said() else {
            panic!("it asks for its bytes")
        };
        assert_eq!((asked.kind, asked.offset, asked.total), (Kind::Fetch, 0, BYTES));
        let place =
            Place { far: RemoteRange { key: 1, base: 0, bytes: BYTES }, start: 0, name: [7; 5].into() };
        let mut note = Note { kind: Kind::Place, offset: BYTES, ..asked };
        let mut words = place.words();
        change(&mut from, &mut note, &mut words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let data = Block::new(bytes.len());
        data.span().write(&bytes);
        let mut reads = VecDeque::new();
        run.take_news(News::Note(from, &note, data.span()), &reach, &mut reads).unwrap();
        let fetches = run.fetches.as_ref().unwrap();
        (fetches.fetches[note.step as usize].fault, reads.len())
    }

    #[test]
    fn places_that_cannot_be_are_refused_and_answers_to_others_mean_nothing() {
        assert_eq!(answer(|_, _, _| ()), (None, READS_MAX), "what is right");
        let corrupt = Some(Fault::Corrupt { peer: 0, what: Corruption::Progress });
        assert_eq!(answer(|_, _, words| words.truncate(4)), (corrupt, 0), "words are missing");
        assert_eq!(answer(|_, _, words| words[4] = u64::MAX), (corrupt, 0), "a name of that length");
        assert_eq!(answer(|_, _, words| words[3] = 1), (corrupt, 0), "it begins behind what is there");
        assert_eq!(answer(|_, note, _| note.offset = BYTES + 1), (corrupt, 0), "more than there is");
        assert_eq!(answer(|_, note, _| note.attempt += 1), (None, 0), "to another question");
        assert_eq!(answer(|from, _, _| *from += 1), (None, 0), "from somebody else");
        assert_eq!(answer(|_, note, _| note.kind = Kind::Known), (None, 0), "nothing is settled");
        let data = |offset: u64, bytes: usize| {
            answer(move |_, note, words| {
                (note.kind, note.offset) = (Kind::Data, offset);
                *words = vec![0; bytes / 8];
            })
        };
        assert_eq!(data(8, 16), (None, 0), "a gap before it");
        assert_eq!(data(0, BYTES as usize + 8), (None, 0), "more than was asked for");
        assert!(matches!(data(0, 16).0, Some(Fault::Corrupt { .. })), "there is no memory for it");
    }
}
