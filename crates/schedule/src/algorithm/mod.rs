// SPDX-License-Identifier: BSD-3-Clause
//! All collective algorithms: one file for each collective, one function for each algorithm, and one table of
//! all (`table.rs`). A function makes the schedule (the plan) of one rank.
//!
//! A schedule depends on the rank and on arguments that are equal on all ranks. The head of each file says
//! how the buffers `Input` and `Output` are cut into blocks. A schedule that names no block of a buffer
//! states 0 blocks for it. A vector to be reduced that has a block for each rank is cut by the executor:
//! between elements, into blocks of nearly equal length, some of which may be empty.
//!
//! Papers cited by several files: Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication
//! Operations in MPICH"; Rabenseifner 2004, "Optimization of Collective Reduction Operations"; Bruck et al.
//! 1997, "Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems".
mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod bcast;
mod exscan;
mod gather;
mod halving;
mod inter;
mod neighbor;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod table;
mod team;
mod tree;

pub use neighbor::Neighbors;
pub use table::{ALGORITHMS, Algorithm, AlgorithmFacts, Collective, Growth, Symmetry};
use tree::{Tree, powers_of_two_below};

use crate::NodeMap;
use std::sync::Arc;

/// What one rank's schedule of a collective depends on: facts about the call, and the rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Params {
    /// The rank for which the schedule is made.
    pub rank: u32,
    /// The number of ranks in the comm.
    pub size: u32,
    /// The rank of the root; 0 in collectives without a root.
    pub root: u32,
    /// Whether MPI_IN_PLACE was passed. Rooted collectives look at it on the root only.
    pub in_place: bool,
    /// Whether the operator is commutative, so that contributions may be combined in any order.
    pub commutative: bool,
    /// The number of ranks in the first group of an intercommunicator. Their numbers come first. It is 0 on
    /// an intracommunicator.
    pub first_group: u32,
    /// The map of ranks to nodes. None if all ranks are on one node, or each is on its own.
    pub nodes: Option<Arc<NodeMap>>,
}

impl Params {
    /// Makes parameters for an intracommunicator: root 0, not in place, a commutative operator, and no map of
    /// nodes.
    pub fn new(rank: u32, size: u32) -> Params {
        Params { rank, size, root: 0, in_place: false, commutative: true, first_group: 0, nodes: None }
    }

    /// Returns how many ranks after the root this rank comes. After the last rank, rank 0 follows.
    fn relative(&self) -> u32 {
        (self.rank + self.size - self.root) % self.size
    }

    /// Returns all other ranks, from the next rank on. So each rank begins with a different one, which
    /// spreads the load.
    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |hop| (rank + hop) % size)
    }

    /// Returns the rank that comes `relative` ranks after the root. After the last rank, rank 0 follows.
    fn absolute(&self, relative: u32) -> u32 {
        (relative + self.root) % self.size
    }
}

/// A run of consecutive numbers in a list of block numbers: `count` numbers from `first` on. The run begins
/// at index `offset` of the list.
struct Piece {
    offset: u32,
    first: u32,
    count: u32,
}

/// Divides a list of block numbers into runs of consecutive numbers.
fn runs(blocks: &[u32]) -> Vec<Piece> {
    let mut pieces = Vec::<Piece>::new();
    for (offset, &block) in (0..).zip(blocks) {
        match pieces.last_mut() {
            Some(piece) if piece.first + piece.count == block => piece.count += 1,
            _ => pieces.push(Piece { offset, first: block, count: 1 }),
        }
    }
    pieces
}

/// Returns the runs of consecutive numbers in the list of `count` blocks from `first` on, where block 0
/// follows block `size - 1`. There are two runs if the blocks go past block `size - 1`, else one.
fn cyclic(first: u32, count: u32, size: u32) -> impl Iterator<Item = Piece> {
    let head = count.min(size - first);
    [Piece { offset: 0, first, count: head }, Piece { offset: head, first: 0, count: count - head }]
        .into_iter()
        .filter(|piece| piece.count > 0)
}
