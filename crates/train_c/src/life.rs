// SPDX-License-Identifier: BSD-3-Clause
//! The life of an operation: who has its request, and its outcome. This file does not call MPI, so that loom
//! can try every order of the threads.
//!
//! | state | who has the request | next state |
//! |---|---|---|
//! | `Here` | no thread | `take`: `Tested`; `request_engine`: `Engine` |
//! | `Tested` | the thread that took it | `give_back`: `Here` or, on request, `Engine`; `end`: `Ended` |
//! | `Engine` | the engine, requested once by `request_engine` | `end`: `Ended` |
//! | `Ended` | no thread; the outcome is here | |

#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

#[derive(Debug)]
pub struct Life<R, O> {
    place: Mutex<RequestPlace<R, O>>,
    ended: Condvar,
}

#[derive(Debug)]
enum RequestPlace<R, O> {
    Here(R),
    /// A thread tests the request. After the test the engine gets the request if `engine_wanted`.
    Tested {
        engine_wanted: bool,
    },
    Engine,
    Ended(O),
}

impl<R, O: Clone> Life<R, O> {
    pub fn new(request: R) -> Life<R, O> {
        Life { place: Mutex::new(RequestPlace::Here(request)), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, RequestPlace<R, O>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn outcome(&self) -> Option<O> {
        match &*self.lock() {
            RequestPlace::Ended(outcome) => Some(outcome.clone()),
            _ => None,
        }
    }

    /// Whether neither a thread nor the engine has the operation's request, so that `take` would return it.
    pub fn is_here(&self) -> bool {
        matches!(*self.lock(), RequestPlace::Here(_))
    }

    /// Takes the operation's request, to test it. Returns None if a thread or the engine has it, or the
    /// operation has ended.
    pub fn take(&self) -> Option<R> {
        let mut place = self.lock();
        if !matches!(*place, RequestPlace::Here(_)) {
            return None;
        }
        match std::mem::replace(&mut *place, RequestPlace::Tested { engine_wanted: false }) {
            RequestPlace::Here(request) => Some(request),
            _ => None,
        }
    }

    /// Gives the request back after a test that found the operation in progress. Returns the request if the
    /// engine was asked for meanwhile; the caller must then pass it to the engine. None otherwise.
    #[must_use]
    pub fn give_back(&self, request: R) -> Option<R> {
        let mut place = self.lock();
        if matches!(*place, RequestPlace::Tested { engine_wanted: true }) {
            *place = RequestPlace::Engine;
            return Some(request);
        }
        *place = RequestPlace::Here(request);
        None
    }

    /// Asks for the engine to complete the operation. Returns the operation's request if no thread tests it;
    /// the caller must then pass it to the engine. None if a thread tests it, the engine has it, or the
    /// operation has ended.
    #[must_use]
    pub fn request_engine(&self) -> Option<R> {
        let mut place = self.lock();
        if let RequestPlace::Tested { engine_wanted } = &mut *place {
            *engine_wanted = true;
            return None;
        }
        if !matches!(*place, RequestPlace::Here(_)) {
            return None;
        }
        match std::mem::replace(&mut *place, RequestPlace::Engine) {
            RequestPlace::Here(request) => Some(request),
            _ => None,
        }
    }

    /// Ends the operation with `outcome`. Only the thread that has the operation's request calls this, once.
    pub fn end(&self, outcome: O) {
        *self.lock() = RequestPlace::Ended(outcome);
        self.ended.notify_all();
    }

    /// Waits until the operation has ended, and returns its outcome. Returns None if the time `until` comes
    /// first.
    pub fn wait(&self, until: Option<Instant>) -> Option<O> {
        let mut place = self.lock();
        loop {
            if let RequestPlace::Ended(outcome) = &*place {
                return Some(outcome.clone());
            }
            place = match until {
                None => self.ended.wait(place).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.ended.wait_timeout(place, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_request_is_in_one_place() {
        let life: Life<u8, u8> = Life::new(5);
        assert_eq!(life.take(), Some(5));
        assert_eq!(life.take(), None, "a second tester");
        assert_eq!(life.give_back(5), None);
        assert_eq!(life.request_engine(), Some(5));
        assert_eq!(life.request_engine(), None, "the engine has it");
        assert_eq!(life.take(), None, "the engine has it");
        assert_eq!(life.outcome(), None);
        life.end(7);
        assert_eq!(life.outcome(), Some(7));
        assert_eq!(life.wait(None), Some(7));
        assert_eq!((life.take(), life.request_engine()), (None, None), "it has ended");
    }

    #[test]
    fn a_tester_passes_it_on() {
        let life: Life<u8, u8> = Life::new(5);
        assert_eq!(life.take(), Some(5));
        assert_eq!(life.request_engine(), None, "the tester has it");
        assert_eq!(life.give_back(5), Some(5));
        assert_eq!(life.take(), None);
    }

    #[test]
    fn a_test_may_end_what_the_engine_was_asked_for() {
        let life: Life<u8, u8> = Life::new(5);
        assert_eq!(life.take(), Some(5));
        assert_eq!(life.request_engine(), None);
        life.end(7);
        assert_eq!((life.outcome(), life.request_engine()), (Some(7), None));
    }

    #[test]
    fn a_wait_has_a_limit() {
        let life: Life<u8, u8> = Life::new(5);
        assert_eq!(life.wait(Some(Instant::now() + Duration::from_millis(1))), None);
    }
}

/// Waits and tests of one operation, in all orders of the threads. Runs with `--cfg loom` (tests/sanitize
/// loom). Loom reports a wait that would never end.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;

    struct ModelOperation {
        life: Life<u8, u8>,
        ends: AtomicUsize,
    }

    impl ModelOperation {
        fn end(&self) {
            self.ends.fetch_add(1, Ordering::Relaxed);
            self.life.end(7);
        }

        /// Stands for the engine in this model: if the operation's request is passed to it, ends the
        /// operation at once, in the calling thread.
        fn engine(&self, request: Option<u8>) {
            if request.is_some() {
                self.end();
            }
        }

        fn test(&self, finds_the_end: bool) {
            match self.life.take() {
                Some(_) if finds_the_end => self.end(),
                Some(request) => self.engine(self.life.give_back(request)),
                None => {}
            }
        }

        fn wait(&self) {
            self.test(false);
            self.engine(self.life.request_engine());
            assert_eq!(self.life.wait(None), Some(7));
        }
    }

    fn model(finds_the_end: bool, waiters: usize) {
        loom::model(move || {
            let one = Arc::new(ModelOperation { life: Life::new(5), ends: AtomicUsize::new(0) });
            let tester = one.clone();
            let mut threads = vec![thread::spawn(move || tester.test(finds_the_end))];
            for _ in 1..waiters {
                let other = one.clone();
                threads.push(thread::spawn(move || other.wait()));
            }
            one.wait();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(one.ends.load(Ordering::Relaxed), 1, "it ends once");
        });
    }

    #[test]
    fn loom_a_wait_beside_a_test_ends() {
        model(false, 1);
    }

    #[test]
    fn loom_a_wait_beside_a_test_that_ends_it_ends() {
        model(true, 1);
    }

    #[test]
    fn loom_two_waits_beside_a_test_end() {
        model(false, 2);
    }
}
