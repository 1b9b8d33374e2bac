// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Alltoall, MPI_Alltoallv, MPI_Alltoallw: the buffers `Input` and `Output` are n blocks each. In place
//! both are one buffer, cut into the same blocks, and schedules name only `Output`.
use super::team::Nodes;
use super::{Params, Piece, powers_of_two_below, runs};
use crate::build::{Alias, Builder, Token};
use crate::{
    Blocks,
    BufferId::{self, Input, Output},
    Schedule,
};

/// The number of rounds of `pairwise` that may be under way at once. With two, the next round's latency
/// passes while the bytes of the present one move.
const ROUNDS_AT_ONCE: usize = 2;

fn builder(&Params { rank, size, in_place, .. }: &Params) -> Builder {
    let plan = Builder::new(rank, size, size, size);
    plan.alias(if in_place { Alias::Same } else { Alias::None })
}

/// All-to-all in one round: every rank sends to every other rank. In place, the blocks to send are first
/// copied to scratch memory.
pub fn linear(params: &Params) -> Schedule {
    let &Params { rank, size, in_place, .. } = params;
    let mut plan = builder(params);
    plan.copy(Input.block(rank), Output.block(rank));
    let mut source = Input;
    if in_place && size > 1 {
        source = plan.scratch(Output, 0, size);
        for peer in (0..size).filter(|&peer| peer != rank) {
            plan.copy(Output.block(peer), source.block(peer));
        }
    }
    for hop in 1..size {
        let (to, from) = ((rank + hop) % size, (rank + size - hop) % size);
        plan.send(to, source.block(to));
        plan.recv(from, Output.block(from));
    }
    plan.finish()
}

/// All-to-all by pairwise exchange (Thakur et al. 2005): a rank has one partner in each round, so that no
/// receiver is overrun. For MPI_Alltoall.
pub fn pairwise(params: &Params) -> Schedule {
    if params.in_place {
        // Blocks are equal, so scratch for the rounds under way is enough.
        return exchange(
            params,
            |plan| plan.scratch(Output, 0, ROUNDS_AT_ONCE as u32),
            |round, _| round % ROUNDS_AT_ONCE as u32,
        );
    }
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    plan.copy(Input.block(rank), Output.block(rank));
    let mut rounds = [[Token::NOTHING; 2]; ROUNDS_AT_ONCE];
    for hop in 1..size {
        let (to, from) = ((rank + hop) % size, (rank + size - hop) % size);
        let round = &mut rounds[hop as usize % ROUNDS_AT_ONCE];
        let earlier = *round;
        *round = [
            plan.send_after(to, Input.block(to), &earlier),
            plan.recv_after(from, Output.block(from), &earlier),
        ];
    }
    plan.finish()
}

/// All-to-all by pairwise exchange (`pairwise`) of blocks with different lengths, for MPI_Alltoallv and
/// MPI_Alltoallw.
pub fn pairwise_unequal(params: &Params) -> Schedule {
    if params.in_place {
        return exchange(params, |plan| plan.scratch(Output, 0, params.size), |_, peer| peer);
    }
    pairwise(params)
}

/// Returns the schedule of an exchange in place: in round k two ranks exchange blocks if the sum of their
/// numbers is k modulo n. So in each round a rank sends the block that it then overwrites. `scratch` adds a
/// buffer for copies of the blocks to send; `block` says which block of it a round and a peer use.
fn exchange(
    params: &Params,
    scratch: impl Fn(&mut Builder) -> BufferId,
    block: impl Fn(u32, u32) -> u32,
) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    if size == 1 {
        return plan.finish();
    }
    let aside = scratch(&mut plan);
    let mut rounds = [[Token::NOTHING; 2]; ROUNDS_AT_ONCE];
    let partners = (0..size).map(|sum| (sum + size - rank) % size).filter(|&peer| peer != rank);
    for (number, peer) in (0..).zip(partners) {
        let kept = aside.block(block(number, peer));
        plan.copy(Output.block(peer), kept);
        let round = &mut rounds[number as usize % ROUNDS_AT_ONCE];
        let earlier = *round;
        *round = [plan.send_after(peer, kept, &earlier), plan.recv_after(peer, Output.block(peer), &earlier)];
    }
    plan.finish()
}

