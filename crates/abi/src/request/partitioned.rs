//! The state of partitioned messages (MPI 5.0, chapter 4); `body/partitioned.rs` says how they work.

use super::{Completion, Work, status_of};
use datatype::Buffer;
use error::{Error, Result};
use objects::context::Claim;
use objects::{Group, Handle};
use p2p::{Mode, P2p, Ticket};
use std::sync::{Arc, OnceLock};
use sys::Block;

/// The arguments of a partitioned request, checked.
pub struct Partitioned {
    pub(crate) sends: bool,
    /// The other side; none for MPI_PROC_NULL.
    pub(crate) peer: Option<u32>,
    pub(crate) context: u64,
    pub(crate) _claim: Option<Claim>,
    /// The program's tag.
    pub(crate) tag: i32,
    pub(crate) buffer: Buffer,
    pub(crate) partitions: u32,
    /// The group that tells the sender's rank.
    pub(crate) group: Arc<Group>,
    /// The sender's partitions, and the bytes of each, once the heading has left or arrived.
    pub(crate) heading: OnceLock<[u64; 2]>,
}

/// One start of a partitioned request.
pub struct Parts {
    made: Arc<Partitioned>,
    /// Where the heading lies while its message is under way.
    heading: Option<Block>,
    /// The heading's message, until it is over.
    head: Option<Ticket>,
    /// Messages of partitions under way.
    open: Vec<(u32, Ticket)>,
    /// The sender's partitions that are ready, or have arrived. The receiver has none before the heading
    /// arrives.
    pub(crate) done: Vec<bool>,
    /// How many of them are not; 1 at the receiver before the heading arrives.
    left: usize,
    bytes: u64,
    error: Option<Error>,
}

/// The heading's tag, which no partition has.
const HEADING: i32 = i32::MAX;

impl Partitioned {
    /// Starts the operation. At the first start the sender sends the heading, and the receiver posts a
    /// receive for it.
    pub(crate) fn start(self: &Arc<Partitioned>, p2p: &mut P2p) -> Result<Work> {
        let partitions = self.partitions as usize;
        let words = [u64::from(self.partitions), (self.buffer.bytes() / partitions) as u64];
        let mut parts = Box::new(Parts {
            made: self.clone(),
            heading: None,
            head: None,
            open: Vec::new(),
            done: if self.sends { vec![false; partitions] } else { Vec::new() },
            left: if self.sends { partitions } else { 1 },
            bytes: 0,
            error: None,
        });
        let mut heading = || {
            let block = parts.heading.insert(Block::of(words.map(u64::to_ne_bytes).as_flattened()));
            Buffer::from(block.span())
        };
        match (self.peer, self.sends, self.heading.get()) {
            (None, false, _) => return Ok(Work::Done(Completion::NO_PROCESS)),
            (None, true, _) | (_, true, Some(_)) => {}
            (Some(peer), true, None) => {
                parts.head = Some(p2p.isend(Mode::Standard, self.context, peer, HEADING, heading())?);
                self.heading.get_or_init(|| words);
            }
            (Some(peer), false, None) => {
                parts.head = Some(p2p.irecv(self.context, Some(peer), Some(HEADING), heading()));
            }
            (Some(_), false, Some(known)) => parts.expect(p2p, *known),
        }
        Ok(Work::Parts(parts))
    }

    /// Bytes from `offset` on, as many of the `bytes` as there are.
    fn part(&self, offset: u64, bytes: u64) -> Buffer {
        let all = self.buffer.bytes() as u64;
        let from = offset.min(all);
        self.buffer.slice(from as usize, bytes.min(all - from) as usize)
    }
}

