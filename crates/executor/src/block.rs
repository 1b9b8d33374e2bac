// SPDX-License-Identifier: BSD-3-Clause
//! Programs and blocks: what a rank keeps of a schedule (a collective's plan of steps) in its arena between
//! two starts.
//!
//! A block is the memory of one started schedule: its record, parameters, scratch buffers, and copies of
//! bytes to send. A collective that repeats takes an earlier start's block as it is, and resets only its
//! progress.

use crate::buffers::{self, Buffers, Partitions};
use crate::checked::CheckedSchedule;
use crate::fault::Fault;
use crate::habit::{Habit, Trial};
use crate::imported::{ARENA, InlineValue, Submission, VALUES_BYTES_MAX};
use crate::memory::{Reach, Region};
use crate::peer::Peer;
use crate::record::{self, Field, Head, IN_ARENA, InstanceRecord, MESSAGE, STAGED};
use crate::staging::{Readers, Staging};
use crate::{Binding, Config, Reduction, Start};
use datatype::Buffer;
use engine::Execution;
use error::{Class, Error, Result, fail};
use schedule::{Action, BufferId, Schedule, Side};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use transport::export::ExportedRange;
use transport::shm::{Allocator, Arena, LocalRank};

use crate::engine;

/// What a rank keeps of a schedule that it has started: the checked schedule, the table of sends in the
/// arena, and memory for further starts.
pub struct Program {
    /// The schedule. It lives as long as the program, which `Executor` finds by the schedule's address.
    pub schedule: Arc<Schedule>,
    /// The program's schedule after `Schedule::check`, with tables for the engine that drives its steps.
    pub plan: Arc<CheckedSchedule>,
    /// The number of this program (a stored schedule), unique in the job. Peers and proxies cache by it.
    pub id: u64,
    sends_at: u64,
    /// Where the arena holds the schedule encoded for a proxy: its offset, and its length in words. None
    /// until an operation has been offered to a proxy.
    words: Option<(u64, u64)>,
    /// Memory of instances (started schedules) that have ended, free for later starts. Each block is boxed,
    /// because it moves at every start and end.
    #[allow(clippy::vec_box)]
    pub idle: Vec<Box<InstanceBlock>>,
    /// The number of instances (started schedules) of this program that have not ended.
    pub running: u32,
    /// The rank's count of started operations when it last started this program. The program with the lowest
    /// value is dropped first.
    pub used: u64,
    /// What was learnt about whether the rank computes while operations of this program are under way.
    pub habit: Habit,
    /// What was learnt about whether the rank or its proxy is faster, where ranks of other hosts take part.
    pub trial: Trial,
}

/// The memory of one instance, which is one started schedule.
pub struct InstanceBlock {
    /// The operation that uses this memory, with what its driver remembers about it.
    pub run: Execution,
    /// The bytes that the rank's steps send, or the bytes that they receive, copy and reduce, whichever is
    /// more. `Config::offload_bytes_min` is compared with it.
    pub moved_bytes: u64,
    /// The bytes of the longest of the user's buffers outside the rank's arena; 0 if all lie inside.
    pub private_bytes: u64,
    /// Whether the kernel lets other processes read the user's buffers that lie outside the arena. None until
    /// `attachable` has found out.
    attachable: Option<bool>,
    /// The number of contiguous pieces of which the user's buffers with gaps consist.
    pub runs: usize,
    /// The parameters of the start for which the block is filled in. None if it must be filled in anew.
    bound: Option<Bound>,
    /// The offset in the arena, and the length in bytes, of the memory for scratch buffers and for copies of
    /// sends. None if the block has no such memory.
    data: Option<(u64, u64)>,
    /// The offsets in the arena of copies that `stage` made: copies of bytes to send, for receivers that
    /// could not read the originals.
    copies: Vec<u64>,
    /// What `address` last took into account: whether a proxy drives the operation, and which processes can
    /// read the rank's private memory. None if `address` must choose anew.
    addressed: Option<(bool, Readers)>,
    /// Whether a proxy on another computer may take part. The parameters then give addresses of the rank's
    /// process, not offsets in the arena.
    for_remote_proxy: bool,
    scratch: Vec<u64>,
    /// Whether the operation is one message between two ranks, not a collective.
    pub message: bool,
    /// The peers of the block's latest start, from which `run.peers` was made. None before the first start.
    start_peers: Option<Arc<[u32]>>,
    partitions: Option<Partitions>,
    parameters: Option<(u64, u64)>,
    /// The version number of the parameters in the arena for a proxy; 0 if they must be written anew.
    version: u64,
    incarnation: u32,
}

