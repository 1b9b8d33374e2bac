// SPDX-License-Identifier: BSD-3-Clause
//! Edges between hosts in a job with proxies: which notes (fixed-size messages) processes exchange, and who
//! answers. An edge is a send and its receive.
//!
//! The receive's driver asks the *server* of the sending rank: that rank's proxy, or the rank once the proxy
//! is gone. The server sends short edges, and bytes outside of arenas, in packets. It exposes other bytes,
//! which the driver reads by RDMA. The driver stores its `done` and reports it. The server stores the send's
//! `done`, and confirms. Only then may the receiver's instance end.
//!
//! Invariants: every note may come twice; another driver or server can go on by the words of the records;
//! only the receive's driver writes to its buffer, so that no bytes of a dead driver come late.
//!
//! Read next: `note.rs`, `engine/fetch.rs` (the receiver), `server.rs` (the sender).

use crate::delayed::DelayedNotes;
use crate::memory::{Driver, Reach};
use crate::note::{
    EdgePort, ExposedSend, Lease, NOTE_BYTES, Note, NoteKind, NoteOutcome, Outgoing, send_words, words,
};
use crate::server::Server;
use crate::unasked::UnaskedNotes;
use error::{Class, Result, fail};
use slab::Slab;
use std::collections::VecDeque;
use std::time::Duration;
use sys::{Block, Span};
use telemetry::Counter;
use transport::route::{Pull, Sent};

/// The most bytes that the reads from one server fetch at once. It bounds how long other packets of that
/// server wait in the network behind these bytes.
const READING_BYTES_MAX: usize = 256 << 10;

/// A note about a whole operation: the endpoint that gets it or sent it, the note, and the words that follow
/// the note.
pub(crate) type InstanceNote = (u32, Note, Vec<u64>);

/// What a rank or a proxy needs for sends to and receives from other hosts: notes (fixed-size messages),
/// reads by RDMA, and the state of its server.
#[derive(Default)]
pub(crate) struct RemoteEdges {
    /// The notes (fixed-size messages about sends) that wait to leave, each with the number of the endpoint
    /// that gets it.
    pub outbox: VecDeque<(u32, Note)>,
    /// The notes of a proxy that report what the proxy has written to ranks on another computer. They move
    /// back to `outbox` when the written bytes have arrived.
    unsettled: UnsettledNotes,
    /// The notes (fixed-size messages) to send between a rank and its proxy on another computer. They leave
    /// before the notes in `outbox`.
    pub notes_out: VecDeque<InstanceNote>,
    /// The notes that have come, from a rank to its proxy on another computer or the other way, and on which
    /// this process has not acted yet.
    pub notes_in: VecDeque<InstanceNote>,
    pub server: Server,
    /// The bytes that servers have sent unasked, for steps that have not started yet.
    pub unasked: UnaskedNotes,
    delayed: DelayedNotes,
    /// The reads by RDMA that have not started yet.
    reads: VecDeque<EdgeRead>,
    /// The reads by RDMA that are under way. Each has the lease that keeps the read's target memory
    /// registered with the network.
    reading: Slab<(EdgeRead, Lease)>,
}

/// A read by RDMA: a receive's driver takes published bytes of a send from the memory of the sender's server.
pub(crate) struct EdgeRead {
    /// The question to a server for the bytes that this read takes. It names the operation and the step.
    pub note: Note,
    /// The number of the endpoint of the server from which the bytes come.
    pub from: u32,
    /// The memory of the server that holds the bytes.
    pub place: ExposedSend,
    /// The memory to which the network writes the bytes. It is not used until `RemoteEdges` has reported that
    /// the read has ended.
    pub to: Span,
    /// The block that owns the memory at `to`, if the bytes must be copied on to the step's buffer. None if
    /// they arrive there directly.
    pub bounce: Option<Block>,
    /// The offset, in the bytes of the send, at which the read begins.
    pub offset: u64,
}

/// What `RemoteEdges::exchange` reports to the driver of an operation.
pub(crate) enum EdgeEvent<'a> {
    /// A note has come. The fields are the endpoint that sent it, the note, and the data that follows the
    /// note.
    Note(u32, &'a Note, Span),
    /// A read by RDMA has ended. The flag says whether all its bytes have come.
    ReadEnded(&'a EdgeRead, bool),
}

impl EdgeEvent<'_> {
    /// Returns the note that names the operation and the step to which the event belongs.
    pub fn note(&self) -> &Note {
        match self {
            EdgeEvent::Note(_, note, _) => note,
            EdgeEvent::ReadEnded(read, _) => &read.note,
        }
    }
}

