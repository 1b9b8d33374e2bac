// SPDX-License-Identifier: BSD-3-Clause
//! An instance with two drivers: its rank drives the steps that stay within the host, and the rank's proxy on
//! another computer drives the rest (`schedule::Side`).
//!
//! Each driver has a copy of the record. There it watches the `done` words of the other driver's steps on
//! which its own steps depend. The proxy writes its `done` words to the rank. The rank sends its `done` words
//! in notes (`NoteKind::Step`). Such a note also carries the bytes that the step wrote to a scratch buffer,
//! if they fit. Otherwise the proxy fetches the bytes.
//!
//! Invariants: both drivers divide the steps alike; a watched step counts as done only once its bytes are in
//! the memory that the watcher reads. A rank that goes on without its proxy drives all steps (`resume`).
//!
//! Read next: `schedule/side.rs`, `caller/export.rs`, `proxy/mirror.rs`.

use super::{Execution, StepProgress};
use crate::checked::written;
use crate::fault::{Corruption, Fault};
use crate::imported::VALUES_BYTES_MAX;
use crate::memory::{Reach, Region, Stop};
use crate::note::{to_bytes, to_words};
use crate::peer::Peer;
use crate::record::{BYTES, COMPLETE, Field, IN_ARENA, STAGED};
use schedule::{Action, BufferId, Side};
use std::sync::atomic::Ordering;
use transport::shm::LocalRank;

/// What this driver does with a step of a divided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepRole {
    /// This driver drives the step.
    Own,
    /// The other driver drives the step. This driver watches its progress, because steps of its own depend on
    /// it.
    Watched,
    /// The other driver drives the step, and no step of this driver depends on it.
    Ignored,
    /// The rank drives the step: a send within the host of bytes that came from other hosts. The proxy
    /// publishes it already, so that the receiver need not wait for the rank's next MPI call.
    Announced,
}

/// The part of an operation that this driver drives, where the rank and its proxy on another computer divide
/// the steps between them.
pub(super) struct Share {
    side: Side,
    /// For each step, what this driver does with it.
    roles: Box<[StepRole]>,
    /// For each step, whether a step of the other driver depends on it.
    is_awaited: Box<[bool]>,
    /// Whether the steps are divided now. False while a rank drives the whole operation alone.
    is_on: bool,
    /// The ended steps of this driver that another process must hear of, until `next_ended` takes them.
    ended: Vec<u32>,
}

impl Execution {
    /// Decides which steps this driver drives (those of `side`), and which the other driver drives. If one
    /// side has all steps, the operation is not divided.
    pub fn divide(&mut self, side: Side) {
        let schedule = &self.plan.schedule;
        let sides = schedule.sides(|peer| self.peers[peer as usize].local().is_some());
        self.share = None;
        if sides.iter().all(|of| *of == sides[0]) {
            return;
        }
        let mut roles: Box<[StepRole]> =
            sides.iter().map(|of| if *of == side { StepRole::Own } else { StepRole::Ignored }).collect();
        let mut is_awaited: Box<[bool]> = vec![false; sides.len()].into();
        for (index, step) in schedule.steps.iter().enumerate() {
            for earlier in schedule.after_of(step).iter().map(|after| after.step as usize) {
                match (sides[index] == side, sides[earlier] == side) {
                    (true, false) => roles[earlier] = StepRole::Watched,
                    (false, true) => is_awaited[earlier] = true,
                    _ => {}
                }
            }
        }
        for (index, step) in schedule.steps.iter().enumerate() {
            let is_send = matches!(step.action, Action::Send { .. });
            let after = schedule.after_of(step);
            let is_of_proxy =
                !after.is_empty() && after.iter().all(|after| sides[after.step as usize] == Side::Dpu);
            // The rank has to copy bytes that their receiver cannot read.
            let address = self.record.step(index as u32, Field::Address).load(Ordering::Relaxed);
            let is_readable = address & (IN_ARENA | STAGED) == IN_ARENA;
            if side == Side::Dpu && roles[index] == StepRole::Ignored && is_send && is_of_proxy && is_readable
            {
                roles[index] = StepRole::Announced;
            }
        }
        self.share = Some(Box::new(Share { side, roles, is_awaited, is_on: false, ended: Vec::new() }));
    }

