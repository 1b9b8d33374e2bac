// SPDX-License-Identifier: BSD-3-Clause
//! What a server does for sends to other hosts. It sends the published bytes of its host's ranks to the
//! drivers of the receives, which have asked for them, or exposes the bytes for RDMA.
//!
//! Invariants: all that a server keeps may be lost, since the driver then asks again; when the server has
//! read a send's bytes, it checks that the stamp of the send's record has not changed.
//!
//! | state of a `SendJob` | who changes it |
//! |---|---|
//! | `source` is None | `find_source()` finds the send once its rank has started; a changed stamp loses it |
//! | `exposed` is set | `expose()`, for a long send; `mark_refused()` ends it |
//! | `is_sent` | `serve()`, when all was sent unasked; `store_done()` or `take_question()` ends the job |

use crate::fault::{Corruption, Fault};
use crate::memory::{Driver, Reach, Region};
use crate::note::{EdgePort, ExposedSend, Lease, NOTE_BYTES, Note, NoteKind, send_words};
use crate::record::{self, COMPLETE, Field, Head, InstanceRecord, Lookup, MESSAGE, STAGED};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use sys::{Block, Span};
use transport::pending_read::PendingRead;
use transport::route::Sent;
use transport::shm::LocalRank;

/// The most packets that one `SendJob` (a send to another host) sends in a turn, even if the network would
/// take more.
const PACKETS_PER_TURN: usize = 16;

/// The most bytes of a send that a server sends in packets. It exposes longer sends for RDMA. In tests the
/// limit is so low that both kinds of sends occur.
const PACKETS_BYTES_MAX: u64 = if cfg!(test) { 3000 } else { 64 << 10 };

/// The most bytes that one read takes from the memory of a rank on another computer, where each read takes a
/// round trip. In tests the limit is so low that a send takes several reads.
const READ_AHEAD_BYTES: u64 = if cfg!(test) { 2000 } else { 256 << 10 };

/// The most bytes that all sends to other hosts together have read ahead and not sent. In tests it is so
/// small that some sends must wait for others.
const AHEAD_BYTES_MAX: u64 = if cfg!(test) { 5000 } else { 16 << 20 };

/// A value for `SendJob::seen` that no send's `Published` word has.
const NOT_SEEN: u64 = u64::MAX;

/// A process's role as the server of ranks: it sends to other hosts the bytes that these ranks send.
#[derive(Default)]
pub(crate) struct Server {
    /// The sends whose bytes go to other hosts, in the order in which receivers asked for the bytes. The
    /// first send is served first, so it ends first if the network is slow.
    jobs: Vec<SendJob>,
    /// Memory in which the bytes of a packet are put together. None before the first packet.
    packet: Option<Block>,
    /// The operations (sending rank, context, sequence) that a rank drives itself although it has a proxy.
    /// The rank answers questions about them.
    pub owned: HashSet<(u32, u64, u32)>,
    /// For each receiving rank on another host, the endpoint of the process that drives the rank's receives:
    /// the one that sent the last note about such a receive.
    drivers: HashMap<u32, u32>,
}

/// One send whose bytes are to go to the driver of its receive, on another host. That driver has asked for
/// the bytes, or gets them before it asks (`note.attempt` is 0).
struct SendJob {
    /// The number of the endpoint of the receive's driver, which gets the bytes.
    to: u32,
    /// The question that this `SendJob` answers. It says which send's bytes are wanted, and from which byte
    /// on.
    note: Note,
    /// The send whose bytes go out. None until its rank has started the operation.
    source: Option<ServedSend>,
    /// Whether the network had no room for the last packet of this `SendJob`. The network wakes this process
    /// when it has room.
    is_blocked: bool,
    /// The memory that the receiver may read by RDMA, with the lease that keeps it exposed. None if the bytes
    /// go in packets.
    exposed: Option<(ExposedSend, Lease)>,
    /// The reads that fetch the next bytes of the send from a rank on another computer, in the order of their
    /// bytes. Each has the offset in the send at which it begins.
    ahead: VecDeque<(u64, PendingRead)>,
    /// The send's `Published` word when this `SendJob` last had a turn.
    seen: u64,
    /// Whether all bytes were sent before the receiver asked. The `SendJob` stays until the receiver has
    /// them, in case it asks again.
    is_sent: bool,
    /// Whether the receiver has reported that it had no room for bytes that came unasked.
    had_no_room: bool,
    /// The receiver's question, if it came after the bytes were sent unasked. None if no such question came.
    question: Option<Note>,
}

