// SPDX-License-Identifier: BSD-3-Clause
//! What `Offload::Auto` learns: whether the rank computes between the start of an operation and its end.
//!
//! On one host, a rank that only waits carries out its next operation itself: it is at least as fast as the
//! proxy, and wakes nobody. Between hosts, and for messages, the executor measures both ways: by the rank,
//! and by the proxy. It measures anew once the rank begins to compute during its operations, or stops.

use sys::clock::now;

/// The greatest ratio of a rank's waiting time to its computing time at which a proxy still pays.
const WAITING_PER_WORK: u64 = 4;
const SURE: u8 = 3;

/// Counts how often the rank computed during the last operations of a schedule, up to `SURE`. The rank
/// probably computes again if the count exceeds `SURE / 2`.
#[derive(Debug)]
pub struct Habit(u8);

impl Default for Habit {
    fn default() -> Habit {
        Habit(SURE)
    }
}

impl Habit {
    /// Whether the rank will probably compute during the next operation.
    pub fn computes(&self) -> bool {
        self.0 > SURE / 2
    }

    fn update(&mut self, computes: bool) {
        self.0 = if computes { (self.0 + 1).min(SURE) } else { self.0.saturating_sub(1) };
    }
}

/// The time that a rank has waited in MPI calls while some operation was being measured.
#[derive(Debug, Default)]
pub struct Waits {
    /// The time at which the present wait began, in nanoseconds; 0 if the rank is not waiting.
    since: u64,
    sum: u64,
    /// The number of operations under way that are being measured.
    measured: u32,
}

/// The start of a measured operation: when it was, and how long the rank had waited until then.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredStart {
    at: u64,
    waited: u64,
}

impl Waits {
    /// Records that the rank begins (`begins`) or ends a wait in an MPI call, at the time `at` in
    /// nanoseconds.
    pub fn wait(&mut self, begins: bool, at: u64) {
        if !begins && self.since != 0 {
            self.sum += at.saturating_sub(self.since);
        }
        self.since = if begins { at } else { 0 };
    }

    /// Returns the present time if the round of progress that begins now must be added to the waiting time.
    /// None if no operation is measured, or if a wait has begun, whose time counts anyway.
    pub fn step(&self) -> Option<u64> {
        (self.measured > 0 && self.since == 0).then(now)
    }

    /// Adds the round of progress that began at `started` to the time waited. With None the round does not
    /// count.
    pub fn stepped(&mut self, started: Option<u64>) {
        if let Some(started) = started {
            self.sum += now() - started;
        }
    }

    pub fn start(&mut self) -> MeasuredStart {
        self.measured += 1;
        let at = now();
        MeasuredStart { at, waited: self.waited(at) }
    }

    /// Ends the measurement of an operation, which has just ended. Tells `habit` whether the rank computed
    /// during it.
    pub fn measure(&mut self, started: MeasuredStart, habit: &mut Habit) {
        self.measured -= 1;
        let now = now();
        let waited = self.waited(now) - started.waited;
        let worked = (now - started.at).saturating_sub(waited);
        habit.update(worked.saturating_mul(WAITING_PER_WORK) >= waited);
    }

    fn waited(&self, at: u64) -> u64 {
        self.sum + if self.since == 0 { 0 } else { at.saturating_sub(self.since) }
    }
}

/// The number of calls that a trial times in the way in use, and then in the other way (by the rank instead
/// of its proxy, or the reverse). It is a multiple of 1, 2, 3, 4 and 6, common numbers of calls in one step
/// of an MPI program.
const WINDOW: usize = 12;
/// How many calls are not timed after a trial has begun to time the rank or the proxy, since these calls open
/// connections and fill caches.
const FIRST: usize = 2;
/// The fewest calls that a trial makes in the way that it tries (by the rank, or by its proxy). After so many
/// calls it may stop early, because that way is far slower.
const EARLY: usize = 6;
/// The number of calls between the first trial and the second, which compare the rank with its proxy. The
/// number grows fourfold with each trial.
const LOOK_MIN: u64 = 120;
/// The most calls between two trials, which compare the rank with its proxy.
const LOOK_MAX: u64 = 1 << 15;

