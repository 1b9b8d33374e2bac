// SPDX-License-Identifier: BSD-3-Clause
//! Pulled calls: members publish addresses, and read each other's memory (cross-memory attach).
//!
//! The kernel copies once what slots would copy twice, at the cost of system calls. Whether pulling is faster
//! depends on the processor (docs/measured/choices.md). In round 1 a member publishes the address of its
//! blocks, and reads the blocks for it. It begins round 2 when it has tried to read all, and publishes there
//! whether it could; after that round buffers may change. If some member could not, each further round moves
//! a part of each block through the slots, and all later calls of the set go through slots, too.
//!
//! Invariants: a call is pulled only if every member has stated that it can read the memory of all. What
//! members do in a round follows from what all have published in the rounds before.

use crate::set::{FlatSet, Round};
use crate::short::{Short, is_pullable};
use crate::word::{LENGTH_BITS, disagree, facts, with_length};
use error::{Error, Result};
use schedule::algorithm::Collective;
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::Block;
use telemetry::Counter;
use transport::shm::{Segment, cma};

/// The number that members publish as the root in the first round of a pulled call, to mark the call as
/// pulled. All-to-all and allgather have no root.
const PULLED: usize = 15;
/// The flag, in what a member publishes in the second round, that it could not read another member's memory.
const UNREAD: u64 = 1 << LENGTH_BITS;

/// The purpose of a round of a pulled call, in which members read each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PullPhase {
    /// Each member publishes the address of its blocks, and reads the blocks of the others.
    Read,
    /// Each member publishes whether it could read. After this round it may change its buffers.
    Close,
    /// Some member could not read. So each member writes a part of each of its blocks into its slot: the part
    /// that begins at this byte of the block.
    Pieces(usize),
}

/// An all-to-all or allgather of long blocks, in which each member reads the others' memory.
#[derive(Debug)]
pub struct Pull {
    call: Short,
    phase: PullPhase,
    /// The address, in this process, of this member's blocks, which the other members read.
    address: u64,
    /// A copy of this member's blocks that the others read. None if they can read the program's buffer.
    packed: Option<Block>,
    segment: Segment,
    /// Whether this member could not read the memory of some other member.
    failed: bool,
    /// Whether some member of the set could not read, so that further rounds carry the blocks through the
    /// slots.
    in_pieces: bool,
}

impl Pull {
    /// Prepares a call whose blocks are so long that members read them in each other's memory.
    #[cold]
    pub(crate) fn new(call: &Short, segment: &Segment) -> Pull {
        debug_assert!(is_pullable(call.collective));
        // In place, blocks for others would be overwritten before they are read.
        let stays = call.collective == Collective::Allgather || !call.in_place;
        let readable = call.input.contiguous().filter(|_| stays && call.input.is_attachable());
        let (address, packed) = match readable {
            Some(span) => (span.address(), None),
            None => {
                let packed = Block::new(call.input.bytes());
                call.input.pack(0, packed.span());
                (packed.span().address(), Some(packed))
            }
        };
        Pull {
            call: call.clone(),
            phase: PullPhase::Read,
            address: address as u64,
            packed,
            segment: segment.clone(),
            failed: false,
            in_pieces: false,
        }
    }

    /// Returns which collective is pulled: all-to-all or allgather.
    pub(crate) fn collective(&self) -> Collective {
        self.call.collective
    }

    /// Reads the block for this member from the memory of member `rank` into the output. Errors: the kernel
    /// refuses to read that memory.
    fn read(&self, set: &FlatSet, rank: usize) -> Result<()> {
        let block = self.call.bytes as usize;
        let mut word = [0; 8];
        set.contribution(rank, 8).slice(0, 8).read(&mut word);
        let before = if self.call.collective == Collective::Alltoall { set.rank() * block } else { 0 };
        let from = (u64::from_ne_bytes(word) as usize).wrapping_add(before);
        let pid = self.segment.rank(set.peer(rank)).pid.load(Ordering::Acquire);
        let into = self.call.output.slice(rank * block, block);
        telemetry::count(Counter::CmaBytes, block as u64);
        match into.contiguous() {
            Some(span) => cma::read(pid, &[(from, block)], span),
            None => {
                let bounce = Block::new(block);
                cma::read(pid, &[(from, block)], bounce.span())?;
                into.unpack(0, bounce.span());
                Ok(())
            }
        }
    }

