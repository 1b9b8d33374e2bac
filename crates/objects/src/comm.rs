// SPDX-License-Identifier: BSD-3-Clause
//! Comms (MPI 5.0, chapter 7). Each comm has a context, two hashes that name the comm. An intracommunicator
//! has one group of processes, an intercommunicator has two.

use crate::attribute::Attributes;
use crate::constants;
use crate::context::{Context, ContextClaim, ID_MASK, PartialCalls};
use crate::group::Group;
use crate::handle::Handle;
use crate::info::Info;
use crate::session::default_memory_kinds;
use crate::topology::Topology;
use error::{Class, Result, fail};
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
pub struct Comm {
    /// The context id: the number that separates the comm's messages and collectives from those of other
    /// comms.
    pub context: u64,
    /// A second hash, beside `context`, of the calls that made the comm. Members compare it when they
    /// exchange data to make another comm from this comm.
    pub fingerprint: u64,
    /// Keeps the number `context` reserved in this process. None until the comm enters the table of comms.
    pub claim: Option<ContextClaim>,
    /// The processes of the comm. For an intercommunicator, the local group.
    pub group: Arc<Group>,
    /// The remote group of an intercommunicator. The rank in a send or receive is a rank in this group. None
    /// for an intracommunicator.
    pub remote: Option<Arc<Group>>,
    /// The numbers in the job of all processes of the comm. For an intercommunicator, first those of one
    /// group, then those of the other; all processes of both groups have the two groups in the same order.
    pub all_peers: Arc<[u32]>,
    /// How many processes of `all_peers` are in the first group of an intercommunicator. 0 for an
    /// intracommunicator.
    pub first_group: u32,
    /// This process's rank in the comm, or in the local group of an intercommunicator.
    pub rank: u32,
    /// The name that MPI_Comm_set_name has set. Empty if there is none.
    pub name: String,
    /// The error handler of the comm. The comm counts as one reference to it in the table of error handlers
    /// of `Objects`.
    pub errhandler: Handle,
    pub attributes: Attributes,
    /// The comm's hints, which MPI_Comm_set_info has set, and the default of `mpi_memory_alloc_kinds`.
    pub info: Info,
    /// The number of the handle of the session from which the comm derives. 0 if it derives from no session.
    pub session: u64,
    /// The state of the comm's slots, the shared memory that carries short blocking collectives.
    pub flat: FlatState,
    /// The state of the comm's queue, which carries short nonblocking collectives one after the other.
    pub queue: QueueState,
    pub topology: Option<Arc<Topology>>,
    /// How many blocking collectives, and how many nonblocking ones, the comm has started. All members count
    /// alike.
    pub sequences: [u32; 2],
    children: u64,
    /// Counts the calls of MPI_Comm_create_group, by their tag and members: only some members of the comm
    /// make each call.
    partial: PartialCalls,
    /// Counts the partitioned messages that this process has received, and those that it has sent, by tag,
    /// sender and receiver. A message from this process to itself counts as both.
    partitioned: [PartialCalls; 2],
}

/// Whether a comm has attached its slots, the shared memory that carries short blocking collectives (crate
/// `coll`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlatState {
    /// The comm has no slots yet. Holds how many calls so far could have used them.
    Counted(u32),
    /// The comm never gets slots (shared memory for collectives), because some member has no memory for them.
    Refused,
    /// The comm has slots. Holds the number by which `coll` knows them.
    Attached(usize),
}

/// Whether a comm has opened its queue, which carries short nonblocking collectives one after the other
/// (crate `coll`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// The comm has no queue yet. Holds how many calls so far could have used it.
    Counted(u32),
    /// The comm has a queue. Holds the number by which `coll` knows it.
    Open(usize),
}

/// The bit that marks the context ids of a comm's nonblocking collectives. The ids of its blocking
/// collectives lack it.
const NONBLOCKING: u64 = 1 << 63;

/// The keys of the hints that a comm stores. Each hint is a promise of the program, which this library does
/// not use.
const HINTS: [&str; 6] = [
    "mpi_assert_no_any_tag",
    "mpi_assert_no_any_source",
    "mpi_assert_exact_length",
    "mpi_assert_allow_overtaking",
    "mpi_assert_strict_persistent_collective_ordering",
    "mpi_assert_memory_alloc_kinds",
];

impl Comm {
    /// Makes an intracommunicator of `group`, of which this process must be a member.
    pub fn new(context: Context, group: Arc<Group>, name: &str) -> Comm {
        let rank = group.rank.expect("a process makes only comms that it is in");
        let (all_peers, session) = (group.peers.clone(), group.session);
        Comm {
            context: context.id,
            fingerprint: context.fingerprint,
            claim: None,
            group,
            session,
            remote: None,
            all_peers,
            first_group: 0,
            rank,
            name: name.to_owned(),
            errhandler: constants::ERRORS_ARE_FATAL,
            attributes: Attributes::default(),
            info: Info::from([("mpi_memory_alloc_kinds", &*default_memory_kinds())]),
            flat: FlatState::Counted(0),
            queue: QueueState::Counted(0),
            topology: None,
            sequences: [0; 2],
            children: 0,
            partial: PartialCalls::default(),
            partitioned: Default::default(),
        }
    }

