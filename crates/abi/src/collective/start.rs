// SPDX-License-Identifier: BSD-3-Clause
//! Runs planned collectives: chooses the carrier of a call (`coll/carrier/mod.rs`) and starts the call by it,
//! once, or again for a persistent request. No other file starts the program's collectives.
//!
//! The carriers are a collective library, devices, slots (shared memory into which members write their
//! bytes), a queue (a comm's nonblocking calls over slots, one after the other), and a schedule (a plan of
//! steps).

use super::flat::FlatMember;
use crate::args::{Handle, Out};
use crate::process::{Guard, Process, operation};
use crate::request::{Checked, Planned, Recipe, TracedCollective, Work, to_bytes};
use crate::staging;
use coll::carrier::{CallFacts, CallMode, Carrier, Slots, Why, choose};
use coll::{CALLS_BEFORE, Coll, CollTicket, Members, check};
use error::Result;
use objects::{Comm, QueueState};
use schedule::algorithm::Collective;
use sys::Block;
use telemetry::{Counter, TimedOperation};

/// The carrier of a call and why it was chosen. A carrier is what carries a collective out: a library,
/// devices, slots (shared memory of the members), a queue over slots, or a schedule (a plan of steps).
struct Chosen {
    carrier: Carrier,
    why: Why,
    collective: Collective,
    /// This rank's index in the comm, and whether the comm has slots, the shared memory of its members.
    member: FlatMember,
    slots: Slots,
}

/// What the carrier (library, devices, slots, queue or schedule) that was chosen has done with a call.
enum StartedCall {
    /// The call is complete.
    Over,
    /// The call has started. It goes on as this operation.
    UnderWay(Work),
    /// The call has not started, and goes by a schedule (a plan of steps). A schedule was chosen, or the
    /// chosen slots or queue are not set up yet, or are too short for a member's count.
    NotTaken,
}

impl Guard {
    /// Carries out a blocking collective: by a collective library, devices, slots or a schedule, as `choose`
    /// decides.
    #[inline(always)] // So the choice is made where it is known which collective it is.
    pub(crate) fn run(&mut self, planned: Planned) -> Result<()> {
        let chosen = self.choose(&planned, CallMode::Blocking)?;
        // A reduction on devices keeps its own record, as it may still go by a schedule.
        let operation = if chosen.carrier == Carrier::Device {
            None
        } else {
            self.record_collective(|| planned.traced())
        };
        match self.start_by_carrier(&chosen, &planned)? {
            StartedCall::Over => operation::end(operation, chosen.why),
            StartedCall::UnderWay(work) => {
                let error = self.finish(work).error;
                operation::end(operation, chosen.why);
                return error.map_or(Ok(()), Err);
            }
            StartedCall::NotTaken => return self.run_schedule(planned, operation),
        }
        Ok(())
    }

    #[inline(never)] // So the path of slots moves no call.
    fn run_schedule(&mut self, mut planned: Planned, operation: Option<Box<TimedOperation>>) -> Result<()> {
        // A neighborhood collective waits for its neighbours only, so its wait is not counted as lateness of
        // a member.
        let arrival = planned.call.neighbors.is_none().then_some(planned.call.collective);
        planned.call.blocking = true;
        let mut work = planned.by_schedule(self)?;
        work.follow(operation, &self.job().coll);
        let waited = telemetry::value(Counter::WaitNs);
        let outcome = self.finish(work).error.map_or(Ok(()), Err);
        if let Some(collective) = arrival {
            coll::count_wait(collective, telemetry::value(Counter::WaitNs).wrapping_sub(waited));
        }
        outcome
    }

