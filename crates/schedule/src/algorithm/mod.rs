// SPDX-License-Identifier: BSD-3-Clause
//! All collective algorithms: one file per collective, one function per algorithm, one table of all.
//!
//! A plan depends on the rank and on what MPI makes equal on all ranks. The head of each file says how
//! buffers are cut into blocks. `Schedule::{input_blocks, output_blocks}` hold for that rank (0: the plan
//! does not name the buffer). Where a vector (bcast, reduce, allreduce) has `size` blocks, the executor cuts
//! it into near-equal parts between elements; blocks may be empty.
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

/// The facts about a call and a rank on which that rank's plan depends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Params {
    /// The rank that carries out the plan.
    pub rank: u32,
    /// The number of ranks in the comm.
    pub size: u32,
    /// The rank of the root; 0 in collectives without a root.
    pub root: u32,
    /// Whether MPI_IN_PLACE was passed. Rooted collectives look at it on the root only.
    pub in_place: bool,
    /// Whether the operator may be applied in any order.
    pub commutative: bool,
    /// How many ranks the first group of an intercommunicator has, which come first. It is 0 on an
    /// intracommunicator.
    pub first_group: u32,
    /// On which node each rank is. None if all are on one node, or each is on its own.
    pub nodes: Option<Arc<NodeMap>>,
}

impl Params {
    /// Makes parameters for an intracommunicator without nodes, with root 0, not in place and with a
    /// commutative operator.
    pub fn new(rank: u32, size: u32) -> Params {
        Params { rank, size, root: 0, in_place: false, commutative: true, first_group: 0, nodes: None }
    }

    /// Returns how far this rank comes after the root, cyclically.
    fn relative(&self) -> u32 {
        (self.rank + self.size - self.root) % self.size
    }

    /// Returns all other ranks, from the next one on, so that not all ranks begin with the same.
    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |hop| (rank + hop) % size)
    }

    /// Returns the rank that comes `relative` ranks after the root, cyclically.
    fn absolute(&self, relative: u32) -> u32 {
        (relative + self.root) % self.size
    }
}

/// Consecutive blocks in a list of blocks: `count` blocks from block `first` on, which are at index `offset`
/// of the list.
struct Piece {
    offset: u32,
    first: u32,
    count: u32,
}

/// Divides a list of blocks into pieces of consecutive blocks.
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

/// Returns the one or two pieces that make up `count` blocks from `first` on, modulo `size`.
fn cyclic(first: u32, count: u32, size: u32) -> impl Iterator<Item = Piece> {
    let head = count.min(size - first);
    [Piece { offset: 0, first, count: head }, Piece { offset: head, first: 0, count: count - head }]
        .into_iter()
        .filter(|piece| piece.count > 0)
}
