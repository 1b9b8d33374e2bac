// SPDX-License-Identifier: BSD-3-Clause
//! The calls that make, free and inquire about intracommunicators (MPI 5.0, sections 7.4 and 7.8).

use super::buffers;
use super::exchange::gather_for_new_comm;
use super::info::enter_info;
use super::request::enter_complete;
use crate::args::{Handle, Out, Text, TextOut};
use crate::attribute;
use crate::collective::detach;
use crate::hardware;
use crate::process::{Guard, On};
use error::{Class, Result, fail};
use objects::errhandler::{release, retain};
use objects::{Comm, Context, Group, HandleKind, Info, constants as c};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// MPI_Comm_size
pub fn comm_size(guard: &mut Guard, comm: Handle, size: Out<i32>) -> Result<()> {
    size.set(guard.objects.comm(comm)?.size() as i32)
}

/// MPI_Comm_rank
pub fn comm_rank(guard: &mut Guard, comm: Handle, rank: Out<i32>) -> Result<()> {
    rank.set(guard.objects.comm(comm)?.rank as i32)
}

/// MPI_Comm_compare
pub fn comm_compare(guard: &mut Guard, comm1: Handle, comm2: Handle, result: Out<i32>) -> Result<()> {
    let (one, other) = (guard.objects.comm(comm1)?, guard.objects.comm(comm2)?);
    result.set(if comm1 == comm2 { c::IDENT } else { one.compare(other) })
}

/// MPI_Comm_group
pub fn comm_group(guard: &mut Guard, comm: Handle, group: Out<Handle>) -> Result<()> {
    group.check()?;
    let comm = guard.objects.comm(comm)?;
    let mut shared = comm.group.clone();
    if shared.session != comm.session {
        shared = Arc::new(Group::clone(&shared).of_session(comm.session));
    }
    group.set(guard.objects.enter_group(shared)?)
}

/// MPI_Comm_get_name
pub fn comm_get_name(guard: &mut Guard, comm: Handle, comm_name: TextOut, resultlen: Out<i32>) -> Result<()> {
    // The null handle has a name, too (MPI 5.0, section 7.8).
    let name = if comm == c::COMM_NULL { "MPI_COMM_NULL" } else { &guard.objects.comm(comm)?.name };
    resultlen.set(comm_name.set(name, c::MAX_OBJECT_NAME as usize)? as i32)
}

/// MPI_Comm_set_name
pub fn comm_set_name(guard: &mut Guard, comm: Handle, comm_name: Text) -> Result<()> {
    let name = object_name(comm_name)?;
    guard.objects.comms.get_mut(comm)?.name = name;
    Ok(())
}

/// Returns the name that the program gives a comm, datatype or window. A name longer than
/// MPI_MAX_OBJECT_NAME - 1 bytes is cut (MPI 5.0, section 7.8).
pub(crate) fn object_name(text: Text) -> Result<String> {
    let mut name = text.read()?;
    let mut bytes = name.len().min(c::MAX_OBJECT_NAME as usize - 1);
    while !name.is_char_boundary(bytes) {
        bytes -= 1;
    }
    name.truncate(bytes);
    Ok(name)
}

/// MPI_Comm_get_info: stores a new info that holds the hints in use.
pub fn comm_get_info(guard: &mut Guard, comm: Handle, info_used: Out<Handle>) -> Result<()> {
    let info = guard.objects.comm(comm)?.info.clone();
    enter_info(guard, info, info_used)
}

/// MPI_Comm_set_info: adds the hints in `info` to the comm's hints. Ignores keys that Outboard does not know.
pub fn comm_set_info(guard: &mut Guard, comm: Handle, info: Handle) -> Result<()> {
    let hints = guard.objects.info_or_empty(info)?;
    guard.objects.comms.get_mut(comm)?.hint(&hints)
}

/// MPI_Comm_test_inter
pub fn comm_test_inter(guard: &mut Guard, comm: Handle, flag: Out<i32>) -> Result<()> {
    flag.set(i32::from(guard.objects.comm(comm)?.remote.is_some()))
}

/// MPI_Comm_remote_size
pub fn comm_remote_size(guard: &mut Guard, comm: Handle, size: Out<i32>) -> Result<()> {
    size.set(remote(guard, comm)?.size() as i32)
}

/// MPI_Comm_remote_group
pub fn comm_remote_group(guard: &mut Guard, comm: Handle, group: Out<Handle>) -> Result<()> {
    group.check()?;
    let shared = remote(guard, comm)?;
    group.set(guard.objects.enter_group(shared)?)
}

