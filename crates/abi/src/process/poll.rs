//! Calls that may not wait (MPI_Test, MPI_Iprobe, ...), and calls by which a program polls a window.

use super::lock::Guard;
use super::{Awaiting, Job, Process};
use error::Result;
use telemetry::Counter;

/// A run of polls in vain.
#[derive(Clone, Copy, Default)]
pub(super) struct Vain {
    polls: u32,
    /// When the clock was first looked at since the run began; 0 if it was not.
    since: u64,
    /// Whether it is shown as a wait.
    shown: bool,
}

/// Polls of a window, which take 10 to 20 ns, between two rounds of progress, which take 50.
const WINDOW_POLLS: u32 = 16;
/// Polls in vain between two looks at the clock.
const VAIN_UNTIMED: u32 = 1024;
/// How long all polls are in vain until that is shown as a wait.
const VAIN_NS: u64 = 100_000_000;
impl Job {
    /// Counts a call by which the program may poll a window; whether `Guard::move_on` is due after it.
    #[inline(always)]
    pub(crate) fn polls_window(&mut self) -> bool {
        self.window_polls += 1;
        self.window_polls >= WINDOW_POLLS
    }
}

impl Guard {
    /// What a call that may not wait (MPI_Test, MPI_Iprobe, ...) finds after one round of progress. Where that is nothing the poll was in vain:
    /// `vain` counts it, and who shares its core gives it away, since who is waited for may need it.
    #[inline(always)] // What it returns would be copied several times.
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

    /// Counts it; whether it is time to look at the clock.
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

    /// Shows polls that have been in vain for long as a wait, and tells all that is under way if it was asked to.
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

    /// After a call by which a program may poll a window, and of which nobody knows whether it was in vain.
    #[inline(always)]
    pub(crate) fn polled_window(&mut self) {
        if self.job().polls_window() {
            self.move_on();
        }
    }

    /// After several of them, or one that tells what is in a window (a flush, an unlock) where ranks share cores: what is under way moves on, as the
    /// program may wait for who waits for that, and who shares its core gives it away.
    pub(crate) fn move_on(&mut self) {
        let polls = std::mem::take(&mut self.job().window_polls).max(1);
        telemetry::count(Counter::WindowPolls, polls.into());
        self.progress();
        self.let_others_run();
    }

    /// Who shares its core gives it away for a moment.
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
