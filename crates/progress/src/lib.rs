// SPDX-License-Identifier: BSD-3-Clause
//! The only wait loop: spin, yield, sleep.
//!
//! A wait polls everything that may bring progress and calls `Idle::wait` after a round that found nothing.
//! Where every process of the job has a core of its own, a wait spins first. After a moment it yields
//! instead, so that a process of another program can run, and later it sleeps. Once a yield has shown that
//! another program wants this core, waits sleep instead of yielding for some time. Where processes of the job
//! share cores, a wait yields at once, because the peer may need this core; it sleeps only after many yields,
//! since a wake-up costs more than several yields. Proxies wait in the same way, but a proxy that shares its
//! core with ranks sleeps at once: the ranks compute, and the kernel runs a woken proxy at once.
//! docs/measured/waiting.md has the measurements.
#![forbid(unsafe_code)]

mod cpus;

pub use cpus::Cpus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use telemetry::{Counter, count};
use transport::shm::{Doorbell, Segment, SleepEnd};

/// Spins between two readings of the clock.
const SPINS: u32 = 8;
/// How long a wait spins before it yields: longer than most waits of ranks in step.
const SPIN_MAX_NS: u64 = 50_000;
/// After a yield that took longer than this, the core counts as shared with another program.
const YIELD_MAX_NS: u64 = 100_000;
/// How long the core then counts as shared. Waits sleep meanwhile: a woken process gets the core at once; a
/// process that yielded gets it only after the other program's time slice.
const SHARED_NS: u64 = 100_000_000;
/// The same for a process whose pace has `sleeps_if_shared`: while it yields to a program that computes,
/// nothing wakes it.
const SHARED_SLEEPER_NS: u64 = 1_000_000_000;
/// A wait that is configured to stay awake this long or longer never sleeps early.
const ALWAYS_AWAKE: Duration = Duration::from_secs(1);
/// When a yield of this process last took longer than `YIELD_MAX_NS`; 0 if no yield did.
static SHARED_AT: AtomicU64 = AtomicU64::new(0);
/// Yields before the first sleep, however long they took.
const YIELDS_MIN: u32 = 16;
/// The first nap; each further nap of the same wait is twice as long.
const NAP_MIN: Duration = Duration::from_millis(1);
/// The longest nap. A bell ends a nap: this bounds only how late a process sees what rings no bell, such as
/// the death of a peer.
const NAP_MAX: Duration = Duration::from_millis(10);

/// How a process waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Whether the process may keep a core busy while it waits.
    pub spin: bool,
    /// How long the process stays awake before it sleeps.
    pub awake: Duration,
    /// The longest nap.
    pub nap_max: Duration,
    /// Whether the process sleeps at once, without a spin or yield, where its core is shared with processes
    /// of the job or another program wants it.
    pub sleeps_if_shared: bool,
}

impl Pace {
    /// The pace of a rank: awake for OUTBOARD_SPIN_US.
    pub fn of_rank(segment: &Segment) -> Pace {
        let awake = Duration::from_micros(settings::get().spin_us);
        Pace { spin: segment.job().may_spin(), awake, nap_max: NAP_MAX, sleeps_if_shared: false }
    }
}

/// What the process did in one turn of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The process spun for a moment.
    Spun,
    /// The process yielded the core.
    Yielded,
    /// The process slept on its doorbell, and how the sleep ended.
    Slept(SleepEnd),
}

/// What a wait does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextTurn {
    Spin,
    Yield,
    Sleep,
}

/// How long one wait has found nothing.
#[derive(Clone, Debug)]
pub struct Idle {
    pace: Pace,
    /// Turns since the last progress.
    turns: u32,
    /// When the clock was first read since the last progress; 0 if it was not read.
    since: u64,
    nap: Duration,
    /// When a yield last showed that another program wants this core: `SHARED_AT`.
    shared_at: &'static AtomicU64,
}

impl Idle {
    /// A wait that has just started.
    pub fn new(pace: Pace) -> Idle {
        Idle { pace, turns: 0, since: 0, nap: NAP_MIN, shared_at: &SHARED_AT }
    }

    /// Starts the wait anew, since there was progress.
    #[inline]
    pub fn reset(&mut self) {
        (self.turns, self.since, self.nap) = (0, 0, NAP_MIN);
    }

    /// Waits a little, after a round of polls that found nothing. `bell` is the doorbell of this process.
    /// `still_idle` is called before a sleep and must check everything for which others ring the bell.
    #[inline]
    pub fn wait(&mut self, bell: &Doorbell, still_idle: impl FnOnce() -> bool) -> Turn {
        self.wait_with(|nap| bell.sleep(nap, still_idle))
    }

