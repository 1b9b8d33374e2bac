// SPDX-License-Identifier: BSD-3-Clause
//! Sends and receives between hosts that are fetched: the receive's driver asks for the bytes. This file is
//! what that driver does; `remote_edges.rs` describes the whole.
//!
//! Invariants: `done` counts bytes that are stored, from the first one on. A step neither ends nor asks again
//! while the network reads bytes for it. An instance does not end before all servers (the processes that
//! send) know what it has received.

use super::{Execution, StepProgress};
use crate::fault::{Corruption, Fault};
use crate::memory::{Reach, Region, Stop};
use crate::note::{self, ExposedSend, Note, NoteKind, NoteOutcome, Outgoing};
use crate::record::{COMPLETE, Field, MESSAGE};
use crate::remote_edges::{EdgeEvent, EdgeRead};
use crate::server;
use schedule::{Action, Blocks};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use sys::{Block, Span};
use telemetry::Counter;

/// The most bytes of one read by RDMA (docs/measured/hosts.md). In tests it is so short that a receive takes
/// several reads.
const READ_BYTES_MAX: u64 = if cfg!(test) { 700 } else { 128 << 10 };
/// The most reads for one receive that are under way together. With two, the second is on its way while the
/// first brings bytes.
const READS_MAX: usize = 2;
/// The number of failed reads in a row after which the server (the sending process) counts as lost, even if
/// it still lives.
const FAILURES_MAX: u32 = 16;

/// What a driver remembers about the receives of an operation that fetch their bytes.
pub(super) struct Fetches {
    /// For each step of the schedule, what is known of its fetch.
    fetches: Vec<Fetch>,
    /// The notes (messages to servers of other hosts) that this driver has to send, until `next_outgoing`
    /// takes them.
    pub(super) outgoing: Vec<Outgoing>,
    attempts: u32,
    /// Whether no more reads may start. Another driver takes the operation once the reads under way have
    /// ended.
    is_stopped: bool,
}

/// What a driver remembers about the fetch of one step.
#[derive(Clone, Default)]
struct Fetch {
    /// The server (the sending process) that was asked last, and the number of the question
    /// (`Note::attempt`). None while no question waits for an answer.
    asked: Option<(u32, u32)>,
    /// Whether the step, for this driver or an earlier one, has asked before, so that its next question is
    /// `NoteKind::Again`.
    has_asked: bool,
    /// Whether the server (the sending process) sends from a copy of the bytes. The sender's operation then
    /// does not wait for this receive.
    is_copied: bool,
    /// Whether the server (the sending process) has answered that it knows of the end of this receive.
    is_end_confirmed: bool,
    /// Whether the sending rank itself answers questions, because the sending rank's proxy does not drive the
    /// operation there.
    rank_answers: bool,
    fault: Option<Fault>,
    /// The memory of the server (the sending process) from which the bytes can be read by RDMA. None if they
    /// come in packets.
    place: Option<ExposedSend>,
    /// The number of bytes, from the send's first byte on, that can be read from the server's memory so far.
    readable: u64,
    /// The length in bytes of the whole send from which this step receives.
    total: u64,
    /// The reads of which `done` does not count the bytes yet, in the send's order. Each element is a read's
    /// first byte, its end, and whether its bytes have come.
    reads: VecDeque<(u64, u64, bool)>,
    /// The number of reads that have failed since the last one that succeeded.
    failures: u32,
}

impl Fetch {
    /// Whether a read is under way, so that the network may still write to the step's buffer.
    fn is_reading(&self) -> bool {
        self.reads.iter().any(|(.., is_there)| !is_there)
    }

    /// Returns at which bytes of the send the next read begins and ends, at most at byte `capacity`. None if
    /// no read may start now.
    fn next_read(&self, done: u64, capacity: u64) -> Option<(u64, u64)> {
        let begin = self.reads.back().map_or(done, |(_, end, _)| *end);
        let end = self.readable.min(capacity).min(begin.saturating_add(READ_BYTES_MAX));
        (begin < end && self.reads.len() < READS_MAX).then_some((begin, end))
    }
}

