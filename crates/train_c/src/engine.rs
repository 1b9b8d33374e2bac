// SPDX-License-Identifier: BSD-3-Clause
//! The engine, whose threads complete operations. One thread sleeps in MPI_Waitsome on all operations in
//! progress, so callbacks come although no caller is inside MPI.
//!
//! The thread that makes progress in this way has the progress role. It gives the role back before it calls
//! the callers' functions, which may wait for other operations. Another thread then takes the role; a new one
//! is started if none is idle.
//!
//! The waker, a generalized request (MPI 5.0, section 13.2), ends the sleep in MPI_Waitsome. It is completed
//! by a start, an abort or a passed deadline. Another thread, the alarm, watches deadlines.
//!
//! Invariants: only the thread with the role tests the operations' requests. A waker is in the list from its
//! start until a thread takes it to complete it, so it is completed once.

use crate::c::MPI_Request;
use crate::fault::{Fault, MPI, Result, STATE, call, fail};
use crate::numbers as n;
use crate::turn::PATIENCE;
use crate::work::{Status, Work, none, was_cancelled};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For how long a closing engine waits for operations that were given up. They may still end, because a peer
/// may have come late.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Engine {
    /// The id of the process that has the engine's threads. A fork of that process has no such threads.
    process: u32,
    /// The operations of the engine, and the role of making progress if no thread has it.
    list: Mutex<List>,
    /// Wakes the threads that wait in `idle`, when an ended operation may have to be reported, or when a
    /// thread must take the progress role.
    needed: Condvar,
    alarm: Mutex<Alarm>,
    /// Wakes the alarm's thread, which watches deadlines, when the next deadline has changed.
    set: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct List {
    arrived: Vec<OwnedOperation>,
    /// The operations that have ended and have not been reported to their callers yet.
    ended: VecDeque<EndedOperation>,
    /// The role of making progress, if no thread has it now. None while a thread has taken it.
    role: Option<ProgressRole>,
    /// The generalized request whose completion ends the sleep in MPI. None before the request is made, and
    /// once a thread has taken it to complete it.
    waker: Option<MPI_Request>,
    /// How many threads wait in `idle` for something to do.
    idle: usize,
    /// The time until which a closing engine waits for operations that were given up. None until `close` is
    /// called.
    closes: Option<Instant>,
    /// The operations that were unfinished when the engine closed. None until the engine has closed.
    left: Option<UnfinishedOperations>,
}

/// The operations whose MPI requests had not completed when the engine closed.
#[derive(Debug, Clone, Copy)]
pub struct UnfinishedOperations {
    /// The number of unfinished operations.
    pub operations: usize,
    /// For how long a peer of one of these operations may still come: the longest of the operations'
    /// timeouts, at least `GRACE`.
    pub patience: Duration,
}

/// The role of making progress. The thread that owns this value waits in MPI for all operations in `held`.
#[derive(Debug)]
struct ProgressRole {
    held: Vec<OwnedOperation>,
    waker: MPI_Request,
    closes: Option<Instant>,
}

impl List {
    /// Whether the role of making progress is free and a thread must take it, because there are operations or
    /// the engine closes.
    fn needs_a_thread(&self) -> bool {
        let works =
            |role: &ProgressRole| !role.held.is_empty() || !self.arrived.is_empty() || self.closes.is_some();
        self.left.is_none() && self.role.as_ref().is_some_and(works)
    }

    /// Takes an ended operation that may be reported to its caller now. None if there is no such operation.
    fn next_to_report(&mut self) -> Option<EndedOperation> {
        let at = self.ended.iter().position(|one| one.work.may_report())?;
        self.ended.remove(at)
    }

    fn may_end(&self, held: &[OwnedOperation]) -> bool {
        let is_over = |until: Instant| held.is_empty() || until <= Instant::now();
        self.closes.is_some_and(is_over) && held.iter().all(OwnedOperation::is_lost)
    }
}

#[derive(Debug, Default)]
struct Alarm {
    next: Option<Instant>,
    closed: bool,
}

/// An operation whose MPI request the engine tests. The callers' threads no longer test it.
#[derive(Debug)]
struct OwnedOperation {
    request: MPI_Request,
    work: Arc<Work>,
    /// Why the operation was given up. None if it was not. A receive that was given up ends once MPI has
    /// cancelled it. Any other operation that was given up has ended for its caller, but MPI may still write
    /// into its buffer.
    given_up: Option<Fault>,
}

