// SPDX-License-Identifier: BSD-3-Clause
//! The binomial tree over 0..size: the children of `v` are `v + hop` for powers of two below the lowest set
//! bit of `v`, and the subtree of each child is the range up to the next child.

/// One rank's position in the tree.
pub struct Tree {
    pub me: u32,
    pub parent: Option<u32>,
    /// The number of ranks, from `me` on, in its subtree.
    pub span: u32,
}

/// A child and its subtree `at..at + span`.
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

    /// The children, the nearest and smallest first.
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
