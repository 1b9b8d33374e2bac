//! Schedules that have been made, kept for the next call. Bounded: the one not used for longest goes first.

use schedule::Schedule;
use schedule::algorithm::{Algorithm, Params};
use std::collections::HashMap;
use std::sync::Arc;
use telemetry::Counter;

/// The cache.
pub(crate) struct Plans {
    entries: HashMap<(Algorithm, Params), Entry>,
    entries_max: usize,
    clock: u64,
}

struct Entry {
    schedule: Arc<Schedule>,
    used: u64,
}

impl Plans {
    /// A cache of at most so many schedules (at least one).
    pub fn new(entries_max: usize) -> Plans {
        Plans { entries: HashMap::new(), entries_max: entries_max.max(1), clock: 0 }
    }

    /// The plan, made now if it is not kept. The same plan comes as the same `Arc`, by which the executor knows it again.
    pub fn get(&mut self, algorithm: Algorithm, params: Params) -> Arc<Schedule> {
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(&(algorithm, params)) {
            entry.used = self.clock;
            telemetry::count(Counter::ScheduleHits, 1);
            return entry.schedule.clone();
        }
        telemetry::count(Counter::SchedulesMade, 1);
        if self.entries.len() >= self.entries_max {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
            oldest.map(|key| self.entries.remove(&key));
        }
        let schedule = Arc::new(algorithm.plan(&params));
        self.entries.insert((algorithm, params), Entry { schedule: schedule.clone(), used: self.clock });
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
        let params = |size| Params::new(0, size);
        let algorithm = Algorithm::BarrierDissemination;
        let two = plans.get(algorithm, params(2));
        let three = plans.get(algorithm, params(3));
        assert!(Arc::ptr_eq(&two, &plans.get(algorithm, params(2))));
        plans.get(algorithm, params(4));
        assert!(Arc::ptr_eq(&two, &plans.get(algorithm, params(2))));
        assert!(!Arc::ptr_eq(&three, &plans.get(algorithm, params(3))));
    }
}
