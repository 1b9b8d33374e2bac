// SPDX-License-Identifier: BSD-3-Clause
//! Blocking collectives over a comm's slots (`coll/src/flat.rs`), and how a comm gets them.
//!
//! Invariants: whether a call counts towards attaching slots follows from what all members know alike, so all
//! attach them at the same call.

use crate::args::Handle;
use crate::process::{Guard, Job, Process};
use crate::request::{Planned, Work, to_bytes, to_words};
use coll::{CALLS_BEFORE, Call, Form, Round, Short};
use error::Result;
use objects::{Comm, Flat, Queue};
use sys::Block;
use telemetry::Counter;

/// This rank as a member of a comm that may have slots.
#[derive(Clone, Copy)]
struct Member {
    flat: Flat,
    rank: usize,
    size: usize,
}

/// Leaves the slots of a comm that is freed, its queue, its library's communicator, and its streams.
pub(crate) fn detach(job: &mut Job, comm: &Comm) {
    if let Flat::Attached(set) = comm.flat {
        job.coll.leave(set);
    }
    if let Queue::Open(queue) = comm.queue {
        job.coll.close_queue(queue);
    }
    job.communicators.leave(comm.context);
    job.streams.leave(comm.context);
}

impl Process {
    #[inline]
    fn member(&self, comm: Handle) -> Result<Option<Member>> {
        let comm = self.objects.comm(comm)?;
        let (flat, rank, size) = (comm.flat, comm.rank as usize, comm.size() as usize);
        let may = comm.remote.is_none() && size > 1 && flat != Flat::Refused;
        Ok(may.then_some(Member { flat, rank, size }))
    }
}

impl Guard {
    /// Makes a blocking call over the comm's slots, if these are attached and take it. Returns whether it
    /// did.
    #[inline]
    pub(crate) fn run_flat(&mut self, planned: &Planned) -> Result<bool> {
        let Some((comm, call)) = planned.for_slots() else { return Ok(false) };
        let Some(member) = self.member(comm)? else { return Ok(false) };
        let coll = &self.job().coll;
        let mut short = Short::new(call.collective);
        let is_short = coll.is_short(call, member.rank, member.size, &mut short);
        if !is_short && !coll.takes_vector(call, member.size) {
            return Ok(false);
        }
        let Flat::Attached(set) = member.flat else {
            return self.count_call(comm, member).map(|()| false);
        };
        if is_short { self.run_short(set, &mut short) } else { self.run_vector(set, comm, call) }
    }

    #[inline(always)]
    fn run_short(&mut self, set: usize, short: &mut Short) -> Result<bool> {
        let coll = &self.job().coll;
        let Some(form) = coll.choose_form(set, short) else { return Ok(false) };
        coll::count(short.collective);
        match form {
            Form::Short => self.flat_rounds(set, short)?,
            Form::Pulled(mut pull) => self.flat_rounds(set, &mut *pull)?,
        }
        Ok(true)
    }

    /// A call with a count for each member. Blocks that are too long for slots go by schedules of their own.
    fn run_vector(&mut self, set: usize, comm: Handle, call: &Call) -> Result<bool> {
        let Some(mut vector) = self.job().coll.vector(set, call) else { return Ok(false) };
        let outcome = self.flat_round(set, &mut vector);
        if self.job().coll.leaves_to_schedule(set, &vector) {
            return outcome.map(|()| false);
        }
        coll::count(call.collective);
        let comm = self.objects.comm(comm)?;
        let (context, peers) = (comm.context, comm.everybody.clone());
        let started = self.job().coll.start_long_blocks(set, context, &peers, &vector);
        let works: Vec<_> =
            started.into_iter().map(|start| start.map(|ticket| Work::Coll(ticket, None, None))).collect();
        let finish = |work: Result<Work>| self.finish(work?).error.map_or(Ok(()), Err);
        // All of them are waited for, even if the first failed.
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

    /// One round, or the rest of the round that the fast path began.
    #[inline]
    fn flat_round(&mut self, set: usize, call: &mut impl Round) -> Result<()> {
        let mut active = self.job().coll.begin(set, call);
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

    /// Counts a call that slots would have taken, and attaches them after `CALLS_BEFORE` of them.
    #[cold]
    fn count_call(&mut self, comm: Handle, member: Member) -> Result<()> {
        let Flat::Counted(calls) = member.flat else { return Ok(()) };
        if calls + 1 < CALLS_BEFORE {
            self.objects.comms.get_mut(comm)?.flat = Flat::Counted(calls + 1);
            return Ok(());
        }
        let peers = self.objects.comm(comm)?.everybody.clone();
        let mine = Block::of(&to_bytes(&[self.job().coll.alloc_slots(&peers) as i64]));
        let all = Block::new(mine.span().bytes() * member.size);
        let work = Planned::gathering_bytes(comm, &mine, &all).blocking().start(self)?.1;
        self.finish(work).error.map_or(Ok(()), Err)?;
        let (objects, job) = self.parts();
        let attached = job.coll.attach_flat(member.rank, &peers, &to_words(&all.to_vec()))?;
        objects.comms.get_mut(comm)?.flat = attached.map_or(Flat::Refused, Flat::Attached);
        Ok(())
    }
}
