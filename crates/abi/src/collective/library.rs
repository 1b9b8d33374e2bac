// SPDX-License-Identifier: BSD-3-Clause
//! Collectives by a collective library such as NCCL (crate `ccl`): makes the library's steps from a call.
//!
//! Invariants: whether a call goes to the library (`coll/carrier/library.rs`) follows from what all members
//! know, never from one rank's buffers. A buffer with gaps, or outside the memory that the library accepts
//! (host or device), gets a stand-in, a contiguous copy in such memory. Read next: `request/library.rs`,
//! which makes the library's communicators.

use crate::args::Handle;
use crate::process::{Guard, Process};
use crate::request::{Planned, Statement, Work};
use crate::staging::{self, Staged};
use ccl::{Communicator, ExchangePart, Library, LibraryStep, MemoryKind};
use coll::carrier::{CallFacts, CallMode};
use coll::{Call, CollBuffer};
use datatype::{Basic, Buffer, PredefinedOp};
use error::Result;
use executor::Reduction;
use schedule::algorithm::Collective;
use telemetry::Counter;

impl Guard {
    /// Returns what `coll` must know about the collective library to choose what carries a call out. Returns
    /// None if no library is loaded.
    pub(super) fn library(
        &mut self,
        planned: &Planned,
        call_facts: &CallFacts,
    ) -> Result<Option<coll::carrier::LibraryFacts>> {
        let Some(library) = ccl::get() else { return Ok(None) };
        let context = self.objects.comm(planned.comm)?.context;
        let (job, name) = (self.job(), call_facts.collective.name());
        Ok(Some(coll::carrier::LibraryFacts {
            measured: job.membership.tuning.library_bytes_min(&settings::get().ccl, name, call_facts.members),
            has_operator: operation(&planned.call).is_some(),
            // Blocking calls on different comms have one order on all ranks, and a persistent call gets a
            // communicator of its own. Nonblocking calls need not have one order.
            may_join: call_facts.mode != CallMode::Nonblocking
                || job.communicators.has(context)
                || library.joins_in_any_order(),
        }))
    }

    /// Starts a collective by the collective library. The first such call on a comm makes a communicator in
    /// the library. Fails if a buffer is refused, or if no communicator can be made.
    pub(super) fn by_library(&mut self, planned: &Planned) -> Result<Work> {
        let library = ccl::get().expect("the choice has found it");
        let context = self.objects.comm(planned.comm)?.context;
        if !self.job().communicators.has(context) {
            self.make(library, planned.comm, context)?;
        }
        let steps = self.steps(planned, library)?;
        Ok(self.start_by_library(context, steps))
    }

    /// Returns the steps of a persistent collective that goes by the collective library. Makes a communicator
    /// in the library for this request alone, since members may start requests in any order, and waits until
    /// all members have made it (MPI 5.0, section 6.13). Fails if it cannot be made, or a buffer is refused.
    pub(crate) fn persist_by_library(&mut self, planned: &Planned, context: u64) -> Result<Vec<LibraryStep>> {
        let library = ccl::get().expect("the choice has found it");
        self.make(library, planned.comm, context)?;
        let joined = self.job().communicators.start(context, Vec::new());
        let error = self.finish(Work::Library(Box::new(joined))).error;
        let steps = error.map_or(Ok(()), Err).and_then(|()| self.steps(planned, library));
        steps.inspect_err(|_| self.job().communicators.leave(context))
    }

    /// Returns the collective library's steps for a call. Adds the stand-ins for the call's buffers (memory
    /// that the library accepts) to the list of stand-ins that the running MPI call keeps (`staging.rs`).
    fn steps(&mut self, planned: &Planned, library: &Library) -> Result<Vec<LibraryStep>> {
        let comm = self.objects.comm(planned.comm)?;
        let mut buffers =
            LibraryBuffers { on_device: library.memory() == MemoryKind::Device, staged: Vec::new() };
        let (call, rank, size) = (&planned.call, comm.rank, comm.size());
        let steps = Stepped { call, rank, size, buffers: &mut buffers }.steps()?;
        // The stand-ins of the arguments were never filled, and nothing reads them.
        drop(staging::take());
        staging::put_back(buffers.staged);
        Ok(steps)
    }
}

