//! MPI_Reduce: `Input` is the vector; `Output` exists on the root only, cut alike. In place (root only): the
//! root's vector is `Output`; its plan names only that.
use super::halving::{self, Fold, Role, VectorPart};
use super::{Params, Tree};
use crate::build::{Alias, Builder};
use crate::{
    Blocks,
    BufferId::{Input, Output},
    Schedule,
};

fn builder(params: &Params, blocks: u32) -> Builder {
    let &Params { rank, size, root, in_place, .. } = params;
    let plan = Builder::new(rank, size, blocks, if rank == root { blocks } else { 0 });
    plan.alias(if in_place && rank == root { Alias::Same } else { Alias::None })
}

/// Binomial tree: log2(n) rounds of the whole vector. Where order matters, rank 0 is the root of the tree,
/// and the result takes one more hop to the call's root.
pub fn binomial(params: &Params) -> Schedule {
    let &Params { rank, size, root, commutative, .. } = params;
    let mut plan = builder(params, 1);
    let top = Params { root: if commutative { root } else { 0 }, ..*params };
    let tree = Tree::new(top.relative(), size);
    let result = (tree.parent.is_none() && rank == root).then_some(Output.block(0));
    let sum = sum_up(&mut plan, &tree, |member| top.absolute(member), 1, result);
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

/// Combines the vector of `blocks` blocks with those of the children in the tree, in the order of the tree's
/// members, whose ranks `rank_of` gives. The sum lies in `result`, if that is given and there are children.
pub(super) fn sum_up(
    plan: &mut Builder,
    tree: &Tree,
    rank_of: impl Fn(u32) -> u32,
    blocks: u32,
    result: Option<Blocks>,
) -> Blocks {
    let mut sum = Input.blocks(0, blocks);
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

/// Two pipelined chains that meet at the root: the least traffic, and the order is kept.
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

/// Rabenseifner 2004: reduce-scatter by recursive halving, then a binomial gather to the root. Keeps the
/// order.
pub fn rabenseifner(params: &Params) -> Schedule {
    let &Params { rank, size, root, .. } = params;
    let mut plan = builder(params, size);
    let fold = Fold::new(size, root);
    let active = match fold.role(rank) {
        Role::Active(active) => active,
        Role::Folded(partner) => {
            plan.send(partner, Input.blocks(0, size));
            return plan.finish();
        }
    };
    let vector = halving::fold_in(&mut plan, fold, params, size);
    let Role::Active(top) = fold.role(root) else { unreachable!("the root was chosen") };
    let ranges = fold.ranges(active, size);
    // The gather undoes the rounds, the last one first. A rank sends in the round whose bit parts it from the
    // root.
    let parting = (ranges.len() - 1).min((32 - (active ^ top).leading_zeros()) as usize);
    let held = &ranges[parting];
    let result = if rank == root {
        VectorPart { buffer: Output, first: 0 }
    } else {
        VectorPart::scratch(&mut plan, held)
    };
    halving::reduce_scatter(&mut plan, fold, active, size, vector, result);
    for (round, hop) in fold.hops().enumerate().collect::<Vec<_>>().into_iter().rev() {
        let partner = fold.rank(active ^ hop);
        if round + 1 == parting && rank != root {
            plan.send(partner, result.at(held));
            break;
        }
        let (low, high) = halving::halves(&ranges[round]);
        let theirs = if ranges[round + 1] == low { high } else { low };
        plan.recv(partner, result.at(&theirs));
    }
    plan.finish()
}
