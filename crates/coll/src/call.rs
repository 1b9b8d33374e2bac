// SPDX-License-Identifier: BSD-3-Clause
//! A collective call: which collective, among which processes, on which buffers.

use datatype::Buffer;
use executor::{Binding, Cut, Reduction};
use schedule::algorithm::{Collective, Neighbors};
use std::ops::Range;
use std::sync::Arc;

/// The processes that take part in a collective, and the facts about their comm that a collective needs.
#[derive(Clone, Debug)]
pub struct Members {
    /// The comm's context, which keeps its messages and collectives apart from those of other comms.
    pub context: u64,
    /// The number of the collective among those of the context, equal on all members.
    pub sequence: u32,
    /// This process's rank in the comm. On an intercommunicator it is the index of this process in `peers`.
    pub rank: u32,
    /// The process of each rank, by its number in the job. On an intercommunicator the ranks of the first
    /// group come first, then the ranks of the second.
    pub peers: Arc<[u32]>,
    /// How many ranks an intercommunicator's first group has; 0 for an intracommunicator.
    pub first_group: u32,
}

impl Members {
    /// Returns the processes of both groups of an intercommunicator as members of one group.
    pub fn as_one(&self) -> Members {
        Members { first_group: 0, ..self.clone() }
    }

    /// Returns the indices into `peers` of the ranks with which this rank exchanges data: all ranks, or on an
    /// intercommunicator the remote group.
    pub fn partners(&self) -> Range<u32> {
        let (all, first) = (self.peers.len() as u32, self.first_group);
        if first > 0 && self.rank >= first { 0..first } else { first..all }
    }
}

/// Whether two buffers have bytes in common. Where a buffer has gaps, they count as overlapping if both begin
/// at the same address.
#[inline]
pub fn buffers_overlap(a: &Buffer, b: &Buffer) -> bool {
    if a.bytes() == 0 || b.bytes() == 0 {
        return false;
    }
    match (a.contiguous(), b.contiguous()) {
        (Some(a), Some(b)) => a.meets(b),
        _ => a.base() == b.base(),
    }
}

/// A buffer of the program, in the way in which a collective divides it.
#[derive(Clone, Debug)]
pub enum CollBuffer {
    /// The buffer is not used at this rank, or is MPI_IN_PLACE.
    None,
    /// One vector, which an algorithm may divide anywhere between elements of `element_bytes` bytes.
    One { buffer: Buffer, element_bytes: u64 },
    /// One buffer of equal blocks, one after the other. There is a block for each rank (of the remote group
    /// on an intercommunicator), or for each neighbour.
    PerRank(Buffer),
    /// One vector with a block for each rank. Block r lies between the byte offsets `at[r]` and `at[r + 1]`.
    CutAt { buffer: Buffer, at: Arc<[u64]> },
    /// A buffer for each rank or neighbour (v- and w-collectives).
    Each(Arc<[Buffer]>),
}

impl CollBuffer {
    /// Makes a `CollBuffer::One` of plain bytes. The length of its elements, in bytes, is the greatest power
    /// of two up to 64 that divides the buffer's length.
    pub fn bytes(buffer: Buffer) -> CollBuffer {
        // Elements of the widest power of two that divides the length keep parts aligned for copying.
        let element_bytes = 1 << buffer.bytes().trailing_zeros().min(6);
        CollBuffer::One { buffer, element_bytes }
    }

    /// Returns the buffers of `CollBuffer::Each`, one for each rank or neighbour. Other variants return an
    /// empty slice.
    pub fn each(&self) -> &[Buffer] {
        if let CollBuffer::Each(blocks) = self { blocks } else { &[] }
    }

    /// Returns how many bytes of data, without gaps, all buffers of this input or output have.
    #[inline(always)]
    pub fn total(&self) -> u64 {
        match self {
            CollBuffer::None => 0,
            CollBuffer::One { buffer, .. }
            | CollBuffer::PerRank(buffer)
            | CollBuffer::CutAt { buffer, .. } => buffer.bytes() as u64,
            CollBuffer::Each(buffers) => buffers.iter().map(|buffer| buffer.bytes() as u64).sum(),
        }
    }

    /// Whether two inputs or outputs have bytes in common, as far as `buffers_overlap` can tell. If both have
    /// a buffer for each rank, only the two buffers for the same rank are compared.
    #[inline]
    pub fn overlaps(&self, other: &CollBuffer) -> bool {
        match (self, other) {
            (CollBuffer::None, _) | (_, CollBuffer::None) => false,
            (CollBuffer::Each(_), _) | (_, CollBuffer::Each(_)) => self.overlaps_in_blocks(other),
            (a, b) => a.whole().zip(b.whole()).is_some_and(|(a, b)| buffers_overlap(a, b)),
        }
    }

    /// Returns all buffers of this input or output.
    pub fn buffers(&self) -> &[Buffer] {
        self.whole().map_or(self.each(), std::slice::from_ref)
    }

    /// Replaces each buffer of this input or output by the buffer that `other` returns for it.
    pub fn map(&mut self, other: impl Fn(&Buffer) -> Buffer) {
        match self {
            CollBuffer::None => (),
            CollBuffer::Each(blocks) => *blocks = blocks.iter().map(other).collect(),
            CollBuffer::One { buffer, .. }
            | CollBuffer::PerRank(buffer)
            | CollBuffer::CutAt { buffer, .. } => *buffer = other(buffer),
        }
    }