impl OwnedOperation {
    /// Whether the operation has ended for its caller, although its MPI request has not completed.
    fn is_lost(&self) -> bool {
        self.given_up.is_some() && !self.work.task.is_receive
    }

    fn ended(&self, outcome: Result<()>, status: Status) -> EndedOperation {
        EndedOperation { work: self.work.clone(), outcome, status: Some(status) }
    }
}

/// An operation that has ended and has not been reported to its caller yet.
#[derive(Debug)]
struct EndedOperation {
    work: Arc<Work>,
    outcome: Result<()>,
    status: Option<Status>,
}

static ENGINE: OnceLock<Engine> = OnceLock::new();

impl Engine {
    /// Returns the engine of this process. Fails before `outboard_dl_init`, and in a process that was forked
    /// after `outboard_dl_init`.
    pub fn get() -> Result<&'static Engine> {
        match ENGINE.get() {
            None => fail(STATE, "outboard_dl_init has not been called"),
            Some(engine) if engine.process != std::process::id() => fail(
                STATE,
                format!(
                    "process {} is a fork of process {}, whose operations it cannot use: MPI belongs to the process that initialised it",
                    std::process::id(),
                    engine.process
                ),
            ),
            Some(engine) => Ok(engine),
        }
    }

    /// Starts the engine's threads.
    pub fn open() -> Result<()> {
        let engine = ENGINE.get_or_init(|| Engine {
            process: std::process::id(),
            list: Mutex::new(List {
                arrived: Vec::new(),
                ended: VecDeque::new(),
                role: Some(ProgressRole { held: Vec::new(), waker: none(), closes: None }),
                waker: None,
                idle: 0,
                closes: None,
                left: None,
            }),
            needed: Condvar::new(),
            alarm: Mutex::default(),
            set: Condvar::new(),
            threads: Mutex::default(),
        });
        engine.spawn("outboard-dl", Engine::serve)?;
        engine.spawn("outboard-alarm", Engine::watch)
    }

    fn spawn(&'static self, name: &str, run: fn(&'static Engine)) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(self));
        let thread =
            thread.map_err(|error| Fault { code: STATE, message: format!("no thread {name}: {error}") })?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until each operation has ended or was given up, then ends the threads. Returns the operations
    /// that were given up and whose MPI requests have not completed.
    pub fn close(&'static self) -> UnfinishedOperations {
        self.list().closes = Some(Instant::now() + GRACE);
        self.wake();
        let mut list = self.list();
        let left = loop {
            match list.left {
                Some(left) => break left,
                None => list = self.needed.wait(list).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(list);
        self.alarm.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.set.notify_one();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads.into_iter().filter(|one| one.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
        left
    }

    pub fn take_over(&'static self, request: MPI_Request, work: Arc<Work>) {
        work.enter();
        self.list().arrived.push(OwnedOperation { request, work, given_up: None });
        self.wake();
    }

    /// Makes a thread of the engine look for new operations, for aborted groups, and for deadlines that have
    /// passed.
    pub fn wake(&'static self) {
        let mut list = self.list();
        self.wake_a_thread(&list);
        if list.role.is_none()
            && let Some(waker) = list.waker.take()
        {
            drop(list);
            let _ = call!(MPI_Grequest_complete(waker));
        }
    }

    /// Wakes or starts another thread if ended operations are to be reported, or if a thread must take the
    /// role of making progress.
    fn wake_a_thread(&'static self, list: &List) {
        if list.ended.is_empty() && !list.needs_a_thread() {
            return;
        }
        // Without another thread, the thread that calls a function continues afterwards.
        if list.idle == 0 && self.spawn("outboard-dl", Engine::serve).is_ok() {
            return;
        }
        self.needed.notify_all();
    }

    fn serve(&'static self) {
        let mut list = self.list();
        loop {
            if let Some(EndedOperation { work, outcome, status }) = list.next_to_report() {
                // The function may wait.
                self.wake_a_thread(&list);
                drop(list);
                work.report(outcome, status.as_ref());
                list = self.list();
            } else if list.needs_a_thread() {
                // A thread must see when these operations may report to their callers.
                if !list.ended.is_empty() && list.idle == 0 {
                    let _ = self.spawn("outboard-dl", Engine::serve);
                }
                let Some(mut role) = self.take_role(&mut list) else { continue };
                drop(list);
                let mut ended = give_up(&mut role.held);
                self.set_alarm(&role);
                if ended.is_empty() {
                    wait_some(&mut role, &mut ended);
                }
                list = self.list();
                list.role = Some(role);
                list.ended.extend(ended);
            } else if list.left.is_some() && list.ended.is_empty() {
                return;
            } else {
                list = self.idle(list);
            }
        }
    }

    /// Waits until there may be an ended operation to report, or the role of making progress to take.
    fn idle<'a>(&self, mut list: MutexGuard<'a, List>) -> MutexGuard<'a, List> {
        list.idle += 1;
        let mut list = if list.ended.is_empty() {
            self.needed.wait(list).unwrap_or_else(PoisonError::into_inner)
        } else {
            let waited = self.needed.wait_timeout(list, PATIENCE / 8);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        list.idle -= 1;
        list
    }

    /// Takes the role of making progress, with the operations that have arrived. Returns None if another
    /// thread has the role, or the engine has closed.
    fn take_role(&self, list: &mut List) -> Option<ProgressRole> {
        let mut role = list.role.take()?;
        role.held.append(&mut list.arrived);
        role.closes = list.closes;
        if list.may_end(&role.held) {
            end_waker(list.waker.take(), role.waker);
            let patience = role.held.iter().filter_map(|held| held.work.timeout).max();
            list.left = Some(UnfinishedOperations {
                operations: role.held.len(),
                patience: patience.unwrap_or_default().max(GRACE),
            });
            // Their buffers stay: a peer may still write there.
            std::mem::forget(role.held);
            self.needed.notify_all();
            return None;
        }
        if role.waker == none() {
            role.waker = match start_waker() {
                Ok(waker) => waker,
                Err(fault) => panic!("outboard-dl: {}", fault.message),
            };
            list.waker = Some(role.waker);
        }
        Some(role)
    }

    fn set_alarm(&self, role: &ProgressRole) {
        let live = role.held.iter().filter(|held| held.given_up.is_none());
        let Some(next) = live
            .filter_map(|held| held.work.deadline)
            .chain(role.closes.filter(|until| *until > Instant::now()))
            .min()
        else {
            return;
        };
        let mut alarm = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        // A deadline that is no longer needed only makes the thread look, and set the next.
        if alarm.next.is_none_or(|set| next < set) {
            alarm.next = Some(next);
            self.set.notify_one();
        }
    }

    fn watch(&'static self) {
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
    }
}

/// Gives up the operations whose deadline has passed or whose group has failed. Cancels each receive, which
/// ends later. MPI cannot end another operation early, so it ends only for the caller: its request stays, and
/// its group fails. Returns the operations that have ended for their callers.
fn give_up(held: &mut [OwnedOperation]) -> Vec<EndedOperation> {
    let (mut ended, now) = (Vec::new(), Instant::now());
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
            ended.push(EndedOperation { work: work.clone(), outcome: Err(fault), status: None });
        }
    }
    ended
}