impl Fetches {
    pub(super) fn new(steps: usize) -> Fetches {
        Fetches {
            fetches: vec![Fetch::default(); steps],
            outgoing: Vec::new(),
            attempts: 0,
            is_stopped: false,
        }
    }

    /// Forgets all fetches, for a new start. The numbers of questions go on, so that no late answer is taken
    /// for an answer to a new question.
    pub(super) fn restart(&mut self) {
        self.is_stopped = false;
        self.fetches.fill(Fetch::default());
        self.outgoing.clear();
    }

    /// Lets the first question of each step be `NoteKind::Again`, which is always answered. Bytes that came
    /// unasked may have gone to the earlier driver, or were ignored here because they were for its steps.
    pub(super) fn ask_again(&mut self) {
        self.fetches.iter_mut().for_each(|fetch| fetch.has_asked = true);
    }

    /// Whether a server (a sending process) has confirmed the end, reported a fault or named the rank as the
    /// server, and `step` has not been driven since.
    pub(super) fn has_answer(&self, step: u32) -> bool {
        let fetch = &self.fetches[step as usize];
        fetch.is_end_confirmed || fetch.fault.is_some() || fetch.rank_answers && fetch.asked.is_none()
    }
}

impl Execution {
    /// Whether any send or receive of the operation, to or from another host, is fetched: the driver of the
    /// receive asks for the bytes.
    pub fn has_fetches(&self) -> bool {
        self.fetches.is_some()
    }

    /// Takes the next note that this driver sends to another host, or the next report that a send has
    /// published its first bytes (`report_published`). None if there is neither.
    pub(crate) fn next_outgoing(&mut self) -> Option<Outgoing> {
        self.fetches.as_mut()?.outgoing.pop()
    }

    /// Reports that the send `step` has published its first bytes, so that the server may send them before it
    /// is asked. Does not report a point-to-point message, since no receive may want it yet.
    pub(super) fn report_published(&mut self, step: u32, bytes: u64) {
        let Action::Send { to, edge, .. } = self.plan.schedule.steps[step as usize].action else { return };
        let is_message = self.record.step(step, Field::Total).load(Ordering::Relaxed) & MESSAGE != 0;
        let Some(fetches) = self.fetches.as_mut().filter(|_| !is_message) else { return };
        let note = Note {
            kind: NoteKind::Fetch,
            context: self.context,
            sequence: self.sequence,
            sender: self.rank.peer(),
            receiver: self.peers[to as usize].number(),
            receiver_rank: to,
            edge,
            step: self.plan.schedule.rank,
            attempt: 0,
            offset: 0,
            total: bytes,
        };
        fetches.outgoing.push(Outgoing::Published(note));
    }

    /// Returns the step of this operation that a note (a message from a server) is about. None if there is no
    /// such step.
    fn step_of(&self, note: &Note) -> Option<u32> {
        if note.attempt != 0 {
            return Some(note.step);
        }
        let peer = self.peers.get(note.step as usize)?;
        if peer.number() == note.sender { self.plan.receive_of(note.step, note.edge) } else { None }
    }

    /// Whether a note (a message about a send and its receive) concerns a receive of this operation.
    pub(crate) fn is_of(&self, note: &Note) -> bool {
        (note.receiver, note.context, note.sequence) == (self.rank.peer(), self.context, self.sequence)
    }

    /// Whether the network still reads bytes for any step. Until that ends, no other driver may get the
    /// operation.
    pub(crate) fn is_reading(&self) -> bool {
        self.fetches.as_ref().is_some_and(|it| it.fetches.iter().any(Fetch::is_reading))
    }

    /// Lets no more reads start, because another driver is to take over the operation.
    pub(crate) fn stop(&mut self) {
        self.fetches.iter_mut().for_each(|it| it.is_stopped = true);
    }

    /// Whether `stop` was called. Another driver is then to take over the operation.
    pub(crate) fn is_stopped(&self) -> bool {
        self.fetches.as_ref().is_some_and(|it| it.is_stopped)
    }

