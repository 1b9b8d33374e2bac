//! MPI_Scatter, MPI_Scatterv: `Input` is n blocks and exists on the root only; `Output` is one block. In
//! place (root only): the root's `Output` is its block of `Input`; its plan names only `Input`.
use super::{Params, Tree, cyclic};
use crate::build::{Alias, Builder};
use crate::{
    BufferId::{Input, Output},
    Schedule,
};

fn builder(params: &Params) -> Builder {
    let &Params { rank, size, root, in_place, .. } = params;
    let plan = Builder::new(rank, size, if rank == root { size } else { 0 }, 1);
    plan.alias(if in_place && rank == root { Alias::OutputIsInputBlock(rank) } else { Alias::None })
}

/// The root to all ranks at once.
pub fn linear(params: &Params) -> Schedule {
    let &Params { rank, size, root, .. } = params;
    let mut plan = builder(params);
    if rank == root {
        for to in (1..size).map(|hop| (root + hop) % size) {
            plan.send(to, Input.block(to));
        }
        plan.copy(Input.block(rank), Output.block(0));
    } else {
        plan.recv(root, Output.block(0));
    }
    plan.finish()
}

/// Binomial tree: log2(n) messages at the root, two for a subtree that wraps around the last rank.
pub fn binomial(params: &Params) -> Schedule {
    let &Params { rank, size, root, .. } = params;
    let mut plan = builder(params);
    let tree = Tree::new(params.relative(), size);
    let Some(parent) = tree.parent else {
        for child in tree.children().rev() {
            let to = params.absolute(child.at);
            for piece in cyclic(to, child.span, size) {
                plan.send(to, Input.blocks(piece.first, piece.count));
            }
        }
        plan.copy(Input.block(rank), Output.block(0));
        return plan.finish();
    };
    let held = if tree.span > 1 { plan.scratch(Output, 0, tree.span) } else { Output };
    if parent == 0 {
        for piece in cyclic(rank, tree.span, size) {
            plan.recv(root, held.blocks(piece.offset, piece.count));
        }
    } else {
        plan.recv(params.absolute(parent), held.blocks(0, tree.span));
    }
    for child in tree.children().rev() {
        plan.send(params.absolute(child.at), held.blocks(child.at - tree.me, child.span));
    }
    plan.copy(held.block(0), Output.block(0));
    plan.finish()
}
