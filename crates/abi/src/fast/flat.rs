//! Short collectives: from the arguments straight to the comm's slots (`coll/src/flat.rs`).
//!
//! This is the way of calls that are right, as nearly all are. It takes no call of which it is not sure: that goes the general way
//! (`collective.rs`), where is found and said what is wrong, if anything is. What is looked at before slots are attached is the same for
//! all members, so all attach them at the same call.

use crate::args::{Counts, Handle};
use crate::collective::{Reduced, Typed};
use crate::process::{FoundAllreduce, Guard, Key, LOOKS, Process, operation};
use crate::request::{Planned, Work, to_bytes, to_words};
use coll::{CALLS_BEFORE, Coll, FlatAllreduce, Round, Short};
use datatype::{Basic, PredefinedOp, check_op};
use error::Result;
use objects::{Comm, Flat, Op, Queue};
use schedule::algorithm::Collective;

/// A call for the slots of a comm, if it has any.
pub(crate) type Prepared = (Member, Short);

/// This rank as a member of a comm that may have slots.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub comm: Handle,
    flat: Flat,
    rank: usize,
    size: usize,
}

/// MPI_Barrier. As all here: nothing if the call is not one for slots.
#[inline(always)]
pub(crate) fn barrier(process: &mut Process, comm: Handle) -> Option<Prepared> {
    Some((process.member(comm)?, Short::new(Collective::Barrier)))
}

/// MPI_Bcast.
#[inline(always)]
pub(crate) fn bcast(process: &mut Process, comm: Handle, root: i32, data: Typed) -> Option<Prepared> {
    let member = process.member(comm)?;
    let mut short = process.rooted(member, Collective::Bcast, root)?;
    let buffer = process.typed(data).ok()?;
    (short.bytes, short.given) = (buffer.bytes() as u64, buffer.bytes() as u64);
    *(if short.root == member.rank { &mut short.input } else { &mut short.output }) = buffer;
    Some((member, short))
}

/// MPI_Gather and MPI_Scatter: the root has `all` blocks, each member its `one`.
#[inline(always)]
pub(crate) fn between_root_and_all(
    process: &mut Process,
    collective: Collective,
    comm: Handle,
    root: i32,
    one: Typed,
    all: Typed,
) -> Option<Prepared> {
    let member = process.member(comm)?;
    let short = process.rooted(member, collective, root)?;
    let is_root = short.root == member.rank;
    let all = if is_root { Some(process.per_rank(all, member.size).ok()?) } else { None };
    let one = if is_root && one.0.is_in_place() { None } else { Some(process.typed(one).ok()?) };
    let short = match collective {
        Collective::Gather => short.with_blocks(member.rank, one, 1, all, member.size),
        _ => short.with_blocks(member.rank, all, member.size, one, 1),
    };
    Some((member, short?))
}

/// MPI_Allgather.
#[inline(always)]
pub(crate) fn allgather(process: &mut Process, comm: Handle, send: Typed, recv: Typed) -> Option<Prepared> {
    let member = process.member(comm)?;
    let short = Short::new(Collective::Allgather);
    let recv = process.per_rank(recv, member.size).ok()?;
    let send = if send.0.is_in_place() { None } else { Some(process.typed(send).ok()?) };
    Some((member, short.with_blocks(member.rank, send, 1, Some(recv), member.size)?))
}

/// MPI_Alltoall.
#[inline(always)]
pub(crate) fn alltoall(process: &mut Process, comm: Handle, send: Typed, recv: Typed) -> Option<Prepared> {
    let member = process.member(comm)?;
    let short = Short::new(Collective::Alltoall);
    let recv = process.per_rank(recv, member.size).ok()?;
    let send = if send.0.is_in_place() { None } else { Some(process.per_rank(send, member.size).ok()?) };
    Some((member, short.with_blocks(member.rank, send, member.size, Some(recv), member.size)?))
}

/// MPI_Reduce, MPI_Allreduce, MPI_Scan and MPI_Exscan, and MPI_Reduce_scatter_block where `count` elements are one block.
#[inline(always)]
pub(crate) fn reduction(
    process: &mut Process,
    collective: Collective,
    comm: Handle,
    root: i32,
    count: i64,
    data: &Reduced,
) -> Option<Prepared> {
    let member = process.member(comm)?;
    let (blocks, before) = match collective {
        Collective::ReduceScatterBlock => (member.size, member.rank),
        _ => (1, 0),
    };
    let mut short = process.rooted(member, collective, root)?;
    let wanted = collective != Collective::Reduce || short.root == member.rank;
    // Longer ones are not short, whatever their elements.
    let count = usize::try_from(count).ok().filter(|count| *count <= coll::SHORT_MAX)?;
    process.operands(&mut short, blocks * count, wanted.then_some((before * count, count)), data)?;
    Some((member, short))
}

/// Makes the call if it is an MPI_Allreduce at its shortest, slots are attached, and the others are there already.
#[inline(always)]
pub(crate) fn allreduce_now(process: &mut Process, comm: Handle, count: i64, data: &Reduced) -> Option<()> {
    if telemetry::timed() {
        return None;
    }
    let (set, mut flat) = process.flat(comm, count, data)?;
    // Where they are not, `turn` goes on with it.
    let looks = if process.job().shared.may_spin() { LOOKS } else { 1 };
    process.job().coll.try_now(set, &mut flat, looks)?;
    coll::count(Collective::Allreduce);
    Some(())
}

