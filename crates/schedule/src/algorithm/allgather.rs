//! MPI_Allgather, MPI_Allgatherv: `Input` is one block, `Output` n blocks. In place: `Input` is this rank's
//! block of `Output`; plans name only `Output`.
use super::{Params, cyclic, powers_of_two_below};
use crate::build::{Alias, Builder};
use crate::{
    BufferId::{Input, Output},
    Schedule,
};

/// A plan that begins with the copy of this rank's block to `Output`.
fn builder(&Params { rank, size, in_place, .. }: &Params) -> Builder {
    let plan = Builder::new(rank, size, 1, size);
    let mut plan = plan.alias(if in_place { Alias::InputIsOutputBlock(rank) } else { Alias::None });
    plan.copy(Input.block(0), Output.block(rank));
    plan
}

/// Concatenation of Bruck et al. 1997, without the final rotation: before the round of `hop` a rank has the
/// blocks of the `hop` ranks from itself on, where they stay. A range that wraps around the last rank takes
/// two messages.
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

/// Ring (Thakur et al. 2005): each block goes around once, streaming, so every link carries each byte once.
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

/// All ranks to all ranks at once.
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