    /// Makes an intercommunicator of two groups. This process is a member of `local`. Neither group is empty,
    /// and they share no process (MPI 5.0, section 7.6.2). The group with the lowest process number counts as
    /// the first group at all processes.
    pub fn between(context: Context, local: Arc<Group>, remote: Arc<Group>, name: &str) -> Comm {
        let local_first = local.peers.iter().min() < remote.peers.iter().min();
        let (first, second) = if local_first { (&local, &remote) } else { (&remote, &local) };
        let all_peers: Vec<u32> = first.peers.iter().chain(second.peers.iter()).copied().collect();
        let first_group = first.size();
        let comm = Comm::new(context, local, name);
        Comm { remote: Some(remote), all_peers: all_peers.into(), first_group, ..comm }
    }

    /// Returns how many processes are in the comm, or in the local group of an intercommunicator.
    #[inline]
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Returns the group in which the rank of a send or receive is a rank: the comm's group, or the remote
    /// group of an intercommunicator.
    #[inline]
    pub fn partners(&self) -> &Arc<Group> {
        self.remote.as_ref().unwrap_or(&self.group)
    }

    /// Whether this is an intercommunicator whose local group comes second in `all_peers`.
    pub fn is_second(&self) -> bool {
        self.remote.is_some() && self.all_peers.first() != self.group.peers.first()
    }

    /// Returns the index of this process in `all_peers`.
    pub fn own_index(&self) -> u32 {
        self.rank + if self.is_second() { self.first_group } else { 0 }
    }

    /// Returns the range of `all_peers` that is the local group, and the range that is the group `partners`
    /// returns.
    pub fn index_ranges(&self) -> (Range<usize>, Range<usize>) {
        let (all, first) = (self.all_peers.len(), self.first_group as usize);
        match (self.remote.is_some(), self.is_second()) {
            (false, _) => (0..all, 0..all),
            (true, false) => (0..first, first..all),
            (true, true) => (first..all, 0..first),
        }
    }

    /// Returns the comm's name, or its handle as text if it has no name.
    pub fn name_or(&self, handle: Handle) -> String {
        if self.name.is_empty() { handle.to_string() } else { self.name.clone() }
    }

    /// Returns the number in the job of the process to which a message to `rank` goes: the member of the
    /// comm, or of the remote group of an intercommunicator. Fails with MPI_ERR_RANK if there is no such
    /// rank.
    #[inline]
    pub fn peer(&self, rank: i32) -> Result<u32> {
        let partners = self.partners();
        match partners.peers.get(rank as usize) {
            Some(peer) if rank >= 0 => Ok(*peer),
            _ => {
                let group = if self.remote.is_some() { "the remote group of" } else { "this comm of" };
                fail!(Class::Rank, "rank {rank} is not in {group} {} processes", partners.size())
            }
        }
    }

    /// Adds to the comm's hints those of `hints` whose keys are in `HINTS`, and ignores the others (MPI 5.0,
    /// sections 7.4.4 and 11.4.3).
    pub fn hint(&mut self, hints: &Info) -> Result<()> {
        let known = hints.entries().iter().filter(|(key, _)| HINTS.contains(&key.as_str()));
        known.into_iter().try_for_each(|(key, value)| self.info.set(key, value))
    }

    /// Compares this comm with a comm of another handle. Returns MPI_CONGRUENT, MPI_SIMILAR or MPI_UNEQUAL,
    /// as MPI_Comm_compare does (MPI 5.0, sections 7.4.1 and 7.6.1).
    pub fn compare(&self, other: &Comm) -> i32 {
        let remote = match (&self.remote, &other.remote) {
            (None, None) => constants::IDENT,
            (Some(here), Some(there)) => here.compare(there),
            _ => constants::UNEQUAL,
        };
        match (self.group.compare(&other.group), remote) {
            (constants::UNEQUAL, _) | (_, constants::UNEQUAL) => constants::UNEQUAL,
            (constants::IDENT, constants::IDENT) => constants::CONGRUENT,
            _ => constants::SIMILAR,
        }
    }

