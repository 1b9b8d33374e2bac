// SPDX-License-Identifier: BSD-3-Clause
//! An operation of a group: its MPI request until it has ended, and then its outcome.
//!
//! Only the thread that has the request (`life.rs`) may test it. That is a thread that waits for the
//! operation, or a thread of the engine. An operation ends once, in `Work::end`, which calls the caller's
//! function first.

use crate::c::MPI_Request;
use crate::engine::Engine;
use crate::fault::{ARGUMENT, Fault, OK, Result, TIMEOUT, code, fail};
use crate::group::Group;
use crate::kind::{Average, ElementKind, handle};
use crate::life::Life;
use crate::numbers as n;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// For how long a wait tests the request in its own thread before it passes the request to the engine: about
/// the time of a switch between two threads.
const OWN: Duration = Duration::from_micros(200);

type CallbackFunction = extern "C" fn(state: *mut c_void, code: c_int, message: *const c_char);

/// The function that is to be called when an operation ends, and the argument (`state`) that the function
/// gets.
#[derive(Debug, Clone, Copy)]
pub struct Callback {
    pub function: CallbackFunction,
    pub state: usize,
}

/// The name, element count and type, and number of an operation, which error messages contain.
#[derive(Debug, Clone, Copy)]
pub struct OperationFacts {
    pub name: &'static str,
    pub count: i64,
    pub kind: ElementKind,
    /// The number of the operation among the operations of its group.
    pub number: u64,
    pub is_receive: bool,
    /// Whether the operation is a send or a receive, not a collective.
    pub is_message: bool,
}

/// An operation whose callback (the caller's function) runs now: its group, and its number in the group.
#[derive(Debug, Clone)]
pub struct Reporting {
    group: Arc<Group>,
    number: u64,
}

impl Reporting {
    fn is(&self, other: &Reporting) -> bool {
        Arc::ptr_eq(&self.group, &other.group) && self.number == other.number
    }
}

thread_local! {
    /// The operation whose callback runs in this thread. None if no callback runs in it.
    static REPORTING: RefCell<Option<Reporting>> = const { RefCell::new(None) };
}

/// Counts the operation that this thread starts as started by the callback in which the thread runs. Returns
/// the operation whose callback that is. None if the thread runs in no callback.
pub fn note_start_in_callback() -> Option<Reporting> {
    let reporting = REPORTING.with_borrow(Clone::clone)?;
    reporting.group.turns.note_inner(reporting.number, true, Instant::now());
    Some(reporting)
}

#[derive(Debug)]
pub struct Work {
    pub group: Arc<Group>,
    pub task: OperationFacts,
    pub timeout: Option<Duration>,
    pub deadline: Option<Instant>,
    pub average: Option<Average>,
    /// The counts and displacements of the operation. MPI reads them until the operation has ended (MPI 5.0,
    /// section 6.12).
    #[expect(dead_code, reason = "MPI reads them")]
    pub lists: Vec<i64>,
    pub callback: Option<Callback>,
    /// The operation in whose callback this operation was started. None if it was started outside callbacks.
    pub within: Option<Reporting>,
    pub life: Life<MPI_Request, Result<()>>,
    /// The rank of the sender, if the operation is a receive that has ended. Otherwise -1.
    pub source: AtomicI32,
}

pub type Status = [c_int; n::F_STATUS_SIZE as usize];

impl Work {
    /// Ends the operation: divides an average, calls the callback and stores the outcome. `status` is the
    /// status of the operation's MPI request.
    pub fn end(&self, outcome: Result<()>, status: Option<&Status>) {
        if let Some(average) = self.average.filter(|_| outcome.is_ok()) {
            average.divide();
        }
        if let Some(status) = status.filter(|_| self.task.is_receive) {
            self.source.store(status[n::F_SOURCE as usize], Ordering::Relaxed);
        }
        if let Some(Callback { function, state }) = self.callback {
            let (code, message) = match &outcome {
                Ok(()) => (OK, CString::default()),
                Err(fault) => (fault.code, CString::new(fault.message.as_str()).unwrap_or_default()),
            };
            function(state as *mut c_void, code, message.as_ptr());
        }
        self.life.end(outcome);
        if let Some(Reporting { group, number }) = &self.within {
            group.turns.note_inner(*number, false, Instant::now());
        }
    }

    /// Whether the end of the operation is reported in turn with the group's other operations. True for a
    /// collective that no callback has started.
    fn has_turn(&self) -> bool {
        !self.task.is_message && self.within.is_none()
    }

    /// Adds the operation to those of its group that are reported in turn, if `has_turn` is true for it. The
    /// engine calls this when it gets the operation's request.
    pub fn enter(&self) {
        if self.has_turn() {
            self.group.turns.enter(self.task.number);
        }
    }

    /// Whether `report` may be called for the operation now. If so, this has started the operation's turn.
    pub fn may_report(&self) -> bool {
        !self.has_turn() || self.group.turns.start(self.task.number, Instant::now())
    }

