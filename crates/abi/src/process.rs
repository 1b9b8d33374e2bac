//! All state of this process, behind one lock, and the only place that waits.
//!
//! The lock is taken by every call, but costs nothing at MPI_THREAD_SINGLE. At MPI_THREAD_FUNNELED already another thread may call what is always
//! thread-safe (MPI 5.0, section 11.4.1), or begin a session, whatever the main thread is in. It is let go
//! while a function of the program runs and while a wait idles, so nothing that a body found may be kept over either.

use crate::body::p2p::Taken;
use crate::callback;
use crate::deadlock;
use crate::deferred::Deferred;
use crate::image::Operator;
use crate::raise;
use crate::request::{Request, Work};
use crate::window::Win;
use boot::Membership;
use coll::Coll;
use error::{Class, Error, Result};
use executor::{Executor, Poll};
pub use objects::constants::SUCCESS;
use objects::constants::{COMM_NULL, THREAD_MULTIPLE, THREAD_SINGLE};
use objects::{Handle, Kind, Objects, Table};
use p2p::P2p;
use progress::{Cpus, Idle, Pace, Turn};
use rma::Rma;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use telemetry::Counter;

/// How far the process is in leaving its job, which it does once, whatever sessions come after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Others may still need it.
    Needed,
    /// It has finalized once with nothing left to do.
    Arrived,
    /// So have all others.
    Left,
}

/// How far the process is in its life with MPI_COMM_WORLD (MPI 5.0, section 11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// MPI_Init has not been called.
    Before,
    /// Between MPI_Init and MPI_Finalize.
    Running,
    /// After MPI_Finalize.
    Finalized,
}

/// Everything this process knows.
pub struct Process {
    /// Comms, datatypes, and so on; there before MPI_Init.
    pub objects: Objects,
    /// What needs a job; there between the first of MPI_Init and MPI_Session_init, and the last finalize.
    pub job: Option<Box<Job>>,
    /// The job after the last finalize: a session may begin again.
    pub parked: Option<Box<Job>>,
    /// Whether this process has said goodbye to the others, and whether all have.
    pub departure: Departure,
    /// How far the world model is.
    pub phase: Phase,
    /// What MPI_Init_thread granted: an MPI_THREAD constant.
    pub thread_level: i32,
    /// The thread that called MPI_Init.
    pub main_thread: Option<std::thread::ThreadId>,
    /// Values that attributes point to; they must not move.
    pub attribute_values: Box<[i32; 7]>,
    /// What MPI_Abi_set_fortran_info was told.
    pub fortran_info: Option<objects::Info>,
    /// What MPI_Abi_set_fortran_booleans was told: by size in bytes, the bits of true and of false.
    pub fortran_booleans: Vec<(i32, [u8; 16], [u8; 16])>,
    /// The class and sentence of the latest error, for MPI_Error_string.
    pub latest_error: Option<(i32, String)>,
    /// What tools hold.
    pub tool: crate::body::tool::Tool,
    /// What the latest messages' arguments came to.
    pub found: crate::body::plain::Latest,
    /// What those of the latest plain MPI_Allreduce did.
    pub reduced: crate::short::Latest,
}