/// Finds out whether the program's steps are shorter if the proxy (the first way) or the rank (the second
/// way) executes operations. It times calls of one way, then of the other, each from an operation's start to
/// the next start.
#[derive(Debug)]
pub struct Trial {
    /// Whether the rank (the second way) was faster than the proxy (the first way) in the last trial. False
    /// before the first trial.
    is_second_faster: bool,
    phase: Phase,
    /// The time at which the last call started, in nanoseconds; 0 before the first call.
    started: u64,
    /// The number of calls between the end of the next trial and the start of the trial after it.
    look: u64,
    /// Whether the rank computed during these operations when the trial began. If that changes, the trial
    /// begins anew.
    computes: bool,
}

#[derive(Debug)]
enum Phase {
    /// No trial is under way. The next one begins after this many calls.
    Rest(u64),
    /// The trial times the way in use. For each call so far: the nanoseconds from the end of the first
    /// `FIRST` calls to the end of this call.
    Present(Vec<u64>),
    /// The trial times the other way. The fields are the list of the way in use (as in `Present`), the time
    /// of the other way so far in nanoseconds, and the number of its calls so far.
    Compared(Vec<u64>, u64, usize),
}

impl Default for Trial {
    fn default() -> Trial {
        Trial { is_second_faster: false, phase: Phase::Rest(0), started: 0, look: LOOK_MIN, computes: true }
    }
}

impl Trial {
    /// Returns whether the rank, not the proxy, executes the operation that starts at the time `now`.
    /// `computes` says whether the rank computes during these operations. When it changes, all measurements
    /// are discarded.
    pub fn next(&mut self, now: u64, computes: bool) -> bool {
        if computes != self.computes {
            *self = Trial { computes, ..Trial::default() };
        }
        let took = now.saturating_sub(std::mem::replace(&mut self.started, now));
        match &mut self.phase {
            Phase::Rest(0) => self.phase = Phase::Present(Vec::with_capacity(WINDOW)),
            Phase::Rest(left) => *left -= 1,
            Phase::Present(ends) => {
                ends.push(if ends.len() < FIRST { 0 } else { ends[ends.len() - 1] + took });
                if ends.len() == WINDOW {
                    self.phase = Phase::Compared(std::mem::take(ends), 0, 0);
                }
            }
            Phase::Compared(ends, end, calls) => {
                *calls += 1;
                *end += if *calls <= FIRST { 0 } else { took };
                let present = ends[*calls - 1];
                let is_worse = *calls >= EARLY && *end > present + present / 4;
                if is_worse || *calls == WINDOW {
                    // A tie changes nothing.
                    self.is_second_faster ^= *end < present - present / 16;
                    self.phase = Phase::Rest(self.look);
                    self.look = (4 * self.look).min(LOOK_MAX);
                }
            }
        }
        self.is_second_faster ^ matches!(self.phase, Phase::Compared(..))
    }
}

/// What the executor has learnt about one kind of message: whether the rank computes while such messages are
/// under way, and whether the rank or its proxy carries them faster.
#[derive(Debug, Default)]
pub struct MessageHabit {
    habit: Habit,
    trial: Trial,
    under_way: u32,
    is_slower: bool,
}

impl MessageHabit {
    /// Records that a message starts at the time `now`. Returns whether a proxy should carry it. If other
    /// messages of this kind are under way, the answer is the same as for these.
    pub fn start(&mut self, now: u64) -> bool {
        if self.under_way == 0 {
            self.is_slower = self.trial.next(now, self.habit.computes());
        }
        self.under_way += 1;
        self.pays()
    }

    /// Records that a message has ended. Calls `measure`, which tells the habit whether the rank computed
    /// during the message.
    pub fn end(&mut self, measure: impl FnOnce(&mut Habit)) {
        self.under_way = self.under_way.saturating_sub(1);
        measure(&mut self.habit);
    }