    /// Reads the blocks for this member from the memory of all other members into the output. Errors: the
    /// kernel refuses to read some member's memory.
    fn read_all(&self, set: &FlatSet) -> Result<()> {
        // Each member starts with another one; otherwise all would read the same memory at once.
        let members = set.size();
        (1..members).map(|after| (set.rank() + after) % members).try_for_each(|rank| self.read(set, rank))
    }

    /// Returns how many blocks each member contributes, and how many bytes of each block go through the slots
    /// in the round that begins at byte `at` of the blocks.
    fn pieces(&self, set: &FlatSet, at: usize) -> (usize, usize) {
        let blocks = if self.call.collective == Collective::Alltoall { set.size() } else { 1 };
        let most = (set.contribution_max() / blocks).max(1);
        (blocks, most.min(self.call.bytes as usize - at))
    }

    /// Writes a part of each of this member's blocks, from byte `at` of the block on, into this member's
    /// slot.
    fn put_pieces(&self, set: &FlatSet, at: usize) {
        let (blocks, bytes) = self.pieces(set, at);
        let slot = set.contribution(set.rank(), u64::MAX);
        for index in 0..blocks {
            let (from, to) = (index * self.call.bytes as usize + at, slot.slice(index * bytes, bytes));
            match &self.packed {
                Some(packed) => packed.span().slice(from, bytes).copy_to(to),
                None => self.call.input.pack(from, to),
            }
        }
    }

    /// Copies a part of each block for this member from the slot of the block's sender to the output. The
    /// part begins at byte `at` of the block, and is as long as one round carries.
    fn take_pieces(&self, set: &FlatSet, at: usize) {
        let (blocks, bytes) = self.pieces(set, at);
        let index = if blocks == 1 { 0 } else { set.rank() };
        for rank in set.others() {
            let piece = set.contribution(rank, u64::MAX).slice(index * bytes, bytes);
            self.call.output.unpack(rank * self.call.bytes as usize + at, piece);
        }
    }

    /// Returns what this member's word holds as root and length: in round 1 `PULLED` and the length of a
    /// block, in round 2 zeros, in later rounds 0 and the byte of the blocks at which the round begins.
    fn root_and_bytes(&self) -> (usize, u64) {
        match self.phase {
            PullPhase::Read => (PULLED, self.call.bytes),
            PullPhase::Close => (0, 0),
            PullPhase::Pieces(at) => (0, at as u64),
        }
    }
}

impl Round for Pull {
    const MINE: u64 = UNREAD;

    fn facts(&self) -> u64 {
        let (root, bytes) = self.root_and_bytes();
        facts(self.call.collective, root, bytes)
    }

    fn put(&mut self, set: &FlatSet, word: u64) -> u64 {
        match self.phase {
            PullPhase::Close => return if self.failed { word | UNREAD } else { word },
            PullPhase::Pieces(at) => self.put_pieces(set, at),
            PullPhase::Read if self.call.given != self.call.bytes => {
                return with_length(word, self.call.given);
            }
            PullPhase::Read => set.contribution(set.rank(), 8).slice(0, 8).write(&self.address.to_ne_bytes()),
        }
        word
    }

    fn copy_own(&mut self, set: &FlatSet) {
        if self.phase == PullPhase::Read {
            self.call.copy_own(set);
        }
    }

    fn needs(&self, _rank: usize, members: usize) -> Range<usize> {
        0..members
    }

    fn take(&mut self, set: &FlatSet) -> Result<()> {
        match self.phase {
            PullPhase::Read => self.failed = set.reads_fail.get() || self.read_all(set).is_err(),
            PullPhase::Close => {
                self.in_pieces = (0..set.size()).any(|rank| set.facts_of(rank) & UNREAD != 0);
                set.reads_fail.set(set.reads_fail.get() || self.in_pieces);
            }
            PullPhase::Pieces(at) => {
                self.take_pieces(set, at);
                self.phase = PullPhase::Pieces(at + self.pieces(set, at).1);
            }
        }
        Ok(())
    }

    fn next_phase(&mut self) -> bool {
        match self.phase {
            PullPhase::Read => self.phase = PullPhase::Close,
            PullPhase::Close if self.in_pieces => self.phase = PullPhase::Pieces(0),
            PullPhase::Close => return false,
            PullPhase::Pieces(at) => return at < self.call.bytes as usize,
        }
        true
    }

    fn disagreement(&self, set: &FlatSet, rank: usize, word: u64) -> Error {
        let (root, bytes) = self.root_and_bytes();
        disagree(self.call.collective, root, bytes, (set.rank(), rank), word)
    }
}
