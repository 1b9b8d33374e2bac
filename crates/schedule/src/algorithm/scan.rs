// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Scan: the buffers `Input` and `Output` are the vector as one block. All algorithms combine in the
//! order of ranks. In place, schedules name only `Output`.
use super::reduce::sum_in_order;
use super::{Params, powers_of_two_below};
use crate::build::{Alias, Builder};
use crate::{
    BufferId::{Input, Output},
    Schedule,
};

fn builder(params: &Params) -> Builder {
    let plan = Builder::new(params.rank, params.size, 1, 1);
    plan.alias(if params.in_place { Alias::Same } else { Alias::None })
}

/// Scan in one round: each rank receives the vectors of all lower ranks, and combines them with its own.
pub fn linear(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    for to in rank + 1..size {
        plan.send(to, Input.block(0));
    }
    let sum = sum_in_order(&mut plan, 0..rank + 1, rank, Input.block(0), Some(Output.block(0)));
    plan.copy(sum, Output.block(0));
    plan.finish()
}

/// Scan by recursive doubling (Hillis, Steele 1986): before the round with distance `hop`, a rank has the sum
/// of up to `hop` vectors, its own and those of the ranks just below it.
pub fn doubling(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    let rounds = powers_of_two_below(rank + 1).count() as u32;
    let inbox = plan.scratch(Input, 0, rounds);
    let sums = plan.scratch(Input, 0, rounds.min(2));
    let mut sum = Input.block(0);
    for (round, hop) in (0..).zip(powers_of_two_below(size)) {
        if hop < size - rank {
            plan.send(rank + hop, sum);
        }
        if hop <= rank {
            let into = if round + 1 == rounds { Output.block(0) } else { sums.block(round % 2) };
            plan.recv(rank - hop, inbox.block(round));
            plan.reduce(inbox.block(round), sum, into);
            sum = into;
        }
    }
    plan.copy(sum, Output.block(0));
    plan.finish()
}

/// Scan along a chain: each rank receives the sum of all lower ranks, combines it with its own vector, and
/// sends the result to the next rank. It passes on each byte as soon as it has it.
pub fn chain(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    if rank == 0 {
        plan.copy(Input.block(0), Output.block(0));
    } else {
        let inbox = plan.scratch(Input, 0, 1).block(0);
        plan.recv(rank - 1, inbox);
        plan.reduce(inbox, Input.block(0), Output.block(0));
    }
    if rank + 1 < size {
        plan.send(rank + 1, Output.block(0));
    }
    plan.finish()
}
