// SPDX-License-Identifier: BSD-3-Clause
//! How an MPI call waits for an operation (all calls wait here), and one round of progress.
//!
//! A wait has three phases. First it looks at shared memory for a moment. Then it makes rounds of progress.
//! At last it frees the lock, and yields the cpu or sleeps on the rank's doorbell (`progress::Idle`).

use super::lock::{Guard, let_others_lock};
use super::{JobState, Process, callback, raise, report};
use error::{Class, Error};
use executor::Poll;
use objects::Handle;
use progress::{Idle, Pace, Turn};
use std::sync::atomic::Ordering;
use std::time::Duration;
use telemetry::Counter;

/// What a call waits for. If the wait lasts, the rank writes this into its page for `mpirun` to print.
pub(crate) enum Awaiting {
    /// The call has not set what it waits for.
    Nothing,
    /// The call waits for a message, and this is the message's description.
    Operation(p2p::OperationReport),
    /// The call waits for the operation of the request with this handle.
    Request(Handle),
}

/// How many rounds of progress a wait makes before it reads the clock.
const ROUNDS_UNTIMED: u32 = 16;
/// How many times a wait looks for packets in memory before each round of progress at its start.
pub(crate) const LOOKS: u32 = 32;
/// How many times a wait that looks at memory yields the cpu before it makes progress.
const GIVES: u32 = 16;
/// How many times (20 to 60 ns each) a wait on a shared cpu looks at memory before it yields the cpu, while
/// no awaited peer needs that cpu. A wait whose peer needs the cpu yields at once.
const SPINS: u32 = 64;

impl Guard {
    /// Makes progress until `ready` returns an answer. Calls `ready` with the lock held, for the first time
    /// before any progress.
    #[inline]
    pub fn wait<T>(&mut self, mut ready: impl FnMut(&mut Process) -> Option<T>) -> T {
        match self.wait_briefly(&mut ready) {
            Ok(value) => value,
            Err(_) => self.wait_long(ready),
        }
    }

