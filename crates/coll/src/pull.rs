//! Long calls on slots (`flat.rs`): members show where their bytes lie, and who wants them reads them there.
//!
//! The kernel copies once what slots would have copied twice, at the cost of system calls. Which is faster depends on the processor
//! (OUTBOARD_INLINE_BYTES_MAX). Such a call takes two rounds: in the first, members show addresses and read; who begins the second has read what it
//! wants, so after it all buffers are their owners' again.
//!
//! Invariants: a call is pulled only if every member can read every other's memory, which they have told each other with their slots'
//! places; a member that fails to read makes the second round nevertheless, so rounds go on counting alike.

use crate::flat::Slots;
use crate::round::{Round, with_length};
use crate::short::Short;
use error::{Error, Result};
use schedule::algorithm::Collective;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::Block;
use telemetry::Counter;
use transport::shm::{Segment, cma};

/// The most that a member reads of all. It is read at one go, while nothing else moves.
pub(crate) const PULLED_MAX: u64 = 4 << 20;
/// In the facts of such a round, whose collectives have no root.
pub(crate) const PULLED: usize = 15;

/// An all-to-all or allgather of long blocks.
#[derive(Debug)]
pub struct Pull {
    call: Short,
    /// Where others read.
    address: u64,
    /// What they read if they cannot read from this member's buffer.
    _packed: Option<Block>,
    segment: Segment,
    /// Why this member could not read.
    failed: RefCell<Option<Error>>,
}

impl Pull {
    /// Whether there is a way to pull such a call.
    #[inline]
    pub(crate) fn takes(call: &Short) -> bool {
        matches!(call.collective, Collective::Alltoall | Collective::Allgather)
    }

    /// One that `takes` allows.
    #[cold]
    pub(crate) fn new(call: &Short, segment: &Segment) -> Pull {
        // Blocks for others in the output would be overwritten before they are read.
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
        let failed = RefCell::new(None);
        Pull {
            call: call.clone(),
            address: address as u64,
            _packed: packed,
            segment: segment.clone(),
            failed,
        }
    }

    /// What the program calls.
    pub(crate) fn name(&self) -> Collective {
        self.call.name
    }

    /// The second round.
    pub fn closing(&self) -> Short {
        Short { name: self.call.name, ..Short::new(Collective::Barrier) }
    }

    /// How the call has ended, after both rounds.
    pub fn outcome(&self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Reads another member's block for this one.
    fn read(&self, slots: &Slots, rank: usize) -> Result<()> {
        let block = self.call.bytes as usize;
        let mut word = [0; 8];
        slots.contribution(rank, 8).slice(0, 8).read(&mut word);
        let before = if self.call.collective == Collective::Alltoall { slots.rank() * block } else { 0 };
        let from = (u64::from_ne_bytes(word) as usize).wrapping_add(before);
        let pid = self.segment.rank(slots.peer(rank)).pid.load(Ordering::Acquire);
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
}

impl Round for Pull {
    const OWN_BITS: u64 = 0;

    fn facts(&self) -> u64 {
        crate::round::facts(self.call.name, PULLED, self.call.bytes)
    }

    fn put(&self, slots: &Slots, word: u64) -> u64 {
        if self.call.given != self.call.bytes {
            return with_length(word, self.call.given);
        }
        slots.contribution(slots.rank(), 8).slice(0, 8).write(&self.address.to_ne_bytes());
        word
    }

    fn keep(&self, slots: &Slots) {
        self.call.keep(slots);
    }

    fn needs(&self, _rank: usize, members: usize) -> Range<usize> {
        0..members
    }

    fn take(&self, slots: &Slots) -> Result<()> {
        // Everybody begins with another member, lest all read the same one's memory.
        let members = slots.size();
        for rank in (1..members).map(|after| (slots.rank() + after) % members) {
            if let Err(error) = self.read(slots, rank) {
                let (name, own) = (self.call.name.name(), slots.rank());
                let mut sentence = format!("in {name} rank {own} cannot have rank {rank}'s block: ");
                sentence += &error.message;
                sentence += "; OUTBOARD_CMA=off moves everything through shared memory";
                self.failed.replace(Some(Error::new(error.class, sentence)));
            }
        }
        Ok(())
    }

    fn disagreement(&self, slots: &Slots, rank: usize, word: u64) -> Error {
        crate::round::disagree(self.call.name, PULLED, self.call.bytes, (slots.rank(), rank), word)
    }
}
