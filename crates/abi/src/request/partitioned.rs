// SPDX-License-Identifier: BSD-3-Clause
//! The state of partitioned messages (MPI 5.0, chapter 4). `body/partitioned.rs` says how such messages work.

use super::{Completion, MessageEnd, ReceiveSource, Work, status_of};
use coll::{Coll, CollTicket};
use datatype::Buffer;
use error::{Error, Result};
use objects::context::ContextClaim;
use objects::{Group, Handle};
use p2p::{Mode, P2p, Ticket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use sys::Block;
use telemetry::{Carried, Event};

/// The checked arguments of a partitioned request, and what all its starts share.
pub struct Partitioned {
    pub(crate) sends: bool,
    /// This process's number in the job.
    pub(crate) me: u32,
    /// The number in the job of the process at the other end. None for MPI_PROC_NULL.
    pub(crate) peer: Option<u32>,
    pub(crate) context: u64,
    /// The context id of the comm that the program passed. `context` is the request's own.
    pub(crate) comm: u64,
    pub(crate) _claim: Option<ContextClaim>,
    /// The tag that the program passed. The messages that carry partitions have the partitions' numbers as
    /// tags.
    pub(crate) tag: i32,
    pub(crate) buffer: Buffer,
    pub(crate) partitions: u32,
    /// The group in which the sender's rank is looked up for the status.
    pub(crate) group: Arc<Group>,
    /// The heading, the sender's first message, which describes its partitions. Empty until it has been sent
    /// (at the sender) or has arrived (at the receiver).
    pub(crate) heading: OnceLock<Heading>,
    /// How many times the request has been started. The sender and the receiver count alike.
    pub(crate) starts: AtomicU32,
}

/// What the sender tells the receiver once, at the first start: its partitions, and how they move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heading {
    /// How many partitions the sender has.
    partitions: u32,
    /// How many bytes each partition of the sender has.
    bytes: u64,
    /// Whether each partition moves as an instance (a `Send` that a proxy can carry out). If not, as a
    /// message.
    by_proxy: bool,
}

impl Heading {
    const BYTES: usize = 24;

    fn to_bytes(self) -> [u8; Heading::BYTES] {
        let words = [u64::from(self.partitions), self.bytes, u64::from(self.by_proxy)];
        words.map(u64::to_ne_bytes).as_flattened().try_into().expect("three words")
    }

    fn from_block(block: &Block) -> Heading {
        let mut words = [[0; 8]; 3];
        block.span().read(words.as_flattened_mut());
        let [partitions, bytes, by_proxy] = words.map(u64::from_ne_bytes);
        Heading { partitions: partitions.min(HEADING as u64) as u32, bytes, by_proxy: by_proxy != 0 }
    }
}

/// The state of one start of a partitioned request.
pub struct PartitionedStart {
    made: Arc<Partitioned>,
    /// The memory of the heading, the sender's first message. None if this start neither sends nor receives
    /// it.
    heading: Option<Block>,
    /// The ticket (the number in `p2p`) of this start's send or receive of the heading, the sender's first
    /// message. None if this start has no such operation, or when it is over.
    heading_ticket: Option<Ticket>,
    /// The partitions that are under way, in the order in which they were started: each partition's number,
    /// and what moves it.
    open: Vec<(u32, Transfer)>,
    /// The number of this start of the partitioned request. The first start has the number 0.
    start: u32,
    /// For each partition of the sender, whether it is ready (at the sender) or has arrived (at the
    /// receiver). The receiver's list is empty before the heading (the sender's first message) arrives.
    pub(crate) done: Vec<bool>,
    /// How many of the sender's partitions are not ready (at the sender), or have not arrived (at the
    /// receiver). The receiver has 1 here until the heading (the sender's first message) arrives.
    left: usize,
    bytes: u64,
    error: Option<Error>,
    /// For each partition of the sender, whether the trace has its arrival. Empty unless this is a receiver
    /// that traces.
    traced: Vec<bool>,
    /// The bytes that proxies have moved of the partitioned message so far, and their cpu time. None if
    /// they have moved nothing, or operations are not timed.
    carried: Option<Carried>,
}

/// What moves a partition: a message, or an instance (a `Send` or `Recv` that a proxy can carry out), with
/// the partition's length in bytes.
#[derive(Clone, Copy)]
enum Transfer {
    Message(Ticket),
    Instance(CollTicket, u64),
}

