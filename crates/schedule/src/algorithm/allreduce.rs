// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Allreduce: the buffers `Input` and `Output` hold the vector, cut into the same blocks. In place,
//! schedules name only `Output`. Every rank gets the same bits: if two ranks exchange vectors, both combine
//! them in the same order (the lower rank's vector on the left); otherwise one rank combines, and sends the
//! result to the others.
use super::Params;
use super::halving::{self, Fold, FoldRole, VectorPart};
use super::reduce::{sum_in_order, sum_shares, sum_up};
use super::team::{Nodes, Team};
use crate::build::{Alias, Builder};
use crate::{
    Blocks,
    BufferId::{Input, Output},
    Schedule,
};
use std::ops::Range;

fn builder(params: &Params, blocks: u32) -> Builder {
    let plan = Builder::new(params.rank, params.size, blocks, blocks);
    plan.alias(if params.in_place { Alias::Same } else { Alias::None })
}

/// Allreduce in one round: every rank sends its whole vector to every other rank, and combines all vectors
/// itself.
pub fn linear(params: &Params) -> Schedule {
    let mut plan = builder(params, 1);
    for to in params.others() {
        plan.send(to, Input.block(0));
    }
    let result = Some(Output.block(0));
    let sum = sum_in_order(&mut plan, 0..params.size, params.rank, Input.block(0), result);
    plan.copy(sum, Output.block(0));
    plan.finish()
}

/// Allreduce in two rounds: each rank combines one share of all vectors, and sends the sum to all others. No
/// algorithm moves fewer bytes.
pub fn split(params: &Params) -> Schedule {
    let &Params { rank, size, in_place, .. } = params;
    let mut plan = builder(params, size);
    for to in params.others() {
        plan.send(to, Input.block(to));
    }
    // In place, `Output` holds an operand. The sum goes on from where it lies: no rank waits for the copy.
    let result = (!in_place).then_some(Output.block(rank));
    let sum = sum_in_order(&mut plan, 0..size, rank, Input.block(rank), result);
    for to in params.others() {
        plan.send(to, sum);
    }
    plan.copy(sum, Output.block(rank));
    for from in params.others() {
        plan.recv(from, Output.block(from));
    }
    plan.finish()
}

/// Allreduce by recursive doubling (Thakur et al. 2005): log2(n) exchanges of the whole vector among n ranks,
/// two more if n is no power of two. It keeps the order of ranks.
pub fn doubling(params: &Params) -> Schedule {
    let mut plan = builder(params, 1);
    doubling_among(&mut plan, &Team::all(params), Input.block(0), Output.block(0));
    plan.finish()
}

/// Adds the steps of `doubling` among the members of a team. `mine` is this member's vector, and `result` is
/// where the sum goes, each as one block.
fn doubling_among(plan: &mut Builder, team: &Team, mine: Blocks, result: Blocks) {
    let fold = Fold::new(team.size(), 0);
    let active = match fold.role(team.me) {
        FoldRole::Active(active) => active,
        FoldRole::Folded(partner) => {
            plan.send(team.rank(partner), mine);
            plan.recv(team.rank(partner), result);
            return;
        }
    };
    let mine = VectorPart { buffer: mine.buffer, offset: mine.first, first: 0 };
    let mut sum = halving::fold_in(plan, fold, team, &(0..1), mine).at(&(0..1));
    let rounds = fold.active_members.ilog2();
    let inbox = plan.scratch(Input, 0, rounds);
    let sums = plan.scratch(Input, 0, rounds.min(2));
    for (round, hop) in (0..).zip(fold.hops()) {
        let partner = team.rank(fold.member_of(active ^ hop));
        plan.send(partner, sum);
        plan.recv(partner, inbox.block(round));
        let into = if round + 1 == rounds { result } else { sums.block(round % 2) };
        let (left, right) =
            if active & hop == 0 { (sum, inbox.block(round)) } else { (inbox.block(round), sum) };
        plan.reduce(left, right, into);
        sum = into;
    }
    plan.copy(sum, result);
    if let Some(partner) = fold.partner(team.me) {
        plan.send(team.rank(partner), result);
    }
}

/// Allreduce by a reduce-scatter with recursive halving and an allgather with recursive doubling
/// (Rabenseifner 2004). A rank sends about twice the vector in 2 log2(n) rounds. It keeps the order of ranks.
pub fn rabenseifner(params: &Params) -> Schedule {
    let mut plan = builder(params, params.size);
    let (mine, result) = (VectorPart::whole(Input), VectorPart::whole(Output));
    rabenseifner_among(&mut plan, &Team::all(params), 0..params.size, mine, result);
    plan.finish()
}