/// This process's part in the job.
pub struct Job {
    /// Who we are.
    pub membership: Membership,
    /// What concerns all of the job.
    pub shared: &'static transport::shm::Job,
    /// Sends and receives.
    pub p2p: P2p,
    /// Collectives.
    pub coll: Coll,
    /// Accesses to files.
    pub io: io::Io,
    /// What the program's MPI_Files name.
    pub files: Table<io::File>,
    /// What the program's MPI_Requests name, but for `deferred`.
    pub requests: Table<Request>,
    /// What those of plain receives name.
    pub deferred: Deferred,
    /// The request of every send that was over when it began: most short ones. It is never freed. Nothing where the program's
    /// forgotten requests are told at the end (OUTBOARD_CHECK=2), as then each is one.
    pub sent: Option<Handle>,
    /// What all windows share.
    pub rma: Rma,
    /// What the program's MPI_Wins name.
    pub windows: Table<Win>,
    /// What the program's MPI_Messages name.
    pub messages: Table<Taken>,
    /// Operations whose requests the program has freed.
    pub orphans: Vec<Work>,
    /// Functions and comms of which collectives have been started, where operations are timed.
    pub operations: crate::operation::Counted,
    /// Requests whose operations take steps of their own (`Work::is_driven`).
    pub driven: Vec<Handle>,
    /// Operators of the program in use by schedules, by token.
    pub operators: slab::Slab<Operator>,
    /// Addresses that MPI_Alloc_mem gave out, and their offsets in the arena (none: from the heap, of so many bytes).
    pub memory: std::collections::HashMap<usize, Option<u64>>,
    /// The cpus that it shares with other ranks.
    pub cpus: Cpus,
    /// Calls by which the program may poll a window, since the latest `Guard::move_on`.
    window_polls: u32,
    /// Calls that asked for something and found nothing, since one found something.
    vain: Vain,
    /// The launcher that this program, which runs alone, has started for itself.
    pub launcher: Option<sys::process::Process>,
}

