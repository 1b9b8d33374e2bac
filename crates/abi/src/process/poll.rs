// SPDX-License-Identifier: BSD-3-Clause
//! Calls that may not wait (MPI_Test, MPI_Iprobe, ...), and calls by which a program may poll a window.

use super::lock::Guard;
use super::{Awaiting, Job, Process};
use error::Result;
use telemetry::Counter;

/// Polls without progress, one after the other.
#[derive(Clone, Copy, Default)]
pub(super) struct Vain {
    polls: u32,
    /// The first time that the clock was read since the first of these polls; 0: not yet.
    since: u64,
    /// Whether these polls are shown as a wait.
    shown: bool,
}

/// Polls of a window (10 to 20 ns each) between two rounds of progress (50 ns).
const WINDOW_POLLS: u32 = 16;
/// Polls without progress between two readings of the clock.
const VAIN_UNTIMED: u32 = 1024;
/// Polls that find nothing for this time are shown as a wait.
const VAIN_NS: u64 = 100_000_000;

impl Job {
    /// Counts a call by which the program may poll a window. Returns whether `Guard::move_on` is due.
    #[inline(always)]
    pub(crate) fn polls_window(&mut self) -> bool {
        self.window_polls += 1;
        self.window_polls >= WINDOW_POLLS
    }
}

impl Guard {
    /// Makes one round of progress, then asks `ready`. If `ready` has nothing, the counter `vain` counts the
    /// poll, and a rank that shares its core yields it, since the awaited peer may need it.
    #[inline(always)] // Otherwise the result would be copied several times.
    pub(crate) fn poll<T>(
        &mut self,
        vain: Counter,
        awaiting: impl FnOnce() -> Awaiting,
        ready: impl FnOnce(&mut Process) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let moved = self.progress();
        let found = ready(self)?;
        if found.is_none() {
            if self.polled_in_vain(vain, moved) {
                self.awaiting = awaiting();
                self.show_vain_polls(vain);
            }
        } else if self.job().vain.polls > 0 {
            self.end_vain_polls();
        }
        Ok(found)
    }

    /// Counts a poll without progress. Returns whether to read the clock.
    #[inline(always)]
    fn polled_in_vain(&mut self, counter: Counter, moved: bool) -> bool {
        telemetry::count(counter, 1);
        if !moved {
            self.let_others_run();
        }
        let vain = &mut self.job().vain;
        vain.polls += 1;
        if vain.polls < VAIN_UNTIMED {
            return false;
        }
        vain.polls = 1;
        true
    }

    /// Shows polls that have long found nothing as a wait, and reports all that is under way if `mpirun`
    /// asked for a report.
    #[cold]
    fn show_vain_polls(&mut self, counter: Counter) {
        let now = sys::clock::now();
        let job = self.job();
        if job.vain.since == 0 {
            job.vain.since = now;
        }
        let since = job.vain.since;
        if now - since < VAIN_NS {
            return;
        }
        job.vain.shown = true;
        let polls = format!(" ({} polls in vain)", telemetry::value(counter));
        self.show(since, &polls);
    }

    fn end_vain_polls(&mut self) {
        let job = self.job();
        if std::mem::take(&mut job.vain).shown {
            job.membership.segment.rank(job.membership.rank).wait.end(sys::clock::now());
        }
    }

    /// Runs after a call by which the program may poll a window. Whether the poll found something is unknown
    /// here.
    #[inline(always)]
    pub(crate) fn polled_window(&mut self) {
        if self.job().polls_window() {
            self.move_on();
        }
    }

    /// Makes progress after several calls by which the program may poll a window, or, where ranks share
    /// cores, after one flush or unlock: the program may wait for a peer that waits for an operation of this
    /// rank. A rank that shares its core then yields it.
    pub(crate) fn move_on(&mut self) {
        let polls = std::mem::take(&mut self.job().window_polls).max(1);
        telemetry::count(Counter::WindowPolls, polls.into());
        self.progress();
        self.let_others_run();
    }

    /// Yields a shared core.
    #[inline(always)]
    fn let_others_run(&mut self) {
        if !self.job().shared.may_spin() {
            self.give_way();
        }
    }

    #[inline(never)]
    fn give_way(&mut self) {
        if self.held.is_some() {
            telemetry::count(Counter::Yields, 1);
            self.unlocked(sys::cpu::give_way);
        } else {
            let cpus = &mut self.job().cpus;
            cpus.here();
            cpus.give_way();
        }
    }
}
