// SPDX-License-Identifier: BSD-3-Clause
//! The steps without a peer: copies, reductions, and calls of a user's reduction function.

use super::{Execution, StepProgress};
use crate::Reduction;
use crate::fault::{Corruption, Fault};
use crate::memory::{Bounce, Reach, Region, Stop};
use schedule::{Blocks, BufferId};
use telemetry::Counter;

impl Execution {
    pub(super) fn copy(
        &mut self,
        step: u32,
        from: Blocks,
        into: Blocks,
        reach: &Reach,
    ) -> Result<StepProgress, Stop> {
        let (limit, all) = self.limit(step);
        let spot = self.buffers.spots[step as usize];
        let start = self.states[step as usize].done;
        let end = limit.min(start + reach.chunk_bytes);
        let complete = end == spot.bytes && all;
        if end == start && !complete {
            return Ok(StepProgress::Idle);
        }
        self.shift((from.buffer, spot.at[0]), (into.buffer, spot.at[1]), start, end, reach)?;
        reach.fault_point()?;
        if let Some((from, into)) = spot.unequal.filter(|_| complete) {
            self.record.set_fault(Fault::Unequal { from, into });
        }
        self.advance(step, end, complete, reach)
    }

    /// Copies bytes `[start, end)` of one range of a buffer over the bytes of another range.
    fn shift(
        &self,
        from: (BufferId, u64),
        into: (BufferId, u64),
        start: u64,
        end: u64,
        reach: &Reach,
    ) -> Result<(), Fault> {
        let mut at = start;
        while at < end {
            let (source, source_offset, source_bytes) = self.buffers.region(from.0, from.1 + at)?;
            let (region, offset, bytes) = self.buffers.region(into.0, into.1 + at)?;
            let bytes = bytes.min(source_bytes).min(end - at);
            reach.copy((source, source_offset), (region, offset), bytes)?;
            at += bytes;
        }
        Ok(())
    }

    pub(super) fn reduce(
        &mut self,
        step: u32,
        [left, right, into]: [Blocks; 3],
        reach: &Reach,
    ) -> Result<StepProgress, Stop> {
        let wrong = Fault::Corrupt { peer: self.rank.peer(), what: Corruption::Parameters };
        let Some(Reduction::Predefined { op, basic, element_bytes }) = self.buffers.reduction else {
            return Err(wrong.into());
        };
        let (limit, all) = self.limit(step);
        let spot = self.buffers.spots[step as usize];
        let start = self.states[step as usize].done;
        let chunk = reach.chunk_bytes.min(reach.fetch_bytes_max()).max(element_bytes);
        let mut part = limit.saturating_sub(start).min(chunk);
        part -= part % element_bytes;
        if part > 0 {
            let (left, left_at, left_bytes) = self.buffers.region(left.buffer, spot.at[0] + start)?;
            let (right, right_at, right_bytes) = self.buffers.region(right.buffer, spot.at[1] + start)?;
            let (into, into_at, into_bytes) = self.buffers.region(into.buffer, spot.at[2] + start)?;
            part = part.min(left_bytes).min(right_bytes).min(into_bytes);
            part -= part % element_bytes;
            if part == 0 {
                return Err(wrong.into());
            }
            let left = reach.fetch(left, left_at, part, Bounce::Left)?;
            let right = reach.fetch(right, right_at, part, Bounce::Right)?;
            match into {
                Region::Local(span) => {
                    datatype::reduce(op, basic, left, right, span.slice(into_at as usize, part as usize));
                }
                _ => {
                    let result = reach.bounce(Bounce::Into)?.slice(0, part as usize);
                    datatype::reduce(op, basic, left, right, result);
                    reach.put(into, into_at, result)?;
                }
            }
            reach.count(Counter::ReducedBytes, part);
            reach.fault_point()?;
        }
        let end = start + part;
        let complete = end == spot.bytes && all;
        if part == 0 && !complete {
            return Ok(StepProgress::Idle);
        }
        self.advance(step, end, complete, reach)
    }

    /// Prepares a call of the user's reduction function: copies the right operand to the place of the result.
    /// The function then combines the left operand into this copy.
    pub(super) fn prepare_call(
        &mut self,
        step: u32,
        [left, right, into]: [Blocks; 3],
        reach: &Reach,
    ) -> Result<StepProgress, Stop> {
        let spot = self.buffers.spots[step as usize];
        if self.states[step as usize].calling || !self.limit(step).1 {
            return Ok(StepProgress::Idle);
        }
        if spot.bytes == 0 {
            return self.advance(step, 0, true, reach);
        }
        let wrong = Fault::Corrupt { peer: self.rank.peer(), what: Corruption::Parameters };
        let span = |blocks: Blocks, at: u64| match self.buffers.region(blocks.buffer, at)? {
            (Region::Local(span), offset, here) if here >= spot.bytes => {
                Ok(span.slice(offset as usize, spot.bytes as usize))
            }
            _ => Err(wrong),
        };
        let (left, into_span) = (span(left, spot.at[0])?, span(into, spot.at[2])?);
        self.shift((right.buffer, spot.at[1]), (into.buffer, spot.at[2]), 0, spot.bytes, reach)?;
        self.states[step as usize].calling = true;
        let first = match into.buffer {
            BufferId::Input | BufferId::Output => into.first,
            BufferId::Scratch(buffer) => self.plan.schedule.scratch[usize::from(buffer)].first + into.first,
        };
        let blocks = u64::from(first)..u64::from(first) + u64::from(into.count);
        Ok(StepProgress::Call { left, into: into_span, blocks })
    }
}
