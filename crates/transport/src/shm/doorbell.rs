// SPDX-License-Identifier: BSD-3-Clause
//! The doorbell: a word on which a process sleeps, and by which other processes wake it.
//!
//! The word holds the bit ASLEEP and, above it, the number of wake-ups. A ringer publishes its news, fences,
//! and reads the bit. A sleeper sets the bit, fences, looks for news once more, and sleeps while the word is
//! unchanged. One of the two fences comes first: either the ringer sees the bit, or the sleeper sees the
//! news. Where processes hardly ever sleep, the sleeper fences for both (`sys::fence`). After a time-out the
//! bit stays set, which costs the next ringer one system call.
//!
//! A rank sleeps on the word itself (futex). A proxy sleeps on descriptors of the network, too (`sleep_on`),
//! and is woken by a signal; its word works in the same way.

use super::atomic::{AtomicU32, AtomicU64, Ordering, heavy, light};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use sys::ppoll::{WaitEnd, Waiter};

/// The bit in the word that is set while a process sleeps or is about to sleep.
const ASLEEP: u32 = 1;

/// The number of times in a row that a ring's signal may fail to wake a proxy. After that the proxy no longer
/// relies on signals: a rank in another pid namespace may know the proxy by another pid, and so signal
/// another process.
const MISSED_MAX: u32 = 3;

/// The longest sleep of a process if a ring may fail to wake it: the process's fence may not reach the
/// ringers, or the ringers' signals do not come.
const UNSURE_MAX: Duration = Duration::from_millis(1);

/// How a process's sleep on a doorbell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepEnd {
    /// The process did not sleep, since there was news already.
    Awake,
    /// The process slept and was woken.
    Woken,
    /// The process slept until the time ran out.
    TimedOut,
}

/// A bell by which any process wakes the threads of one process. If all its bytes are zero, it is valid and
/// was not rung.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Doorbell {
    word: AtomicU32,
    /// How many rings in a row did not end the thread's sleep, because their signal did not come: the thread
    /// noticed them when the sleep timed out. Used only if rings wake by a signal.
    missed_signals: AtomicU32,
    /// The thread to which a ring sends a signal (`sys::ppoll::Thread`); 0 if a ring instead wakes the
    /// sleepers by a futex on `word`.
    thread: AtomicU64,
    #[cfg(loom)]
    kernel: kernel::Kernel,
}

impl Doorbell {
    /// Wakes the bell's process if it sleeps; that process then sees all that the calling thread has stored
    /// so far. If it does not sleep, this costs one load.
    #[inline]
    pub fn ring(&self) {
        Doorbell::ring_all([self]);
    }

    /// Rings several bells, with one fence for all.
    #[inline]
    pub fn ring_all<'a>(bells: impl IntoIterator<Item = &'a Doorbell>) {
        light();
        for bell in bells {
            let word = bell.word.load(Ordering::Relaxed);
            if word & ASLEEP != 0 {
                bell.wake(word);
            }
        }
    }

    /// Wakes the sleepers that saw `word`: adds 1, which clears ASLEEP and counts the wake-up. If another
    /// ringer has changed the word first, that ringer wakes them. Later sleepers see this ringer's news
    /// without a ring, since they fence after this ringer.
    #[cold]
    fn wake(&self, word: u32) {
        let rung = word.wrapping_add(1);
        // Acquire: `thread` was stored before the bit.
        if self.word.compare_exchange(word, rung, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.wake_all();
        }
    }

    /// Sleeps until the bell is rung or `timeout` has passed; may also wake early. Sets ASLEEP, then calls
    /// `still_idle` once, and does not sleep if it returns false. The timeout is for events that ring no bell
    /// (a peer's death).
    pub fn sleep(&self, timeout: Duration, still_idle: impl FnOnce() -> bool) -> SleepEnd {
        match self.arm(|| still_idle().then_some(timeout)) {
            Some((armed, timeout)) => self.wait(armed, timeout),
            None => SleepEnd::Awake,
        }
    }

    /// Sets ASLEEP and calls `still_idle`, which returns how long to sleep at most, or None if there is news.
    /// Returns the word as set and how long to sleep, or None if there is news.
    fn arm(&self, still_idle: impl FnOnce() -> Option<Duration>) -> Option<(u32, Duration)> {
        let armed = self.word.fetch_or(ASLEEP, Ordering::AcqRel) | ASLEEP;
        // If the fence may not have reached a ringer, a ring can be lost, so the sleep must be short.
        let is_sure = heavy() && self.missed_signals.load(Ordering::Relaxed) < MISSED_MAX;
        let timeout = still_idle()?;
        Some((armed, if is_sure { timeout } else { timeout.min(UNSURE_MAX) }))
    }
}

