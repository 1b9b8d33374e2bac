//! A short collective, as a member makes it on slots (`flat.rs`): what it gives and wants, and whom it must wait for.

use crate::call::{Call, Part, meet};
use crate::pull::PULLED_MAX;
use datatype::{Basic, Buffer, PredefinedOp};
use executor::Reduction;
use schedule::algorithm::Collective;
use std::ops::Range;
use sys::Span;

/// Longest contribution of a member, and the most that a member reads of all, but for calls that are pulled.
pub const SHORT_MAX: usize = 1 << 20;
pub(crate) const BYTES_MAX: u64 = SHORT_MAX as u64;
/// The most that a member combines of all where it could leave most of it to the others, which takes another round. On an AMD EPYC an allreduce
/// of 2 ranks takes 0.44 us so instead of 0.66 for 8 KiB, 0.62 instead of 1.31 for 16 KiB.
pub(crate) const FLAT_MAX: u64 = 8 << 10;
/// The same where members share cpus, which they must leave to each other in each round: 4 ranks on 2 cpus took 4.2 us instead of 2.7 for 4 KiB.
pub(crate) const CROWDED_FLAT_MAX: u64 = 32 << 10;
/// Everybody reads everybody's place, so for more members a schedule's logarithm is less.
pub(crate) const MEMBERS_MAX: usize = 16;

/// A collective as slots takes it.
#[derive(Clone, Debug)]
pub struct Short {
    /// Which the program calls; those with a count for every member are none.
    pub name: Collective,
    /// Which this round is: not `name` only where a call takes two.
    pub(crate) collective: Collective,
    /// The root's rank, or 0.
    pub root: usize,
    /// The vector of a broadcast or reduction, or one member's block, as long as this member expects it to be.
    pub bytes: u64,
    /// The same, as long as this member gives it. Where it only receives: `bytes`.
    pub given: u64,
    /// What this member contributes.
    pub input: Buffer,
    /// Where this member wants the result. That of a reduction has no gaps.
    pub output: Buffer,
    /// The bytes of the vector that a reduction leaves with this member.
    pub part: Range<usize>,
    /// Whether this member's own block is in the output already.
    pub in_place: bool,
    /// Of a reduction.
    pub operator: Option<(PredefinedOp, Basic)>,
}

