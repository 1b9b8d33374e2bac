// SPDX-License-Identifier: BSD-3-Clause
//! Ranks that share cpus publish on which cpu each of them waits. So a waiting rank yields its cpu only if
//! another rank can use it, and the ranks spread evenly over the cpus.
//!
//! Invariants: what a rank reads of other ranks may be out of date; this costs time only. A rank runs where
//! the user or the kernel allows, and the kernel may move it at any time.

use telemetry::{Counter, count};
use transport::shm::{LocalRank, Segment};

/// Yields of a rank between two counts of the ranks on each cpu (docs/measured/waiting.md). The first counts
/// come earlier, after the 1st, 2nd, 4th, ... yield, because ranks start where the kernel put them.
const YIELDS_BETWEEN_COUNTS: u32 = 64;

/// Where the ranks of one rank's world wait: the cpus that those on its host have published.
pub struct Cpus {
    segment: Segment,
    rank: LocalRank,
    world: Box<[LocalRank]>,
    yields: u32,
}

impl Cpus {
    /// Makes this for `rank`. `world` are the ranks of its world that are on its host.
    pub fn new(segment: Segment, rank: LocalRank, world: impl IntoIterator<Item = LocalRank>) -> Cpus {
        Cpus { segment, rank, world: world.into_iter().collect(), yields: 0 }
    }

    /// Publishes and returns the cpu on which this rank runs now.
    #[inline]
    pub fn publish(&self) -> usize {
        let cpu = sys::cpu::current();
        self.segment.rank(self.rank).wait_on(cpu);
        cpu
    }

    /// Yields the cpu, and now and then moves this rank to a cpu where fewer ranks wait.
    pub fn yield_cpu(&mut self) {
        count(Counter::Yields, 1);
        self.yields = self.yields.wrapping_add(1);
        if self.yields.is_multiple_of(YIELDS_BETWEEN_COUNTS) || self.yields.is_power_of_two() {
            self.move_to_least_used();
        }
        sys::cpu::yield_cpu();
    }

    /// Moves this thread to the cpu on which the fewest ranks wait, if this cpu has at least two more. The
    /// kernel is late to do this for short waits: it sees all cpus busy, and wakes a rank where the rank or
    /// its waker ran.
    #[cold]
    fn move_to_least_used(&self) {
        let here = self.publish();
        let waiting = |cpu: usize| {
            self.world.iter().filter(|rank| self.segment.rank(**rank).waits_on() == Some(cpu)).count()
        };
        let Ok(allowed) = sys::cpu::allowed() else { return };
        let Some(least) = allowed.iter().copied().min_by_key(|cpu| waiting(*cpu)) else { return };
        if waiting(here) < waiting(least) + 2 || sys::cpu::pin(&[least]).is_err() {
            return;
        }
        // Allow all cpus again, now that the thread has moved. A cpu that has gone meanwhile is no loss.
        let _ = sys::cpu::pin(&allowed);
        self.segment.rank(self.rank).wait_on(least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::shm::Shape;

    /// Whether rank 0 ends up on the first of two cpus, wherever the kernel has it start. `others` says for
    /// each other rank whether it waits on the first cpu.
    fn joins(others: [bool; 3]) -> bool {
        let allowed = sys::cpu::allowed().unwrap();
        let [one, two, ..] = allowed[..] else { return others != [true; 3] };
        let (segment, _fd) = Segment::create(Shape { ranks: 4, proxies: 0, arena_bytes: 1 << 20 }).unwrap();
        for (rank, on_one) in segment.places().skip(1).zip(others) {
            segment.rank(rank).wait_on(if on_one { one } else { two });
        }
        let mut cpus = Cpus::new(segment.clone(), segment.require(0).unwrap(), segment.places());
        let work = move || {
            sys::cpu::pin(&[one, two]).unwrap();
            (0..YIELDS_BETWEEN_COUNTS).for_each(|_| cpus.yield_cpu());
            assert_eq!(sys::cpu::allowed().unwrap(), [one, two], "it may still go anywhere");
        };
        // In a thread of its own: the set of allowed cpus ends with the thread.
        std::thread::spawn(work).join().unwrap();
        segment.rank(segment.require(0).unwrap()).waits_on() == Some(one)
    }

    #[test]
    fn ranks_that_share_cpus_spread_over_them() {
        assert!(!joins([true, true, true]));
        assert!(joins([true, false, false]));
    }
}