    /// Acts on a note (a message) from a server, or on the end of a read, and adds the reads that can start
    /// now to `reads`. Returns whether the note was accepted, came too early, or was ignored.
    pub(crate) fn take_event(
        &mut self,
        event: EdgeEvent,
        reach: &Reach,
        reads: &mut VecDeque<EdgeRead>,
    ) -> Result<NoteOutcome, Stop> {
        let Some(step) = self.step_of(event.note()) else { return Ok(NoteOutcome::Ignored) };
        let taken = match event {
            EdgeEvent::Note(from, note, data) => self.take_note(step, from, note, data, reach)?,
            EdgeEvent::ReadEnded(read, is_there) => {
                self.read_ended(read, is_there, reach)?;
                NoteOutcome::Accepted
            }
        };
        self.add_reads(step, reads);
        Ok(taken)
    }

    /// Acts on a server's note, which answers a question for bytes. Returns whether it was accepted, came
    /// before the step asked, or was ignored, like an answer to an earlier question.
    fn take_note(
        &mut self,
        step: u32,
        from: u32,
        note: &Note,
        data: Span,
        reach: &Reach,
    ) -> Result<NoteOutcome, Stop> {
        let Some(fetches) = &mut self.fetches else { return Ok(NoteOutcome::Ignored) };
        let Some(fetch) = fetches.fetches.get_mut(step as usize) else { return Ok(NoteOutcome::Ignored) };
        let state = &self.states[step as usize];
        let is_unasked = note.attempt == 0;
        match fetch.asked {
            None if is_unasked && !state.finished => return Ok(NoteOutcome::Early),
            Some((server, attempt)) if server == from && (is_unasked || attempt == note.attempt) => {}
            _ => return Ok(NoteOutcome::Ignored),
        }
        let capacity = self.buffers.spots[step as usize].bytes;
        let has_bytes = matches!(note.kind, NoteKind::Data | NoteKind::Copied | NoteKind::Exposed);
        if has_bytes && !state.settling && !reach.claim(self.rank, &self.record) {
            return Ok(NoteOutcome::Ignored);
        }
        if has_bytes && is_unasked && note.total != capacity {
            fetch.fault = Some(Fault::Truncated { peer: note.sender, sent: note.total, expected: capacity });
            return Ok(NoteOutcome::Accepted);
        }
        match (note.kind, state.settling) {
            (NoteKind::Known, true) => fetch.is_end_confirmed = true,
            (NoteKind::Elsewhere, _) => (fetch.rank_answers, fetch.asked) = (true, None),
            (NoteKind::Failed, false) => fetch.fault = Some(server::fault_of(note.sender, data)),
            (NoteKind::Exposed, false) => {
                let place = ExposedSend::from_words(&note::words(data));
                let has_changed = fetch.place.is_some() && fetch.total != note.total;
                if has_changed
                    || place.as_ref().is_none_or(|place| place.start > state.done)
                    || note.offset > note.total
                {
                    let corrupt = Fault::Corrupt { peer: note.sender, what: Corruption::Progress };
                    fetch.fault = Some(corrupt);
                    return Ok(NoteOutcome::Accepted);
                }
                (fetch.place, fetch.total) = (place, note.total);
                fetch.readable = fetch.readable.max(note.offset);
            }
            (NoteKind::Data | NoteKind::Copied, false) => {
                fetch.is_copied = note.kind == NoteKind::Copied;
                // Answers to `Again` may begin with bytes that have come unasked.
                let start = state.done;
                let end = note.offset.saturating_add(data.bytes() as u64);
                let is_next = note.offset <= start && (start < end || note.offset == start);
                if !is_next || end > note.total.min(capacity) || !fetch.reads.is_empty() {
                    return Ok(NoteOutcome::Ignored);
                }
                let data = data.slice((start - note.offset) as usize, (end - start) as usize);
                if self.store_or_fail(step, start, data, reach) {
                    self.received(step, end, note.total, reach)?;
                }
            }
            _ => return Ok(NoteOutcome::Ignored),
        }
        Ok(NoteOutcome::Accepted)
    }

