//! Partitioned communication (MPI 5.0, chapter 4): one message, which leaves in partitions as they become
//! ready.
//!
//! Requests match in the order in which they are made (section 4.2.1). So both sides compute the same context
//! without traffic, from the two ranks, the tag and the number of such requests before. Each of the sender's
//! partitions is a message in that context, with its number as the tag.
//!
//! The first start sends a heading: how many partitions the sender has, and the bytes of each. The receiver
//! posts one receive per partition when the heading arrives, in any progress (`Job::driven`); in later starts
//! at once.

use crate::args::{Address, Handle, In, Out};
use crate::body::request::{enter_persistent, for_owner};
use crate::buffer::memory;
use crate::process::{Awaiting, Guard, Job, Process};
use crate::request::{Completion, Receive, Recipe, Send, Source, Work, status_of};
use datatype::Buffer;
use error::{Class, Error, Result, fail};
use objects::context::Claim;
use objects::{Group, constants};
use p2p::{Mode, P2p, Ticket};
use std::sync::{Arc, OnceLock};
use telemetry::Counter;

/// What a partitioned request was made with.
pub struct Partitioned {
    sends: bool,
    /// The other side; nobody for MPI_PROC_NULL.
    peer: Option<u32>,
    context: u64,
    _claim: Option<Claim>,
    /// The program's tag.
    tag: i32,
    buffer: Buffer,
    partitions: u32,
    /// In which the sender has its rank.
    group: Arc<Group>,
    /// Once the heading has left, or has arrived: the sender's partitions, and bytes in each.
    heading: OnceLock<[u64; 2]>,
}

/// One start of a partitioned request.
pub struct Parts {
    made: Arc<Partitioned>,
    /// Where the heading lies while its message is under way.
    heading: [[u8; 8]; 2],
    /// The heading's message, until it is over.
    head: Option<Ticket>,
    /// Messages of partitions under way.
    open: Vec<(u32, Ticket)>,
    /// The sender's partitions that are ready, or have arrived; empty at the receiver before the heading is
    /// there.
    done: Vec<bool>,
    /// How many of the sender's are not; of the receiver's before the heading is there, one.
    left: usize,
    bytes: u64,
    error: Option<Error>,
}

/// The heading's tag, which no partition has.
const HEADING: i32 = i32::MAX;

/// MPI_Psend_init
#[rustfmt::skip]
pub fn psend_init(
    guard: &mut Guard, buf: Address, partitions: i32, count: i64, datatype: Handle, dest: i32, tag: i32,
    comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let all = check(guard, partitions, count, info, request)?;
    let Send { peer, buffer, .. } = guard.outgoing(Mode::Standard, buf, all, datatype, dest, tag, comm)?;
    make(guard, true, peer, tag, buffer, partitions, comm, request)
}

/// MPI_Precv_init
#[rustfmt::skip]
pub fn precv_init(
    guard: &mut Guard, buf: Address, partitions: i32, count: i64, datatype: Handle, source: i32, tag: i32,
    comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let all = check(guard, partitions, count, info, request)?;
    let Receive { source, tag, buffer, .. } = guard.incoming(buf, all, datatype, source, tag, comm)?;
    let peer = match source {
        Source::Nobody => None,
        Source::Peer { peer, .. } => Some(peer),
        Source::Any(_) => fail!(Class::Rank, "a partitioned receive must name its source, not MPI_ANY_SOURCE"),
    };
    let Some(tag) = tag else {
        fail!(Class::Tag, "a partitioned receive must name its tag, not MPI_ANY_TAG");
    };
    make(guard, false, peer, tag, buffer, partitions, comm, request)
}

/// MPI_Pready
pub fn pready(guard: &mut Guard, partition: i32, request: Handle) -> Result<()> {
    let made = ready(guard, &[partition], request);
    for_owner(guard, request, made)
}

/// MPI_Pready_range: both ends belong to the range.
pub fn pready_range(
    guard: &mut Guard,
    partition_low: i32,
    partition_high: i32,
    request: Handle,
) -> Result<()> {
    if partition_low > partition_high {
        fail!(Class::Arg, "partition_low is {partition_low}, above partition_high, {partition_high}");
    }
    let made = ready_range(guard, partition_low, partition_high, request);
    for_owner(guard, request, made)
}

fn ready_range(guard: &mut Guard, low: i32, high: i32, request: Handle) -> Result<()> {
    // The bounds are checked before the list is made: with wrong ones it could be very long.
    if let Some(Recipe::Partitioned(made)) = guard.job().requests.get(request)?.recipe.as_deref() {
        check_partition(low, made.partitions)?;
        check_partition(high, made.partitions)?;
    } else {
        fail!(Class::Request, "{request} is not an active partitioned send");
    }
    let partitions: Vec<i32> = (low..=high).collect();
    ready(guard, &partitions, request)
}