    /// Whether `divide` has divided the steps between two drivers.
    pub fn is_divided(&self) -> bool {
        self.share.is_some()
    }

    /// Prepares to drive the operation from its beginning, like `restart`, but only this driver's steps if
    /// the steps are divided.
    pub fn restart_share(&mut self, context: u64, sequence: u32) {
        self.restart(context, sequence);
        let Some(share) = &mut self.share else { return };
        share.is_on = true;
        share.ended.clear();
        self.active.clear();
        for (index, state) in self.states.iter_mut().enumerate() {
            match share.roles[index] {
                StepRole::Own | StepRole::Announced if state.waits > 0 => {}
                StepRole::Own | StepRole::Announced => self.active.push(index as u32),
                StepRole::Watched => {
                    state.waits = 0;
                    self.active.push(index as u32);
                }
                StepRole::Ignored => {
                    (state.finished, state.is_free, state.is_local) = (true, true, true);
                    self.unfinished -= 1;
                    self.open -= 1;
                }
            }
        }
    }

    /// Makes this driver drive all steps, including the other driver's.
    pub(super) fn drive_alone(&mut self) {
        self.share.iter_mut().for_each(|share| share.is_on = false);
    }

    pub(super) fn role(&self, step: u32) -> StepRole {
        match &self.share {
            Some(share) if share.is_on => share.roles[step as usize],
            _ => StepRole::Own,
        }
    }

