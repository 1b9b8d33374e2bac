//! Sessions, process sets, and comms made from groups (MPI 5.0, sections 11.3, 7.3.2, 7.4.2 and 7.6.2).
//!
//! A process is in its job from the first of MPI_Init and MPI_Session_init to the last finalize. A session may begin after that: the job is
//! put aside, not given up. Since only MPI_Init and MPI_Finalize are called by all processes, a session begins and ends without waiting for others.

use super::buffers;
use super::intercomm::disjoint;
use crate::args::{Handle, Out, Text, TextOut};
use crate::collective::{to_bytes, to_words};
use crate::process::{Departure, Guard, On};
use crate::short;
use error::{Class, Result, fail};
use objects::errhandler::{release, retain};
use objects::session::PROCESS_SETS;
use objects::{Comm, Context, Group, Info, Kind, Session, constants as c};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// MPI_Session_init
pub fn session_init(guard: &mut Guard, info: Handle, errhandler: Handle, session: Out<Handle>) -> Result<()> {
    guard.blame(On::Given(errhandler, c::SESSION_NULL));
    session.check()?;
    let hints = guard.objects.info_or_empty(info)?;
    let new = Session::new(errhandler, &hints)?;
    retain(&mut guard.objects.errhandlers, errhandler, Kind::Session)?;
    guard.join()?;
    let handle = guard.objects.sessions.insert(new)?;
    guard.settle_lock();
    session.set(handle)
}

/// MPI_Session_finalize: the process's last finalize waits until what it has sent is on its way.
pub fn session_finalize(guard: &mut Guard, session: Out<Handle>) -> Result<()> {
    let handle = session.get()?;
    guard.blame(On::Session(handle));
    guard.objects.sessions.get(handle)?;
    buffers::let_go(guard, p2p::Owner::Session(handle.0 as u64))?;
    let is_last =
        guard.objects.comms.get(c::COMM_WORLD).is_err() && guard.objects.sessions.iter().count() == 1;
    if is_last {
        let mut silence = crate::deadlock::Silence::begin();
        guard.wait(|process| {
            silence.check(process, "MPI_Session_finalize");
            process.job().p2p.is_quiet().then_some(())
        });
        say_goodbye(guard);
    }
    let ended = guard.objects.sessions.remove(handle)?;
    release(&mut guard.objects.errhandlers, ended.errhandler)?;
    if is_last {
        guard.parked = guard.job.take();
    }
    guard.settle_lock();
    session.set(c::SESSION_NULL)
}

/// Tells the others, once, that this process has finalized. What is left to do when they have, too, is done at the process's exit, unless
/// MPI_Finalize comes before.
pub(crate) fn say_goodbye(guard: &mut Guard) {
    if guard.departure == Departure::Needed {
        guard.departure = Departure::Arrived;
        guard.job().membership.arrive();
        // SAFETY: the function is ours, and lives as long as the process: the library is never unloaded while it is registered.
        unsafe { libc::atexit(at_exit) };
    }
}

/// Leaves the job, once, after all have said goodbye.
pub(crate) fn depart(guard: &mut Guard) {
    if guard.departure == Departure::Arrived {
        guard.departure = Departure::Left;
        // A process that later gets our place in the segment goes on where our ends of the rings are.
        guard.job().p2p.release();
        guard.job().membership.leave();
    }
}

extern "C" fn at_exit() {
    // A process that exits while it uses MPI, or from within it, is the launcher's affair.
    if let Some(mut guard) = Guard::enter_unless_held()
        // A child of fork is not the rank, though it has all of the rank's memory.
        && let Some(job) = guard.parked.take_if(|job| job.membership.is_here())
    {
        guard.job = Some(job);
        depart(&mut guard);
    }
}

