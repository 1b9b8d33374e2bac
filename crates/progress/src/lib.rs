// SPDX-License-Identifier: BSD-3-Clause
//! The only wait loop: spin, yield, sleep.
//!
//! A wait polls everything that may bring progress, and calls `Idle::wait` after a round that found nothing.
//! If every process of the job has a core of its own, a wait first spins. After 50 us it yields, so that a
//! process of another program can run, and later it sleeps. If a yield has shown that another program wants
//! this core, waits sleep instead of yielding for some time. If processes of the job share cores, a wait
//! yields at once, because the peer may need this core. It sleeps only after many yields, since a wake-up
//! costs more than several yields. A proxy that shares its core with ranks sleeps at once: the ranks compute,
//! and the kernel runs a woken proxy at once. docs/measured/waiting.md has the measurements.
#![forbid(unsafe_code)]

mod cpus;

pub use cpus::Cpus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use telemetry::{Counter, count};
use transport::shm::{Doorbell, Segment, SleepEnd};

/// A wait that spins reads the clock once in this many turns.
const SPINS: u32 = 8;
/// How long a wait spins before it yields, in ns. Most waits of ranks that run in step are shorter.
const SPIN_MAX_NS: u64 = 50_000;
/// A yield that takes more ns than this shows that another program wants the core.
const YIELD_MAX_NS: u64 = 100_000;
/// For how many ns the core counts as shared after a yield longer than `YIELD_MAX_NS`. Waits sleep in this
/// time, because a woken process gets the core at once. A process that yields gets it back only after the
/// other program's time slice.
const SHARED_NS: u64 = 100_000_000;
/// For how many ns the core counts as shared if the process's pace has `sleeps_if_shared`. It is longer than
/// `SHARED_NS`, because nothing wakes such a process while it yields to a program that computes.
const SHARED_SLEEPER_NS: u64 = 1_000_000_000;
/// A process whose `Pace::awake` is at least this long keeps yielding while its core is shared. Other
/// processes may sleep then.
const AWAKE_IF_SHARED_MIN: Duration = Duration::from_secs(1);
/// When a yield of this process last took longer than `YIELD_MAX_NS`, in ns of `sys::clock::now`. 0 if no
/// yield has.
static SHARED_AT: AtomicU64 = AtomicU64::new(0);
/// How many times a wait that does not spin yields before it may sleep, however long that takes.
const YIELDS_MIN: u32 = 16;
/// How long the first sleep of a wait may last. Each further sleep of that wait may last twice as long as the
/// one before, up to the pace's `nap_max`.
const NAP_MIN: Duration = Duration::from_millis(1);
/// How long a sleep of a rank may last at most. A ring of the doorbell ends a sleep early. So this bounds
/// only how late a rank sees what rings no bell, such as the death of a peer.
const NAP_MAX: Duration = Duration::from_millis(10);

/// How a process waits: whether it spins, and when and for how long it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Whether the process may keep a core busy while it waits, because it has a core of its own.
    pub spin: bool,
    /// How long a wait spins and yields before it may sleep.
    pub awake: Duration,
    /// How long a sleep may last at most.
    pub nap_max: Duration,
    /// Whether the process sleeps at once, without yielding, if processes of the job share its core or
    /// another program wants the core. True for a proxy.
    pub sleeps_if_shared: bool,
}

impl Pace {
    /// Returns the pace of a rank, which spins and yields for OUTBOARD_SPIN_US before it sleeps.
    pub fn of_rank(segment: &Segment) -> Pace {
        let awake = Duration::from_micros(settings::get().spin_us);
        Pace { spin: segment.job().may_spin(), awake, nap_max: NAP_MAX, sleeps_if_shared: false }
    }
}

/// What the process did in one turn of a wait, a call of `Idle::wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The process spun for a moment.
    Spun,
    /// The process yielded the core to other threads.
    Yielded,
    /// The process slept on its doorbell. The value says how the sleep ended.
    Slept(SleepEnd),
}

/// What a wait does in its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextTurn {
    Spin,
    Yield,
    Sleep,
}

/// The state of one wait: how long the process has polled in vain.
#[derive(Clone, Debug)]
pub struct Idle {
    pace: Pace,
    /// How many turns the wait has taken since it started or last made progress.
    turns: u32,
    /// When the wait first read the clock after it started or last made progress, in ns. 0 if it has not read
    /// the clock.
    since: u64,
    nap: Duration,
    /// When a yield last showed that another program wants this core, in ns. It is `SHARED_AT`, except in
    /// tests.
    shared_at: &'static AtomicU64,
}

impl Idle {
    /// Returns the state of a wait that starts now.
    pub fn new(pace: Pace) -> Idle {
        Idle { pace, turns: 0, since: 0, nap: NAP_MIN, shared_at: &SHARED_AT }
    }

    /// Starts the wait anew, because a poll has made progress.
    #[inline]
    pub fn reset(&mut self) {
        (self.turns, self.since, self.nap) = (0, 0, NAP_MIN);
    }

    /// Takes one turn of the wait, after a round of polls that found nothing. `bell` is the doorbell of this
    /// process. `still_idle` is called before a sleep, and must check everything for which others ring the
    /// bell.
    #[inline]
    pub fn wait(&mut self, bell: &Doorbell, still_idle: impl FnOnce() -> bool) -> Turn {
        self.wait_with(|nap| bell.sleep(nap, still_idle))
    }

    /// Takes one turn of the wait, as `wait` does. To sleep it calls `sleep`, with the longest time that the
    /// sleep may take.
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

    /// Returns what the wait does next, by how long it has lasted and whether the core is shared. `now` is in
    /// ns.
    fn next_turn(&mut self, now: u64) -> NextTurn {
        if self.since == 0 {
            self.since = now;
        }
        let waited = now - self.since;
        if u128::from(waited) >= self.pace.awake.as_nanos() {
            return NextTurn::Sleep;
        }
        if !self.pace.spin {
            let sleeps_if_shared = self.pace.sleeps_if_shared && self.pace.awake < AWAKE_IF_SHARED_MIN;
            return if sleeps_if_shared { NextTurn::Sleep } else { NextTurn::Yield };
        }
        if waited < SPIN_MAX_NS && !self.pace.sleeps_if_shared {
            return NextTurn::Spin;
        }
        let shared_at = self.shared_at.load(Ordering::Relaxed);
        let lasts = if self.pace.sleeps_if_shared { SHARED_SLEEPER_NS } else { SHARED_NS };
        let shared = shared_at != 0 && now.saturating_sub(shared_at) < lasts;
        match shared && self.pace.awake < AWAKE_IF_SHARED_MIN {
            true => NextTurn::Sleep,
            false if waited < SPIN_MAX_NS => NextTurn::Spin,
            false => NextTurn::Yield,
        }
    }

    /// Remembers that another program wants this core if the yield from `started` to `ended` (in ns) was
    /// long.
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

    /// Returns what a wait does next after it has lasted for `waited` ns.
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
        let mut idle = Idle { shared_at: &SHARED, ..Idle::new(pace(true, AWAKE_IF_SHARED_MIN)) };
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
            Idle::new(pace(AWAKE_IF_SHARED_MIN)).next_turn(STARTED),
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