/// Waits in MPI until one or more operations or the waker complete. Adds the ended operations to `over`.
fn wait_some(role: &mut ProgressRole, over: &mut Vec<EndedOperation>) {
    let ProgressRole { held, waker, .. } = role;
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
    // The error of the call names what happened, for the first that failed.
    let mut facts = waited.as_ref().err().map(Fault::first_failure);
    for (place, status) in places.iter().zip(&mut statuses).take(usize::try_from(ended).unwrap_or(0)) {
        let Some(held) = usize::try_from(*place).ok().and_then(|place| held.get_mut(place)) else { continue };
        // With MPI_ERR_IN_STATUS each status has its own error.
        let outcome = match &waited {
            Ok(()) => Ok(()),
            Err(_) => crate::fault::mpi(status[n::F_ERROR as usize], held.work.task.name)
                .map_err(|fault| fault.with(facts.take())),
        };
        match held.given_up.take() {
            Some(_) if !held.work.task.is_receive => {}
            Some(fault) if was_cancelled(status) => over.push(held.ended(Err(fault), *status)),
            _ => over.push(held.ended(outcome, *status)),
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

/// Frees `waker`. Completes it first if no thread has taken it from the list: it is then in `listed`.
/// Otherwise the thread that has taken it completes it.
fn end_waker(listed: Option<MPI_Request>, mut waker: MPI_Request) {
    if let Some(listed) = listed {
        let _ = call!(MPI_Grequest_complete(listed));
    }
    if waker != none() {
        let mut status = Status::default();
        let _ = call!(MPI_Wait(&raw mut waker, status.as_mut_ptr()));
    }
}
