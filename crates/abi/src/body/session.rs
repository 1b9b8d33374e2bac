// SPDX-License-Identifier: BSD-3-Clause
//! Sessions, process sets, and comms made from groups (MPI 5.0, sections 11.3, 7.3.2, 7.4.2 and 7.6.2).
//!
//! A process joins its job at the first MPI_Init or MPI_Session_init. At the last MPI_Finalize or
//! MPI_Session_finalize it puts the state of the job aside (`parked`), since a session may start again. Only
//! MPI_Init and MPI_Finalize are called by all processes, so a session starts and ends without waiting for
//! others.

use super::buffers;
use super::comm::group_of;
use super::info::enter_info;
use super::intercomm::disjoint;
use crate::args::{Handle, Out, Text, TextOut};
use crate::collective::detach;
use crate::process::{Departure, Guard, On};
use crate::request::{to_bytes, to_words};
use error::{Class, Result, fail};
use objects::errhandler::{release, retain};
use objects::session::PROCESS_SETS;
use objects::{Comm, Context, Group, HandleKind, Info, Session, constants as c};
use std::sync::Arc;

/// MPI_Session_init
pub fn session_init(guard: &mut Guard, info: Handle, errhandler: Handle, session: Out<Handle>) -> Result<()> {
    guard.blame(On::WithHandler(errhandler, c::SESSION_NULL));
    session.check()?;
    let hints = guard.objects.info_or_empty(info)?;
    // The device decides which memory kinds there are.
    settings::load().and_then(crate::staging::start)?;
    let new = Session::new(errhandler, &hints)?;
    retain(&mut guard.objects.errhandlers, errhandler, HandleKind::Session)?;
    guard.join()?;
    let handle = guard.objects.sessions.insert(new)?;
    guard.decide_locking();
    session.set(handle)
}

/// MPI_Session_finalize: if this is the last open session, and MPI_COMM_WORLD does not exist, waits until all
/// sends of this process have ended, and no peer needs anything more for this process's collectives.
pub fn session_finalize(guard: &mut Guard, session: Out<Handle>) -> Result<()> {
    let handle = session.get()?;
    guard.blame(On::Session(handle));
    guard.objects.sessions.get(handle)?;
    buffers::detach_before_free(guard, p2p::BufferOwner::Session(handle.0 as u64))?;
    let is_last =
        guard.objects.comms.get(c::COMM_WORLD).is_err() && guard.objects.sessions.iter().count() == 1;
    if is_last {
        let mut silence = crate::process::report::Silence::start();
        guard.wait(|process| {
            silence.check(process, "MPI_Session_finalize");
            let job = process.job();
            (job.p2p.is_quiet() && job.coll.is_quiet()).then_some(())
        });
        report_finalized(guard);
    }
    let ended = guard.objects.sessions.remove(handle)?;
    release(&mut guard.objects.errhandlers, ended.errhandler)?;
    if is_last {
        guard.parked = guard.job.take();
    }
    guard.decide_locking();
    session.set(c::SESSION_NULL)
}

/// Tells the other processes, once, that this process has finalized MPI. When all processes have finalized
/// MPI, this process leaves the job: in MPI_Finalize, or when it exits.
pub(crate) fn report_finalized(guard: &mut Guard) {
    if guard.departure == Departure::Needed {
        guard.departure = Departure::Arrived;
        guard.job().membership.arrive_at_finalize();
        // SAFETY: the function is this library's, which is never unloaded while the function is registered.
        unsafe { libc::atexit(at_exit) };
    }
}

/// Leaves the job, once. The caller has waited until all processes have finalized MPI.
pub(crate) fn leave_job(guard: &mut Guard) {
    if guard.departure == Departure::Arrived {
        guard.departure = Departure::Left;
        guard.job().communicators = Default::default();
        // A later process with this rank continues at the positions at which this process leaves the rings.
        guard.job().p2p.release();
        guard.job().membership.leave();
    }
}

extern "C" fn at_exit() {
    // The launcher handles a process that exits while it uses MPI, or inside an MPI call.
    if let Some(mut guard) = Guard::enter_unless_held()
        // A child of fork has the rank's memory, but is not the rank.
        && let Some(job) = guard.parked.take_if(|job| job.membership.is_here())
    {
        guard.job = Some(job);
        guard.job().part_from_dpu();
        leave_job(&mut guard);
    }
}