/// MPI_Pready_list
pub fn pready_list(
    guard: &mut Guard,
    length: i32,
    array_of_partitions: In<i32>,
    request: Handle,
) -> Result<()> {
    let partitions = array_of_partitions.read(crate::args::length(length, "length")?)?;
    let made = ready(guard, &partitions, request);
    for_owner(guard, request, made)
}

/// MPI_Parrived: true of null and inactive requests (MPI 5.0, section 4.2.2).
pub fn parrived(guard: &mut Guard, request: Handle, partition: i32, flag: Out<i32>) -> Result<()> {
    flag.check()?;
    if request == constants::REQUEST_NULL {
        return flag.set(1);
    }
    let arrived = arrived(guard, request, partition);
    for_owner(guard, request, arrived.and_then(|arrived| flag.set(i32::from(arrived))))
}

fn arrived(guard: &mut Guard, request: Handle, partition: i32) -> Result<bool> {
    let Some(Recipe::Partitioned(made)) = guard.job().requests.get(request)?.recipe.as_deref() else {
        fail!(Class::Request, "{request} is not a partitioned request");
    };
    let made = made.clone();
    if made.sends {
        fail!(Class::Request, "{request} is a partitioned send; MPI_Parrived takes a receive");
    }
    let partition = check_partition(partition, made.partitions)?;
    let arrived = |process: &mut Process| {
        let over = process.peek(request)?;
        let Job { requests, p2p, .. } = process.job();
        let arrived = match &requests.get(request)?.work {
            Some(Work::Parts(parts)) => parts.has_arrived(p2p, partition),
            _ => over,
        };
        Ok(arrived.then_some(()))
    };
    let arrived = guard.poll(Counter::VainParrived, || Awaiting::Request(request), arrived)?;
    Ok(arrived.is_some())
}

#[rustfmt::skip]
fn check(guard: &Guard, partitions: i32, count: i64, info: Handle, request: Out<Handle>) -> Result<i64> {
    request.check()?;
    guard.objects.info_or_empty(info)?;
    if partitions < 1 {
        fail!(Class::Arg, "partitions is {partitions}; there must be at least one");
    }
    crate::args::count(count, "count")?;
    match count.checked_mul(i64::from(partitions)) {
        Some(all) => Ok(all),
        None => fail!(Class::Count, "{partitions} partitions of {count} elements are more than 2^63"),
    }
}

#[rustfmt::skip]
fn make(
    guard: &mut Guard, sends: bool, peer: Option<u32>, tag: i32, buffer: Buffer, partitions: i32,
    handle: Handle, request: Out<Handle>,
) -> Result<()> {
    let me = guard.objects.own;
    let comm = guard.objects.comms.get_mut(handle)?;
    let pair = peer.map(|peer| if sends { (me, peer) } else { (peer, me) });
    let context = pair.map_or(0, |(from, to)| comm.partitioned_context(tag, from, to, sends).id);
    let group = comm.partners().clone();
    // Only a receiver could take another request's message.
    let claim = pair.filter(|_| !sends).map(|_| guard.objects.contexts.claim(context)).transpose()?;
    let (partitions, heading) = (partitions as u32, OnceLock::new());
    let made = Partitioned { sends, peer, context, tag, buffer, partitions, group, heading, _claim: claim };
    let recipe = Recipe::Partitioned(Arc::new(made));
    enter_persistent(guard, handle, recipe, request)
}

fn check_partition(partition: i32, partitions: u32) -> Result<u32> {
    match u32::try_from(partition) {
        Ok(partition) if partition < partitions => Ok(partition),
        _ => fail!(
            Class::Arg,
            "partition is {partition}, but the request has {partitions} partitions, from 0 on"
        ),
    }
}

/// Sends partitions. If one of them may not be sent, none is.
fn ready(guard: &mut Guard, partitions: &[i32], request: Handle) -> Result<()> {
    let job = guard.job();
    let entry = job.requests.get_mut(request)?;
    let (Some(Recipe::Partitioned(made)), Some(work)) = (entry.recipe.as_deref(), &mut entry.work) else {
        fail!(Class::Request, "{request} is not an active partitioned send");
    };
    let Work::Parts(parts) = work else {
        fail!(Class::Request, "all partitions of {request} are ready already")
    };
    if !made.sends {
        fail!(Class::Request, "{request} is a partitioned receive; only a send's partitions are made ready");
    }
    for partition in partitions {
        check_partition(*partition, made.partitions)?;
    }
    for (at, partition) in partitions.iter().enumerate() {
        if std::mem::replace(&mut parts.done[*partition as usize], true) {
            // Undo the ones before it in the list. It may be one of them.
            let twice = partitions[..at].contains(partition);
            partitions[..at].iter().for_each(|before| parts.done[*before as usize] = false);
            fail!(
                Class::Arg,
                "partition {partition} is {}",
                if twice { "listed twice" } else { "ready already" }
            );
        }
    }
    partitions.iter().try_for_each(|partition| parts.send(&mut job.p2p, *partition as u32))?;
    guard.wake_others();
    Ok(())
}