impl RemoteEdges {
    /// Takes what the driver of an operation has to send: notes (fixed-size messages), and the report that a
    /// send has published its first bytes. Delays some of the notes (`delayed.rs`).
    pub fn take_outgoing(&mut self, all: impl Iterator<Item = Outgoing>, reach: &Reach) {
        for outgoing in all {
            let (to, note, is_awaited) = match outgoing {
                Outgoing::Note { to, note, is_awaited } => (to, note, is_awaited),
                Outgoing::Published(note) => {
                    self.server.send_unasked(note, reach);
                    continue;
                }
            };
            let may_wait = match note.kind {
                NoteKind::Fetch => self.delayed.comes_unasked(&note) && !self.unasked.has(&note),
                _ => !is_awaited,
            };
            // A rank may not come back to MPI soon, so it delays no note.
            match reach.driver {
                Driver::Proxy(_) if may_wait => self.delayed.delay(to, note),
                _ => self.outbox.push_back((to, note)),
            }
        }
    }

    /// Does one round of exchange with other hosts: receives notes, sends notes and starts reads. Calls
    /// `arrived` with each note about an operation and with each read that has ended. Returns whether
    /// anything came, left or ended. Errors (MPI_ERR_PROC_ABORTED): a process that still lives cannot be
    /// reached.
    pub fn exchange(
        &mut self,
        port: &mut impl EdgePort,
        reach: &Reach,
        mut arrived: impl FnMut(EdgeEvent, &mut VecDeque<EdgeRead>) -> NoteOutcome,
    ) -> Result<bool> {
        use NoteKind::{Copied, Data, Elsewhere, Exposed, Failed, Known};
        let mut moved = false;
        let mut ended: Vec<EdgeRead> = Vec::new();
        let RemoteEdges { outbox, unsettled, notes_out, notes_in, server, unasked, delayed, reads, reading } =
            self;
        while port.take(|from, header, payload| match Note::read(header, payload) {
            None => telemetry::count(Counter::NetRefused, 1),
            Some((note, data)) => match note.kind {
                NoteKind::Fetch | NoteKind::Again => server.take_question(from, note),
                NoteKind::Refused => server.mark_refused(from, &note),
                NoteKind::Leave => outbox.push_back((from, server.forget_withdrawn(note))),
                NoteKind::Done => match server.store_done(from, note, reach) {
                    Some((answer, false)) => delayed.delay(from, answer),
                    answer => outbox.extend(answer.map(|(answer, _)| (from, answer))),
                },
                Data | Copied | Exposed | Failed | Known | Elsewhere => {
                    let is_unasked = note.attempt == 0 && note.kind != Known;
                    let taken = match is_unasked && unasked.has(&note) {
                        true => NoteOutcome::Early,
                        false => arrived(EdgeEvent::Note(from, &note, data), reads),
                    };
                    if is_unasked {
                        delayed.note_unasked(&note, taken);
                    }
                    if is_unasked && taken == NoteOutcome::Early {
                        outbox.extend(unasked.keep(from, &note, data));
                    }
                }
                _ => notes_in.push_back((from, note, words(data))),
            },
        }) {
            moved = true;
        }
        while let Some((token, is_there)) = port.pulled() {
            let Some((read, _)) = reading.try_remove(token as usize) else { continue };
            arrived(EdgeEvent::ReadEnded(&read, is_there), reads);
            ended.push(read);
            moved = true;
        }
        while let Some((to, note, words)) = notes_out.front() {
            if !reach.segment.is_gone(*to) && send_words(port, *to, note, words) == Sent::Full {
                break;
            }
            notes_out.pop_front();
            moved = true;
        }
        delayed.take_due(outbox, reach);
        unsettled.settle(reach, outbox);
        moved |= send_notes(port, reach, outbox, unasked, |from, note, data| {
            arrived(EdgeEvent::Note(from, note, data), reads)
        });
        let mut sent = Vec::new();
        moved |= server.serve(port, reach, &mut sent);
        delayed.take_following(&sent, outbox);
        moved |= start_reads(port, reads, reading, arrived);
        acknowledge(port, &ended, reading);
        if !moved
            && (!outbox.is_empty() || server.is_busy())
            && let Some(why) = port.broken()
        {
            fail!(Class::ProcAborted, "the connection to another host is lost: {why}");
        }
        Ok(moved)
    }

    /// Whether a note (a fixed-size message) between a rank and its proxy on another computer waits to be
    /// sent. A rank must send it before it returns to the MPI program.
    pub fn has_urgent_notes(&self) -> bool {
        !self.notes_out.is_empty()
    }

    /// Returns how long this process may sleep before a delayed note must leave. None if no note is delayed.
    pub fn nap_max(&self) -> Option<Duration> {
        self.delayed.nap_max()
    }

    /// Whether this process, as a server, has work for which no doorbell will wake it. Bytes that wait for
    /// room in the network do not count.
    pub fn has_work(&self, reach: &Reach) -> bool {
        self.server.has_work(reach) || self.unsettled.has_any()
    }
}

