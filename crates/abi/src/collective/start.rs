// SPDX-License-Identifier: BSD-3-Clause
//! How a planned collective runs: over the comm's slots, in a queue, or by a schedule; now, or once more for
//! a persistent request.

use crate::args::{Handle, Out};
use crate::process::{Guard, Job, Process, operation};
use crate::request::{Checked, Image, Planned, Recipe, Work, to_bytes};
use crate::staging;
use coll::{CALLS_BEFORE, Call, Coll, CollTicket, Members, check};
use error::Result;
use objects::{Comm, Queue};
use sys::Block;
use telemetry::{Choice, Counter, Operation};

impl Guard {
    /// Makes a blocking collective: over the comm's slots if they take it, else by a schedule.
    pub(crate) fn run(&mut self, planned: Planned) -> Result<()> {
        if planned.check()?
            && let Some((work, choice)) = self.go_elsewhere(&planned, true)?
        {
            // One on devices has its record, as it may still go the usual way.
            let operation =
                if matches!(work, Work::OnDevice(_)) { None } else { self.begun(|| planned.told()) };
            let error = self.finish(work).error;
            operation::over(operation, choice);
            return error.map_or(Ok(()), Err);
        }
        let operation = self.begun(|| planned.told());
        if self.run_flat(&planned)? {
            operation::over(operation, Choice::Slots);
            return Ok(());
        }
        self.run_schedule(planned, operation)
    }

    #[inline(never)] // So the path of slots moves no call.
    fn run_schedule(&mut self, planned: Planned, operation: Option<Box<Operation>>) -> Result<()> {
        // Neighbours are not everybody: nobody is late for all.
        let arrival = planned.call.neighbors.is_none().then_some(planned.call.collective);
        let mut work = planned.blocking().start(self)?.1;
        work.follow(operation, &self.job().coll);
        let waited = telemetry::value(Counter::WaitNs);
        let outcome = self.finish(work).error.map_or(Ok(()), Err);
        if let Some(collective) = arrival {
            coll::count_wait(collective, telemetry::value(Counter::WaitNs).wrapping_sub(waited));
        }
        outcome
    }

    /// Starts a nonblocking collective, and stores its request.
    pub(crate) fn launch(&mut self, planned: Planned, request: Out<Handle>) -> Result<()> {
        let elsewhere = planned.check()?;
        request.check()?;
        if elsewhere && let Some((work, _)) = self.go_elsewhere(&planned, false)? {
            let work = self.request(planned.comm, work)?;
            return request.set(work);
        }
        let told = if telemetry::timed() { planned.told() } else { (planned.comm, 0) };
        let (comm, mut work) = planned.start(self)?;
        let operation = self.begun(|| told);
        work.follow(operation, &self.job().coll);
        request.set(self.request(comm, work)?)?;
        self.let_edges_leave();
        Ok(())
    }

    /// Keeps a plan in a persistent request. Hints in the info change nothing.
    pub(crate) fn persist(&mut self, planned: Planned, info: Handle, request: Out<Handle>) -> Result<()> {
        planned.check()?;
        request.check()?;
        self.objects.info_or_empty(info)?;
        let (comm, mut recipe) = planned.made_by(self.doing.0).recipe(self)?;
        if device::on()
            && let Recipe::Coll { planned, members, library, .. } = &mut recipe
        {
            *library = self.persist_by_library(planned, members.context)?;
        }
        self.enter_persistent(comm, recipe, request)
    }
}

impl Guard {
    /// Starts a call by a collective library or on devices, if they take it. Else what stands in for device
    /// memory gets its bytes.
    #[cold]
    #[inline(never)]
    fn go_elsewhere(&mut self, planned: &Planned, blocking: bool) -> Result<Option<(Work, Choice)>> {
        let work = match self.by_library(planned, blocking)? {
            None => self.on_device(planned)?.map(|work| (work, Choice::Device)),
            work => work,
        };
        if work.is_none() {
            staging::fill()?;
        }
        Ok(work)
    }
}

impl Planned {
    /// Starts it as the comm's next collective: in the comm's queue if that takes it, else by a schedule.
    /// Returns the comm, too.
    #[inline(always)] // It owns the call, which is long to move.
    pub(crate) fn start(self, process: &mut Process) -> Result<(Handle, Work)> {
        // With OUTBOARD_CHECK=1 all collectives have one count, so that a wrong order is found.
        let blocking = self.call.blocking || settings::get().check != 0;
        let comm = self.comm;
        let mut members = next_members(process.objects.comms.get_mut(comm)?, blocking);
        if self.as_one {
            members = members.as_one();
        }
        if !blocking && let Some(ticket) = self.enqueue(&members, process)? {
            return Ok((comm, Work::Coll(ticket, None, None)));
        }
        let work = self.start_among(&mut members, process)?;
        // The exchange of statements has taken a number of its own.
        if settings::get().check != 0 {
            process.objects.comms.get_mut(comm)?.sequences[usize::from(!blocking)] = members.sequence;
        }
        Ok((comm, work))
    }

