// SPDX-License-Identifier: BSD-3-Clause
//! Blocking collectives by slots (flat collectives, `coll/src/flat.rs`), and how a comm gets its slots. A
//! slot is the place in shared memory into which a member writes its bytes, for the other members to read.
//!
//! Invariant: all members attach the comm's slots at the same call, because they count calls by what all of
//! them know.

use crate::args::Handle;
use crate::process::{Guard, JobState, Process};
use crate::request::{Planned, Work, to_bytes, to_words};
use coll::carrier::{CallFacts, Moved, Slots};
use coll::{CALLS_BEFORE, Call, Coll, FlatForm, Round, Short};
use error::Result;
use objects::{Comm, FlatState, QueueState};
use schedule::algorithm::Collective;
use sys::Block;
use telemetry::Counter;

/// This rank's index in a comm, the number of the comm's members, and the state of the comm's slots (the
/// shared memory by which its short blocking collectives go).
#[derive(Clone, Copy)]
pub(super) struct FlatMember {
    flat: FlatState,
    rank: usize,
    pub(super) size: usize,
}

impl FlatMember {
    #[inline(always)]
    pub(super) fn of(comm: &Comm) -> FlatMember {
        FlatMember { flat: comm.flat, rank: comm.rank as usize, size: comm.size() as usize }
    }

    /// Returns whether the comm has its slots, the shared memory into which members write. If it has, also
    /// says how the slots would move the data of a call.
    #[inline(always)]
    pub(super) fn slots(&self, coll: &Coll, call_facts: &CallFacts) -> Slots {
        match self.flat {
            FlatState::Counted(_) => Slots::Unattached,
            FlatState::Refused => Slots::Refused,
            FlatState::Attached(set) => coll.slots(set, call_facts),
        }
    }
}

/// Gives up what a comm that is being freed holds: its slots (shared memory of the members), its queue of
/// nonblocking collectives, its communicator in a collective library, and its device streams.
pub(crate) fn detach(job: &mut JobState, comm: &Comm) {
    if let FlatState::Attached(set) = comm.flat {
        job.coll.leave(set);
    }
    if let QueueState::Open(queue) = comm.queue {
        job.coll.close_queue(queue);
    }
    job.communicators.leave(comm.context);
    job.streams.leave(comm.context);
}

impl Guard {
    /// Carries out a blocking collective by the comm's slots (shared memory of the members). Returns false if
    /// the call needs a schedule (a plan of steps) instead: the comm has no slots yet, or they are too short
    /// for a member's count.
    #[inline(always)]
    pub(super) fn by_slots(
        &mut self,
        planned: &Planned,
        collective: Collective,
        member: FlatMember,
        slots: Slots,
    ) -> Result<bool> {
        match (member.flat, slots) {
            (FlatState::Attached(set), Slots::Attached(Some(moved))) if !collective.has_counts() => {
                self.run_short(set, (member.rank, member.size), &planned.call, moved)
            }
            (FlatState::Attached(set), _) => self.run_with_counts(set, planned.comm, &planned.call),
            _ => self.count_call(planned.comm, member).map(|()| false),
        }
    }

    fn run_short(
        &mut self,
        set: usize,
        (rank, size): (usize, usize),
        call: &Call,
        moved: Moved,
    ) -> Result<bool> {
        let mut short = Short::new(call.collective);
        if !short.fill(call, rank, size) {
            return Ok(false);
        }
        let form = self.job().coll.form(set, &mut short, moved);
        coll::count(short.collective);
        match form {
            FlatForm::Short => self.flat_rounds(set, &mut short)?,
            FlatForm::Pulled(mut pull) => self.flat_rounds(set, &mut *pull)?,
        }
        Ok(true)
    }

    /// Carries out, by the comm's slots (shared memory of the members), a collective that has a count for
    /// each member. Moves blocks that are too long for a slot by schedules (plans of steps). Returns false if
    /// the whole call needs a schedule.
    fn run_with_counts(&mut self, set: usize, comm: Handle, call: &Call) -> Result<bool> {
        let Some(mut with_counts) = self.job().coll.prepare_with_counts(set, call) else { return Ok(false) };
        let outcome = self.flat_round(set, &mut with_counts);
        if self.job().coll.leaves_to_schedule(set, &with_counts) {
            return outcome.map(|()| false);
        }
        coll::count(call.collective);
        let comm = self.objects.comm(comm)?;
        let (context, peers) = (comm.context, comm.all_peers.clone());
        let started = self.job().coll.start_long_blocks(set, context, &peers, &with_counts);
        let works: Vec<_> =
            started.into_iter().map(|start| start.map(|ticket| Work::Coll(ticket, None, None))).collect();
        let finish = |work: Result<Work>| self.finish(work?).error.map_or(Ok(()), Err);
        // All schedules are waited for, even if the first failed.
        works.into_iter().map(finish).fold(outcome, Result::and).map(|()| true)
    }

    #[inline]
    fn flat_rounds(&mut self, set: usize, call: &mut impl Round) -> Result<()> {
        self.flat_round(set, call)?;
        while call.next_phase() {
            self.flat_round(set, call)?;
        }
        Ok(())
    }

    /// Carries out one round of a collective, or the rest of a round that the fast path has started. In a
    /// round each member writes its slot (its part of the comm's shared memory), and reads the slots that it
    /// needs.
    #[inline]
    fn flat_round(&mut self, set: usize, call: &mut impl Round) -> Result<()> {
        let mut active = self.job().coll.start_round(set, call);
        let advance = |process: &mut Process| process.job().coll.advance(set, &mut active, call);
        let needs = |process: &mut Process, cpu| process.job().coll.waits_for_one_on(set, cpu);
        if let Some(outcome) = self.look_for(advance, needs) {
            return outcome;
        }
        let waited = telemetry::value(Counter::WaitNs);
        self.job().coll.wait(set, true);
        let outcome = self.wait(|process| process.job().coll.advance(set, &mut active, call));
        self.job().coll.wait(set, false);
        coll::count_wait(call.collective(), telemetry::value(Counter::WaitNs).wrapping_sub(waited));
        outcome
    }

    /// Counts a collective that could go by slots (shared memory of the members) if the comm had them. At
    /// call number `CALLS_BEFORE` makes the comm's slots.
    #[cold]
    fn count_call(&mut self, comm: Handle, member: FlatMember) -> Result<()> {
        let FlatState::Counted(calls) = member.flat else { return Ok(()) };
        if calls + 1 < CALLS_BEFORE {
            self.objects.comms.get_mut(comm)?.flat = FlatState::Counted(calls + 1);
            return Ok(());
        }
        let peers = self.objects.comm(comm)?.all_peers.clone();
        let mine = Block::of(&to_bytes(&[self.job().coll.alloc_slots(&peers) as i64]));
        let all = Block::new(mine.span().bytes() * member.size);
        let work = Planned::gathering_bytes(comm, &mine, &all).blocking().start(self)?;
        self.finish(work).error.map_or(Ok(()), Err)?;
        let (objects, job) = self.parts();
        let attached = job.coll.attach_flat(member.rank, &peers, &to_words(&all.to_vec()))?;
        objects.comms.get_mut(comm)?.flat = attached.map_or(FlatState::Refused, FlatState::Attached);
        Ok(())
    }
}
