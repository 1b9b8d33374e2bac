//! What a member does in a round of slots (`flat.rs`): `Short` and `FlatAllreduce` here, `Vector` and `Pull` in their files.
//!
//! Invariants: what a member writes before its word is what the others may read once they have seen it; members whose words differ
//! say so, each with both facts.
//!
//! Read next: `short.rs` (what these calls are), `vector.rs`, `pull.rs`.

use crate::flat::{FACTS_BITS, LENGTH_BITS, LENGTH_MAX, Slots};
use crate::pull::Pull;
use crate::short::{FlatAllreduce, Short};
use datatype::{Basic, PredefinedOp};
use error::{Class, Error, Result};
use schedule::algorithm::Collective;
use std::ops::Range;
use sys::Span;

/// So many bytes of a sum are combined, of all members, and left for the second round, before the next: the L2 cache still has them.
pub(crate) const COMBINED_BYTES: usize = 128 << 10;

/// What members say of a call, with a length.
#[inline]
pub(crate) fn facts(name: Collective, root: usize, bytes: u64) -> u64 {
    (name as u64) << (LENGTH_BITS + 4) | (root as u64) << LENGTH_BITS | bytes.min(LENGTH_MAX)
}

/// What a member does in a round.
pub trait Round {
    /// The bits of words in which members may differ.
    const OWN_BITS: u64;
    /// What all members must say alike, but for those.
    fn facts(&self) -> u64;
    /// Puts up what this member contributes; its word, which is `word` but for the bits of its own.
    fn put(&self, slots: &Slots, word: u64) -> u64;
    /// Does what need not wait for others: now is the time.
    fn keep(&self, _slots: &Slots) {}
    /// The members whose contributions this member needs.
    fn needs(&self, rank: usize, members: usize) -> Range<usize>;
    /// Takes the result from the places.
    fn take(&self, slots: &Slots) -> Result<()>;
    /// What is wrong where a member has begun the round with another word.
    fn disagreement(&self, slots: &Slots, rank: usize, word: u64) -> Error;
}

impl Round for Short {
    const OWN_BITS: u64 = 0;

    #[inline]
    fn facts(&self) -> u64 {
        facts(self.name, self.root, self.bytes)
    }

    #[inline]
    fn put(&self, slots: &Slots, word: u64) -> u64 {
        let bytes = self.input.bytes();
        if self.given != self.bytes {
            // Who gives another length than it expects will be told so, and all others, too.
            return with_length(word, self.given);
        }
        if self.collective == Collective::Alltoall && slots.crosses(bytes as u64) {
            let (block, step) = (self.bytes as usize, self.step(slots));
            for to in slots.others() {
                let place = slots.passage(slots.rank, to, bytes as u64);
                by_steps(0..block, step, |at, bytes| {
                    self.input.pack(to * block + at, place.slice(at, bytes))
                });
            }
        } else if bytes > 0 {
            let place = slots.contribution(slots.rank, bytes as u64);
            let step = self.step(slots);
            let put = |part| {
                by_steps(part, step, |at, bytes| self.input.pack(at, place.slice(at, bytes)));
            };
            let unread = self.unread(slots.rank);
            if unread.is_empty() {
                put(0..bytes);
            } else {
                put(0..unread.start);
                put(unread.end..bytes);
            }
        }
        word
    }

    #[inline]
    fn needs(&self, rank: usize, members: usize) -> Range<usize> {
        self.waits_for(rank, members)
    }

    #[inline]
    fn keep(&self, slots: &Slots) {
        use Collective::*;
        let (own, block) = (self.own_block(slots.rank), self.bytes as usize);
        if self.in_place || block == 0 || self.given != self.bytes {
            return;
        }
        let (from, to) = match self.collective {
            Alltoall => (own.start, own.start),
            Allgather => (0, own.start),
            Gather if slots.rank == self.root => (0, own.start),
            Scatter if slots.rank == self.root => (own.start, 0),
            _ => return,
        };
        by_steps(0..block, self.step(slots), |at, bytes| {
            self.output.slice(to + at, bytes).copy_from(&self.input.slice(from + at, bytes));
        });
    }

