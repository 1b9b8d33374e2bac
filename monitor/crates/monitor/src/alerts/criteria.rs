// SPDX-License-Identifier: BSD-3-Clause
//! Criteria for alerts: a metric, a comparison, a threshold, a duration, and what is watched. Administrators
//! make criteria in the monitor's web page.

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::metric::{METRICS, Metric};
use crate::config::Notify;
use crate::control::Control;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Comparison {
    #[default]
    #[serde(rename = ">=")]
    AtLeast,
    #[serde(rename = "<=")]
    AtMost,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    /// The number of the criterion. It is 0 for a criterion that is not stored yet.
    #[serde(default)]
    pub id: i64,
    pub name: String,
    pub metric: String,
    pub comparison: Comparison,
    pub threshold: f64,
    /// For how many seconds without a break the criterion must hold before an alert is raised.
    pub for_s: u32,
    /// For how many seconds the criterion must not hold before its alert is cleared.
    pub clear_s: u32,
    /// What is watched: a rack, or a part of the name of a node, host or job. Everything is watched if this
    /// is empty.
    #[serde(default)]
    pub target: String,
    /// The names of the channels (`[[notify]]` sections of the configuration) to which the criterion's alerts
    /// are sent.
    #[serde(default)]
    pub channels: Vec<String>,
    pub is_on: bool,
}

const CRITERIA_MAX: i64 = 200;
const TEXT_CHARS_MAX: usize = 200;
const DAY_S: u32 = 86_400;

impl Criterion {
    pub fn metric(&self) -> Option<&'static Metric> {
        METRICS.iter().find(|metric| metric.name == self.metric)
    }

    pub fn holds(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::AtLeast => value >= self.threshold,
            Comparison::AtMost => value <= self.threshold,
        }
    }

    fn check(&self, channels: &[Notify]) -> Result<(), String> {
        let is_long =
            |text: &String| text.chars().count() > TEXT_CHARS_MAX || text.contains(char::is_control);
        if self.name.is_empty() || is_long(&self.name) || is_long(&self.target) {
            return Err(format!(
                "a criterion has a name; name and target have at most {TEXT_CHARS_MAX} characters"
            ));
        }
        if self.metric().is_none() {
            return Err(format!("there is no metric {:?}", self.metric));
        }
        if !self.threshold.is_finite() || self.for_s > DAY_S || self.clear_s > DAY_S {
            return Err(format!("the threshold is a number, and the times are 0 to {DAY_S} seconds"));
        }
        let unknown =
            self.channels.iter().find(|name| !channels.iter().any(|channel| channel.name == **name));
        match unknown {
            Some(name) => Err(format!("the configuration has no [[notify]] of the name {name:?}")),
            None => Ok(()),
        }
    }
}

/// Returns the criteria with which a new monitor begins.
fn first() -> Vec<Criterion> {
    let row = |name: &str, metric: &str, threshold, for_s, clear_s| Criterion {
        name: name.into(),
        metric: metric.into(),
        threshold,
        for_s,
        clear_s,
        is_on: true,
        ..Criterion::default()
    };
    vec![
        row("a link is lost", "link_lost", 1.0, 0, 0),
        row("a node does not answer", "unreachable", 1.0, 0, 0),
        row("a host does not report", "host_unreachable", 1.0, 0, 0),
        row("symbol errors", "symbol_errors", 10.0, 0, 600),
        row("a link is full", "use", 0.9, 60, 60),
        row("the monitor loses rows", "dropped_rows", 1.0, 0, 0),
    ]
}

pub fn all(control: &Control) -> Result<Vec<Criterion>, String> {
    let read = || {
        control.read(|db| {
            let mut found = db.prepare("SELECT id, words FROM criteria ORDER BY id")?;
            let rows = found.query_map([], |row| {
                let (id, words): (i64, String) = (row.get(0)?, row.get(1)?);
                // A criterion that a newer program wrote is left alone.
                Ok(serde_json::from_str::<Criterion>(&words).ok().map(|one| Criterion { id, ..one }))
            })?;
            Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten().collect::<Vec<_>>())
        })
    };
    read()
}

