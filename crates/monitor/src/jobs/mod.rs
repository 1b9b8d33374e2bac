//! Jobs: those of a local `mpirun` by their counters (`local.rs`), programs of other MPIs under the watch
//! library (`watch.rs`), those of Slurm by `squeue --json` (`slurm.rs`).

mod local;
mod slurm;
mod watch;

pub use watch::Watched;

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::job::{Job, Rank};
use crate::live::{Live, now_ms, seconds};
use crate::store::{Store, Writer, quoted};

pub struct Collector {
    pub interval: Duration,
    pub store: Arc<Store>,
    pub live: Arc<Live>,
    pub writer: Writer,
    pub watched: Watched,
}

/// Jobs that ended are shown for so long.
const SHOWN_AFTER_END_MS: u64 = 3_600_000;
const ENDED_MAX: usize = 1000;

impl Collector {
    /// Collects for good.
    pub fn run(mut self) {
        match self.known() {
            Ok(jobs) => self.live.now().jobs = jobs,
            Err(why) => eprintln!("outboard monitor: the jobs of before cannot be read: {why}"),
        }
        loop {
            let begun = Instant::now();
            self.collect();
            std::thread::sleep(self.interval.saturating_sub(begun.elapsed()));
        }
    }

    /// The jobs that an earlier monitor saw lately, or did not see end.
    fn known(&self) -> Result<Vec<Job>, String> {
        let sql = "SELECT id, source, user, name, nodes, ranks, state, toUnixTimestamp64Milli(start), \
                   toUnixTimestamp64Milli(end), project FROM jobs FINAL WHERE seen > now() - INTERVAL 1 HOUR OR end IS NULL \
                   ORDER BY start DESC LIMIT 10000";
        let rows = self.store.select(sql, &[])?;
        Ok(rows.as_array().into_iter().flatten().filter_map(of_row).collect())
    }

    fn collect(&mut self) {
        let mut found = [local::jobs(), self.watched.jobs(), slurm::jobs()];
        if let [Ok(local), Ok(watched), Ok(slurm)] = &mut found {
            adopt(local, slurm);
            adopt(watched, slurm);
        }
        for (source, found) in SOURCES.into_iter().zip(found) {
            match found {
                Ok(jobs) => {
                    self.keep(source, jobs);
                    self.live.now().job_errors.remove(source);
                }
                // Jobs of a source that does not answer are neither running nor ended: they stay as they
                // were.
                Err(why) => {
                    self.live.now().job_errors.insert(source, why);
                }
            }
        }
    }

    /// Puts the running jobs of a source beside those that were known.
    fn keep(&self, source: &'static str, running: Vec<Job>) {
        let at = now_ms();
        let mut now = self.live.now();
        let (jobs, changed) = joined(std::mem::take(&mut now.jobs), source, &running, at);
        now.jobs = jobs;
        drop(now);
        self.writer.add("jobs", changed.iter().map(|job| row(job, at)).collect());
        self.writer.add("job_samples", running.iter().map(|job| samples(job, at)).collect());
    }
}

/// All jobs, once those of a source are known anew; and those of them that are new, changed or over.
fn joined(known: Vec<Job>, source: &str, running: &[Job], at: u64) -> (Vec<Job>, Vec<Job>) {
    let mut changed = Vec::new();
    let (ours, mut jobs): (Vec<Job>, Vec<Job>) = known.into_iter().partition(|job| job.source == source);
    let mut ended: Vec<Job> = Vec::new();
    for mut job in ours {
        if running.iter().any(|new| new.id == job.id) {
            continue;
        }
        if job.end.is_none() {
            job.end = Some(at);
            job.state = "ENDED".into();
            changed.push(job.clone());
        }
        if job.end.is_some_and(|end| end + SHOWN_AFTER_END_MS > at) {
            ended.push(job);
        }
    }
    // Those that ended last are kept.
    ended.sort_by_key(|job| job.end);
    let surplus = ended.len().saturating_sub(ENDED_MAX);
    jobs.extend(ended.into_iter().skip(surplus));
    changed.extend(running.iter().cloned());
    jobs.extend(running.iter().cloned());
    (jobs, changed)
}

/// What runs inside a job of Slurm is that job's: it gets the ranks.
fn adopt(found: &mut Vec<Job>, slurm: &mut [Job]) {
    found.retain_mut(|job| {
        let Some(whole) = slurm.iter_mut().find(|whole| job.slurm.as_ref() == Some(&whole.id)) else {
            return true;
        };
        // Who says that it is in another's job is not believed.
        if whole.user != job.user {
            return true;
        }
        whole.ranks.append(&mut job.ranks);
        whole.ranks.sort_by_key(|rank| rank.rank);
        false
    });
}

const SOURCES: [&str; 3] = ["mpirun", "watch", "slurm"];

