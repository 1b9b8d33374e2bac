// SPDX-License-Identifier: BSD-3-Clause
//! Stores on disk, for the next job, which ways of moving long messages were fast in this job on this host:
//! the facts (`tuning::Facts`).
//!
//! Invariants: only a job that ended well, on a machine that was quiet meanwhile, changes the facts; whatever
//! prevents that, a full disk for example, is no error of the job.

use transport::shm::Segment;
use tuning::{Probes, Tuning};

use crate::tables;

/// What a job knew about long messages at its start (the facts), and the processor time that the machine had
/// used by then.
pub struct FactsKeeper {
    before: Tuning,
    ticks: Ticks,
}

/// Processor times since the machine's start, in clock ticks.
#[derive(Clone, Copy)]
struct Ticks {
    /// The time of all cpus together, idle or not, in clock ticks.
    all: u64,
    /// The clock ticks in which a cpu worked, also for other virtual machines (steal), for all cpus together.
    used: u64,
    /// The clock ticks of processor time that this process and its ended children have used.
    ours: u64,
}

impl FactsKeeper {
    /// Returns a keeper for a job that begins with the tuning `before`. None if a table of tuning decides how
    /// long messages move, or if /proc does not show how busy the machine is.
    pub fn new(before: Tuning) -> Option<FactsKeeper> {
        Some(FactsKeeper { before, ticks: Ticks::now().filter(|_| !before.knows_ways())? })
    }

    /// Stores what the job's ranks on this host have found about long messages, for the next job. Called
    /// after all processes of the job have ended well.
    pub fn store(&self, segment: &Segment) {
        let probes = Probes(&segment.job().probes);
        let has_found =
            probes.has_verdicts() && Ticks::now().is_some_and(|now| now.is_quiet_since(self.ticks));
        if let Some(folder) = tables::folder(false).filter(|_| has_found) {
            let found = |kept: &Tuning| self.before.facts_after(kept, |at| probes.verdict(at));
            // The next job finds it again.
            let _ = tables::keep_facts(&folder, found);
        }
    }
}

impl Ticks {
    fn now() -> Option<Ticks> {
        let read = |path| std::fs::read_to_string(path).ok();
        Ticks::of(&read("/proc/stat")?, &read("/proc/self/stat")?)
    }

    /// Reads the processor times from the texts of /proc/stat (`machine`) and /proc/self/stat (`own`), see
    /// proc(5). None if a text has another form.
    fn of(machine: &str, own: &str) -> Option<Ticks> {
        let numbers = |text: &str| text.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        let first: Vec<u64> = numbers(machine.lines().next()?.strip_prefix("cpu ")?);
        // user, nice, system, idle, iowait, irq, softirq, steal
        let each = first.get(..8)?;
        // The name of a program may have spaces and brackets.
        let own: Vec<u64> = numbers(own.rsplit_once(')')?.1);
        let all = each.iter().sum();
        Some(Ticks { all, used: all - each[3] - each[4], ours: own.get(11..15)?.iter().sum() })
    }

    /// Whether other processes and other virtual machines have used at most a tenth of the processor time
    /// since `before`.
    fn is_quiet_since(self, before: Ticks) -> bool {
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let others = since(since(self.used, before.used), since(self.ours, before.ours));
        others.saturating_mul(10) <= since(self.all, before.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a machine on which others work, or whose hypervisor does, is busy. What the job itself does is no
    // reason.
    #[test]
    fn quiet_machines_are_told_from_busy_ones() {
        let own = |ticks| format!("7 (a (b) c) S 1 7 7 0 -1 0 0 0 0 0 10 {ticks} 20 30 20 0 1 0 99");
        let before = Ticks::of("cpu  100 0 100 800 50 0 0 5 7 0\ncpu0 1", &own(40)).unwrap();
        assert_eq!((before.all, before.used, before.ours), (1055, 205, 100));
        let after = |user, idle, steal, ours| {
            let text = format!("cpu  {user} 0 100 {idle} 50 0 0 {steal} 0 0\n");
            Ticks::of(&text, &own(ours)).unwrap().is_quiet_since(before)
        };
        assert!(after(300, 800, 5, 240), "only the job worked");
        assert!(after(200, 920, 5, 120), "others used 20 of 220");
        assert!(!after(200, 920, 5, 110), "others used 30 of 220");
        assert!(!after(180, 800, 45, 120), "others used nothing, the hypervisor took 40 of 120");
        assert!(after(100, 800, 5, 40), "no time has passed");
    }

    #[test]
    fn odd_texts_say_nothing() {
        for (machine, own) in [("", "7 (a) S"), ("cpu 1 2 3", "7 (a) S"), ("cpu 1 2 3 4 5 6 7 8", "7 a")] {
            assert!(Ticks::of(machine, own).is_none());
        }
        assert!(Ticks::now().is_some());
    }
}
