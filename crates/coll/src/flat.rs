// SPDX-License-Identifier: BSD-3-Clause
//! Flat collectives: short calls without a schedule, over slots in memory that the members share.
//!
//! A long allreduce takes two rounds. So does a long all-to-all or allgather that is *pulled*: members read
//! each other's memory. A comm has slots for its blocking calls, and others for its queue of nonblocking
//! calls, since the two kinds never match (MPI 5.0, section 6.12). It attaches slots only after some calls.
//!
//! Invariants: whether a call is flat depends only on what all members know alike, so their rounds agree.
//!
//! Read next: `set.rs` (the rounds), `short.rs` (what a call is), `attach.rs` (where the slots lie),
//! `queue.rs` (calls that do not block), `flat_loom.rs` (this code under every interleaving).

use crate::attach::{AttachedSet, Bounds, SlotMemory};
use crate::call::Call;
use crate::queue::Queues;
use crate::set::{ActiveRound, FlatSet, Round};
use crate::with_counts::CallWithCounts;
use crate::word::FACTS_BITS;
use error::Result;
use slab::Slab;
use transport::shm::Segment;

/// How many collectives a comm carries out by schedules before its members attach slots.
pub const CALLS_BEFORE: u32 = 8;

/// Names a set of slots, in messages to the user, by the calls that the set carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlatCalls {
    /// The blocking calls of a comm. The number is the index of their set in `FlatSets::blocking`.
    Blocking(usize),
    /// The nonblocking calls of a queue. The number is the index of the queue in `FlatSets::queues`.
    Queued(usize),
}

/// All sets of slots that this process shares with other ranks.
pub(crate) struct FlatSets {
    pub(crate) memory: SlotMemory,
    /// The sets of slots for the blocking calls of comms.
    blocking: Slab<AttachedSet>,
    /// The queues of nonblocking calls, with their sets.
    pub(crate) queues: Queues,
    /// The sets, by index, on which a thread is in a long wait of a blocking call, in which it may go to
    /// sleep.
    waiting: Vec<usize>,
}

impl FlatSets {
    pub(crate) fn new(segment: Segment, served: bool, bounds: Bounds) -> FlatSets {
        FlatSets {
            memory: SlotMemory::new(segment, served, bounds),
            blocking: Slab::new(),
            queues: Queues::default(),
            waiting: Vec::new(),
        }
    }

    /// Attaches a set for blocking calls at the locations of slots that the members have exchanged. Returns
    /// the set's number, or None if some member has no slots.
    pub(crate) fn attach(&mut self, rank: usize, peers: &[u32], locations: &[i64]) -> Result<Option<usize>> {
        let attached = self.memory.attach(rank, peers, locations)?;
        Ok(attached.map(|attached| self.blocking.insert(attached)))
    }

    /// Returns the set of slots with the number `set` among the sets for blocking calls.
    #[inline]
    pub(crate) fn blocking(&self, set: usize) -> &AttachedSet {
        &self.blocking[set]
    }

    /// Starts a blocking call, and looks at most `looks` times whether the call is over. Returns None if it
    /// is not over by then, or has failed; then `start_round` must continue the call.
    #[inline(always)]
    pub(crate) fn try_now(&mut self, set: usize, call: &mut impl Round, looks: u32) -> Option<()> {
        let attached = &mut self.blocking[set];
        let mut active = attached.set.start_round(call);
        for _ in 0..looks {
            match attached.set.step(&mut active, call) {
                None => sys::cpu::pause_between_loads(),
                Some(Ok(())) => return Some(()),
                Some(Err(_)) => break,
            }
        }
        attached.tried = Some(active);
        None
    }

    /// Starts the next round on a set of slots, or continues the round that `try_now` has started for the
    /// same call.
    #[inline]
    pub(crate) fn start_round(&mut self, set: usize, call: &impl Round) -> ActiveRound {
        let attached = &mut self.blocking[set];
        let active = attached.tried.take().unwrap_or_else(|| attached.set.start_round(call));
        assert_eq!(active.word % (1 << FACTS_BITS), call.facts(), "another call was begun");
        active
    }

    /// Advances the round of a blocking call as far as possible. Returns the round's outcome, or None before
    /// the round has ended.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        set: usize,
        active: &mut ActiveRound,
        call: &mut impl Round,
    ) -> Option<Result<()>> {
        self.blocking[set].set.advance(active, call)
    }

    /// Prepares a call with a count for each member (gatherv and the like) for slots. Returns None if slots
    /// do not take the call, or probably would not since an earlier call was too long.
    pub(crate) fn prepare_with_counts(&mut self, set: usize, call: &Call) -> Option<CallWithCounts> {
        let attached = &mut self.blocking[set];
        if attached.backoff.skips() { None } else { CallWithCounts::new(call, attached.space.bytes_max) }
    }

    /// Notes that a blocking call with counts was too long for slots, so that the next such calls go to
    /// schedules at once.
    pub(crate) fn back_off(&mut self, set: usize) {
        self.blocking[set].backoff.start();
    }

    /// Notes that a thread begins (`begins`) or ends a long wait in a blocking call on this set of slots.
    #[cold]
    pub(crate) fn wait(&mut self, set: usize, begins: bool) {
        self.waiting.retain(|waiting| *waiting != set);
        if begins {
            self.waiting.push(set);
        }
    }

    /// Returns the sets of slots on which a thread may sleep until another member has begun a round, each
    /// with the calls that it carries.
    #[inline]
    fn awaited(&self) -> impl Iterator<Item = (FlatCalls, &FlatSet)> {
        let blocking =
            self.waiting.iter().map(|number| (FlatCalls::Blocking(*number), &self.blocking[*number].set));
        blocking.chain(self.queues.awaited().map(|(queue, set)| (FlatCalls::Queued(queue), set)))
    }

    /// Whether a thread that may sleep in a call over slots can go on: the member for which it waited has
    /// begun the round.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.awaited().any(|(_, set)| !set.still_waits())
    }

    /// Returns the sets of slots on which a call waits, each with a member that has not begun the call's
    /// round.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (FlatCalls, usize)> {
        self.awaited().filter(|(_, set)| set.still_waits()).map(|(calls, set)| (calls, set.awaited_member()))
    }

    /// Leaves the set of slots for the blocking calls of a comm that the program frees.
    pub(crate) fn leave(&mut self, set: usize) {
        let attached = self.blocking.remove(set);
        self.memory.detach(attached);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "flat_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "flat_loom.rs"]
mod loom_tests;
