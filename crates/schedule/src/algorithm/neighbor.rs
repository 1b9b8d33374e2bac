// SPDX-License-Identifier: BSD-3-Clause
//! Neighborhood collectives (MPI 5.0, section 8.6): each rank exchanges with all its neighbours at once.
//!
//! `Input` is one block for all destinations (the forms of MPI_Neighbor_allgather) or a block for each;
//! `Output` is a block for each source. The order of several messages between two processes tells them apart.
use crate::build::Builder;
use crate::{
    BufferId::{Input, Output},
    Schedule,
};
use std::collections::VecDeque;

/// The neighbours of a rank: to whom it sends, and from whom it receives, in the order of its blocks. `None`
/// is MPI_PROC_NULL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neighbors {
    /// The rank whose neighbours these are.
    pub rank: u32,
    /// The number of ranks in the comm.
    pub size: u32,
    /// The ranks to which the rank sends, one for each block of its input.
    pub to: Vec<Option<u32>>,
    /// The ranks from which the rank receives, one for each block of its output.
    pub from: Vec<Option<u32>>,
    /// Whether both lists are one list of pairs, the two neighbours in each dimension of a Cartesian grid. A
    /// block sent in one direction arrives from the other, also where both neighbours are the same process.
    /// Otherwise the k-th message to a process is the k-th that it receives from this rank.
    pub paired: bool,
}

impl Neighbors {
    /// Makes the rank's plan. With `same` all neighbours get the same block, otherwise each gets one of its
    /// own.
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

    /// Returns the block that the rank receives as number `at`, so that the messages of each neighbour are
    /// taken in the order in which it sends them.
    fn in_order(&self, at: u32) -> u32 {
        if self.paired { at ^ 1 } else { at }
    }
}
