//! The only place that waits, and the round of progress that a wait makes.

use super::lock::{Guard, make_room};
use super::{Process, callback, raise, report};
use error::{Class, Error};
use executor::Poll;
use objects::Handle;
use progress::{Idle, Pace, Turn};
use std::sync::atomic::Ordering;
use std::time::Duration;
use telemetry::Counter;

/// What a wait is for, to tell people who wonder why it does not end.
pub(crate) enum Awaiting {
    /// Nothing that could be told in short.
    Nothing,
    /// One message.
    Operation(p2p::Operation),
    /// A request.
    Request(Handle),
}

/// Rounds of progress at the start of a wait before the clock is looked at.
const ROUNDS_UNTIMED: u32 = 16;
/// Looks for packets before each of them.
pub(crate) const LOOKS: u32 = 32;
/// Times that a wait for memory alone gives way before it makes progress.
const GIVES: u32 = 16;
/// Looks of such a wait, 20 to 60 ns each, while those that it waits for run on other cpus, before it gives way nevertheless: these, too,
/// may be shared.
const SPINS: u32 = 64;

impl Guard {
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
    pub(super) fn show(&mut self, since: u64, remark: &str) {
        let text = report::sentence(self, self.doing.0, self.doing.1, &self.awaiting) + remark;
        let Some(job) = &self.job else { return };
        let page = job.membership.segment.rank(job.membership.rank);
        page.wait.begin(since, &text);
        if page.report.is_due() {
            page.report.answer(&report::report(self));
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
}
