// SPDX-License-Identifier: BSD-3-Clause
//! Partitioned communication (MPI 5.0, chapter 4): the parts of one message leave as they become ready.
//!
//! A partitioned send and a receive match in the order in which their requests are made (section 4.2.1). So
//! both ranks compute the same context id without traffic, from the two ranks, the tag and the number of such
//! requests before. A partition is either a message in that context, with the partition's number as the tag,
//! or a `Send` of an instance (`coll::MessageInstance`), which a proxy can carry out while the rank computes.
//!
//! At the first start the sender sends a heading: how many partitions it has, the bytes of each, and whether
//! the partitions are messages. When the heading arrives, the receiver posts one receive for each partition,
//! in any round of progress (`JobState::driven`). At later starts it posts the receives at once.

use super::completion::for_owner;
use crate::args::{Address, Handle, In, Out};
use crate::process::{Awaiting, Guard, JobState, Process};
use crate::request::{Partitioned, Receive, ReceiveSource, Recipe, Send, Work};
use crate::staging;
use datatype::Buffer;
use error::{Class, Result, fail};
use objects::constants;
use p2p::Mode;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use telemetry::Counter;

/// MPI_Psend_init
#[rustfmt::skip]
pub fn psend_init(
    guard: &mut Guard, buf: Address, partitions: i32, count: i64, datatype: Handle, dest: i32, tag: i32,
    comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let all = check(guard, partitions, count, info, request)?;
    let Send { peer, buffer, .. } = guard.outgoing(Mode::Standard, buf, all, datatype, dest, tag, comm)?;
    make(guard, true, peer, tag, buffer.filled()?, partitions, comm, request)
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
        ReceiveSource::Nobody => None,
        ReceiveSource::Peer { peer, .. } => Some(peer),
        ReceiveSource::Any(_) => fail!(Class::Rank, "a partitioned receive must name its source, not MPI_ANY_SOURCE"),
    };
    let Some(tag) = tag else {
        fail!(Class::Tag, "a partitioned receive must name its tag, not MPI_ANY_TAG");
    };
    make(guard, false, peer, tag, buffer, partitions, comm, request)
}

/// MPI_Pready
pub fn pready(guard: &mut Guard, partition: i32, request: Handle) -> Result<()> {
    let made = ready(guard, &[partition], request);
    guard.job().send_notes_now();
    for_owner(guard, request, made)
}

/// MPI_Pready_range: the partitions `partition_low` and `partition_high` belong to the range.
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
    if let Some(Recipe::Partitioned(made)) = recipe(guard.job(), request)? {
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

/// MPI_Parrived: stores true for null and inactive requests (MPI 5.0, section 4.2.2).
pub fn parrived(guard: &mut Guard, request: Handle, partition: i32, flag: Out<i32>) -> Result<()> {
    flag.check()?;
    if request == constants::REQUEST_NULL {
        return flag.set(1);
    }
    let arrived = arrived(guard, request, partition);
    for_owner(guard, request, arrived.and_then(|arrived| flag.set(i32::from(arrived))))
}

fn arrived(guard: &mut Guard, request: Handle, partition: i32) -> Result<bool> {
    let Some(Recipe::Partitioned(made)) = recipe(guard.job(), request)? else {
        fail!(Class::Request, "{request} is not a partitioned request");
    };
    let made = made.clone();
    if made.sends {
        fail!(Class::Request, "{request} is a partitioned send; MPI_Parrived takes a receive");
    }
    let partition = check_partition(partition, made.partitions)?;
    let arrived = |process: &mut Process| {
        let over = process.peek(request)?;
        let JobState { requests, p2p, coll, .. } = process.job();
        let mut work = requests.get_mut(request)?.work.as_mut();
        let arrived = match work.as_deref_mut().map(Work::inner_mut) {
            Some(Work::Partitioned(parts)) => parts.has_arrived(p2p, coll, partition),
            _ => over,
        };
        if arrived && let Some(Work::Staged(_, staged)) = work {
            let bytes = made.buffer.bytes() / made.partitions as usize;
            staged
                .of_device()
                .iter()
                .try_for_each(|one| one.deliver_early(partition as usize * bytes, bytes))?;
        }
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
    if sends {
        staging::reads(&buffer);
    }
    let me = guard.objects.me;
    let comm = guard.objects.comms.get_mut(handle)?;
    let pair = peer.map(|peer| if sends { (me, peer) } else { (peer, me) });
    let context = pair.map_or(0, |(from, to)| comm.partitioned_context(tag, from, to, sends).id);
    let (group, of_comm) = (comm.partners().clone(), comm.context);
    // Only a receiver could take the message of another request.
    let claim = pair.filter(|_| !sends).map(|_| guard.objects.contexts.claim(context)).transpose()?;
    let (partitions, heading) = (partitions as u32, OnceLock::new());
    let (starts, _claim, comm) = (AtomicU32::new(0), claim, of_comm);
    let made = Partitioned {
        sends, me, peer, context, comm, tag, buffer, partitions, group, heading, starts, _claim,
    };
    let recipe = Recipe::Partitioned(Arc::new(made));
    guard.enter_persistent(handle, recipe, request)
}

/// Returns the recipe of a persistent request, from which each start makes an operation. For a
/// `Recipe::Staged` returns the recipe inside. Returns None if the request is not persistent.
fn recipe(job: &mut JobState, request: Handle) -> Result<Option<&Recipe>> {
    Ok(job.requests.get(request)?.recipe.as_deref().map(Recipe::inner))
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

/// Sends the partitions that MPI_Pready or a similar call names. If one of them may not be sent, sends none.
fn ready(guard: &mut Guard, partitions: &[i32], request: Handle) -> Result<()> {
    let job = guard.job();
    let entry = job.requests.get_mut(request)?;
    let recipe = entry.recipe.as_deref().map(Recipe::inner);
    let (Some(Recipe::Partitioned(made)), Some(work)) = (recipe, &mut entry.work) else {
        fail!(Class::Request, "{request} is not an active partitioned send");
    };
    let (work, staged) = match work {
        Work::Staged(work, staged) => (&mut **work, Some(staged.clone())),
        work => (work, None),
    };
    let work = if let Work::Timed(timed) = work { &mut timed.work } else { work };
    let Work::Partitioned(parts) = work else {
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
            // Undo those before this one in the list, which may include the same partition.
            let twice = partitions[..at].contains(partition);
            partitions[..at].iter().for_each(|before| parts.done[*before as usize] = false);
            fail!(
                Class::Arg,
                "partition {partition} is {}",
                if twice { "listed twice" } else { "ready already" }
            );
        }
    }
    let bytes = made.buffer.bytes() / made.partitions as usize;
    for one in staged.iter().flat_map(|staged| staged.of_device()) {
        partitions.iter().try_for_each(|partition| one.fetch(*partition as usize * bytes, bytes))?;
    }
    let JobState { p2p, coll, .. } = job;
    partitions.iter().try_for_each(|partition| parts.send(p2p, coll, *partition as u32))?;
    guard.wake_others();
    Ok(())
}
