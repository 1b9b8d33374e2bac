//! Pulled calls: members publish addresses, and read each other's memory (cross-memory attach).
//!
//! The kernel copies once what slots would copy twice, at the cost of system calls; which is faster depends
//! on the processor (docs/measured/choices.md). Such a call takes two rounds: in the first, members publish
//! addresses and read; a member begins the second when it has read all its blocks, so after that round
//! buffers may change.
//!
//! Invariants: a call is pulled only if every member has stated that it can read the memory of all; a member
//! that fails to read makes the second round nevertheless, so that rounds stay equal.

use crate::set::{FlatSet, Round};
use crate::short::{Phase, Short, is_pullable};
use crate::word::{disagree, facts, with_length};
use error::{Error, Result};
use schedule::algorithm::Collective;
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::Block;
use telemetry::Counter;
use transport::shm::{Segment, cma};

/// Stands for the root, which these collectives lack, in the facts of the first round.
const PULLED: usize = 15;

/// An all-to-all or allgather of long blocks.
#[derive(Debug)]
pub struct Pull {
    call: Short,
    phase: Phase,
    /// Where the others read.
    address: u64,
    /// A copy of this member's blocks, if the others cannot read them in its buffer.
    _packed: Option<Block>,
    segment: Segment,
    /// Why this member could not read.
    failed: Option<Error>,
}

impl Pull {
    /// The pulled form of a call.
    #[cold]
    pub(crate) fn new(call: &Short, segment: &Segment) -> Pull {
        debug_assert!(is_pullable(call.collective));
        // In place, blocks for others would be overwritten before they are read.
        let stays = call.collective == Collective::Allgather || !call.in_place;
        let lent = call.input.contiguous().filter(|_| stays && call.input.is_attachable());
        let (address, packed) = match lent {
            Some(span) => (span.address(), None),
            None => {
                let packed = Block::new(call.input.bytes());
                call.input.pack(0, packed.span());
                (packed.span().address(), Some(packed))
            }
        };
        Pull {
            call: call.clone(),
            phase: Phase::Read,
            address: address as u64,
            _packed: packed,
            segment: segment.clone(),
            failed: None,
        }
    }

    /// The collective.
    pub(crate) fn collective(&self) -> Collective {
        self.call.collective
    }

    /// Reads another member's block for this one.
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

    /// Root and bytes in the facts.
    fn root_and_bytes(&self) -> (usize, u64) {
        if self.phase == Phase::Read { (PULLED, self.call.bytes) } else { (0, 0) }
    }
}

impl Round for Pull {
    const MINE: u64 = 0;

    fn facts(&self) -> u64 {
        let (root, bytes) = self.root_and_bytes();
        facts(self.call.collective, root, bytes)
    }

    fn put(&mut self, set: &FlatSet, word: u64) -> u64 {
        if self.phase == Phase::Close {
            return word;
        }
        if self.call.given != self.call.bytes {
            return with_length(word, self.call.given);
        }
        set.contribution(set.rank(), 8).slice(0, 8).write(&self.address.to_ne_bytes());
        word
    }

    fn keep(&mut self, set: &FlatSet) {
        if self.phase == Phase::Read {
            self.call.keep(set);
        }
    }

    fn needs(&self, _rank: usize, members: usize) -> Range<usize> {
        0..members
    }

    fn take(&mut self, set: &FlatSet) -> Result<()> {
        if self.phase == Phase::Close {
            return self.failed.take().map_or(Ok(()), Err);
        }
        // Each member begins with another one, or all would read the same memory at once.
        let members = set.size();
        for rank in (1..members).map(|after| (set.rank() + after) % members) {
            if let Err(error) = self.read(set, rank) {
                let (name, me) = (self.call.collective.name(), set.rank());
                let mut sentence = format!("in {name} rank {me} cannot have rank {rank}'s block: ");
                sentence += &error.message;
                sentence += "; OUTBOARD_CMA=off moves everything through shared memory";
                self.failed = Some(Error::new(error.class, sentence));
            }
        }
        Ok(())
    }

    fn next_phase(&mut self) -> bool {
        std::mem::replace(&mut self.phase, Phase::Close) == Phase::Read
    }

    fn disagreement(&self, set: &FlatSet, rank: usize, word: u64) -> Error {
        let (root, bytes) = self.root_and_bytes();
        disagree(self.call.collective, root, bytes, (set.rank(), rank), word)
    }
}
