// SPDX-License-Identifier: BSD-3-Clause
//! Flat collectives: short calls over shared slots, each in one or two exchanges of cache lines.
//!
//! A long allreduce takes two rounds, like a long all-to-all or allgather that is *pulled*. Blocking calls
//! and each queue of nonblocking calls have sets of slots of their own, since the two never match (MPI 5.0,
//! section 6.12). A comm attaches a set after some calls, since many comms make only a few.
//!
//! Invariants: whether a call is flat depends only on what all members know alike, so their rounds agree.
//!
//! Read next: `set.rs` (the rounds), `short.rs` (what a call is), `attach.rs` (where the slots lie),
//! `queue.rs` (calls that do not block), `flat_loom.rs` (this code under every interleaving).

use crate::attach::{AttachedSet, Bounds, SlotMemory};
use crate::call::Call;
use crate::queue::Queues;
use crate::set::{ActiveRound, FlatSet, Round};
use crate::vector::Vector;
use crate::word::FACTS_BITS;
use error::Result;
use slab::Slab;
use transport::shm::Segment;

/// How many calls a comm makes before its members attach slots.
pub const CALLS_BEFORE: u32 = 8;

/// The calls that a set carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlatCalls {
    /// The blocking calls of a comm, by the number of the set.
    Blocking(usize),
    /// The calls of a queue, by its number.
    Queued(usize),
}

/// The sets of a process.
pub(crate) struct FlatSets {
    pub(crate) memory: SlotMemory,
    /// The sets of blocking calls.
    blocking: Slab<AttachedSet>,
    /// The queues of nonblocking calls, with their sets.
    pub(crate) queues: Queues,
    /// Sets of blocking calls on which a thread waits that may go to sleep.
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

    /// Attaches a set for blocking calls at the stated locations. Returns None if some member has no slots.
    pub(crate) fn attach(&mut self, rank: usize, peers: &[u32], locations: &[i64]) -> Result<Option<usize>> {
        let attached = self.memory.attach(rank, peers, locations)?;
        Ok(attached.map(|attached| self.blocking.insert(attached)))
    }

    /// A set of blocking calls.
    #[inline]
    pub(crate) fn blocking(&self, set: usize) -> &AttachedSet {
        &self.blocking[set]
    }

    /// Makes a blocking call, if it is over after `looks` looks. Otherwise `start_round` continues it.
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

    /// Starts the next round, or continues the round that `try_now` has started for the same call.
    #[inline]
    pub(crate) fn start_round(&mut self, set: usize, call: &impl Round) -> ActiveRound {
        let attached = &mut self.blocking[set];
        let active = attached.tried.take().unwrap_or_else(|| attached.set.start_round(call));
        assert_eq!(active.word % (1 << FACTS_BITS), call.facts(), "another call was begun");
        active
    }

    /// Advances a blocking call as far as possible. Returns its outcome, once it has ended.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        set: usize,
        active: &mut ActiveRound,
        call: &mut impl Round,
    ) -> Option<Result<()>> {
        self.blocking[set].set.advance(active, call)
    }

    /// A call with a count for each member, or None if slots do not take it, or probably would not.
    pub(crate) fn vector(&mut self, set: usize, call: &Call) -> Option<Vector> {
        let attached = &mut self.blocking[set];
        if attached.backoff.skips() { None } else { Vector::new(call, attached.space.bytes_max) }
    }

    /// Notes that a blocking call with counts was left to a schedule.
    pub(crate) fn back_off(&mut self, set: usize) {
        self.blocking[set].backoff.start();
    }

    /// Notes that a thread starts or ends a long wait in a blocking call.
    #[cold]
    pub(crate) fn wait(&mut self, set: usize, begins: bool) {
        self.waiting.retain(|waiting| *waiting != set);
        if begins {
            self.waiting.push(set);
        }
    }

    /// The sets for which a thread may sleep.
    #[inline]
    fn awaited(&self) -> impl Iterator<Item = (FlatCalls, &FlatSet)> {
        let blocking =
            self.waiting.iter().map(|number| (FlatCalls::Blocking(*number), &self.blocking[*number].set));
        blocking.chain(self.queues.awaited().map(|(queue, set)| (FlatCalls::Queued(queue), set)))
    }

    /// Whether a call in a long wait can advance.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.awaited().any(|(_, set)| !set.still_waits())
    }

    /// The sets on which calls wait, and for which member.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (FlatCalls, usize)> {
        self.awaited().filter(|(_, set)| set.still_waits()).map(|(calls, set)| (calls, set.awaited_member()))
    }

    /// Leaves the set of a comm that is freed here.
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