/// A job from a row of `jobs`.
fn of_row(row: &Value) -> Option<Job> {
    let text = |at: usize| row[at].as_str().map(String::from);
    let nodes = row[4].as_array()?.iter().filter_map(|node| node.as_str().map(String::from));
    Some(Job {
        id: text(0)?,
        source: SOURCES.into_iter().find(|source| row[1] == *source)?,
        user: text(2)?,
        project: text(9)?,
        name: text(3)?,
        nodes: nodes.collect(),
        ranks: Vec::new(),
        ranks_count: row[5].as_u64()?.try_into().ok()?,
        state: text(6)?,
        start: row[7].as_u64()?,
        end: row[8].as_u64(),
        slurm: None,
    })
}

/// A job's ranks as they were last seen.
pub fn ranks_of(store: &Store, job: &str) -> Result<Vec<Rank>, String> {
    let sql = "SELECT rank, argMax(host, ts), argMax(counters, ts) FROM job_samples WHERE job = {job:String} \
               GROUP BY rank ORDER BY rank LIMIT 100000";
    let rows = store.select(sql, &[("job", job.into())])?;
    let rank = |row: &Value| {
        let counters =
            row[2].as_object()?.iter().filter_map(|(name, value)| Some((name.clone(), value.as_u64()?)));
        Some(Rank {
            rank: row[0].as_u64()?.try_into().ok()?,
            host: row[1].as_str()?.into(),
            state: "Ended".into(),
            counters: counters.collect(),
            ..Rank::default()
        })
    };
    Ok(rows.as_array().into_iter().flatten().filter_map(rank).collect())
}

/// A job as a row of `jobs`.
fn row(job: &Job, at: u64) -> String {
    let array = |texts: &[String]| {
        let texts: Vec<_> = texts.iter().map(|text| literal(text)).collect();
        quoted(&format!("[{}]", texts.join(",")))
    };
    let end = job.end.map_or("\\N".into(), seconds);
    let (id, user, name, state) = (quoted(&job.id), quoted(&job.user), quoted(&job.name), quoted(&job.state));
    let (nodes, ranks, start) = (array(&job.nodes), job.ranks_count, seconds(job.start));
    let (seen, project) = (seconds(at), quoted(&job.project));
    format!("{id},{},{user},{name},{nodes},{ranks},{state},{start},{end},{seen},{project}\n", job.source)
}

/// The counters of a job's ranks as rows of `job_samples`.
fn samples(job: &Job, at: u64) -> String {
    let mut csv = String::new();
    for rank in &job.ranks {
        let counters: Vec<_> =
            rank.counters.iter().map(|(name, value)| format!("{}:{value}", literal(name))).collect();
        let counters = quoted(&format!("{{{}}}", counters.join(",")));
        let (id, host) = (quoted(&job.id), quoted(&rank.host));
        writeln!(csv, "{},{id},{},{host},{counters}", seconds(at), rank.rank).expect("a String takes all");
    }
    csv
}

/// A text as a literal inside an array or a map.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_gone_has_ended_and_is_shown_for_a_while() {
        let job = |source, id: &str, end| Job { id: id.into(), source, end, ..Job::default() };
        let known = vec![job("slurm", "1", None), job("mpirun", "2", None), job("mpirun", "3", None)];
        let (jobs, changed) = joined(known, "mpirun", &[job("mpirun", "3", None)], 1000);
        let ids = |jobs: &[Job]| jobs.iter().map(|job| job.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&jobs), ["1", "2", "3"]);
        assert_eq!((jobs[0].end, jobs[1].end, jobs[2].end), (None, Some(1000), None));
        assert_eq!((ids(&changed), changed[0].state.as_str()), (vec!["2".into(), "3".into()], "ENDED"));
        let (jobs, changed) = joined(jobs, "mpirun", &[], 1000 + SHOWN_AFTER_END_MS);
        assert_eq!((ids(&jobs), ids(&changed)), (vec!["1".into(), "3".into()], vec!["3".into()]));
        let ours = |user: &str, slurm: &str| Job {
            user: user.into(),
            slurm: Some(slurm.into()),
            ranks: vec![Rank::default()],
            ..job("watch", "8", None)
        };
        let mut found = vec![ours("ann", "1"), ours("ann", "2"), ours("bob", "1")];
        let mut slurm = [Job { user: "ann".into(), ..job("slurm", "1", None) }];
        adopt(&mut found, &mut slurm);
        assert_eq!((found.len(), slurm[0].ranks.len()), (2, 1), "only into his own job");
        let many = (0..ENDED_MAX + 2).map(|at| job("mpirun", &at.to_string(), Some(at as u64))).collect();
        let (jobs, _) = joined(many, "mpirun", &[], 2000);
        assert_eq!((jobs.len(), jobs[0].id.as_str()), (ENDED_MAX, "2"), "the last to end are kept");
    }
}
