// SPDX-License-Identifier: BSD-3-Clause
//! The binomial tree over the ranks 0..size. The children of a rank `v` are `v + hop`, for the powers of two
//! `hop` below the lowest set bit of `v`. The subtree of each child is the range of ranks up to the next
//! child.

/// The place of one rank in a binomial tree. Ranks are numbered from the top, which is 0.
pub struct Tree {
    pub me: u32,
    pub parent: Option<u32>,
    /// The number of ranks in this rank's subtree: the ranks from `me` on.
    pub span: u32,
}

/// A child in a binomial tree: the rank `at`. Its subtree is the ranks `at..at + span`.
#[derive(Clone, Copy)]
pub struct Child {
    pub at: u32,
    pub span: u32,
}

impl Tree {
    pub fn new(me: u32, size: u32) -> Tree {
        let low = if me == 0 { size } else { 1 << me.trailing_zeros() };
        Tree { me, parent: (me > 0).then(|| me - low), span: low.min(size - me) }
    }

    /// Returns this rank's children in the tree, the nearest first. The nearest has the smallest subtree.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = Child> + use<> {
        let (me, span) = (self.me, self.span);
        let hops: Vec<u32> = powers_of_two_below(span).collect();
        hops.into_iter().map(move |hop| Child { at: me + hop, span: hop.min(span - hop) })
    }
}

/// Returns the powers of two 1, 2, 4, ... that are below `end`.
pub fn powers_of_two_below(end: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1u32), |hop| hop.checked_mul(2)).take_while(move |&hop| hop < end)
}
