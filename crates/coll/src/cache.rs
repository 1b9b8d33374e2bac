// SPDX-License-Identifier: BSD-3-Clause
//! The schedules of earlier calls, kept for later calls. The least recently used schedule is dropped first.

use rustc_hash::FxHashMap;
use schedule::Schedule;
use schedule::algorithm::{Algorithm, Neighbors, Params};
use std::sync::Arc;
use telemetry::Counter;

/// The cached schedules, each with the values on which it depends and the time of its last use.
pub(crate) struct ScheduleCache {
    entries: FxHashMap<CacheKey, CachedSchedule>,
    entries_max: usize,
    clock: u64,
}

/// The values on which a schedule depends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CacheKey {
    /// A collective among all ranks of a comm, by this algorithm with these parameters.
    All(Algorithm, Params),
    /// A neighborhood collective, and whether this rank sends the same block to all its neighbours.
    Neighbors(Arc<Neighbors>, bool),
}

struct CachedSchedule {
    schedule: Arc<Schedule>,
    used: u64,
}

impl ScheduleCache {
    /// Makes an empty cache, which keeps at most `entries_max` schedules, and at least one.
    pub fn new(entries_max: usize) -> ScheduleCache {
        ScheduleCache { entries: FxHashMap::default(), entries_max: entries_max.max(1), clock: 0 }
    }

    /// Returns the schedule for a key. If the cache lacks the schedule, it is made and kept. The executor
    /// recognises a schedule by the address in its `Arc`.
    pub fn get(&mut self, key: CacheKey) -> Arc<Schedule> {
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.used = self.clock;
            telemetry::count(Counter::ScheduleHits, 1);
            return entry.schedule.clone();
        }
        telemetry::count(Counter::SchedulesMade, 1);
        if self.entries.len() >= self.entries_max {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            oldest.map(|key| self.entries.remove(&key));
        }
        let schedule = Arc::new(match &key {
            CacheKey::All(algorithm, params) => algorithm.plan(params),
            CacheKey::Neighbors(neighbors, same) => neighbors.plan(*same),
        });
        self.entries.insert(key, CachedSchedule { schedule: schedule.clone(), used: self.clock });
        schedule
    }

    /// Returns the name of the algorithm that made a schedule. The name is empty if the cache has dropped the
    /// schedule.
    #[cold]
    pub fn algorithm(&self, schedule: &Arc<Schedule>) -> &'static str {
        let made = self.entries.iter().find(|(_, entry)| Arc::ptr_eq(&entry.schedule, schedule));
        match made {
            Some((CacheKey::All(algorithm, _), _)) => algorithm.name(),
            Some((CacheKey::Neighbors(..), _)) => "neighbors",
            None => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a kept schedule is the same object; a full cache drops the least recently used, and only that.
    #[test]
    fn the_oldest_goes() {
        let mut cache = ScheduleCache::new(2);
        let barrier = |size| CacheKey::All(Algorithm::BarrierDissemination, Params::new(0, size));
        let two = cache.get(barrier(2));
        let three = cache.get(barrier(3));
        assert!(Arc::ptr_eq(&two, &cache.get(barrier(2))));
        cache.get(barrier(4));
        assert!(Arc::ptr_eq(&two, &cache.get(barrier(2))));
        assert_eq!((cache.algorithm(&two), cache.algorithm(&three)), ("dissemination", ""));
        assert!(!Arc::ptr_eq(&three, &cache.get(barrier(3))));
    }
}
