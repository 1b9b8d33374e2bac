// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Reduce: the buffer `Input` is the vector. `Output` is cut into the same blocks, and only the root has
//! it. In place (only at the root) the root's vector is `Output`, and the root's schedule names only
//! `Output`.
use super::halving::{self, Fold, FoldRole, VectorPart};
use super::team::{Nodes, Team};
use super::{Params, Tree};
use crate::build::{Alias, Builder};
use crate::{
    Blocks,
    BufferId::{Input, Output},
    Schedule,
};
use std::ops::Range;

fn builder(params: &Params, blocks: u32) -> Builder {
    let &Params { rank, size, root, in_place, .. } = params;
    let plan = Builder::new(rank, size, blocks, if rank == root { blocks } else { 0 });
    plan.alias(if in_place && rank == root { Alias::Same } else { Alias::None })
}

/// Reduction in one round: every rank sends its whole vector to the root, which combines the vectors.
pub fn linear(params: &Params) -> Schedule {
    let &Params { rank, size, root, .. } = params;
    let mut plan = builder(params, 1);
    if rank == root {
        let sum = sum_in_order(&mut plan, 0..size, rank, Input.block(0), Some(Output.block(0)));
        plan.copy(sum, Output.block(0));
    } else {
        plan.send(root, Input.block(0));
    }
    plan.finish()
}

/// Reduction by shares: each rank combines one share of all vectors, and sends the sum to the root. A rank
/// sends and receives about one vector, and the root receives two.
pub fn split(params: &Params) -> Schedule {
    let &Params { rank, size, root, .. } = params;
    let mut plan = builder(params, size);
    for to in params.others() {
        plan.send(to, Input.block(to));
    }
    let result = (rank == root).then_some(Output.block(rank));
    let sum = sum_in_order(&mut plan, 0..size, rank, Input.block(rank), result);
    if rank != root {
        plan.send(root, sum);
        return plan.finish();
    }
    plan.copy(sum, Output.block(rank));
    for from in params.others() {
        plan.recv(from, Output.block(from));
    }
    plan.finish()
}

/// Reduction up a binomial tree: log2(n) rounds of the whole vector. If the operator is not commutative, rank
/// 0 is the top of the tree, and the result takes one more hop to the root.
pub fn binomial(params: &Params) -> Schedule {
    let &Params { rank, size, root, commutative, .. } = params;
    let mut plan = builder(params, 1);
    let top = Params { root: if commutative { root } else { 0 }, ..params.clone() };
    let tree = Tree::new(top.relative(), size);
    let result = (tree.parent.is_none() && rank == root).then_some(Output.block(0));
    let sum = sum_up(&mut plan, &tree, |member| top.absolute(member), Input.block(0), result);
    match tree.parent {
        Some(parent) => plan.send(top.absolute(parent), sum),
        None if rank != root => plan.send(root, sum),
        None => plan.copy(sum, Output.block(0)),
    };
    if rank == root && tree.parent.is_some() {
        plan.recv(top.root, Output.block(0));
    }
    plan.finish()
}

/// Adds steps that combine the vector `mine` with the vectors of this member's children in a tree, in the
/// members' order. `rank_of` returns a member's rank. Returns where the sum lies: in `mine` if there are no
/// children, else in `result` if that is given, else in scratch memory.
pub(super) fn sum_up(
    plan: &mut Builder,
    tree: &Tree,
    rank_of: impl Fn(u32) -> u32,
    mine: Blocks,
    result: Option<Blocks>,
) -> Blocks {
    let (mut sum, blocks) = (mine, mine.count);
    let children: Vec<u32> = tree.children().map(|child| rank_of(child.at)).collect();
    let many = children.len() as u32;
    if many == 0 {
        return sum;
    }
    let inbox = plan.scratch(Input, 0, many * blocks);
    let sums = plan.scratch(Input, 0, many.min(2) * blocks);
    for (at, &child) in (0..).zip(&children) {
        plan.recv(child, inbox.blocks(at * blocks, blocks));
    }
    for at in 0..many {
        let into = result.filter(|_| at + 1 == many).unwrap_or(sums.blocks(at % 2 * blocks, blocks));
        plan.reduce(sum, inbox.blocks(at * blocks, blocks), into);
        sum = into;
    }
    sum
}