/// MPI_Session_get_info
pub fn session_get_info(guard: &mut Guard, session: Handle, info_used: Out<Handle>) -> Result<()> {
    let info = guard.objects.sessions.get(session)?.info.clone();
    enter_info(guard, info, info_used)
}

/// MPI_Session_get_num_psets
pub fn session_get_num_psets(
    guard: &mut Guard,
    session: Handle,
    info: Handle,
    npset_names: Out<i32>,
) -> Result<()> {
    guard.objects.sessions.get(session)?;
    guard.objects.info_or_empty(info)?;
    npset_names.set(PROCESS_SETS.len() as i32)
}

/// MPI_Session_get_nth_pset: stores the name in a buffer of `pset_len` bytes, or no name if `pset_len` is 0.
/// In both cases stores in `pset_len` the length that the name needs, with the final zero.
pub fn session_get_nth_pset(
    guard: &mut Guard,
    session: Handle,
    info: Handle,
    n: i32,
    pset_len: Out<i32>,
    pset_name: TextOut,
) -> Result<()> {
    guard.objects.sessions.get(session)?;
    guard.objects.info_or_empty(info)?;
    let capacity = crate::args::length(pset_len.get()?, "pset_len")?;
    let Some(name) = usize::try_from(n).ok().and_then(|n| PROCESS_SETS.get(n)) else {
        fail!(Class::Arg, "n is {n}, but there are {} process sets", PROCESS_SETS.len());
    };
    if capacity > 0 {
        pset_name.set(name, capacity)?;
    }
    pset_len.set(name.len() as i32 + 1)
}

/// MPI_Session_get_pset_info
pub fn session_get_pset_info(
    guard: &mut Guard,
    session: Handle,
    pset_name: Text,
    info: Out<Handle>,
) -> Result<()> {
    guard.objects.sessions.get(session)?;
    let group = guard.objects.process_set(&pset_name.read()?)?;
    let mut facts = Info::default();
    facts.set("mpi_size", &group.size().to_string())?;
    enter_info(guard, facts, info)
}

/// MPI_Group_from_session_pset
pub fn group_from_session_pset(
    guard: &mut Guard,
    session: Handle,
    pset_name: Text,
    newgroup: Out<Handle>,
) -> Result<()> {
    newgroup.check()?;
    guard.objects.sessions.get(session)?;
    let group = Group::clone(&*guard.objects.process_set(&pset_name.read()?)?);
    let group = Arc::new(group.of_session(session.0 as u64));
    newgroup.set(guard.objects.enter_group(group)?)
}

/// MPI_Comm_create_from_group: needs no traffic, because all members compute the context id from the same tag
/// and group.
pub fn comm_create_from_group(
    guard: &mut Guard,
    group: Handle,
    stringtag: Text,
    info: Handle,
    errhandler: Handle,
    newcomm: Out<Handle>,
) -> Result<()> {
    guard.blame(On::WithHandler(errhandler, c::COMM_NULL));
    newcomm.check()?;
    let hints = guard.objects.info_or_empty(info)?;
    let tag = tag_words(stringtag)?;
    if guard.objects.group(group)?.size() == 0 {
        return newcomm.set(c::COMM_NULL);
    }
    let group = group_with_me(guard, group)?;
    let context = group_context(guard, &tag, &group.peers);
    enter(guard, Comm::new(context, group, ""), &hints, errhandler, newcomm)
}

