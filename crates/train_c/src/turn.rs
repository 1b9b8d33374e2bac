// SPDX-License-Identifier: BSD-3-Clause
//! The order in which a group's collectives tell their callers that they have ended: the order of their
//! starts, one after the other. So what the callers' functions start is in the same order at all members
//! (DDP's hooks for several buckets need this). An operation that such a function has started tells at once:
//! the function may wait for it.
//!
//! A function may also wait for an operation that it has not started, which the order would hold up. A wait
//! in this library makes way for others; a wait elsewhere is assumed after a while.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a function runs, with no operation of its own in progress, until it is assumed to wait.
pub const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The numbers of operations that have not told their callers yet.
    waiting: BTreeSet<u64>,
    /// The operation that tells, and since when its function may be waiting; `inner` is how many operations
    /// that function has in progress.
    telling: Option<(u64, Instant)>,
    inner: usize,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, number: u64) {
        self.lock().waiting.insert(number);
    }

    /// Whether the operation may tell its caller now. If so, its turn has started.
    pub fn begin(&self, number: u64, now: Instant) -> bool {
        let mut state = self.lock();
        if let Some((first, since)) = state.telling
            && state.inner == 0
            && now.saturating_duration_since(since) >= PATIENCE
        {
            state.leave(first);
        }
        if state.waiting.first().is_some_and(|first| *first < number) || state.telling.is_some() {
            return false;
        }
        state.telling = Some((number, now));
        state.inner = 0;
        true
    }

    /// Ends the turn of an operation that has told its caller, or whose function waits.
    pub fn leave(&self, number: u64) {
        self.lock().leave(number);
    }

    /// Notes that the function of `number` has started an operation, or that such an operation has told its
    /// caller.
    pub fn inner(&self, number: u64, is_start: bool, now: Instant) {
        let mut state = self.lock();
        if state.telling.is_some_and(|(telling, _)| telling == number) {
            state.inner = if is_start { state.inner + 1 } else { state.inner.saturating_sub(1) };
            state.telling = Some((number, now));
        }
    }
}

impl State {
    fn leave(&mut self, number: u64) {
        self.waiting.remove(&number);
        self.telling.take_if(|(telling, _)| *telling == number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_tell_in_the_order_of_their_starts() {
        let (turns, now) = (Turns::default(), Instant::now());
        (1..=3).for_each(|number| turns.enter(number));
        assert!(!turns.begin(2, now), "the first has not ended");
        assert!(turns.begin(1, now));
        assert!(!turns.begin(2, now), "the first tells");
        turns.leave(1);
        assert!(turns.begin(2, now));
        turns.leave(2);
        assert!(turns.begin(3, now));
    }

    #[test]
    fn a_function_that_waits_holds_up_nobody() {
        let (turns, now) = (Turns::default(), Instant::now());
        (1..=3).for_each(|number| turns.enter(number));
        assert!(turns.begin(1, now));
        turns.leave(1);
        assert!(turns.begin(2, now), "it has said that it waits");
        assert!(!turns.begin(3, now));
        assert!(turns.begin(3, now + PATIENCE), "it is assumed to wait");
    }

    #[test]
    fn a_function_may_wait_for_its_own_operations_long() {
        let (turns, now) = (Turns::default(), Instant::now());
        (1..=2).for_each(|number| turns.enter(number));
        assert!(turns.begin(1, now));
        turns.inner(1, true, now);
        assert!(!turns.begin(2, now + 9 * PATIENCE));
        turns.inner(1, false, now + 9 * PATIENCE);
        assert!(!turns.begin(2, now + 9 * PATIENCE), "it has just gone on");
        assert!(turns.begin(2, now + 10 * PATIENCE));
    }
}