/// Adds steps by which this rank, `rank`, combines the vectors of `ranks` from left to right (`order.rs`). It
/// receives each vector except its own, `mine`. Returns where the sum lies: in `result`, if that is given and
/// `ranks` has several ranks; otherwise in scratch memory, or in `mine` if there is no other rank.
pub(super) fn sum_in_order(
    plan: &mut Builder,
    ranks: impl ExactSizeIterator<Item = u32>,
    rank: u32,
    mine: Blocks,
    result: Option<Blocks>,
) -> Blocks {
    let mut scratch = || plan.scratch(mine.buffer, mine.first, mine.count).blocks(0, mine.count);
    // One process sums, so more inboxes or sums would save nothing.
    let (inboxes, sums) = ([(); 2].map(|()| scratch()), [(); 2].map(|()| scratch()));
    let (many, mut sum) = (ranks.len(), None);
    for (at, from) in ranks.enumerate() {
        let operand = if from == rank { mine } else { inboxes[at % 2] };
        if from != rank {
            plan.recv(from, operand);
        }
        sum = Some(match sum {
            None => operand,
            Some(left) => {
                let into = result.filter(|_| at + 1 == many).unwrap_or(sums[at % 2]);
                plan.reduce(left, operand, into);
                into
            }
        });
    }
    sum.expect("there is a rank")
}

/// Adds steps that sum the vectors of this node by shares: each leader of the node sums one share, in the
/// order of ranks. Returns where this rank's sum lies; None if the rank is no leader.
pub(super) fn sum_shares(plan: &mut Builder, nodes: &Nodes) -> Option<VectorPart> {
    let vector = VectorPart::whole(Input);
    let mine = (nodes.position < nodes.leaders()).then(|| nodes.share(nodes.position));
    for (leader, share) in nodes.shares().filter(|(_, share)| mine.as_ref() != Some(share)) {
        plan.send(leader, vector.at(&share));
    }
    let mine = mine?;
    let (local, here) = (nodes.local().iter().copied(), nodes.local()[nodes.position as usize]);
    let sum = sum_in_order(plan, local, here, vector.at(&mine), None);
    Some(VectorPart { buffer: sum.buffer, offset: sum.first, first: mine.start })
}

/// Reduction by nodes: vectors go up a binomial tree in each node, then up a binomial tree of the nodes'
/// leaders. If the operator is not commutative, rank 0 is the top, as in `binomial`.
pub fn nodes(params: &Params) -> Schedule {
    let &Params { rank, root, commutative, .. } = params;
    let mut plan = builder(params, 1);
    let (nodes, top) = (Nodes::of(params), if commutative { root } else { 0 });
    let (team, leader) = (nodes.local_team(), nodes.position_of(nodes.leader(nodes.here, top)));
    let tree = team.tree(leader);
    let mut sum = sum_up(&mut plan, &tree, |member| team.at(leader, member), Input.block(0), None);
    if let Some(parent) = tree.parent {
        plan.send(team.at(leader, parent), sum);
    } else {
        let (team, first) = (nodes.leaders_team(top), nodes.node(top));
        let tree = team.tree(first);
        let result = (rank == top && rank == root).then_some(Output.block(0));
        sum = sum_up(&mut plan, &tree, |member| team.at(first, member), sum, result);
        match tree.parent {
            Some(parent) => plan.send(team.at(first, parent), sum),
            None if rank != root => plan.send(root, sum),
            None => plan.copy(sum, Output.block(0)),
        };
    }
    if rank == root && rank != top {
        plan.recv(top, Output.block(0));
    }
    plan.finish()
}

