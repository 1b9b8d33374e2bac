// SPDX-License-Identifier: BSD-3-Clause
//! Alerts: what people want to watch (`criteria.rs`), what can be measured (`metric.rs`), for what a
//! criterion holds (`found.rs`), and how people are notified (`deliver.rs`).
//!
//! An alert is raised when a criterion has held for long enough. A person acknowledges it. It is cleared when
//! the criterion has not held for long enough. `Watch` decides this; it knows no database and no clock.

mod criteria;
mod deliver;
mod found;
mod metric;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::params;
use serde_json::{Value, json};

use crate::control::Control;
use crate::job::Job;
use crate::live::{Live, Now};
use crate::people::Who;
use crate::store::Writer;
use crate::time::now_ms;

pub use criteria::{Criterion, add as add_criterion, all as criteria, begin, remove as remove_criterion};
pub use deliver::{Deliver, Delivered};
pub use found::Links;
pub use metric::METRICS;
use metric::Subject;
use watch::{Change, Watch};

/// How often the criteria about hosts, jobs and the monitor itself are checked. Criteria about ports, links
/// and nodes are checked whenever all port counters have been read.
const EVERY: Duration = Duration::from_secs(1);
/// The most cleared alerts that are stored. A cleared alert is removed once this many newer alerts exist.
const CLEARED_MAX: i64 = 20_000;
/// The most alerts that the web page gets. Open alerts come first.
const SHOWN_MAX: usize = 500;

/// The thread that compares the present state with the criteria, and raises and clears alerts.
pub struct Watcher {
    pub control: Arc<Control>,
    pub live: Arc<Live>,
    pub writer: Writer,
    pub links: Arc<Mutex<Links>>,
}

impl Watcher {
    /// Compares the present state with the criteria every second, for as long as the monitor runs.
    pub fn run(self) {
        let (mut watch, mut sweep, mut said) = (Watch::default(), None, String::new());
        loop {
            let why = self.round(&mut watch, &mut sweep).err().unwrap_or_default();
            if !why.is_empty() && why != said {
                eprintln!("outboard monitor: alerts: {why}");
            }
            said = why;
            std::thread::sleep(EVERY);
        }
    }

    /// Compares the present state with the criteria once. `sweep` is the number of the sweep of port counters
    /// that was examined last. After a failure it is None: then the stored alerts are read again and the same
    /// sweep is examined again, so that no alert is lost or reported twice.
    fn round(&self, watch: &mut Watch, sweep: &mut Option<u64>) -> Result<(), String> {
        let last = sweep.take();
        if last.is_none() {
            watch.reopen(self.open()?, Instant::now());
        }
        *sweep = Some(self.look(watch, last.unwrap_or(0))?);
        Ok(())
    }

    /// Returns the number, the criterion's number and the key of each stored alert that is open.
    fn open(&self) -> Result<Vec<(i64, i64, String)>, String> {
        self.control.read(|db| {
            let mut found = db.prepare("SELECT id, criterion, key FROM alerts WHERE cleared IS NULL")?;
            let rows = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            rows.collect()
        })
    }

