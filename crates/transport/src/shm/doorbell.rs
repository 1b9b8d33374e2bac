//! The word on which a process sleeps, and by which others wake it.
//!
//! The word holds the bit ASLEEP and, above it, the number of wakings. A ringer publishes its news, fences,
//! and looks at the bit. A sleeper sets the bit, fences, looks for news once more, and sleeps while the word
//! is unchanged. One of the fences comes first: either the ringer sees the bit, or the sleeper sees the news.
//! Where processes hardly ever sleep, the sleeper fences for both (`sys::fence`). After a time-out the bit
//! stays set, which costs the next ringer one system call.

use super::atomic::{AtomicU32, Ordering, heavy, light};
use std::time::Duration;

/// A process sleeps or is about to.
const ASLEEP: u32 = 1;

/// The longest sleep of a process that cannot fence for others.
const UNSURE_MAX: Duration = Duration::from_millis(1);

/// How `Doorbell::sleep` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// There was news already: we did not sleep.
    Awake,
    /// Slept, and was woken.
    Woken,
    /// Slept until the time was over.
    TimedOut,
}

/// Wakes the threads of one process, from any process. All zero is a valid, silent bell.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Doorbell {
    word: AtomicU32,
    #[cfg(loom)]
    kernel: kernel::Kernel,
}

impl Doorbell {
    /// Wakes the process if it sleeps; it then sees what this thread has stored so far. Otherwise a load.
    #[inline]
    pub fn ring(&self) {
        Doorbell::ring_all([self]);
    }

    /// As `ring`, of several, with one fence.
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

    /// Adding 1 clears the bit and carries into the count. If the exchange fails, another ringer wakes the
    /// sleepers of `word`, and a later sleeper has fenced after us and sees our news.
    #[cold]
    fn wake(&self, word: u32) {
        let rung = word.wrapping_add(1);
        if self.word.compare_exchange(word, rung, Ordering::Release, Ordering::Relaxed).is_ok() {
            self.wake_all();
        }
    }

    /// Sleeps until rung or `timeout` is over, unless `still_idle`, asked once after the bell is armed, says
    /// that there is news. May wake early. The timeout is for what rings no bell (a peer's death).
    pub fn sleep(&self, timeout: Duration, still_idle: impl FnOnce() -> bool) -> Rest {
        let armed = self.word.fetch_or(ASLEEP, Ordering::AcqRel) | ASLEEP;
        // Where the fence may not have reached a ringer, a lost ring must cost little.
        let timeout = if heavy() { timeout } else { timeout.min(UNSURE_MAX) };
        if !still_idle() {
            return Rest::Awake;
        }
        self.wait(armed, timeout)
    }
}

#[cfg(not(loom))]
impl Doorbell {
    fn wait(&self, armed: u32, timeout: Duration) -> Rest {
        match sys::futex::wait(&self.word, armed, Some(timeout)) {
            sys::futex::Woken::TimedOut => Rest::TimedOut,
            _ => Rest::Woken,
        }
    }

    fn wake_all(&self) {
        let woken = sys::futex::wake(&self.word, i32::MAX as u32);
        telemetry::count(telemetry::Counter::BellsRung, woken as u64);
    }
}

/// Loom knows no futex. A lock and a condition variable stand for the kernel, without time-outs, so loom
/// reports a lost wake as a deadlock.
#[cfg(loom)]
mod kernel {
    use super::{Doorbell, Duration, Ordering, Rest};
    use loom::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(super) struct Kernel {
        queue: Mutex<()>,
        awake: Condvar,
    }

    impl Doorbell {
        pub(super) fn wait(&self, armed: u32, _timeout: Duration) -> Rest {
            let guard = self.kernel.queue.lock().unwrap();
            if self.word.load(Ordering::Relaxed) == armed {
                drop(self.kernel.awake.wait(guard).unwrap());
            }
            Rest::Woken
        }

        pub(super) fn wake_all(&self) {
            let _guard = self.kernel.queue.lock().unwrap();
            self.kernel.awake.notify_all();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Up to two forced switches in each run: more take minutes with three threads.
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
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn news_or_time_end_a_sleep() {
        let bell = Doorbell::default();
        assert_eq!(bell.sleep(Duration::from_secs(100), || false), Rest::Awake);
        bell.ring();
        assert_eq!(bell.sleep(Duration::from_millis(1), || true), Rest::TimedOut);
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
                    assert_ne!(bells[me as usize].sleep(Duration::from_secs(50), waits), Rest::TimedOut);
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
