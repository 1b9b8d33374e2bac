// SPDX-License-Identifier: BSD-3-Clause
//! The sender's side of edges between hosts: sends what sends of ranks on this host have published to whoever
//! asked, or exposes it to them.
//!
//! Invariants: it keeps nothing that a second question would not bring again; a send's bytes are read between
//! two looks at the stamp of its record.

use crate::fault::{Corruption, Fault};
use crate::memory::{Driver, Reach, Region};
use crate::note::{EdgePort, Kind, Lease, NOTE_BYTES, Note, Place, send_words};
use crate::record::{self, COMPLETE, Field, Head, InstanceRecord, Lookup, MESSAGE, STAGED};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use sys::{Block, Span};
use transport::route::Sent;
use transport::shm::LocalRank;

/// Packets of one job in a turn, however fast the network takes them.
const PACKETS_PER_TURN: usize = 16;

/// Edges up to this length go in packets; longer ones are exposed. Tests have both.
const PACKETS_BYTES_MAX: u64 = if cfg!(test) { 3000 } else { 64 << 10 };

/// What no send has published.
const NOT_SEEN: u64 = u64::MAX;

/// What is being sent.
#[derive(Default)]
pub(crate) struct Server {
    /// In the order in which they were asked for: where the network is slow, the first ends first.
    jobs: Vec<Job>,
    /// Bytes of a packet, until they leave.
    packet: Option<Block>,
    /// Instances, by sending rank, that a rank drives whose memory is another computer's (`imported.rs`): it
    /// answers for them.
    pub kept: HashSet<(u32, u64, u32)>,
    /// The endpoint that has driven a rank's receives lately.
    drivers: HashMap<u32, u32>,
}

/// One edge that somebody fetches, or is to get unasked (attempt 0).
struct Job {
    /// Who.
    to: u32,
    /// What, and from where on.
    note: Note,
    /// The send, once it was found.
    source: Option<Source>,
    /// The network had no room at the last turn. It wakes the process when it has some.
    is_refused: bool,
    /// The bytes from `note.offset` on as the receiver reads them, until it says that it has them.
    exposed: Option<(Place, Lease)>,
    /// The send's `published` as the last turn has seen it.
    seen: u64,
    /// All has been sent unasked. Until the receiver has it, that answers its question.
    is_sent: bool,
    /// Something of it had no room, ...
    is_refused_there: bool,
    /// ... and this has been asked meanwhile.
    question: Option<Note>,
}

/// A send of a rank on this host.
struct Source {
    record: InstanceRecord,
    stamp: u64,
    step: u32,
    region: Region,
    /// Its length, of which the receiver takes at most what it asked for.
    bytes: u64,
    /// Its operation does not wait for the receiver.
    is_copied: bool,
}

/// What became of a job's turn.
enum Turn {
    /// The send has published nothing more, or the network has no room.
    Wait,
    /// A packet left.
    Sent,
    /// There is nothing more to do.
    Over,
}

impl Server {
    /// Takes a question. Two may ask about one edge: what a driver said before it died may come later than
    /// what the next one says.
    pub fn ask(&mut self, from: u32, note: Note) {
        self.drivers.insert(note.receiver, from);
        if note.kind == Kind::Fetch
            && let Some(job) = self.pushed(from, &note)
            && !job.is_refused_there
        {
            job.question = Some(note);
            return;
        }
        self.jobs.retain(|job| job.to != from || !job.note.is_edge_of(&note));
        self.jobs.push(Job::new(from, note));
    }

    /// Something that was sent unasked had no room.
    pub fn refused(&mut self, from: u32, note: &Note) {
        if let Some(job) = self.pushed(from, note) {
            (job.is_sent, job.is_refused_there, job.exposed) = (true, true, None);
            if let Some(question) = job.question.take() {
                self.ask(from, question);
            }
        }
    }

