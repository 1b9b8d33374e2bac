//! MPI_Allreduce: `Input` and `Output` are the vector, cut alike. In place: plans name only `Output`. Every
//! rank gets the same bits: both partners of an exchange combine with the lower rank's part on the left, or
//! one rank computes for all.
use super::Params;
use super::halving::{self, Fold, Role, VectorPart};
use crate::build::{Alias, Builder};
use crate::{
    BufferId::{Input, Output},
    Schedule,
};

fn builder(params: &Params, blocks: u32) -> Builder {
    let plan = Builder::new(params.rank, params.size, blocks, blocks);
    plan.alias(if params.in_place { Alias::Same } else { Alias::None })
}

/// A folded rank sends its vector and receives the result.
fn folded(mut plan: Builder, partner: u32, blocks: u32) -> Schedule {
    plan.send(partner, Input.blocks(0, blocks));
    plan.recv(partner, Output.blocks(0, blocks));
    plan.finish()
}

/// Recursive doubling (Thakur et al. 2005): log2(n) exchanges of the whole vector, two more where n is no
/// power of two. Keeps the order.
pub fn doubling(params: &Params) -> Schedule {
    let mut plan = builder(params, 1);
    let fold = Fold::new(params.size, 0);
    let active = match fold.role(params.rank) {
        Role::Active(active) => active,
        Role::Folded(partner) => return folded(plan, partner, 1),
    };
    let mut sum = halving::fold_in(&mut plan, fold, params, 1).at(&(0..1));
    let rounds = fold.ranks.ilog2();
    let inbox = plan.scratch(Input, 0, rounds);
    let sums = plan.scratch(Input, 0, rounds.min(2));
    for (round, hop) in (0..).zip(fold.hops()) {
        let partner = fold.rank(active ^ hop);
        plan.send(partner, sum);
        plan.recv(partner, inbox.block(round));
        let into = if round + 1 == rounds { Output.block(0) } else { sums.block(round % 2) };
        let (left, right) =
            if active & hop == 0 { (sum, inbox.block(round)) } else { (inbox.block(round), sum) };
        plan.reduce(left, right, into);
        sum = into;
    }
    plan.copy(sum, Output.block(0));
    if let Some(partner) = fold.partner(params.rank) {
        plan.send(partner, Output.block(0));
    }
    plan.finish()
}

/// Rabenseifner 2004: reduce-scatter by recursive halving, then allgather by recursive doubling. A rank sends
/// about twice the vector in 2 log2(n) rounds. Keeps the order.
pub fn rabenseifner(params: &Params) -> Schedule {
    let size = params.size;
    let mut plan = builder(params, size);
    let fold = Fold::new(size, 0);
    let active = match fold.role(params.rank) {
        Role::Active(active) => active,
        Role::Folded(partner) => return folded(plan, partner, size),
    };
    let vector = halving::fold_in(&mut plan, fold, params, size);
    let result = VectorPart { buffer: Output, first: 0 };
    halving::reduce_scatter(&mut plan, fold, active, size, vector, result);
    let ranges = fold.ranges(active, size);
    for (round, hop) in fold.hops().enumerate().collect::<Vec<_>>().into_iter().rev() {
        let partner = fold.rank(active ^ hop);
        let mine = &ranges[round + 1];
        let (low, high) = halving::halves(&ranges[round]);
        plan.send(partner, result.at(mine));
        plan.recv(partner, result.at(if *mine == low { &high } else { &low }));
    }
    if let Some(partner) = fold.partner(params.rank) {
        plan.send(partner, Output.blocks(0, size));
    }
    plan.finish()
}

/// Ring reduce-scatter, then ring allgather (Patarasuk, Yuan 2009), both streaming: the least traffic at any
/// n, in 2 (n - 1) rounds. Block b is combined in cyclic order from rank b, so the operator must be
/// commutative.
pub fn ring(params: &Params) -> Schedule {
    let &Params { rank, size, in_place, .. } = params;
    let mut plan = builder(params, size);
    if size == 1 {
        plan.copy(Input.block(0), Output.block(0));
        return plan.finish();
    }
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let inbox = plan.scratch(Input, 0, size);
    // In place, `Output` holds the operand until the allgather.
    let sums = if in_place { plan.scratch(Input, 0, size) } else { Output };
    let mut sum = Input.block(rank);
    for round in 0..size - 1 {
        let block = (left + size - round) % size;
        let into = if round + 2 == size { Output } else { sums }.block(block);
        plan.send(right, sum);
        plan.recv(left, inbox.block(block));
        plan.reduce(inbox.block(block), Input.block(block), into);
        sum = into;
    }
    for round in 0..size - 1 {
        plan.send(right, Output.block((right + size - round) % size));
        plan.recv(left, Output.block((rank + size - round) % size));
    }
    plan.finish()
}