    #[inline(never)]
    fn overlaps_in_blocks(&self, other: &CollBuffer) -> bool {
        match (self, other) {
            (CollBuffer::Each(ours), CollBuffer::Each(theirs)) => {
                ours.iter().zip(theirs.iter()).any(|(a, b)| buffers_overlap(a, b))
            }
            (CollBuffer::Each(blocks), part) | (part, CollBuffer::Each(blocks)) => {
                part.whole().is_some_and(|whole| blocks.iter().any(|block| buffers_overlap(block, whole)))
            }
            _ => false,
        }
    }

    /// Returns the buffer of this input or output if it has just one. None if it has no buffer, or one for
    /// each rank.
    #[inline]
    pub(crate) fn whole(&self) -> Option<&Buffer> {
        match self {
            CollBuffer::None | CollBuffer::Each(_) => None,
            CollBuffer::One { buffer, .. }
            | CollBuffer::PerRank(buffer)
            | CollBuffer::CutAt { buffer, .. } => Some(buffer),
        }
    }

    /// Converts this input or output to the form that the executor takes: a buffer of a schedule, cut into
    /// `blocks` blocks.
    pub(crate) fn bind(self, blocks: u32) -> Binding {
        if blocks == 0 {
            return Binding::None;
        }
        match self {
            CollBuffer::None => Binding::None,
            CollBuffer::One { buffer, .. } if blocks == 1 => whole_block(buffer),
            CollBuffer::One { buffer, element_bytes } => {
                let elements = buffer.bytes() as u64 / element_bytes.max(1);
                Binding::Whole { buffer, cut: Cut::NearEqual { elements, element_bytes } }
            }
            CollBuffer::PerRank(buffer) => {
                let block_bytes = buffer.bytes() as u64 / u64::from(blocks);
                Binding::Whole { buffer, cut: Cut::Even { block_bytes } }
            }
            CollBuffer::CutAt { buffer, at } => Binding::Whole { buffer, cut: Cut::Bounds(at) },
            CollBuffer::Each(buffers) => Binding::Blocks(buffers),
        }
    }
}

fn whole_block(buffer: Buffer) -> Binding {
    let block_bytes = buffer.bytes() as u64;
    Binding::Whole { buffer, cut: Cut::Even { block_bytes } }
}

/// A collective to be started, as one rank calls it. A broadcast has its buffer in `output`, also at the
/// root.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which collective the rank calls.
    pub collective: Collective,
    /// The root as an index into `Members::peers`; 0 in collectives without a root. On an intercommunicator
    /// the other ranks of the root's group do not know the root, and name any rank of their group but
    /// themselves.
    pub root: u32,
    /// Whether this rank passed MPI_IN_PLACE. Then `input` (in a scatter, `output`) is `CollBuffer::None`.
    pub in_place: bool,
    /// The data that the program sends.
    pub input: CollBuffer,
    /// The memory in which the program receives.
    pub output: CollBuffer,
    /// The operator of a reduction; None for collectives that do not reduce.
    pub reduction: Option<Reduction>,
    /// Whether the operator is commutative. Calls without an operator count as commutative.
    pub commutative: bool,
    /// Whether the call is blocking: the rank does nothing but wait for it, so a proxy would gain nothing.
    pub blocking: bool,
    /// This rank's neighbours if this is a neighborhood collective, where `collective` says how data moves
    /// among neighbours; None for all other collectives.
    pub neighbors: Option<Arc<Neighbors>>,
}

impl Call {
    /// Makes a call with root 0, no operator and no neighbours, neither blocking nor in place.
    #[inline(always)] // So it is made where it is used.
    pub fn new(collective: Collective, input: CollBuffer, output: CollBuffer) -> Call {
        Call {
            collective,
            root: 0,
            in_place: false,
            input,
            output,
            reduction: None,
            commutative: true,
            blocking: false,
            neighbors: None,
        }
    }

    /// Whether this rank takes no part, because it is in the root's group of an intercommunicator and is not
    /// the root (MPI 5.0, section 6.2.3).
    pub fn is_idle(&self, members: &Members) -> bool {
        let rooted = members.first_group > 0 && self.collective.is_rooted();
        rooted && self.root != members.rank && !members.partners().contains(&self.root)
    }

    /// Returns the length in bytes by which an algorithm is chosen, equal on all ranks (MPI 5.0, section
    /// 6.1). In a reduction or broadcast it is the vector's length. In an allgather, all-to-all, gather or
    /// scatter it is the length of one block (in an allgatherv, of the mean block). In barriers and the other
    /// v- and w-collectives it is 0.
    #[inline(always)] // Mostly it is known which collective it is.
    pub fn bytes(&self, size: u32) -> u64 {
        use Collective::*;
        let block = |whole: &CollBuffer| whole.total() / u64::from(size.max(1));
        match self.collective {
            Barrier | Gatherv | Scatterv | Alltoallv | Alltoallw => 0,
            Bcast => self.output.total(),
            Gather => match &self.output {
                CollBuffer::None => self.input.total(),
                output => block(output),
            },
            Scatter => match &self.input {
                CollBuffer::None => self.output.total(),
                input => block(input),
            },
            Allgather | Allgatherv | Alltoall => block(&self.output),
            Reduce | Allreduce | ReduceScatter | ReduceScatterBlock | Scan | Exscan => {
                // In place there is only the output.
                match self.input.total() {
                    0 => self.output.total(),
                    bytes => bytes,
                }
            }
        }
    }
}