/// A run of polls in vain.
#[derive(Clone, Copy, Default)]
struct Vain {
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
/// Rounds of progress at the start of a wait before the clock is looked at.
const ROUNDS_UNTIMED: u32 = 16;
/// Looks for packets before each of them.
pub(crate) const LOOKS: u32 = 32;
/// Times that a wait for memory alone gives way before it makes progress.
const GIVES: u32 = 16;
/// Looks of such a wait, 20 to 60 ns each, while those that it waits for run on other cpus, before it gives way nevertheless: these, too,
/// may be shared.
const SPINS: u32 = 64;

impl Job {
    /// Counts a call by which the program may poll a window; whether `Guard::move_on` is due after it.
    #[inline(always)]
    pub(crate) fn polls_window(&mut self) -> bool {
        self.window_polls += 1;
        self.window_polls >= WINDOW_POLLS
    }
}

struct Shared(UnsafeCell<Option<Process>>);
// SAFETY: the value is reached through `Guard` only, and at most one guard is in use at a time: by the mutex, or because the program
// promised so when it asked for nothing above MPI_THREAD_SINGLE (MPI 5.0, section 11.6).
unsafe impl Sync for Shared {}

static PROCESS: Shared = Shared(UnsafeCell::new(None));
static LOCK: Mutex<()> = Mutex::new(());
/// Whether the program promised that it has one thread.
static SINGLE: AtomicBool = AtomicBool::new(false);
/// Whether it promised that waits do not overlap, so that who waits need not make room for others.
static LONE: AtomicBool = AtomicBool::new(false);
/// Threads that wait for the lock.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// Whether it did, and this is a member of a job, and calls are not timed.
static BARE: AtomicBool = AtomicBool::new(false);

/// What a body gets: the process, with the lock held.
pub struct Guard {
    process: *mut Process,
    held: Option<MutexGuard<'static, ()>>,
    /// The MPI function, and the object whose error handler is called for its error.
    pub(crate) doing: (&'static str, On),
    /// What a wait is for, where a body says so.
    pub(crate) awaiting: Awaiting,
}

/// What a wait is for, to tell people who wonder why it does not end.
pub(crate) enum Awaiting {
    /// Nothing that could be told in short.
    Nothing,
    /// One message.
    Operation(p2p::Operation),
    /// A request.
    Request(Handle),
}

/// The object whose error handler is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A comm.
    Comm(Handle),
    /// A window.
    Win(Handle),
    /// A file.
    File(Handle),
    /// A call about files that names none: the handler of MPI_FILE_NULL.
    AnyFile,
    /// A session.
    Session(Handle),
    /// None yet: the handler that the call was given, and the null object it is for.
    Given(Handle, Handle),
    /// No object: the handler of `Objects::comm_of_no_object`.
    Nothing,
}

/// Runs the body of the MPI function `name`, which may be called between MPI_Init and MPI_Finalize or while there is a session.
#[inline(always)]
pub fn call(name: &'static str, on: On, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    let begun = telemetry::enter(name);
    let mut guard = Guard::with(lock(), (name, on));
    let result = if guard.job.is_some() { body(&mut guard) } else { Err(outside(guard.phase)) };
    telemetry::leave(begun);
    match result {
        Ok(()) => SUCCESS,
        Err(error) => raise::raise(guard, error),
    }
}

/// As `call`, of a function with a fast path, `plain`, which needs no guard. A macro: what the other ways need of the arguments would lie
/// in memory before the fast path begins.
#[macro_export]
macro_rules! call_plain {
    ($name:literal, $on:expr, $plain:path, $body:path, ($($argument:ident),* $(,)?)) => {
        match $crate::process::bare().map(|process| $plain(process, $($argument),*)) {
            Some(Some(())) => $crate::process::SUCCESS,
            Some(None) => $crate::process::call_apart($name, $on, move |guard| $body(guard, $($argument),*)),
            None => $crate::process::call_held(
                $name,
                $on,
                move |process| $plain(process, $($argument),*),
                move |guard| $body(guard, $($argument),*),
            ),
        }
    };
}

/// The process, for a fast path; nothing where the call may have to be timed, or the lock to be taken.
#[inline(always)]
pub fn bare<'a>() -> Option<&'a mut Process> {
    if !BARE.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: calls do not overlap, so nobody else has a reference to the value during this one.
    unsafe { (*PROCESS.0.get()).as_mut() }
}

/// The call where there is no fast path.
#[inline(never)] // Else that would have a place for the guard, too.
pub fn call_apart(name: &'static str, on: On, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    call(name, on, body)
}

/// The call where it may have to be timed, or the lock to be taken.
#[inline(never)]
pub fn call_held(
    name: &'static str,
    on: On,
    plain: impl FnOnce(&mut Process) -> Option<()>,
    body: impl FnOnce(&mut Guard) -> Result<()>,
) -> c_int {
    if telemetry::timed() {
        return call(name, on, move |guard| plain(guard).map_or_else(|| body(guard), Ok));
    }
    let mut held = lock();
    let process = Process::locked(&mut held);
    if process.job.is_none() || plain(process).is_none() {
        drop(held);
        return call_apart(name, on, body);
    }
    SUCCESS
}

/// Runs the body of an MPI function that may be called at any time.
pub fn anytime(name: &'static str, on: On, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    let mut guard = Guard::with(lock(), (name, on));
    match body(&mut guard) {
        Ok(()) => SUCCESS,
        Err(error) => raise::raise(guard, error),
    }
}

/// Runs the body of a function of the tool interface, which has its own beginning and end, and no error handlers (MPI 5.0, section 15.3).
pub fn tool(name: &'static str, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    let mut guard = Guard::enter();
    if !guard.has_tools() && name != "MPI_T_init_thread" {
        return objects::constants::T_ERR_NOT_INITIALIZED;
    }
    match body(&mut guard).map_err(|error| error.code()) {
        Ok(()) => SUCCESS,
        // Of the argument wrappers, which know nothing of this interface's codes.
        Err(code) if code < objects::constants::T_ERR_CANNOT_INIT => objects::constants::T_ERR_INVALID,
        Err(code) => code,
    }
}

#[cold]
fn outside(phase: Phase) -> Error {
    let when = if phase == Phase::Before { "before MPI_Init" } else { "after MPI_Finalize" };
    Error::new(Class::Other, format!("called {when}"))
}

impl Guard {
    /// Takes the lock.
    #[inline(always)]
    pub fn enter() -> Guard {
        Guard::with(lock(), ("", On::Nothing))
    }

    /// Takes the lock unless somebody has it, perhaps the caller.
    pub fn enter_unless_held() -> Option<Guard> {
        LOCK.try_lock().ok().map(|held| Guard::with(Some(held), ("", On::Nothing)))
    }

    #[inline(always)]
    fn with(mut held: Option<MutexGuard<'static, ()>>, doing: (&'static str, On)) -> Guard {
        Guard { process: Process::locked(&mut held), held, doing, awaiting: Awaiting::Nothing }
    }

    /// Names another object than the call's first for an error that is about to be returned: a wait fails on the comm of its request.
    pub fn blame(&mut self, on: On) {
        self.doing.1 = on;
    }

