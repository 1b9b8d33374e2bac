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

/// The facts on which a plan depends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Params {
    /// The rank whose plan it is.
    pub rank: u32,
    /// The number of ranks in the comm.
    pub size: u32,
    /// The root; 0 where there is none.
    pub root: u32,
    /// Whether MPI_IN_PLACE was passed. Rooted collectives look at it on the root only.
    pub in_place: bool,
    /// Whether the operator may be applied in any order.
    pub commutative: bool,
    /// The ranks in the first group of an intercommunicator, which come first; 0 on an intracommunicator.
    pub first_group: u32,
    /// The nodes of the ranks; None if all are on one node, or each on its own.
    pub nodes: Option<Arc<NodeMap>>,
}

impl Params {
    /// The parameters with root 0, not in place, commutative, one group, no nodes.
    pub fn new(rank: u32, size: u32) -> Params {
        Params { rank, size, root: 0, in_place: false, commutative: true, first_group: 0, nodes: None }
    }

    /// This rank, counted from the root.
    fn relative(&self) -> u32 {
        (self.rank + self.size - self.root) % self.size
    }

    /// All other ranks, from the next one on, so that not all ranks begin with the same.
    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |hop| (rank + hop) % size)
    }

    /// The rank with this number, counted from the root.
    fn absolute(&self, relative: u32) -> u32 {
        (relative + self.root) % self.size
    }
}

/// A part of a list of blocks whose blocks are consecutive: `count` blocks from `first`, at `offset` of the
/// list.
struct Piece {
    offset: u32,
    first: u32,
    count: u32,
}

/// The pieces of a list of blocks.
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

/// The one or two pieces of `count` blocks from `first`, modulo `size`.
fn cyclic(first: u32, count: u32, size: u32) -> impl Iterator<Item = Piece> {
    let head = count.min(size - first);
    [Piece { offset: 0, first, count: head }, Piece { offset: head, first: 0, count: count - head }]
        .into_iter()
        .filter(|piece| piece.count > 0)
}