impl Parts {
    /// Its completion, once all partitions are over.
    pub(crate) fn poll(&mut self, p2p: &mut P2p) -> Option<Completion> {
        if let Some(head) = self.head
            && let Some(outcome) = p2p.take(head)
        {
            self.head = None;
            self.error = self.error.take().or(outcome.error);
            if let (false, Some(heading)) = (self.made.sends, &self.heading) {
                let mut words = [[0; 8]; 2];
                heading.span().read(words.as_flattened_mut());
                let heading = words.map(u64::from_ne_bytes);
                self.made.heading.get_or_init(|| heading);
                self.expect(p2p, heading);
            }
        }
        // The last of them mostly ends last, so one look is enough while any is under way.
        while let Some((partition, ticket)) = self.open.last()
            && let Some(outcome) = p2p.take(*ticket)
        {
            if !self.made.sends {
                self.done[*partition as usize] = true;
                self.left -= 1;
                self.bytes += outcome.bytes as u64;
            }
            self.error = self.error.take().or(outcome.error);
            self.open.pop();
        }
        if self.head.is_some() || self.left > 0 || !self.open.is_empty() {
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

    /// Posts a receive for each of the sender's partitions. A message longer than the buffer fails as any
    /// receive does.
    fn expect(&mut self, p2p: &mut P2p, [partitions, bytes]: [u64; 2]) {
        let partitions = partitions.min(HEADING as u64) as u32;
        self.left = partitions as usize;
        self.done = vec![false; self.left];
        for partition in 0..partitions {
            let part = self.made.part(u64::from(partition).saturating_mul(bytes), bytes);
            let ticket = p2p.irecv(self.made.context, self.made.peer, Some(partition as i32), part);
            self.open.push((partition, ticket));
        }
    }

    pub(crate) fn send(&mut self, p2p: &mut P2p, partition: u32) -> Result<()> {
        self.left -= 1;
        let Some(peer) = self.made.peer else { return Ok(()) };
        let bytes = (self.made.buffer.bytes() / self.made.partitions as usize) as u64;
        let part = self.made.part(u64::from(partition) * bytes, bytes);
        let ticket = p2p.isend(Mode::Standard, self.made.context, peer, partition as i32, part)?;
        if ticket != Ticket::DONE {
            self.open.push((partition, ticket));
        }
        Ok(())
    }

    /// Why it cannot be freed or cancelled: the other side waits for all partitions (MPI 5.0, section 4.2.1).
    pub(crate) fn active(&self, request: Handle, call: &str) -> String {
        let noun = if self.made.sends { "send" } else { "receive" };
        let of = if self.made.sends { "partitions are not ready" } else { "partitions are still to come" };
        let left = self.left;
        format!(
            "{request} is an active partitioned {noun}, of which {left} {of}; {call} takes it after MPI_Wait"
        )
    }

    /// Whether it is a receive that waits for the heading.
    pub(crate) fn awaits_heading(&self) -> bool {
        self.head.is_some() && !self.made.sends
    }

    /// Whether a partition of the sender has arrived. `open` holds those under way by their numbers.
    fn is_here(&self, p2p: &P2p, at: usize) -> bool {
        self.done[at] || self.open.get(at).is_some_and(|(_, ticket)| p2p.is_done(*ticket))
    }

    /// Whether all of the sender's partitions that overlap this one of the receiver have arrived.
    pub(crate) fn has_arrived(&self, p2p: &P2p, partition: u32) -> bool {
        let Some([_, theirs]) = self.made.heading.get().filter(|_| self.head.is_none()) else { return false };
        // Partitions without bytes overlap as if the message had been cut evenly.
        let (ours, theirs) = match *theirs {
            0 => (self.done.len() as u64, u64::from(self.made.partitions)),
            bytes => ((self.made.buffer.bytes() / self.made.partitions as usize) as u64, bytes),
        };
        let (from, to) = (u64::from(partition) * ours, (u64::from(partition) + 1) * ours);
        let first = (from / theirs) as usize;
        let end = (to.div_ceil(theirs) as usize).max(first + 1);
        // If the message ends before the partition, all of it must have arrived.
        self.done
            .get(first..end.min(self.done.len()))
            .map_or(self.left == 0, |_| (first..end.min(self.done.len())).all(|at| self.is_here(p2p, at)))
    }
}
