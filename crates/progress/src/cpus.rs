// SPDX-License-Identifier: BSD-3-Clause
//! Ranks that share cpus publish on which cpu each of them waits. So a rank whose peer waits on another cpu
//! looks some times before it yields its own, and the ranks spread evenly over the cpus.
//!
//! Invariants: what a rank reads about other ranks may be out of date, which costs time only. A rank runs
//! where the user or the kernel allows, and the kernel may move it at any time.

use telemetry::{Counter, count};
use transport::shm::{LocalRank, Segment};

/// How many times a rank yields between two counts of the ranks that wait on each cpu
/// (docs/measured/waiting.md). The first counts come earlier, after the 1st, 2nd, 4th, ... yield, because
/// ranks start where the kernel put them.
const YIELDS_BETWEEN_COUNTS: u32 = 64;

/// Shows on which cpu each rank of one world waits on this host. Each rank publishes its own cpu.
pub struct Cpus {
    segment: Segment,
    rank: LocalRank,
    world: Box<[LocalRank]>,
    yields: u32,
}

impl Cpus {
    /// Returns the state for `rank`, which shares the cpus. `world`: the ranks of its world that are on this
    /// host.
    pub fn new(segment: Segment, rank: LocalRank, world: impl IntoIterator<Item = LocalRank>) -> Cpus {
        Cpus { segment, rank, world: world.into_iter().collect(), yields: 0 }
    }

    /// Publishes the number of the cpu on which this rank runs now, so that other ranks see it. Returns this
    /// number.
    #[inline]
    pub fn publish(&self) -> usize {
        let cpu = sys::cpu::current();
        self.segment.rank(self.rank).wait_on(cpu);
        cpu
    }

    /// Yields the cpu to other threads. Now and then it first moves this rank to a cpu on which fewer ranks
    /// wait.
    pub fn yield_cpu(&mut self) {
        count(Counter::Yields, 1);
        self.yields = self.yields.wrapping_add(1);
        if self.yields.is_multiple_of(YIELDS_BETWEEN_COUNTS) || self.yields.is_power_of_two() {
            self.move_to_least_used();
        }
        sys::cpu::yield_cpu();
    }

    /// Moves this thread to the cpu on which the fewest ranks wait, if on the present cpu at least two more
    /// wait. For short waits the kernel does this too late: it sees all cpus busy, and wakes a rank where the
    /// rank or its waker ran.
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

    /// Whether rank 0 moves to the first of two cpus, wherever the kernel has started it. `others` says of
    /// each other rank whether it waits on the first cpu (else on the second).
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