fn remote(guard: &Guard, comm: Handle) -> Result<Arc<Group>> {
    match &guard.objects.comm(comm)?.remote {
        Some(group) => Ok(group.clone()),
        None => fail!(Class::Comm, "{comm} is an intracommunicator, which has no remote group"),
    }
}

/// MPI_Comm_dup: copies attributes and topology, but no hints (MPI 5.0, section 7.4.2).
pub fn comm_dup(guard: &mut Guard, comm: Handle, newcomm: Out<Handle>) -> Result<()> {
    duplicate(guard, comm, &Info::default(), newcomm)
}

/// MPI_Comm_dup_with_info
pub fn comm_dup_with_info(guard: &mut Guard, comm: Handle, info: Handle, newcomm: Out<Handle>) -> Result<()> {
    let info = guard.objects.info_or_empty(info)?;
    duplicate(guard, comm, &info, newcomm)
}

/// MPI_Comm_idup: a duplicate needs no messages, so the request is complete when the call returns.
pub fn comm_idup(guard: &mut Guard, comm: Handle, newcomm: Out<Handle>, request: Out<Handle>) -> Result<()> {
    request.check()?;
    comm_dup(guard, comm, newcomm)?;
    enter_complete(guard, comm, request)
}

/// MPI_Comm_idup_with_info
pub fn comm_idup_with_info(
    guard: &mut Guard,
    comm: Handle,
    info: Handle,
    newcomm: Out<Handle>,
    request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    comm_dup_with_info(guard, comm, info, newcomm)?;
    enter_complete(guard, comm, request)
}

fn duplicate(guard: &mut Guard, comm: Handle, hints: &Info, newcomm: Out<Handle>) -> Result<()> {
    newcomm.check()?;
    // The context is taken before the callbacks run, so members agree on it even if a callback fails.
    let parent = guard.objects.comms.get_mut(comm)?;
    let mut new = sibling(parent.child_context(0), parent.group.clone(), parent.remote.clone());
    new.topology = parent.topology.clone();
    let attributes = attribute::copy_all(guard, HandleKind::Comm, comm)?;
    new.attributes = attributes;
    new.hint(hints)?;
    enter(guard, comm, new, newcomm)
}

/// Makes a comm with the groups `local` and `remote`: an intercommunicator, or, if `remote` is None, an
/// intracommunicator.
fn sibling(context: Context, local: Arc<Group>, remote: Option<Arc<Group>>) -> Comm {
    match remote {
        Some(remote) => Comm::between(context, local, remote, ""),
        None => Comm::new(context, local, ""),
    }
}

/// Stores a handle of the new comm `new` for the program. The new comm inherits the error handler of `parent`
/// (MPI 5.0, section 9.3.1).
pub(crate) fn enter(guard: &mut Guard, parent: Handle, mut new: Comm, newcomm: Out<Handle>) -> Result<()> {
    guard.reach_hosts(&new.all_peers)?;
    let objects = &mut guard.objects;
    let from = objects.comm(parent)?;
    (new.errhandler, new.session) = (from.errhandler, from.session);
    retain(&mut objects.errhandlers, new.errhandler, HandleKind::Comm)?;
    newcomm.set(objects.enter_comm(new)?)
}

/// MPI_Comm_create
pub fn comm_create(guard: &mut Guard, comm: Handle, group: Handle, newcomm: Out<Handle>) -> Result<()> {
    newcomm.check()?;
    let group = members(guard, comm, group)?;
    // Every member of the parent counts the call, whether it is in the new comm or not. The comms that one
    // call makes differ by their first member.
    let parent = guard.objects.comms.get_mut(comm)?;
    let first = group.peers.first().filter(|_| parent.remote.is_none());
    let context = parent.child_context(first.map_or(c::UNDEFINED, |peer| *peer as i32));
    let remote = remote_members(guard, comm, &group)?;
    match group.rank {
        Some(_) if remote.as_ref().is_none_or(|remote| remote.size() > 0) => {
            enter(guard, comm, sibling(context, group, remote), newcomm)
        }
        _ => newcomm.set(c::COMM_NULL),
    }
}

