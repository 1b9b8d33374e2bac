// SPDX-License-Identifier: BSD-3-Clause
//! Schedules that are written by hand for tests.

use schedule::{Action, After, Blocks, BufferId, Neighbors, Partition, Schedule, Scratch, Step};

/// Builds a schedule by hand, step by step.
pub struct PlanBuilder {
    schedule: Schedule,
}

/// Makes a condition for a step, which then starts only when the step `step` has finished.
pub fn whole(step: u32) -> After {
    After { step, streaming: false }
}

/// Makes a condition for a step, which then follows the step `step` byte by byte, without waiting for the end
/// of `step`.
pub fn streaming(step: u32) -> After {
    After { step, streaming: true }
}

pub fn blocks(buffer: BufferId, first: u32, count: u32) -> Blocks {
    Blocks { buffer, first, count }
}

impl PlanBuilder {
    pub fn new(rank: u32, size: u32, input_blocks: u32, output_blocks: u32) -> PlanBuilder {
        let (scratch, steps, after) = (vec![], vec![], vec![]);
        PlanBuilder { schedule: Schedule { rank, size, input_blocks, output_blocks, scratch, steps, after } }
    }

    pub fn scratch(mut self, like: Partition, first: u32, blocks: u32) -> PlanBuilder {
        self.schedule.scratch.push(Scratch { like, first, blocks });
        self
    }

    pub fn step(&mut self, action: Action, after: &[After]) -> u32 {
        let after_first = self.schedule.after.len() as u32;
        self.schedule.after.extend(after);
        self.schedule.steps.push(Step { action, after_first, after_count: after.len() as u32 });
        self.schedule.steps.len() as u32 - 1
    }

    pub fn finish(self) -> Schedule {
        self.schedule
    }
}

/// A collective for which this file has a schedule written by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    Alltoall,
    Bcast,
    Allreduce,
    Allgather,
    Barrier,
    Message,
}

pub const KINDS: [Plan; 6] =
    [Plan::Alltoall, Plan::Bcast, Plan::Allreduce, Plan::Allgather, Plan::Barrier, Plan::Message];

impl Plan {
    pub fn schedule(self, rank: u32, size: u32) -> Schedule {
        match self {
            Plan::Alltoall => alltoall(rank, size),
            Plan::Bcast => bcast(rank, size),
            Plan::Allreduce => allreduce(rank, size),
            Plan::Allgather => allgather(rank, size),
            Plan::Barrier => barrier(rank, size),
            Plan::Message => message(rank, size),
        }
    }
}

/// Every rank sends a block to every other rank, all at once.
fn alltoall(rank: u32, size: u32) -> Schedule {
    let mut plan = PlanBuilder::new(rank, size, size, size);
    let block = |buffer, index| blocks(buffer, index, 1);
    plan.step(Action::Copy { from: block(BufferId::Input, rank), into: block(BufferId::Output, rank) }, &[]);
    for hop in 1..size {
        let (to, from) = ((rank + hop) % size, (rank + size - hop) % size);
        plan.step(Action::Send { to, edge: 7, from: block(BufferId::Input, to) }, &[]);
        plan.step(Action::Recv { from, edge: 7, into: block(BufferId::Output, from) }, &[]);
    }
    plan.finish()
}

/// A broadcast as a pipeline: rank 0 sends to rank 1, which sends to rank 2, and so on.
fn bcast(rank: u32, size: u32) -> Schedule {
    let mut plan = PlanBuilder::new(rank, size, 0, 1);
    let all = blocks(BufferId::Output, 0, 1);
    let mut after = vec![];
    if rank > 0 {
        after.push(streaming(plan.step(Action::Recv { from: rank - 1, edge: 0, into: all }, &[])));
    }
    if rank + 1 < size {
        plan.step(Action::Send { to: rank + 1, edge: 0, from: all }, &after);
    }
    plan.finish()
}

/// An allreduce as a chain: sums go from rank 0 up to the last rank, and the result comes back down, both as
/// pipelines. Input and output may be one buffer, since reductions write only to scratch.
fn allreduce(rank: u32, size: u32) -> Schedule {
    let mut plan =
        PlanBuilder::new(rank, size, 1, 1).scratch(Partition::Output, 0, 1).scratch(Partition::Output, 0, 1);
    let (input, output) = (blocks(BufferId::Input, 0, 1), blocks(BufferId::Output, 0, 1));
    let (arrived, sum) = (blocks(BufferId::Scratch(0), 0, 1), blocks(BufferId::Scratch(1), 0, 1));
    let mut read = None;
    if rank > 0 {
        let recv = plan.step(Action::Recv { from: rank - 1, edge: 0, into: arrived }, &[]);
        read = Some(plan.step(Action::Reduce { left: arrived, right: input, into: sum }, &[streaming(recv)]));
    }
    if rank + 1 < size {
        let after: Vec<_> = read.map(streaming).into_iter().collect();
        let from = if rank > 0 { sum } else { input };
        let sent = plan.step(Action::Send { to: rank + 1, edge: 0, from }, &after);
        let mut after = vec![whole(sent)];
        after.extend(read.map(whole));
        let back = plan.step(Action::Recv { from: rank + 1, edge: 1, into: output }, &after);
        if rank > 0 {
            plan.step(Action::Send { to: rank - 1, edge: 1, from: output }, &[streaming(back)]);
        }
    } else {
        let after: Vec<_> = read.map(whole).into_iter().collect();
        let from = if rank > 0 { sum } else { input };
        plan.step(Action::Copy { from, into: output }, &after);
        if rank > 0 {
            plan.step(Action::Send { to: rank - 1, edge: 1, from: sum }, &after);
        }
    }
    plan.finish()
}

/// An allgather as a ring: every block passes through all ranks.
fn allgather(rank: u32, size: u32) -> Schedule {
    let mut plan = PlanBuilder::new(rank, size, 1, size);
    let block = |index| blocks(BufferId::Output, index, 1);
    let mut last = plan.step(Action::Copy { from: blocks(BufferId::Input, 0, 1), into: block(rank) }, &[]);
    for hop in 0..size - 1 {
        let (give, take) = ((rank + size - hop) % size, (rank + size - hop - 1) % size);
        plan.step(Action::Send { to: (rank + 1) % size, edge: hop, from: block(give) }, &[streaming(last)]);
        let from = (rank + size - 1) % size;
        last = plan.step(Action::Recv { from, edge: hop, into: block(take) }, &[]);
    }
    plan.finish()
}

/// A message from rank 0 to the last rank. Other ranks do nothing.
fn message(rank: u32, size: u32) -> Schedule {
    let ends = |is_end: bool, peer| if is_end && size > 1 { vec![Some(peer)] } else { Vec::new() };
    let (to, from) = (ends(rank == 0, size - 1), ends(rank + 1 == size, 0));
    Neighbors { rank, size, to, from, paired: false }.plan(false)
}

/// A dissemination barrier: messages without bytes, to ranks at distance 1, 2, 4, ...
fn barrier(rank: u32, size: u32) -> Schedule {
    let mut plan = PlanBuilder::new(rank, size, 0, 0);
    let none = blocks(BufferId::Input, 0, 0);
    let (mut hop, mut after) = (1, vec![]);
    while hop < size {
        plan.step(Action::Send { to: (rank + hop) % size, edge: hop, from: none }, &after);
        let from = (rank + size - hop) % size;
        after = vec![whole(plan.step(Action::Recv { from, edge: hop, into: none }, &after))];
        hop *= 2;
    }
    plan.finish()
}