/// All-to-all by the index operation of Bruck et al. 1997: log2(n) messages of about n/2 blocks. A block for
/// the rank at distance j makes one hop for each binary digit 1 of j. It is meant for short blocks of equal
/// length.
pub fn bruck(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = builder(params);
    let mut held: Vec<_> = (0..size).map(|j| Input.block((rank + j) % size)).collect();
    for hop in powers_of_two_below(size) {
        let moving: Vec<u32> = (0..size).filter(|j| j & hop != 0).collect();
        let all = moving.len() as u32;
        let packed = plan.scratch(Output, 0, all);
        let arrived = plan.scratch(Output, 0, all);
        // Adjacent blocks that stay adjacent take one copy.
        let mut at = 0;
        while at < all {
            let from = held[moving[at as usize] as usize];
            let same = |more: u32| {
                held[moving[(at + more) as usize] as usize] == Blocks { first: from.first + more, ..from }
            };
            let count = 1 + (1..all - at).take_while(|&more| same(more)).count() as u32;
            plan.copy(Blocks { count, ..from }, packed.blocks(at, count));
            at += count;
        }
        plan.send((rank + hop) % size, packed.blocks(0, all));
        plan.recv((rank + size - hop) % size, arrived.blocks(0, all));
        for (at, &j) in (0..).zip(&moving) {
            held[j as usize] = arrived.block(at);
        }
    }
    for j in 0..size {
        plan.copy(held[j as usize], Output.block((rank + size - j) % size));
    }
    plan.finish()
}

/// All-to-all by nodes, for short blocks of equal length: for each other node one rank collects the blocks
/// that its node sends there, and exchanges them as one message. These tasks are dealt out to the ranks of
/// the node.
pub fn nodes(params: &Params) -> Schedule {
    let rank = params.rank;
    let mut plan = builder(params);
    let nodes = Nodes::of(params);
    let (here, count, local) = (nodes.here, nodes.count(), nodes.local());
    let rows = local.len() as u32;
    plan.copy(Input.block(rank), Output.block(rank));
    // In place the blocks to be sent are copied first, since arriving blocks overwrite them.
    let mut source = Input;
    if params.in_place && params.size > 1 {
        source = plan.scratch(Output, 0, params.size);
        plan.copy(Output.blocks(0, params.size), source.blocks(0, params.size));
    }
    for other in nodes.others() {
        plan.send(other, source.block(other));
    }
    for other in nodes.others() {
        plan.recv(other, Output.block(other));
    }
    // Each pair of nodes that this rank carries has a part of these: blocks by sender, then by receiver, and
    // the blocks that came once more, by receiver, then by sender.
    let pairs = (1..count).map(|hop| (here + hop) % count);
    let exchanged = pairs.clone().filter(|&there| nodes.exchanger(here, there) == rank);
    let all = exchanged.map(|there| rows * nodes.members(there).len() as u32).sum();
    let [collected, arrived, sorted] = [(); 3].map(|()| plan.scratch(Output, 0, all));
    let mut base = 0;
    for there in pairs {
        let (ranks, exchanger) = (nodes.members(there), nodes.exchanger(here, there));
        let columns = ranks.len() as u32;
        if exchanger != rank {
            for Piece { first, count, .. } in runs(ranks) {
                plan.send(exchanger, source.blocks(first, count));
                plan.recv(exchanger, Output.blocks(first, count));
            }
            continue;
        }
        for (row, &from) in (0..).zip(local) {
            for Piece { offset, first, count } in runs(ranks) {
                let into = collected.blocks(base + row * columns + offset, count);
                if from == rank {
                    plan.copy(source.blocks(first, count), into);
                } else {
                    plan.recv(from, into);
                }
            }
        }
        let (partner, many) = (nodes.exchanger(there, here), rows * columns);
        plan.send(partner, collected.blocks(base, many));
        plan.recv(partner, arrived.blocks(base, many));
        for (row, &to) in (0..).zip(local) {
            let from = |column: u32| arrived.block(base + column * rows + row);
            for (column, &sender) in (0..).zip(ranks).filter(|_| to == rank) {
                plan.copy(from(column), Output.block(sender));
            }
            if to == rank {
                continue;
            }
            let at = base + row * columns;
            for column in 0..columns {
                plan.copy(from(column), sorted.block(at + column));
            }
            for Piece { offset, count, .. } in runs(ranks) {
                plan.send(to, sorted.blocks(at + offset, count));
            }
        }
        base += many;
    }
    plan.finish()
}