    /// What is sent unasked of an edge to an endpoint.
    fn pushed(&mut self, to: u32, note: &Note) -> Option<&mut Job> {
        let is_it = |job: &&mut Job| job.note.attempt == 0 && job.to == to && job.note.is_edge_of(note);
        self.jobs.iter_mut().find(is_it)
    }

    /// A send has begun to be published: its receiver gets it, unless somebody has asked for it. `note` is as
    /// a question, without an attempt.
    pub fn push(&mut self, note: Note, reach: &Reach) {
        if !self.jobs.iter().any(|job| job.note.is_edge_of(&note)) {
            let driver = self.drivers.get(&note.receiver).filter(|driver| !reach.segment.is_gone(**driver));
            let to = driver.copied().unwrap_or_else(|| reach.segment.server_of(note.receiver));
            self.jobs.push(Job::new(to, note));
        }
    }

    /// Forgets what a receiver has asked that was withdrawn, and returns the answer.
    pub fn leave(&mut self, note: Note) -> Note {
        self.jobs.retain(|job| !job.note.is_edge_of(&note));
        Note { kind: Kind::Known, ..note }
    }

    /// Stores that a send has been received. Returns the answer, and whether the receiver may wait for it. If
    /// its instance has ended, it knows.
    pub fn done(&mut self, from: u32, note: Note, reach: &Reach) -> Option<(Note, bool)> {
        self.drivers.insert(note.receiver, from);
        self.jobs.retain(|job| !job.note.is_edge_of(&note));
        if self.is_kept(&note) {
            return Some((Note { kind: Kind::Elsewhere, ..note }, true));
        }
        let mut is_message = false;
        let rank = reach.segment.local(note.sender)?;
        if let Ok(Some((record, stamp))) = find(rank, &note, reach)
            && let Ok(step) = record::find_send(&record, reach.me(), note.to, note.edge)
        {
            let total = record.step(step, Field::Total).load(Ordering::Acquire);
            is_message = total & MESSAGE != 0;
            let word = record.step(step, Field::Done);
            if record.head(Head::Stamp).load(Ordering::Acquire) == stamp {
                word.store(total & !MESSAGE | COMPLETE, Ordering::Release);
                reach.tell(rank, &record, step);
                reach.wake(rank);
            }
        }
        Some((Note { kind: Kind::Known, ..note }, is_message))
    }

    /// Gives each job a turn, and adds to `sent` where bytes have left for; whether anything left.
    pub fn serve(&mut self, port: &mut impl EdgePort, reach: &Reach, sent: &mut Vec<u32>) -> bool {
        let Server { jobs, packet, kept, .. } = self;
        let mut moved = false;
        jobs.retain_mut(|job| {
            if reach.segment.is_gone(job.to) {
                return false;
            }
            if !kept.is_empty() && kept.contains(&instance(&job.note)) {
                let note = Note { kind: Kind::Elsewhere, ..job.note };
                let sent = port.send(job.to, &note.header(), NOTE_BYTES, |span| note.write(span));
                moved |= sent == Sent::Done;
                return sent == Sent::Full;
            }
            for _ in 0..if job.is_sent { 0 } else { PACKETS_PER_TURN } {
                match job.turn(port, reach, packet) {
                    Ok(Turn::Wait) => break,
                    Ok(Turn::Sent) => {
                        moved = true;
                        sent.push(job.to);
                    }
                    Ok(Turn::Over) => {
                        moved = true;
                        sent.push(job.to);
                        job.is_sent = job.note.attempt == 0;
                        return job.is_sent;
                    }
                    // A rank that this proxy does not reach any more answers itself.
                    Err(Fault::Unreachable { .. }) if matches!(reach.driver, Driver::Proxy(_)) => {
                        kept.insert(instance(&job.note));
                        break;
                    }
                    Err(fault) => {
                        let sent = job.fail(port, fault);
                        moved |= sent == Sent::Done;
                        return sent == Sent::Full;
                    }
                }
            }
            true
        });
        moved
    }

