// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Reduce_scatter_block, MPI_Reduce_scatter: the buffer `Input` is n blocks, block r for rank r. `Output`
//! is one block. In place, `Output` is the start of `Input`, as long as this rank's block. Schedules then
//! name both, and write `Output` only after all of `Input` has been read.
use super::Params;
use super::halving::{self, Fold, FoldRole, VectorPart};
use super::reduce::sum_in_order;
use super::team::{Nodes, Team};
use crate::build::{Alias, Builder, Token};
use crate::{
    Blocks,
    BufferId::{self, Input, Output},
    Schedule,
};

/// The number of rounds of `pairwise` that may be under way at once. With two, the latency of one passes
/// while the bytes of the other move.
const ROUNDS_AT_ONCE: usize = 2;
/// How many sums a rank may work on at once in the algorithm `nodes`.
const SUMS_AT_ONCE: u32 = 4;

fn builder(params: &Params) -> Builder {
    let plan = Builder::new(params.rank, params.size, params.size, 1);
    plan.alias(match (params.in_place, params.size) {
        (true, 1) => Alias::Same,
        (true, _) => Alias::Overlap,
        (false, _) => Alias::None,
    })
}

/// Reduce-scatter in one round: every rank sends to each other rank that rank's block, and combines what it
/// receives from left to right.
pub fn linear(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    for to in params.others() {
        plan.send(to, Input.block(to));
    }
    let sum = sum_in_order(&mut plan, 0..size, rank, Input.block(rank), Some(Output.block(0)));
    plan.copy(sum, Output.block(0));
    plan.finish()
}

/// Reduce-scatter by pairwise exchange (Thakur et al. 2005): one partner in each round. If order matters, a
/// rank first combines the blocks of lower ranks, in falling order, then those of higher ranks, then the two
/// sums.
pub fn pairwise(params: &Params) -> Schedule {
    let &Params { rank, size, commutative, .. } = params;
    let mut plan = builder(params);
    if size == 1 {
        plan.copy(Input.block(0), Output.block(0));
        return plan.finish();
    }
    let inbox = plan.scratch(Output, 0, ROUNDS_AT_ONCE as u32);
    let sums = plan.scratch(Output, 0, 2);
    let higher_sums = plan.scratch(Output, 0, 3);
    let mut lower = Input.block(rank);
    let mut higher: Option<Blocks> = None;
    let mut rounds = [[Token::NOTHING; 2]; ROUNDS_AT_ONCE];
    for hop in 1..size {
        let (to, from) = ((rank + hop) % size, (rank + size - hop) % size);
        let round = &mut rounds[hop as usize % ROUNDS_AT_ONCE];
        let earlier = *round;
        let joins_lower = commutative || from < rank;
        let first_of_higher = !joins_lower && higher.is_none();
        let arrived =
            if first_of_higher { higher_sums.block(2) } else { inbox.block(hop % ROUNDS_AT_ONCE as u32) };
        *round = [plan.send_after(to, Input.block(to), &earlier), plan.recv_after(from, arrived, &earlier)];
        if joins_lower {
            let into = if hop + 1 == size { Output.block(0) } else { sums.block(hop % 2) };
            plan.reduce(arrived, lower, into);
            lower = into;
        } else {
            higher = Some(match higher {
                None => arrived,
                Some(sum) => {
                    plan.reduce(arrived, sum, higher_sums.block(hop % 2));
                    higher_sums.block(hop % 2)
                }
            });
        }
    }
    if let Some(higher) = higher {
        plan.reduce(lower, higher, Output.block(0));
    }
    plan.finish()
}

