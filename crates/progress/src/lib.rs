//! The only wait loop: spin, yield, sleep.
//!
//! A wait polls every crate, whoever waits for what, and calls `Idle::wait` whenever a round found nothing. What that does
//! depends on whether every process of the job has a core of its own: if so it spins, and sleeps after a while; otherwise
//! it yields at once, because the process it waits for may need this very core (a spinning 8-byte allreduce of 4 ranks on
//! 2 cores took 4 to 16 ms, a yielding one 3 to 4.5 us), and sleeps only after many yields and a while, because a wake-up
//! costs more than several of them. Proxies wait in the same way, each for its own time.
#![forbid(unsafe_code)]

mod cpus;

pub use cpus::Cpus;
use std::time::Duration;
use telemetry::{Counter, count};
use transport::shm::{Doorbell, Rest, Segment};

/// Spins between two looks at the clock.
const SPINS: u32 = 8;
/// Yields before the first sleep, however long they took.
const YIELDS_MIN: u32 = 16;
/// The first nap; each further one of the same wait is twice as long.
const NAP_MIN: Duration = Duration::from_millis(1);
/// The longest nap. Bells end naps: this bounds only how late we see what rings none, such as a killed peer.
const NAP_MAX: Duration = Duration::from_millis(10);

/// How a process waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Whether it may keep a core busy while it waits.
    pub spin: bool,
    /// How long it stays awake before it sleeps.
    pub awake: Duration,
    /// Its longest nap.
    pub nap_max: Duration,
}

impl Pace {
    /// The pace of a rank: awake for OUTBOARD_SPIN_US.
    pub fn of_rank(segment: &Segment) -> Pace {
        Pace::of(segment, settings::get().spin_us)
    }

    /// The pace of a proxy: awake for OUTBOARD_PROXY_POLL_US after its last work.
    pub fn of_proxy(segment: &Segment) -> Pace {
        Pace::of(segment, settings::get().proxy_poll_us)
    }

    fn of(segment: &Segment, awake_us: u64) -> Pace {
        Pace { spin: segment.job().may_spin(), awake: Duration::from_micros(awake_us), nap_max: NAP_MAX }
    }
}

/// What a turn of waiting was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A moment on the core.
    Spun,
    /// Others could have the core.
    Yielded,
    /// On the doorbell, and how that ended.
    Slept(Rest),
}

/// How long one wait has found nothing.
#[derive(Clone, Debug)]
pub struct Idle {
    pace: Pace,
    /// Turns since the last progress.
    turns: u32,
    /// When the clock was first looked at since then; 0 if it was not.
    since: u64,
    nap: Duration,
}

impl Idle {
    /// A wait that has just begun.
    pub fn new(pace: Pace) -> Idle {
        Idle { pace, turns: 0, since: 0, nap: NAP_MIN }
    }

    /// There was progress: the wait begins anew.
    #[inline]
    pub fn reset(&mut self) {
        (self.turns, self.since, self.nap) = (0, 0, NAP_MIN);
    }

    /// Waits a little, after a round of polls that found nothing. `bell` is the doorbell of this process; `still_idle` is
    /// asked before sleeping on it and must look at everything that others ring it for.
    #[inline]
    pub fn wait(&mut self, bell: &Doorbell, still_idle: impl FnOnce() -> bool) -> Turn {
        self.turns = self.turns.saturating_add(1);
        if self.pace.spin {
            if !self.turns.is_multiple_of(SPINS) || self.awake() {
                std::hint::spin_loop();
                return Turn::Spun;
            }
        } else if self.turns < YIELDS_MIN || self.awake() {
            count(Counter::Yields, 1);
            sys::cpu::give_way();
            return Turn::Yielded;
        }
        self.sleep(bell, still_idle)
    }

    /// Whether it is too early to sleep.
    fn awake(&mut self) -> bool {
        let now = sys::clock::now();
        if self.since == 0 {
            self.since = now;
        }
        u128::from(now - self.since) < self.pace.awake.as_nanos()
    }