    /// Counts one more collective, and returns its context id and number, which are the same at all members.
    /// Blocking and nonblocking calls never match (MPI 5.0, section 6.12), and are counted separately. So
    /// programs whose members mix the two in different orders, which is erroneous, do not deadlock here.
    pub fn next_collective(&mut self, blocking: bool) -> (u64, u32) {
        let (context, number) = match blocking {
            true => (self.context, &mut self.sequences[0]),
            false => (self.context ^ NONBLOCKING, &mut self.sequences[1]),
        };
        *number = number.wrapping_add(1);
        (context, *number)
    }

    /// Whether the context id `context`, with any marks in its two highest bits, belongs to this comm.
    pub fn has_context(&self, context: u64) -> bool {
        (context ^ self.context) & ID_MASK == 0
    }

    /// Returns the context of the next comm that all members of this comm make together. `color`
    /// distinguishes the comms of one MPI_Comm_split.
    pub fn child_context(&mut self, color: i32) -> Context {
        self.children += 1;
        self.own_context().derive(&[self.children, u64::from(color as u32)])
    }

    /// Returns a hash of this comm and of how many comms were made from it. Members compare this hash before
    /// they call `child_context`.
    pub fn next_fingerprint(&self) -> i64 {
        self.own_context().derive(&[self.children + 1]).fingerprint as i64
    }

    /// Returns the context of the next comm that only the processes `members` of this comm make, with the tag
    /// `tag`.
    pub fn partial_context(&mut self, tag: i32, members: &[u32]) -> Context {
        let words = [u64::MAX, u64::from(tag as u32)];
        let words: Vec<u64> = words.into_iter().chain(members.iter().map(|peer| u64::from(*peer))).collect();
        self.partial.context(self.own_context(), &words)
    }

    /// Returns the context of the next partitioned message with the tag `tag` from the process `from` to the
    /// process `to`. Both compute the same context. `sends` says whether this process is the sender.
    pub fn partitioned_context(&mut self, tag: i32, from: u32, to: u32, sends: bool) -> Context {
        let words = [u64::MAX - 1, u64::from(tag as u32), from.into(), to.into()];
        self.partitioned[usize::from(sends)].context(self.own_context(), &words)
    }

    /// Returns a new context id for one operation of all members, such as an access to a file, whose messages
    /// must stay apart from the comm's own.
    pub fn operation_context(&mut self) -> Result<u64> {
        let id = self.child_context(0).id;
        self.claim.as_ref().map_or(Ok(()), |claim| claim.reserve_once(id))?;
        Ok(id)
    }

    fn own_context(&self) -> Context {
        Context { id: self.context, fingerprint: self.fingerprint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn comm(context: u64, me: u32) -> Comm {
        let context = Context { id: context, fingerprint: context };
        Comm::new(context, Arc::new(Group::new([4, 2, 0], me)), "")
    }

    #[test]
    fn all_members_derive_the_same_contexts_and_no_context_twice() {
        let (mut one, mut other) = (comm(1, 4), comm(1, 0));
        let mut seen = HashSet::from([1, 2]);
        for call in 0..1000 {
            assert_eq!(one.next_fingerprint(), other.next_fingerprint());
            let context = one.child_context(call % 3);
            assert_ne!(one.next_fingerprint(), other.next_fingerprint());
            assert_eq!(context, other.child_context(call % 3));
            assert!(seen.insert(context.id));
            let context = one.partial_context(call % 2, &[2, 4]);
            assert!(seen.insert(context.id));
        }
    }

    const NINE: Context = Context { id: 9, fingerprint: 9 };

    #[test]
    fn both_sides_see_the_same_intercomm() {
        let side = |local: [u32; 2], remote: [u32; 3]| {
            Comm::between(
                NINE,
                Arc::new(Group::new(local, local[1])),
                Arc::new(Group::new(remote, local[1])),
                "",
            )
        };
        let one = side([5, 3], [4, 1, 2]);
        let other = Comm::between(NINE, one.remote.clone().unwrap().seen_by(4), one.group.clone(), "");
        assert_eq!(one.all_peers, other.all_peers);
        assert_eq!((&one.all_peers[..], one.first_group, other.first_group), (&[4, 1, 2, 5, 3][..], 3, 3));
        assert_eq!((one.own_index(), other.own_index()), (4, 0));
        assert_eq!((one.index_ranges(), other.index_ranges()), ((3..5, 0..3), (0..3, 3..5)));
        assert_eq!((one.peer(1), other.peer(1)), (Ok(1), Ok(3)));
        assert_eq!(one.peer(3).unwrap_err().message, "rank 3 is not in the remote group of 3 processes");
    }

    #[test]
    fn ranks_and_peers() {
        let comm = comm(1, 2);
        assert_eq!(comm.rank, 1);
        assert_eq!(comm.peer(0), Ok(4));
        assert_eq!(comm.peer(3).unwrap_err().class, Class::Rank);
        assert_eq!(comm.peer(-1).unwrap_err().class, Class::Rank);
    }
}