    /// Starts a nonblocking collective, and stores its request for the program.
    #[inline(always)] // As `run`.
    pub(crate) fn start_nonblocking(&mut self, planned: Planned, request: Out<Handle>) -> Result<()> {
        let chosen = self.choose(&planned, CallMode::Nonblocking)?;
        request.check()?;
        let (comm, traced) = (planned.comm, telemetry::timed().then(|| Box::new(planned.traced())));
        let work = match self.start_by_carrier(&chosen, &planned)? {
            StartedCall::UnderWay(work) => work,
            StartedCall::Over | StartedCall::NotTaken => planned.by_schedule(self)?,
        };
        self.finish_start(work, chosen.carrier, (comm, traced), request)
    }

    #[inline(never)]
    fn finish_start(
        &mut self,
        mut work: Work,
        carrier: Carrier,
        (comm, traced): (Handle, Option<Box<TracedCollective>>),
        request: Out<Handle>,
    ) -> Result<()> {
        if matches!(carrier, Carrier::Library | Carrier::Device) {
            let work = self.request(comm, work)?;
            return request.set(work);
        }
        if let Some(traced) = traced {
            let operation = self.record_collective(|| *traced);
            work.follow(operation, &self.job().coll);
        }
        request.set(self.request(comm, work)?)?;
        self.send_edges_now();
        Ok(())
    }

    /// Makes a persistent request from a planned collective, and stores its handle. Hints in `info` have no
    /// effect.
    pub(crate) fn persist(&mut self, planned: Planned, info: Handle, request: Out<Handle>) -> Result<()> {
        let chosen = self.choose(&planned, CallMode::Persistent)?;
        request.check()?;
        self.objects.info_or_empty(info)?;
        let (comm, mut recipe) = planned.made_by(self.doing.0).recipe(self)?;
        if let (Carrier::Library, Recipe::Coll { planned, members, library, .. }) =
            (chosen.carrier, &mut recipe)
        {
            *library = Some(self.persist_by_library(planned, members.context)?);
        }
        self.enter_persistent(comm, recipe, request)
    }

    /// Starts a call by the carrier (library, devices, slots, queue or schedule) that was chosen. A blocking
    /// call by slots is complete afterwards.
    #[inline(always)]
    fn start_by_carrier(&mut self, chosen: &Chosen, planned: &Planned) -> Result<StartedCall> {
        Ok(match chosen.carrier {
            Carrier::Library => StartedCall::UnderWay(self.by_library(planned)?),
            Carrier::Device => StartedCall::UnderWay(self.on_device(planned)?),
            Carrier::Slots => {
                let Chosen { collective, member, slots, .. } = *chosen;
                if self.by_slots(planned, collective, member, slots)? {
                    StartedCall::Over
                } else {
                    StartedCall::NotTaken
                }
            }
            Carrier::Queue => match planned.by_queue(self)? {
                Some(ticket) => StartedCall::UnderWay(Work::Coll(ticket, None, None)),
                None => StartedCall::NotTaken,
            },
            Carrier::Schedule => StartedCall::NotTaken,
        })
    }

    /// Chooses what carries a call out: a collective library, devices, slots, the queue or a schedule. Fails
    /// if `Planned::check` refuses the call.
    #[inline(always)]
    fn choose(&mut self, planned: &Planned, mode: CallMode) -> Result<Chosen> {
        let comm = self.objects.comm(planned.comm)?;
        let (member, queue, one_group) = (FlatMember::of(comm), comm.queue, comm.remote.is_none());
        // This is asked before a function that is not inlined gets the plan, so the compiler knows which
        // collective it is.
        let call_facts = planned.call_facts(member.size as u32, one_group, mode);
        let has_devices = planned.check()?;
        let coll = &self.job().coll;
        let slots = match mode {
            CallMode::Blocking => member.slots(coll, &call_facts),
            CallMode::Nonblocking | CallMode::Persistent => slots_of(queue, coll, &call_facts),
        };
        let (carrier, why) = match has_devices {
            false => choose(&call_facts, &coll.facts(slots)),
            true => self.choose_with_devices(planned, mode, slots)?,
        };
        Ok(Chosen { carrier, why, collective: call_facts.collective, member, slots })
    }