    /// Acts on the end of a read. `is_there` says whether the read has brought its bytes. They count as done
    /// once all bytes before them are there.
    fn read_ended(&mut self, read: &EdgeRead, is_there: bool, reach: &Reach) -> Result<(), Stop> {
        let step = read.note.step;
        let begin = read.offset;
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

    /// Adds the reads that `step` can start now to `reads`.
    fn add_reads(&mut self, step: u32, reads: &mut VecDeque<EdgeRead>) {
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
                kind: NoteKind::Fetch,
                context: self.context,
                sequence: self.sequence,
                sender: self.peers[sender as usize].number(),
                receiver: self.rank.peer(),
                receiver_rank: self.plan.schedule.rank,
                edge: 0,
                step,
                attempt,
                offset: begin,
                total: spot.bytes,
            };
            reads.push_back(EdgeRead { note, from, place: place.clone(), to, bounce, offset: begin });
        }
    }

    /// Records that the first `end` bytes of a receive are stored. `total` is the length of the send, in
    /// bytes.
    fn received(&mut self, step: u32, end: u64, total: u64, reach: &Reach) -> Result<(), Stop> {
        let start = self.states[step as usize].done;
        let capacity = self.buffers.spots[step as usize].bytes;
        reach.count(Counter::FetchedBytes, end - start);
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
        reach.write_done(self.rank, &self.record, step);
        reach.fault_point()?;
        self.states[step as usize].done = end;
        self.states[step as usize].is_complete = is_whole;
        Ok(())
    }

    /// Copies received bytes to their place in the step's buffer, from byte `start` of the send on. Returns
    /// false if that is not possible: the step has then failed.
    fn store_or_fail(&mut self, step: u32, start: u64, data: Span, reach: &Reach) -> bool {
        let Action::Recv { into, .. } = self.plan.schedule.steps[step as usize].action else { return false };
        let stored = self.store(step, into, start, data, reach);
        if let (Err(fault), Some(fetches)) = (stored, &mut self.fetches) {
            fetches.fetches[step as usize].fault = Some(fault);
        }
        stored.is_ok()
    }

    /// Copies received bytes to the blocks `into` of a step's buffer, from byte `start` of the send on.
    fn store(&self, step: u32, into: Blocks, start: u64, data: Span, reach: &Reach) -> Result<(), Fault> {
        let spot = self.buffers.spots[step as usize];
        let mut at = 0;
        while at < data.bytes() {
            let (region, offset, here) = self.buffers.region(into.buffer, spot.at[0] + start + at as u64)?;
            let bytes = here.min((data.bytes() - at) as u64) as usize;
            reach.put(region, offset, data.slice(at, bytes))?;
            at += bytes;
        }
        Ok(())
    }

    /// Drives a receive from a rank of another host one round further.
    pub(super) fn fetch(
        &mut self,
        step: u32,
        peer: u32,
        edge: u32,
        reach: &Reach,
    ) -> Result<StepProgress, Stop> {
        let may_start = self.limit(step).1;
        let bytes = self.buffers.spots[step as usize].bytes;
        let state = &self.states[step as usize];
        let (done, is_settling) = (state.done, state.settling);
        let Some(fetches) = &mut self.fetches else { return Ok(StepProgress::Idle) };
        let fetch = &mut fetches.fetches[step as usize];
        if fetch.is_reading() || fetches.is_stopped {
            return Ok(StepProgress::Idle);
        }
        if fetch.failures >= FAILURES_MAX {
            fetch.fault.get_or_insert(Fault::Lost { peer });
        }
        if let Some(fault) = fetch.fault.take() {
            fetch.asked = None;
            return Err(fault.into());
        }
        if state.is_complete && !is_settling {
            fetch.asked = None;
            return Ok(StepProgress::Finished);
        }
        if fetch.is_end_confirmed {
            return Ok(StepProgress::Finished);
        }
        let is_withdrawn = self.record.is_withdrawn();
        if is_withdrawn && !is_settling {
            fetch.asked = None;
            return self.end_withdrawn(step, reach);
        }
        if !may_start && !is_settling {
            return Ok(StepProgress::Idle);
        }
        let server = if fetch.rank_answers { peer } else { reach.segment.server_of(peer) };
        if fetch.asked.is_some_and(|(asked, _)| asked == server) {
            return Ok(StepProgress::Idle);
        }
        (fetch.place, fetch.readable) = (None, 0);
        fetch.reads.clear();
        // The number 0 is for notes that come unasked.
        fetches.attempts = fetches.attempts.wrapping_add(1).max(1);
        fetch.asked = Some((server, fetches.attempts));
        let note = Note {
            kind: match is_settling {
                false if std::mem::replace(&mut fetch.has_asked, true) => NoteKind::Again,
                false => NoteKind::Fetch,
                true if is_withdrawn => NoteKind::Leave,
                true => NoteKind::Done,
            },
            context: self.context,
            sequence: self.sequence,
            sender: peer,
            receiver: self.rank.peer(),
            receiver_rank: self.plan.schedule.rank,
            edge,
            step,
            attempt: fetches.attempts,
            offset: done,
            total: bytes,
        };
        let is_awaited = !(is_settling && fetch.is_copied);
        fetches.outgoing.push(Outgoing::Note { to: server, note, is_awaited });
        Ok(StepProgress::Moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture;
    use transport::route::RemoteRange;

    const BYTES: u64 = 4096;

    /// Calls `answer_after` for a receive that has no bytes yet.
    fn answer(change: impl FnOnce(&mut u32, &mut Note, &mut Vec<u64>)) -> (Option<Fault>, usize) {
        answer_after(0, change)
    }

    /// Answers a receive's question with a valid answer that `change` has altered, when `done` bytes have
    /// come since the question. Returns the receive's fault, or None, and the number of reads that the answer
    /// starts.
    fn answer_after(
        done: u64,
        change: impl FnOnce(&mut u32, &mut Note, &mut Vec<u64>),
    ) -> (Option<Fault>, usize) {
        let (mut run, reach) = fixture::broadcast(1, BYTES, 0);
        run.poll(&reach).unwrap();
        let Some(Outgoing::Note { to: mut from, note: asked, .. }) = run.next_outgoing() else {
            panic!("it asks for its bytes")
        };
        assert_eq!((asked.kind, asked.offset, asked.total), (NoteKind::Fetch, 0, BYTES));
        let place =
            ExposedSend { far: RemoteRange { key: 1, base: 0, bytes: BYTES }, start: 0, name: [7; 5].into() };
        let mut note = Note { kind: NoteKind::Exposed, offset: BYTES, ..asked };
        let mut words = place.words();
        change(&mut from, &mut note, &mut words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let data = Block::new(bytes.len());
        data.span().write(&bytes);
        let mut reads = VecDeque::new();
        run.states[note.step as usize].done = done;
        run.take_event(EdgeEvent::Note(from, &note, data.span()), &reach, &mut reads).unwrap();
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
        assert_eq!(answer(|_, note, _| note.kind = NoteKind::Known), (None, 0), "nothing is settled");
        let data_after = |done: u64, offset: u64, bytes: usize| {
            answer_after(done, move |_, note, words| {
                (note.kind, note.offset) = (NoteKind::Data, offset);
                *words = vec![0; bytes / 8];
            })
        };
        let data = |offset, bytes| data_after(0, offset, bytes);
        assert_eq!(data(8, 16), (None, 0), "a gap before it");
        assert_eq!(data_after(16, 0, 16), (None, 0), "nothing new");
        assert_eq!(data_after(16, u64::MAX - 7, 16), (None, 0), "an offset beyond all memory");
        assert!(
            matches!(data_after(16, 8, 16).0, Some(Fault::Corrupt { .. })),
            "the half that is new has no memory"
        );
        assert_eq!(data(0, BYTES as usize + 8), (None, 0), "more than was asked for");
        assert!(matches!(data(0, 16).0, Some(Fault::Corrupt { .. })), "there is no memory for it");
    }
}