    #[inline]
    fn take(&self, slots: &Slots) -> Result<()> {
        use Collective::*;
        let (members, block) = (slots.size(), self.bytes as usize);
        if block == 0 {
            return Ok(());
        }
        let (total, step) = (self.contribution(members), self.step(slots));
        let take_from = |place: Span, to: usize| {
            by_steps(0..block, step, |at, bytes| self.output.unpack(to + at, place.slice(at, bytes)));
        };
        let take = |rank: usize, from: usize, to: usize| {
            take_from(slots.contribution(rank, total).slice(from, block), to);
        };
        match self.collective {
            Bcast | Gather | Reduce if self.output.bytes() == 0 => (),
            Scatter if slots.rank == self.root => (),
            Bcast => take(self.root, 0, 0),
            Scatter => take(self.root, slots.rank * block, 0),
            Allgather if self.is_second_half() => {
                let sums = slots.last_contribution(total);
                slots.others().map(|rank| self.share(rank, members)).for_each(|share| {
                    by_steps(share, step, |at, bytes| self.output.unpack(at, sums.slice(at, bytes)));
                });
            }
            Gather | Allgather => slots.others().for_each(|rank| take(rank, 0, rank * block)),
            Alltoall => {
                slots
                    .others()
                    .for_each(|from| take_from(slots.passage(from, slots.rank, total), from * block));
            }
            Scan => self.combine(slots, slots.rank + 1, total),
            Exscan => self.combine(slots, slots.rank, total),
            _ => self.combine(slots, members, total),
        }
        Ok(())
    }

    fn disagreement(&self, slots: &Slots, rank: usize, word: u64) -> Error {
        disagree(self.name, self.root, self.bytes, (slots.rank, rank), word)
    }
}

impl Round for FlatAllreduce {
    const OWN_BITS: u64 = 0;

    #[inline(always)]
    fn facts(&self) -> u64 {
        facts(Collective::Allreduce, 0, self.own.bytes() as u64)
    }

    #[inline(always)]
    fn put(&self, slots: &Slots, word: u64) -> u64 {
        self.own.copy_to(self.operand(slots, slots.rank));
        word
    }

    #[inline(always)]
    fn needs(&self, _rank: usize, members: usize) -> Range<usize> {
        0..members
    }

    #[inline(always)]
    fn take(&self, slots: &Slots) -> Result<()> {
        combine(self.operator, slots.size(), |rank| self.operand(slots, rank), self.sum);
        Ok(())
    }

    fn disagreement(&self, slots: &Slots, rank: usize, word: u64) -> Error {
        disagree(Collective::Allreduce, 0, self.own.bytes() as u64, (slots.rank, rank), word)
    }
}

impl FlatAllreduce {
    /// A member's vector.
    #[inline(always)]
    fn operand(&self, slots: &Slots, rank: usize) -> Span {
        let bytes = self.own.bytes();
        slots.contribution(rank, bytes as u64).slice(0, bytes)
    }
}

impl Short {
    /// How much it copies at a time: so little that vectors are used, if the L2 cache holds what it touches.
    #[inline]
    fn step(&self, slots: &Slots) -> usize {
        let touched = self.input.bytes() + self.output.bytes();
        if touched <= slots.near_bytes_max { sys::copy::BYTES_MAX } else { usize::MAX }
    }

