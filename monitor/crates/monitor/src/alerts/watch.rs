// SPDX-License-Identifier: BSD-3-Clause
//! Decides when an alert is raised and when it is cleared, without a clock or a database.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::criteria::Criterion;
use super::found::Found;

/// The most alerts that one criterion may have open. Nobody would read more.
const OPEN_MAX: usize = 2000;

pub enum Change {
    Raised { criterion: i64, found: Found },
    Cleared { criterion: i64, id: i64 },
}

impl Change {
    pub fn criterion(&self) -> i64 {
        match self {
            Change::Raised { criterion, .. } | Change::Cleared { criterion, .. } => *criterion,
        }
    }
}

/// A port, link, node, host or job, or the monitor itself, for which a criterion holds, or held a short time
/// ago. The criterion has held for it from `since` to `last`.
struct HeldCriterion {
    since: Instant,
    last: Instant,
    /// The number of the alert that was raised for this port, link, node, host or job. None if no alert is
    /// raised yet.
    alert: Option<i64>,
}

/// The ports, links, nodes, hosts and jobs for which criteria hold, by the criterion's number and then by
/// `Found::key`.
#[derive(Default)]
pub struct Watch(HashMap<i64, HashMap<String, HeldCriterion>>);

impl Watch {
    /// Notes that the alert `id` is open for a criterion and a port, link, node, host or job (`key`). The
    /// alert was raised a moment ago, or before the monitor was started anew.
    pub fn resume(&mut self, criterion: i64, key: String, id: i64, at: Instant) {
        let held = self.0.entry(criterion).or_default();
        held.entry(key).or_insert(HeldCriterion { since: at, last: at, alert: None }).alert = Some(id);
    }

    /// Replaces the alerts that count as open by `open`: for each the alert's number, the criterion's number,
    /// and the key of the host, job or the like. Keeps the time since which each criterion has held.
    pub fn reopen(&mut self, open: Vec<(i64, i64, String)>, at: Instant) {
        for held in self.0.values_mut().flat_map(HashMap::values_mut) {
            held.alert = None;
        }
        for (id, criterion, key) in open {
            self.resume(criterion, key, id, at);
        }
    }

    /// Forgets the criteria that were removed or switched off. Returns the changes that clear the alerts of
    /// these criteria.
    pub fn withdraw(&mut self, criteria: &[Criterion]) -> Vec<Change> {
        let is_on = |id: i64| criteria.iter().any(|criterion| criterion.id == id && criterion.is_on);
        let mut changes = Vec::new();
        self.0.retain(|criterion, held| {
            if is_on(*criterion) {
                return true;
            }
            let ids = held.values().filter_map(|held| held.alert);
            changes.extend(ids.map(|id| Change::Cleared { criterion: *criterion, id }));
            false
        });
        changes
    }

    /// Returns the alerts to raise and to clear, given everything (`found`) for which a criterion holds now.
    pub fn see(&mut self, criterion: &Criterion, found: Vec<Found>, at: Instant) -> Vec<Change> {
        let (id, held) = (criterion.id, self.0.entry(criterion.id).or_default());
        let mut changes = Vec::new();
        let wait = Duration::from_secs(criterion.for_s.into());
        let mut open = held.values().filter(|held| held.alert.is_some()).count();
        for found in found {
            let one =
                held.entry(found.key.clone()).or_insert(HeldCriterion { since: at, last: at, alert: None });
            one.last = at;
            if one.alert.is_none() && at - one.since >= wait && open < OPEN_MAX {
                open += 1;
                changes.push(Change::Raised { criterion: id, found });
            }
        }
        let quiet = Duration::from_secs(criterion.clear_s.into());
        held.retain(|_, one| match one.alert {
            // An alert is raised only for a condition that holds without a break.
            None => one.last == at,
            Some(alert) if one.last != at && at - one.last >= quiet => {
                changes.push(Change::Cleared { criterion: id, id: alert });
                false
            }
            Some(_) => true,
        });
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(key: &str) -> Vec<Found> {
        vec![Found { key: key.into(), ..Found::default() }]
    }

    /// Lets a `Watch` see one character of `story` each second, and returns what changes in each second. A
    /// letter stands for a thing for which the criterion holds in that second; a point stands for none.
    fn changes_in(criterion: &Criterion, story: &str) -> String {
        let (mut watch, start, mut next) = (Watch::default(), Instant::now(), 0);
        let step = |(second, letter): (usize, char)| {
            let holds = if letter == '.' { Vec::new() } else { found(&letter.to_string()) };
            let at = start + Duration::from_secs(second as u64);
            let words = watch.see(criterion, holds, at).into_iter().map(|change| match change {
                Change::Raised { found, .. } => {
                    next += 1;
                    watch.resume(criterion.id, found.key, next, at);
                    'R'
                }
                Change::Cleared { .. } => 'C',
            });
            let words: String = words.collect();
            if words.is_empty() { "-".to_string() } else { words }
        };
        story.chars().enumerate().map(step).collect()
    }

    #[test]
    fn it_holds_for_so_long_and_is_quiet_for_so_long() {
        let mut criterion = Criterion { id: 1, is_on: true, for_s: 2, clear_s: 3, ..Criterion::default() };
        assert_eq!(changes_in(&criterion, "aa.aaa"), "-----R", "a break begins anew");
        assert_eq!(changes_in(&criterion, "aaa..aa..a"), "--R-------", "two quiet seconds: still open");
        assert_eq!(changes_in(&criterion, "aaa...aaa"), "--R--C--R");
        criterion.for_s = 0;
        assert_eq!(changes_in(&criterion, "aab"), "R-R");
    }

    #[test]
    fn a_criterion_that_is_taken_away_takes_its_alerts_with_it() {
        let criterion = Criterion { id: 1, is_on: true, ..Criterion::default() };
        let mut watch = Watch::default();
        watch.resume(1, "a".into(), 7, Instant::now());
        assert!(watch.withdraw(std::slice::from_ref(&criterion)).is_empty());
        let off = Criterion { is_on: false, ..criterion };
        assert!(matches!(watch.withdraw(&[off])[..], [Change::Cleared { criterion: 1, id: 7 }]));
        assert!(watch.withdraw(&[]).is_empty());
    }

    #[test]
    fn open_alerts_are_bounded() {
        let criterion = Criterion { id: 1, is_on: true, ..Criterion::default() };
        let all = (0..OPEN_MAX + 5).map(|key| Found { key: key.to_string(), ..Found::default() }).collect();
        assert_eq!(Watch::default().see(&criterion, all, Instant::now()).len(), OPEN_MAX);
    }
}