/// Returns the group that the remote members of `comm` pass to MPI_Comm_create: the remote group of the new
/// intercommunicator. Returns None if `comm` is an intracommunicator.
fn remote_members(guard: &mut Guard, comm: Handle, group: &Group) -> Result<Option<Arc<Group>>> {
    if guard.objects.comm(comm)?.remote.is_none() {
        return Ok(None);
    }
    let mine = group.rank.map_or(-1, i64::from);
    let new_ranks = gather_for_new_comm(guard, comm, &[mine])?;
    let parent = guard.objects.comm(comm)?;
    let mut chosen: Vec<(i64, u32)> = parent
        .index_ranges()
        .1
        .map(|at| (new_ranks[at], parent.all_peers[at]))
        .filter(|(rank, _)| *rank >= 0)
        .collect();
    chosen.sort_unstable();
    Ok(Some(group_of(guard, chosen.into_iter().map(|(_, peer)| peer))))
}

/// MPI_Comm_create_group: only the members of the group call it, not all members of the comm.
pub fn comm_create_group(
    guard: &mut Guard,
    comm: Handle,
    group: Handle,
    tag: i32,
    newcomm: Out<Handle>,
) -> Result<()> {
    newcomm.check()?;
    if tag < 0 {
        fail!(Class::Tag, "tag is {tag}, which is negative");
    }
    intracomm(guard, comm)?;
    let group = members(guard, comm, group)?;
    if group.rank.is_none() {
        return newcomm.set(c::COMM_NULL);
    }
    let context = guard.objects.comms.get_mut(comm)?.partial_context(tag, &group.peers);
    enter(guard, comm, Comm::new(context, group, ""), newcomm)
}

/// Returns the comm with the handle `comm`, or MPI_ERR_COMM if it is an intercommunicator.
pub(crate) fn intracomm(guard: &Guard, comm: Handle) -> Result<&Comm> {
    let found = guard.objects.comm(comm)?;
    if found.remote.is_some() {
        fail!(Class::Comm, "{comm} is an intercommunicator; this call needs an intracommunicator");
    }
    Ok(found)
}

/// Makes a group of the processes `peers`, each given by its number in the job.
pub(crate) fn group_of(guard: &Guard, peers: impl IntoIterator<Item = u32>) -> Arc<Group> {
    Arc::new(Group::new(peers.into_iter().collect::<Vec<_>>(), guard.objects.me))
}

/// Returns the group with the handle `group`. Returns MPI_ERR_GROUP if a member is not in the local group of
/// `comm`.
fn members(guard: &Guard, comm: Handle, group: Handle) -> Result<Arc<Group>> {
    let parent = guard.objects.comm(comm)?;
    let group = guard.objects.group(group)?;
    if let Some(stranger) = group.peers.iter().find(|peer| parent.group.rank_of(**peer).is_none()) {
        fail!(Class::Group, "the group has rank {stranger} of MPI_COMM_WORLD, which is not in {comm}");
    }
    Ok(group.clone())
}

/// MPI_Comm_split
pub fn comm_split(guard: &mut Guard, comm: Handle, color: i32, key: i32, newcomm: Out<Handle>) -> Result<()> {
    if color < 0 && color != c::UNDEFINED {
        fail!(Class::Arg, "color is {color}; it must not be negative, or be MPI_UNDEFINED");
    }
    split(guard, comm, color, key, newcomm)
}