    /// Examines the present state, and stores the alerts that it raises or clears. `last` is the number of
    /// the sweep (one reading of all port counters) that was examined last. Returns the number of the present
    /// sweep.
    fn look(&self, watch: &mut Watch, last: u64) -> Result<u64, String> {
        let criteria = criteria(&self.control)?;
        let written = self.writer.written();
        let at = Instant::now();
        let mut changes = watch.withdraw(&criteria);
        let sweep;
        let mut seen = HashMap::new();
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut now = self.live.now();
            sweep = now.fabric.sweeps;
            let has_swept = sweep != last && now.fabric.error.is_empty();
            if has_swept {
                links.learn(&now);
            }
            for criterion in criteria.iter().filter(|criterion| criterion.is_on) {
                let Some(metric) = criterion.metric() else { continue };
                // Between two sweeps the figures of ports and links stay the same.
                if !matches!(metric.of, Subject::Host | Subject::Job | Subject::Monitor) && !has_swept {
                    continue;
                }
                let found = found::found(criterion, metric, &now, &written, &links);
                changes.extend(watch.see(criterion, found, at));
            }
            if has_swept {
                seen = std::mem::take(&mut now.unwatched);
            }
        }
        let saved = links.save(&self.control);
        drop(links);
        let written = saved.and_then(|()| match changes.is_empty() {
            true => Ok(()),
            false => self.write(watch, &criteria, &changes),
        });
        if written.is_err() {
            let mut now = self.live.now();
            seen.values().for_each(|sample| now.add_unwatched(sample));
        }
        written.map(|()| sweep)
    }

    /// Stores the alerts that are raised or cleared, and for each channel one message about the alerts that
    /// the channel gets.
    fn write(&self, watch: &mut Watch, criteria: &[Criterion], changes: &[Change]) -> Result<(), String> {
        let at = now_ms() as i64;
        let mut raised = Vec::new();
        self.control.with(|db| {
            let mut by_channel: Vec<(&str, Vec<Value>)> = Vec::new();
            for change in changes {
                let event = match change {
                    Change::Raised { criterion, found } => {
                        let name = criteria.iter().find(|one| one.id == *criterion);
                        let name = name.map_or("", |one| &one.name);
                        let row = params![
                            criterion, name, found.key, found.subject, found.text, found.source, found.job, at
                        ];
                        db.execute(
                            "INSERT INTO alerts (criterion, name, key, subject, text, source, job, raised) \
                             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                            row,
                        )?;
                        raised.push((*criterion, found.key.clone(), db.last_insert_rowid()));
                        json!({"state": "raised", "criterion": name, "subject": found.subject, "text": found.text, "at": at})
                    }
                    Change::Cleared { id, .. } => {
                        db.execute("UPDATE alerts SET cleared = ? WHERE id = ?", params![at, id])?;
                        let sql = "SELECT name, subject, text FROM alerts WHERE id = ?";
                        let (name, subject, text) = db.query_row(sql, [id], |row| {
                            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
                        })?;
                        json!({"state": "cleared", "criterion": name, "subject": subject, "text": text, "at": at})
                    }
                };
                let of = criteria.iter().find(|one| one.id == change.criterion());
                for channel in of.into_iter().flat_map(|criterion| &criterion.channels) {
                    match by_channel.iter_mut().find(|(name, _)| name == channel) {
                        Some((_, events)) => events.push(event.clone()),
                        None => by_channel.push((channel, vec![event.clone()])),
                    }
                }
            }
            for (channel, events) in by_channel {
                deliver::enqueue(db, channel, &events, at)?;
            }
            let old = "DELETE FROM alerts WHERE cleared IS NOT NULL AND id <= (SELECT max(id) FROM alerts) - ?";
            db.execute(old, [CLEARED_MAX])
        })?;
        for (criterion, key, id) in raised {
            watch.resume(criterion, key, id, Instant::now());
        }
        Ok(())
    }
}

/// Returns the open alerts and the alerts that were cleared last, without alerts about jobs that the person
/// `who` may not see.
pub fn alerts(control: &Control, who: &Who, now: &Now) -> Result<Vec<Value>, String> {
    let is_seen = |source: &str, id: &str| {
        let is_it = |job: &&Job| job.source == source && job.id == id;
        // A job that is no longer known has no owner who could see it.
        id.is_empty() || who.sees(now.jobs.iter().find(is_it).unwrap_or(&Job::default()))
    };
    control.read(|db| {
        let sql = "SELECT id, name, subject, text, source, job, raised, acknowledged, acknowledged_by, cleared, criterion, \
                   key FROM alerts ORDER BY cleared IS NOT NULL, raised DESC";
        let mut found = db.prepare(sql)?;
        let mut rows = found.query([])?;
        let mut shown = Vec::new();
        while shown.len() < SHOWN_MAX
            && let Some(row) = rows.next()?
        {
            let (source, job): (String, String) = (row.get(4)?, row.get(5)?);
            if !is_seen(&source, &job) {
                continue;
            }
            let acknowledged: Option<i64> = row.get(7)?;
            let cleared: Option<i64> = row.get(9)?;
            let state = match (cleared, acknowledged) {
                (Some(_), _) => "cleared",
                (None, Some(_)) => "acknowledged",
                (None, None) => "raised",
            };
            shown.push(json!({"id": row.get::<_, i64>(0)?, "name": row.get::<_, String>(1)?,
                "subject": row.get::<_, String>(2)?, "text": row.get::<_, String>(3)?, "state": state,
                "source": source, "job": job, "raised": row.get::<_, i64>(6)?, "acknowledged": acknowledged,
                "acknowledged_by": row.get::<_, Option<String>>(8)?, "cleared": cleared,
                "key": row.get::<_, String>(11)?}));
        }
        Ok(shown)
    })
}

