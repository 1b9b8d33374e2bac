// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Exscan: the buffers `Input` and `Output` are the vector as one block. The `Output` of rank 0 stays as
//! it is. All algorithms combine in the order of ranks. In place, schedules name only `Output`.
use super::reduce::sum_in_order;
use super::{Params, powers_of_two_below};
use crate::build::{Alias, Builder};
use crate::{
    Blocks,
    BufferId::{Input, Output},
    Schedule,
};

fn builder(params: &Params) -> Builder {
    let plan = Builder::new(params.rank, params.size, 1, 1);
    plan.alias(if params.in_place { Alias::Same } else { Alias::None })
}

/// Exclusive scan in one round: each rank receives the vectors of all lower ranks, and combines them.
pub fn linear(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    for to in rank + 1..size {
        plan.send(to, Input.block(0));
    }
    if rank > 0 {
        let sum = sum_in_order(&mut plan, 0..rank, rank, Input.block(0), Some(Output.block(0)));
        plan.copy(sum, Output.block(0));
    }
    plan.finish()
}

/// Exclusive scan by recursive doubling (Hillis, Steele 1986). In the round of `hop` (1, 2, 4, ...) a rank
/// sends the sum of the vectors of `hop` ranks, from lower ranks up to itself, to the rank whose number is
/// `hop` higher. It also keeps the sum without its own vector, which becomes the result.
pub fn doubling(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    let rounds = powers_of_two_below(rank + 1).count() as u32;
    let sending = powers_of_two_below(size - rank).count() as u32;
    let inbox = plan.scratch(Input, 0, rounds);
    let sums = plan.scratch(Input, 0, 2);
    let before_sums = plan.scratch(Input, 0, 2);
    let mut sum = Input.block(0);
    let mut before: Option<Blocks> = None;
    for (round, hop) in (0..).zip(powers_of_two_below(size)) {
        if round < sending {
            plan.send(rank + hop, sum);
        }
        if hop > rank {
            continue;
        }
        let arrived = inbox.block(round);
        plan.recv(rank - hop, arrived);
        // In place the result overwrites this rank's part, so the sum with it comes first.
        if round + 1 < sending {
            plan.reduce(arrived, sum, sums.block(round % 2));
            sum = sums.block(round % 2);
        }
        before = Some(match before {
            None => arrived,
            Some(before) => {
                let into = if round + 1 == rounds { Output.block(0) } else { before_sums.block(round % 2) };
                plan.reduce(arrived, before, into);
                into
            }
        });
    }
    if let Some(before) = before {
        plan.copy(before, Output.block(0));
    }
    plan.finish()
}

/// Exclusive scan along a chain of ranks. A rank passes on each byte of the sum as soon as it has it.
pub fn chain(params: &Params) -> Schedule {
    let &Params { rank, size, in_place, .. } = params;
    let mut plan = builder(params);
    let mut sum = Input.block(0);
    if rank > 0 {
        let before = if in_place { plan.scratch(Input, 0, 1) } else { Output }.block(0);
        plan.recv(rank - 1, before);
        if rank + 1 < size {
            let into = plan.scratch(Input, 0, 1).block(0);
            plan.reduce(before, sum, into);
            sum = into;
        }
        plan.copy(before, Output.block(0));
    }
    if rank + 1 < size {
        plan.send(rank + 1, sum);
    }
    plan.finish()
}
