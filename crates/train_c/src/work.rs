// SPDX-License-Identifier: BSD-3-Clause
//! An operation: MPI's request, until it has ended, and what it ended with.
//!
//! The request is in one place at a time: here while the caller itself carries out the operation, or with the
//! engine. Whoever has it may test it. An operation ends once, in `Work::end`, which calls the caller's
//! function first.

use crate::c::MPI_Request;
use crate::engine::Engine;
use crate::fault::{ARGUMENT, Fault, OK, Result, TIMEOUT, code, fail};
use crate::group::Group;
use crate::kind::{Average, Kind, handle};
use crate::numbers as n;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a wait tests by itself before it leaves the operation to the engine: what two threads' switch
/// costs.
const OWN: Duration = Duration::from_micros(200);

type Function = extern "C" fn(state: *mut c_void, code: c_int, message: *const c_char);

/// The caller's function and its state.
#[derive(Debug)]
pub struct Callback {
    pub function: Function,
    pub state: usize,
}

/// What an operation is: for its messages.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    pub name: &'static str,
    pub count: i64,
    pub kind: Kind,
    /// Its number in its group.
    pub number: u64,
    pub is_receive: bool,
}

#[derive(Debug)]
pub struct Work {
    pub group: Arc<Group>,
    pub task: Task,
    pub timeout: Option<Duration>,
    pub deadline: Option<Instant>,
    pub average: Option<Average>,
    /// Counts and places, which MPI reads until the operation has ended (MPI 5.0, section 6.12).
    pub lists: Vec<i64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    request: Option<MPI_Request>,
    callback: Option<Callback>,
    outcome: Option<Result<()>>,
    source: c_int,
}

pub type Status = [c_int; n::F_STATUS_SIZE as usize];

impl Work {
    pub fn new(group: Arc<Group>, task: Task, timeout: Option<Duration>, callback: Option<Callback>) -> Work {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let state = Mutex::new(State { callback, source: -1, ..State::default() });
        Work {
            group,
            task,
            timeout,
            deadline,
            average: None,
            lists: Vec::new(),
            state,
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the request to the waits of the caller.
    pub fn keep(&self, request: MPI_Request) {
        self.lock().request = Some(request);
    }

    /// Ends the operation. `status` is that of MPI.
    pub fn end(&self, outcome: Result<()>, status: Option<&Status>) {
        if let Some(average) = self.average.filter(|_| outcome.is_ok()) {
            average.divide();
        }
        let callback = {
            let mut state = self.lock();
            if let Some(status) = status.filter(|_| self.task.is_receive) {
                state.source = status[n::F_SOURCE as usize];
            }
            state.callback.take()
        };
        if let Some(Callback { function, state }) = callback {
            let (code, message) = match &outcome {
                Ok(()) => (OK, CString::default()),
                Err(fault) => (fault.code, CString::new(fault.message.as_str()).unwrap_or_default()),
            };
            function(state as *mut c_void, code, message.as_ptr());
        }
        self.lock().outcome = Some(outcome);
        self.changed.notify_all();
    }

    pub fn late(&self) -> Fault {
        let Group { name, rank, size, .. } = &*self.group;
        let Task { name: call, count, kind, number, .. } = self.task;
        let seconds = self.timeout.unwrap_or_default().as_secs_f64();
        let message = format!(
            "{call} of {count} {}, operation {number} of group {name}, did not end within its timeout of {seconds} s at rank {rank} of {size}",
            kind.name()
        );
        Fault { code: TIMEOUT, message }
    }

    /// Whether it has ended; a test of its own if the request is here.
    fn test(&self) -> Option<Result<()>> {
        let mut request = {
            let mut state = self.lock();
            if state.outcome.is_some() {
                return state.outcome.clone();
            }
            // Another thread may be testing it.
            state.request.take()?
        };
        let (mut done, mut status) = (0, Status::default());
        let tested = crate::fault::call!(MPI_Test(&raw mut request, &raw mut done, status.as_mut_ptr()));
        if tested.is_ok() && done == 0 {
            self.keep(request);
            return None;
        }
        self.end(tested.clone(), Some(&status));
        Some(tested)
    }

    /// Gives the request to the engine, if it is here.
    pub fn hand_over(self: &Arc<Work>) {
        let request = self.lock().request.take();
        if let (Some(request), Ok(engine)) = (request, Engine::get()) {
            engine.carry_out(request, self.clone());
        }
    }

    fn wait(self: &Arc<Work>, timeout: Option<Duration>) -> Result<()> {
        let begun = Instant::now();
        if self.lock().request.is_some() {
            while begun.elapsed() < OWN {
                if let Some(outcome) = self.test() {
                    return outcome;
                }
            }
            self.hand_over();
        }
        let until = timeout.and_then(|timeout| begun.checked_add(timeout));
        let mut state = self.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            state = match until {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        drop(state);
                        let seconds = timeout.unwrap_or_default().as_secs_f64();
                        let Task { name, number, .. } = self.task;
                        return fail(
                            TIMEOUT,
                            format!(
                                "{name}, operation {number} of group {}, has not ended within the timeout of {seconds} s of a wait at rank {} of {}",
                                self.group.name, self.group.rank, self.group.size
                            ),
                        );
                    }
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Whether MPI says that a receive was cancelled.
pub fn was_cancelled(status: &mut Status) -> bool {
    let mut flag = 0;
    crate::fault::call!(MPI_Test_cancelled(status.as_mut_ptr(), &raw mut flag)).is_ok() && flag != 0
}

/// The null request.
pub fn none() -> MPI_Request {
    handle(n::REQUEST_NULL)
}

fn of_handle(work: *const Work) -> Result<Arc<Work>> {
    if work.is_null() {
        return fail(ARGUMENT, "the work is a null pointer");
    }
    // SAFETY: not null, and by the crate's contract a start returned it, from an Arc, and it is not freed.
    unsafe { Arc::increment_strong_count(work) };
    // SAFETY: as above; the count that was added is this one's.
    Ok(unsafe { Arc::from_raw(work) })
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_test(work: *const Work, done: *mut c_int) -> c_int {
    code(of_handle(work).and_then(|work| {
        if done.is_null() {
            return fail(ARGUMENT, "done is a null pointer");
        }
        let outcome = work.test();
        // SAFETY: not null; the crate's contract.
        unsafe { *done = c_int::from(outcome.is_some()) };
        outcome.unwrap_or(Ok(()))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_wait(work: *const Work, timeout: f64) -> c_int {
    let timeout = (timeout >= 0.0).then(|| Duration::from_secs_f64(timeout.min(1e9)));
    code(of_handle(work).and_then(|work| work.wait(timeout)))
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_source(work: *const Work) -> c_int {
    of_handle(work).map_or(-1, |work| work.lock().source)
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_work_free(work: *const Work) {
    if !work.is_null() {
        // SAFETY: not null; the handle's own count ends here.
        let work = unsafe { Arc::from_raw(work) };
        // It goes on without the handle.
        work.hand_over();
    }
}