/// The parameters for which a block is filled in. A start with equal parameters can use it as it is.
struct Bound {
    peers: Arc<[u32]>,
    input: Binding,
    output: Binding,
    reduction: Option<Reduction>,
}

/// The parts of an `Executor` that a program or block borrows for one call.
pub struct ExecutorParts<'a> {
    /// Allocates from the rank's arena.
    pub allocator: &'a mut Allocator,
    /// How this rank reaches the memory of the job's other processes.
    pub reach: &'a Reach,
    /// The executor's bounds, such as the length from which a proxy gets an operation.
    pub config: &'a Config,
    /// The rank to which the executor belongs.
    pub rank: LocalRank,
}

impl ExecutorParts<'_> {
    fn alloc(&mut self, bytes: u64, purpose: &str) -> Result<u64> {
        let no_room = |why: Error| Error::new(why.class, format!("no memory for {purpose}: {why}"));
        self.allocator.alloc(bytes).map_err(no_room)
    }

    fn arena(&self) -> Arena {
        self.allocator.arena().clone()
    }
}

impl Program {
    /// Makes the program of a schedule: checks the schedule and writes the table of its sends into the arena.
    pub fn new(schedule: &Arc<Schedule>, id: u64, executor: &mut ExecutorParts) -> Result<Program> {
        let plan = Arc::new(CheckedSchedule::new(schedule.clone())?);
        let words: Vec<u64> = plan.sends.iter().flat_map(|send| [send.key, send.step.into()]).collect();
        let sends_at = executor.alloc(8 * words.len() as u64, "a table of sends")?;
        record::write_words(&executor.arena(), sends_at, &words);
        let schedule = schedule.clone();
        let habit = Habit::default();
        Ok(Program {
            schedule,
            plan,
            id,
            sends_at,
            words: None,
            idle: Vec::new(),
            running: 0,
            used: 0,
            habit,
            trial: Trial::default(),
        })
    }

    /// Takes free memory for an operation, if possible memory that an equal start has filled in, or allocates
    /// new memory.
    pub fn block(&mut self, start: &Start, executor: &mut ExecutorParts) -> Result<Box<InstanceBlock>> {
        if let Some(index) = self.idle.iter().rposition(|block| block.fits(start)) {
            return Ok(self.idle.swap_remove(index));
        }
        if let Some(block) = self.idle.pop() {
            return Ok(block);
        }
        let steps = self.plan.schedule.steps.len();
        let at = executor.alloc(record::record_bytes(steps), "an operation")?;
        let record = InstanceRecord::new(&executor.arena(), at, steps as u32).expect("allocated just now");
        record.clear();
        let entries = [(Head::Program, self.id), (Head::SendsAt, self.sends_at), (Head::Steps, steps as u64)];
        for (head, word) in entries {
            record.head(head).store(word, Ordering::Relaxed);
        }
        record.head(Head::SendCount).store(self.plan.sends.len() as u64, Ordering::Relaxed);
        Ok(Box::new(InstanceBlock {
            run: Execution::new(self.plan.clone(), executor.rank, record, Arc::from([]), Buffers::default()),
            start_peers: None,
            moved_bytes: 0,
            message: false,
            private_bytes: 0,
            attachable: None,
            runs: 0,
            bound: None,
            data: None,
            copies: Vec::new(),
            addressed: None,
            for_remote_proxy: false,
            scratch: Vec::new(),
            partitions: None,
            parameters: None,
            version: 0,
            incarnation: 0,
        }))
    }

    /// Frees the memory that the program has in the arena. No operation of the program may be under way.
    pub fn free(self, allocator: &mut Allocator) {
        self.idle.into_iter().for_each(|block| block.free(allocator));
        allocator.free(self.sends_at);
        if let Some((at, _)) = self.words {
            allocator.free(at);
        }
    }

