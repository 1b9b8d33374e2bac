//! How intercommunicators are made, and made into intracommunicators (MPI 5.0, sections 7.6.2 and 7.4.2).

use super::comm::{enter, intra};
use super::gather::{gather_words, share_words, swap_words};
use crate::args::{Handle, Out};
use crate::process::Guard;
use error::{Class, Result, fail};
use objects::comm::mixed;
use objects::{Comm, Group};
use std::sync::Arc;

/// Tells the leaders' exchange from all other traffic of the comm by which they know each other.
const LEADERS: u64 = u64::MAX - 1;

/// MPI_Intercomm_create: the leaders exchange what their groups are, and tell their groups.
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
    intra(guard, local_comm)?;
    let local = guard.objects.comms.get_mut(local_comm)?;
    local.peer(local_leader)?;
    let (leads, group) = (local.rank == local_leader as u32, local.group.clone());
    let context = local.child_context(0);
    let found = leads.then(|| meet(guard, &group, context, peer_comm, remote_leader, tag));
    let mut found = share_words(guard, local_comm, local_leader as u32, found)?;
    let theirs = found.pop().expect("the leader adds the context") as u64;
    let remote =
        Arc::new(Group::new(found.iter().map(|peer| *peer as u32).collect::<Vec<_>>(), guard.objects.own));
    let context = mixed(&[context.min(theirs), context.max(theirs)]);
    enter(guard, local_comm, Comm::between(context, group, remote, ""), newintercomm)
}

/// The other leader's group, followed by the context that its side proposes.
fn meet(
    guard: &mut Guard,
    group: &Group,
    context: u64,
    peer_comm: Handle,
    remote_leader: i32,
    tag: i32,
) -> Result<Vec<i64>> {
    if tag < 0 {
        fail!(Class::Tag, "tag is {tag}, which is negative");
    }
    let bridge = guard.objects.comm(peer_comm)?;
    let peer = bridge.peer(remote_leader)?;
    let meeting = mixed(&[bridge.context, LEADERS]);
    if group.rank_of(peer).is_some() {
        fail!(Class::Rank, "the remote leader, rank {remote_leader} of {peer_comm}, is in the local group");
    }
    let mut mine: Vec<i64> = group.peers.iter().map(|peer| i64::from(*peer)).collect();
    mine.push(context as i64);
    let theirs = swap_words(guard, meeting, peer, tag, &mine)?;
    disjoint(group, theirs[..theirs.len() - 1].iter().map(|peer| *peer as u32))?;
    Ok(theirs)
}

/// MPI_ERR_COMM where a process would be on both sides.
pub(crate) fn disjoint(group: &Group, mut remote: impl Iterator<Item = u32>) -> Result<()> {
    match remote.find(|peer| group.rank_of(*peer).is_some()) {
        Some(peer) => fail!(Class::Comm, "process {peer} of the job is in both groups"),
        None => Ok(()),
    }
}

/// MPI_Intercomm_merge: the group that passes `high` comes second; where both pass the same, the first group comes first.
pub fn intercomm_merge(
    guard: &mut Guard,
    intercomm: Handle,
    high: i32,
    newintracomm: Out<Handle>,
) -> Result<()> {
    newintracomm.check()?;
    if guard.objects.comm(intercomm)?.remote.is_none() {
        fail!(Class::Comm, "{intercomm} is an intracommunicator, which has nothing to merge");
    }
    let highs = gather_words(guard, intercomm, &[i64::from(high != 0)])?;
    let comm = guard.objects.comms.get_mut(intercomm)?;
    let context = comm.child_context(0);
    let (first, second) = highs.split_at(comm.first_group as usize);
    if [first, second].iter().any(|group| group.iter().any(|high| *high != group[0])) {
        fail!(Class::Arg, "the processes of a group differ in `high`");
    }
    let mut peers = comm.everybody.to_vec();
    if first[0] > second[0] {
        peers.rotate_left(comm.first_group as usize);
    }
    let group = Arc::new(Group::new(peers, guard.objects.own));
    enter(guard, intercomm, Comm::new(context, group, ""), newintracomm)
}
