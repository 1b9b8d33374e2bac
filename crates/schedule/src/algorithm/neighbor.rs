// SPDX-License-Identifier: BSD-3-Clause
//! Neighborhood collectives (MPI 5.0, section 8.6): each rank exchanges with all its neighbours at once.
//!
//! `Input` is a block for each destination, or one block for all of them (as in MPI_Neighbor_allgather).
//! `Output` is a block for each source. Several messages between two processes are told apart by their order.
use crate::build::Builder;
use crate::{
    BufferId::{Input, Output},
    Schedule,
};
use std::collections::VecDeque;

/// The neighbours of one rank: the ranks to which it sends and those from which it receives, in the order of
/// the rank's blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neighbors {
    /// The rank whose neighbours these are.
    pub rank: u32,
    /// The number of ranks in the comm.
    pub size: u32,
    /// For each block of the rank's input, the rank to which the block goes. None for MPI_PROC_NULL.
    pub to: Vec<Option<u32>>,
    /// For each block of the rank's output, the rank from which the block comes. None for MPI_PROC_NULL.
    pub from: Vec<Option<u32>>,
    /// Whether `to` and `from` are one list of pairs: the two neighbours in each dimension of a Cartesian
    /// grid. A block that is sent in one direction then arrives from the opposite direction. In other lists,
    /// messages between two processes match in the order in which they are sent.
    pub paired: bool,
}

impl Neighbors {
    /// Makes the rank's schedule. With `same` all neighbours get the same block, otherwise each gets a block
    /// of its own.
    pub fn plan(&self, same: bool) -> Schedule {
        let (all_to, all_from) = (self.to.len() as u32, self.from.len() as u32);
        let mut plan = Builder::new(self.rank, self.size, if same { 1 } else { all_to }, all_from);
        let mut to_myself = VecDeque::new();
        for (at, to) in (0..).zip(&self.to) {
            let block = Input.block(if same { 0 } else { at });
            match *to {
                Some(rank) if rank == self.rank => to_myself.push_back(block),
                Some(rank) => drop(plan.send(rank, block)),
                None => (),
            }
        }
        for at in (0..all_from).map(|at| self.in_order(at)) {
            match self.from[at as usize] {
                Some(rank) if rank == self.rank => {
                    let block = to_myself.pop_front().expect("as many messages to oneself as from oneself");
                    plan.copy(block, Output.block(at));
                }
                Some(rank) => drop(plan.recv(rank, Output.block(at))),
                None => (),
            }
        }
        plan.finish()
    }

    /// Returns which block of the output the rank's receive number `at` fills. In a grid the two blocks of
    /// each pair are swapped, so that the rank receives the messages of one neighbour in the order in which
    /// that neighbour sends them.
    fn in_order(&self, at: u32) -> u32 {
        if self.paired { at ^ 1 } else { at }
    }
}