/// Makes the call if it is an MPI_Allreduce at its shortest, and slots are attached; how it ended.
pub(crate) fn allreduce(guard: &mut Guard, comm: Handle, count: i64, data: &Reduced) -> Option<Result<()>> {
    let (set, mut flat) = guard.flat(comm, count, data)?;
    coll::count(Collective::Allreduce);
    let operation = guard.begun(comm, flat.output.bytes() as u64);
    let ended = guard.flat_round(set, &mut flat);
    operation::over(operation);
    Some(ended)
}

/// MPI_Reduce_scatter.
pub(crate) fn reduce_scatter(
    process: &mut Process,
    comm: Handle,
    counts: &Counts,
    data: &Reduced,
) -> Option<Prepared> {
    let member = process.member(comm)?;
    let counts = counts.read(member.size).ok()?;
    let sum = |counts: &[i64]| {
        let add = |sum: usize, count: &i64| sum.checked_add(usize::try_from(*count).ok()?);
        counts.iter().try_fold(0usize, add).filter(|sum| *sum <= coll::SHORT_MAX)
    };
    let mut short = Short::new(Collective::ReduceScatter);
    let wanted = (sum(&counts[..member.rank])?, counts[member.rank] as usize);
    process.operands(&mut short, sum(&counts)?, Some(wanted), data)?;
    Some((member, short))
}

/// The bytes of the longer of a call's buffers, for people.
#[inline]
pub(crate) fn told(short: &Short) -> u64 {
    short.input.bytes().max(short.output.bytes()) as u64
}

/// A comm is freed here.
pub(crate) fn leave(coll: &mut Coll, comm: &Comm) {
    if let Flat::Attached(set) = comm.flat {
        coll.leave(set);
    }
    if let Queue::Open(queue) = comm.queue {
        coll.close_queue(queue);
    }
}

impl Process {
    /// An MPI_Allreduce at its shortest, and the slots that it is for.
    #[inline(always)]
    fn flat(&mut self, comm: Handle, count: i64, data: &Reduced) -> Option<(usize, FlatAllreduce)> {
        let removals = self.removals();
        let key = Key { count, datatype: data.datatype, with: data.op, comm, removals };
        let found = match self.allreduces.get(0, &key) {
            Some(found) => found,
            None => self.find_flat(key, data)?,
        };
        let FoundAllreduce { set, operator, bytes } = found;
        let output = data.recvbuf.plain(bytes)?;
        let input = if data.sendbuf.is_in_place() {
            output
        } else {
            data.sendbuf.plain(bytes).filter(|input| !input.meets(output))?
        };
        Some((set, FlatAllreduce { operator, input, output }))
    }

    /// What becomes of an MPI_Allreduce on attached slots; nothing if it is not one at its shortest.
    #[inline(never)] // Rarely asked.
    fn find_flat(&mut self, key: Key<Handle>, data: &Reduced) -> Option<FoundAllreduce> {
        let found = self.objects.comm(key.comm).ok()?;
        let Flat::Attached(set) = found.flat else { return None };
        let members = found.size() as usize;
        let (operator, element) = self.operator(data)?;
        let bytes = usize::try_from(key.count).ok()?.checked_mul(element).filter(|bytes| *bytes > 0)?;
        if !self.job().coll.takes_flat(set, bytes, members) {
            return None;
        }
        let found = FoundAllreduce { set, operator, bytes };
        self.allreduces.set(0, key, found);
        Some(found)
    }

    #[inline]
    fn member(&self, comm: Handle) -> Option<Member> {
        let found = self.objects.comm(comm).ok()?;
        let (flat, rank, size) = (found.flat, found.rank as usize, found.size() as usize);
        let may = found.remote.is_none() && size > 1 && flat != Flat::Refused;
        may.then_some(Member { comm, flat, rank, size })
    }

    #[inline]
    fn rooted(&self, member: Member, collective: Collective, root: i32) -> Option<Short> {
        let root = usize::try_from(root).ok().filter(|root| *root < member.size)?;
        let mut short = Short::new(collective);
        short.root = root;
        Some(short)
    }

    /// MPI's operator of a reduction, MPI's elements that it combines, and the bytes of one.
    #[inline(always)]
    fn operator(&self, data: &Reduced) -> Option<((PredefinedOp, Basic), usize)> {
        let Op::Predefined(op) = self.objects.op(data.op).ok()? else { return None };
        let datatype = self.objects.committed(data.datatype).ok()?;
        let basic = datatype.basic().filter(|_| datatype.layout().is_contiguous())?;
        check_op(op, basic).ok()?;
        Some(((op, basic), datatype.size()))
    }