    /// Whether its rank drives the sending instance, and answers for it.
    fn is_kept(&self, note: &Note) -> bool {
        !self.kept.is_empty() && self.kept.contains(&instance(note))
    }

    /// Whether anybody waits for anything.
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether a job has something to send.
    pub fn has_work(&self, reach: &Reach) -> bool {
        self.jobs.iter().filter(|job| !job.is_sent).any(|job| match &job.source {
            Some(source) => !job.is_refused && source.published() != job.seen,
            None => reach
                .segment
                .local(job.note.sender)
                .is_none_or(|rank| !matches!(find(rank, &job.note, reach), Ok(None))),
        })
    }
}

/// The sending instance of an edge.
fn instance(note: &Note) -> (u32, u64, u32) {
    (note.sender, note.context, note.sequence)
}

impl Source {
    fn published(&self) -> u64 {
        self.record.step(self.step, Field::Published).load(Ordering::Acquire)
    }
}

impl Job {
    fn new(to: u32, note: Note) -> Job {
        Job {
            to,
            note,
            source: None,
            is_refused: false,
            exposed: None,
            seen: NOT_SEEN,
            is_sent: false,
            is_refused_there: false,
            question: None,
        }
    }

    fn turn(
        &mut self,
        port: &mut impl EdgePort,
        reach: &Reach,
        packet: &mut Option<Block>,
    ) -> Result<Turn, Fault> {
        if self.source.is_none() {
            self.source = seek(&self.note, reach)?;
        }
        let Some(source) = &self.source else { return Ok(Turn::Wait) };
        let seen = source.published();
        let published = source.record.published(source.step, source.bytes, self.note.sender);
        let Note { offset, total, .. } = self.note;
        let is_here =
            |source: &Source| source.record.head(Head::Stamp).load(Ordering::Acquire) == source.stamp;
        if !is_here(source) {
            (self.source, self.exposed, self.seen) = (None, None, NOT_SEEN);
            return Ok(Turn::Wait);
        }
        let (have, is_whole) = published?;
        let length = source.bytes.min(total);
        let most = (port.payload_bytes_max() - NOTE_BYTES) as u64;
        let local = if let Region::Local(span) = source.region { Some(span) } else { None };
        if let Some(span) = local
            && reach.imported.is_none()
            && (self.exposed.is_some() || length.saturating_sub(offset) > most)
            && length > PACKETS_BYTES_MAX
            && let Some(turn) = self.expose(port, span, (seen, have, is_whole))
        {
            return Ok(turn);
        }
        let Some(source) = &self.source else { return Ok(Turn::Wait) };
        let end = have.min(length).min(offset.saturating_add(most));
        // The last packet also says that the send is finished.
        let is_last = end == length;
        if is_last && !is_whole || !is_last && end <= offset {
            self.seen = seen;
            return Ok(Turn::Wait);
        }
        let bytes = end.saturating_sub(offset) as usize;
        // Before the bytes are fetched: a packet that waits would cost that at each turn.
        self.is_refused = !port.has_room(self.to, NOTE_BYTES + bytes);
        if self.is_refused {
            return Ok(Turn::Wait);
        }
        let kind = if source.is_copied { Kind::Copied } else { Kind::Data };
        let note = Note { kind, total: source.bytes, ..self.note };
        let block = packet.get_or_insert_with(|| Block::new(most as usize));
        let copy = match &source.region {
            Region::Local(span) => span.slice(offset as usize, bytes),
            region => {
                let copy = block.span().slice(0, bytes);
                reach.fetch_into(region, offset, copy)?;
                copy
            }
        };
        let sent = port.send(self.to, &note.header(), NOTE_BYTES + bytes, |span| {
            note.write(span.slice(0, NOTE_BYTES));
            copy.copy_to(span.slice(NOTE_BYTES, bytes));
        });
        self.is_refused = sent == Sent::Full;
        if self.is_refused {
            return Ok(Turn::Wait);
        }
        self.note.offset = end;
        Ok(if is_last { Turn::Over } else { Turn::Sent })
    }