    /// The first so many members' vectors, as far as this member wants them, one after the other.
    #[inline]
    fn combine(&self, slots: &Slots, members: usize, total: u64) {
        let (Some(operator), Some(own), Some(sum)) =
            (self.operator, self.input.contiguous(), self.output.contiguous())
        else {
            unreachable!("a reduction without an operator, or with gaps")
        };
        // In place the sum of the first may lie over our own operand.
        let operand = |rank| {
            let whole =
                if rank == slots.rank && !self.in_place { own } else { slots.contribution(rank, total) };
            whole.slice(self.part.start, self.part.len())
        };
        let step = COMBINED_BYTES - COMBINED_BYTES % operator.1.size();
        by_steps(0..sum.bytes(), step, |at, bytes| {
            let sum = sum.slice(at, bytes);
            combine(operator, members, |rank| operand(rank).slice(at, bytes), sum);
            if self.is_first_half() {
                let place = |rank| slots.contribution(rank, total).slice(self.part.start + at, bytes);
                slots.others().for_each(|rank| sum.copy_to(place(rank)));
            }
        });
    }
}

/// Combines the operands of the first so many members in the order of ranks.
#[inline(always)]
fn combine((op, basic): (PredefinedOp, Basic), members: usize, operand: impl Fn(usize) -> Span, sum: Span) {
    match members {
        0 => (),
        1 => operand(0).copy_to(sum),
        _ => datatype::reduce(op, basic, operand(0), operand(1), sum),
    }
    for rank in 2..members {
        datatype::reduce(op, basic, sum, operand(rank), sum);
    }
}

/// Calls `each` with the beginning and length of the parts of a range, which have so many bytes at most.
#[inline]
fn by_steps(range: Range<usize>, step: usize, mut each: impl FnMut(usize, usize)) {
    let mut at = range.start;
    while at < range.end {
        let bytes = step.min(range.end - at);
        each(at, bytes);
        at += bytes;
    }
}

/// A word with another length.
pub(crate) fn with_length(word: u64, bytes: u64) -> u64 {
    word & !LENGTH_MAX | bytes.min(LENGTH_MAX)
}

/// The call of the second of these two ranks is not the first's, which is this.
#[cold]
pub(crate) fn disagree(
    name: Collective,
    root: usize,
    bytes: u64,
    (own, rank): (usize, usize),
    word: u64,
) -> Error {
    let theirs = word % (1 << FACTS_BITS);
    let length = theirs & LENGTH_MAX;
    // Whether a call is pulled follows from its length, of which it is better to speak.
    let by_length = length != bytes && is_of(theirs, name) && Pull::takes(&Short::new(name));
    if theirs >> LENGTH_BITS != facts(name, root, bytes) >> LENGTH_BITS && !by_length {
        return differ(name, root, own, rank, theirs);
    }
    let least = if length == LENGTH_MAX { "at least " } else { "" };
    let sentence =
        format!("in {} rank {rank} has {least}{length} bytes, but rank {own} has {bytes}", name.name());
    Error::new(Class::Truncate, sentence)
}

/// Whether facts are those of such a collective.
#[inline]
pub(crate) fn is_of(facts: u64, collective: Collective) -> bool {
    facts >> (LENGTH_BITS + 4) & 31 == collective as u64
}

/// A member's collective or root is another than ours.
#[cold]
pub(crate) fn differ(collective: Collective, root: usize, own: usize, rank: usize, theirs: u64) -> Error {
    let theirs_root = theirs >> LENGTH_BITS & 15;
    let name = collective.name();
    if is_of(theirs, collective) {
        if Pull::takes(&Short::new(collective)) {
            let sentence = format!(
                "in {name} one of the ranks {own} and {rank} reads the other's memory, the other does not"
            );
            return Error::new(Class::Other, sentence + ": do they differ in OUTBOARD_INLINE_BYTES_MAX?");
        }
        let sentence =
            format!("in {name} rank {rank} has root {theirs_root}, but rank {own} has root {root}");
        return Error::new(Class::Root, sentence);
    }
    let sentence = format!("rank {own} is in {name}, but rank {rank} is in another collective");
    Error::new(Class::Other, sentence)
}