/// Stores the criteria with which a new monitor begins, unless that has been done for this database before.
pub fn begin(control: &Control) -> Result<(), String> {
    control.with(|db| {
        let had: i64 =
            db.query_row("SELECT count(*) FROM audit WHERE what = 'first criteria'", [], |row| row.get(0))?;
        if had == 0 {
            for criterion in first() {
                put(db, &criterion)?;
            }
            db.execute(
                "INSERT INTO audit VALUES (?, 'monitor', 'first criteria')",
                [crate::time::now_ms() as i64],
            )?;
        }
        Ok(())
    })
}

fn put(db: &rusqlite::Connection, criterion: &Criterion) -> rusqlite::Result<usize> {
    let id = (criterion.id != 0).then_some(criterion.id);
    let words = serde_json::to_string(criterion).unwrap_or_default();
    db.execute("INSERT OR REPLACE INTO criteria VALUES (?, ?, ?)", params![id, criterion.name, words])
}

/// Adds a criterion. If one with the same number is stored, replaces it. `channels` are the channels of the
/// configuration, and `who` is the person who makes the change.
pub fn add(control: &Control, criterion: &Criterion, channels: &[Notify], who: &str) -> Result<(), String> {
    criterion.check(channels)?;
    let is_added = control.with(|db| {
        let count: i64 = db.query_row("SELECT count(*) FROM criteria", [], |row| row.get(0))?;
        let is_known = "SELECT count(*) FROM criteria WHERE id = ?";
        let known: i64 = db.query_row(is_known, [criterion.id], |row| row.get(0))?;
        let is_right = if criterion.id == 0 { count < CRITERIA_MAX } else { known == 1 };
        if is_right { put(db, criterion).map(|_| true) } else { Ok(false) }
    })?;
    if !is_added {
        return Err(format!("there is no criterion {}, or there are {CRITERIA_MAX} already", criterion.id));
    }
    control.audit(who, &format!("sets the criterion {:?}", criterion.name));
    Ok(())
}

pub fn remove(control: &Control, id: i64, who: &str) -> Result<bool, String> {
    let removed = control.with(|db| db.execute("DELETE FROM criteria WHERE id = ?", [id]))?;
    if removed > 0 {
        control.audit(who, &format!("removes the criterion {id}"));
    }
    Ok(removed > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criteria_are_checked_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::open(folder.path()).unwrap();
        begin(&control).unwrap();
        let all_first = all(&control).unwrap();
        assert!(all_first.iter().all(|one| one.check(&[]).is_ok()), "{all_first:?}");
        assert_eq!(all_first.len(), first().len());
        for one in &all_first {
            assert!(remove(&control, one.id, "ann").unwrap());
        }
        begin(&control).unwrap();
        assert!(all(&control).unwrap().is_empty(), "what was removed does not come back");
        let ops = Notify { name: "ops".into(), ..Notify::default() };
        let mut mine =
            Criterion { id: 0, name: "hot".into(), channels: vec!["ops".into()], ..first().remove(4) };
        assert!(add(&control, &mine, &[], "ann").unwrap_err().contains("\"ops\""));
        add(&control, &mine, std::slice::from_ref(&ops), "ann").unwrap();
        mine = all(&control).unwrap().remove(0);
        mine.comparison = Comparison::AtMost;
        add(&control, &mine, std::slice::from_ref(&ops), "ann").unwrap();
        assert_eq!(all(&control).unwrap(), [mine.clone()]);
        assert!(mine.holds(0.9) && !mine.holds(0.91));
        let wrong = [
            Criterion { id: 77, ..mine.clone() },
            Criterion { metric: "heat".into(), ..mine.clone() },
            Criterion { threshold: f64::NAN, ..mine.clone() },
            Criterion { for_s: DAY_S + 1, ..mine.clone() },
            Criterion { name: String::new(), ..mine },
        ];
        for wrong in wrong {
            assert!(add(&control, &wrong, std::slice::from_ref(&ops), "ann").is_err(), "{wrong:?}");
        }
        for _ in 1..CRITERIA_MAX {
            add(&control, &first().remove(0), &[], "ann").unwrap();
        }
        assert!(add(&control, &first().remove(0), &[], "ann").unwrap_err().contains("there are 200 already"));
        let known = all(&control).unwrap().remove(0);
        add(&control, &known, std::slice::from_ref(&ops), "ann").unwrap();
    }
}