    /// The operands of a reduction of `total` elements with an operator of MPI's, and its result, if this rank wants one: so many elements
    /// and how many come before them.
    #[inline(always)]
    fn operands(
        &self,
        short: &mut Short,
        total: usize,
        wanted: Option<(usize, usize)>,
        data: &Reduced,
    ) -> Option<()> {
        let (operator, element) = self.operator(data)?;
        let in_place = data.sendbuf.is_in_place();
        if in_place && wanted.is_none() || wanted.is_some() && data.recvbuf.is_in_place() {
            return None;
        }
        let bytes = total * element;
        (short.operator, short.in_place) = (Some(operator), in_place);
        (short.bytes, short.given) = (bytes as u64, bytes as u64);
        short.input = (if in_place { data.recvbuf } else { data.sendbuf }).plain(bytes)?.into();
        if let Some((before, count)) = wanted {
            short.part = before * element..(before + count) * element;
            short.output = data.recvbuf.plain(count * element)?.into();
        }
        (in_place || !coll::meet(&short.input, &short.output)).then_some(())
    }
}

impl Guard {
    /// Makes a blocking call over the comm's slots if it is short enough, and they are attached; whether it was made. An error is that of the call.
    pub(crate) fn round(&mut self, (member, short): &mut Prepared) -> Result<bool> {
        let coll = &mut self.job().coll;
        if !coll.takes(short, member.size) {
            return Ok(false);
        }
        let Flat::Attached(set) = member.flat else {
            return self.count_short(*member).map(|()| false);
        };
        if !coll.has_space(set, short) {
            return Ok(false);
        }
        coll::count(short.collective);
        match coll.choose_rounds(set, short) {
            None => self.flat_rounds(set, short)?,
            Some(mut pull) => self.flat_rounds(set, &mut *pull)?,
        }
        Ok(true)
    }

    /// Makes a nonblocking call in the comm's queue if its slots are attached and takes it.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        comm: Handle,
        prepare: impl FnOnce(&mut Process) -> Option<Prepared>,
    ) -> Option<Work> {
        let Queue::Open(queue) = self.objects.comm(comm).ok()?.queue else { return None };
        let (member, short) = prepare(self)?;
        let bytes = told(&short);
        let ticket = self.job().coll.queue_short(queue, short, member.size)?;
        // It has a number like all, which another member may need who has not attached the slots yet.
        self.objects.comms.get_mut(comm).ok()?.next_collective(false);
        let operation = self.begun(comm, bytes);
        Some(Work::Coll(ticket, None, operation))
    }

    /// Makes a blocking call with a count for each member over the comm's slots, if they are attached and it is not too long; whether it was made.
    pub(crate) fn vector(&mut self, planned: &Planned) -> Result<bool> {
        let Some((comm, call)) = planned.among_all() else { return Ok(false) };
        let Some(member) = self.member(comm) else { return Ok(false) };
        if !self.job().coll.takes_vector(call, member.size) {
            return Ok(false);
        }
        let Flat::Attached(set) = member.flat else {
            return self.count_short(member).map(|()| false);
        };
        let coll = &mut self.job().coll;
        let Some(mut vector) = coll.vector(set, call) else { return Ok(false) };
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
        // All of them are waited for, whatever becomes of the first.
        works.into_iter().map(finish).fold(outcome, Result::and).map(|()| true)
    }

    /// All rounds of a call over slots.
    #[inline]
    fn flat_rounds(&mut self, set: usize, call: &mut impl Round) -> Result<()> {
        self.flat_round(set, call)?;
        while call.next_phase() {
            self.flat_round(set, call)?;
        }
        Ok(())
    }

    /// One round.
    #[inline]
    fn flat_round(&mut self, set: usize, call: &mut impl Round) -> Result<()> {
        let mut active = self.job().coll.begin(set, call);
        let advance = |process: &mut Process| process.job().coll.advance(set, &mut active, call);
        let needs = |process: &mut Process, cpu| process.job().coll.waits_for_one_on(set, cpu);
        if let Some(outcome) = self.look_for(advance, needs) {
            return outcome;
        }
        self.job().coll.wait(set, true);
        let outcome = self.wait(|process| process.job().coll.advance(set, &mut active, call));
        self.job().coll.wait(set, false);
        outcome
    }

    /// Counts a call that could have gone over slots, and attaches them when there were several.
    #[cold]
    fn count_short(&mut self, member: Member) -> Result<()> {
        let Flat::Counted(calls) = member.flat else { return Ok(()) };
        if calls + 1 < CALLS_BEFORE {
            self.objects.comms.get_mut(member.comm)?.flat = Flat::Counted(calls + 1);
            return Ok(());
        }
        let peers = self.objects.comm(member.comm)?.everybody.clone();
        let mut mine = to_bytes(&[self.job().coll.alloc_slots(&peers) as i64]);
        let mut all = vec![0; mine.len() * member.size];
        let work = Planned::gathering_bytes(member.comm, &mut mine, &mut all).blocking().start(self)?.1;
        self.finish(work).error.map_or(Ok(()), Err)?;
        let (objects, job) = self.parts();
        let attached = job.coll.attach_flat(member.rank, &peers, &to_words(&all))?;
        objects.comms.get_mut(member.comm)?.flat = attached.map_or(Flat::Refused, Flat::Attached);
        Ok(())
    }
}
