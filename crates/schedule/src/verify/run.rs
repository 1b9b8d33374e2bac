// SPDX-License-Identifier: BSD-3-Clause
//! Carries a collective out on symbols, which stand for values, in a random legal order of steps.
use super::operation::{CollectiveCase, accesses, messages};
use crate::random::{Random, mix};
use crate::{Action, Blocks, BufferId, Partition, Schedule};

/// Stands for the value of an element: a hash of the contributions that the value combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Symbol {
    contributions: u64,
    /// The factor by which contributions on the left are multiplied when this symbol is combined on the
    /// right, so that order matters.
    weight: u64,
    /// A hash of the expression that computes the value. Equal expressions give equal bits.
    bits: u64,
}

/// The content of memory that no step has written, or that an executor left behind when it died.
const GARBAGE: Symbol = Symbol { contributions: 0, weight: 0, bits: 0 };

fn leaf((rank, element): (u32, u32)) -> Symbol {
    let name = mix(u64::from(rank) << 32 | u64::from(element) | 1 << 63);
    Symbol { contributions: name, weight: mix(name) | 1, bits: mix(name ^ 1) }
}

fn combine(left: Symbol, right: Symbol, commutative: bool) -> Symbol {
    let bits = mix(left.bits.rotate_left(17) ^ mix(right.bits));
    let contributions = if commutative {
        left.contributions.wrapping_add(right.contributions)
    } else {
        left.contributions.wrapping_mul(right.weight).wrapping_add(right.contributions)
    };
    Symbol { contributions, weight: left.weight.wrapping_mul(right.weight), bits }
}

/// A step of a rank while it is carried out: where it reads and writes, and how far it is.
struct StepTask {
    rank: u32,
    step: u32,
    elements: u32,
    /// For each operand that the step reads, the element of the rank's memory at which it begins.
    reads: [u32; 2],
    /// The element of the rank's memory at which the step's result begins.
    write: u32,
    /// For a send or receive, the index of the task at the other end of its message.
    partner: usize,
    done: u32,
    /// For a send, how many elements its receiver may take, and whether these are all. None before the send
    /// has started.
    published: Option<(u32, bool)>,
    complete: bool,
    queued: bool,
}

struct Replay<'a> {
    operation: &'a CollectiveCase,
    schedules: &'a [Schedule],
    /// For each rank, the index of its first task.
    first: Vec<usize>,
    tasks: Vec<StepTask>,
    /// For each task, the indices of the tasks that wait for it, which are steps of the same rank.
    waiting: Vec<Vec<u32>>,
    memory: Vec<Vec<Symbol>>,
    /// The tasks that may be able to go on. The next one is drawn at random.
    queue: Vec<usize>,
    random: Random,
}

pub fn run(operation: &CollectiveCase, schedules: &[Schedule], seed: u64) -> Result<(), String> {
    let mut run = Replay::new(operation, schedules, seed)?;
    let initial = run.memory.clone();
    while !run.queue.is_empty() {
        let pick = run.random.below(run.queue.len() as u64) as usize;
        let task = run.queue.swap_remove(pick);
        run.tasks[task].queued = false;
        run.advance(task).map_err(|what| run.describe(task, &what))?;
    }
    if let Some(stuck) = run.tasks.iter().position(|task| !task.complete) {
        return Err(run.describe(stuck, "never completes"));
    }
    (0..operation.size).try_for_each(|rank| run.compare(rank, &initial[rank as usize]))
}

