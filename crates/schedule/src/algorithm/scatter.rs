// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Scatter, MPI_Scatterv: the buffer `Input` has a block for each rank, and only the root has this
//! buffer. `Output` is one block. In place (only at the root) the root's `Output` is its block of `Input`,
//! and the root's schedule names only `Input`.
use super::team::Nodes;
use super::{Params, Piece, Tree, cyclic, runs};
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

/// Scatter in one round: the root sends a block to every other rank.
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

/// Scatter down a binomial tree: the root sends log2(n) messages. A subtree that wraps around the last rank
/// takes two messages, since its blocks are not adjacent.
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

/// Scatter by nodes: blocks go down a binomial tree of the nodes' leaders, the blocks of a subtree as one
/// message. Then each leader sends the ranks of its node their blocks.
pub fn nodes(params: &Params) -> Schedule {
    let &Params { rank, root, .. } = params;
    let mut plan = builder(params);
    let nodes = Nodes::of(params);
    let leader = nodes.leader(nodes.here, root);
    if rank != leader {
        plan.recv(leader, Output.block(0));
        return plan.finish();
    }
    let (team, top) = (nodes.leaders_team(root), nodes.node(root));
    let tree = team.tree(top);
    if rank == root {
        for child in tree.children().rev() {
            let ranks = nodes.subtree(top, child.at, child.span);
            let (to, pieces, many) = (team.at(top, child.at), runs(&ranks), ranks.len() as u32);
            if let [piece] = &pieces[..] {
                plan.send(to, Input.blocks(piece.first, piece.count));
                continue;
            }
            let packed = plan.scratch(Input, 0, many);
            for Piece { offset, first, count } in pieces {
                plan.copy(Input.blocks(first, count), packed.blocks(offset, count));
            }
            plan.send(to, packed.blocks(0, many));
        }
        for other in nodes.others() {
            plan.send(other, Input.block(other));
        }
        plan.copy(Input.block(rank), Output.block(0));
        return plan.finish();
    }
    let all = nodes.subtree(top, tree.me, tree.span).len() as u32;
    let held = if all > 1 { plan.scratch(Output, 0, all) } else { Output };
    plan.recv(team.at(top, tree.parent.expect("only the root has none")), held.blocks(0, all));
    let mut end = all;
    for child in tree.children().rev() {
        let many = nodes.subtree(top, child.at, child.span).len() as u32;
        end -= many;
        plan.send(team.at(top, child.at), held.blocks(end, many));
    }
    for other in nodes.others() {
        plan.send(other, held.block(nodes.position_of(other)));
    }
    plan.copy(held.block(nodes.position), Output.block(0));
    plan.finish()
}