/// A send of a rank on this host, with what the process that sends its bytes to another host knows of it.
struct ServedSend {
    record: InstanceRecord,
    stamp: u64,
    step: u32,
    region: Region,
    /// The length of the send in bytes. The receiver may want fewer.
    bytes: u64,
    /// Whether the bytes are a copy in the arena, so that the sender's operation does not wait for the
    /// receiver.
    is_copied: bool,
}

/// What one turn of a `SendJob` has done.
enum JobTurn {
    /// No bytes were sent: the send has published no more, or the network has no room.
    Wait,
    /// A packet or a note was sent, and the `SendJob` can go on.
    Sent,
    /// The last bytes of the send were sent.
    Finished,
}

impl Server {
    /// Takes the question of a receive's driver for the bytes of a send. The question replaces an earlier one
    /// of the same driver. Several drivers of one receive may ask, if the first died.
    pub fn take_question(&mut self, from: u32, note: Note) {
        self.drivers.insert(note.receiver, from);
        if note.kind == NoteKind::Fetch
            && let Some(job) = self.unasked_job(from, &note)
            && !job.had_no_room
        {
            job.question = Some(note);
            return;
        }
        self.jobs.retain(|job| job.to != from || !job.note.is_edge_of(&note));
        self.jobs.push(SendJob::new(from, note));
    }

    /// Records that a receiver had no room for bytes that were sent to it unasked. The server sends these
    /// bytes again once the receiver asks for them.
    pub fn mark_refused(&mut self, from: u32, note: &Note) {
        if let Some(job) = self.unasked_job(from, note) {
            (job.is_sent, job.had_no_room, job.exposed) = (true, true, None);
            if let Some(question) = job.question.take() {
                self.take_question(from, question);
            }
        }
    }

    /// Returns the `SendJob` that sends the bytes of a send unasked to the endpoint `to`. The note names the
    /// send. None if there is no such `SendJob`.
    fn unasked_job(&mut self, to: u32, note: &Note) -> Option<&mut SendJob> {
        let is_it = |job: &&mut SendJob| job.note.attempt == 0 && job.to == to && job.note.is_edge_of(note);
        self.jobs.iter_mut().find(is_it)
    }

    /// Adds a `SendJob` that sends the bytes of a send before the receiver asks, since the first bytes are
    /// published. Does nothing if a driver has already asked. `note` has the form of a question.
    pub fn send_unasked(&mut self, note: Note, reach: &Reach) {
        if !self.jobs.iter().any(|job| job.note.is_edge_of(&note)) {
            let driver = self.drivers.get(&note.receiver).filter(|driver| !reach.segment.is_gone(**driver));
            let to = driver.copied().unwrap_or_else(|| reach.segment.server_of(note.receiver));
            self.jobs.push(SendJob::new(to, note));
        }
    }

    /// Forgets the `SendJob` for a receive that was withdrawn. Returns the answer for the receive's driver.
    pub fn forget_withdrawn(&mut self, note: Note) -> Note {
        self.jobs.retain(|job| !job.note.is_edge_of(&note));
        Note { kind: NoteKind::Known, ..note }
    }

    /// Stores in the sending rank's record that the receiver has all bytes of a send. Stores nothing if the
    /// sender's instance has ended, or the rank must answer itself (`Elsewhere`). Returns the answer to the
    /// receiver's driver, and whether that driver may wait for it. None if the sender is no rank of this
    /// host.
    pub fn store_done(&mut self, from: u32, note: Note, reach: &Reach) -> Option<(Note, bool)> {
        self.drivers.insert(note.receiver, from);
        self.jobs.retain(|job| !job.note.is_edge_of(&note));
        if self.is_owned(&note) {
            return Some((Note { kind: NoteKind::Elsewhere, ..note }, true));
        }
        let mut is_message = false;
        let rank = reach.segment.local(note.sender)?;
        if let Ok(Some((record, stamp))) = find(rank, &note, reach)
            && let Ok(step) = record::find_send(&record, reach.me(), note.receiver_rank, note.edge)
        {
            let total = record.step(step, Field::Total).load(Ordering::Acquire);
            is_message = total & MESSAGE != 0;
            let word = record.step(step, Field::Done);
            if record.head(Head::Stamp).load(Ordering::Acquire) == stamp {
                word.store(total & !MESSAGE | COMPLETE, Ordering::Release);
                reach.write_done(rank, &record, step);
                reach.wake(rank);
            }
        }
        Some((Note { kind: NoteKind::Known, ..note }, is_message))
    }