impl Doorbell {
    /// Makes later rings wake the calling thread by a signal. From then on the thread sleeps by `sleep_on`,
    /// not by `sleep`.
    pub fn signal_to(&self, waiter: &Waiter) {
        self.thread.store(waiter.thread().0, Ordering::Relaxed);
    }

    /// Sleeps until the bell is rung, one of `fds` is readable, or the time is over. `may_sleep` returns how
    /// long to sleep at most, or None if there is news. Only the thread that called `signal_to` may call
    /// this.
    pub fn sleep_on(
        &self,
        waiter: &Waiter,
        fds: &[BorrowedFd],
        may_sleep: impl FnOnce() -> Option<Duration>,
    ) -> SleepEnd {
        let Some((armed, timeout)) = self.arm(may_sleep) else { return SleepEnd::Awake };
        match waiter.wait(fds, timeout) {
            WaitEnd::TimedOut if self.word.load(Ordering::Relaxed) != armed => {
                self.missed_signals.fetch_add(1, Ordering::Relaxed);
                SleepEnd::Woken
            }
            WaitEnd::TimedOut => SleepEnd::TimedOut,
            WaitEnd::Ready => SleepEnd::Woken,
            WaitEnd::Woken => {
                self.missed_signals.store(0, Ordering::Relaxed);
                SleepEnd::Woken
            }
        }
    }
}

#[cfg(not(loom))]
impl Doorbell {
    fn wait(&self, armed: u32, timeout: Duration) -> SleepEnd {
        match sys::futex::wait(&self.word, armed, Some(timeout)) {
            sys::futex::Woken::TimedOut => SleepEnd::TimedOut,
            _ => SleepEnd::Woken,
        }
    }

    fn wake_all(&self) {
        let woken = match self.thread.load(Ordering::Relaxed) {
            0 => sys::futex::wake(&self.word, i32::MAX as u32),
            thread => sys::ppoll::wake(sys::ppoll::Thread(thread)).into(),
        };
        telemetry::count(telemetry::Counter::BellsRung, woken as u64);
    }
}

/// A model of the kernel, since loom has no futex and no signal: a lock and a condition variable without
/// time-outs, so that loom reports a lost wake-up as a deadlock.
#[cfg(loom)]
mod kernel {
    use super::{Doorbell, Duration, Ordering, SleepEnd};
    use loom::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(super) struct Kernel {
        /// Whether a signal has been sent that has not ended a sleep yet.
        queue: Mutex<bool>,
        awake: Condvar,
    }

    impl Doorbell {
        pub(super) fn wait(&self, armed: u32, _timeout: Duration) -> SleepEnd {
            let guard = self.kernel.queue.lock().unwrap();
            if self.word.load(Ordering::Relaxed) == armed {
                drop(self.kernel.awake.wait(guard).unwrap());
            }
            SleepEnd::Woken
        }

        pub(super) fn wake_all(&self) {
            let mut pending = self.kernel.queue.lock().unwrap();
            *pending = self.thread.load(Ordering::Relaxed) != 0;
            self.kernel.awake.notify_all();
        }

        /// Stands for `signal_to` in loom's model, with one thread.
        pub(super) fn signal_to_model(&self) {
            self.thread.store(1, Ordering::Relaxed);
        }

        /// Stands for `sleep_on` in loom's model.
        pub(super) fn sleep_on_model(&self, still_idle: impl FnOnce() -> bool) {
            if self.arm(|| still_idle().then_some(Duration::MAX)).is_some() {
                let mut pending = self.kernel.queue.lock().unwrap();
                while !std::mem::take(&mut *pending) {
                    pending = self.kernel.awake.wait(pending).unwrap();
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Runs `run` in loom with up to two forced switches of threads; with more, three threads take minutes.
    fn check(run: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(run);
    }

    fn sleep_until(bell: &Doorbell, news: &AtomicU32, wanted: u32) {
        while news.load(Ordering::Acquire) < wanted {
            bell.sleep(Duration::MAX, || news.load(Ordering::Acquire) < wanted);
        }
    }

    #[test]
    fn loom_no_wake_is_lost_with_two_ringers() {
        check(|| {
            let shared = Arc::new((Doorbell::default(), AtomicU32::new(0)));
            let ringers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        shared.1.fetch_add(1, Ordering::Release);
                        shared.0.ring();
                    })
                })
                .collect();
            sleep_until(&shared.0, &shared.1, 2);
            ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
        });
    }

