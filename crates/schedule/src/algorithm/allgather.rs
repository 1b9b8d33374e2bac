// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Allgather, MPI_Allgatherv: the buffer `Input` is one block, `Output` is n blocks, one from each of the
//! n ranks. In place, `Input` is this rank's block of `Output`, and schedules name only `Output`.
use super::team::Nodes;
use super::{Params, cyclic, powers_of_two_below, runs};
use crate::build::{Alias, Builder};
use crate::{
    BufferId::{Input, Output},
    Schedule,
};

fn empty(&Params { rank, size, in_place, .. }: &Params) -> Builder {
    let plan = Builder::new(rank, size, 1, size);
    plan.alias(if in_place { Alias::InputIsOutputBlock(rank) } else { Alias::None })
}

/// Starts a schedule. Its first step copies this rank's block to `Output`.
fn builder(params: &Params) -> Builder {
    let mut plan = empty(params);
    plan.copy(Input.block(0), Output.block(params.rank));
    plan
}

/// Allgather by the concatenation of Bruck et al. 1997, without the final rotation. In the round of `hop` (1,
/// 2, 4, ...) a rank has the blocks of `hop` ranks, its own first, and sends them to the rank whose number is
/// `hop` lower. Blocks that wrap around the last rank take two messages.
pub fn bruck(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    for hop in powers_of_two_below(size) {
        let count = hop.min(size - hop);
        let (to, from) = ((rank + size - hop) % size, (rank + hop) % size);
        if hop == 1 {
            plan.send(to, Input.block(0));
        } else {
            for piece in cyclic(rank, count, size) {
                plan.send(to, Output.blocks(piece.first, piece.count));
            }
        }
        for piece in cyclic(from, count, size) {
            plan.recv(from, Output.blocks(piece.first, piece.count));
        }
    }
    plan.finish()
}

/// Allgather in a ring (Thakur et al. 2005): each block goes around the ring once, so every link carries each
/// byte once. A rank passes on each byte as soon as it has it.
pub fn ring(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    for round in 0..size - 1 {
        let outgoing = if round == 0 { Input.block(0) } else { Output.block((rank + size - round) % size) };
        plan.send(right, outgoing);
        plan.recv(left, Output.block((left + size - round) % size));
    }
    plan.finish()
}

/// Allgather in one round: every rank sends its block to every other rank.
pub fn linear(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    for hop in 1..size {
        plan.send((rank + hop) % size, Input.block(0));
        let from = (rank + size - hop) % size;
        plan.recv(from, Output.block(from));
    }
    plan.finish()
}

/// Allgather by nodes: blocks go to the leader of each node, from there to all leaders by `bruck`, and then
/// down a binomial tree in each node. If the ranks of a node are not consecutive, their blocks take several
/// messages.
pub fn nodes(params: &Params) -> Schedule {
    let nodes = Nodes::of(params);
    let (team, whole) = (nodes.local_team(), Output.blocks(0, params.size));
    let tree = team.tree(0);
    let mut plan = if nodes.position == 0 { builder(params) } else { empty(params) };
    if let Some(parent) = tree.parent {
        plan.send(nodes.local()[0], Input.block(0));
        plan.recv(team.rank(parent), whole);
    } else {
        for other in nodes.others() {
            plan.recv(other, Output.block(other));
        }
        let (here, count) = (nodes.here, nodes.count());
        for hop in powers_of_two_below(count) {
            let many = hop.min(count - hop);
            let (to, from) = ((here + count - hop) % count, (here + hop) % count);
            for piece in runs(&nodes.subtree(here, 0, many)) {
                plan.send(nodes.members(to)[0], Output.blocks(piece.first, piece.count));
            }
            for piece in runs(&nodes.subtree(from, 0, many)) {
                plan.recv(nodes.members(from)[0], Output.blocks(piece.first, piece.count));
            }
        }
    }
    for child in tree.children().rev() {
        plan.send(team.rank(child.at), whole);
    }
    plan.finish()
}

/// Allgather by nodes with several leaders in each node. Each leader takes a share of its node's blocks. The
/// leaders with the same number form a ring, in which the shares go around. Each leader passes the blocks
/// that it receives on to its node. All leaders use the network at once.
pub fn nodes_split(params: &Params) -> Schedule {
    let rank = params.rank;
    let mut plan = builder(params);
    let nodes = Nodes::of(params);
    let (leaders, count, here) = (nodes.leaders(), nodes.count(), nodes.here);
    let exchanger = |node: u32, of: u32| nodes.members(node)[(nodes.position_of(of) % leaders) as usize];
    for other in nodes.others() {
        plan.send(other, Input.block(0));
    }
    for other in nodes.others() {
        plan.recv(other, Output.block(other));
    }
    let (left, right) = ((here + count - 1) % count, (here + 1) % count);
    for round in 0..count - 1 {
        for &of in nodes.members((here + count - round) % count) {
            if exchanger(here, of) == rank {
                plan.send(exchanger(right, of), Output.block(of));
            }
        }
        for &of in nodes.members((left + count - round) % count) {
            let by = exchanger(here, of);
            if by != rank {
                plan.recv(by, Output.block(of));
                continue;
            }
            plan.recv(exchanger(left, of), Output.block(of));
            for other in nodes.others() {
                plan.send(other, Output.block(of));
            }
        }
    }
    plan.finish()
}