    /// Lets the lock go, calls `outside`, takes it again. For the program's functions, which may call MPI.
    pub fn unlocked<T>(&mut self, outside: impl FnOnce() -> T) -> T {
        self.held = None;
        let value = outside();
        self.held = lock();
        value
    }

    /// Takes note of a thread level that came or went. Before and after all use of MPI, and above MPI_THREAD_SINGLE, the lock is taken.
    pub fn settle_lock(&mut self) {
        let (level, users) = if self.job.is_some() { self.threads() } else { (THREAD_MULTIPLE, 0) };
        if let Some(job) = &self.job {
            let page = job.membership.segment.rank(job.membership.rank);
            page.thread_level.store(level as u32 + 1, Ordering::Relaxed);
        }
        let level = level.max(self.tool_threads());
        let single = level == THREAD_SINGLE;
        SINGLE.store(single, Ordering::Relaxed);
        // Two sessions may each have a thread of their own.
        LONE.store(single || level < THREAD_MULTIPLE && users == 1, Ordering::Relaxed);
        BARE.store(single && self.job.is_some() && !telemetry::timed(), Ordering::Relaxed);
        if self.held.is_none() {
            self.held = lock();
        }
    }

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

    /// Makes progress until `ready` has an answer. `ready` is asked with the lock held, first before any progress is made.
    #[inline]
    pub fn wait<T>(&mut self, mut ready: impl FnMut(&mut Process) -> Option<T>) -> T {
        match self.wait_briefly(&mut ready) {
            Ok(value) => value,
            Err(_) => self.wait_long(ready),
        }
    }

    /// The first part of a receive's wait, as `look_for`; but where threads share the lock, the message of another may be in the way for as
    /// long as no receive is posted, so that it is asked only once.
    #[inline]
    pub(crate) fn look_for_message<T>(
        &mut self,
        peer: u32,
        mut ready: impl FnMut(&mut Process) -> Option<T>,
    ) -> Option<T> {
        if self.shares() {
            return ready(self);
        }
        let needs = |process: &mut Process, cpu| {
            process.job().membership.segment.rank(peer).waits_on().is_none_or(|on| on == cpu)
        };
        self.look_for(ready, needs)
    }

    /// Whether this thread has a core for itself and no other one may be waiting, too, so that it may look for news in a loop.
    #[inline]
    pub(crate) fn is_alone(&mut self) -> bool {
        !self.shares() && self.job().shared.may_spin()
    }

    /// Whether another thread may be waiting, too, or wants the lock.
    #[inline]
    fn shares(&self) -> bool {
        self.held.is_some() && (!LONE.load(Ordering::Relaxed) || WANTED.load(Ordering::Relaxed) > 0)
    }

    /// The first rounds of a wait, in which most end; only a longer one is worth the clock. Who has no core to itself, or needs the
    /// lock, is content with one, and gives way. The error says whether anything moved.
    #[inline]
    pub(crate) fn wait_briefly<T>(
        &mut self,
        ready: &mut impl FnMut(&mut Process) -> Option<T>,
    ) -> std::result::Result<T, bool> {
        if let Some(value) = ready(self) {
            return Ok(value);
        }
        let mut moved = false;
        let alone = self.is_alone();
        for _ in 0..if alone { ROUNDS_UNTIMED } else { 1 } {
            let packets = alone && self.look_out();
            // Who waits for a packet takes it himself, if it is for him and nothing comes before it.
            if packets && let Some(value) = ready(self) {
                return Ok(value);
            }
            if packets && self.poll_p2p() || self.progress() {
                moved = true;
                if let Some(value) = ready(self) {
                    return Ok(value);
                }
            }
        }
        Err(moved)
    }