/// MPI_Comm_split_type (MPI 5.0, section 7.4.2). Splits by shared memory, or by the kind of hardware or the
/// process set that `info` names. Without a name, splits by the coarsest kind of hardware that separates the
/// processes.
pub fn comm_split_type(
    guard: &mut Guard,
    comm: Handle,
    split_type: i32,
    key: i32,
    info: Handle,
    newcomm: Out<Handle>,
) -> Result<()> {
    newcomm.check()?;
    let hints = guard.objects.info_or_empty(info)?;
    let by_kind = || hints.get("mpi_hw_resource_type").map_or(c::UNDEFINED, hardware::color);
    let colors: Vec<i32> = match split_type {
        c::COMM_TYPE_SHARED => {
            vec![guard.job().membership.segment.job().node.load(Ordering::Relaxed) as i32]
        }
        c::COMM_TYPE_HW_GUIDED => vec![by_kind()],
        c::COMM_TYPE_RESOURCE_GUIDED => match hints.get("mpi_pset_name") {
            Some(name) => {
                let set = guard.objects.process_set(name)?;
                vec![if set.rank.is_some() { set.peers[0] as i32 } else { c::UNDEFINED }]
            }
            None => vec![by_kind()],
        },
        c::COMM_TYPE_HW_UNGUIDED => hardware::kinds().map(|kind| hardware::color(&kind)).collect(),
        c::UNDEFINED => vec![c::UNDEFINED],
        other => fail!(Class::Arg, "split_type is {other}, which is none of MPI's"),
    };
    // A process that passes MPI_UNDEFINED does not know what the others pass. So all send the same number of
    // words: a color for each kind, then the key.
    let kinds = hardware::kinds().count();
    let filler = std::iter::repeat(c::UNDEFINED);
    let mut mine: Vec<i64> = colors.into_iter().chain(filler).take(kinds).map(i64::from).collect();
    mine.push(key.into());
    let words = gather_for_new_comm(guard, comm, &mine)?;
    let parted = |at: &usize| words.chunks_exact(mine.len()).any(|theirs| theirs[*at] != mine[*at]);
    let at = match split_type {
        c::COMM_TYPE_HW_UNGUIDED => (0..kinds).find(parted),
        _ => Some(0),
    };
    if let Some(kind) = at.and_then(|at| hardware::kinds().nth(at))
        && split_type == c::COMM_TYPE_HW_UNGUIDED
        && info != c::INFO_NULL
    {
        guard.objects.infos.get_mut(info)?.set("mpi_hw_resource_type", &kind)?;
    }
    let color_of = |words: &[i64]| at.map_or(i64::from(c::UNDEFINED), |at| words[at]);
    let pairs: Vec<i64> =
        words.chunks_exact(mine.len()).flat_map(|words| [color_of(words), words[kinds]]).collect();
    enter_part(guard, comm, color_of(&mine) as i32, &pairs, newcomm)
}

fn split(guard: &mut Guard, comm: Handle, color: i32, key: i32, newcomm: Out<Handle>) -> Result<()> {
    newcomm.check()?;
    guard.objects.comm(comm)?;
    let words = gather_for_new_comm(guard, comm, &[i64::from(color), i64::from(key)])?;
    enter_part(guard, comm, color, &words, newcomm)
}

/// Makes the new comm of the members of `comm` that pass the color `color` in a split. `words` holds the
/// color and the key of each member.
fn enter_part(
    guard: &mut Guard,
    comm: Handle,
    color: i32,
    words: &[i64],
    newcomm: Out<Handle>,
) -> Result<()> {
    let parent = guard.objects.comms.get_mut(comm)?;
    let context = parent.child_context(color);
    if color == c::UNDEFINED {
        return newcomm.set(c::COMM_NULL);
    }
    let (local, remote) = parent.index_ranges();
    let is_inter = parent.remote.is_some();
    let everybody = parent.all_peers.clone();
    let chosen = |places: Range<usize>| {
        let mut chosen: Vec<(i64, u32)> = places
            .filter(|at| words[2 * at] == i64::from(color))
            .map(|at| (words[2 * at + 1], everybody[at]))
            .collect();
        // The sort is stable: equal keys keep the parent's order (MPI 5.0, section 7.4.2).
        chosen.sort_by_key(|(key, _)| *key);
        group_of(guard, chosen.into_iter().map(|(_, peer)| peer))
    };
    let (local, remote) = (chosen(local), is_inter.then(|| chosen(remote)));
    match remote {
        Some(remote) if remote.size() == 0 => newcomm.set(c::COMM_NULL),
        remote => enter(guard, comm, sibling(context, local, remote), newcomm),
    }
}

/// MPI_Comm_free: frees the comm at once. Operations on the comm that have not ended keep what they need. But
/// the call waits for operations that the program has enqueued on the comm's device stream.
pub fn comm_free(guard: &mut Guard, comm: Out<Handle>) -> Result<()> {
    let handle = comm.get()?;
    guard.blame(On::Comm(handle));
    guard.objects.comm(handle)?;
    if guard.objects.comms.is_predefined(handle) {
        fail!(Class::Comm, "{handle} is predefined and cannot be freed");
    }
    attribute::delete_all(guard, HandleKind::Comm, handle)?;
    let context = guard.objects.comm(handle)?.context;
    buffers::detach_before_free(guard, p2p::BufferOwner::Comm(context))?;
    guard.wait(|process| process.job().streams.are_idle(Some(context)).then_some(()));
    let freed = guard.objects.comms.remove(handle)?;
    detach(guard.job(), &freed);
    release(&mut guard.objects.errhandlers, freed.errhandler)?;
    crate::connect::publish(guard);
    comm.set(c::COMM_NULL)
}