    #[test]
    fn loom_no_wake_is_lost() {
        check(|| {
            let shared = Arc::new((Doorbell::default(), AtomicU32::new(0)));
            let ringer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.store(1, Ordering::Release);
                    shared.0.ring();
                })
            };
            sleep_until(&shared.0, &shared.1, 1);
            ringer.join().unwrap();
        });
    }

    #[test]
    fn loom_no_signal_is_lost() {
        check(|| {
            let shared = Arc::new((Doorbell::default(), AtomicU32::new(0)));
            let ringer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.store(1, Ordering::Release);
                    shared.0.ring();
                })
            };
            shared.0.signal_to_model();
            while shared.1.load(Ordering::Acquire) < 1 {
                shared.0.sleep_on_model(|| shared.1.load(Ordering::Acquire) < 1);
            }
            ringer.join().unwrap();
        });
    }

    #[test]
    fn loom_one_ring_wakes_two_sleepers() {
        check(|| {
            let shared = Arc::new((Doorbell::default(), AtomicU32::new(0)));
            let sleeper = {
                let shared = shared.clone();
                thread::spawn(move || sleep_until(&shared.0, &shared.1, 1))
            };
            let ringer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.store(1, Ordering::Release);
                    shared.0.ring();
                })
            };
            sleep_until(&shared.0, &shared.1, 1);
            sleeper.join().unwrap();
            ringer.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn news_or_time_end_a_sleep() {
        let bell = Doorbell::default();
        assert_eq!(bell.sleep(Duration::from_secs(100), || false), SleepEnd::Awake);
        bell.ring();
        assert_eq!(bell.sleep(Duration::from_millis(1), || true), SleepEnd::TimedOut);
    }

    /// Goal: a sleep on descriptors ends by a ring, by a readable descriptor, or by time, and a ring that
    /// comes before the sleep is not lost.
    #[test]
    fn a_signal_is_a_ring() {
        let (bell, waiter) = (Doorbell::default(), Waiter::new().unwrap());
        let (far, near) = UnixStream::pair().unwrap();
        let fds = [near.as_fd()];
        bell.signal_to(&waiter);
        let long = Duration::from_secs(100);
        assert_eq!(bell.sleep_on(&waiter, &fds, || None), SleepEnd::Awake);
        assert_eq!(bell.sleep_on(&waiter, &fds, || Some(Duration::from_millis(1))), SleepEnd::TimedOut);
        bell.ring();
        bell.ring();
        assert_eq!(bell.sleep_on(&waiter, &fds, || Some(long)), SleepEnd::Woken);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                bell.ring();
            });
            assert_eq!(bell.sleep_on(&waiter, &fds, || Some(long)), SleepEnd::Woken);
        });
        drop(far);
        assert_eq!(bell.sleep_on(&waiter, &fds, || Some(long)), SleepEnd::Woken);
    }

    /// Goal: sleeps become short if the signals of rings go to another thread, as happens if a ringer is in
    /// another pid namespace.
    #[test]
    fn a_process_to_which_no_signals_come_naps() {
        let (bell, waiter) = (Doorbell::default(), Waiter::new().unwrap());
        let other = std::thread::spawn(|| Waiter::new().unwrap().thread()).join().unwrap();
        bell.thread.store(other.0, Ordering::Relaxed);
        let sleep = |timeout: Duration| {
            let started = std::time::Instant::now();
            let rest = bell.sleep_on(&waiter, &[], || {
                bell.ring();
                Some(timeout)
            });
            assert_eq!(rest, SleepEnd::Woken);
            started.elapsed()
        };
        (0..MISSED_MAX).for_each(|_| _ = sleep(Duration::from_millis(1)));
        assert!(sleep(Duration::from_secs(1000)) < Duration::from_secs(500));
    }

    #[test]
    fn ping_pong_of_sleepers_never_waits_for_the_time_out() {
        let bells = Arc::new([Doorbell::default(), Doorbell::default()]);
        let turn = Arc::new(AtomicU64::new(0));
        let play = |me: u64, bells: Arc<[Doorbell; 2]>, turn: Arc<AtomicU64>| {
            for round in 0..1000 {
                let mine = round * 2 + me;
                let waits = || turn.load(Ordering::Acquire) != mine;
                while waits() {
                    assert_ne!(bells[me as usize].sleep(Duration::from_secs(50), waits), SleepEnd::TimedOut);
                }
                turn.store(mine + 1, Ordering::Release);
                bells[1 - me as usize].ring();
            }
        };
        let other = {
            let (bells, turn) = (bells.clone(), turn.clone());
            std::thread::spawn(move || play(1, bells, turn))
        };
        play(0, bells, turn);
        other.join().unwrap();
    }
}