    /// The first part of a wait for what `ready` finds in memory that others write. It is asked far more often than progress is made; who
    /// shares its core, or needs the lock, gives way between. But not at once where those that are waited for run on other cores, as `needs`
    /// tells of a cpu: who would get this one could do nothing with it but wait for them, too.
    #[inline]
    pub(crate) fn look_for<T>(
        &mut self,
        mut ready: impl FnMut(&mut Process) -> Option<T>,
        needs: impl FnMut(&mut Process, usize) -> bool,
    ) -> Option<T> {
        if let Some(value) = ready(self) {
            return Some(value);
        }
        if !self.is_alone() {
            return self.look_and_give_way(ready, needs);
        }
        for look in 1..=ROUNDS_UNTIMED * LOOKS {
            if let Some(value) = ready(self) {
                return Some(value);
            }
            if look.is_multiple_of(LOOKS) && !self.job().p2p.is_idle() {
                self.poll_p2p();
            }
            sys::cpu::look_again();
        }
        None
    }

    /// The same for who shares its core, or needs the lock.
    fn look_and_give_way<T>(
        &mut self,
        mut ready: impl FnMut(&mut Process) -> Option<T>,
        mut needs: impl FnMut(&mut Process, usize) -> bool,
    ) -> Option<T> {
        let (mut gives, mut spins) = (0, 0);
        while gives < GIVES {
            if self.shares() {
                gives += 1;
                telemetry::count(Counter::Yields, 1);
                self.unlocked(sys::cpu::give_way);
            } else {
                let here = self.job().cpus.here();
                if spins < SPINS && !needs(self, here) {
                    spins += 1;
                    std::hint::spin_loop();
                } else {
                    gives += 1;
                    self.job().cpus.give_way();
                }
            }
            if let Some(value) = ready(self) {
                return Some(value);
            }
        }
        None
    }

    /// Looks for packets and slots for a while, where nothing else is under way: they are then noticed several times as soon as by
    /// rounds of progress. Whether there are packets.
    #[inline]
    fn look_out(&mut self) -> bool {
        let Some(job) = self.job.as_deref().filter(|job| !job.coll.is_busy()) else { return false };
        for _ in 0..LOOKS {
            if job.coll.flat_has_events() {
                return false;
            }
            if !job.p2p.is_idle() {
                return true;
            }
            sys::cpu::look_again();
        }
        false
    }

    #[inline]
    fn poll_p2p(&mut self) -> bool {
        match self.job().p2p.poll() {
            Ok(moved) => moved,
            Err(error) => raise::end(self, "progress", &error),
        }
    }

    /// As `wait`, for what another thread of ours does, to which the core is left at once.
    pub(crate) fn wait_for_thread<T>(&mut self, ready: impl FnMut(&mut Process) -> Option<T>) -> T {
        let pace = Pace::of_rank(self.job().membership.segment);
        self.wait_at(Pace { awake: Duration::ZERO, ..pace }, ready)
    }

    /// The rest of a wait.
    #[cold]
    pub(crate) fn wait_long<T>(&mut self, ready: impl FnMut(&mut Process) -> Option<T>) -> T {
        let pace = Pace::of_rank(self.job().membership.segment);
        self.wait_at(pace, ready)
    }

    fn wait_at<T>(&mut self, pace: Pace, mut ready: impl FnMut(&mut Process) -> Option<T>) -> T {
        let begun = sys::clock::now();
        let mut idle = Idle::new(pace);
        let mut shown = false;
        let value = loop {
            // Another thread's progress may have completed what we wait for.
            match self.wait_briefly(&mut ready) {
                Ok(value) => break value,
                Err(true) => idle.reset(),
                Err(false) => {
                    let (turn, value) = self.rest(&mut idle, &mut ready);
                    if let Some(value) = value {
                        break value;
                    }
                    if let Turn::Slept(_) = turn {
                        self.show(begun, "");
                        shown = true;
                    }
                }
            }
        };
        if shown && let Some(job) = &self.job {
            job.membership.segment.rank(job.membership.rank).wait.end(sys::clock::now());
        }
        self.awaiting = Awaiting::Nothing;
        telemetry::count(Counter::WaitNs, sys::clock::now() - begun);
        telemetry::end(if telemetry::tracing() { begun } else { 0 }, telemetry::Event::Wait);
        value
    }