    /// Says up to where the receiver can read the send's bytes; nothing if they cannot be exposed. The last
    /// byte also says that the send is finished.
    fn expose(
        &mut self,
        port: &mut impl EdgePort,
        span: Span,
        (seen, have, is_whole): (u64, u64, bool),
    ) -> Option<Turn> {
        let source = self.source.as_ref()?;
        if self.exposed.is_none() {
            let start = self.note.offset;
            let (far, name, lease) =
                port.expose(span.slice(start as usize, span.bytes() - start as usize))?;
            self.exposed = Some((Place { far, start, name: name.into() }, lease));
        }
        let (place, _) = self.exposed.as_ref()?;
        let is_late = have >= source.bytes.min(self.note.total) && !is_whole;
        if seen == self.seen || have <= place.start || is_late {
            self.seen = seen;
            return Some(Turn::Wait);
        }
        let note = Note { kind: Kind::Place, offset: have, total: source.bytes, ..self.note };
        self.is_refused = send_words(port, self.to, &note, &place.words()) == Sent::Full;
        if self.is_refused {
            return Some(Turn::Wait);
        }
        self.seen = seen;
        Some(Turn::Sent)
    }

    fn fail(&self, port: &mut impl EdgePort, fault: Fault) -> Sent {
        let note = Note { kind: Kind::Failed, ..self.note };
        send_words(port, self.to, &note, &fault.words())
    }
}

/// The fault that follows a note.
pub(crate) fn failed(peer: u32, data: Span) -> Fault {
    let mut bytes = [0; 32];
    if data.bytes() == bytes.len() {
        data.read(&mut bytes);
    }
    let words = std::array::from_fn(|i| u64::from_ne_bytes(std::array::from_fn(|j| bytes[8 * i + j])));
    Fault::from_words(words).unwrap_or(Fault::Corrupt { peer, what: Corruption::Edge })
}

/// The send that a note asks for, once its rank has started it.
fn seek(note: &Note, reach: &Reach) -> Result<Option<Source>, Fault> {
    let corrupt = |what| Fault::Corrupt { peer: note.sender, what };
    let Some(rank) = reach.segment.local(note.sender) else { return Err(corrupt(Corruption::Edge)) };
    let Some((record, stamp)) = find(rank, note, reach)? else { return Ok(None) };
    let step = record::find_send(&record, reach.me(), note.to, note.edge)?;
    let total = record.step(step, Field::Total).load(Ordering::Acquire);
    let (total, is_message) = (total & !MESSAGE, total & MESSAGE != 0);
    let address = record.step(step, Field::Address).load(Ordering::Acquire);
    if record.head(Head::Stamp).load(Ordering::Acquire) != stamp {
        return Ok(None);
    }
    if total != note.total && !is_message {
        return Err(Fault::Truncated { peer: note.sender, sent: total, expected: note.total });
    }
    if note.offset > total.min(note.total) {
        return Err(corrupt(Corruption::Progress));
    }
    let region = reach.lies(rank, address, total)?;
    let is_copied = !is_message && (total == 0 || address & STAGED != 0 && reach.imported.is_none());
    Ok(Some(Source { record, stamp, step, region, bytes: total, is_copied }))
}

/// The sender's instance and its stamp, if it is certainly there.
fn find(rank: LocalRank, note: &Note, reach: &Reach) -> Result<Option<(InstanceRecord, u64)>, Fault> {
    let directory = &reach.segment.rank(rank).directory[..];
    match record::find(directory, reach.arena(rank)?, reach.me(), note.context, note.sequence) {
        Ok(Lookup::Here(record, stamp)) => Ok(Some((record, stamp))),
        Err(fault @ Fault::Unmapped { .. }) => Err(fault),
        // A stale link may lead anywhere, but not for long.
        Ok(Lookup::Absent | Lookup::Unclear) | Err(_) => Ok(None),
    }
}
