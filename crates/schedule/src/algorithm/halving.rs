// SPDX-License-Identifier: BSD-3-Clause
//! Recursive halving (Rabenseifner 2004) that keeps the order of ranks, for reduce, allreduce and
//! reduce_scatter.
//!
//! A rank exchanges with its nearest partner first. So it always combines parts of consecutive ranks, and the
//! operator need not be commutative. The price: the sum of a block ends at the rank with the bit-reversed
//! number, not at the rank with the block's number.
use super::team::Team;
use crate::build::Builder;
use crate::{Blocks, BufferId};
use std::ops::Range;

/// Says how a team is reduced to a power of two of active members. In each pair among the first `2 * extra`
/// members, one gives its vector to the other, and takes no part in the rounds.
#[derive(Clone, Copy)]
pub struct Fold {
    /// How many members of the team take part in the rounds (stay active), a power of two.
    pub active_members: u32,
    extra: u32,
    /// The member that takes part in the rounds (stays active), whatever pair it is in.
    chosen: u32,
}

/// Whether a member takes part in the rounds, or gives its vector to its partner before them.
pub enum FoldRole {
    /// The member takes part in the rounds, as the active member with this number.
    Active(u32),
    /// The member gives its vector to this member, its partner in the pair, and takes no part in the rounds.
    Folded(u32),
}

impl Fold {
    /// Plans which members of a team of `size` members take part in the rounds (stay active). The member
    /// `chosen` does.
    pub fn new(size: u32, chosen: u32) -> Fold {
        let active_members = 1 << size.ilog2();
        Fold { active_members, extra: size - active_members, chosen }
    }

    /// Returns which member of the team takes part in the rounds as active member number `active`.
    pub fn member_of(self, active: u32) -> u32 {
        match active {
            pair if pair < self.extra => 2 * pair + u32::from(2 * pair + 1 == self.chosen),
            _ => active + self.extra,
        }
    }

    pub fn role(self, member: u32) -> FoldRole {
        let active = if member < 2 * self.extra { member / 2 } else { member - self.extra };
        if self.member_of(active) == member {
            FoldRole::Active(active)
        } else {
            FoldRole::Folded(self.member_of(active))
        }
    }

    /// Returns the other member of the pair to which the member `member` belongs. None if it is in no pair.
    pub fn partner(self, member: u32) -> Option<u32> {
        (member < 2 * self.extra).then_some(member ^ 1)
    }

    /// Returns for each round the distance between partners, in numbers of active members: 1, 2, 4, ...
    pub fn hops(self) -> impl DoubleEndedIterator<Item = u32> {
        (0..self.active_members.ilog2()).map(|bit| 1 << bit)
    }

    /// Returns the blocks that an active member still reduces: before each round, and after the last one.
    pub fn ranges(self, active: u32, all: Range<u32>) -> Vec<Range<u32>> {
        let half = |range: &Range<u32>, hop| {
            let (low, high) = halves(range);
            if active & hop == 0 { low } else { high }
        };
        let rest = self.hops().scan(all.clone(), |range, hop| {
            *range = half(range, hop);
            Some(range.clone())
        });
        std::iter::once(all.clone()).chain(rest).collect()
    }

    /// Returns the member that has the sum of the block `block` after the last round, if the vector has
    /// `blocks` blocks.
    pub fn owner(self, block: u32, blocks: u32) -> u32 {
        let (mut range, mut active) = (0..blocks, 0);
        for hop in self.hops() {
            let (low, high) = halves(&range);
            if low.contains(&block) {
                range = low;
            } else {
                (range, active) = (high, active | hop);
            }
        }
        self.member_of(active)
    }
}

/// Cuts a range into its lower and its upper half.
pub fn halves(range: &Range<u32>) -> (Range<u32>, Range<u32>) {
    let middle = range.start + (range.end - range.start) / 2;
    (range.start..middle, middle..range.end)
}

/// Says where a part of the vector lies. Block `first` of the vector is block `offset` of `buffer`; the
/// blocks after it follow.
#[derive(Clone, Copy)]
pub struct VectorPart {
    pub buffer: BufferId,
    pub offset: u32,
    pub first: u32,
}

impl VectorPart {
    /// Returns the part of a buffer that holds the whole vector.
    pub fn whole(buffer: BufferId) -> VectorPart {
        VectorPart { buffer, offset: 0, first: 0 }
    }

    /// Adds a scratch buffer with room for the blocks `range` of the vector. Returns the part of the vector
    /// that this buffer will hold.
    pub fn scratch(plan: &mut Builder, range: &Range<u32>) -> VectorPart {
        let buffer = plan.scratch(BufferId::Input, range.start, range.end - range.start);
        VectorPart { buffer, offset: 0, first: range.start }
    }

    /// Returns where the blocks `range` of the vector lie.
    pub fn at(self, range: &Range<u32>) -> Blocks {
        self.buffer.blocks(self.offset + range.start - self.first, range.end - range.start)
    }
}

/// Adds the steps of the first round where the team's size is no power of two: this active member combines
/// its partner's vector with its own. Returns where the sum lies, which is `mine` if the member has no
/// partner.
pub fn fold_in(
    plan: &mut Builder,
    fold: Fold,
    team: &Team,
    all: &Range<u32>,
    mine: VectorPart,
) -> VectorPart {
    let Some(partner) = fold.partner(team.me) else { return mine };
    let (inbox, sum) = (VectorPart::scratch(plan, all), VectorPart::scratch(plan, all));
    plan.recv(team.rank(partner), inbox.at(all));
    let (left, right) = if partner < team.me { (inbox, mine) } else { (mine, inbox) };
    plan.reduce(left.at(all), right.at(all), sum.at(all));
    sum
}

/// Adds the steps by which the active members reduce the blocks `all` of their vectors. Each active member
/// gets the sum of some blocks in `result`: of the last range in `fold.ranges(active, all)`.
pub fn reduce_scatter(
    plan: &mut Builder,
    (fold, team, active): (Fold, &Team, u32),
    all: &Range<u32>,
    mut vector: VectorPart,
    result: VectorPart,
) {
    let ranges = fold.ranges(active, all.clone());
    for (round, hop) in (1..).zip(fold.hops()) {
        let partner = team.rank(fold.member_of(active ^ hop));
        let keep = &ranges[round];
        let (low, high) = halves(&ranges[round - 1]);
        let give = if *keep == low { high } else { low };
        let inbox = VectorPart::scratch(plan, keep);
        let sum = if round + 1 == ranges.len() { result } else { VectorPart::scratch(plan, keep) };
        plan.send(partner, vector.at(&give));
        plan.recv(partner, inbox.at(keep));
        let (left, right) = if active & hop == 0 { (vector, inbox) } else { (inbox, vector) };
        plan.reduce(left.at(keep), right.at(keep), sum.at(keep));
        vector = sum;
    }
    if fold.active_members == 1 {
        plan.copy(vector.at(all), result.at(all));
    }
}