    /// One round over all crates; whether anything moved. Calls the program's operators that are due.
    pub fn progress(&mut self) -> bool {
        if self.job.is_none() {
            return false;
        }
        let mut moved = self.poll_p2p();
        let job = self.job();
        moved |= job.rma.poll();
        moved |= job.io.poll(&mut job.coll);
        if !job.orphans.is_empty() {
            job.poll_orphans();
        }
        if !job.driven.is_empty() {
            moved |= job.poll_driven();
        }
        match job.coll.poll() {
            Poll::Idle => moved,
            Poll::Progressed => true,
            Poll::Call(due) => {
                callback::reduce(self, due);
                true
            }
        }
    }

    /// Shows what this process waits for, and tells it in full if it was asked to.
    #[cold]
    fn show(&mut self, since: u64, remark: &str) {
        let text = deadlock::sentence(self, self.doing.0, self.doing.1, &self.awaiting) + remark;
        let Some(job) = &self.job else { return };
        let page = job.membership.segment.rank(job.membership.rank);
        page.wait.begin(since, &text);
        if page.report.is_due() {
            page.report.answer(&deadlock::report(self));
        }
    }

    /// Idles with the lock let go, unless `ready` has an answer with the bell armed: another thread may have made the progress for it, and
    /// then nobody rings any more.
    fn rest<T>(
        &mut self,
        idle: &mut Idle,
        ready: &mut impl FnMut(&mut Process) -> Option<T>,
    ) -> (Turn, Option<T>) {
        let job = self.job();
        if let Some(warning) = job.coll.warning() {
            eprintln!("outboard: rank {}: {warning}", job.membership.rank);
        }
        let (segment, rank) = (job.membership.segment, job.membership.rank);
        if let Some((_, code)) = job.membership.world().aborted() {
            self.unlocked(|| raise::leave(code));
        }
        if let Some(process) = &job.launcher
            && process.ended(Some(Duration::ZERO)).unwrap_or(true)
        {
            job.launcher = None;
            segment.job().launcher.store(0, Ordering::Release);
            if segment.connected(job.membership.first).len() > 1 {
                let lost = Error::new(
                    Class::ProcAborted,
                    "the mpirun of the processes that it spawned has ended, and they with it",
                );
                raise::end(self, "waiting", &lost);
            }
        }
        let mut value = None;
        let still_idle = || {
            let mut guard = Guard::enter();
            value = ready(&mut guard);
            let job = guard.job();
            value.is_none()
                && job.p2p.is_idle()
                && !job.coll.has_events()
                && !job.rma.has_events()
                && !job.io.has_events()
        };
        let turn = self.unlocked(|| {
            let turn = idle.wait(&segment.rank(rank).bell, still_idle);
            make_room();
            turn
        });
        (turn, value)
    }

    /// Wakes threads of ours that may sleep in a wait for what this one has done without a peer, who would ring.
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
        // SAFETY: the process lives for ever; the guard holds the lock, and lends the process out only for as long as it is borrowed itself.
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
fn lock() -> Option<MutexGuard<'static, ()>> {
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

/// Lets those who want the lock have it: who has just let it go, and is awake, would get it again before they are.
fn make_room() {
    for _ in 0..GIVES {
        if WANTED.load(Ordering::Relaxed) == 0 {
            break;
        }
        sys::cpu::give_way();
    }
}

impl Process {
    /// What the lock, which `lock` has got, is for.
    #[inline(always)]
    fn locked<'a>(_held: &'a mut Option<MutexGuard<'static, ()>>) -> &'a mut Process {
        let shared = PROCESS.0.get();
        // SAFETY: the lock is held, or calls do not overlap, so nobody else has a reference to the value now.
        match unsafe { &mut *shared } {
            Some(process) => process,
            empty => Process::begin(empty),
        }
    }

    #[cold]
    fn begin(place: &mut Option<Process>) -> &mut Process {
        place.insert(Process {
            objects: Objects::new(),
            job: None,
            parked: None,
            departure: Departure::Needed,
            phase: Phase::Before,
            thread_level: objects::constants::THREAD_SINGLE,
            main_thread: None,
            attribute_values: Box::new([0; 7]),
            fortran_info: None,
            fortran_booleans: Vec::new(),
            latest_error: None,
            tool: Default::default(),
            found: crate::body::plain::Latest::NONE,
            reduced: crate::short::Latest::NONE,
        })
    }