/// Reduce-scatter in log2(n) + 1 rounds: recursive halving (Rabenseifner 2004), after which every block goes
/// to its rank. It keeps the order of ranks.
pub fn halving(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    let (fold, team, all) = (Fold::new(size, 0), Team::all(params), 0..size);
    let owner = fold.owner(rank, size);
    match fold.role(rank) {
        FoldRole::Folded(partner) => {
            plan.send(partner, Input.blocks(0, size));
        }
        FoldRole::Active(active) => {
            let vector = halving::fold_in(&mut plan, fold, &team, &all, VectorPart::whole(Input));
            let held = fold.ranges(active, all.clone()).pop().expect("never empty");
            let result = VectorPart::scratch(&mut plan, &held);
            halving::reduce_scatter(&mut plan, (fold, &team, active), &all, vector, result);
            for block in held {
                let from = result.at(&(block..block + 1));
                if block == rank {
                    plan.copy(from, Output.block(0));
                } else {
                    plan.send(block, from);
                }
            }
        }
    }
    if owner != rank {
        plan.recv(owner, Output.block(0));
    }
    plan.finish()
}

/// Reduce-scatter by nodes, for MPI_Reduce_scatter_block. For each destination one rank of each node sums its
/// node's blocks, and sends the sum there. It keeps the order if the ranks of each node are consecutive.
pub fn nodes(params: &Params) -> Schedule {
    sums_by_node(params, |plan| plan.scratch(Output, 0, SUMS_AT_ONCE), |number, _| number % SUMS_AT_ONCE)
}

/// Reduce-scatter by nodes (`nodes`) for blocks of different lengths, as in MPI_Reduce_scatter.
pub fn nodes_unequal(params: &Params) -> Schedule {
    sums_by_node(params, |plan| plan.scratch(Input, 0, params.size), |_, to| to)
}

fn sums_by_node(
    params: &Params,
    scratch: impl Fn(&mut Builder) -> BufferId,
    slot: impl Fn(u32, u32) -> u32,
) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    let nodes = Nodes::of(params);
    let (inboxes, sums) = ([(); 2].map(|()| scratch(&mut plan)), [(); 2].map(|()| scratch(&mut plan)));
    let own_sum = plan.scratch(Output, 0, 1).block(0);
    // Each rank sums for itself on its own node, after all others.
    let by = |to: u32| nodes.local()[nodes.position_of(to) as usize % nodes.local().len()];
    let next = nodes.members((nodes.here + 1) % nodes.count())[0];
    let (last, first): (Vec<u32>, Vec<u32>) =
        (0..size).map(|hop| (next + hop) % size).partition(|&to| nodes.node(to) == nodes.here);
    let mut number = 0;
    let mut mine = Input.block(rank);
    for to in first.into_iter().chain(last) {
        if by(to) != rank {
            plan.send(by(to), Input.block(to));
            continue;
        }
        let at = slot(number, to);
        number += 1;
        let operands = nodes.local().iter().enumerate().map(|(place, &from)| {
            (from, if from == rank { Input.block(to) } else { inboxes[place % 2].block(at) })
        });
        let many = operands.len();
        let mut sum = None;
        for (place, (from, operand)) in operands.enumerate() {
            if from != rank {
                plan.recv(from, operand);
            }
            let into = if to == rank && place + 1 == many { own_sum } else { sums[place % 2].block(at) };
            sum = Some(sum.map_or(operand, |sum| {
                plan.reduce(sum, operand, into);
                into
            }));
        }
        let sum = sum.expect("a node has ranks");
        if to == rank {
            mine = sum;
        } else {
            plan.send(to, sum);
        }
    }
    let inbox = plan.scratch(Output, 0, nodes.count());
    let totals = plan.scratch(Output, 0, 2);
    let mut total = None;
    for node in 0..nodes.count() {
        let part = if node == nodes.here { mine } else { inbox.block(node) };
        if node != nodes.here {
            let members = nodes.members(node);
            plan.recv(members[nodes.position as usize % members.len()], part);
        }
        let into = if node + 1 == nodes.count() { Output.block(0) } else { totals.block(node % 2) };
        total = Some(total.map_or(part, |total| {
            plan.reduce(total, part, into);
            into
        }));
    }
    plan.copy(total.expect("there is a node"), Output.block(0));
    plan.finish()
}
