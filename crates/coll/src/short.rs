// SPDX-License-Identifier: BSD-3-Clause
//! Short collectives: what a member gives and takes in a call over slots, and how many rounds that takes.
//!
//! Invariants: whether a call is short, and its number of rounds, follow from what all members know alike.
//!
//! Read next: `set.rs` (the slots), `round.rs` (what a member does with a short call in a round).

use crate::call::{Call, Part};
use datatype::{Basic, Buffer, PredefinedOp};
use executor::Reduction;
use schedule::algorithm::Collective;
use std::ops::Range;
use sys::Span;

/// Longest contribution of a member, and the most that a member reads of all; pulled calls have `PULLED_MAX`.
pub const SHORT_MAX: usize = 1 << 20;
pub(crate) const BYTES_MAX: u64 = SHORT_MAX as u64;
/// The most that a member of a pulled call reads of all: meanwhile it makes no progress elsewhere.
pub(crate) const PULLED_MAX: u64 = 4 << 20;
/// Above so many bytes of all members an allreduce takes two rounds.
pub(crate) const FLAT_MAX: u64 = 8 << 10;
/// The same where members share cpus, so that each round costs a yield.
pub(crate) const CROWDED_FLAT_MAX: u64 = 32 << 10;
/// Each member reads the slots of all, so for more members a schedule of logarithmic depth is faster.
pub(crate) const MEMBERS_MAX: usize = 16;
// Members combine in the order of ranks, as schedules among so few do.
const _: () = assert!(MEMBERS_MAX as u32 <= schedule::order::IN_RANKS_MAX);

/// Whether a collective's long blocks can be pulled (`pull.rs`).
#[inline]
pub(crate) fn is_pullable(collective: Collective) -> bool {
    matches!(collective, Collective::Alltoall | Collective::Allgather)
}

/// Bytes that each member contributes, or the root does, to a call of so many bytes.
#[inline(always)]
pub(crate) fn contribution(collective: Collective, bytes: u64, members: usize) -> u64 {
    match collective {
        Collective::Scatter | Collective::Alltoall => bytes.saturating_mul(members as u64),
        _ => bytes,
    }
}

/// Which round of its call a member is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The only one.
    Whole,
    /// The first of a long allreduce: each member reduces its share, and leaves it in the others' slots.
    ReduceShares,
    /// The second: each member takes the others' shares from its own slot.
    GatherShares,
}

/// A collective over slots, as one member makes it.
#[derive(Clone, Debug)]
pub struct Short {
    /// The collective; none of those with a count for each member.
    pub collective: Collective,
    /// The round of the call.
    pub(crate) phase: Phase,
    /// The root's rank, or 0.
    pub root: usize,
    /// The vector of a broadcast or reduction, or one member's block: the length that this member expects.
    pub bytes: u64,
    /// The length that this member gives; `bytes` where it only receives.
    pub given: u64,
    /// What this member contributes.
    pub input: Buffer,
    /// Where the result goes. That of a reduction has no gaps.
    pub output: Buffer,
    /// The bytes of the vector that this member reduces.
    pub part: Range<usize>,
    /// Whether this member's block is in the output already.
    pub in_place: bool,
    /// Of a reduction.
    pub operator: Option<(PredefinedOp, Basic)>,
}

impl Short {
    /// A call without bytes.
    #[inline]
    pub fn new(collective: Collective) -> Short {
        Short {
            collective,
            phase: Phase::Whole,
            root: 0,
            bytes: 0,
            given: 0,
            input: Buffer::EMPTY,
            output: Buffer::EMPTY,
            part: 0..0,
            in_place: false,
            operator: None,
        }
    }

    /// A new one, filled.
    #[cfg(test)]
    pub(crate) fn of(call: &Call, rank: usize, members: usize) -> Option<Short> {
        let mut short = Short::new(call.collective);
        if short.fill(call, rank, members) { Some(short) } else { None }
    }

    /// Makes a new one the planned call among so many members of one group. Returns whether slots take it:
    /// all members come to the same answer. Reductions come without images.
    #[inline]
    pub fn fill(&mut self, call: &Call, rank: usize, members: usize) -> bool {
        use Collective::*;
        self.root = call.root as usize;
        match call.collective {
            Barrier => true,
            Bcast => {
                let Some(buffer) = call.output.whole() else { return false };
                (self.bytes, self.given) = (buffer.bytes() as u64, buffer.bytes() as u64);
                *(if rank == self.root { &mut self.input } else { &mut self.output }) = buffer.clone();
                true
            }
            Gather | Allgather => self.fill_blocks(call, rank, 1, members),
            Scatter => self.fill_blocks(call, rank, members, 1),
            Alltoall => self.fill_blocks(call, rank, members, members),
            Gatherv | Scatterv | Allgatherv | Alltoallv | Alltoallw => false,
            Reduce | Allreduce | ReduceScatter | ReduceScatterBlock | Scan | Exscan => {
                self.fill_vector(call, rank, members)
            }
        }
    }