/// The notes that a proxy on another computer holds back until the bytes that it has written to its ranks
/// have arrived there.
#[derive(Default)]
struct UnsettledNotes {
    /// The notes that were held back after the last `ImportedMemory::start_settling`. They wait for the next
    /// one.
    later: Vec<(u32, Note)>,
    /// The notes that were held back before the last `ImportedMemory::start_settling`. They leave once
    /// `is_settled` returns true.
    settling: Vec<(u32, Note)>,
}

impl UnsettledNotes {
    /// Makes ranks look at what this proxy has written to them. Moves the notes that report such writes out
    /// of `outbox`, and back once the writes have arrived. Questions and refusals report no writes, and
    /// remain in `outbox`.
    fn settle(&mut self, reach: &Reach, outbox: &mut VecDeque<(u32, Note)>) {
        let Some(imported) = &reach.imported else { return };
        imported.poll();
        imported.announce_all();
        let mut at = 0;
        while let Some((_, note)) = outbox.get(at) {
            match note.kind {
                NoteKind::Fetch | NoteKind::Again | NoteKind::Refused => at += 1,
                _ => self.later.extend(outbox.remove(at)),
            }
        }
        for _ in 0..2 {
            if !imported.is_settled() {
                return;
            }
            outbox.extend(self.settling.drain(..));
            if !self.later.is_empty() {
                imported.start_settling();
                std::mem::swap(&mut self.later, &mut self.settling);
            }
        }
    }

    fn has_any(&self) -> bool {
        !self.later.is_empty() || !self.settling.is_empty()
    }
}

/// Sends the notes (fixed-size messages) in `outbox`. If the bytes for a question have already come unasked,
/// calls `arrived` with these bytes instead. Returns whether any note was sent or any such bytes were found.
fn send_notes(
    port: &mut impl EdgePort,
    reach: &Reach,
    outbox: &mut VecDeque<(u32, Note)>,
    unasked: &mut UnaskedNotes,
    mut arrived: impl FnMut(u32, &Note, Span) -> NoteOutcome,
) -> bool {
    let mut moved = false;
    // An endpoint that cannot be reached now delays no other.
    for _ in 0..outbox.len() {
        let Some((to, mut note)) = outbox.pop_front() else { break };
        if note.kind == NoteKind::Fetch && unasked.has(&note) {
            moved = true;
            let all = unasked.take(&note);
            // If all are taken, the rest of the edge is on its way or has come.
            if all
                .iter()
                .all(|(from, note, block)| arrived(*from, note, block.span()) == NoteOutcome::Accepted)
            {
                continue;
            }
            note.kind = NoteKind::Again;
        }
        // A driver that waits for an answer of a process that is gone asks another process.
        if reach.segment.is_gone(to) || reach.reports_unknown(&note) {
            continue;
        }
        match port.send(to, &note.header(), NOTE_BYTES, |span| note.write(span)) {
            Sent::Done => moved = true,
            Sent::Full => outbox.push_back((to, note)),
        }
    }
    moved
}

/// Tells servers that reads from their memory have ended, except servers from which other reads are still
/// under way.
fn acknowledge(port: &mut impl EdgePort, ended: &[EdgeRead], reading: &Slab<(EdgeRead, Lease)>) {
    for (at, read) in ended.iter().enumerate() {
        let is_again = ended[at + 1..].iter().any(|other| other.from == read.from);
        if !is_again && reading.iter().all(|(_, (other, _))| other.from != read.from) {
            port.acknowledge((read.from, &read.place.name));
        }
    }
}

/// Starts waiting reads by RDMA as far as `READING_BYTES_MAX` and the network allow. Returns whether any read
/// has started or failed.
fn start_reads(
    port: &mut impl EdgePort,
    reads: &mut VecDeque<EdgeRead>,
    reading: &mut Slab<(EdgeRead, Lease)>,
    mut arrived: impl FnMut(EdgeEvent, &mut VecDeque<EdgeRead>) -> NoteOutcome,
) -> bool {
    let mut moved = false;
    for _ in 0..reads.len() {
        let Some(read) = reads.pop_front() else { break };
        let of_server = reading.iter().filter(|(_, (one, _))| one.from == read.from);
        if of_server.map(|(_, (one, _))| one.to.bytes()).sum::<usize>() >= READING_BYTES_MAX {
            reads.push_back(read);
            continue;
        }
        let entry = reading.vacant_entry();
        let Some(own) = port.register(read.to) else {
            arrived(EdgeEvent::ReadEnded(&read, false), reads);
            continue;
        };
        let ExposedSend { far, start, name } = &read.place;
        let (from, at) = ((read.from, &name[..]), (*far, read.offset - start));
        match port.pull(from, at, read.to, &own, entry.key() as u32) {
            Pull::Started => drop(entry.insert((read, own))),
            Pull::Full => {
                reads.push_back(read);
                continue;
            }
            Pull::Never => drop(arrived(EdgeEvent::ReadEnded(&read, false), reads)),
        }
        moved = true;
    }
    moved
}