/// Adds the steps of `rabenseifner` among the members of a team, for the blocks `all` of the vector. `mine`
/// is this member's vector, and the sum goes to `result`.
fn rabenseifner_among(
    plan: &mut Builder,
    team: &Team,
    all: Range<u32>,
    mine: VectorPart,
    result: VectorPart,
) {
    let fold = Fold::new(team.size(), 0);
    let active = match fold.role(team.me) {
        FoldRole::Active(active) => active,
        FoldRole::Folded(partner) => {
            plan.send(team.rank(partner), mine.at(&all));
            plan.recv(team.rank(partner), result.at(&all));
            return;
        }
    };
    let vector = halving::fold_in(plan, fold, team, &all, mine);
    halving::reduce_scatter(plan, (fold, team, active), &all, vector, result);
    let ranges = fold.ranges(active, all.clone());
    for (round, hop) in fold.hops().enumerate().collect::<Vec<_>>().into_iter().rev() {
        let partner = team.rank(fold.member_of(active ^ hop));
        let mine = &ranges[round + 1];
        let (low, high) = halving::halves(&ranges[round]);
        plan.send(partner, result.at(mine));
        plan.recv(partner, result.at(if *mine == low { &high } else { &low }));
    }
    if let Some(partner) = fold.partner(team.me) {
        plan.send(team.rank(partner), result.at(&all));
    }
}

/// Allreduce by nodes: vectors go up a binomial tree to the leader of each node, the leaders combine them by
/// recursive doubling, and the sum goes down the trees. It keeps the order of ranks if the ranks of each node
/// are consecutive.
pub fn nodes(params: &Params) -> Schedule {
    let mut plan = builder(params, 1);
    let nodes = Nodes::of(params);
    let team = nodes.local_team();
    let tree = team.tree(0);
    let sum = sum_up(&mut plan, &tree, |member| team.rank(member), Input.block(0), None);
    match tree.parent.map(|parent| team.rank(parent)) {
        Some(parent) => {
            plan.send(parent, sum);
            plan.recv(parent, Output.block(0));
        }
        None => doubling_among(&mut plan, &nodes.leaders_team(0), sum, Output.block(0)),
    }
    for child in tree.children().rev() {
        plan.send(team.rank(child.at), Output.block(0));
    }
    plan.finish()
}

/// Allreduce by nodes with several leaders in each. Each leader sums one share of its node's vectors, then
/// combines this sum with those of the same share on the other nodes (`rabenseifner`), and gives the result
/// to its node. It keeps the order of ranks if the ranks of each node are consecutive.
pub fn nodes_split(params: &Params) -> Schedule {
    let nodes = Nodes::of(params);
    let mut plan = builder(params, nodes.split_blocks());
    let result = VectorPart::whole(Output);
    if let Some(sum) = sum_shares(&mut plan, &nodes) {
        rabenseifner_among(&mut plan, &nodes.column(), nodes.share(nodes.position), sum, result);
    }
    for (leader, share) in nodes.shares() {
        if leader == params.rank {
            for other in nodes.others() {
                plan.send(other, result.at(&share));
            }
        } else {
            plan.recv(leader, result.at(&share));
        }
    }
    plan.finish()
}

/// Allreduce by a ring reduce-scatter, then a ring allgather (Patarasuk, Yuan 2009): 2 (n - 1) rounds, and no
/// algorithm moves fewer bytes. The sum of block b starts at rank b and goes around the ring, so the operator
/// must be commutative.
pub fn ring(params: &Params) -> Schedule {
    let &Params { rank, size, in_place, .. } = params;
    let mut plan = builder(params, size);
    if size == 1 {
        plan.copy(Input.block(0), Output.block(0));
        return plan.finish();
    }
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    // No rank sends this rank its own block.
    let inbox = plan.scratch(Input, right, size - 1);
    // In place, `Output` holds the operand until the allgather.
    let sums = in_place.then(|| plan.scratch(Input, right, size - 1));
    let mut sum = Input.block(rank);
    for round in 0..size - 1 {
        let block = (left + size - round) % size;
        // The blocks come in falling order, from `left` to `right`.
        let place = size - 2 - round;
        let into = sums.map_or(Output.block(block), |sums| sums.block(place));
        plan.send(right, sum);
        plan.recv(left, inbox.block(place));
        plan.reduce(inbox.block(place), Input.block(block), into);
        sum = into;
    }
    // `sum` goes on from where it lies: no rank waits for the copy.
    plan.send(right, sum);
    plan.copy(sum, Output.block(right));
    plan.recv(left, Output.block(rank));
    for round in 1..size - 1 {
        plan.send(right, Output.block((right + size - round) % size));
        plan.recv(left, Output.block((rank + size - round) % size));
    }
    plan.finish()
}