    /// Whether this driver is a rank that drives only its share of the steps. Its proxy then reports the end
    /// of the operation.
    pub(crate) fn is_host_share(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.is_on && share.side == Side::Host)
    }

    /// Takes an ended step of this driver of which another process must hear. None if there is none.
    pub(crate) fn next_ended(&mut self) -> Option<u32> {
        self.share.as_mut()?.ended.pop()
    }

    /// Returns the rank of this host that must hear of the end of a step: the receiver of a send that the
    /// proxy published early, else the operation's own rank.
    pub(crate) fn awaiting_rank(&self, step: u32) -> LocalRank {
        match (self.role(step), self.plan.schedule.steps[step as usize].action) {
            (StepRole::Announced, Action::Send { to, .. }) => match self.peers[to as usize] {
                Peer::Local(to) => to,
                Peer::Remote(_) => self.rank,
            },
            _ => self.rank,
        }
    }

    /// Remembers that the step `step` of this driver has ended, if another process must hear of it.
    pub(super) fn add_ended(&mut self, step: u32) {
        if let Some(share) = self.share.as_mut().filter(|share| share.is_on) {
            let is_noted = match share.roles[step as usize] {
                StepRole::Own => share.is_awaited[step as usize],
                StepRole::Announced => true,
                StepRole::Watched | StepRole::Ignored => false,
            };
            if is_noted {
                share.ended.push(step);
            }
        }
    }

    /// Whether a step of the other driver has advanced since this driver last read its progress.
    pub(super) fn has_advanced(&self, step: u32) -> bool {
        let done = self.record.step(step, Field::Done).load(Ordering::Acquire);
        done & COMPLETE != 0 || done & BYTES != self.states[step as usize].done
    }

    /// Reads from the record how far the other driver has come with a step, and stores that for this driver.
    /// Returns whether the step has moved or finished.
    pub(super) fn watch(&mut self, step: u32) -> StepProgress {
        let word = self.record.step(step, Field::Done).load(Ordering::Acquire);
        if word & COMPLETE != 0 {
            self.is_void |= self.record.fault().is_some_and(Fault::voids);
            return StepProgress::Finished;
        }
        let done = (word & BYTES).min(self.buffers.spots[step as usize].bytes);
        let before = std::mem::replace(&mut self.states[step as usize].done, done);
        if done == before { StepProgress::Idle } else { StepProgress::Moved }
    }

    /// Publishes a send of the rank early. The bytes to send were written by this proxy.
    pub(super) fn announce(&mut self, step: u32, reach: &Reach) -> Result<StepProgress, Stop> {
        let (limit, all) = self.limit(step);
        let spot = self.buffers.spots[step as usize];
        let is_whole = all && limit == spot.bytes;
        // The rank itself gives up what a fault has made void.
        if self.is_void {
            return Ok(if all { StepProgress::Finished } else { StepProgress::Idle });
        }
        if limit == self.states[step as usize].published && !is_whole {
            return Ok(StepProgress::Idle);
        }
        let word = limit | if is_whole { COMPLETE } else { 0 };
        self.record.step(step, Field::Published).store(word, Ordering::Release);
        reach.write_published(self.rank, &self.record, step);
        reach.fault_point()?;
        self.states[step as usize].published = limit;
        Ok(if is_whole { StepProgress::Finished } else { StepProgress::Moved })
    }

    /// Ends a message that the rank, on another computer, does not want any more: withdraws its receive, or
    /// marks its send as done.
    pub(crate) fn withdraw(&self, reach: &Reach) {
        match self.plan.schedule.steps.first().map(|step| step.action) {
            Some(Action::Send { .. }) => {
                self.record.step(0, Field::Done).store(COMPLETE, Ordering::Release);
            }
            _ => {
                self.record.withdraw();
                reach.write_claim(self.rank, &self.record);
            }
        }
    }

    /// Returns the bytes that a step has written to a scratch buffer, as 64-bit words, if they fit into a
    /// note (a short message). Otherwise returns an empty list.
    pub(crate) fn short_scratch(&self, step: u32) -> Vec<u64> {
        let bytes = self.buffers.spots[step as usize].bytes as usize;
        match self.scratch_of(step) {
            Some((Region::Local(span), offset, here))
                if bytes <= VALUES_BYTES_MAX && here >= bytes as u64 =>
            {
                to_words(&span.slice(offset as usize, bytes).to_vec()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Finds where a step writes in a scratch buffer: the region, the offset in it, and the bytes from there
    /// to the region's end. None if the step writes to no scratch buffer.
    fn scratch_of(&self, step: u32) -> Option<(&Region, u64, u64)> {
        let (operand, into) = written(&self.plan.schedule.steps[step as usize].action)?;
        let at = self.buffers.spots[step as usize].at[operand];
        if matches!(into.buffer, BufferId::Scratch(_)) { self.buffers.locate(into.buffer, at) } else { None }
    }

    /// Stores the rank's report that it has ended the step `step`: `done` is the step's `Done` word, `words`
    /// the bytes that it wrote to a scratch buffer. If `words` is empty, this proxy fetches these bytes.
    /// Errors: a wrong report, or the fetch fails.
    pub(crate) fn step_ended(
        &mut self,
        step: u32,
        done: u64,
        words: &[u64],
        reach: &Reach,
    ) -> Result<(), Stop> {
        let wrong = Fault::Corrupt { peer: self.rank.peer(), what: Corruption::Progress };
        if step >= self.steps() as u32 || self.role(step) != StepRole::Watched || done & COMPLETE == 0 {
            return Err(wrong.into());
        }
        let bytes = self.buffers.spots[step as usize].bytes;
        if let Some((region, offset, here)) = self.scratch_of(step) {
            if here < bytes {
                return Err(wrong.into());
            }
            match (region, words.len() as u64 == bytes.div_ceil(8)) {
                (Region::Mirrored { span, .. }, true) => {
                    span.slice(offset as usize, bytes as usize).write(&to_bytes(words, bytes as usize));
                }
                _ => reach.refresh(region, offset, bytes)?,
            }
        }
        reach.fault_point()?;
        self.record.step(step, Field::Done).store(done, Ordering::Release);
        Ok(())
    }
}
