// SPDX-License-Identifier: BSD-3-Clause
//! Calls that may not wait (MPI_Test, MPI_Iprobe, ...), and calls by which a program may poll the memory of a
//! window. A poll is one such call.

use super::lock::Guard;
use super::{Awaiting, JobState, Process};
use error::Result;
use telemetry::Counter;

/// How many polls (MPI_Test and the like) in a row have found nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct FailedPolls {
    polls: u32,
    /// The time in nanoseconds of the first reading of the clock in the present row of polls without result.
    /// 0 if the clock has not been read since a poll (MPI_Test or the like) found something.
    since: u64,
    /// Whether this rank's page shows that polls (MPI_Test and the like) have found nothing for long.
    shown: bool,
}

/// How many calls that may poll a window (10 to 20 ns each) come between two rounds of progress (50 ns).
const WINDOW_POLLS: u32 = 16;
/// How many polls (MPI_Test and the like) without result come between two readings of the clock.
const FAILED_UNTIMED: u32 = 1024;
/// The time in nanoseconds after which polls (MPI_Test and the like) without result are shown as a wait.
const FAILED_NS: u64 = 100_000_000;

impl JobState {
    /// Counts a call by which the program may poll a window. Returns whether `Guard::progress_after_polls`
    /// must be called now.
    #[inline(always)]
    pub(crate) fn polls_window(&mut self) -> bool {
        self.window_polls += 1;
        self.window_polls >= WINDOW_POLLS
    }
}

impl Guard {
    /// Makes one round of progress, then calls `ready`, and returns what `ready` returns. If this is None,
    /// counts the poll in `counter`. If the round has moved nothing either, yields a shared core, since the
    /// awaited peer may need it.
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

    /// Counts a poll (MPI_Test or the like) that has found nothing. Returns whether `show_failed_polls` must
    /// be called, which reads the clock.
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

    /// Shows polls (MPI_Test and the like) that have found nothing for `FAILED_NS` as a wait, in this rank's
    /// page. Also writes a report if `mpirun` has asked for one.
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

    /// Counts a call by which the program may poll a window, and makes progress after every `WINDOW_POLLS`
    /// such calls. Whether the poll found what the program awaits is unknown here.
    #[inline(always)]
    pub(crate) fn polled_window(&mut self) {
        if self.job().polls_window() {
            self.progress_after_polls();
        }
    }

    /// Makes progress, and then yields a shared core, because the program may wait for a peer that waits for
    /// an operation of this rank. Called in each flush or unlock that does not take the fast path, and after
    /// every `WINDOW_POLLS` calls by which the program may poll a window.
    pub(crate) fn progress_after_polls(&mut self) {
        let polls = std::mem::take(&mut self.job().window_polls).max(1);
        telemetry::count(Counter::WindowPolls, polls.into());
        self.progress();
        self.let_others_run();
    }

    /// Yields this rank's core if other ranks share the core.
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