/// MPI_Session_get_info
pub fn session_get_info(guard: &mut Guard, session: Handle, info_used: Out<Handle>) -> Result<()> {
    info_used.check()?;
    let info = guard.objects.sessions.get(session)?.info.clone();
    info_used.set(guard.objects.infos.insert(info)?)
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

/// MPI_Session_get_nth_pset: `pset_len` is with the final zero, and is set to what the name needs; where it is 0, only that is asked.
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
    let room = crate::args::length(pset_len.get()?, "pset_len")?;
    let Some(name) = usize::try_from(n).ok().and_then(|n| PROCESS_SETS.get(n)) else {
        fail!(Class::Arg, "process set number {n} of {}", PROCESS_SETS.len());
    };
    if room > 0 {
        pset_name.set(name, room)?;
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
    info.check()?;
    guard.objects.sessions.get(session)?;
    let group = guard.objects.process_set(&pset_name.read()?)?;
    let mut facts = Info::default();
    facts.set("mpi_size", &group.size().to_string())?;
    info.set(guard.objects.infos.insert(facts)?)
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

/// MPI_Comm_create_from_group: needs no traffic, since all members pass the same tag and group.
pub fn comm_create_from_group(
    guard: &mut Guard,
    group: Handle,
    stringtag: Text,
    info: Handle,
    errhandler: Handle,
    newcomm: Out<Handle>,
) -> Result<()> {
    guard.blame(On::Given(errhandler, c::COMM_NULL));
    newcomm.check()?;
    let hints = guard.objects.info_or_empty(info)?;
    let tag = tag_words(stringtag)?;
    if guard.objects.group(group)?.size() == 0 {
        return newcomm.set(c::COMM_NULL);
    }
    let group = own_group(guard, group)?;
    let context = group_context(guard, &tag, &group.peers);
    enter(guard, Comm::new(context, group, ""), &hints, errhandler, newcomm)
}

/// MPI_Intercomm_create_from_groups: only the leaders know the remote group, and tell theirs.
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
    guard.blame(On::Given(errhandler, c::COMM_NULL));
    newintercomm.check()?;
    let hints = guard.objects.info_or_empty(info)?;
    let tag = tag_words(stringtag)?;
    let local = own_group(guard, local_group)?;
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
    // The leader speaks on a comm of its group that only lives for this.
    let speaking = [&tag[..], &[LEADER]].concat();
    let context = group_context(guard, &speaking, &local.peers);
    let speaking = guard.objects.enter_comm(Comm::new(context, local.clone(), ""))?;
    let found = guard.root_tells(speaking, local_leader as u32, found);
    let spoke = guard.objects.comms.remove(speaking)?;
    short::leave(&mut guard.job().coll, &spoke);
    let peers: Vec<u32> = to_words(&found?).into_iter().map(|peer| peer as u32).collect();
    let remote = Arc::new(Group::new(peers, guard.objects.own));
    // Both sides must come to the same context, so the groups count in the comm's own order.
    let mut comm = Comm::between(Context::of_groups(), local, remote, "");
    let words = [&tag[..], &[BETWEEN, comm.first_group.into()]].concat();
    let context = group_context(guard, &words, &comm.everybody);
    (comm.context, comm.fingerprint) = (context.id, context.fingerprint);
    enter(guard, comm, &hints, errhandler, newintercomm)
}

/// What tells apart a leader's comm, and an intercommunicator, from a comm that the program makes of the same processes: no process.
const LEADER: u64 = u64::MAX - 2;
const BETWEEN: u64 = u64::MAX;

/// The context of the next comm of these processes with this tag. A process is more than its rank, which spawned ones leave to others.
fn group_context(guard: &mut Guard, tag: &[u64], peers: &[u32]) -> Context {
    let segment = guard.job().membership.segment;
    let generation = |peer: u32| segment.rank(peer).generation.load(Ordering::Relaxed);
    let processes = peers.iter().map(|peer| u64::from(generation(*peer)) << 32 | u64::from(*peer));
    let words: Vec<u64> = tag.iter().copied().chain(processes).collect();
    guard.objects.from_groups.context(Context::of_groups(), &words)
}

/// A comm of no parent: the handler and the hints are those that the program passes.
fn enter(
    guard: &mut Guard,
    mut new: Comm,
    hints: &Info,
    errhandler: Handle,
    newcomm: Out<Handle>,
) -> Result<()> {
    let objects = &mut guard.objects;
    retain(&mut objects.errhandlers, errhandler, Kind::Comm)?;
    new.errhandler = errhandler;
    new.hint(hints)?;
    newcomm.set(objects.enter_comm(new)?)
}

/// A group that this process is in.
fn own_group(guard: &Guard, handle: Handle) -> Result<Arc<Group>> {
    let group = guard.objects.group(handle)?;
    if group.rank.is_none() {
        fail!(Class::Group, "the calling process is not in {handle}");
    }
    Ok(group.clone())
}

/// The tag as words that a context is made of.
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