/// Notes that the person `who` has acknowledged an alert. Returns false if no alert with this number is open.
pub fn acknowledge(control: &Control, id: i64, who: &str) -> Result<bool, String> {
    let done = control.with(|db| {
        let sql = "UPDATE alerts SET acknowledged = ?, acknowledged_by = ? WHERE id = ? AND cleared IS NULL \
                   AND acknowledged IS NULL";
        db.execute(sql, params![now_ms() as i64, who, id])
    })?;
    if done > 0 {
        control.audit(who, &format!("acknowledges alert {id}"));
    }
    Ok(done > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::people::Role;

    /// Calls `work` while the alerts' database can neither store nor return alerts.
    fn without_alerts(control: &Control, work: impl FnOnce()) {
        control.with(|db| db.execute_batch("ALTER TABLE alerts RENAME TO away")).unwrap();
        work();
        control.with(|db| db.execute_batch("ALTER TABLE away RENAME TO alerts")).unwrap();
    }

    #[test]
    fn no_alert_is_lost_or_told_twice_when_the_database_fails() {
        let folder = tempfile::tempdir().unwrap();
        let control = Arc::new(Control::open(folder.path()).unwrap());
        let ops = crate::config::Notify { name: "ops".into(), ..Default::default() };
        let down = Criterion {
            name: "no fabric".into(),
            metric: "fabric_down".into(),
            threshold: 1.0,
            channels: vec!["ops".into()],
            is_on: true,
            ..Criterion::default()
        };
        add_criterion(&control, &down, &[ops], "ann").unwrap();
        let (live, links) = (Arc::new(Live::default()), Arc::default());
        let watcher = Watcher { control: control.clone(), live: live.clone(), writer: Writer::idle(), links };
        let (mut watch, mut sweep) = (Watch::default(), None);
        let counts = || {
            control.with(|db| {
                let sql = "SELECT (SELECT count(*) FROM alerts), (SELECT count(*) FROM alerts WHERE cleared IS NULL), \
                           (SELECT count(*) FROM messages)";
                db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            })
        };
        watcher.round(&mut watch, &mut sweep).unwrap();
        assert_eq!(counts(), Ok((0, 0, 0)));
        live.now().fabric.error = "no port".into();
        without_alerts(&control, || assert!(watcher.round(&mut watch, &mut sweep).is_err()));
        for _ in 0..2 {
            watcher.round(&mut watch, &mut sweep).unwrap();
            assert_eq!(counts(), Ok((1, 1, 1)), "raised once");
        }
        live.now().fabric.error.clear();
        without_alerts(&control, || assert!(watcher.round(&mut watch, &mut sweep).is_err()));
        for _ in 0..2 {
            watcher.round(&mut watch, &mut sweep).unwrap();
            assert_eq!(counts(), Ok((1, 0, 2)), "cleared once");
        }
    }

    #[test]
    fn an_alert_of_a_job_is_for_who_sees_the_job() {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::open(folder.path()).unwrap();
        let sql = "INSERT INTO alerts (criterion, name, key, subject, text, source, job, raised) \
                   VALUES (1, 'waits', 'k', 's', 't', ?, ?, 1)";
        for (source, job) in [("slurm", "7"), ("slurm", "8"), ("", "")] {
            control.with(|db| db.execute(sql, [source, job])).unwrap();
        }
        let job = |user: &str| Job { id: "7".into(), source: "slurm", user: user.into(), ..Job::default() };
        let now = Now { jobs: vec![job("ann")], ..Now::default() };
        let seen = |name: &str, role| {
            let who = Who { name: name.into(), role, projects: Vec::new() };
            let found = alerts(&control, &who, &now).unwrap();
            let mut ids: Vec<String> =
                found.iter().map(|alert| alert["job"].as_str().unwrap().to_string()).collect();
            ids.sort();
            ids
        };
        assert_eq!(seen("ann", Role::User), ["", "7"]);
        assert_eq!(seen("bob", Role::User), [""]);
        assert_eq!(seen("max", Role::Support), ["", "7", "8"]);
        // However many later alerts there are that the person does not see.
        let other = "INSERT INTO alerts (criterion, name, key, subject, text, source, job, raised) \
                     VALUES (1, 'waits', ?, 's', 't', 'slurm', '8', 2)";
        control.with(|db| (0..SHOWN_MAX).try_for_each(|key| db.execute(other, [key]).map(drop))).unwrap();
        assert_eq!(seen("ann", Role::User), ["", "7"]);
        assert_eq!(seen("max", Role::Support).len(), SHOWN_MAX);
    }
}