    /// Writes into the arena what a proxy needs besides the record of progress: schedule and parameters.
    pub fn publish(
        &mut self,
        block: &mut InstanceBlock,
        version: &mut u64,
        executor: &mut ExecutorParts,
    ) -> Result<()> {
        let (at, count) = match self.words {
            Some(words) => words,
            None => {
                let words = self.schedule.to_words();
                let at = executor.alloc(8 * words.len() as u64, "a program")?;
                record::write_words(&executor.arena(), at, &words);
                *self.words.insert((at, words.len() as u64))
            }
        };
        block.run.record.head(Head::ProgramAt).store(at, Ordering::Relaxed);
        block.run.record.head(Head::ProgramWords).store(count, Ordering::Relaxed);
        if block.version == 0 {
            block.encode(executor)?;
            *version += 1;
            block.version = *version;
            block.run.record.head(Head::ParametersVersion).store(*version, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Program {
    /// Returns the memory that a proxy on another computer needs for an operation, once `publish` has run.
    /// Each span comes with the address by which the proxy asks for it.
    pub fn spans(&self, block: &InstanceBlock, arena: &Arena) -> Vec<(u64, Span)> {
        let record = &block.run.record;
        let tables = (self.sends_at, 16 * self.plan.sends.len() as u64);
        let words = |words: Option<(u64, u64)>| words.map(|(at, count)| (at, 8 * count));
        let inside =
            [Some((record.at(), record::record_bytes(self.plan.schedule.steps.len()))), Some(tables)];
        let inside = inside.into_iter().chain([words(self.words), words(block.parameters), block.data]);
        let spans =
            inside.flatten().filter_map(|(at, bytes)| Some((ARENA + at, arena.span(at, bytes).ok()?)));
        let mut all: Vec<(u64, Span)> = spans.filter(|(_, span)| span.bytes() > 0).collect();
        each_buffer(bindings_of(&block.bound), |buffer| {
            let hull = buffer.hull();
            let hull = (hull.address() as u64, hull);
            if hull.1.bytes() > 0 && !all.contains(&hull) {
                all.push(hull);
            }
        });
        all
    }

    /// Collects what the rank tells a proxy on another computer when it gives the proxy an operation.
    pub fn submission(
        &self,
        block: &InstanceBlock,
        extents: Vec<u64>,
        ranges: Vec<ExportedRange>,
    ) -> Submission {
        let values = block.inline_values(self.plan.writes_output);
        let stamp = block.run.record.head(Head::Stamp).load(Ordering::Relaxed);
        let steps = block.run.steps() as u32;
        Submission { stamp, program: self.id, version: block.version, steps, extents, values, ranges }
    }
}

impl InstanceBlock {
    /// Returns how many bytes of the arena the block uses for scratch buffers and copies of sends.
    pub fn data_bytes(&self) -> u64 {
        self.data.map_or(0, |(_, bytes)| bytes)
    }

    /// Returns copies of the user's buffers that no step writes, up to `VALUES_BYTES_MAX` bytes in all.
    fn inline_values(&self, writes_output: bool) -> Vec<InlineValue> {
        let [input, output] = bindings_of(&self.bound);
        let mut written = Vec::new();
        let (mut all, mut bytes) = (Vec::new(), 0);
        each_buffer([output, &Binding::None], |buffer| written.push(buffer.hull()));
        let is_written = |span: Span| {
            writes_output
                && written.iter().any(|other| {
                    span.address() < other.address() + other.bytes()
                        && other.address() < span.address() + span.bytes()
                })
        };
        each_buffer([input, output], |buffer| {
            let span = buffer.contiguous().filter(|span| bytes + span.bytes() <= VALUES_BYTES_MAX);
            if let Some(span) = span.filter(|span| span.bytes() > 0 && !is_written(*span)) {
                bytes += span.bytes();
                all.push(InlineValue { address: span.address() as u64, bytes: span.to_vec() });
            }
        });
        all
    }

    /// Frees the block's memory in the arena: record, parameters, scratch buffers and copies of sends.
    pub fn free(self, allocator: &mut Allocator) {
        allocator.free(self.run.record.at());
        for (at, _) in self.data.into_iter().chain(self.parameters) {
            allocator.free(at);
        }
    }

    /// Allocates a copy in the arena for the bytes of the send `step`, which its receiver cannot read.
    pub fn stage(&mut self, step: u32, executor: &mut ExecutorParts) {
        let bytes = self.run.buffers.spots[step as usize].bytes;
        let rank = executor.rank.peer();
        let at = executor.allocator.alloc(bytes).map_err(|error| match error.errno {
            Some(_) => Fault::of_arena(rank, rank, bytes, &error),
            None => Fault::Full { peer: rank, bytes },
        });
        self.copies.extend(at.ok());
        self.run.stage(step, at, executor.reach);
    }

    /// Frees the copies that `stage` has allocated. The operation must have ended.
    pub fn free_copies(&mut self, allocator: &mut Allocator) {
        if !self.copies.is_empty() {
            self.addressed = None;
            for at in self.copies.drain(..) {
                allocator.free(at);
            }
        }
    }

    /// Frees the memory for scratch buffers and copies of sends. The record and the parameters stay.
    pub fn free_data(&mut self, allocator: &mut Allocator) {
        if let Some((at, _)) = self.data.take() {
            allocator.free(at);
        }
        self.bound = None;
    }

    fn fits(&self, start: &Start) -> bool {
        self.bound.as_ref().is_some_and(|bound| {
            same_peers(&bound.peers, &start.peers)
                && bound.reduction == start.reduction
                && self.message == start.message
                && same_binding(&bound.input, &start.input)
                && same_binding(&bound.output, &start.output)
        })
    }

    /// Fills in this instance's memory for a start: the lengths of blocks, where operands lie, how many bytes
    /// move. `address` later chooses the addresses of sends.
    pub fn bind(&mut self, start: &Start, executor: &ExecutorParts) -> Result<()> {
        let for_remote_proxy = start.fetched_bytes_min == 0 && executor.reach.segment.has_dpu();
        if self.fits(start) && self.for_remote_proxy == for_remote_proxy {
            return Ok(());
        }
        self.for_remote_proxy = for_remote_proxy;
        self.bound = None;
        (self.version, self.addressed, self.message) = (0, None, start.message);
        let plan = self.run.plan.clone();
        let partitions = Partitions::new(&plan, &start.input, &start.output)?;
        let element_bytes = start.reduction.map_or(0, |reduction| reduction.element_bytes());
        partitions.spots(&plan, element_bytes, &mut self.run.buffers.spots)?;
        let (mut sent, mut taken) = (0u64, 0u64);
        for (step, spot) in plan.schedule.steps.iter().zip(&self.run.buffers.spots) {
            match step.action {
                Action::Send { .. } => sent += spot.bytes,
                _ => taken += spot.bytes,
            }
        }
        self.moved_bytes = sent.max(taken);
        (self.private_bytes, self.attachable, self.runs) = (0, None, 0);
        let arena = executor.allocator.arena();
        each_buffer([&start.input, &start.output], |buffer| {
            let inside = match buffer.contiguous() {
                Some(span) => span.bytes() == 0 || inside_span(arena, span),
                None => buffers::base_inside(arena, buffer).is_some(),
            };
            if !inside {
                self.private_bytes = self.private_bytes.max(buffer.bytes() as u64);
            }
            self.runs += buffer.parts().map_or(0, |(layout, _)| layout.runs().len());
        });
        self.partitions = Some(partitions);
        self.run.buffers.reduction = start.reduction;
        if !self.start_peers.as_ref().is_some_and(|start_peers| same_peers(start_peers, &start.peers)) {
            let segment = &executor.reach.segment;
            self.run.peers = start.peers.iter().map(|&peer| Peer::of(peer, segment)).collect();
            self.start_peers = Some(start.peers.clone());
        }
        if for_remote_proxy {
            self.run.divide(Side::Host);
        }
        self.bound = Some(Bound {
            peers: start.peers.clone(),
            input: start.input.clone(),
            output: start.output.clone(),
            reduction: start.reduction,
        });
        Ok(())
    }

    /// Whether the kernel lets others read the user's buffers outside the arena. Asks the kernel only once.
    pub fn attachable(&mut self) -> bool {
        *self.attachable.get_or_insert_with(|| {
            let mut all = true;
            each_buffer(bindings_of(&self.bound), |buffer| all &= buffer.is_attachable());
            all
        })
    }

    /// Chooses where scratch buffers and the bytes of sends lie, and which sends are copied to the arena. A
    /// proxy (`offloaded`) copies no short private sends, since it would have to read them there first.
    pub fn address(&mut self, offloaded: bool, readers: Readers, executor: &mut ExecutorParts) -> Result<()> {
        if self.addressed == Some((offloaded, readers)) {
            return Ok(());
        }
        let result = self.choose_addresses(offloaded, readers, executor);
        match result.is_ok() {
            true => self.addressed = Some((offloaded, readers)),
            false => self.bound = None,
        }
        result
    }

    fn choose_addresses(
        &mut self,
        offloaded: bool,
        readers: Readers,
        executor: &mut ExecutorParts,
    ) -> Result<()> {
        let copy_bytes_max = if offloaded { 0 } else { executor.config.inline_bytes_max };
        let attachable = !readers.ranks_read || self.private_bytes <= copy_bytes_max || self.attachable();
        let far_copy_bytes_max = if readers.buffered { executor.config.far_copy_bytes_max } else { 0 };
        let rule = Staging { copy_bytes_max, readers, attachable, rank: executor.rank, far_copy_bytes_max };
        let plan = self.run.plan.clone();
        let (Some(bound), Some(partitions)) = (&self.bound, &self.partitions) else {
            fail!(Class::Intern, "an instance without parameters was started");
        };
        let bindings = [&bound.input, &bound.output];
        // The user's buffers come first, since staging depends on them. Scratch gets its offsets below.
        let buffers = &mut self.run.buffers;
        buffers::bind_local(buffers, bindings);
        let mut need = 0;
        self.scratch.clear();
        for index in 0..plan.schedule.scratch.len() {
            self.scratch.push(need);
            need += partitions.scratch_bytes(&plan, index).next_multiple_of(64);
        }
        let (peers, arena) = (&self.run.peers, executor.allocator.arena());
        for (step, spot) in plan.schedule.steps.iter().zip(&buffers.spots) {
            if let Action::Send { to, from, .. } = step.action
                && rule.stages(buffers, from, spot, peers[to as usize], executor.reach, arena)
            {
                need += spot.bytes.next_multiple_of(64);
            }
        }
        let base = self.reserve(need, executor)?;
        self.scratch.iter_mut().for_each(|at| *at += base);
        let (buffers, partitions) = (&mut self.run.buffers, partitions_of(&self.partitions));
        buffers::bind_scratch(buffers, &plan, partitions, &self.scratch, executor.reach, executor.rank)
            .map_err(|fault| fault.error(executor.rank.peer()))?;
        self.write_addresses(base, &rule, executor);
        self.version = 0;
        Ok(())
    }

    /// Returns the offset in the arena of `need` bytes for scratch buffers and copies of sends. It allocates
    /// only if the block's old memory is too short.
    fn reserve(&mut self, need: u64, executor: &mut ExecutorParts) -> Result<u64> {
        match self.data {
            Some((at, bytes)) if bytes >= need => return Ok(at),
            Some((at, _)) => {
                executor.allocator.free(at);
                self.data = None;
            }
            None => {}
        }
        if need == 0 {
            return Ok(0);
        }
        let at = executor.alloc(need, "scratch and staging of an operation")?;
        self.data = Some((at, need));
        Ok(at)
    }

    fn write_addresses(&mut self, base: u64, rule: &Staging, executor: &ExecutorParts) {
        let run = &self.run;
        let partitions = partitions_of(&self.partitions);
        let scratch =
            (0..self.scratch.len()).map(|i| partitions.scratch_bytes(&run.plan, i).next_multiple_of(64));
        let mut staging = base + scratch.sum::<u64>();
        let arena = executor.allocator.arena();
        for (index, step) in run.plan.schedule.steps.iter().enumerate() {
            let Action::Send { to, from, .. } = step.action else { continue };
            let spot = run.buffers.spots[index];
            let address = if spot.bytes == 0 {
                IN_ARENA
            } else if rule.stages(&run.buffers, from, &spot, run.peers[to as usize], executor.reach, arena) {
                staging += spot.bytes.next_multiple_of(64);
                IN_ARENA | STAGED | (staging - spot.bytes.next_multiple_of(64))
            } else {
                match run.buffers.locate(from.buffer, spot.at[0]) {
                    Some((Region::Local(span), offset, _)) => {
                        let address = span.address() + offset as usize;
                        let is_here = !self.for_remote_proxy
                            || matches!(from.buffer, BufferId::Scratch(_))
                            || run.peers[to as usize].local().is_some();
                        let inside = arena.offset_of(address, spot.bytes).filter(|_| is_here);
                        inside.map_or(address as u64, |offset| offset | IN_ARENA)
                    }
                    _ => IN_ARENA,
                }
            };
            run.record.step(index as u32, Field::Address).store(address, Ordering::Relaxed);
            let mark = if self.message { MESSAGE } else { 0 };
            run.record.step(index as u32, Field::Total).store(spot.bytes | mark, Ordering::Relaxed);
        }
    }

    fn encode(&mut self, executor: &mut ExecutorParts) -> Result<()> {
        let partitions = partitions_of(&self.partitions);
        let arena = executor.reach.arena(executor.rank).map_err(|fault| fault.error(executor.rank.peer()))?;
        let (run, for_remote_proxy) = (&self.run, self.for_remote_proxy);
        let words =
            buffers::parameters(&run.buffers, partitions, &self.scratch, &run.peers, for_remote_proxy, arena)
                .to_words();
        let count = words.len() as u64;
        let at = match self.parameters {
            Some((at, words)) if words >= count => at,
            old => {
                if let Some((at, _)) = old {
                    executor.allocator.free(at);
                    self.parameters = None;
                }
                let at = executor.alloc(8 * count, "the parameters of an operation")?;
                self.parameters = Some((at, count));
                at
            }
        };
        record::write_words(executor.allocator.arena(), at, &words);
        self.run.record.head(Head::ParametersAt).store(at, Ordering::Relaxed);
        self.run.record.head(Head::ParametersWords).store(count, Ordering::Relaxed);
        Ok(())
    }

    /// Enters the record into the rank's directory, where peers find it by `context` and `sequence`.
    pub fn link(&mut self, context: u64, sequence: u32, driver: u64, executor: &ExecutorParts) {
        self.incarnation = self.incarnation.wrapping_add(1).max(1);
        let record = &self.run.record;
        record.reset();
        record.head(Head::Driver).store(driver, Ordering::Relaxed);
        let directory = &executor.reach.segment.rank(executor.rank).directory[..];
        record.link(directory, record::stamp(self.incarnation, sequence), context);
        (self.run.context, self.run.sequence) = (context, sequence);
    }
}

fn partitions_of(partitions: &Option<Partitions>) -> &Partitions {
    partitions.as_ref().expect("bound before")
}

fn bindings_of(bound: &Option<Bound>) -> [&Binding; 2] {
    let bound = bound.as_ref().expect("bound before");
    [&bound.input, &bound.output]
}

fn inside_span(arena: &Arena, span: sys::Span) -> bool {
    arena.offset_of(span.address(), span.bytes() as u64).is_some()
}

fn each_buffer(bindings: [&Binding; 2], mut each: impl FnMut(&Buffer)) {
    for binding in bindings {
        match binding {
            Binding::None => {}
            Binding::Whole { buffer, .. } => each(buffer),
            Binding::Blocks(buffers) => buffers.iter().for_each(&mut each),
        }
    }
}

fn same_peers(a: &Arc<[u32]>, b: &Arc<[u32]>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

fn same_binding(a: &Binding, b: &Binding) -> bool {
    match (a, b) {
        (Binding::None, Binding::None) => true,
        (Binding::Whole { buffer: a, cut: a_cut }, Binding::Whole { buffer: b, cut: b_cut }) => {
            same_buffer(a, b) && a_cut == b_cut
        }
        (Binding::Blocks(a), Binding::Blocks(b)) => {
            Arc::ptr_eq(a, b)
                || (a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same_buffer(a, b)))
        }
        _ => false,
    }
}

fn same_buffer(a: &Buffer, b: &Buffer) -> bool {
    let same_gaps = match (a.parts(), b.parts()) {
        (None, None) => true,
        (Some((a, a_skip)), Some((b, b_skip))) => Arc::ptr_eq(a, b) && a_skip == b_skip,
        _ => false,
    };
    a.base() == b.base() && a.bytes() == b.bytes() && same_gaps
}
