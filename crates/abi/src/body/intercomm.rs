// SPDX-License-Identifier: BSD-3-Clause
//! Calls that make an intercommunicator, and the call that merges the two groups of an intercommunicator into
//! an intracommunicator (MPI 5.0, section 7.6.2).

use super::comm::{enter, group_of, intracomm};
use super::exchange::{check_fingerprints, gather_for_new_comm, swap_words};
use crate::args::{Handle, Out};
use crate::process::Guard;
use crate::request::{to_bytes, to_words};
use error::{Class, Result, fail};
use objects::context::leaders_context;
use objects::{Comm, Context, Group};

/// MPI_Intercomm_create: the two leaders exchange their groups. Each leader sends the remote group to its own
/// group.
pub fn intercomm_create(
    guard: &mut Guard,
    local_comm: Handle,
    local_leader: i32,
    peer_comm: Handle,
    remote_leader: i32,
    tag: i32,
    newintercomm: Out<Handle>,
) -> Result<()> {
    newintercomm.check()?;
    intracomm(guard, local_comm)?;
    let local = guard.objects.comms.get_mut(local_comm)?;
    local.peer(local_leader)?;
    let (leads, group) = (local.rank == local_leader as u32, local.group.clone());
    let context = local.child_context(0);
    let meet = || {
        exchange_with_leader(guard, &group, context, peer_comm, remote_leader, tag)
            .map(|words| to_bytes(&words))
    };
    let found = leads.then(meet);
    let mut found = to_words(&guard.broadcast_from_root(local_comm, local_leader as u32, found)?);
    let [id, fingerprint, ours] = found.split_off(found.len() - 3)[..] else { unreachable!("three words") };
    check_fingerprints(guard, local_comm, context.fingerprint as i64, [(local_leader as usize, ours)])?;
    let remote = group_of(guard, found.iter().map(|peer| *peer as u32));
    let theirs = Context { id: id as u64, fingerprint: fingerprint as u64 };
    let context = Context::of_both(context, theirs);
    enter(guard, local_comm, Comm::between(context, group, remote, ""), newintercomm)
}

/// Exchanges groups and contexts with the leader of the remote group. Returns the process numbers of the
/// remote group, then the context that the remote leader proposes (its id and its fingerprint), then the
/// fingerprint of `context`. A fingerprint is a hash of the comms made before.
fn exchange_with_leader(
    guard: &mut Guard,
    group: &Group,
    context: Context,
    peer_comm: Handle,
    remote_leader: i32,
    tag: i32,
) -> Result<Vec<i64>> {
    if tag < 0 {
        fail!(Class::Tag, "tag is {tag}, which is negative");
    }
    let bridge = guard.objects.comm(peer_comm)?;
    let peer = bridge.peer(remote_leader)?;
    let meeting = leaders_context(bridge.context);
    if group.rank_of(peer).is_some() {
        fail!(Class::Rank, "the remote leader, rank {remote_leader} of {peer_comm}, is in the local group");
    }
    let mut mine: Vec<i64> = group.peers.iter().map(|peer| i64::from(*peer)).collect();
    mine.extend([context.id as i64, context.fingerprint as i64]);
    let mut theirs = swap_words(guard, meeting, peer, tag, &mine)?;
    disjoint(group, theirs[..theirs.len() - 2].iter().map(|peer| *peer as u32))?;
    theirs.push(context.fingerprint as i64);
    Ok(theirs)
}

/// Returns MPI_ERR_COMM if a process is in the local group and in the remote group.
pub(crate) fn disjoint(group: &Group, mut remote: impl Iterator<Item = u32>) -> Result<()> {
    match remote.find(|peer| group.rank_of(*peer).is_some()) {
        Some(peer) => fail!(Class::Comm, "process {peer} of the job is in both groups"),
        None => Ok(()),
    }
}

/// MPI_Intercomm_merge: in the new comm the ranks of the group that passes `high` come second. If both groups
/// pass the same value, the group that is first in `Comm::all_peers` comes first.
pub fn intercomm_merge(
    guard: &mut Guard,
    intercomm: Handle,
    high: i32,
    newintracomm: Out<Handle>,
) -> Result<()> {
    newintracomm.check()?;
    if guard.objects.comm(intercomm)?.remote.is_none() {
        fail!(Class::Comm, "{intercomm} is an intracommunicator; this call needs an intercommunicator");
    }
    let highs = gather_for_new_comm(guard, intercomm, &[i64::from(high != 0)])?;
    let comm = guard.objects.comms.get_mut(intercomm)?;
    let context = comm.child_context(0);
    let (first, second) = highs.split_at(comm.first_group as usize);
    if [first, second].iter().any(|group| group.iter().any(|high| *high != group[0])) {
        fail!(Class::Arg, "the processes of one group pass different values of high");
    }
    let mut peers = comm.all_peers.to_vec();
    if first[0] > second[0] {
        peers.rotate_left(comm.first_group as usize);
    }
    let group = group_of(guard, peers);
    enter(guard, intercomm, Comm::new(context, group, ""), newintracomm)
}