    /// Enters a nonblocking call into the comm's queue, if that takes it.
    fn enqueue(&self, members: &Members, process: &mut Process) -> Result<Option<CollTicket>> {
        let (objects, job) = process.parts();
        let comm = objects.comms.get_mut(self.comm)?;
        let mut queue = comm.queue;
        let ticket = self.enqueue_in(&mut queue, &mut job.coll, members, || next_members(comm, false));
        comm.queue = queue;
        ticket
    }

    /// Enters a call into a queue, if that takes it. `opening`: the members for `opened`.
    fn enqueue_in(
        &self,
        queue: &mut Queue,
        coll: &mut Coll,
        members: &Members,
        opening: impl FnOnce() -> Members,
    ) -> Result<Option<CollTicket>> {
        if self.imaged.is_some() || !coll.is_for_queue(members, &self.call) {
            return Ok(None);
        }
        let Some(queue) = opened(queue, coll, || Ok(opening()))? else { return Ok(None) };
        Ok(coll.queue(queue, members, &self.call))
    }

    /// A persistent request's recipe. Members may start their requests in different orders, so each request
    /// has a context of its own, in which its starts are counted (MPI 5.0, section 6.13).
    fn recipe(self, process: &mut Process) -> Result<(Handle, Recipe)> {
        let comm = process.objects.comms.get_mut(self.comm)?;
        let mut members = next_members(comm, false);
        members.context = comm.child_context(0).id;
        let claim = process.objects.contexts.claim(members.context)?;
        let queue = Queue::Counted(0);
        Ok((
            self.comm,
            Recipe::Coll { planned: Box::new(self), members, queue, library: None, _claim: claim },
        ))
    }

    /// Starts the recipe once more.
    pub(crate) fn start_again(
        &self,
        members: &mut Members,
        queue: &mut Queue,
        process: &mut Process,
    ) -> Result<Work> {
        members.sequence = members.sequence.wrapping_add(1);
        let this = members.clone();
        let opening = || {
            members.sequence = members.sequence.wrapping_add(1);
            members.clone()
        };
        if let Some(ticket) = self.enqueue_in(queue, &mut process.job().coll, &this, opening)? {
            return Ok(Work::Coll(ticket, None, None));
        }
        self.clone().start_among(members, process)
    }

    /// Starts it by a schedule with the number `members.sequence`. With OUTBOARD_CHECK=1 an exchange of
    /// statements goes first and takes that number. Both numbers are taken now: other collectives may start
    /// before the exchange is over.
    fn start_among(self, members: &mut Members, process: &mut Process) -> Result<Work> {
        let size = members.peers.len() as u32;
        if settings::get().check == 0 || size == 1 {
            let (call, image) = self.prepared(&mut process.job().operators);
            return begin(process.job(), members, call, image);
        }
        let mine = Block::of(&to_bytes(&check::statement(&self.call, members)));
        let all = Block::new(mine.span().bytes() * size as usize);
        let gather = Planned::gathering_bytes(self.comm, &mine, &all).call;
        let gather = process.job().coll.start(&members.as_one(), gather)?;
        members.sequence = members.sequence.wrapping_add(1);
        let (call, image) = self.prepared(&mut process.job().operators);
        let members = members.clone();
        Ok(Work::Checked(Box::new(Checked { gather, mine, all, members, call, image, operation: None })))
    }
}

fn begin(job: &mut Job, members: &Members, call: Call, image: Option<Box<Image>>) -> Result<Work> {
    match job.coll.start(members, call) {
        Ok(ticket) => Ok(Work::Coll(ticket, image, None)),
        Err(error) => {
            image.and_then(|image| image.operator).map(|operator| job.operators.remove(operator));
            Err(error)
        }
    }
}

/// The queue for one more call; nothing before there have been some. All members open it at the same call, by
/// a collective among `members`.
pub(crate) fn opened(
    queue: &mut Queue,
    coll: &mut Coll,
    members: impl FnOnce() -> Result<Members>,
) -> Result<Option<usize>> {
    let number = match *queue {
        Queue::Open(number) => number,
        Queue::Counted(calls) if calls + 1 < CALLS_BEFORE => {
            *queue = Queue::Counted(calls + 1);
            return Ok(None);
        }
        Queue::Counted(_) => coll.open_queue(&members()?)?,
    };
    *queue = Queue::Open(number);
    Ok(Some(number))
}

/// The members of a comm, with the next collective's number.
pub(super) fn next_members(comm: &mut Comm, blocking: bool) -> Members {
    let (context, sequence) = comm.next_collective(blocking);
    let (rank, peers, first_group) = (comm.place(), comm.everybody.clone(), comm.first_group);
    Members { context, sequence, rank, peers, first_group }
}