    /// Chooses what carries a call out where device memory or a collective library may take part. If neither
    /// devices nor the library are chosen, copies device memory into the host memory that stands in for it.
    #[cold]
    #[inline(never)]
    fn choose_with_devices(
        &mut self,
        planned: &Planned,
        mode: CallMode,
        slots: Slots,
    ) -> Result<(Carrier, Why)> {
        let comm = self.objects.comm(planned.comm)?;
        let call_facts = &planned.call_facts(comm.size(), comm.remote.is_none(), mode);
        let (library, on_devices) = (self.library(planned, call_facts)?, self.are_on_devices(planned)?);
        let facts = coll::carrier::CarrierFacts { library, on_devices, ..self.job().coll.facts(slots) };
        let chosen = choose(call_facts, &facts);
        if !matches!(chosen.0, Carrier::Library | Carrier::Device) {
            staging::fill()?;
        }
        Ok(chosen)
    }
}

/// Returns whether a comm's queue of nonblocking collectives is open. If it is, also says how the queue's
/// slots (shared memory of the members) would move the data of a call.
#[inline(always)]
fn slots_of(queue: QueueState, coll: &Coll, call_facts: &CallFacts) -> Slots {
    match queue {
        QueueState::Counted(_) => Slots::Unattached,
        QueueState::Open(queue) => coll.slots_of_queue(queue, call_facts),
    }
}

impl Planned {
    #[inline(always)]
    fn call_facts(&self, members: u32, one_group: bool, mode: CallMode) -> CallFacts {
        CallFacts::of(&self.call, members, one_group, mode, self.imaged.is_some())
    }

    /// Starts a collective that the library itself makes, as the next collective of the comm. It goes by the
    /// comm's queue if it does not block and the queue takes it, otherwise by a schedule (a plan of steps).
    pub(crate) fn start(self, process: &mut Process) -> Result<Work> {
        if self.call.blocking {
            return self.by_schedule(process);
        }
        let comm = process.objects.comm(self.comm)?;
        let (queue, one_group) = (comm.queue, self.as_one || comm.remote.is_none());
        let call_facts = self.call_facts(comm.all_peers.len() as u32, one_group, CallMode::Nonblocking);
        let coll = &process.job().coll;
        let (carrier, _) = choose(&call_facts, &coll.facts(slots_of(queue, coll, &call_facts)));
        if carrier == Carrier::Queue
            && let Some(ticket) = self.by_queue(process)?
        {
            return Ok(Work::Coll(ticket, None, None));
        }
        self.by_schedule(process)
    }

    /// Starts the call by a schedule (a plan of steps), as the next collective of the comm.
    #[inline(never)]
    fn by_schedule(self, process: &mut Process) -> Result<Work> {
        // With OUTBOARD_CHECK=1 all collectives have one count, so that a wrong order is found.
        let blocking = self.call.blocking || settings::get().check != 0;
        let comm = self.comm;
        let mut members = self.next_members(process.objects.comms.get_mut(comm)?, blocking);
        let work = self.start_among(&mut members, process)?;
        // The exchange of statements has taken a number of its own.
        if settings::get().check != 0 {
            process.objects.comms.get_mut(comm)?.sequences[usize::from(!blocking)] = members.sequence;
        }
        Ok(work)
    }

    /// Puts the call into the comm's queue of nonblocking collectives, as the next one. Returns None if the
    /// queue is not open yet, or if a member's count is too long for it.
    fn by_queue(&self, process: &mut Process) -> Result<Option<CollTicket>> {
        let (objects, job) = process.parts();
        let comm = objects.comms.get_mut(self.comm)?;
        let mut queue = comm.queue;
        let open = queue_when_due(&mut queue, &mut job.coll, || Ok(next_members(comm, false)))?;
        comm.queue = queue;
        let Some(queue) = open else { return Ok(None) };
        let members = self.next_members(comm, false);
        Ok(job.coll.queue(queue, &members, &self.call))
    }

