// SPDX-License-Identifier: BSD-3-Clause
//! How far the clock of another host differs from the clock of the job's root (`mpirun`). The root measures
//! it by the frames (messages) `ToAgent::Clock` and `ToRoot::Clock`: it notes when it asks and when the
//! answer comes, and the host answers with its own time.

/// How often the job's root (`mpirun`) asks a host for its clock in one row of questions. Only the fastest
/// answer of a row counts.
const ASKED: u32 = 12;
/// The largest believable difference in speed between two clocks: 1 ms a second. A larger difference is an
/// error of measurement.
const DRIFT_MAX: f64 = 1e-3;

/// A host's answer to the question for its clock. Its offset is wrong by at most half of `took`, the ns
/// between asking and receiving the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Answer {
    took: u64,
    /// The time of the job's root (`mpirun`) halfway between asking and receiving the answer, in ns.
    at: u64,
    /// How many ns must be added to a time of the host to get the time of the job's root (`mpirun`).
    offset: i64,
}

/// How far the clock of one host differs from the clock of the job's root (`mpirun`), by the answers that
/// have come so far.
#[derive(Debug, Default)]
pub struct Clock {
    left: u32,
    best: Option<Answer>,
    /// The best (fastest) answer to the first row of questions about the host's clock. None before that row
    /// is complete.
    first: Option<Answer>,
    /// The best (fastest) answer to the latest complete row of questions about the host's clock. None before
    /// a row is complete.
    last: Option<Answer>,
}

impl Clock {
    /// Starts a row of [`ASKED`] questions for the host's clock. The caller sends the first question.
    pub fn start(&mut self) {
        (self.left, self.best) = (ASKED, None);
    }

    /// Takes a host's answer: the job's root (`mpirun`) asked at `sent`, the host's time was `there`, and the
    /// answer came at `back`, all in ns. Returns whether the row has another question.
    pub fn receive(&mut self, sent: u64, there: u64, back: u64) -> bool {
        let Some(took) = back.checked_sub(sent) else { return false };
        let at = sent + took / 2;
        if self.best.is_none_or(|best| took < best.took) {
            self.best = Some(Answer { took, at, offset: at.wrapping_sub(there) as i64 });
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.first = self.first.or(self.best);
            self.last = self.best;
        }
        self.left > 0
    }

    /// Returns how many ns must be added to the host's time `there` to get the time of the job's root
    /// (`mpirun`). Returns 0 if the clock was never measured.
    pub fn offset(&self, there: u64) -> i64 {
        let (Some(first), Some(last)) = (self.first.or(self.best), self.last.or(self.best)) else { return 0 };
        let apart = last.at.saturating_sub(first.at) as f64;
        let drift = (last.offset - first.offset) as f64 / apart.max(1.0);
        if drift.abs() > DRIFT_MAX {
            let best = if last.took < first.took { last } else { first };
            return best.offset;
        }
        let here = there.saturating_add_signed(first.offset);
        let since = (here as f64 - first.at as f64).clamp(0.0, apart);
        first.offset + (drift * since).round() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives `clock` a row of answers from a host whose clock is late by `behind` ns. `ways`: how many ns
    /// each question and each answer travelled.
    fn row(clock: &mut Clock, at: u64, behind: u64, ways: &[(u64, u64)]) {
        clock.start();
        let mut asks = true;
        for (there, back) in ways.iter().cycle() {
            if !asks {
                return;
            }
            asks = clock.receive(at, at + there - behind, at + there + back);
        }
    }

    #[test]
    fn the_fastest_answer_counts_and_a_slow_drift_is_followed() {
        let mut clock = Clock::default();
        assert_eq!(clock.offset(5), 0);
        let second = 1_000_000_000;
        row(&mut clock, 10 * second, 4000, &[(900, 100), (20, 20), (400, 10)]);
        assert_eq!(clock.offset(9 * second), 4000);
        row(&mut clock, 20 * second, 5000, &[(20, 20)]);
        assert_eq!(clock.offset(15 * second - 4500), 4500);
        // Outside of the measured times the nearest offset holds.
        assert_eq!((clock.offset(0), clock.offset(90 * second)), (4000, 5000));
        // No clock is that fast: the slower answers are wrong.
        row(&mut clock, 20 * second + 100, 9_000_000_000, &[(900_000, 20)]);
        assert_eq!(clock.offset(15 * second), 4000);
        assert!(!clock.receive(10, 5, 9));
    }
}