    /// The same with another way to sleep: `sleep` gets the longest time that it may take.
    #[inline]
    pub fn wait_with(&mut self, sleep: impl FnOnce(Duration) -> SleepEnd) -> Turn {
        self.turns = self.turns.saturating_add(1);
        if self.pace.spin && !self.turns.is_multiple_of(SPINS) {
            std::hint::spin_loop();
            return Turn::Spun;
        }
        if !self.pace.spin && !self.pace.sleeps_if_shared && self.turns < YIELDS_MIN {
            return yield_cpu();
        }
        let now = sys::clock::now();
        match self.next_turn(now) {
            NextTurn::Spin => {
                std::hint::spin_loop();
                Turn::Spun
            }
            NextTurn::Yield if self.pace.spin => {
                let turn = yield_cpu();
                self.note_yield(now, sys::clock::now());
                // The next turn without progress reads the clock again.
                self.turns = SPINS - 1;
                turn
            }
            NextTurn::Yield => yield_cpu(),
            NextTurn::Sleep => self.sleep(sleep),
        }
    }

    /// Decides by the clock what the wait does next.
    fn next_turn(&mut self, now: u64) -> NextTurn {
        if self.since == 0 {
            self.since = now;
        }
        let waited = now - self.since;
        if u128::from(waited) >= self.pace.awake.as_nanos() {
            return NextTurn::Sleep;
        }
        if !self.pace.spin {
            let sleeps_if_shared = self.pace.sleeps_if_shared && self.pace.awake < ALWAYS_AWAKE;
            return if sleeps_if_shared { NextTurn::Sleep } else { NextTurn::Yield };
        }
        if waited < SPIN_MAX_NS && !self.pace.sleeps_if_shared {
            return NextTurn::Spin;
        }
        let shared_at = self.shared_at.load(Ordering::Relaxed);
        let lasts = if self.pace.sleeps_if_shared { SHARED_SLEEPER_NS } else { SHARED_NS };
        let shared = shared_at != 0 && now.saturating_sub(shared_at) < lasts;
        match shared && self.pace.awake < ALWAYS_AWAKE {
            true => NextTurn::Sleep,
            false if waited < SPIN_MAX_NS => NextTurn::Spin,
            false => NextTurn::Yield,
        }
    }

    /// Notes after a long yield that another program wants this core.
    fn note_yield(&self, started: u64, ended: u64) {
        if ended - started > YIELD_MAX_NS {
            self.shared_at.store(ended, Ordering::Relaxed);
        }
    }

    #[cold]
    fn sleep(&mut self, sleep: impl FnOnce(Duration) -> SleepEnd) -> Turn {
        let nap = self.nap.min(self.pace.nap_max);
        self.nap = nap * 2;
        let rest = sleep(nap);
        if rest != SleepEnd::Awake {
            count(Counter::Sleeps, 1);
        }
        // The next turn without progress sleeps again, however many turns there were before.
        self.turns = SPINS * YIELDS_MIN - 1;
        Turn::Slept(rest)
    }
}