/// MPI_Intercomm_create_from_groups: only the leader of a group knows the remote group. It sends the remote
/// group to its own group.
pub fn intercomm_create_from_groups(
    guard: &mut Guard,
    local_group: Handle,
    local_leader: i32,
    remote_group: Handle,
    remote_leader: i32,
    stringtag: Text,
    info: Handle,
    errhandler: Handle,
    newintercomm: Out<Handle>,
) -> Result<()> {
    guard.blame(On::WithHandler(errhandler, c::COMM_NULL));
    newintercomm.check()?;
    let hints = guard.objects.info_or_empty(info)?;
    let tag = tag_words(stringtag)?;
    let local = group_with_me(guard, local_group)?;
    if local_leader < 0 || local_leader as u32 >= local.size() {
        fail!(Class::Rank, "the local leader, {local_leader}, is not in a group of {}", local.size());
    }
    let found = (local.rank == Some(local_leader as u32)).then(|| {
        let remote = guard.objects.group(remote_group)?;
        if remote_leader < 0 || remote_leader as u32 >= remote.size() {
            fail!(Class::Rank, "the remote leader, {remote_leader}, is not in a group of {}", remote.size());
        }
        disjoint(&local, remote.peers.iter().copied())?;
        Ok(to_bytes(&remote.peers.iter().map(|peer| i64::from(*peer)).collect::<Vec<_>>()))
    });
    // The leader sends the group to its members on a temporary comm of their group.
    let words = [&tag[..], &[LEADER]].concat();
    let context = group_context(guard, &words, &local.peers);
    let temporary = guard.objects.enter_comm(Comm::new(context, local.clone(), ""))?;
    let found = guard.broadcast_from_root(temporary, local_leader as u32, found);
    let removed = guard.objects.comms.remove(temporary)?;
    detach(guard.job(), &removed);
    let remote = group_of(guard, to_words(&found?).into_iter().map(|peer| peer as u32));
    // Both sides must compute the same context, so the processes are taken in the comm's order.
    let mut comm = Comm::between(Context::of_groups(), local, remote, "");
    let words = [&tag[..], &[BETWEEN, comm.first_group.into()]].concat();
    let context = group_context(guard, &words, &comm.all_peers);
    (comm.context, comm.fingerprint) = (context.id, context.fingerprint);
    enter(guard, comm, &hints, errhandler, newintercomm)
}

/// A word for the hash that makes the context id of the temporary comm on which a leader sends the remote
/// group. It is no process's number, so a comm that the program makes of the same processes has another id.
const LEADER: u64 = u64::MAX - 2;
/// A word for the hash that makes the context id of an intercommunicator. It is no process's number, so an
/// intracommunicator of the same processes has another id.
const BETWEEN: u64 = u64::MAX;

/// Returns the context of the next comm that the processes `peers` make with the tag `tag`. The context
/// depends on each process's number, and on its generation, because a spawned process may get the number of
/// a process that has ended, but with another generation.
fn group_context(guard: &mut Guard, tag: &[u64], peers: &[u32]) -> Context {
    let segment = guard.job().membership.segment;
    let processes = peers.iter().map(|peer| u64::from(segment.generation(*peer)) << 32 | u64::from(*peer));
    let words: Vec<u64> = tag.iter().copied().chain(processes).collect();
    guard.objects.from_groups.context(Context::of_groups(), &words)
}

/// Gives the new comm `new`, which has no parent, the program's error handler and hints, and stores a handle
/// of `new` in the program's variable.
fn enter(
    guard: &mut Guard,
    mut new: Comm,
    hints: &Info,
    errhandler: Handle,
    newcomm: Out<Handle>,
) -> Result<()> {
    guard.reach_hosts(&new.all_peers)?;
    let objects = &mut guard.objects;
    retain(&mut objects.errhandlers, errhandler, HandleKind::Comm)?;
    new.errhandler = errhandler;
    new.hint(hints)?;
    newcomm.set(objects.enter_comm(new)?)
}

/// Returns the group with the handle `handle`, or MPI_ERR_GROUP if this process is not a member.
fn group_with_me(guard: &Guard, handle: Handle) -> Result<Arc<Group>> {
    let group = guard.objects.group(handle)?;
    if group.rank.is_none() {
        fail!(Class::Group, "the calling process is not in {handle}");
    }
    Ok(group.clone())
}

/// Returns a string tag as words, from which the context of a new comm is computed.
fn tag_words(stringtag: Text) -> Result<Vec<u64>> {
    let tag = stringtag.read()?;
    if tag.len() >= c::MAX_STRINGTAG_LEN as usize {
        fail!(
            Class::Arg,
            "stringtag has {} bytes; MPI_MAX_STRINGTAG_LEN allows {}",
            tag.len(),
            c::MAX_STRINGTAG_LEN - 1
        );
    }
    let mut words = vec![u64::MAX, tag.len() as u64];
    words.extend(tag.bytes().map(u64::from));
    Ok(words)
}