impl Transfer {
    fn is_over(self, p2p: &P2p, coll: &Coll) -> bool {
        match self {
            Transfer::Message(ticket) => p2p.is_done(ticket),
            Transfer::Instance(ticket, _) => coll.is_over(ticket),
        }
    }

    /// Returns the bytes of the partition that a proxy has moved, and its cpu time. Returns None if no
    /// proxy moves the partition, or operations are not timed.
    fn carried(self, coll: &Coll) -> Option<Carried> {
        match self {
            Transfer::Instance(ticket, _) if telemetry::timed() => {
                coll.carried(ticket).filter(|carried| carried.choice.is_proxy())
            }
            _ => None,
        }
    }

    /// Returns the partition's length in bytes, and its error if it has failed. Returns None while it is
    /// under way.
    fn take(self, p2p: &mut P2p, coll: &mut Coll) -> Option<(u64, Option<Error>)> {
        match self {
            Transfer::Message(ticket) => {
                p2p.take(ticket).map(|outcome| (outcome.bytes as u64, outcome.error))
            }
            Transfer::Instance(ticket, bytes) => coll.outcome(ticket).map(|outcome| (bytes, outcome.err())),
        }
    }
}

/// Returns the sum of the bytes and of the times of two proxies' transfers: `one` partition, and `all`
/// partitions counted so far. Returns None if both are None.
fn sum(all: Option<Carried>, one: Option<Carried>) -> Option<Carried> {
    let (Some(all), Some(one)) = (all, one) else { return all.or(one) };
    let (bytes, cpu_ns) = (all.bytes + one.bytes, all.cpu_ns + one.cpu_ns);
    Some(Carried { bytes, cpu_ns, completed: all.completed.max(one.completed), ..one })
}

/// The tag of the heading, the sender's first message. No partition has this number.
const HEADING: i32 = i32::MAX;

impl Partitioned {
    /// Starts the operation of a partitioned request. At the first start, the sender also sends the heading
    /// (a message that describes its partitions), and the receiver posts a receive for it.
    pub(crate) fn start(self: &Arc<Partitioned>, p2p: &mut P2p, coll: &mut Coll) -> Result<Work> {
        let partitions = self.partitions as usize;
        let mut parts = Box::new(PartitionedStart {
            made: self.clone(),
            heading: None,
            heading_ticket: None,
            open: Vec::new(),
            start: self.starts.fetch_add(1, Ordering::Relaxed),
            done: if self.sends { vec![false; partitions] } else { Vec::new() },
            left: if self.sends { partitions } else { 1 },
            bytes: 0,
            error: None,
            traced: Vec::new(),
            carried: None,
        });
        match (self.peer, self.sends, self.heading.get()) {
            (None, false, _) => return Ok(Work::Done(Completion::NO_PROCESS)),
            (None, true, _) | (_, true, Some(_)) => {}
            (Some(peer), true, None) => {
                let bytes = (self.buffer.bytes() / partitions) as u64;
                let by_proxy = coll.takes_message(peer, bytes);
                let heading = Heading { partitions: self.partitions, bytes, by_proxy };
                let block = parts.heading.insert(Block::of(&heading.to_bytes()));
                let buffer = Buffer::from(block.span());
                parts.heading_ticket =
                    Some(p2p.isend(Mode::Standard, self.context, peer, HEADING, buffer)?);
                self.heading.get_or_init(|| heading);
            }
            (Some(peer), false, None) => {
                let block = parts.heading.insert(Block::new(Heading::BYTES));
                let buffer = Buffer::from(block.span());
                parts.heading_ticket = Some(p2p.irecv(self.context, Some(peer), Some(HEADING), buffer));
            }
            (Some(peer), false, Some(known)) => parts.expect(p2p, coll, peer, *known),
        }
        Ok(Work::Partitioned(parts))
    }

    /// Returns the message's direction, context, peer, tag and length, for the statistics and the trace.
    /// Returns None if the other end is MPI_PROC_NULL.
    pub(crate) fn end(&self) -> Option<MessageEnd> {
        let Partitioned { sends, context, tag, .. } = *self;
        let source = ReceiveSource::Peer { peer: self.peer?, rank: 0 };
        Some(MessageEnd { sends, context, source, tag, bytes: self.buffer.bytes() as u64 })
    }

    /// Records in the trace that the partition `partition` of the start `start` is ready or has arrived, as
    /// `what` says.
    #[cold]
    fn trace(&self, what: &str, start: u32, partition: u32, heading: Option<&Heading>) {
        let (context, number, bytes) =
            (self.context, start.wrapping_add(1), heading.map_or(0, |it| it.bytes));
        if let Some(peer) = self.peer {
            telemetry::event(Event::Partition { what, peer, context, number, partition, bytes });
        }
    }