    /// Gives each `SendJob` a turn to send. Adds to `sent` the endpoints to which bytes have gone. Returns
    /// whether anything was sent.
    pub fn serve(&mut self, port: &mut impl EdgePort, reach: &Reach, sent: &mut Vec<u32>) -> bool {
        let Server { jobs, packet, owned, .. } = self;
        let mut moved = false;
        let mut room = AHEAD_BYTES_MAX.saturating_sub(jobs.iter().map(SendJob::ahead_bytes).sum());
        jobs.retain_mut(|job| {
            if reach.segment.is_gone(job.to) {
                return false;
            }
            if !owned.is_empty() && owned.contains(&instance(&job.note)) {
                let note = Note { kind: NoteKind::Elsewhere, ..job.note };
                let sent = port.send(job.to, &note.header(), NOTE_BYTES, |span| note.write(span));
                moved |= sent == Sent::Done;
                return sent == Sent::Full;
            }
            for _ in 0..if job.is_sent { 0 } else { PACKETS_PER_TURN } {
                match job.turn(port, reach, packet, &mut room) {
                    Ok(JobTurn::Wait) => break,
                    Ok(JobTurn::Sent) => {
                        moved = true;
                        sent.push(job.to);
                    }
                    Ok(JobTurn::Finished) => {
                        moved = true;
                        sent.push(job.to);
                        job.is_sent = job.note.attempt == 0;
                        return job.is_sent;
                    }
                    // The rank itself answers, since this proxy does not reach it any more.
                    Err(Fault::Unreachable { .. }) if matches!(reach.driver, Driver::Proxy(_)) => {
                        owned.insert(instance(&job.note));
                        break;
                    }
                    Err(fault) => {
                        let sent = job.send_fault(port, fault);
                        moved |= sent == Sent::Done;
                        return sent == Sent::Full;
                    }
                }
            }
            true
        });
        moved
    }

    /// Whether the sending rank itself drives the operation of a note, although it has a proxy, and so
    /// answers the note.
    fn is_owned(&self, note: &Note) -> bool {
        !self.owned.is_empty() && self.owned.contains(&instance(note))
    }

    /// Whether any send to another host still has bytes to go, or waits until the receiver confirms that it
    /// has all bytes.
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether a `SendJob` could send something now that it could not send at its last turn.
    pub fn has_work(&self, reach: &Reach) -> bool {
        self.jobs.iter().filter(|job| !job.is_sent).any(|job| match &job.source {
            Some(source) => !job.is_blocked && source.published() != job.seen,
            None => reach
                .segment
                .local(job.note.sender)
                .is_none_or(|rank| !matches!(find(rank, &job.note, reach), Ok(None))),
        })
    }
}

/// Returns the key of the operation whose send a note is about: sending rank, context, sequence.
fn instance(note: &Note) -> (u32, u64, u32) {
    (note.sender, note.context, note.sequence)
}

impl ServedSend {
    fn published(&self) -> u64 {
        self.record.step(self.step, Field::Published).load(Ordering::Acquire)
    }
}

impl SendJob {
    fn new(to: u32, note: Note) -> SendJob {
        SendJob {
            to,
            note,
            source: None,
            is_blocked: false,
            exposed: None,
            ahead: VecDeque::new(),
            seen: NOT_SEEN,
            is_sent: false,
            had_no_room: false,
            question: None,
        }
    }