impl Partitioned {
    /// Starts the operation. The first time the sender's heading leaves, or the receiver waits for it.
    pub(crate) fn start(self: &Arc<Partitioned>, p2p: &mut P2p) -> Result<Work> {
        let partitions = self.partitions as usize;
        let words = [u64::from(self.partitions), (self.buffer.bytes() / partitions) as u64];
        let mut parts = Box::new(Parts {
            made: self.clone(),
            heading: words.map(u64::to_ne_bytes),
            head: None,
            open: Vec::new(),
            done: if self.sends { vec![false; partitions] } else { Vec::new() },
            left: if self.sends { partitions } else { 1 },
            bytes: 0,
            error: None,
        });
        let heading = Buffer::from(memory(parts.heading.as_flattened_mut()));
        match (self.peer, self.sends, self.heading.get()) {
            (None, false, _) => return Ok(Work::Done(Completion::NO_PROCESS)),
            (None, true, _) | (_, true, Some(_)) => {}
            (Some(peer), true, None) => {
                parts.head = Some(p2p.isend(Mode::Standard, self.context, peer, HEADING, heading)?);
                self.heading.get_or_init(|| words);
            }
            (Some(peer), false, None) => {
                parts.head = Some(p2p.irecv(self.context, Some(peer), Some(HEADING), heading));
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
    /// Whether all is over, and how.
    pub(crate) fn poll(&mut self, p2p: &mut P2p) -> Option<Completion> {
        if let Some(head) = self.head
            && let Some(outcome) = p2p.take(head)
        {
            self.head = None;
            self.error = self.error.take().or(outcome.error);
            if !self.made.sends {
                let heading = self.heading.map(u64::from_ne_bytes);
                self.made.heading.get_or_init(|| heading);
                self.expect(p2p, heading);
            }
        }
        // The last of them is most often the last to end, so that it is enough to look at one as long as any
        // is under way.
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

    /// Posts a receive for each of the sender's partitions. What is longer than the buffer fails as any
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

    fn send(&mut self, p2p: &mut P2p, partition: u32) -> Result<()> {
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

    /// Why it can be neither freed nor cancelled: the other side waits for all of its partitions (MPI 5.0,
    /// section 4.2.1).
    pub(crate) fn active(&self, request: Handle, call: &str) -> String {
        let noun = if self.made.sends { "send" } else { "receive" };
        let of = if self.made.sends { "partitions are not ready" } else { "partitions are still to come" };
        let left = self.left;
        format!(
            "{request} is an active partitioned {noun}, of which {left} {of}; {call} takes it after MPI_Wait"
        )
    }

    /// Whether it is a receive that does not yet know the sender's partitions.
    pub(crate) fn awaits_heading(&self) -> bool {
        self.head.is_some() && !self.made.sends
    }

    /// Whether a partition of the sender's is here. Those under way lie in `open` by their numbers.
    fn is_here(&self, p2p: &P2p, at: usize) -> bool {
        self.done[at] || self.open.get(at).is_some_and(|(_, ticket)| p2p.is_done(*ticket))
    }

    /// Whether all of the sender's partitions that overlap this one of the receiver's are here.
    fn has_arrived(&self, p2p: &P2p, partition: u32) -> bool {
        let Some([_, theirs]) = self.made.heading.get().filter(|_| self.head.is_none()) else { return false };
        // Partitions without bytes overlap as if the message had been cut evenly.
        let (own, theirs) = match *theirs {
            0 => (self.done.len() as u64, u64::from(self.made.partitions)),
            bytes => ((self.made.buffer.bytes() / self.made.partitions as usize) as u64, bytes),
        };
        let (from, to) = (u64::from(partition) * own, (u64::from(partition) + 1) * own);
        let first = (from / theirs) as usize;
        let end = (to.div_ceil(theirs) as usize).max(first + 1);
        // Where the message ends before the partition, all of it must be here.
        self.done
            .get(first..end.min(self.done.len()))
            .map_or(self.left == 0, |_| (first..end.min(self.done.len())).all(|at| self.is_here(p2p, at)))
    }
}