    /// Returns `bytes` bytes of the program's buffer from `offset` on, or fewer if the buffer ends before.
    fn part(&self, offset: u64, bytes: u64) -> Buffer {
        let all = self.buffer.bytes() as u64;
        let from = offset.min(all);
        self.buffer.slice(from as usize, bytes.min(all - from) as usize)
    }
}

impl PartitionedStart {
    /// Takes the next steps of the partitioned message. Returns how it ended once all partitions are over,
    /// and None before.
    pub(crate) fn poll(&mut self, p2p: &mut P2p, coll: &mut Coll) -> Option<Completion> {
        if let Some(ticket) = self.heading_ticket
            && let Some(outcome) = p2p.take(ticket)
        {
            self.heading_ticket = None;
            self.error = self.error.take().or(outcome.error);
            if let (false, Some(block), Some(peer)) = (self.made.sends, &self.heading, self.made.peer) {
                let heading = *self.made.heading.get_or_init(|| Heading::from_block(block));
                self.expect(p2p, coll, peer, heading);
            }
        }
        if telemetry::tracing() {
            self.trace_arrivals(p2p, coll);
        }
        // The last partition mostly ends last, so one look is enough while any partition is under way.
        while let Some(last) = self.open.len().checked_sub(1)
            && self.close(last, p2p, coll)
        {}
        if self.heading_ticket.is_some() || self.left > 0 || !self.open.is_empty() {
            return None;
        }
        let error = self.error.take();
        let made = &self.made;
        let status = match made.peer {
            Some(peer) if !made.sends => status_of(peer, made.tag, self.bytes, &made.group),
            _ => Completion::EMPTY.status,
        };
        Some(Completion { status, error, generalized: None })
    }

    /// Takes the partition at index `at` of `open` out of it if it is over. Returns whether it was.
    fn close(&mut self, at: usize, p2p: &mut P2p, coll: &mut Coll) -> bool {
        let (partition, transfer) = self.open[at];
        let (carried, Some((bytes, error))) = (transfer.carried(coll), transfer.take(p2p, coll)) else {
            return false;
        };
        self.open.remove(at);
        self.carried = sum(self.carried, carried);
        if !self.made.sends {
            self.done[partition as usize] = true;
            self.left -= 1;
            self.bytes += bytes;
            // A proxy may have ended the partition since `trace_arrivals`. Without a trace the list is empty.
            if let Some(traced) = self.traced.get_mut(partition as usize)
                && !std::mem::replace(traced, true)
            {
                self.made.trace("arrived", self.start, partition, self.made.heading.get());
            }
        }
        self.error = self.error.take().or(error);
        true
    }

    /// Starts to receive each partition of the sender. A partition that goes beyond the buffer's end fails
    /// like a message that is too long.
    fn expect(&mut self, p2p: &mut P2p, coll: &mut Coll, peer: u32, heading: Heading) {
        self.left = heading.partitions as usize;
        self.done = vec![false; self.left];
        for partition in 0..heading.partitions {
            let part = self.made.part(u64::from(partition).saturating_mul(heading.bytes), heading.bytes);
            let transfer = if heading.by_proxy {
                self.start_instance(coll, peer, partition, heading.partitions, part)
            } else {
                let tag = Some(partition as i32);
                Ok(Transfer::Message(p2p.irecv(self.made.context, Some(peer), tag, part)))
            };
            match transfer {
                Ok(transfer) => self.open.push((partition, transfer)),
                Err(error) => {
                    self.left -= 1;
                    self.error = self.error.take().or(Some(error));
                }
            }
        }
    }

    /// Records in the trace the arrival of each partition that has arrived and is not yet recorded.
    #[cold]
    fn trace_arrivals(&mut self, p2p: &P2p, coll: &Coll) {
        if self.made.sends {
            return;
        }
        self.traced.resize(self.done.len(), false);
        for (partition, transfer) in &self.open {
            let traced = &mut self.traced[*partition as usize];
            if !*traced && transfer.is_over(p2p, coll) {
                *traced = true;
                self.made.trace("arrived", self.start, *partition, self.made.heading.get());
            }
        }
    }

    /// Returns how many bytes each partition of the sender has. Returns 0 if the sender has not told it yet.
    pub(crate) fn piece_bytes(&self) -> u64 {
        self.made.heading.get().map_or(0, |heading| heading.bytes)
    }