fn yield_cpu() -> Turn {
    count(Counter::Yields, 1);
    sys::cpu::yield_cpu();
    Turn::Yielded
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const NOW: Duration = Duration::ZERO;

    fn pace(spin: bool, awake: Duration) -> Pace {
        Pace { spin, awake, nap_max: Duration::from_micros(100), sleeps_if_shared: false }
    }

    fn turns_until_sleep(idle: &mut Idle, bell: &Doorbell, wanted: Turn) -> u32 {
        for turn in 0.. {
            match idle.wait(bell, || true) {
                Turn::Slept(rest) => {
                    assert_eq!(rest, SleepEnd::TimedOut);
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

    /// What a wait with `shared_at` does when it has lasted for `waited`.
    fn next_turn_after(waited: u64, spin: bool, shared_at: &'static AtomicU64) -> NextTurn {
        let mut idle = Idle { shared_at, ..Idle::new(pace(spin, AWAKE)) };
        idle.next_turn(STARTED);
        idle.next_turn(STARTED + waited)
    }

    const STARTED: u64 = 1_000_000_000;
    const AWAKE: Duration = Duration::from_millis(500);
    const AWAKE_NS: u64 = 500_000_000;

    #[test]
    fn stays_awake_as_long_as_told() {
        static UNSHARED: AtomicU64 = AtomicU64::new(0);
        for spin in [true, false] {
            assert_eq!(next_turn_after(AWAKE_NS - 1, spin, &UNSHARED), NextTurn::Yield);
            assert_eq!(next_turn_after(AWAKE_NS, spin, &UNSHARED), NextTurn::Sleep);
        }
    }

    #[test]
    fn spins_for_a_moment_then_yields_and_sleeps_where_others_want_the_core() {
        static UNSHARED: AtomicU64 = AtomicU64::new(0);
        static SHARED: AtomicU64 = AtomicU64::new(STARTED);
        for (shared_at, then) in [(&UNSHARED, NextTurn::Yield), (&SHARED, NextTurn::Sleep)] {
            assert_eq!(next_turn_after(SPIN_MAX_NS - 1, true, shared_at), NextTurn::Spin);
            assert_eq!(next_turn_after(SPIN_MAX_NS, true, shared_at), then);
        }
        assert_eq!(next_turn_after(SHARED_NS - 1, true, &SHARED), NextTurn::Sleep);
        assert_eq!(next_turn_after(SHARED_NS, true, &SHARED), NextTurn::Yield, "it tries again");
        assert_eq!(next_turn_after(SPIN_MAX_NS, false, &SHARED), NextTurn::Yield, "peers may want it, too");
        let mut idle = Idle { shared_at: &SHARED, ..Idle::new(pace(true, ALWAYS_AWAKE)) };
        idle.next_turn(STARTED);
        assert_eq!(idle.next_turn(STARTED + SPIN_MAX_NS), NextTurn::Yield, "it was told to stay awake");
    }

    #[test]
    fn who_sleeps_if_shared_sleeps_at_once_and_for_longer() {
        static SHARED: AtomicU64 = AtomicU64::new(STARTED);
        static UNSHARED: AtomicU64 = AtomicU64::new(0);
        let step = |started, shared_at| {
            let pace = Pace { sleeps_if_shared: true, ..pace(true, AWAKE) };
            Idle { shared_at, ..Idle::new(pace) }.next_turn(started)
        };
        assert_eq!(step(STARTED, &UNSHARED), NextTurn::Spin);
        assert_eq!(step(STARTED + SHARED_SLEEPER_NS - 1, &SHARED), NextTurn::Sleep);
        assert_eq!(step(STARTED + SHARED_SLEEPER_NS, &SHARED), NextTurn::Spin);
    }

    #[test]
    fn who_sleeps_if_shared_never_yields_to_the_ranks_of_its_core() {
        let pace = |awake| Pace { sleeps_if_shared: true, ..pace(false, awake) };
        let bell = Doorbell::default();
        assert_eq!(turns_until_sleep(&mut Idle::new(pace(AWAKE)), &bell, Turn::Spun), 0);
        assert_eq!(
            Idle::new(pace(ALWAYS_AWAKE)).next_turn(STARTED),
            NextTurn::Yield,
            "it was told to stay awake"
        );
    }

    #[test]
    fn a_long_yield_tells_that_others_want_the_core() {
        static SHARED_AT: AtomicU64 = AtomicU64::new(0);
        let mut idle = Idle { shared_at: &SHARED_AT, ..Idle::new(pace(true, AWAKE)) };
        idle.next_turn(STARTED);
        let yielded = STARTED + SPIN_MAX_NS;
        idle.note_yield(yielded, yielded + YIELD_MAX_NS);
        assert_eq!(idle.next_turn(yielded + YIELD_MAX_NS), NextTurn::Yield);
        idle.note_yield(yielded, yielded + YIELD_MAX_NS + 1);
        assert_eq!(idle.next_turn(yielded + YIELD_MAX_NS + 1), NextTurn::Sleep);
    }

    #[test]
    fn news_prevents_sleep_and_a_bell_ends_it() {
        let shared = Arc::new((Doorbell::default(), AtomicBool::new(false)));
        let forever = Duration::from_secs(1000);
        let mut idle = Idle::new(Pace { spin: false, awake: NOW, nap_max: forever, sleeps_if_shared: false });
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
            assert_ne!(turn, Turn::Slept(SleepEnd::TimedOut));
            idle.nap = forever;
        }
        ringer.join().unwrap();
        for _ in 0..2 * YIELDS_MIN {
            let turn = idle.wait(&shared.0, || false);
            assert!(matches!(turn, Turn::Yielded | Turn::Slept(SleepEnd::Awake)));
        }
    }

    #[test]
    fn naps_grow_to_their_bound() {
        let bell = Doorbell::default();
        let mut idle =
            Idle::new(Pace { spin: true, awake: NOW, nap_max: 3 * NAP_MIN, sleeps_if_shared: false });
        turns_until_sleep(&mut idle, &bell, Turn::Spun);
        assert_eq!(idle.nap, 2 * NAP_MIN);
        idle.wait(&bell, || true);
        idle.wait(&bell, || true);
        assert_eq!(idle.nap, 6 * NAP_MIN);
        idle.wait(&bell, || true);
        assert_eq!(idle.nap, 6 * NAP_MIN);
    }
}
