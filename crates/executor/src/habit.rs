// SPDX-License-Identifier: BSD-3-Clause
//! What `Offload::Auto` learns: whether the rank works between the start of an operation and its end. Where
//! it only waits, it carries out the next one itself: it is as fast or faster, and wakes nobody.

use sys::clock::now;

/// Work of a quarter of the time in which the rank waits pays for a proxy.
const WAITING_PER_WORK: u64 = 4;
const SURE: u8 = 3;

/// Whether the rank worked beside the last operations of a schedule. One exception changes nothing.
#[derive(Debug)]
pub struct Habit(u8);

impl Default for Habit {
    fn default() -> Habit {
        Habit(SURE)
    }
}

impl Habit {
    /// Whether it probably works beside the next one.
    pub fn works(&self) -> bool {
        self.0 > SURE / 2
    }

    fn saw(&mut self, works: bool) {
        self.0 = if works { (self.0 + 1).min(SURE) } else { self.0.saturating_sub(1) };
    }
}

/// How long a rank has waited in MPI, for as long as it judges operations.
#[derive(Debug, Default)]
pub struct Waits {
    /// The begin of the present wait, or 0.
    since: u64,
    sum: u64,
    /// Operations under way that will be judged.
    judged: u32,
}

/// The begin of an operation that will be judged: the time, and the time waited so far.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    at: u64,
    waited: u64,
}

impl Waits {
    /// A wait begins or ends at this time.
    pub fn wait(&mut self, begins: bool, at: u64) {
        if !begins && self.since != 0 {
            self.sum += at.saturating_sub(self.since);
        }
        self.since = if begins { at } else { 0 };
    }

    /// The time, if a step of progress that begins now counts as a wait of its own.
    pub fn step(&self) -> Option<u64> {
        (self.judged > 0 && self.since == 0).then(now)
    }

    /// The end of `step`.
    pub fn stepped(&mut self, begun: Option<u64>) {
        if let Some(begun) = begun {
            self.sum += now() - begun;
        }
    }

    pub fn begin(&mut self) -> Begun {
        self.judged += 1;
        let at = now();
        Begun { at, waited: self.waited(at) }
    }

    /// The operation is over, as the rank has just learned.
    pub fn judge(&mut self, begun: Begun, habit: &mut Habit) {
        self.judged -= 1;
        let now = now();
        let waited = self.waited(now) - begun.waited;
        let worked = (now - begun.at).saturating_sub(waited);
        habit.saw(worked.saturating_mul(WAITING_PER_WORK) >= waited);
    }

    fn waited(&self, at: u64) -> u64 {
        self.sum + if self.since == 0 { 0 } else { at.saturating_sub(self.since) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges an operation that lasted so long, and beside which the rank waited for so long at its end.
    fn judge(habit: &mut Habit, lasted: u64, waited: u64) {
        let mut waits = Waits::default();
        let at = now() - lasted;
        waits.judged = 1;
        waits.wait(true, at + lasted - waited);
        waits.judge(Begun { at, waited: 0 }, habit);
    }

    #[test]
    fn a_rank_that_only_waits_carries_its_operations_out_itself_until_it_works_again() {
        let (mut habit, second) = (Habit::default(), 1_000_000_000);
        judge(&mut habit, 1000 * second, 999 * second);
        assert!(habit.works(), "one exception");
        judge(&mut habit, 1000 * second, 999 * second);
        assert!(!habit.works());
        judge(&mut habit, 1000 * second, 0);
        assert!(habit.works(), "it was not sure yet");
        (0..9).for_each(|_| judge(&mut habit, 1000 * second, 900 * second));
        judge(&mut habit, 1000 * second, 500 * second);
        assert!(!habit.works(), "one exception");
        judge(&mut habit, 1000 * second, 500 * second);
        assert!(habit.works());
    }

    #[test]
    fn waits_of_other_operations_and_steps_count() {
        let mut waits = Waits::default();
        assert!(waits.step().is_none(), "nothing is judged");
        let begun = waits.begin();
        let step = waits.step();
        assert!(step.is_some());
        waits.stepped(step.map(|at| at - 5_000_000_000));
        assert!(waits.waited(now()) - begun.waited >= 5_000_000_000);
        waits.wait(true, 1_000);
        assert!(waits.step().is_none(), "the wait counts already");
        waits.wait(false, 3_000);
        assert!(waits.waited(now()) - begun.waited >= 5_000_002_000);
        let mut habit = Habit::default();
        waits.judge(begun, &mut habit);
        assert_eq!((waits.judged, habit.0), (0, SURE - 1));
    }
}