impl Short {
    /// A call without bytes.
    #[inline]
    pub fn new(collective: Collective) -> Short {
        Short {
            name: collective,
            collective,
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

    /// The same with buffers of one block or of one for each member, as `given` and `expected` say. Nothing stands for MPI_IN_PLACE, or for a
    /// buffer that counts on the root only. Nothing if the two have bytes in common.
    pub fn with_blocks(
        self,
        rank: usize,
        input: Option<Buffer>,
        given: usize,
        output: Option<Buffer>,
        expected: usize,
    ) -> Option<Short> {
        let block =
            |part: &Option<Buffer>, blocks| part.as_ref().map(|all| all.bytes() as u64 / blocks as u64);
        let (gives, expects) = (block(&input, given), block(&output, expected));
        let bytes = expects.or(gives)?;
        if input.as_ref().zip(output.as_ref()).is_some_and(|(input, output)| meet(input, output)) {
            return None;
        }
        let in_place =
            if self.collective == Collective::Scatter { output.is_none() } else { input.is_none() };
        let output = output.unwrap_or(Buffer::EMPTY);
        let input = match (input, self.collective) {
            (Some(input), _) => input,
            (None, Collective::Allgather) => output.slice(rank * bytes as usize, bytes as usize),
            (None, Collective::Alltoall) => output.clone(),
            (None, _) => Buffer::EMPTY,
        };
        Some(Short { bytes, given: gives.unwrap_or(bytes), input, output, in_place, ..self })
    }

    /// A planned call among so many members of one group; nothing if it is none for slots. Reductions come without images. All members come to the
    /// same answer.
    pub(crate) fn of(call: &Call, rank: usize, members: usize) -> Option<Short> {
        use Collective::*;
        let whole = |part: &Part| part.whole().cloned();
        let short = Short { root: call.root as usize, ..Short::new(call.collective) };
        let (input, output) = (whole(&call.input), whole(&call.output));
        match call.collective {
            Barrier => Some(short),
            Bcast => {
                let buffer = output?;
                let bytes = buffer.bytes() as u64;
                let (input, output) =
                    if rank == short.root { (buffer, Buffer::EMPTY) } else { (Buffer::EMPTY, buffer) };
                Some(Short { bytes, given: bytes, input, output, ..short })
            }
            Gather | Allgather => short.with_blocks(rank, input, 1, output, members),
            Scatter => short.with_blocks(rank, input, members, output, 1),
            Alltoall => short.with_blocks(rank, input, members, output, members),
            Gatherv | Scatterv | Allgatherv | Alltoallv | Alltoallw => None,
            Reduce | Allreduce | ReduceScatter | ReduceScatterBlock | Scan | Exscan => {
                let Some(Reduction::Predefined { op, basic, .. }) = call.reduction else { return None };
                let input = input.or_else(|| output.clone())?;
                let bytes = input.bytes();
                let part = match &call.input {
                    Part::CutAt { at, .. } => at[rank] as usize..at[rank + 1] as usize,
                    _ => 0..output.as_ref().map_or(0, |_| bytes),
                };
                let output = output.unwrap_or(Buffer::EMPTY);
                input.contiguous().and(output.contiguous())?;
                let (bytes, operator) = (bytes as u64, Some((op, basic)));
                Some(Short {
                    bytes,
                    given: bytes,
                    input,
                    output,
                    part,
                    in_place: call.in_place,
                    operator,
                    ..short
                })
            }
        }
    }

    /// Whether it fits the slots of so many members. All come to the same answer.
    #[inline]
    pub(crate) fn fits(&self, members: usize) -> bool {
        use Collective::*;
        let (times, most) = match self.collective {
            Bcast | Allreduce | ReduceScatter | ReduceScatterBlock => (1, BYTES_MAX),
            // If they are pulled.
            Alltoall | Allgather => (members as u64, PULLED_MAX),
            _ => (members as u64, BYTES_MAX),
        };
        (2..=MEMBERS_MAX).contains(&members) && self.bytes <= BYTES_MAX && self.bytes * times <= most
    }

    /// The two rounds of a reduction for all of which a member would combine more than `flat_max`: first each makes the sum of its share, which it
    /// leaves where the others had put up theirs; then each takes their sums there. So lines pass to and fro between two cores, and nobody writes lines that
    /// others have in their caches: on an AMD EPYC an allreduce of 1 MiB takes 37 us so, and 45 where cores are far apart, instead of 41 and 61.
    #[inline]
    pub fn halves(&self, rank: usize, members: usize, flat_max: u64) -> Option<(Short, Short)> {
        if self.collective != Collective::Allreduce || self.bytes * members as u64 <= flat_max {
            return None;
        }
        let part = self.share(rank, members);
        let sum = Short {
            collective: Collective::ReduceScatterBlock,
            input: self.input.clone(),
            output: self.output.slice(part.start, part.len()),
            part,
            ..*self
        };
        let spread = Short {
            collective: Collective::Allgather,
            input: Buffer::EMPTY,
            output: self.output.clone(),
            part: 0..0,
            in_place: true,
            ..*self
        };
        Some((sum, spread))
    }

    /// Whether it is the first of two rounds.
    #[inline]
    pub(crate) fn is_first_half(&self) -> bool {
        self.name == Collective::Allreduce && self.collective == Collective::ReduceScatterBlock
    }

    /// Whether it is the second of two rounds.
    #[inline]
    pub(crate) fn is_second_half(&self) -> bool {
        self.name == Collective::Allreduce && self.collective == Collective::Allgather
    }

    /// The bytes of the vector of which a member makes the sum in the first of two rounds: whole elements.
    pub(crate) fn share(&self, rank: usize, members: usize) -> Range<usize> {
        let element = self.operator.map_or(1, |(_, basic)| basic.size());
        let at = |rank| self.bytes as usize / element * rank / members * element;
        at(rank)..at(rank + 1)
    }

    /// Bytes that each member contributes, or the root does.
    #[inline]
    pub(crate) fn contribution(&self, members: usize) -> u64 {
        match self.collective {
            Collective::Scatter | Collective::Alltoall => self.bytes * members as u64,
            _ => self.bytes,
        }
    }

    /// Where this member's own block is among those of all.
    #[inline]
    pub(crate) fn own_block(&self, rank: usize) -> Range<usize> {
        let block = self.bytes as usize;
        rank * block..(rank + 1) * block
    }

    /// What of this member's input nobody reads from its place.
    #[inline]
    pub(crate) fn unread(&self, rank: usize) -> Range<usize> {
        use Collective::*;
        match self.collective {
            Scatter | Alltoall => self.own_block(rank),
            ReduceScatter | ReduceScatterBlock if !self.in_place => self.part.clone(),
            _ => 0..0,
        }
    }

    /// The members of whom the one of this rank needs to know that they are here.
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

/// MPI_Allreduce at its shortest: vectors of MPI's elements without gaps, all of which every member combines. On slots it is what the
/// same call is as a `Short`, so members may differ in which of the two it is for them; but there is nothing to build or to let go.
#[derive(Clone, Copy, Debug)]
pub struct FlatAllreduce {
    /// What combines the elements, and what they are.
    pub operator: (PredefinedOp, Basic),
    /// This member's vector.
    pub own: Span,
    /// Where it wants the result: as many bytes, all of its own vector or none.
    pub sum: Span,
}

#[cfg(test)]
mod tests {
    use super::*;
    use Collective::*;

    const SUM: Option<(PredefinedOp, Basic)> = Some((PredefinedOp::Sum, Basic::U64));

    #[test]
    fn long_calls_are_not_flat() {
        let fits = |collective, bytes, members| {
            Short { bytes, operator: SUM, ..Short::new(collective) }.fits(members)
        };
        assert!(fits(Bcast, BYTES_MAX, 16) && !fits(Bcast, BYTES_MAX + 1, 2));
        assert!(fits(Gather, BYTES_MAX / 2, 2) && !fits(Gather, BYTES_MAX / 2, 3));
        assert!(fits(Allreduce, BYTES_MAX, 16) && !fits(Allreduce, BYTES_MAX + 8, 2));
        assert!(!fits(Barrier, 0, 1) && !fits(Barrier, 0, 17));
        assert!(!fits(Alltoall, u64::MAX / 2, 2));
    }

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