    /// The objects and the job, borrowed apart. Bodies behind `call` always have a job.
    #[inline]
    pub fn parts(&mut self) -> (&mut Objects, &mut Job) {
        (&mut self.objects, self.job.as_deref_mut().expect("`call` admits bodies only while the job runs"))
    }

    /// The job. Bodies behind `call` always have one.
    #[inline(always)]
    pub fn job(&mut self) -> &mut Job {
        self.job.as_deref_mut().expect("`call` admits bodies only while the job runs")
    }

    /// Joins the job, or comes back to it.
    pub fn join(&mut self) -> Result<()> {
        if self.job.is_some() {
            return Ok(());
        }
        if let Some(mut job) = self.parked.take() {
            if self.departure == Departure::Left {
                job.coll.stay_home();
            }
            self.job = Some(job);
            return Ok(());
        }
        crate::shim::check_alone()?;
        let membership = boot::join()?;
        let segment = membership.segment;
        let settings = settings::get();
        let port = transport::route_shm::Port::new(segment.clone(), membership.rank);
        let overhead = crate::shim::get().bsend_overhead_bytes;
        let config =
            p2p::Config { bsend_overhead_bytes: overhead, ..p2p::Config::of(settings, membership.tuning) };
        let p2p = P2p::new(transport::route::Reach::Shm(port), config);
        let allocator = transport::shm::Allocator::new(segment.arena(membership.rank)?);
        let config = executor::Config::of(settings, membership.tuning);
        let coll = Coll::new(
            Executor::new(segment.clone(), membership.rank, allocator, config),
            settings,
            membership.tuning,
        )?;
        let world = membership.world().id.load(Ordering::Relaxed);
        self.objects.join(membership.rank, membership.members(), world);
        self.objects
            .infos
            .predefine(objects::constants::INFO_ENV, crate::body::info::environment(membership.size));
        let mut requests = Table::new(Kind::Request);
        let over = Work::Send(p2p::Ticket::DONE);
        let sent = if settings.check < 2 {
            Some(requests.insert(Request { comm: COMM_NULL, work: Some(over), recipe: None })?)
        } else {
            None
        };
        self.job = Some(Box::new(Job {
            membership,
            shared: segment.job(),
            p2p,
            coll,
            io: io::Io::new(move || segment.rank(membership.rank).bell.ring()),
            files: Table::new(Kind::File),
            requests,
            deferred: Deferred::new(),
            sent,
            rma: Rma::new(segment.clone(), membership.rank),
            windows: Table::new(Kind::Win),
            messages: Table::new(Kind::Message),
            orphans: Vec::new(),
            operations: Default::default(),
            driven: Vec::new(),
            operators: slab::Slab::new(),
            memory: std::collections::HashMap::new(),
            launcher: None,
            cpus: Cpus::new(segment.clone(), membership.rank, membership.members()),
            window_polls: 0,
            vain: Vain::default(),
        }));
        Ok(())
    }

    /// Makes MPI_COMM_WORLD and grants the thread level, which is any that was asked for.
    pub fn init(&mut self, level: i32) -> Result<()> {
        self.objects.enter_world()?;
        let world = self.job().membership.world().id.load(Ordering::Relaxed);
        if let Some(parents) = settings::get().parents.as_ref().filter(|_| world != 0) {
            self.objects.join_parents(parents.iter().map(|parent| *parent as u32).collect(), world)?;
        }
        self.phase = Phase::Running;
        self.thread_level = level;
        self.main_thread = Some(std::thread::current().id());
        Ok(())
    }

    /// The highest thread level that the program asked for, of what lives now: the world and sessions, and how many these are.
    fn threads(&self) -> (i32, usize) {
        let world = (self.phase == Phase::Running).then_some(self.thread_level);
        let sessions = self.objects.sessions.iter().map(|(_, session)| session.thread_level);
        let levels = world.into_iter().chain(sessions);
        levels.fold((THREAD_SINGLE, 0), |(highest, users), level| (highest.max(level), users + 1))
    }
}