    /// Input and output of `given` and `expected` blocks, which do not overlap. A missing one is
    /// MPI_IN_PLACE, or significant at the root only.
    #[inline]
    fn fill_blocks(&mut self, call: &Call, rank: usize, given: usize, expected: usize) -> bool {
        let (input, output) = (call.input.whole(), call.output.whole());
        let block = |part: Option<&Buffer>, blocks| part.map(|all| (all.bytes() / blocks) as u64);
        let (gives, expects) = (block(input, given), block(output, expected));
        let Some(bytes) = expects.or(gives) else { return false };
        (self.bytes, self.given) = (bytes, gives.unwrap_or(bytes));
        self.in_place =
            if self.collective == Collective::Scatter { output.is_none() } else { input.is_none() };
        if let Some(output) = output {
            self.output = output.clone();
        }
        match (input, self.collective) {
            (Some(input), _) => self.input = input.clone(),
            (None, Collective::Allgather) => {
                self.input = self.output.slice(rank * bytes as usize, bytes as usize)
            }
            (None, Collective::Alltoall) => self.input = self.output.clone(),
            (None, _) => (),
        }
        true
    }

    /// The operands of a reduction.
    #[inline]
    fn fill_vector(&mut self, call: &Call, rank: usize, members: usize) -> bool {
        let Some(Reduction::Predefined { op, basic, .. }) = call.reduction else { return false };
        let output = call.output.whole();
        let Some(input) = call.input.whole().or(output) else { return false };
        if input.contiguous().is_none() || output.is_some_and(|output| output.contiguous().is_none()) {
            return false;
        }
        let bytes = input.bytes();
        self.part = match &call.input {
            Part::CutAt { at, .. } => at[rank] as usize..at[rank + 1] as usize,
            Part::PerRank(_) => rank * (bytes / members)..(rank + 1) * (bytes / members),
            _ => 0..output.map_or(0, |_| bytes),
        };
        (self.bytes, self.given) = (bytes as u64, bytes as u64);
        (self.in_place, self.operator) = (call.in_place, Some((op, basic)));
        self.input = input.clone();
        if let Some(output) = output {
            self.output = output.clone();
        }
        true
    }

    /// Makes an allreduce take two rounds if the vectors of all members exceed `flat_max`. Then each member
    /// reduces only its share, and no member writes cache lines that several others hold.
    #[inline]
    pub(crate) fn choose_rounds(&mut self, rank: usize, members: usize, flat_max: u64) {
        if self.collective == Collective::Allreduce && self.bytes * members as u64 > flat_max {
            self.phase = Phase::ReduceShares;
            self.part = self.share(rank, members);
        }
    }

    /// The bytes of the vector that a member reduces in the first of two rounds: whole elements.
    pub(crate) fn share(&self, rank: usize, members: usize) -> Range<usize> {
        let element = self.operator.map_or(1, |(_, basic)| basic.size());
        let at = |rank| self.bytes as usize / element * rank / members * element;
        at(rank)..at(rank + 1)
    }

    /// Bytes that each member contributes, or the root does.
    #[inline]
    pub(crate) fn contribution(&self, members: usize) -> u64 {
        contribution(self.collective, self.bytes, members)
    }

    /// Where a member's block is among those of all.
    #[inline]
    pub(crate) fn block_of(&self, rank: usize) -> Range<usize> {
        let block = self.bytes as usize;
        rank * block..(rank + 1) * block
    }

    /// The bytes of this member's input that no other member reads from its slot.
    #[inline]
    pub(crate) fn unread(&self, rank: usize) -> Range<usize> {
        use Collective::*;
        match self.collective {
            Scatter | Alltoall => self.block_of(rank),
            ReduceScatter | ReduceScatterBlock if !self.in_place => self.part.clone(),
            Allreduce if self.phase == Phase::ReduceShares && !self.in_place => self.part.clone(),
            _ => 0..0,
        }
    }

    /// The members whose slots the one of this rank needs.
    #[inline]
    pub(crate) fn waits_for(&self, rank: usize, members: usize) -> Range<usize> {
        use Collective::*;
        match self.collective {
            Bcast | Scatter if rank == self.root => 0..0,
            Bcast | Scatter => self.root..self.root + 1,
            Gather | Reduce if rank != self.root => 0..0,
            Scan => 0..rank + 1,
            Exscan => 0..rank,
            _ => 0..members,
        }
    }
}

/// The allreduce of the fast path: vectors without gaps of a predefined type, which every member reduces
/// whole. Another member, or `Coll::begin` here, may go on with the same call as a `Short`: both publish the
/// same words. It owns nothing, so nothing is dropped.
#[derive(Clone, Copy, Debug)]
pub struct FlatAllreduce {
    /// The operator, and the type of the elements.
    pub operator: (PredefinedOp, Basic),
    /// This member's vector.
    pub input: Span,
    /// The result: as many bytes, the same as the input or disjoint from it.
    pub output: Span,
}

#[cfg(test)]
mod tests {
    use super::*;
    use Collective::*;

    #[test]
    fn shares_are_whole_elements_and_together_the_vector() {
        for (basic, members, elements) in
            [(Basic::U8, 3, 5), (Basic::U64, 7, 100), (Basic::C64, 16, 3), (Basic::F32I32, 2, 1)]
        {
            let bytes = (elements * basic.size()) as u64;
            let short = Short { bytes, operator: Some((PredefinedOp::Sum, basic)), ..Short::new(Allreduce) };
            let mut end = 0;
            for share in (0..members).map(|rank| short.share(rank, members)) {
                assert!(
                    share.start == end && share.start.is_multiple_of(basic.size()),
                    "{basic:?} {share:?}"
                );
                assert!(share.len() / basic.size() <= elements.div_ceil(members));
                end = share.end;
            }
            assert_eq!(end as u64, bytes);
        }
    }
}
