// SPDX-License-Identifier: BSD-3-Clause
//! Sends: publish bytes for a receiver on this host, or for the server that sends them to other hosts. The
//! bytes are read where they lie, or in a copy in the arena.

use super::{Execution, StepProgress};
use crate::fault::Fault;
use crate::memory::{Driver, Reach, Stop};
use crate::record::{ASKS, BYTES, COMPLETE, Field, IN_ARENA, STAGED};
use schedule::{Action, Blocks, BufferId};
use std::sync::atomic::Ordering;
use telemetry::Counter;
use transport::shm::LocalRank;

impl Execution {
    /// Returns two facts about a send that has published all its bytes: whether the steps that wait for it
    /// may start, and whether it no longer needs the user's buffers. Ignores copies if the driver is a proxy
    /// on another computer (`is_remote`).
    pub(super) fn is_sent(&self, step: u32, is_remote: bool) -> (bool, bool) {
        let Action::Send { from, .. } = self.plan.schedule.steps[step as usize].action else {
            return (false, false);
        };
        let address = self.record.step(step, Field::Address).load(Ordering::Acquire);
        let is_copied = address & STAGED != 0 && !is_remote || self.buffers.spots[step as usize].bytes == 0;
        (is_copied, is_copied || matches!(from.buffer, BufferId::Scratch(_)))
    }

    /// Makes the send `step` use a copy in the arena, at offset `at`, since the receiver cannot read the
    /// original. The send fails if `at` is a fault.
    pub fn stage(&mut self, step: u32, at: Result<u64, Fault>, reach: &Reach) {
        let at = match at {
            Ok(at) => at,
            Err(fault) => {
                // Only a driver of a test dies here, and a rank never does.
                let _ = self.fail(step, fault, reach);
                return;
            }
        };
        let state = &mut self.states[step as usize];
        (state.published, state.is_complete) = (state.done, false);
        // A receiver that sees the new address sees that no bytes lie there yet.
        self.record.step(step, Field::Published).store(state.done, Ordering::Release);
        self.record.step(step, Field::Address).store(at | IN_ARENA | STAGED, Ordering::Release);
    }

    /// Whether the receiver of the send `step` has asked for a copy in the arena that does not exist yet.
    /// `done` is the send's `Done` word.
    pub(super) fn must_stage(&self, step: u32, done: u64) -> bool {
        let address = || self.record.step(step, Field::Address).load(Ordering::Acquire);
        done & (ASKS | COMPLETE) == ASKS && address() & IN_ARENA == 0
    }

    /// Drives a send to the rank `to` of this host. Without `to` the receiver is on another host, and this
    /// rank's server sends it the published bytes.
    pub(super) fn send(
        &mut self,
        step: u32,
        to: Option<LocalRank>,
        from: Blocks,
        reach: &Reach,
    ) -> Result<StepProgress, Stop> {
        let done = self.record.step(step, Field::Done).load(Ordering::Acquire);
        if done & COMPLETE != 0 {
            return Ok(StepProgress::Finished);
        }
        let (done, must_stage) = (done & BYTES, self.must_stage(step, done));
        if must_stage {
            self.states[step as usize].done = done;
            return Ok(StepProgress::Stage);
        }
        let (limit, all) = self.limit(step);
        let spot = self.buffers.spots[step as usize];
        let state = &mut self.states[step as usize];
        let moved = std::mem::replace(&mut state.done, done) != done;
        let start = state.published;
        let void = if self.is_void && !state.is_complete { self.record.fault() } else { None };
        if let Some(fault) = void.or_else(|| reach.unmapped_by(self.rank, to)) {
            return Err(fault.into());
        }
        if state.is_complete || (limit == start && !(all && start == spot.bytes)) {
            return Ok(if moved { StepProgress::Moved } else { StepProgress::Idle });
        }
        let mut end = limit;
        let address = self.record.step(step, Field::Address).load(Ordering::Acquire);
        if address & STAGED != 0 && spot.bytes > 0 {
            end = limit.min(start + reach.chunk_bytes);
            let staging = reach.span(self.rank, address & !(IN_ARENA | STAGED), spot.bytes)?;
            let mut at = start;
            while at < end {
                let (region, offset, here) = self.buffers.region(from.buffer, spot.at[0] + at)?;
                let bytes = here.min(end - at);
                reach.fetch_into(region, offset, staging.slice(at as usize, bytes as usize))?;
                at += bytes;
            }
            reach.count(Counter::StagedBytes, end - start);
            reach.fault_point()?;
        }
        let complete = all && end == spot.bytes;
        let word = end | if complete { COMPLETE } else { 0 };
        self.record.step(step, Field::Published).store(word, Ordering::Release);
        reach.fault_point()?;
        (state.published, state.is_complete) = (end, complete);
        if start == 0 && to.is_none() && matches!(reach.driver, Driver::Proxy(_)) {
            self.report_published(step, spot.bytes);
        }
        if let (is_free, true) = self.is_sent(step, reach.imported.is_some())
            && complete
        {
            self.close(step, is_free);
        }
        self.wake(to, reach);
        Ok(StepProgress::Moved)
    }
}