impl<'a> Replay<'a> {
    fn new(
        operation: &'a CollectiveCase,
        schedules: &'a [Schedule],
        seed: u64,
    ) -> Result<Replay<'a>, String> {
        let mut run = Replay {
            operation,
            schedules,
            first: Vec::new(),
            tasks: Vec::new(),
            waiting: Vec::new(),
            memory: Vec::new(),
            queue: Vec::new(),
            random: Random(seed),
        };
        for (rank, schedule) in (0..).zip(schedules) {
            let first = run.tasks.len();
            run.first.push(first);
            let buffers = Addresses::new(operation, schedule);
            run.memory.push(buffers.initial(operation, rank));
            for (step, plan) in (0..).zip(&schedule.steps) {
                let task = buffers
                    .task(rank, step, &plan.action)
                    .map_err(|what| format!("{operation:?}, {what}"))?;
                run.tasks.push(task);
                run.waiting.push(Vec::new());
                for after in schedule.after_of(plan) {
                    run.waiting[first + after.step as usize].push((first + step as usize) as u32);
                }
            }
        }
        for (&(from, to, edge), &ends) in &messages(schedules) {
            let (Some(send), Some(recv)) = ends else { return Err(format!("half a message: edge {edge}")) };
            let (send, recv) =
                (run.first[from as usize] + send as usize, run.first[to as usize] + recv as usize);
            (run.tasks[send].partner, run.tasks[recv].partner) = (recv, send);
            if run.tasks[send].elements != run.tasks[recv].elements {
                return Err(
                    run.describe(send, &format!("differs in length from {}", run.describe(recv, "receive")))
                );
            }
        }
        (0..run.tasks.len()).for_each(|task| run.enqueue(task));
        Ok(run)
    }

    fn enqueue(&mut self, task: usize) {
        if !self.tasks[task].complete && !std::mem::replace(&mut self.tasks[task].queued, true) {
            self.queue.push(task);
        }
    }

    fn wake(&mut self, task: usize) {
        for index in 0..self.waiting[task].len() {
            self.enqueue(self.waiting[task][index] as usize);
        }
    }

    fn action(&self, task: usize) -> &'a Action {
        let StepTask { rank, step, .. } = self.tasks[task];
        let schedules = self.schedules;
        &schedules[rank as usize].steps[step as usize].action
    }

    /// Returns on how many elements a task may have worked so far, and whether these are all its elements.
    /// None if it may not start.
    fn allowed(&self, task: usize) -> Option<(u32, bool)> {
        let StepTask { rank, step, elements, .. } = self.tasks[task];
        let schedule = &self.schedules[rank as usize];
        let (mut limit, mut all) = (elements, true);
        for after in schedule.after_of(&schedule.steps[step as usize]) {
            let waited = &self.tasks[self.first[rank as usize] + after.step as usize];
            if !after.streaming && !waited.complete {
                return None;
            }
            if after.streaming && !waited.complete {
                (limit, all) = (limit.min(waited.done), false);
            }
        }
        Some((limit, all))
    }

    /// Carries out a task on a random number of further elements.
    fn advance(&mut self, task: usize) -> Result<(), String> {
        let Some((mut limit, mut all)) = self.allowed(task) else { return Ok(()) };
        let partner = self.tasks[task].partner;
        match self.action(task) {
            Action::Send { .. } => {
                if self.tasks[task].published != Some((limit, all)) {
                    self.tasks[task].published = Some((limit, all));
                    self.enqueue(partner);
                }
                return Ok(());
            }
            Action::Recv { .. } => {
                let Some((published, whole)) = self.tasks[partner].published else { return Ok(()) };
                (limit, all) = (limit.min(published), all && whole);
            }
            _ => {}
        }
        let (done, elements) = (self.tasks[task].done, self.tasks[task].elements);
        if self.random.below(8) == 0 {
            self.die(task);
        }
        let left = u64::from(limit - done);
        let now = if self.random.below(2) == 0 { left } else { self.random.below(left + 1) };
        for element in done..done + now as u32 {
            self.element(task, element)?;
        }
        self.tasks[task].done += now as u32;
        let is_recv = matches!(self.action(task), Action::Recv { .. });
        if self.tasks[task].done == elements && all {
            self.tasks[task].complete = true;
            self.wake(task);
        } else if self.tasks[task].done < limit {
            self.enqueue(task);
        }
        if is_recv {
            self.tasks[partner].done = self.tasks[task].done;
            self.tasks[partner].complete = self.tasks[task].complete;
            self.wake(partner);
        }
        if now > 0 {
            self.wake(task);
        }
        Ok(())
    }

    /// Simulates that the executor dies during a task. What the task has not finished becomes garbage, which
    /// the task overwrites when it goes on.
    fn die(&mut self, task: usize) {
        let StepTask { rank, done, elements, write, .. } = self.tasks[task];
        let (first, end) = ((write + done) as usize, (write + elements) as usize);
        self.memory[rank as usize][first..end].fill(GARBAGE);
    }

    fn element(&mut self, task: usize, element: u32) -> Result<(), String> {
        let StepTask { rank, reads, write, partner, .. } = self.tasks[task];
        let memory = &self.memory[rank as usize];
        let read = |operand: usize| memory[(reads[operand] + element) as usize];
        let (left, right) = match self.action(task) {
            Action::Recv { .. } => {
                let sender = &self.tasks[partner];
                (self.memory[sender.rank as usize][(sender.reads[0] + element) as usize], None)
            }
            Action::Reduce { .. } => (read(0), Some(read(1))),
            _ => (read(0), None),
        };
        if left == GARBAGE || right == Some(GARBAGE) {
            return Err(format!("reads element {element}, which no step has written"));
        }
        let value = right.map_or(left, |right| combine(left, right, self.operation.commutative));
        self.memory[rank as usize][(write + element) as usize] = value;
        Ok(())
    }

    /// Checks that a rank's output is what the definition says, and that its input has not changed.
    fn compare(&self, rank: u32, initial: &[Symbol]) -> Result<(), String> {
        let operation = self.operation;
        let fail = |what: String| {
            Err(format!("{operation:?}, rank {rank}: {what}\n{}", self.schedules[rank as usize]))
        };
        let (input, output) = operation.bases(rank);
        let output_of = |rank: u32| &self.memory[rank as usize][operation.bases(rank).1 as usize..];
        for (element, contributions) in operation.definition(rank).iter().enumerate() {
            let found = self.memory[rank as usize][output as usize + element];
            let parts = contributions.iter().map(|&part| leaf(part));
            let Some(right) = parts.reduce(|left, right| combine(left, right, operation.commutative)) else {
                continue;
            };
            if (found.contributions, found.weight) != (right.contributions, right.weight) {
                return fail(format!("element {element} of the output is wrong"));
            }
            // `right` was combined from left to right, as the definition lists the contributions.
            if operation.in_ranks && found.bits != right.bits {
                return fail(format!("element {element} is not combined from left to right"));
            }
            if operation.collective == crate::Collective::Allreduce
                && found.bits != output_of(operation.groups(rank).0.start)[element].bits
            {
                return fail(format!("element {element} has other bits than on the group's first rank"));
            }
        }
        let read_only = operation.elements(BufferId::Input, rank) as usize;
        let input = input as usize;
        if !operation.in_place_on(rank)
            && self.memory[rank as usize][input..input + read_only] != initial[input..input + read_only]
        {
            return fail("the input was written".into());
        }
        Ok(())
    }

    fn describe(&self, task: usize, what: &str) -> String {
        let StepTask { rank, step, .. } = self.tasks[task];
        let schedule = &self.schedules[rank as usize];
        format!("{:?}, rank {rank}, step {step} {what}\n{schedule}", self.operation)
    }
}

