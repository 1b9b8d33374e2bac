// SPDX-License-Identifier: BSD-3-Clause
//! Who makes progress: a thread that sleeps in MPI_Waitsome on all operations that are under way, so
//! callbacks come without a caller inside MPI. With no operation it sleeps on a condition.
//!
//! It is woken from MPI_Waitsome by a generalized request (MPI 5.0, section 13.2): a start, an abort or a
//! deadline completes it. Deadlines are the alarm's, a second thread that hardly ever runs.
//!
//! Invariants: only this thread tests the requests that it has. A waker is in the list from its start until
//! somebody takes it to complete it, so it is completed once.

use crate::c::MPI_Request;
use crate::fault::{Fault, MPI, Result, STATE, call, fail};
use crate::numbers as n;
use crate::work::{Status, Work, none, was_cancelled};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What operations that were given up get to end all the same when the engine closes: a peer may just have
/// come.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Engine {
    list: Mutex<List>,
    arrived: Condvar,
    alarm: Mutex<Alarm>,
    set: Condvar,
    threads: Mutex<Vec<JoinHandle<usize>>>,
}

#[derive(Debug, Default)]
struct List {
    arrived: Vec<Held>,
    /// The generalized request that ends the wait in MPI.
    waker: Option<MPI_Request>,
    /// The thread waits for the condition, not in MPI.
    sleeps: bool,
    /// Set when the engine closes: until when it waits for operations that were given up.
    closes: Option<Instant>,
}

impl List {
    fn may_end(&self, held: &[Held]) -> bool {
        let is_over = |until: Instant| held.is_empty() || until <= Instant::now();
        self.closes.is_some_and(is_over) && held.iter().all(Held::is_lost)
    }
}

#[derive(Debug, Default)]
struct Alarm {
    next: Option<Instant>,
    closed: bool,
}

/// An operation of which the engine has the request.
#[derive(Debug)]
struct Held {
    request: MPI_Request,
    work: Arc<Work>,
    /// Why it has ended for its caller, or, if it is a receive, will once it is cancelled. MPI may still
    /// write.
    given_up: Option<Fault>,
}

impl Held {
    /// It has ended for its caller, but not for MPI.
    fn is_lost(&self) -> bool {
        self.given_up.is_some() && !self.work.task.is_receive
    }
}

static ENGINE: OnceLock<Engine> = OnceLock::new();

