//! All collective algorithms: one file per collective, one function per algorithm, one table of all.
//!
//! A plan depends only on what MPI makes equal on all ranks, besides the rank itself. Slots and partitions are told at the head of
//! each file; `Schedule::{input_blocks, output_blocks}` of the plan hold for that rank (0: the slot is not named).
//! Where a vector (bcast, reduce, allreduce) has `size` blocks, the executor cuts it near-equally at element borders;
//! blocks may be empty.
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
mod tree;

pub use neighbor::Neighbors;
pub use table::{ALGORITHMS, Algorithm, Collective, Facts, Growth, Symmetry};
use tree::Tree;

/// What a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Params {
    /// The rank whose plan it is.
    pub rank: u32,
    /// Ranks in the comm.
    pub size: u32,
    /// The root; 0 where there is none.
    pub root: u32,
    /// MPI_IN_PLACE was passed. Rooted collectives look at it on the root only.
    pub in_place: bool,
    /// The operator may be applied in any order.
    pub commutative: bool,
    /// Ranks in the first group of an intercommunicator, which come first; 0 on an intracommunicator.
    pub first_group: u32,
}

impl Params {
    /// Root 0, not in place, commutative, one group.
    pub fn new(rank: u32, size: u32) -> Params {
        Params { rank, size, root: 0, in_place: false, commutative: true, first_group: 0 }
    }

    /// How far this rank lies behind the root.
    fn relative(&self) -> u32 {
        (self.rank + self.size - self.root) % self.size
    }

    /// The rank that lies so far behind the root.
    fn absolute(&self, relative: u32) -> u32 {
        (relative + self.root) % self.size
    }
}

/// 1, 2, 4, ... below `end`.
fn powers_of_two_below(end: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1u32), |hop| hop.checked_mul(2)).take_while(move |&hop| hop < end)
}

/// A part of a cyclic range of blocks that does not wrap: `count` blocks from `first` on, `offset` into the range.
struct Piece {
    offset: u32,
    first: u32,
    count: u32,
}

/// The one or two pieces of the `count` blocks from `first` on, of `size`.
fn cyclic(first: u32, count: u32, size: u32) -> impl Iterator<Item = Piece> {
    let head = count.min(size - first);
    [Piece { offset: 0, first, count: head }, Piece { offset: head, first: 0, count: count - head }]
        .into_iter()
        .filter(|piece| piece.count > 0)
}