    fn turn(
        &mut self,
        port: &mut impl EdgePort,
        reach: &Reach,
        packet: &mut Option<Block>,
        room: &mut u64,
    ) -> Result<JobTurn, Fault> {
        if self.source.is_none() {
            self.source = find_source(&self.note, reach)?;
        }
        let Some(source) = &self.source else { return Ok(JobTurn::Wait) };
        let seen = source.published();
        let published = source.record.published(source.step, source.bytes, self.note.sender);
        let Note { offset, total, .. } = self.note;
        let is_here =
            |source: &ServedSend| source.record.head(Head::Stamp).load(Ordering::Acquire) == source.stamp;
        if !is_here(source) {
            (self.source, self.exposed, self.seen) = (None, None, NOT_SEEN);
            self.ahead.clear();
            return Ok(JobTurn::Wait);
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
        let Some(have) = self.read_to(have.min(length), room, reach)? else { return Ok(JobTurn::Wait) };
        let Some(source) = &self.source else { return Ok(JobTurn::Wait) };
        let end = have.min(offset.saturating_add(most));
        // The last packet also reports that the send is finished.
        let is_last = end == length;
        if is_last && !is_whole || !is_last && end <= offset {
            self.seen = seen;
            return Ok(JobTurn::Wait);
        }
        let bytes = end.saturating_sub(offset) as usize;
        // This comes before the bytes are fetched: a packet that waits would cost a fetch at each turn.
        self.is_blocked = !port.has_room(self.to, NOTE_BYTES + bytes);
        if self.is_blocked {
            return Ok(JobTurn::Wait);
        }
        let kind = if source.is_copied { NoteKind::Copied } else { NoteKind::Data };
        let note = Note { kind, total: source.bytes, ..self.note };
        let block = || packet.get_or_insert_with(|| Block::new(most as usize)).span().slice(0, bytes);
        let copy = self.packet_bytes(&source.region, bytes, block, reach)?;
        let sent = port.send(self.to, &note.header(), NOTE_BYTES + bytes, |span| {
            note.write(span.slice(0, NOTE_BYTES));
            copy.copy_to(span.slice(NOTE_BYTES, bytes));
        });
        self.is_blocked = sent == Sent::Full;
        if self.is_blocked {
            return Ok(JobTurn::Wait);
        }
        self.note.offset = end;
        Ok(if is_last { JobTurn::Finished } else { JobTurn::Sent })
    }

    /// Returns memory that holds the next `bytes` bytes of the send. If this process cannot address them yet,
    /// copies them to the memory that `block` returns.
    fn packet_bytes(
        &self,
        region: &Region,
        bytes: usize,
        block: impl FnOnce() -> Span,
        reach: &Reach,
    ) -> Result<Span, Fault> {
        let offset = self.note.offset;
        Ok(match region {
            Region::Local(span) => span.slice(offset as usize, bytes),
            _ if reach.is_imported(region) && bytes > 0 => bytes_ahead(&self.ahead, offset, bytes),
            _ => {
                let copy = block();
                reach.fetch_into(region, offset, copy)?;
                copy
            }
        })
    }

    /// Returns the number of a send's first bytes that this process can read, at most `have`, which are
    /// published. Starts to read bytes of a rank on another computer, and subtracts their number from `room`.
    /// None if the next bytes are still on their way.
    fn read_to(&mut self, have: u64, room: &mut u64, reach: &Reach) -> Result<Option<u64>, Fault> {
        let SendJob { source: Some(source), note, ahead, .. } = self else { return Ok(Some(have)) };
        let offset = note.offset;
        if !reach.is_imported(&source.region) || offset >= have {
            return Ok(Some(have));
        }
        let end = |(start, read): &(u64, PendingRead)| start + read.length() as u64;
        while ahead.front().is_some_and(|one| end(one) <= offset) {
            ahead.pop_front();
        }
        while let start = ahead.back().map_or(offset, end)
            && let bytes = have.saturating_sub(start).min(READ_AHEAD_BYTES).min(*room)
            && bytes > 0
            && ahead.len() < 2
        {
            *room -= bytes;
            ahead.push_back((start, reach.start_fetch(&source.region, start, bytes)?));
        }
        match ahead.front().and_then(|(start, read)| Some((start + read.length() as u64, read.bytes()?))) {
            Some((end, Ok(_))) => Ok(Some(end)),
            // ECONNRESET.
            Some((_, Err(_))) => Err(Fault::Unreachable { peer: note.sender, code: 104 }),
            None => {
                // Nothing wakes this process when the read has ended.
                self.seen = NOT_SEEN;
                Ok(None)
            }
        }
    }

    /// Returns the number of this send's bytes that were read ahead of need, or are being read.
    fn ahead_bytes(&self) -> u64 {
        self.ahead.iter().map(|(_, read)| read.length() as u64).sum()
    }

    /// Exposes the bytes of a long send for RDMA, and tells the receiver how many of them it may read so far.
    /// Returns what this turn has done; None if the memory cannot be exposed.
    fn expose(
        &mut self,
        port: &mut impl EdgePort,
        span: Span,
        (seen, have, is_whole): (u64, u64, bool),
    ) -> Option<JobTurn> {
        let source = self.source.as_ref()?;
        if self.exposed.is_none() {
            let start = self.note.offset;
            let (far, name, lease) =
                port.expose(span.slice(start as usize, span.bytes() - start as usize))?;
            self.exposed = Some((ExposedSend { far, start, name: name.into() }, lease));
        }
        let (place, _) = self.exposed.as_ref()?;
        let is_late = have >= source.bytes.min(self.note.total) && !is_whole;
        if seen == self.seen || have <= place.start || is_late {
            self.seen = seen;
            return Some(JobTurn::Wait);
        }
        let note = Note { kind: NoteKind::Exposed, offset: have, total: source.bytes, ..self.note };
        self.is_blocked = send_words(port, self.to, &note, &place.words()) == Sent::Full;
        if self.is_blocked {
            return Some(JobTurn::Wait);
        }
        self.seen = seen;
        Some(JobTurn::Sent)
    }

    fn send_fault(&self, port: &mut impl EdgePort, fault: Fault) -> Sent {
        let note = Note { kind: NoteKind::Failed, ..self.note };
        send_words(port, self.to, &note, &fault.words())
    }
}

/// Returns the `bytes` bytes of a send from `offset` on, which `read_to` has fetched from a rank on another
/// computer.
fn bytes_ahead(ahead: &VecDeque<(u64, PendingRead)>, offset: u64, bytes: usize) -> Span {
    let (start, read) = ahead.front().expect("a read");
    let span = read.bytes().and_then(|bytes| bytes.ok()).expect("bytes that have come");
    span.slice((offset - start) as usize, bytes)
}

/// Decodes the fault that a note of kind `Failed` from rank `peer` carries as data.
pub(crate) fn fault_of(peer: u32, data: Span) -> Fault {
    let mut bytes = [0; 32];
    if data.bytes() == bytes.len() {
        data.read(&mut bytes);
    }
    let words = std::array::from_fn(|i| u64::from_ne_bytes(std::array::from_fn(|j| bytes[8 * i + j])));
    Fault::from_words(words).unwrap_or(Fault::Corrupt { peer, what: Corruption::Edge })
}

/// Finds the send that the question `note` asks for. None while its rank has not started the operation.
fn find_source(note: &Note, reach: &Reach) -> Result<Option<ServedSend>, Fault> {
    let corrupt = |what| Fault::Corrupt { peer: note.sender, what };
    let Some(rank) = reach.segment.local(note.sender) else { return Err(corrupt(Corruption::Edge)) };
    let Some((record, stamp)) = find(rank, note, reach)? else { return Ok(None) };
    let step = record::find_send(&record, reach.me(), note.receiver_rank, note.edge)?;
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
    let region = reach.region_of_send(rank, address, total)?;
    let is_copied = !is_message && (total == 0 || address & STAGED != 0 && reach.imported.is_none());
    Ok(Some(ServedSend { record, stamp, step, region, bytes: total, is_copied }))
}

/// Finds the operation whose send a note is about. Returns its record and the record's stamp. None if the
/// operation has not started, or the directory changed while it was read.
fn find(rank: LocalRank, note: &Note, reach: &Reach) -> Result<Option<(InstanceRecord, u64)>, Fault> {
    let directory = &reach.segment.rank(rank).directory[..];
    match record::find(directory, reach.arena(rank)?, reach.me(), note.context, note.sequence) {
        Ok(Lookup::Here(record, stamp)) => Ok(Some((record, stamp))),
        Err(fault @ Fault::Unmapped { .. }) => Err(fault),
        // A stale link may lead anywhere, but not for long.
        Ok(Lookup::Absent | Lookup::Unclear) | Err(_) => Ok(None),
    }
}