impl Process {
    /// Starts steps of the collective library on its communicator for the context id `context`.
    pub(crate) fn start_by_library(&mut self, context: u64, steps: Vec<LibraryStep>) -> Work {
        telemetry::count(Counter::CclCalls, 1);
        Work::Library(Box::new(self.job().communicators.start(context, steps)))
    }

    /// Starts to make the collective library's communicator of the members of `comm`, under the context id
    /// `context`.
    fn make(&mut self, library: &'static Library, comm: Handle, context: u64) -> Result<()> {
        let (rank, size) = (self.objects.comm(comm)?.rank, self.objects.comm(comm)?.size());
        let membership = self.job().membership;
        let (segment, own) = (membership.segment, membership.rank);
        let communicator = Communicator::new(library, rank, size, move || segment.rank(own).bell.ring())?;
        let mut statement = Statement::new(library, rank, size);
        let gather = Planned::gathering_bytes(comm, &statement.mine, &statement.all);
        let Work::Coll(ticket, ..) = gather.start(self)? else {
            unreachable!("only OUTBOARD_CHECK makes another work")
        };
        statement.ticket = Some(ticket);
        self.job().communicators.enter(context, communicator, statement);
        Ok(())
    }
}

/// Returns the collective library's type and operator for a reduction, and an element's bytes. Returns
/// None if the library lacks the type or the operator.
fn operation(call: &Call) -> Option<(ccl::ElementKind, ccl::Op, usize)> {
    use ccl::{ElementKind, Op};
    let Some(Reduction::Predefined { op, basic, .. }) = call.reduction else { return None };
    let op = match op {
        PredefinedOp::Sum => Op::Sum,
        PredefinedOp::Prod => Op::Prod,
        PredefinedOp::Max => Op::Max,
        PredefinedOp::Min => Op::Min,
        _ => return None,
    };
    let kind = match basic {
        Basic::I8 => ElementKind::I8,
        Basic::U8 => ElementKind::U8,
        Basic::I32 => ElementKind::I32,
        Basic::U32 => ElementKind::U32,
        Basic::I64 => ElementKind::I64,
        Basic::U64 => ElementKind::U64,
        Basic::F16 => ElementKind::F16,
        Basic::F32 => ElementKind::F32,
        Basic::F64 => ElementKind::F64,
        _ => return None,
    };
    Some((kind, op, basic.size()))
}

/// The addresses that the collective library gets for the buffers of a call. `staged` keeps the stand-ins,
/// copies in memory that the library accepts; `on_device` says whether that is device memory.
struct LibraryBuffers {
    on_device: bool,
    staged: Vec<Staged>,
}

impl LibraryBuffers {
    /// Returns an address at which the library may read the bytes of `buffer`.
    fn read(&mut self, buffer: &Buffer) -> Result<usize> {
        self.find(buffer, true, false)
    }

    /// Returns an address at which the library may write the bytes of `buffer`.
    fn write(&mut self, buffer: &Buffer) -> Result<usize> {
        self.find(buffer, false, true)
    }

    /// Returns an address at which the library may read and write the bytes of `buffer`.
    fn update(&mut self, buffer: &Buffer) -> Result<usize> {
        self.find(buffer, true, true)
    }

    fn find(&mut self, buffer: &Buffer, is_read: bool, is_written: bool) -> Result<usize> {
        let user = staging::user_of(buffer);
        if user.bytes() == 0 {
            return Ok(0);
        }
        if let Some(span) = user.contiguous()
            && device::holds(span.address(), span.bytes())? == self.on_device
        {
            return Ok(span.address());
        }
        self.stand_in_for(buffer, is_read, is_written)
    }

    /// Makes a stand-in for `buffer`, a block of memory that the library accepts, even if the library also
    /// accepts the program's memory. Returns the stand-in's address.
    fn stand_in_for(&mut self, buffer: &Buffer, is_read: bool, is_written: bool) -> Result<usize> {
        let user = staging::user_of(buffer);
        if user.bytes() == 0 {
            return Ok(0);
        }
        let mut staged = Staged::new(user, self.on_device)?;
        staged.set_use(is_read, is_written)?;
        let address = staged.address();
        self.staged.push(staged);
        Ok(address)
    }
}

/// A collective call of rank `rank` among `size` ranks, from which `steps` makes the collective library's
/// steps.
struct Stepped<'a> {
    call: &'a Call,
    rank: u32,
    size: u32,
    buffers: &'a mut LibraryBuffers,
}

