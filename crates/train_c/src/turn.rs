// SPDX-License-Identifier: BSD-3-Clause
//! The order in which a group's ended collectives are reported to their callers: the order of their starts,
//! one after the other. So the callers' functions start operations in the same order at all members (DDP's
//! hooks for several buckets need this). An operation that such a function has started is reported at once,
//! because the function may wait for it.
//!
//! A function may also wait for an operation that another caller has started. That operation cannot be
//! reported before the function's turn ends. If the function waits in this library, the wait ends the turn.
//! If the function waits elsewhere, the turn ends after `PATIENCE`.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a caller's function may run while no operation that it has started is in progress. After that
/// time the library assumes that the function waits, and reports the next operation.
pub const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub struct Turns(Mutex<TurnState>);

#[derive(Debug, Default)]
struct TurnState {
    /// The numbers of the collectives that have not been reported to their callers yet.
    waiting: BTreeSet<u64>,
    /// The number of the operation whose caller's function runs now, and the time since when that function
    /// may be waiting. None if no function runs.
    reporting: Option<(u64, Instant)>,
    /// How many operations that the running function has started are still in progress.
    inner: usize,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, number: u64) {
        self.lock().waiting.insert(number);
    }

    /// Starts the turn of operation `number`, if the operation may be reported to its caller now. Returns
    /// whether it may.
    pub fn start(&self, number: u64, now: Instant) -> bool {
        let mut state = self.lock();
        if let Some((first, since)) = state.reporting
            && state.inner == 0
            && now.saturating_duration_since(since) >= PATIENCE
        {
            state.leave(first);
        }
        if state.waiting.first().is_some_and(|first| *first < number) || state.reporting.is_some() {
            return false;
        }
        state.reporting = Some((number, now));
        state.inner = 0;
        true
    }

    /// Ends the turn of operation `number`, so that the next turn can start. The operation's end has been
    /// reported, or its caller's function waits.
    pub fn leave(&self, number: u64) {
        self.lock().leave(number);
    }

    /// Records that the caller's function of operation `number` has started another operation (`is_start`),
    /// or that an operation which the function had started was reported.
    pub fn note_inner(&self, number: u64, is_start: bool, now: Instant) {
        let mut state = self.lock();
        if state.reporting.is_some_and(|(reporting, _)| reporting == number) {
            state.inner = if is_start { state.inner + 1 } else { state.inner.saturating_sub(1) };
            state.reporting = Some((number, now));
        }
    }
}

impl TurnState {
    fn leave(&mut self, number: u64) {
        self.waiting.remove(&number);
        self.reporting.take_if(|(reporting, _)| *reporting == number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_report_in_the_order_of_their_starts() {
        let (turns, now) = (Turns::default(), Instant::now());
        (1..=3).for_each(|number| turns.enter(number));
        assert!(!turns.start(2, now), "the first has not ended");
        assert!(turns.start(1, now));
        assert!(!turns.start(2, now), "the first reports");
        turns.leave(1);
        assert!(turns.start(2, now));
        turns.leave(2);
        assert!(turns.start(3, now));
    }

    #[test]
    fn a_function_that_waits_holds_up_nobody() {
        let (turns, now) = (Turns::default(), Instant::now());
        (1..=3).for_each(|number| turns.enter(number));
        assert!(turns.start(1, now));
        turns.leave(1);
        assert!(turns.start(2, now), "it has said that it waits");
        assert!(!turns.start(3, now));
        assert!(turns.start(3, now + PATIENCE), "it is assumed to wait");
    }

    #[test]
    fn a_function_may_wait_for_its_own_operations_long() {
        let (turns, now) = (Turns::default(), Instant::now());
        (1..=2).for_each(|number| turns.enter(number));
        assert!(turns.start(1, now));
        turns.note_inner(1, true, now);
        assert!(!turns.start(2, now + 9 * PATIENCE));
        turns.note_inner(1, false, now + 9 * PATIENCE);
        assert!(!turns.start(2, now + 9 * PATIENCE), "it has just gone on");
        assert!(turns.start(2, now + 10 * PATIENCE));
    }
}