    #[cold]
    fn sleep(&mut self, bell: &Doorbell, still_idle: impl FnOnce() -> bool) -> Turn {
        let nap = self.nap.min(self.pace.nap_max);
        self.nap = nap * 2;
        let rest = bell.sleep(nap, still_idle);
        if rest != Rest::Awake {
            count(Counter::Sleeps, 1);
        }
        // The next turn without progress sleeps again, whatever the count of turns was.
        self.turns = SPINS * YIELDS_MIN - 1;
        Turn::Slept(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const NOW: Duration = Duration::ZERO;

    fn pace(spin: bool, awake: Duration) -> Pace {
        Pace { spin, awake, nap_max: Duration::from_micros(100) }
    }

    fn turns_until_sleep(idle: &mut Idle, bell: &Doorbell, wanted: Turn) -> u32 {
        for turn in 0.. {
            match idle.wait(bell, || true) {
                Turn::Slept(rest) => {
                    assert_eq!(rest, Rest::TimedOut);
                    return turn;
                }
                other => assert_eq!(other, wanted),
            }
        }
        unreachable!()
    }

    #[test]
    fn spins_or_yields_then_sleeps_until_progress() {
        let bell = Doorbell::default();
        for (spin, wanted, turns) in [(true, Turn::Spun, SPINS - 1), (false, Turn::Yielded, YIELDS_MIN - 1)] {
            let mut idle = Idle::new(pace(spin, NOW));
            assert_eq!(turns_until_sleep(&mut idle, &bell, wanted), turns);
            assert_eq!(turns_until_sleep(&mut idle, &bell, wanted), 0, "no second wait before a second nap");
            assert_eq!(turns_until_sleep(&mut idle, &bell, wanted), 0);
            idle.reset();
            assert_eq!(turns_until_sleep(&mut idle, &bell, wanted), turns);
        }
    }

    #[test]
    fn stays_awake_as_long_as_told() {
        let bell = Doorbell::default();
        for spin in [true, false] {
            let mut idle = Idle::new(pace(spin, Duration::from_secs(1000)));
            for _ in 0..500 {
                assert!(!matches!(idle.wait(&bell, || true), Turn::Slept(_)));
            }
        }
    }

    #[test]
    fn news_prevents_sleep_and_a_bell_ends_it() {
        let shared = Arc::new((Doorbell::default(), AtomicBool::new(false)));
        let forever = Duration::from_secs(1000);
        let mut idle = Idle::new(Pace { spin: false, awake: NOW, nap_max: forever });
        idle.nap = forever;
        let ringer = {
            let shared = shared.clone();
            std::thread::spawn(move || {
                shared.1.store(true, Ordering::Release);
                shared.0.ring();
            })
        };
        while !shared.1.load(Ordering::Acquire) {
            let turn = idle.wait(&shared.0, || !shared.1.load(Ordering::Acquire));
            assert_ne!(turn, Turn::Slept(Rest::TimedOut));
            idle.nap = forever;
        }
        ringer.join().unwrap();
        for _ in 0..2 * YIELDS_MIN {
            let turn = idle.wait(&shared.0, || false);
            assert!(matches!(turn, Turn::Yielded | Turn::Slept(Rest::Awake)));
        }
    }

    #[test]
    fn naps_grow_to_their_bound() {
        let bell = Doorbell::default();
        let mut idle = Idle::new(Pace { spin: true, awake: NOW, nap_max: 3 * NAP_MIN });
        turns_until_sleep(&mut idle, &bell, Turn::Spun);
        assert_eq!(idle.nap, 2 * NAP_MIN);
        idle.wait(&bell, || true);
        idle.wait(&bell, || true);
        assert_eq!(idle.nap, 6 * NAP_MIN);
        idle.wait(&bell, || true);
        assert_eq!(idle.nap, 6 * NAP_MIN);
    }
}
