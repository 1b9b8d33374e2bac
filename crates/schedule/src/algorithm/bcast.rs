// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Bcast: the user's buffer is `Output`, also on the root. MPI_IN_PLACE is not allowed.
use super::team::{Nodes, Team};
use super::{Params, Tree};
use crate::build::Builder;
use crate::{BufferId::Output, Schedule};

/// Broadcast down a binomial tree: log2(n) rounds of the whole message. An inner rank passes on each byte as
/// soon as it has it.
pub fn binomial(params: &Params) -> Schedule {
    let mut plan = Builder::new(params.rank, params.size, 0, 1);
    let tree = Tree::new(params.relative(), params.size);
    if let Some(parent) = tree.parent {
        plan.recv(params.absolute(parent), Output.block(0));
    }
    for child in tree.children().rev() {
        plan.send(params.absolute(child.at), Output.block(0));
    }
    plan.finish()
}

/// Broadcast by a binomial scatter, then a ring allgather (van de Geijn; Thakur et al. 2005): every rank
/// sends and receives the message about once, in n rounds. Blocks that a rank has from the scatter are not
/// sent to it again.
pub fn scatter_ring(params: &Params) -> Schedule {
    let mut plan = Builder::new(params.rank, params.size, 0, params.size);
    scatter_ring_among(&mut plan, &Team::all(params), params.root, 0);
    plan.finish()
}

/// Adds the steps of `scatter_ring` among the members of a team, from the member `root`. The message is one
/// block for each member, from block `base` on.
fn scatter_ring_among(plan: &mut Builder, team: &Team, root: u32, base: u32) {
    let (tree, size) = (team.tree(root), team.size());
    let me = tree.me;
    if let Some(parent) = tree.parent {
        plan.recv(team.at(root, parent), Output.blocks(base + me, tree.span));
    }
    for child in tree.children().rev() {
        plan.send(team.at(root, child.at), Output.blocks(base + child.at, child.span));
    }
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    let right_span = Tree::new(right, size).span;
    for round in 0..size - 1 {
        let outgoing = (me + size - round) % size;
        if !(right..right + right_span).contains(&outgoing) {
            plan.send(team.at(root, right), Output.block(base + outgoing));
        }
        let incoming = (left + size - round) % size;
        if !(me..me + tree.span).contains(&incoming) {
            plan.recv(team.at(root, left), Output.block(base + incoming));
        }
    }
}

/// Broadcast by nodes: the message goes down a binomial tree of the nodes' leaders, then down a tree in each
/// node.
pub fn nodes(params: &Params) -> Schedule {
    let mut plan = Builder::new(params.rank, params.size, 0, 1);
    let nodes = Nodes::of(params);
    let (team, leader) = (nodes.local_team(), nodes.position_of(nodes.leader(nodes.here, params.root)));
    let tree = team.tree(leader);
    if let Some(parent) = tree.parent {
        plan.recv(team.at(leader, parent), Output.block(0));
    } else {
        let (team, first) = (nodes.leaders_team(params.root), nodes.node(params.root));
        let tree = team.tree(first);
        if let Some(parent) = tree.parent {
            plan.recv(team.at(first, parent), Output.block(0));
        }
        for child in tree.children().rev() {
            plan.send(team.at(first, child.at), Output.block(0));
        }
    }
    for child in tree.children().rev() {
        plan.send(team.at(leader, child.at), Output.block(0));
    }
    plan.finish()
}

/// Broadcast by nodes with several leaders in each. The root gives each leader of its node a share of the
/// message. Each of these leaders sends its share to its partners on the other nodes (`scatter_ring`). Then
/// all leaders give their shares to their nodes.
pub fn nodes_split(params: &Params) -> Schedule {
    let &Params { rank, root, .. } = params;
    let nodes = Nodes::of(params);
    let mut plan = Builder::new(rank, params.size, 0, nodes.split_blocks());
    let at_root = nodes.node(root) == nodes.here;
    let blocks = |place: u32| Output.blocks(place * nodes.count(), nodes.count());
    if rank == root {
        for (place, (leader, _)) in (0..).zip(nodes.shares()).filter(|(_, (leader, _))| *leader != root) {
            plan.send(leader, blocks(place));
        }
    }
    if nodes.position < nodes.leaders() {
        if at_root && rank != root {
            plan.recv(root, blocks(nodes.position));
        }
        let base = nodes.position * nodes.count();
        scatter_ring_among(&mut plan, &nodes.column(), nodes.node(root), base);
    }
    for (place, (leader, _)) in (0..).zip(nodes.shares()) {
        if leader == rank {
            for other in nodes.others().filter(|other| *other != root) {
                plan.send(other, blocks(place));
            }
        } else if rank != root {
            plan.recv(leader, blocks(place));
        }
    }
    plan.finish()
}

/// Broadcast along a chain of ranks: the least work for each rank, but n - 1 hops of latency. A rank passes
/// on each byte as soon as it has it.
pub fn chain(params: &Params) -> Schedule {
    let mut plan = Builder::new(params.rank, params.size, 0, 1);
    let me = params.relative();
    if me > 0 {
        plan.recv(params.absolute(me - 1), Output.block(0));
    }
    if me + 1 < params.size {
        plan.send(params.absolute(me + 1), Output.block(0));
    }
    plan.finish()
}
