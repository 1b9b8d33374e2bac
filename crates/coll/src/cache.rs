//! Schedules that have been made, kept for the next call. Bounded: the one not used for longest goes first.

use rustc_hash::FxHashMap;
use schedule::Schedule;
use schedule::algorithm::{Algorithm, Neighbors, Params};
use std::sync::Arc;
use telemetry::Counter;

/// The cache.
pub(crate) struct Plans {
    entries: FxHashMap<Key, Entry>,
    entries_max: usize,
    clock: u64,
}

/// What a plan depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Among all ranks.
    All(Algorithm, Params),
    /// Among neighbours; whether all get the same block.
    Neighbors(Arc<Neighbors>, bool),
}

struct Entry {
    schedule: Arc<Schedule>,
    used: u64,
}

impl Plans {
    /// A cache of at most so many schedules (at least one).
    pub fn new(entries_max: usize) -> Plans {
        Plans { entries: FxHashMap::default(), entries_max: entries_max.max(1), clock: 0 }
    }

    /// The plan, made now if it is not kept. The same plan comes as the same `Arc`, by which the executor knows it again.
    pub fn get(&mut self, key: Key) -> Arc<Schedule> {
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
            Key::All(algorithm, params) => algorithm.plan(params),
            Key::Neighbors(neighbors, same) => neighbors.plan(*same),
        });
        self.entries.insert(key, Entry { schedule: schedule.clone(), used: self.clock });
        schedule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a kept plan is the same object; a full cache drops the one not used for longest, and only that.
    #[test]
    fn the_oldest_goes() {
        let mut plans = Plans::new(2);
        let barrier = |size| Key::All(Algorithm::BarrierDissemination, Params::new(0, size));
        let two = plans.get(barrier(2));
        let three = plans.get(barrier(3));
        assert!(Arc::ptr_eq(&two, &plans.get(barrier(2))));
        plans.get(barrier(4));
        assert!(Arc::ptr_eq(&two, &plans.get(barrier(2))));
        assert!(!Arc::ptr_eq(&three, &plans.get(barrier(3))));
    }
}