/// Reduction by nodes with several leaders in each. Each leader sums a share of its node's vectors, and
/// reduces it with its partners on the other nodes (`rabenseifner`). The ranks of the root's node send the
/// shares to the root. It keeps the order if the ranks of each node are consecutive.
pub fn nodes_split(params: &Params) -> Schedule {
    let &Params { rank, root, .. } = params;
    let nodes = Nodes::of(params);
    let mut plan = builder(params, nodes.split_blocks());
    let (output, at_root) = (VectorPart::whole(Output), nodes.node(root) == nodes.here);
    if let Some(sum) = sum_shares(&mut plan, &nodes) {
        let (team, share) = (nodes.column(), nodes.share(nodes.position));
        let result = match at_root {
            true if rank == root => Some(output),
            true => Some(VectorPart::scratch(&mut plan, &share)),
            false => None,
        };
        rabenseifner_among(&mut plan, (&team, nodes.node(root)), share.clone(), sum, result);
        if let Some(result) = result.filter(|_| rank != root) {
            plan.send(root, result.at(&share));
        }
    }
    if rank == root {
        for (leader, share) in nodes.shares().filter(|(leader, _)| *leader != root) {
            plan.recv(leader, output.at(&share));
        }
    }
    plan.finish()
}

/// Reduction along two chains of ranks that meet at the root. A rank passes on each byte of the sum as soon
/// as it has it. No algorithm moves fewer bytes. It keeps the order of ranks.
pub fn chain(params: &Params) -> Schedule {
    let &Params { rank, size, root, .. } = params;
    let mut plan = builder(params, 1);
    let mut sum = Input.block(0);
    let mut steps = Vec::new();
    if rank >= root && rank + 1 < size {
        steps.push((rank + 1, false));
    }
    if rank <= root && rank > 0 {
        steps.push((rank - 1, true));
    }
    let last = steps.len();
    for (number, (from, from_left)) in (1..).zip(steps) {
        let inbox = plan.scratch(Input, 0, 1).block(0);
        let into =
            if rank == root && number == last { Output.block(0) } else { plan.scratch(Input, 0, 1).block(0) };
        plan.recv(from, inbox);
        let (left, right) = if from_left { (inbox, sum) } else { (sum, inbox) };
        plan.reduce(left, right, into);
        sum = into;
    }
    if rank == root {
        plan.copy(sum, Output.block(0));
    } else {
        plan.send(if rank > root { rank - 1 } else { rank + 1 }, sum);
    }
    plan.finish()
}

/// Reduction by a reduce-scatter with recursive halving, then a binomial gather to the root, as in
/// Rabenseifner 2004. It keeps the order of ranks.
pub fn rabenseifner(params: &Params) -> Schedule {
    let &Params { rank, size, root, .. } = params;
    let mut plan = builder(params, size);
    let (mine, result) = (VectorPart::whole(Input), (rank == root).then_some(VectorPart::whole(Output)));
    rabenseifner_among(&mut plan, (&Team::all(params), root), 0..size, mine, result);
    plan.finish()
}

/// Adds the steps of `rabenseifner` among the members of a team, for the blocks `all` of the vector. `mine`
/// is this member's vector. The member `root` gets the sum in `result`, which is None at all other members.
fn rabenseifner_among(
    plan: &mut Builder,
    (team, root): (&Team, u32),
    all: Range<u32>,
    mine: VectorPart,
    result: Option<VectorPart>,
) {
    let fold = Fold::new(team.size(), root);
    let active = match fold.role(team.me) {
        FoldRole::Active(active) => active,
        FoldRole::Folded(partner) => {
            plan.send(team.rank(partner), mine.at(&all));
            return;
        }
    };
    let vector = halving::fold_in(plan, fold, team, &all, mine);
    let FoldRole::Active(top) = fold.role(root) else { unreachable!("the root was chosen") };
    let ranges = fold.ranges(active, all.clone());
    // The gather undoes the rounds, from the last one on. A rank sends in the round whose bit parts it from
    // the root.
    let parting = (ranges.len() - 1).min((32 - (active ^ top).leading_zeros()) as usize);
    let held = &ranges[parting];
    let gathered = result.unwrap_or_else(|| VectorPart::scratch(plan, held));
    halving::reduce_scatter(plan, (fold, team, active), &all, vector, gathered);
    for (round, hop) in fold.hops().enumerate().collect::<Vec<_>>().into_iter().rev() {
        let partner = team.rank(fold.member_of(active ^ hop));
        if round + 1 == parting && result.is_none() {
            plan.send(partner, gathered.at(held));
            break;
        }
        let (low, high) = halving::halves(&ranges[round]);
        let theirs = if ranges[round + 1] == low { high } else { low };
        plan.recv(partner, gathered.at(&theirs));
    }
}