impl Engine {
    pub fn get() -> Result<&'static Engine> {
        ENGINE.get().map_or_else(|| fail(STATE, "outboard_dl_init has not been called"), Ok)
    }

    /// Starts the threads.
    pub fn open() -> Result<()> {
        let engine = ENGINE.get_or_init(Engine::default);
        let spawn = |name: &str, run: fn(&'static Engine) -> usize| {
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(engine));
            thread.map_err(|error| Fault { code: STATE, message: format!("no thread {name}: {error}") })
        };
        let threads = [spawn("outboard-dl", Engine::progress)?, spawn("outboard-alarm", Engine::watch)?];
        engine.threads.lock().unwrap_or_else(PoisonError::into_inner).extend(threads);
        Ok(())
    }

    /// Ends all operations, then the threads. Returns how many operations have not ended for MPI.
    pub fn close(&self) -> usize {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).closes = Some(Instant::now() + GRACE);
        self.wake();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let mut left = 0;
        for thread in threads {
            left += thread.join().unwrap_or(0);
            self.alarm.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
            self.set.notify_one();
        }
        left
    }

    pub fn carry_out(&self, request: MPI_Request, work: Arc<Work>) {
        let held = Held { request, work, given_up: None };
        self.list.lock().unwrap_or_else(PoisonError::into_inner).arrived.push(held);
        self.wake();
    }

    /// Makes the thread look at the list, at groups that were aborted, and at deadlines.
    pub fn wake(&self) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.sleeps {
            list.sleeps = false;
            self.arrived.notify_one();
        } else if let Some(waker) = list.waker.take() {
            drop(list);
            let _ = call!(MPI_Grequest_complete(waker));
        }
    }

    fn progress(&self) -> usize {
        let mut held: Vec<Held> = Vec::new();
        let mut waker = none();
        loop {
            let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
            held.append(&mut list.arrived);
            while held.is_empty() && list.closes.is_none() {
                list.sleeps = true;
                list = self.arrived.wait(list).unwrap_or_else(PoisonError::into_inner);
                list.sleeps = false;
                held.append(&mut list.arrived);
            }
            if list.may_end(&held) {
                let last = list.waker.take();
                drop(list);
                end_waker(last, waker);
                let left = held.len();
                // Their buffers stay: a peer may still write there.
                std::mem::forget(held);
                return left;
            }
            if waker == none() {
                waker = match start_waker() {
                    Ok(waker) => waker,
                    Err(fault) => panic!("outboard-dl: {}", fault.message),
                };
                list.waker = Some(waker);
            }
            let closes = list.closes;
            drop(list);
            give_up(&mut held);
            self.set_alarm(&held, closes);
            wait_some(&mut held, &mut waker);
        }
    }

    fn set_alarm(&self, held: &[Held], closes: Option<Instant>) {
        let live = held.iter().filter(|held| held.given_up.is_none());
        let Some(next) = live
            .filter_map(|held| held.work.deadline)
            .chain(closes.filter(|until| *until > Instant::now()))
            .min()
        else {
            return;
        };
        let mut alarm = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        // An earlier one only makes the thread look, and set the next.
        if alarm.next.is_none_or(|set| next < set) {
            alarm.next = Some(next);
            self.set.notify_one();
        }
    }

    fn watch(&self) -> usize {
        let mut alarm = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        while !alarm.closed {
            let left = alarm.next.map(|next| next.saturating_duration_since(Instant::now()));
            alarm = match left {
                None => self.set.wait(alarm).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => {
                    alarm.next = None;
                    drop(alarm);
                    self.wake();
                    self.alarm.lock().unwrap_or_else(PoisonError::into_inner)
                }
                Some(left) => self.set.wait_timeout(alarm, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        0
    }
}

/// Ends operations whose time is over or whose group has failed. A receive is cancelled. Of a collective MPI
/// knows no end but the good one, so its request stays, and its group has failed.
fn give_up(held: &mut [Held]) {
    let now = Instant::now();
    for held in held.iter_mut().filter(|held| held.given_up.is_none()) {
        let work = &held.work;
        let fault = match work.group.check() {
            Err(fault) => fault,
            Ok(()) if work.deadline.is_some_and(|deadline| deadline <= now) => work.late(),
            Ok(()) => continue,
        };
        held.given_up = Some(fault.clone());
        if work.task.is_receive {
            let _ = call!(MPI_Cancel(&raw mut held.request));
        } else {
            work.group.fail(format!("an operation of the group had to be given up: {}", fault.message));
            work.end(Err(fault), None);
        }
    }
}

/// Waits until an operation has ended, or the waker.
fn wait_some(held: &mut Vec<Held>, waker: &mut MPI_Request) {
    let mut requests: Vec<MPI_Request> = held.iter().map(|held| held.request).collect();
    requests.push(*waker);
    let mut ended = 0;
    let mut places = vec![0 as c_int; requests.len()];
    let mut statuses = vec![Status::default(); requests.len()];
    let waited = call!(MPI_Waitsome(
        requests.len() as c_int,
        requests.as_mut_ptr(),
        &raw mut ended,
        places.as_mut_ptr(),
        statuses.as_mut_ptr().cast()
    ));
    *waker = requests.pop().unwrap_or_else(none);
    for (held, request) in held.iter_mut().zip(&requests) {
        held.request = *request;
    }
    for (place, status) in places.iter().zip(&mut statuses).take(usize::try_from(ended).unwrap_or(0)) {
        let Some(held) = usize::try_from(*place).ok().and_then(|place| held.get_mut(place)) else { continue };
        // With MPI_ERR_IN_STATUS each status has its own error.
        let outcome = match &waited {
            Ok(()) => Ok(()),
            Err(_) => crate::fault::mpi(status[n::F_ERROR as usize], held.work.task.name),
        };
        match held.given_up.take() {
            None => held.work.end(outcome, Some(status)),
            Some(fault) if held.work.task.is_receive => {
                let outcome = if was_cancelled(status) { Err(fault) } else { outcome };
                held.work.end(outcome, Some(status));
            }
            Some(_) => {}
        }
    }
    held.retain(|held| held.request != none());
}

extern "C" fn query(_: *mut c_void, _: *mut c_int) -> c_int {
    n::SUCCESS
}

extern "C" fn free(_: *mut c_void) -> c_int {
    n::SUCCESS
}

extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    n::SUCCESS
}

fn start_waker() -> Result<MPI_Request> {
    let mut waker = none();
    let functions = [
        query as extern "C" fn(*mut c_void, *mut c_int) -> c_int as usize,
        free as extern "C" fn(*mut c_void) -> c_int as usize,
        cancel as extern "C" fn(*mut c_void, c_int) -> c_int as usize,
    ];
    let [query, free, cancel] = functions;
    call!(MPI_Grequest_start(query, free, cancel, std::ptr::null_mut(), &raw mut waker))?;
    if waker == none() { fail(MPI, "MPI_Grequest_start returned no request") } else { Ok(waker) }
}

/// Completes a waker that nobody has taken, and takes it out of MPI.
fn end_waker(listed: Option<MPI_Request>, mut waker: MPI_Request) {
    if let Some(listed) = listed {
        let _ = call!(MPI_Grequest_complete(listed));
    }
    if waker != none() {
        let mut status = Status::default();
        let _ = call!(MPI_Wait(&raw mut waker, status.as_mut_ptr()));
    }
}
