// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Gather, MPI_Gatherv: the buffer `Input` is one block. `Output` is n blocks, and only the root has it.
//! In place (only at the root) the root's `Input` is its block of `Output`, and the root's schedule names
//! only `Output`.
use super::team::Nodes;
use super::{Params, Piece, Tree, cyclic, runs};
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

/// Gather in one round: every rank sends its block to the root.
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

/// Gather up a binomial tree: log2(n) messages at the root. Inner ranks collect the blocks of their subtree
/// in scratch memory. A subtree that wraps around the last rank takes two messages at the root.
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

/// Gather by nodes: blocks go to the leader of each node, then up a binomial tree of the leaders. A leader
/// sends the blocks of its subtree as one message.
pub fn nodes(params: &Params) -> Schedule {
    let &Params { rank, root, .. } = params;
    let mut plan = builder(params);
    let nodes = Nodes::of(params);
    let leader = nodes.leader(nodes.here, root);
    if rank != leader {
        plan.send(leader, Input.block(0));
        return plan.finish();
    }
    let (team, top) = (nodes.leaders_team(root), nodes.node(root));
    let tree = team.tree(top);
    if rank == root {
        plan.copy(Input.block(0), Output.block(rank));
        for other in nodes.others() {
            plan.recv(other, Output.block(other));
        }
        for child in tree.children() {
            let from = team.at(top, child.at);
            let ranks = nodes.subtree(top, child.at, child.span);
            let (pieces, many) = (runs(&ranks), ranks.len() as u32);
            if let [piece] = &pieces[..] {
                plan.recv(from, Output.blocks(piece.first, piece.count));
                continue;
            }
            let inbox = plan.scratch(Input, 0, many);
            plan.recv(from, inbox.blocks(0, many));
            for Piece { offset, first, count } in pieces {
                plan.copy(inbox.blocks(offset, count), Output.blocks(first, count));
            }
        }
        return plan.finish();
    }
    let all = nodes.subtree(top, tree.me, tree.span);
    let collected = if all.len() > 1 { plan.scratch(Input, 0, all.len() as u32) } else { Input };
    plan.copy(Input.block(0), collected.block(nodes.position));
    for other in nodes.others() {
        plan.recv(other, collected.block(nodes.position_of(other)));
    }
    let mut at = nodes.local().len() as u32;
    for child in tree.children() {
        let many = nodes.subtree(top, child.at, child.span).len() as u32;
        plan.recv(team.at(top, child.at), collected.blocks(at, many));
        at += many;
    }
    let parent = tree.parent.expect("only the root has none");
    plan.send(team.at(top, parent), collected.blocks(0, all.len() as u32));
    plan.finish()
}
