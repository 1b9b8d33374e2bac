// SPDX-License-Identifier: BSD-3-Clause
//! The rounds of short calls over slots: `Round` for `Short` and `FlatAllreduce`.
//!
//! Invariants: a member writes its contribution into its slot before it publishes its word there, and reads
//! another's contribution after it has seen that member's word. Operands are combined from left to right in
//! the order of ranks, as in all carriers (`schedule::order`).

use crate::set::{FlatSet, Round};
use crate::short::{FlatAllreduce, Short, ShortPhase};
use crate::word::{disagree, facts, with_length};
use datatype::{Basic, PredefinedOp};
use error::{Error, Result};
use schedule::algorithm::Collective;
use std::ops::Range;
use sys::Span;

/// How many bytes a member reduces and copies at a time, so that they stay in the L2 cache.
pub(crate) const COMBINED_BYTES: usize = 128 << 10;

impl Round for Short {
    const MINE: u64 = 0;

    #[inline]
    fn facts(&self) -> u64 {
        facts(self.collective, self.root, self.bytes)
    }

    #[inline]
    fn put(&mut self, set: &FlatSet, word: u64) -> u64 {
        if self.given != self.bytes {
            // The word then differs from the others', so all members get an error.
            return with_length(word, self.given);
        }
        let bytes = self.input.bytes();
        if bytes == 0 || self.phase == ShortPhase::GatherShares {
            return word;
        }
        let step = self.copy_step(set);
        if self.collective == Collective::Alltoall && set.crosses(bytes as u64) {
            let block = self.bytes as usize;
            for to in set.others() {
                let slot = set.passage(set.rank(), to, bytes as u64);
                by_steps(0..block, step, |at, bytes| self.input.pack(to * block + at, slot.slice(at, bytes)));
            }
            return word;
        }
        let slot = set.contribution(set.rank(), bytes as u64);
        let put = |part| by_steps(part, step, |at, bytes| self.input.pack(at, slot.slice(at, bytes)));
        let unread = self.unread(set.rank());
        if unread.is_empty() {
            put(0..bytes);
        } else {
            put(0..unread.start);
            put(unread.end..bytes);
        }
        word
    }

    #[inline]
    fn needs(&self, rank: usize, members: usize) -> Range<usize> {
        self.waits_for(rank, members)
    }

    #[inline]
    fn copy_own(&mut self, set: &FlatSet) {
        use Collective::*;
        let (mine, block) = (self.block_of(set.rank()), self.bytes as usize);
        if self.in_place || block == 0 || self.given != self.bytes {
            return;
        }
        let (from, to) = match self.collective {
            Alltoall => (mine.start, mine.start),
            Allgather => (0, mine.start),
            Gather if set.rank() == self.root => (0, mine.start),
            Scatter if set.rank() == self.root => (mine.start, 0),
            _ => return,
        };
        by_steps(0..block, self.copy_step(set), |at, bytes| {
            self.output.slice(to + at, bytes).copy_from(&self.input.slice(from + at, bytes));
        });
    }

    #[inline]
    fn take(&mut self, set: &FlatSet) -> Result<()> {
        use Collective::*;
        let (members, block) = (set.size(), self.bytes as usize);
        if block == 0 {
            return Ok(());
        }
        let (total, step) = (self.contribution(members), self.copy_step(set));
        let take_from = |slot: Span, to: usize| {
            by_steps(0..block, step, |at, bytes| self.output.unpack(to + at, slot.slice(at, bytes)));
        };
        let take = |rank: usize, from: usize, to: usize| {
            take_from(set.contribution(rank, total).slice(from, block), to);
        };
        match self.collective {
            Bcast | Gather | Reduce if self.output.bytes() == 0 => (),
            Scatter if set.rank() == self.root => (),
            Bcast => take(self.root, 0, 0),
            Scatter => take(self.root, set.rank() * block, 0),
            Gather | Allgather => set.others().for_each(|rank| take(rank, 0, rank * block)),
            Alltoall => {
                set.others().for_each(|from| take_from(set.passage(from, set.rank(), total), from * block));
            }
            Allreduce if self.phase == ShortPhase::GatherShares => {
                let sums = set.last_contribution(total);
                set.others().map(|rank| self.share(rank, members)).for_each(|share| {
                    by_steps(share, step, |at, bytes| self.output.unpack(at, sums.slice(at, bytes)));
                });
            }
            Scan => self.combine(set, set.rank() + 1, total),
            Exscan => self.combine(set, set.rank(), total),
            _ => self.combine(set, members, total),
        }
        Ok(())
    }