    /// Whether a proxy is to carry the messages that are under way now.
    pub fn pays(&self) -> bool {
        self.habit.computes() && !self.is_slower
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_step_go_one_way_and_the_faster_way_stays() {
        let (mut habit, mut now, mut late) = (MessageHabit::default(), 1_000_000, 0);
        for step in 0..100 {
            let ways: Vec<bool> = (0..6).map(|_| habit.start(now)).collect();
            assert!(ways.iter().all(|way| *way == ways[0]) && habit.pays() == ways[0]);
            // The proxy is slow.
            now += if ways[0] { 9000 } else { 1000 };
            late += u32::from(ways[0] && step > 2 * WINDOW);
            (0..6).for_each(|_| habit.end(|habit| habit.update(true)));
        }
        assert_eq!(late, 0);
        habit.end(|habit| (0..SURE).for_each(|_| habit.update(false)));
        assert!(!habit.start(now), "the rank only waits");
    }

    /// Simulates `calls` calls. `step` returns how long a call takes, from its number and whether it goes the
    /// second way (by the rank). Returns how many calls went the second way.
    fn play(trial: &mut Trial, calls: u64, step: impl Fn(u64, bool) -> u64) -> u64 {
        let mut now = 1_000_000;
        let mut others = 0;
        for call in 0..calls {
            let other = trial.next(now, true);
            others += u64::from(other);
            now += step(call, other);
        }
        others
    }

    #[test]
    fn the_faster_way_is_chosen_and_the_slower_one_is_tried_for_few_calls() {
        for period in [1, 2, 3, 4, 6, 12] {
            let step = |fast: u64, slow: u64, other_is_fast: bool| {
                move |call: u64, other: bool| {
                    (if other == other_is_fast { fast } else { slow }) + 1000 * (call % period)
                }
            };
            let mut trial = Trial::default();
            let others = play(&mut trial, 2000, step(1000, 7000, true));
            assert!(others > 1900, "{others} of 2000");
            let mut trial = Trial::default();
            let others = play(&mut trial, 2000, step(1000, 70_000, false));
            assert!((EARLY as u64..=4 * EARLY as u64).contains(&others), "{others} of 2000");
            let mut trial = Trial::default();
            let others = play(&mut trial, 100, step(1000, 1000, true));
            assert_eq!(others, WINDOW as u64, "a tie");
        }
        // What was faster becomes slower.
        let mut trial = Trial::default();
        play(&mut trial, 100, |_, other| if other { 10 } else { 100 });
        let others = play(&mut trial, 1000, |_, other| if other { 100 } else { 10 });
        assert!(others < 200, "{others}");
    }

    #[test]
    fn a_rank_that_begins_to_work_measures_anew() {
        let mut trial = Trial::default();
        let (mut now, mut others) = (1, 0);
        for call in 0..400 {
            let computes = call >= 40;
            let other = trial.next(now, computes);
            others += u64::from(other && computes);
            // Without computation the second way is faster, with it the first way.
            now += if other == computes { 100 } else { 10 };
        }
        assert!(others < 40, "{others} of 360");
    }

    /// Tells `habit` of an operation that took `lasted` nanoseconds. During the last `waited` nanoseconds of
    /// these the rank waited.
    fn measure(habit: &mut Habit, lasted: u64, waited: u64) {
        let mut waits = Waits::default();
        let at = now() - lasted;
        waits.measured = 1;
        waits.wait(true, at + lasted - waited);
        waits.measure(MeasuredStart { at, waited: 0 }, habit);
    }

    #[test]
    fn a_rank_that_only_waits_carries_its_operations_out_itself_until_it_works_again() {
        let (mut habit, second) = (Habit::default(), 1_000_000_000);
        measure(&mut habit, 1000 * second, 999 * second);
        assert!(habit.computes(), "one exception");
        measure(&mut habit, 1000 * second, 999 * second);
        assert!(!habit.computes());
        measure(&mut habit, 1000 * second, 0);
        assert!(habit.computes(), "it was not sure yet");
        (0..9).for_each(|_| measure(&mut habit, 1000 * second, 900 * second));
        measure(&mut habit, 1000 * second, 500 * second);
        assert!(!habit.computes(), "one exception");
        measure(&mut habit, 1000 * second, 500 * second);
        assert!(habit.computes());
    }

    #[test]
    fn waits_of_other_operations_and_steps_count() {
        let mut waits = Waits::default();
        assert!(waits.step().is_none(), "nothing is measured");
        let started = waits.start();
        let step = waits.step();
        assert!(step.is_some());
        waits.stepped(step.map(|at| at - 5_000_000_000));
        assert!(waits.waited(now()) - started.waited >= 5_000_000_000);
        waits.wait(true, 1_000);
        assert!(waits.step().is_none(), "the wait counts already");
        waits.wait(false, 3_000);
        assert!(waits.waited(now()) - started.waited >= 5_000_002_000);
        let mut habit = Habit::default();
        waits.measure(started, &mut habit);
        assert_eq!((waits.measured, habit.0), (0, SURE - 1));
    }
}
