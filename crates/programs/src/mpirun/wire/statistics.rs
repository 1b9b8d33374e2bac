// SPDX-License-Identifier: BSD-3-Clause
//! The counters of a world whose ranks run on several hosts: each agent sends the counters of its processes,
//! and the job's root (`mpirun`) makes one table of them.
//!
//! Read next: `telemetry/summary.rs`.

use serde::{Deserialize, Serialize};
use telemetry::{Counter, CounterPage, Operations, Sum, summary};
use transport::shm::Segment;

/// The counters of a world's processes on one node. After `add`, those on several nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// The counters of each rank, and its sums for each function and comm.
    ranks: Vec<RankCounts>,
    /// The values of each proxy's counters, in the order of [`Counter::ALL`].
    proxies: Vec<Vec<u64>>,
    /// How many ns the job had run when the world ended. On several nodes it is the longest of these times.
    age_ns: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct RankCounts {
    counters: Vec<u64>,
    /// For each function and comm: their name in the table, and this rank's sums in the order of
    /// [`Sum::ALL`].
    operations: Vec<(String, Vec<u64>)>,
}

/// Returns the values of all counters in a process's page, in the order of [`Counter::ALL`].
fn values(page: &CounterPage) -> Vec<u64> {
    Counter::ALL.iter().map(|counter| page.value(*counter)).collect()
}

fn proxies(segment: &Segment) -> Vec<Vec<u64>> {
    (0..segment.shape().proxies).map(|proxy| values(&segment.proxy(proxy).counters)).collect()
}

impl Counted {
    /// Returns the counters of this segment's proxies only. Their ranks run on another host.
    pub fn of_proxies(segment: &Segment) -> Counted {
        Counted { ranks: Vec::new(), proxies: proxies(segment), age_ns: 0 }
    }

    /// Whether these are counters of proxies only, and of no rank.
    pub fn is_of_proxies(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Returns the counters of this host's ranks of the world whose first process number is `first`, and of
    /// this host's proxies.
    pub fn here(segment: &Segment, first: u32) -> Counted {
        let sums = |row: &telemetry::OperationRow| Sum::ALL.iter().map(|sum| row.sum(*sum)).collect();
        let rank = |rank| {
            let page = segment.rank(rank);
            let operations = page.operations.rows().map(|(name, row)| (name, sums(row))).collect();
            RankCounts { counters: values(&page.counters), operations }
        };
        Counted {
            ranks: segment.members(first).map(rank).collect(),
            proxies: if segment.has_dpu() { Vec::new() } else { proxies(segment) },
            age_ns: boot::age(segment),
        }
    }

    /// Adds the counters of the same world on another node to these.
    pub fn add(&mut self, other: Counted) {
        self.ranks.extend(other.ranks);
        self.proxies.extend(other.proxies);
        self.age_ns = self.age_ns.max(other.age_ns);
    }

    /// Returns the table of counters with its explaining sentences, as text for the user.
    pub fn text(&self) -> String {
        let page = |values: &Vec<u64>| {
            let page = Box::new(CounterPage::new());
            Counter::ALL.iter().zip(values).for_each(|(counter, value)| page.set(*counter, *value));
            page
        };
        let operations = |rank: &RankCounts| {
            let all = Box::new(Operations::new());
            for (name, sums) in &rank.operations {
                let row = all.enter(name);
                if let Some((_, row)) = all.rows().nth(row) {
                    Sum::ALL.iter().zip(sums).for_each(|(sum, value)| row.add(*sum, *value));
                }
            }
            all
        };
        let pages: Vec<_> = self.ranks.iter().map(|rank| page(&rank.counters)).collect();
        let proxies: Vec<_> = self.proxies.iter().map(page).collect();
        let all: Vec<_> = self.ranks.iter().map(operations).collect();
        summary::all(
            self.age_ns,
            &pages.iter().map(|page| &**page).collect::<Vec<_>>(),
            &all.iter().map(|all| &**all).collect::<Vec<_>>(),
            &proxies.iter().map(|page| &**page).collect::<Vec<_>>(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_stays_in_its_row() {
        let page = CounterPage::new();
        page.set(Counter::RingFull, 7);
        let rank = RankCounts { counters: values(&page), operations: Vec::new() };
        let text = Counted { ranks: vec![rank], ..Counted::default() }.text();
        let row = text.lines().find(|line| line.starts_with("ring_full")).unwrap_or_default();
        assert_eq!(row.split_whitespace().nth(1), Some("7"), "{text}");
    }
}