    #[inline]
    fn next_phase(&mut self) -> bool {
        let has_next = self.phase == ShortPhase::ReduceShares;
        if has_next {
            self.phase = ShortPhase::GatherShares;
        }
        has_next
    }

    fn disagreement(&self, set: &FlatSet, rank: usize, word: u64) -> Error {
        disagree(self.collective, self.root, self.bytes, (set.rank(), rank), word)
    }
}

impl Short {
    /// Returns the most bytes that one copy moves. If all memory that the call touches fits the L2 cache, a
    /// copy is short, since short copies use vector instructions. Otherwise there is no bound.
    #[inline]
    fn copy_step(&self, set: &FlatSet) -> usize {
        let touched = match self.phase {
            ShortPhase::ReduceShares => self.input.bytes() + self.part.len(),
            ShortPhase::GatherShares => self.output.bytes(),
            _ => self.input.bytes() + self.output.bytes(),
        };
        if touched <= set.near_bytes_max { sys::copy::BYTES_MAX } else { usize::MAX }
    }

    /// Reduces this member's part of the vectors of the first `members` members into the output. In a long
    /// allreduce it also copies the result to the others' slots. `total` is the length of a vector in bytes.
    #[inline]
    fn combine(&self, set: &FlatSet, members: usize, total: u64) {
        let (Some(operator), Some(input), Some(output)) =
            (self.operator, self.input.contiguous(), self.output.contiguous())
        else {
            unreachable!("a reduction without an operator, or with gaps")
        };
        let shares = self.phase == ShortPhase::ReduceShares;
        let result = if shares { output.slice(self.part.start, self.part.len()) } else { output };
        // In place the result may overwrite this member's operand, which is then read from its slot.
        let operand = |rank| {
            let whole =
                if rank == set.rank() && !self.in_place { input } else { set.contribution(rank, total) };
            whole.slice(self.part.start, self.part.len())
        };
        let step = COMBINED_BYTES - COMBINED_BYTES % operator.1.size();
        by_steps(0..result.bytes(), step, |at, bytes| {
            let sum = result.slice(at, bytes);
            combine(operator, members, |rank| operand(rank).slice(at, bytes), sum);
            if shares {
                let slot = |rank| set.contribution(rank, total).slice(self.part.start + at, bytes);
                set.others().for_each(|rank| sum.copy_to(slot(rank)));
            }
        });
    }
}

impl Round for FlatAllreduce {
    const MINE: u64 = 0;

    #[inline(always)]
    fn facts(&self) -> u64 {
        facts(Collective::Allreduce, 0, self.input.bytes() as u64)
    }

    #[inline(always)]
    fn put(&mut self, set: &FlatSet, word: u64) -> u64 {
        self.input.copy_to(self.operand(set, set.rank()));
        word
    }

    #[inline(always)]
    fn needs(&self, _rank: usize, members: usize) -> Range<usize> {
        0..members
    }

    #[inline(always)]
    fn take(&mut self, set: &FlatSet) -> Result<()> {
        combine(self.operator, set.size(), |rank| self.operand(set, rank), self.output);
        Ok(())
    }

    fn disagreement(&self, set: &FlatSet, rank: usize, word: u64) -> Error {
        disagree(Collective::Allreduce, 0, self.input.bytes() as u64, (set.rank(), rank), word)
    }
}

impl FlatAllreduce {
    /// Returns where the vector of member `rank` lies in that member's slot.
    #[inline(always)]
    fn operand(&self, set: &FlatSet, rank: usize) -> Span {
        let bytes = self.input.bytes();
        set.contribution(rank, bytes as u64).slice(0, bytes)
    }
}

/// Reduces the operands of the first `members` members, in the order of ranks, and stores the result in
/// `sum`.
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

/// Cuts a range of bytes into parts of at most `step` bytes, and calls `each` with the start and length of
/// each part.
#[inline]
fn by_steps(range: Range<usize>, step: usize, mut each: impl FnMut(usize, usize)) {
    let mut at = range.start;
    while at < range.end {
        let bytes = step.min(range.end - at);
        each(at, bytes);
        at += bytes;
    }
}