impl Stepped<'_> {
    fn steps(mut self) -> Result<Vec<LibraryStep>> {
        use Collective::*;
        match self.call.collective {
            Reduce | Allreduce => self.reduce(),
            ReduceScatter | ReduceScatterBlock => self.reduce_scatter(),
            Bcast => self.bcast(),
            Allgather => self.allgather(),
            Allgatherv => self.allgatherv(),
            Gather | Gatherv => self.gather(),
            Scatter | Scatterv => self.scatter(),
            Alltoall | Alltoallv | Alltoallw => self.alltoall(),
            Barrier | Scan | Exscan => unreachable!("the choice refuses them"),
        }
    }

    fn is_root(&self) -> bool {
        self.call.root == self.rank
    }

    /// Returns this rank if the call is in place, because its block is in its final position already.
    /// Otherwise returns None. The result goes to `blocks` as `without`.
    fn own_rank_if_in_place(&self) -> Option<u32> {
        self.call.in_place.then_some(self.rank)
    }

    fn bcast(&mut self) -> Result<Vec<LibraryStep>> {
        let Some(data) = self.call.output.buffers().first() else { return Ok(Vec::new()) };
        let at = if self.is_root() { self.buffers.read(data)? } else { self.buffers.write(data)? };
        Ok(vec![LibraryStep::Broadcast { at, bytes: data.bytes(), root: self.call.root }])
    }

    fn allgather(&mut self) -> Result<Vec<LibraryStep>> {
        let Some(output) = self.call.output.buffers().first() else { return Ok(Vec::new()) };
        let bytes = output.bytes() / self.size as usize;
        let (from, to) = match self.call.input.buffers().first() {
            Some(input) if !self.call.in_place => (self.buffers.read(input)?, self.buffers.write(output)?),
            _ => {
                let to = self.buffers.update(output)?;
                (to + bytes * self.rank as usize, to)
            }
        };
        Ok(vec![LibraryStep::AllGather { from, to, bytes }])
    }

    fn allgatherv(&mut self) -> Result<Vec<LibraryStep>> {
        let Stepped { call, rank, size, .. } = *self;
        let recvs = blocks(&call.output, size, self.own_rank_if_in_place(), |data| self.buffers.write(data))?;
        let own = if call.in_place { &call.output.each()[rank as usize] } else { &call.input.buffers()[0] };
        let (at, bytes) = (self.buffers.read(own)?, own.bytes());
        let sends = (0..size).filter(|peer| !call.in_place || *peer != rank);
        let sends = sends.filter(|_| bytes > 0).map(|peer| ExchangePart { peer, at, bytes }).collect();
        Ok(vec![LibraryStep::Exchange { sends, recvs }])
    }

    fn gather(&mut self) -> Result<Vec<LibraryStep>> {
        let Stepped { call, rank, size, .. } = *self;
        if !self.is_root() {
            let sends = single(&call.input, call.root, |data| self.buffers.read(data))?;
            return Ok(vec![LibraryStep::Exchange { sends, recvs: Vec::new() }]);
        }
        // In place, the root's own block is in its position already, also if one stand-in has all blocks.
        let recvs = blocks(&call.output, size, self.own_rank_if_in_place(), |data| {
            self.buffers.find(data, call.in_place, true)
        })?;
        let sends = match call.in_place {
            true => Vec::new(),
            false => single(&call.input, rank, |data| self.buffers.read(data))?,
        };
        Ok(vec![LibraryStep::Exchange { sends, recvs }])
    }

    fn scatter(&mut self) -> Result<Vec<LibraryStep>> {
        let Stepped { call, rank, size, .. } = *self;
        if !self.is_root() {
            let recvs = single(&call.output, call.root, |data| self.buffers.write(data))?;
            return Ok(vec![LibraryStep::Exchange { sends: Vec::new(), recvs }]);
        }
        let sends = blocks(&call.input, size, self.own_rank_if_in_place(), |data| self.buffers.read(data))?;
        let recvs = match call.in_place {
            true => Vec::new(),
            false => single(&call.output, rank, |data| self.buffers.write(data))?,
        };
        Ok(vec![LibraryStep::Exchange { sends, recvs }])
    }

    fn alltoall(&mut self) -> Result<Vec<LibraryStep>> {
        let Stepped { call, size, .. } = *self;
        let sends = match call.in_place {
            // One buffer is both sent and received.
            true => blocks(&call.output, size, None, |data| self.buffers.stand_in_for(data, true, false))?,
            false => blocks(&call.input, size, None, |data| self.buffers.read(data))?,
        };
        let recvs = blocks(&call.output, size, None, |data| self.buffers.write(data))?;
        Ok(vec![LibraryStep::Exchange { sends, recvs }])
    }

    fn reduce(&mut self) -> Result<Vec<LibraryStep>> {
        let Stepped { call, .. } = *self;
        let (kind, op, element_bytes) = operation(call).expect("the choice has asked for it");
        let elements = |buffer: &Buffer| buffer.bytes() / element_bytes;
        let (from, to, count) = match (call.input.buffers().first(), call.output.buffers().first()) {
            (Some(input), Some(output)) if !call.in_place => {
                (self.buffers.read(input)?, self.buffers.write(output)?, elements(input))
            }
            (Some(input), None) => (self.buffers.read(input)?, 0, elements(input)),
            (_, Some(output)) => {
                let to = self.buffers.update(output)?;
                (to, to, elements(output))
            }
            (None, None) => return Ok(Vec::new()),
        };
        if call.collective == Collective::Allreduce {
            return Ok(vec![LibraryStep::AllReduce { from, to, count, kind, op }]);
        }
        // A rank that gets no result may pass the address that it sends from.
        let to = if self.is_root() { to } else { from };
        Ok(vec![LibraryStep::Reduce { from, to, count, kind, op, root: call.root }])
    }

    fn reduce_scatter(&mut self) -> Result<Vec<LibraryStep>> {
        let Stepped { call, rank, .. } = *self;
        let (kind, op, element_bytes) = operation(call).expect("the choice has asked for it");
        let (input, output) = (call.input.buffers().first(), call.output.buffers().first());
        let Some(input) = input else { return Ok(Vec::new()) };
        // In place, the result lies at the beginning of the vector.
        let from = if call.in_place {
            self.buffers.stand_in_for(input, true, false)?
        } else {
            self.buffers.read(input)?
        };
        let to = output.map_or(Ok(0), |output| self.buffers.write(output))?;
        let CollBuffer::CutAt { at, .. } = &call.input else {
            let count = output.map_or(0, |output| output.bytes() / element_bytes);
            return Ok(vec![LibraryStep::ReduceScatter { from, to, count, kind, op }]);
        };
        let cuts = (0..).zip(at.windows(2)).filter(|(_, cut)| cut[1] > cut[0]);
        let step = |(root, cut): (u32, &[u64])| {
            let (from, count) = (from + cut[0] as usize, (cut[1] - cut[0]) as usize / element_bytes);
            LibraryStep::Reduce { from, to: if root == rank { to } else { from }, count, kind, op, root }
        };
        Ok(cuts.map(step).collect())
    }
}

