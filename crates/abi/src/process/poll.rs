// SPDX-License-Identifier: BSD-3-Clause
//! Calls that may not wait (MPI_Test, MPI_Iprobe, ...), and calls by which a program may poll a window.

use super::lock::Guard;
use super::{Awaiting, JobState, Process};
use error::Result;
use telemetry::Counter;

/// The polls in a row that have found nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct FailedPolls {
    polls: u32,
    /// The time at which the clock was first read during these polls. 0 while it has not been read.
    since: u64,
    /// Whether these polls are shown as a wait.
    shown: bool,
}

/// Polls of a window (10 to 20 ns each) between two rounds of progress (50 ns).
const WINDOW_POLLS: u32 = 16;
/// Polls without progress between two readings of the clock.
const FAILED_UNTIMED: u32 = 1024;
/// Polls that find nothing for this time are shown as a wait.
const FAILED_NS: u64 = 100_000_000;

impl JobState {
    /// Counts a call by which the program may poll a window. Returns whether `Guard::progress_after_polls` is
    /// due.
    #[inline(always)]
    pub(crate) fn polls_window(&mut self) -> bool {
        self.window_polls += 1;
        self.window_polls >= WINDOW_POLLS
    }
}

impl Guard {
    /// Makes one round of progress, then asks `ready`. If `ready` has nothing, `counter` counts the
    /// poll, and a rank that shares its core yields it, since the awaited peer may need it.
    #[inline(always)] // Otherwise the result would be copied several times.
    pub(crate) fn poll<T>(
        &mut self,
        counter: Counter,
        awaiting: impl FnOnce() -> Awaiting,
        ready: impl FnOnce(&mut Process) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let moved = self.progress();
        let found = ready(self)?;
        if found.is_none() {
            if self.polled_without_progress(counter, moved) {
                self.awaiting = awaiting();
                self.show_failed_polls(counter);
            }
        } else if self.job().failed_polls.polls > 0 {
            self.end_failed_polls();
        }
        Ok(found)
    }

    /// Counts a poll that found nothing. Returns whether it is time to read the clock.
    #[inline(always)]
    fn polled_without_progress(&mut self, counter: Counter, moved: bool) -> bool {
        telemetry::count(counter, 1);
        if !moved {
            self.let_others_run();
        }
        let failed = &mut self.job().failed_polls;
        failed.polls += 1;
        if failed.polls < FAILED_UNTIMED {
            return false;
        }
        failed.polls = 1;
        true
    }

    /// Shows polls that have long found nothing as a wait, and reports all that is under way if `mpirun`
    /// asked for a report.
    #[cold]
    fn show_failed_polls(&mut self, counter: Counter) {
        let now = sys::clock::now();
        let job = self.job();
        if job.failed_polls.since == 0 {
            job.failed_polls.since = now;
        }
        let since = job.failed_polls.since;
        if now - since < FAILED_NS {
            return;
        }
        job.failed_polls.shown = true;
        let polls = format!(" ({} polls in vain)", telemetry::value(counter));
        self.show(since, &polls);
    }

    fn end_failed_polls(&mut self) {
        let job = self.job();
        if std::mem::take(&mut job.failed_polls).shown {
            job.membership.segment.rank(job.membership.rank).wait.end(sys::clock::now());
        }
    }

    /// Runs after a call by which the program may poll a window. Whether the poll found something is unknown
    /// here.
    #[inline(always)]
    pub(crate) fn polled_window(&mut self) {
        if self.job().polls_window() {
            self.progress_after_polls();
        }
    }

    /// Makes progress after several calls by which the program may poll a window, or, where ranks share
    /// cores, after one flush or unlock: the program may wait for a peer that waits for an operation of this
    /// rank. A rank that shares its core then yields it.
    pub(crate) fn progress_after_polls(&mut self) {
        let polls = std::mem::take(&mut self.job().window_polls).max(1);
        telemetry::count(Counter::WindowPolls, polls.into());
        self.progress();
        self.let_others_run();
    }

    /// Yields the core if other ranks share it.
    #[inline(always)]
    fn let_others_run(&mut self) {
        if !self.job().shared.may_spin() {
            self.yield_cpu();
        }
    }

    #[inline(never)]
    fn yield_cpu(&mut self) {
        if self.held.is_some() {
            telemetry::count(Counter::Yields, 1);
            self.unlocked(sys::cpu::yield_cpu);
        } else {
            let cpus = &mut self.job().cpus;
            cpus.publish();
            cpus.yield_cpu();
        }
    }
}