    fn next_members(&self, comm: &mut Comm, blocking: bool) -> Members {
        let members = next_members(comm, blocking);
        if self.as_one { members.as_one() } else { members }
    }

    /// Makes the recipe of a persistent request, from which each start makes an operation. Members may start
    /// their requests in different orders, so each request has its own context and counts its own starts (MPI
    /// 5.0, 6.13).
    fn recipe(self, process: &mut Process) -> Result<(Handle, Recipe)> {
        let comm = process.objects.comms.get_mut(self.comm)?;
        let mut members = next_members(comm, false);
        members.context = comm.child_context(0).id;
        let claim = process.objects.contexts.claim(members.context)?;
        let queue = QueueState::Counted(0);
        Ok((
            self.comm,
            Recipe::Coll { planned: Box::new(self), members, queue, library: None, starts: 0, _claim: claim },
        ))
    }

    /// Starts the collective of a persistent request once more: by the request's queue if it takes the call,
    /// otherwise by a schedule (a plan of steps).
    pub(crate) fn start_again(
        &self,
        members: &mut Members,
        queue: &mut QueueState,
        process: &mut Process,
    ) -> Result<Work> {
        members.sequence = members.sequence.wrapping_add(1);
        let this = members.clone();
        let coll = &mut process.job().coll;
        let call_facts =
            self.call_facts(members.peers.len() as u32, members.first_group == 0, CallMode::Persistent);
        if let (Carrier::Queue, _) = choose(&call_facts, &coll.facts(slots_of(*queue, coll, &call_facts))) {
            let opening = || {
                members.sequence = members.sequence.wrapping_add(1);
                Ok(members.clone())
            };
            if let Some(queue) = queue_when_due(queue, coll, opening)?
                && let Some(ticket) = coll.queue(queue, &this, &self.call)
            {
                return Ok(Work::Coll(ticket, None, None));
            }
        }
        self.clone().start_among(members, process)
    }

    /// Starts the call by a schedule (a plan of steps) under the number `members.sequence`. With
    /// OUTBOARD_CHECK=1 the members first compare their arguments in an exchange under this number. The call
    /// then gets the next number at once, since other collectives may start before the exchange is over.
    fn start_among(self, members: &mut Members, process: &mut Process) -> Result<Work> {
        let size = members.peers.len() as u32;
        if settings::get().check == 0 || size == 1 {
            let (call, image) = self.prepared(&mut process.job().operators);
            let job = process.job();
            return match job.coll.start(members, call) {
                Ok(ticket) => Ok(Work::Coll(ticket, image, None)),
                Err(error) => {
                    image.and_then(|image| image.operator).map(|operator| job.operators.remove(operator));
                    Err(error)
                }
            };
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

/// Counts one more call that the queue `queue` could carry out, for a comm, request or file. Returns the
/// number of this queue, or None if there have been too few calls to open it. All members open it at the same
/// call, by a collective.
pub(crate) fn queue_when_due(
    queue: &mut QueueState,
    coll: &mut Coll,
    members: impl FnOnce() -> Result<Members>,
) -> Result<Option<usize>> {
    let number = match *queue {
        QueueState::Open(number) => number,
        QueueState::Counted(calls) if calls + 1 < CALLS_BEFORE => {
            *queue = QueueState::Counted(calls + 1);
            return Ok(None);
        }
        QueueState::Counted(_) => coll.open_queue(&members()?)?,
    };
    *queue = QueueState::Open(number);
    Ok(Some(number))
}

/// Counts one more collective on a comm. Returns the comm's members, with the number of this collective.
pub(super) fn next_members(comm: &mut Comm, blocking: bool) -> Members {
    let (context, sequence) = comm.next_collective(blocking);
    let (rank, peers, first_group) = (comm.own_index(), comm.all_peers.clone(), comm.first_group);
    Members { context, sequence, rank, peers, first_group }
}