/// Makes one message, to or from `peer`, of `part`, a buffer of the call that has one block. Makes none if
/// the block is empty.
fn single(
    part: &CollBuffer,
    peer: u32,
    mut at: impl FnMut(&Buffer) -> Result<usize>,
) -> Result<Vec<ExchangePart>> {
    match part.buffers().first() {
        Some(data) if data.bytes() > 0 => Ok(vec![ExchangePart { peer, at: at(data)?, bytes: data.bytes() }]),
        _ => Ok(Vec::new()),
    }
}

/// Makes a message of each block of `part`, a buffer of the call that has a block for each rank. The message
/// goes to or comes from the block's rank. Leaves out empty blocks and the block of the rank `without`.
fn blocks(
    part: &CollBuffer,
    size: u32,
    without: Option<u32>,
    mut at: impl FnMut(&Buffer) -> Result<usize>,
) -> Result<Vec<ExchangePart>> {
    let mut messages = Vec::new();
    if let CollBuffer::PerRank(whole) = part {
        let (bytes, at) = (whole.bytes() / size as usize, at(whole)?);
        messages.extend((0..size).map(|peer| ExchangePart { peer, at: at + bytes * peer as usize, bytes }));
    }
    for (peer, data) in (0..).zip(part.each()).filter(|(peer, _)| Some(*peer) != without) {
        messages.push(ExchangePart { peer, at: at(data)?, bytes: data.bytes() });
    }
    messages.retain(|message| message.bytes > 0 && Some(message.peer) != without);
    Ok(messages)
}
