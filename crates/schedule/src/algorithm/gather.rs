//! MPI_Gather, MPI_Gatherv: `Input` is one block; `Output` is n blocks and exists on the root only. In place
//! (root only): the root's `Input` is its block of `Output`; its plan names only `Output`.
use super::{Params, Tree, cyclic};
use crate::build::{Alias, Builder};
use crate::{
    BufferId::{Input, Output},
    Schedule,
};

fn builder(params: &Params) -> Builder {
    let &Params { rank, size, root, in_place, .. } = params;
    let plan = Builder::new(rank, size, 1, if rank == root { size } else { 0 });
    plan.alias(if in_place && rank == root { Alias::InputIsOutputBlock(rank) } else { Alias::None })
}

/// All ranks to the root at once.
pub fn linear(params: &Params) -> Schedule {
    let &Params { rank, size, root, .. } = params;
    let mut plan = builder(params);
    if rank == root {
        plan.copy(Input.block(0), Output.block(rank));
        for from in (1..size).map(|hop| (root + hop) % size) {
            plan.recv(from, Output.block(from));
        }
    } else {
        plan.send(root, Input.block(0));
    }
    plan.finish()
}

/// Binomial tree: log2(n) messages at the root. Inner ranks collect their subtree in scratch; the root
/// receives into `Output`, so a subtree that wraps around the last rank comes as two messages.
pub fn binomial(params: &Params) -> Schedule {
    let &Params { rank, size, root, .. } = params;
    let mut plan = builder(params);
    let tree = Tree::new(params.relative(), size);
    let Some(parent) = tree.parent else {
        plan.copy(Input.block(0), Output.block(rank));
        for child in tree.children() {
            let from = params.absolute(child.at);
            for piece in cyclic(from, child.span, size) {
                plan.recv(from, Output.blocks(piece.first, piece.count));
            }
        }
        return plan.finish();
    };
    let mut collected = Input;
    if tree.span > 1 {
        collected = plan.scratch(Input, 0, tree.span);
        plan.copy(Input.block(0), collected.block(0));
        for child in tree.children() {
            plan.recv(params.absolute(child.at), collected.blocks(child.at - tree.me, child.span));
        }
    }
    if parent == 0 {
        for piece in cyclic(rank, tree.span, size) {
            plan.send(root, collected.blocks(piece.offset, piece.count));
        }
    } else {
        plan.send(params.absolute(parent), collected.blocks(0, tree.span));
    }
    plan.finish()
}
