// SPDX-License-Identifier: BSD-3-Clause
//! The binomial tree over 0..size: the children of `v` are `v + hop` for powers of two below the lowest set
//! bit of `v`, and the subtree of each child is the range up to the next child.

/// The place of one rank in the tree, in which ranks are numbered from the top.
pub struct Tree {
    pub me: u32,
    pub parent: Option<u32>,
    /// How many ranks this rank's subtree has: those from `me` on.
    pub span: u32,
}

/// A child in the tree: the rank `at`, whose subtree is the ranks `at..at + span`.
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

    /// Returns the children of this rank, the nearest first, which has the smallest subtree.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = Child> + use<> {
        let (me, span) = (self.me, self.span);
        let hops: Vec<u32> = powers_of_two_below(span).collect();
        hops.into_iter().map(move |hop| Child { at: me + hop, span: hop.min(span - hop) })
    }
}

/// The powers of two 1, 2, 4, ... below `end`.
pub fn powers_of_two_below(end: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1u32), |hop| hop.checked_mul(2)).take_while(move |&hop| hop < end)
}
