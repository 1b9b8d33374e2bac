// SPDX-License-Identifier: BSD-3-Clause
//! The one lock on the state of this process, and the guard that holds the lock.
//!
//! Each call takes the lock; at MPI_THREAD_SINGLE that costs nothing. At MPI_THREAD_FUNNELED there is a lock,
//! too, because another thread may make the calls that are always thread-safe (MPI 5.0, section 11.4.1), or
//! start a session.
//!
//! Invariants: the lock is free while a function of the program runs, and while a wait idles. So a call must
//! look up its objects again after either.

use super::{Awaiting, Phase, Process};
use crate::staging;
use objects::Handle;
use objects::constants::{THREAD_MULTIPLE, THREAD_SINGLE};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct SharedProcess(UnsafeCell<Option<Process>>);
// SAFETY: the value is reached through `Guard`, `bare` and `Process::locked` only, of which at most one is in
// use at a time: by the mutex, or because the program promised so when it asked for nothing above
// MPI_THREAD_SINGLE (MPI 5.0, section 11.6).
unsafe impl Sync for SharedProcess {}

static PROCESS: SharedProcess = SharedProcess(UnsafeCell::new(None));
static LOCK: Mutex<()> = Mutex::new(());
/// Whether the program promised, by MPI_THREAD_SINGLE, that it has one thread.
static SINGLE: AtomicBool = AtomicBool::new(false);
/// Whether the program promised that no two threads wait in MPI calls at the same time. Then a wait need not
/// release the lock for other threads.
static LONE: AtomicBool = AtomicBool::new(false);
/// The number of threads that wait for the lock.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// Whether the function `bare` may run a fast path: the program has one thread, this process is in a job, and
/// calls are not timed.
static BARE: AtomicBool = AtomicBool::new(false);

/// The state of the process, with its lock held. The body of each MPI function gets one.
pub struct Guard {
    process: *mut Process,
    pub(super) held: Option<MutexGuard<'static, ()>>,
    /// The name of the running MPI function, and the object whose error handler gets the function's error.
    pub(crate) doing: (&'static str, On),
    /// What the running call waits for, as far as the call has set it, for the report about a long wait.
    pub(crate) awaiting: Awaiting,
}

/// The object whose error handler gets the error of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The comm with this handle.
    Comm(Handle),
    /// The window with this handle.
    Win(Handle),
    /// The file with this handle.
    File(Handle),
    /// MPI_FILE_NULL, in a call about files that has no file yet.
    AnyFile,
    /// The session with this handle.
    Session(Handle),
    /// No object, because the call makes the object. Holds the error handler that is an argument of the call,
    /// and the null handle that this error handler gets.
    WithHandler(Handle, Handle),
    /// No object. The error handler of the comm `Objects::comm_of_no_object` gets the error.
    Nothing,
}

/// Runs the fast path `path` of a call without a guard. Returns None if the call must be timed, or needs the
/// lock. `path` calls neither an MPI function nor a function of the program.
#[inline(always)]
pub fn bare<T>(path: impl FnOnce(&mut Process) -> T) -> Option<T> {
    if !BARE.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: MPI calls do not overlap (`BARE`), and a path makes none, so no other reference to the value
    // exists during this one.
    unsafe { (*PROCESS.0.get()).as_mut() }.map(path)
}

impl Guard {
    /// Takes the lock, for code that is not the body of an MPI function.
    #[inline(always)]
    pub fn enter() -> Guard {
        Guard::with(lock(), ("", On::Nothing))
    }

    /// Takes the lock. Returns None if a thread holds it already, which may be the calling thread.
    pub fn enter_unless_held() -> Option<Guard> {
        LOCK.try_lock().ok().map(|held| Guard::with(Some(held), ("", On::Nothing)))
    }