    /// Ends the operation, whose turn `may_report` has started, and then ends the turn.
    pub fn report(&self, outcome: Result<()>, status: Option<&Status>) {
        let own = self.has_turn().then(|| Reporting { group: self.group.clone(), number: self.task.number });
        let before = REPORTING.replace(own.or_else(|| self.within.clone()));
        self.end(outcome, status);
        REPORTING.set(before);
        if self.has_turn() {
            self.group.turns.leave(self.task.number);
        }
    }

    /// Ends the turn of the callback in which this thread runs, unless that callback has started this
    /// operation. So other operations are reported while the thread waits for this one.
    fn yield_turn(&self) {
        let reporting = REPORTING.with_borrow(Clone::clone);
        if let (Some(reporting), Ok(engine)) = (reporting, Engine::get())
            && !self.within.as_ref().is_some_and(|within| within.is(&reporting))
        {
            reporting.group.turns.leave(reporting.number);
            engine.wake();
        }
    }

    pub fn late(&self) -> Fault {
        let Group { name, rank, size, .. } = &*self.group;
        let OperationFacts { name: call, count, kind, number, .. } = self.task;
        let seconds = self.timeout.unwrap_or_default().as_secs_f64();
        let message = format!(
            "{call} of {count} {}, operation {number} of group {name}, did not end within its timeout of {seconds} s at rank {rank} of {size}",
            kind.name()
        );
        Fault { code: TIMEOUT, message }
    }

    /// Tests the operation's MPI request if no other thread has it. Returns the outcome, or None if the
    /// operation has not ended.
    fn test(self: &Arc<Work>) -> Option<Result<()>> {
        let Some(mut request) = self.life.take() else { return self.life.outcome() };
        let (mut done, mut status) = (0, Status::default());
        let tested = crate::fault::call!(MPI_Test(&raw mut request, &raw mut done, status.as_mut_ptr()));
        if tested.is_ok() && done == 0 {
            self.pass_to_engine(self.life.give_back(request));
            // The engine ends it in time.
            if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                self.request_engine();
            }
            return None;
        }
        self.end(tested.clone(), Some(&status));
        Some(tested)
    }

    /// Lets the engine, the thread of this library that completes operations, wait for the MPI request. Does
    /// nothing if `request` is None: another thread tests the operation's request.
    fn pass_to_engine(self: &Arc<Work>, request: Option<MPI_Request>) {
        if let (Some(request), Ok(engine)) = (request, Engine::get()) {
            engine.take_over(request, self.clone());
        }
    }

    /// Makes the engine complete the operation, as soon as no other thread tests its request.
    pub fn request_engine(self: &Arc<Work>) {
        self.pass_to_engine(self.life.request_engine());
    }

    fn wait(self: &Arc<Work>, timeout: Option<Duration>) -> Result<()> {
        let started = Instant::now();
        while self.life.is_here() && started.elapsed() < OWN {
            if let Some(outcome) = self.test() {
                return outcome;
            }
        }
        self.request_engine();
        self.yield_turn();
        if let Some(outcome) = self.life.wait(timeout.and_then(|timeout| started.checked_add(timeout))) {
            return outcome;
        }
        let seconds = timeout.unwrap_or_default().as_secs_f64();
        let OperationFacts { name, number, .. } = self.task;
        let Group { name: group, rank, size, .. } = &*self.group;
        fail(
            TIMEOUT,
            format!(
                "{name}, operation {number} of group {group}, has not ended within the timeout of {seconds} s of a wait at rank {rank} of {size}"
            ),
        )
    }
}

/// Whether a receive with this status was cancelled.
pub fn was_cancelled(status: &mut Status) -> bool {
    let mut flag = 0;
    crate::fault::call!(MPI_Test_cancelled(status.as_mut_ptr(), &raw mut flag)).is_ok() && flag != 0
}

/// Returns the handle MPI_REQUEST_NULL.
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
        Engine::get()?;
        let outcome = work.test();
        // SAFETY: not null; the crate's contract.
        unsafe { *done = c_int::from(outcome.is_some()) };
        outcome.unwrap_or(Ok(()))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_wait(work: *const Work, timeout: f64) -> c_int {
    let timeout = (timeout >= 0.0).then(|| Duration::from_secs_f64(timeout.min(1e9)));
    code(of_handle(work).and_then(|work| {
        // In a fork no thread would end it.
        Engine::get()?;
        work.wait(timeout)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_source(work: *const Work) -> c_int {
    of_handle(work).map_or(-1, |work| work.source.load(Ordering::Relaxed))
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_work_free(work: *const Work) {
    if !work.is_null() {
        // SAFETY: not null; the handle's own count ends here.
        let work = unsafe { Arc::from_raw(work) };
        // The operation continues without the handle.
        work.request_engine();
    }
}