/// For each buffer of a rank, the elements of the rank's memory at which its blocks begin, and last its end.
/// The buffers are the input, the output, then the scratch buffers.
struct Addresses(Vec<Vec<u32>>);

impl Addresses {
    fn new(operation: &CollectiveCase, schedule: &Schedule) -> Addresses {
        let rank = schedule.rank;
        let (input, output) = operation.bases(rank);
        let user = |buffer, blocks, base| -> Vec<u32> {
            operation.offsets(buffer, rank, blocks).into_iter().map(|offset| offset + base).collect()
        };
        let mut buffers = vec![
            user(BufferId::Input, schedule.input_blocks, input),
            user(BufferId::Output, schedule.output_blocks, output),
        ];
        let ends = [
            input + operation.elements(BufferId::Input, rank),
            output + operation.elements(BufferId::Output, rank),
        ];
        let mut end = ends[0].max(ends[1]);
        for scratch in &schedule.scratch {
            let (buffer, blocks) = match scratch.like {
                Partition::Input => (BufferId::Input, schedule.input_blocks),
                Partition::Output => (BufferId::Output, schedule.output_blocks),
            };
            let mut addresses = vec![end];
            for block in 0..scratch.blocks {
                end += operation.block(buffer, rank, (scratch.first + block) % blocks, blocks);
                addresses.push(end);
            }
            buffers.push(addresses);
        }
        Addresses(buffers)
    }

    fn initial(&self, operation: &CollectiveCase, rank: u32) -> Vec<Symbol> {
        let (input, output) = operation.bases(rank);
        let (inputs, outputs) =
            (operation.elements(BufferId::Input, rank), operation.elements(BufferId::Output, rank));
        let slots_end = self.0.iter().filter_map(|addresses| addresses.last()).max().copied().unwrap_or(0);
        let end = slots_end.max(input + inputs).max(output + outputs);
        let mut memory = vec![GARBAGE; end as usize];
        for element in 0..inputs {
            memory[(input + element) as usize] = leaf((rank, element));
        }
        if operation.collective == crate::Collective::Bcast && rank == operation.root {
            for element in 0..outputs {
                memory[(output + element) as usize] = leaf((rank, element));
            }
        }
        memory
    }

    /// Returns the element of the rank's memory at which these blocks begin, and how many elements they have.
    fn address_of(&self, blocks: Blocks) -> (u32, u32) {
        if blocks.count == 0 {
            return (0, 0);
        }
        let addresses = &self.0[match blocks.buffer {
            BufferId::Input => 0,
            BufferId::Output => 1,
            BufferId::Scratch(index) => 2 + index as usize,
        }];
        let (first, end) = (addresses[blocks.first as usize], addresses[blocks.end() as usize]);
        (first, end - first)
    }

    fn task(&self, rank: u32, step: u32, action: &Action) -> Result<StepTask, String> {
        let (reads, write) = accesses(action);
        let read = reads.map(|blocks| blocks.map(|blocks| self.address_of(blocks)));
        let written = write.map(|blocks| self.address_of(blocks));
        let mut lengths = read.into_iter().chain([written]).flatten().map(|(_, length)| length);
        let elements = lengths.next().expect("every step names blocks");
        if lengths.any(|length| length != elements) {
            return Err(format!("rank {rank}, step {step}: blocks differ in length: {action}"));
        }
        let address = |location: Option<(u32, u32)>| location.map_or(0, |(address, _)| address);
        let (reads, write) = (read.map(address), address(written));
        let (partner, done, published) = (usize::MAX, 0, None);
        Ok(StepTask {
            rank,
            step,
            elements,
            reads,
            write,
            partner,
            done,
            published,
            complete: false,
            queued: false,
        })
    }
}