    /// Calls `ready` for a moment until it returns a message from `peer`, before a receive is posted. Returns
    /// None if no message came in time. Where threads share the lock, calls `ready` only once, since the next
    /// packet may be for another thread's receive.
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
            let segment = process.job().membership.segment;
            let waits_here = |peer| segment.rank(peer).waits_on().is_none_or(|on| on == cpu);
            segment.local(peer).is_some_and(waits_here)
        };
        self.look_for(ready, needs)
    }

    /// Whether this thread may look for news in a loop: it has a core of its own, and no other thread may be
    /// in a wait.
    #[inline]
    pub(crate) fn is_alone(&mut self) -> bool {
        !self.shares() && self.job().shared.may_spin()
    }

    /// Makes the first rounds of a wait, without reading the clock: most waits end here. A thread that shares
    /// its core or the lock makes one round only. If `ready` has no answer yet, the error says whether
    /// anything moved.
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
            let packets = alone && self.look_for_packets();
            // A receive takes the next packet itself, if that is its message.
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

    /// Calls `ready`, which looks at memory that peers write, many times, with little progress between.
    /// Returns None if `ready` had no answer in some microseconds. A thread that shares its core or the lock
    /// yields between the calls; it spins first while `needs` returns false: no awaited peer needs the cpu.
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
            sys::cpu::pause_between_loads();
        }
        None
    }

    /// The part of `look_for` for a thread that shares its core or the lock. Calls `ready` until it returns
    /// an answer. Returns None after the thread has yielded the cpu `GIVES` times. If threads share the lock,
    /// the lock is free during each yield.
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
                self.unlocked(sys::cpu::yield_cpu);
            } else {
                let here = self.job().cpus.publish();
                if spins < SPINS && !needs(self, here) {
                    spins += 1;
                    std::hint::spin_loop();
                } else {
                    gives += 1;
                    self.job().cpus.yield_cpu();
                }
            }
            if let Some(value) = ready(self) {
                return Some(value);
            }
        }
        None
    }

    /// Looks for packets, and for changes in the slots (shared memory of collectives), for a moment. This
    /// notices them several times sooner than rounds of progress. Returns whether there are packets.
    #[inline]
    fn look_for_packets(&mut self) -> bool {
        let Some(job) = self.job.as_deref().filter(|job| !job.coll.is_busy()) else { return false };
        for _ in 0..LOOKS {
            if job.coll.flat_has_events() {
                return false;
            }
            if !job.p2p.is_idle() {
                return true;
            }
            sys::cpu::pause_between_loads();
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

    /// Waits like `wait`, but for another thread of this process, and so yields the core to that thread at
    /// once.
    pub(crate) fn wait_for_thread<T>(&mut self, ready: impl FnMut(&mut Process) -> Option<T>) -> T {
        let pace = Pace::of_rank(self.job().membership.segment);
        self.wait_at(Pace { awake: Duration::ZERO, ..pace }, ready)
    }

    /// Makes progress, and sleeps in between, until `ready` returns an answer. This is the part of a wait
    /// after `wait_briefly`.
    #[cold]
    pub(crate) fn wait_long<T>(&mut self, ready: impl FnMut(&mut Process) -> Option<T>) -> T {
        let pace = Pace::of_rank(self.job().membership.segment);
        self.wait_at(pace, ready)
    }

    fn wait_at<T>(&mut self, pace: Pace, mut ready: impl FnMut(&mut Process) -> Option<T>) -> T {
        let started = sys::clock::now();
        if let Some(job) = &mut self.job {
            job.coll.rank_waits(true, started);
        }
        let mut idle = Idle::new(pace);
        let mut shown = false;
        let value = loop {
            // Another thread's progress may have completed the operation.
            match self.wait_briefly(&mut ready) {
                Ok(value) => break value,
                Err(true) => idle.reset(),
                Err(false) => {
                    let (turn, value) = self.idle(&mut idle, &mut ready);
                    if let Some(value) = value {
                        break value;
                    }
                    if let Turn::Slept(_) = turn {
                        self.show(started, "");
                        shown = true;
                    }
                }
            }
        };
        if shown && let Some(job) = &self.job {
            job.membership.segment.rank(job.membership.rank).wait.end(sys::clock::now());
        }
        self.awaiting = Awaiting::Nothing;
        let ended = sys::clock::now();
        if let Some(job) = &mut self.job {
            job.coll.rank_waits(false, ended);
        }
        telemetry::count(Counter::WaitNs, ended - started);
        telemetry::end(if telemetry::tracing() { started } else { 0 }, telemetry::Event::Wait);
        value
    }

    /// Makes one round of progress in all crates, and calls the program's operators for which schedules wait.
    /// Returns whether anything moved.
    pub fn progress(&mut self) -> bool {
        if self.job.is_none() {
            return false;
        }
        let mut moved = self.poll_p2p();
        let job = self.job();
        moved |= job.rma.poll();
        moved |= job.io.poll(&mut job.coll);
        if !job.detached.is_empty() {
            job.poll_detached();
        }
        if !job.driven.is_empty() {
            moved |= job.poll_driven();
        }
        let polled = job.coll.poll();
        if job.p2p.has_handoffs() || !job.handoffs.is_empty() {
            moved |= self.carry_messages();
        }
        let job = self.job();
        if job.shared.nodes.load(Ordering::Relaxed) > 1 {
            moved |= self.carry_edges();
            moved |= self.carry_windows();
        }
        match polled {
            Poll::Idle => moved,
            Poll::Progressed => true,
            Poll::Call(due) => {
                callback::reduce(self, due);
                true
            }
        }
    }

    /// Writes into this rank's page what the process waits for, since when, and `remark`. If `mpirun` has
    /// asked for a report of this process's operations, writes the report there, too.
    #[cold]
    pub(crate) fn show(&mut self, since: u64, remark: &str) {
        let text = report::sentence(self, self.doing.0, self.doing.1, &self.awaiting) + remark;
        let Some(job) = &self.job else { return };
        let page = job.membership.segment.rank(job.membership.rank);
        page.wait.start(since, &text);
        if page.report.is_due() {
            page.report.answer(&report::report(self));
        }
    }

    /// Prints a warning of the crate `coll` if there is one, such as that memory cannot be read. Ends this
    /// process if its world is being ended, or if an `mpirun` that this process started (to spawn others)
    /// has ended. A wait calls this function before it idles.
    fn check_world(&mut self) {
        let job = self.job();
        if let Some(warning) = job.coll.warning() {
            eprintln!("outboard: rank {}: {warning}", job.membership.rank);
        }
        if let Some(code) = job.membership.world().exit_code() {
            self.unlocked(|| raise::leave(code));
        }
        let job = self.job();
        let has_ended =
            |process: &sys::process::ProcessHandle| process.ended(Some(Duration::ZERO)).unwrap_or(true);
        if !job.launcher.as_ref().is_some_and(has_ended) {
            return;
        }
        job.launcher = None;
        let segment = job.membership.segment;
        segment.job().launcher.store(0, Ordering::Release);
        if segment.connected(job.membership.first).len() > 1 {
            let text = "the mpirun of the processes that it spawned has ended, and they with it";
            raise::end(self, "waiting", &Error::new(Class::ProcAborted, text));
        }
    }

    /// Yields or sleeps with the lock free. Before it sleeps, calls `ready` once more, since another thread
    /// may have made the last progress, and then no peer rings the doorbell. Returns what the thread did, and
    /// the answer of `ready`.
    fn idle<T>(
        &mut self,
        idle: &mut Idle,
        ready: &mut impl FnMut(&mut Process) -> Option<T>,
    ) -> (Turn, Option<T>) {
        self.check_world();
        let (segment, rank) = (self.job().membership.segment, self.job().membership.rank);
        let mut value = None;
        let still_idle = || {
            let mut guard = Guard::enter();
            value = ready(&mut guard);
            value.is_none() && guard.job().may_sleep()
        };
        let turn = self.unlocked(|| {
            let turn = idle.wait(&segment.rank(rank).bell, still_idle);
            let_others_lock();
            turn
        });
        (turn, value)
    }
}

impl JobState {
    /// Whether no operation of this process can advance without news from other processes.
    fn may_sleep(&self) -> bool {
        self.p2p.may_sleep()
            && !self.p2p.has_handoffs()
            && !self.coll.has_events()
            && !self.rma.has_events()
            && !self.io.has_events()
    }
}
