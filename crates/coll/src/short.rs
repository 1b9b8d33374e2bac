// SPDX-License-Identifier: BSD-3-Clause
//! Short collectives: what a member gives and takes in a call over slots, and how many rounds the call takes.
//!
//! Invariants: whether a call is short, and its number of rounds, follow from what all members know alike.
//!
//! Read next: `set.rs` (the slots), `round.rs` (what a member does with a short call in a round).

use crate::call::{Call, CollBuffer};
use datatype::{Basic, Buffer, PredefinedOp};
use executor::Reduction;
use schedule::algorithm::Collective;
use std::ops::Range;
use sys::Span;

/// The longest contribution of a member to its slot, in bytes, and the most bytes that a member reads in all
/// slots. Blocks that are read in the sender's memory may be longer (`PULLED_MAX`).
pub const SHORT_MAX: usize = 1 << 20;
pub(crate) const BYTES_MAX: u64 = SHORT_MAX as u64;
/// The most bytes that a member reads in other members' memory in one call. Meanwhile it makes no other
/// progress.
pub(crate) const PULLED_MAX: u64 = 4 << 20;
/// The total bytes of all members' vectors above which an allreduce takes two rounds.
pub(crate) const FLAT_MAX: u64 = 8 << 10;
/// The value of `FLAT_MAX` where members share cpus. There each round costs a yield, so one round is faster
/// up to longer vectors.
pub(crate) const CROWDED_FLAT_MAX: u64 = 32 << 10;
/// The most members that use slots. Each reads the slots of all, so for more members a schedule of
/// logarithmic depth is faster.
pub(crate) const MEMBERS_MAX: usize = 16;
// Members combine in the order of ranks, like schedules among so few ranks.
const _: () = assert!(MEMBERS_MAX as u32 <= schedule::order::IN_RANKS_MAX);

/// Whether members can read a collective's long blocks in each other's memory (`pull.rs`).
#[inline]
pub(crate) fn is_pullable(collective: Collective) -> bool {
    matches!(collective, Collective::Alltoall | Collective::Allgather)
}

/// Returns the bytes that each member (or only the root) contributes to a call whose vector or block has
/// `bytes` bytes.
#[inline(always)]
pub(crate) fn contribution(collective: Collective, bytes: u64, members: usize) -> u64 {
    match collective {
        Collective::Scatter | Collective::Alltoall => bytes.saturating_mul(members as u64),
        _ => bytes,
    }
}

/// Which of its rounds over slots a short call is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortPhase {
    /// The only round of a call that takes one round.
    Whole,
    /// The first round of a long allreduce: each member reduces its share of the vector, and writes the
    /// result into the others' slots.
    ReduceShares,
    /// The second round of a long allreduce: each member takes the others' shares from its own slot.
    GatherShares,
}

/// A short collective over shared slots, as one member makes it.
#[derive(Clone, Debug)]
pub struct Short {
    /// Which collective the call makes: any collective without a count for each member.
    pub collective: Collective,
    /// Which of its rounds the call is in.
    pub(crate) phase: ShortPhase,
    /// The root's rank; 0 in collectives without a root.
    pub root: usize,
    /// The length in bytes that this member expects: the length of the vector in a broadcast or reduction,
    /// otherwise of one member's block.
    pub bytes: u64,
    /// The length, in bytes, that this member gives; equal to `bytes` if the member only receives.
    pub given: u64,
    /// The memory with the bytes that this member contributes to the call.
    pub input: Buffer,
    /// The memory into which this member gets its result. The result of a reduction has no gaps.
    pub output: Buffer,
    /// The range of the vector's bytes that this member reduces: the whole vector, or its share if the call
    /// takes two rounds.
    pub part: Range<usize>,
    /// Whether the block that this member gives itself is in the output already (MPI_IN_PLACE).
    pub in_place: bool,
    /// The operator of a reduction and the type of its elements; None for other collectives.
    pub operator: Option<(PredefinedOp, Basic)>,
}

impl Short {
    /// Makes a call without bytes, which `fill` completes.
    #[inline]
    pub fn new(collective: Collective) -> Short {
        Short {
            collective,
            phase: ShortPhase::Whole,
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

    /// Makes a short call over slots from `call`. Returns None if slots do not take the call.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn of(call: &Call, rank: usize, members: usize) -> Option<Short> {
        let mut short = Short::new(call.collective);
        if short.fill(call, rank, members) { Some(short) } else { None }
    }

    /// Fills in this new value from `call`, made among `members` members of one group. Returns whether slots
    /// take the call, which is the same on all members. Reductions of elements with gaps do not come here.
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

    /// Fills in input and output, which consist of `given` and `expected` blocks. A missing buffer is
    /// MPI_IN_PLACE, or is significant only at the root. Returns false if both are missing.
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

    /// Fills in the operands and the operator of a reduction. Returns false if the program defined the
    /// operator, or if a buffer has gaps.
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
            CollBuffer::CutAt { at, .. } => at[rank] as usize..at[rank + 1] as usize,
            CollBuffer::PerRank(_) => rank * (bytes / members)..(rank + 1) * (bytes / members),
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

    /// Makes an allreduce take two rounds if the vectors of all members together exceed `flat_max` bytes.
    /// Then each member reduces only its share, and no member writes cache lines that several others hold.
    #[inline]
    pub(crate) fn choose_rounds(&mut self, rank: usize, members: usize, flat_max: u64) {
        if self.collective == Collective::Allreduce && self.bytes * members as u64 > flat_max {
            self.phase = ShortPhase::ReduceShares;
            self.part = self.share(rank, members);
        }
    }

    /// Returns the range of the vector's bytes that member `rank` reduces in the first of two rounds. The
    /// range consists of whole elements.
    pub(crate) fn share(&self, rank: usize, members: usize) -> Range<usize> {
        let element = self.operator.map_or(1, |(_, basic)| basic.size());
        let at = |rank| self.bytes as usize / element * rank / members * element;
        at(rank)..at(rank + 1)
    }

    /// Returns how many bytes each member, or only the root, contributes.
    #[inline]
    pub(crate) fn contribution(&self, members: usize) -> u64 {
        contribution(self.collective, self.bytes, members)
    }

    /// Returns where the block of member `rank` lies among the blocks of all members, as a range of bytes.
    #[inline]
    pub(crate) fn block_of(&self, rank: usize) -> Range<usize> {
        let block = self.bytes as usize;
        rank * block..(rank + 1) * block
    }

    /// Returns the range of this member's input, in bytes, that no other member reads from this member's
    /// slot.
    #[inline]
    pub(crate) fn unread(&self, rank: usize) -> Range<usize> {
        use Collective::*;
        match self.collective {
            Scatter | Alltoall => self.block_of(rank),
            ReduceScatter | ReduceScatterBlock if !self.in_place => self.part.clone(),
            Allreduce if self.phase == ShortPhase::ReduceShares && !self.in_place => self.part.clone(),
            _ => 0..0,
        }
    }

    /// Returns the range of members whose contributions member `rank` needs in this round.
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

/// The allreduce of the fast path: contiguous vectors of a predefined type, which every member reduces whole.
/// `Short` makes the same call in another form, and publishes the same words. So other members may make it as
/// a `Short`, and so may `Coll::start_round` when it continues this call.
#[derive(Clone, Copy, Debug)]
pub struct FlatAllreduce {
    /// The operator of the allreduce, and the type of the elements.
    pub operator: (PredefinedOp, Basic),
    /// The vector that this member contributes to the allreduce.
    pub input: Span,
    /// The memory of the result. It has as many bytes as the input, and is the same as the input or disjoint
    /// from it.
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