    #[inline(always)]
    pub(super) fn with(mut held: Option<MutexGuard<'static, ()>>, doing: (&'static str, On)) -> Guard {
        Guard { process: Process::locked(&mut held), held, doing, awaiting: Awaiting::Nothing }
    }

    /// Sets the object whose error handler gets the error that the running call is about to return. For
    /// MPI_Wait, for example, this is the comm of the request.
    pub fn blame(&mut self, on: On) {
        self.doing.1 = on;
    }

    /// Calls `outside` with the lock free, and then takes the lock again. `outside` is a function of the
    /// program, which may call MPI, or an idle wait.
    pub fn unlocked<T>(&mut self, outside: impl FnOnce() -> T) -> T {
        // A function of the program may call MPI, which uses the same record of stand-ins.
        let staged = device::on().then(staging::take);
        self.held = None;
        let value = outside();
        self.held = lock();
        if let Some(staged) = staged {
            staging::put_back(staged);
        }
        value
    }

    /// Decides anew whether calls take the lock. Called after MPI_Init or a session was granted a thread
    /// level, and after one of them was finalized. Calls take the lock outside a job, and above
    /// MPI_THREAD_SINGLE.
    pub fn decide_locking(&mut self) {
        let (level, users) = if self.job.is_some() { self.threads() } else { (THREAD_MULTIPLE, 0) };
        if let Some(job) = &self.job {
            let page = job.membership.segment.rank(job.membership.rank);
            page.thread_level.store(level as u32 + 1, Ordering::Relaxed);
        }
        let mut level = level.max(self.tool_threads());
        if self.job.as_ref().is_some_and(|job| job.streams.have_threads()) {
            level = THREAD_MULTIPLE;
        }
        let single = level == THREAD_SINGLE;
        SINGLE.store(single, Ordering::Relaxed);
        // Two users of the library, such as two sessions, may each have a thread.
        LONE.store(single || level < THREAD_MULTIPLE && users == 1, Ordering::Relaxed);
        BARE.store(single && self.job.is_some() && !telemetry::timed(), Ordering::Relaxed);
        if self.held.is_none() {
            self.held = lock();
        }
    }

    /// Whether another thread may be in a wait at the same time, or waits for the lock.
    #[inline]
    pub(super) fn shares(&self) -> bool {
        self.held.is_some() && (!LONE.load(Ordering::Relaxed) || WANTED.load(Ordering::Relaxed) > 0)
    }

    /// Wakes other threads of this process that sleep in a wait. What this thread has done may end their
    /// wait, and no peer rings the doorbell for that.
    pub(crate) fn wake_others(&mut self) {
        if self.held.is_some() {
            let membership = self.job().membership;
            membership.segment.rank(membership.rank).bell.ring();
        }
    }
}

impl Deref for Guard {
    type Target = Process;
    #[inline]
    fn deref(&self) -> &Process {
        // SAFETY: the process lives for ever; the guard holds the lock, and lends the process only while it
        // is borrowed itself.
        unsafe { &*self.process }
    }
}

impl DerefMut for Guard {
    #[inline]
    fn deref_mut(&mut self) -> &mut Process {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.process }
    }
}

#[inline(always)]
pub(super) fn lock() -> Option<MutexGuard<'static, ()>> {
    if SINGLE.load(Ordering::Relaxed) {
        return None;
    }
    Some(lock_shared())
}

#[inline(never)]
fn lock_shared() -> MutexGuard<'static, ()> {
    if let Ok(held) = LOCK.try_lock() {
        return held;
    }
    WANTED.fetch_add(1, Ordering::Relaxed);
    let held = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    WANTED.fetch_sub(1, Ordering::Relaxed);
    held
}

/// The most times that a thread yields the cpu so that others can take the lock.
const GIVES_TO_THREADS: u32 = 16;

/// Gives threads that wait for the lock time to take it. Without this, the calling thread, which is awake,
/// would take the lock again before they wake.
pub(super) fn let_others_lock() {
    for _ in 0..GIVES_TO_THREADS {
        if WANTED.load(Ordering::Relaxed) == 0 {
            break;
        }
        sys::cpu::yield_cpu();
    }
}

impl Process {
    /// Returns the state of this process. The argument is the result of `lock`, so no other thread uses the
    /// state.
    #[inline(always)]
    pub(super) fn locked<'a>(_held: &'a mut Option<MutexGuard<'static, ()>>) -> &'a mut Process {
        let shared = PROCESS.0.get();
        // SAFETY: the lock is held, or calls do not overlap, so no other reference to the value exists now.
        match unsafe { &mut *shared } {
            Some(process) => process,
            empty => Process::first(empty),
        }
    }

    /// Returns the highest thread level that MPI_Init or an open session has, and how many users of MPI (the
    /// world and sessions) there are.
    fn threads(&self) -> (i32, usize) {
        let world = (self.phase == Phase::Running).then_some(self.thread_level);
        let sessions = self.objects.sessions.iter().map(|(_, session)| session.thread_level);
        let levels = world.into_iter().chain(sessions);
        levels.fold((THREAD_SINGLE, 0), |(highest, users), level| (highest.max(level), users + 1))
    }
}