    /// Returns the bytes that proxies have moved of the partitioned message so far, and their cpu time.
    /// Returns None if no proxy has moved any, or operations are not timed.
    pub(crate) fn carried(&self) -> Option<Carried> {
        self.carried
    }

    pub(crate) fn send(&mut self, p2p: &mut P2p, coll: &mut Coll, partition: u32) -> Result<()> {
        self.left -= 1;
        if telemetry::tracing() {
            self.made.trace("ready", self.start, partition, self.made.heading.get());
        }
        let made = &self.made;
        let (Some(peer), Some(&Heading { bytes, by_proxy, .. })) = (made.peer, made.heading.get()) else {
            return Ok(());
        };
        let part = made.part(u64::from(partition) * bytes, bytes);
        let transfer = if by_proxy {
            self.start_instance(coll, peer, partition, made.partitions, part)?
        } else {
            let ticket = p2p.isend(Mode::Standard, made.context, peer, partition as i32, part)?;
            if ticket == Ticket::DONE {
                return Ok(());
            }
            Transfer::Message(ticket)
        };
        self.open.push((partition, transfer));
        Ok(())
    }

    /// Starts the instance that moves the sender's partition `partition`. `partitions` is the sender's number
    /// of partitions. Both ends give the instance the same number. No other live instance has this number,
    /// because neither end can be more than one start ahead.
    fn start_instance(
        &self,
        coll: &mut Coll,
        peer: u32,
        partition: u32,
        partitions: u32,
        buffer: Buffer,
    ) -> Result<Transfer> {
        let Partitioned { me, context, sends, .. } = *self.made;
        let sequence = self.start.wrapping_mul(partitions).wrapping_add(partition);
        let peers = Arc::from(if sends { [me, peer] } else { [peer, me] });
        let bytes = buffer.bytes() as u64;
        let offload = coll::Offload::Auto;
        let message =
            coll::MessageInstance { context, sequence, peers, sends, buffer, offload, matched: true };
        Ok(Transfer::Instance(coll.start_message(message)?, bytes))
    }

    /// Returns the text of the error of `call` (MPI_Request_free or MPI_Cancel) on the active request
    /// `request`. The program must first wait for the request (MPI 5.0, section 4.2.1).
    pub(crate) fn active(&self, request: Handle, call: &str) -> String {
        let noun = if self.made.sends { "send" } else { "receive" };
        let of = if self.made.sends { "partitions are not ready" } else { "partitions are still to come" };
        let left = self.left;
        format!(
            "{request} is an active partitioned {noun}, of which {left} {of}; {call} takes it after MPI_Wait"
        )
    }

    /// Whether this is a receive to which the heading (the sender's first message) has not arrived yet.
    pub(crate) fn awaits_heading(&self) -> bool {
        self.heading_ticket.is_some() && !self.made.sends
    }

    /// Whether partition `at` of the sender has arrived. Closes one that has: only so many instances may be
    /// over before the sender's host has confirmed, and what MPI_Parrived has found must stay true. In `open`
    /// the partitions are in the order of their numbers.
    fn is_here(&mut self, p2p: &mut P2p, coll: &mut Coll, at: usize) -> bool {
        let find = |open: &[(u32, Transfer)]| open.binary_search_by_key(&at, |(number, _)| *number as usize);
        self.done[at] || find(&self.open).is_ok_and(|index| self.close(index, p2p, coll))
    }

    /// Whether all partitions of the sender that overlap the receiver's partition `partition` have arrived.
    pub(crate) fn has_arrived(&mut self, p2p: &mut P2p, coll: &mut Coll, partition: u32) -> bool {
        let Some(heading) = self.made.heading.get().filter(|_| self.heading_ticket.is_none()) else {
            return false;
        };
        // Partitions without bytes overlap as if both sides had divided the message evenly.
        let (ours, theirs) = match heading.bytes {
            0 => (self.done.len() as u64, u64::from(self.made.partitions)),
            bytes => ((self.made.buffer.bytes() / self.made.partitions as usize) as u64, bytes),
        };
        let (from, to) = (u64::from(partition) * ours, (u64::from(partition) + 1) * ours);
        let first = (from / theirs) as usize;
        let end = (to.div_ceil(theirs) as usize).max(first + 1);
        // A partition beyond the end of the message is here once all of the message has arrived.
        let mut range = first..end.min(self.done.len());
        match self.done.get(range.clone()) {
            None => self.left == 0,
            Some(_) => range.all(|at| self.is_here(p2p, coll, at)),
        }
    }
}
