// SPDX-License-Identifier: BSD-3-Clause
//! Jobs that hosts report (this host, and hosts on which `outboard monitor agent` runs), and jobs of batch
//! systems (`slurm.rs`, `pbs.rs`, `kubernetes.rs`). If ranks that a host reports run inside a batch system's
//! job, they are shown with the batch job.

mod kubernetes;
mod pbs;
mod slurm;
mod text;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::agent::{Sources, own_name};
use crate::hosts::{self, Host};
use crate::job::{Job, JobRank, SOURCES};
use crate::live::Live;
use crate::store::{Store, Writer, field, literal};
use crate::time::{now_ms, seconds};

pub use slurm::Slurm;

pub struct Collector {
    pub interval_s: u64,
    pub kubeconfig: Option<PathBuf>,
    pub slurm: Slurm,
    pub store: Arc<Store>,
    pub live: Arc<Live>,
    pub writer: Writer,
    /// The sources (links, energy, jobs, ...) from which this monitor makes the reports of its own host.
    pub sources: Sources,
}

/// For how many milliseconds after its end a job is still shown.
const SHOWN_AFTER_END_MS: u64 = 3_600_000;
const ENDED_MAX: usize = 1000;
/// The state that the monitor gives to a rank that its host no longer reports.
const ENDED: &str = "Ended";

impl Collector {
    /// Collects the jobs of all sources for as long as the monitor runs.
    pub fn run(mut self) {
        match self.known() {
            Ok(jobs) => self.live.now().jobs = jobs,
            Err(why) => eprintln!("outboard monitor: the jobs of before cannot be read: {why}"),
        }
        loop {
            let started = Instant::now();
            self.collect();
            std::thread::sleep(Duration::from_secs(self.interval_s).saturating_sub(started.elapsed()));
        }
    }

    /// Returns the jobs from the store that an earlier run of the monitor saw lately, or that it did not see
    /// end.
    fn known(&self) -> Result<Vec<Job>, String> {
        let sql = format!(
            "{ROWS} WHERE seen > now() - INTERVAL 1 HOUR OR end IS NULL ORDER BY start DESC LIMIT 10000"
        );
        let rows = self.store.select(&sql, &[])?;
        Ok(rows.as_array().into_iter().flatten().filter_map(of_row).collect())
    }

    fn collect(&mut self) {
        let report = self.sources.report(&own_name(), self.interval_s);
        let kubernetes = self.kubeconfig.as_deref().map_or(Ok(Vec::new()), kubernetes::jobs);
        let mut batch = [("slurm", self.slurm.jobs()), ("pbs", pbs::jobs()), ("kubernetes", kubernetes)];
        if let ("slurm", Ok(jobs)) = &mut batch[0] {
            self.account(jobs);
        }
        let mut now = self.live.now();
        for source in SOURCES {
            match report.errors.get(source) {
                Some(why) => now.job_errors.insert(source, why.clone()),
                None => now.job_errors.remove(source),
            };
        }
        // The report is refused only if the clock was set back; the next one will be taken.
        let _ = hosts::take(&mut now.hosts, &self.writer, report, now_ms());
        let mut reported = reported(&mut now.hosts);
        // Jobs of a source that does not answer stay as they were: it is unknown whether they run.
        for (source, jobs) in &mut batch {
            match jobs {
                Ok(jobs) => adopt(&mut reported, jobs),
                Err(why) => {
                    now.job_errors.insert(source, why.clone());
                }
            }
        }
        reported.retain(|job| !is_of_ended(job, &now.jobs));
        drop(now);
        for source in ["mpirun", "watch"] {
            self.keep(source, reported.extract_if(.., |job| job.source == source).collect());
        }
        for (source, jobs) in batch {
            if let Ok(jobs) = jobs {
                self.keep(source, jobs);
            }
        }
    }

    /// Adds ended jobs to `jobs`, the list that Slurm gives now. They are jobs that the monitor knows, that
    /// Slurm no longer lists, and whose end Slurm's accounting has.
    fn account(&self, jobs: &mut Vec<Job>) {
        let there: HashSet<_> = jobs.iter().map(|job| job.id.clone()).collect();
        let is_gone = |job: &&Job| job.source == "slurm" && job.end.is_none() && !there.contains(&job.id);
        let gone: Vec<Job> = self.live.now().jobs.iter().filter(is_gone).cloned().collect();
        let ids: Vec<_> = gone.iter().map(|job| job.id.as_str()).collect();
        let (ends, why) = match self.slurm.ends(&ids) {
            Ok(ends) => (ends, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        // The error is shown until the next question.
        match why {
            Some(why) => self.live.now().job_errors.insert("sacct", why),
            None if !ids.is_empty() => self.live.now().job_errors.remove("sacct"),
            None => None,
        };
        jobs.extend(gone.into_iter().filter_map(|job| {
            let slurm::JobEnd { state, start, end, .. } = ends.iter().find(|end| end.id == job.id)?;
            Some(Job { state: state.clone(), start: *start, end: Some(*end), ..job })
        }));
    }

    /// Records that `running` are the jobs of a source now. All other jobs of this source have ended, and are
    /// kept for a while. Writes every job that has changed into the store.
    fn keep(&self, source: &'static str, running: Vec<Job>) {
        let at = now_ms();
        let mut now = self.live.now();
        let (jobs, changed) = joined(std::mem::take(&mut now.jobs), source, running, at);
        let running = jobs.iter().filter(|job| job.source == source && job.end.is_none());
        self.writer.add("job_samples", running.map(|job| samples(job, at)).collect());
        now.jobs = jobs;
        drop(now);
        self.writer.add("jobs", changed.iter().map(|job| row(job, at)).collect());
    }
}

/// Returns the jobs that hosts report. A job on several hosts is returned once, with its ranks on all of
/// them.
fn reported(hosts: &mut BTreeMap<String, Host>) -> Vec<Job> {
    let mut all: BTreeMap<(&'static str, String), Job> = BTreeMap::new();
    for host in hosts.values_mut() {
        let gone = std::mem::take(&mut host.gone);
        for job in gone.into_iter().chain(host.report.part.jobs.iter().cloned()) {
            match all.entry((job.source, job.id.clone())) {
                Entry::Vacant(place) => {
                    place.insert(job);
                }
                // A job of another user with the same id is not trusted and is left out.
                Entry::Occupied(place) if place.get().user != job.user => {}
                Entry::Occupied(mut place) => {
                    let whole = place.get_mut();
                    whole.start = whole.start.min(job.start);
                    whole.nodes.extend(job.nodes);
                    whole.ranks.extend(job.ranks);
                    whole.ranks.sort_by_key(|rank| rank.rank);
                }
            }
        }
    }
    all.into_values().collect()
}

/// Joins the known jobs of all sources with the jobs that `source` reports as `running`. Returns all jobs,
/// and the jobs of `source` that are new, changed or over.
fn joined(known: Vec<Job>, source: &str, mut running: Vec<Job>, at: u64) -> (Vec<Job>, Vec<Job>) {
    let mut changed = Vec::new();
    let (ours, mut jobs): (Vec<Job>, Vec<Job>) = known.into_iter().partition(|job| job.source == source);
    let mut ended: Vec<Job> = Vec::new();
    let places: HashMap<_, _> =
        running.iter().enumerate().map(|(place, job)| (job.id.clone(), place)).collect();
    let mut unchanged = HashSet::new();
    for mut job in ours {
        if let Some(&place) = places.get(&job.id) {
            let new = &mut running[place];
            new.stored = job.stored;
            unchanged.extend(is_as(new, &job, at).then(|| new.id.clone()));
            keep_ranks(new, job);
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
    // The jobs that ended last are kept.
    ended.sort_by_key(|job| job.end);
    let surplus = ended.len().saturating_sub(ENDED_MAX);
    jobs.extend(ended.into_iter().skip(surplus));
    for job in &mut running {
        if !unchanged.contains(&job.id) {
            job.stored = at;
            changed.push(job.clone());
        }
    }
    jobs.extend(running);
    (jobs, changed)
}

/// Whether the store already has this job in its present form. Once a day the answer is false, so that a
/// running job is written again before the store drops it.
fn is_as(new: &Job, old: &Job, at: u64) -> bool {
    let row = |job: &Job| row(&Job { ranks: Vec::new(), ..job.clone() }, 0);
    old.stored + 86_400_000 > at && row(new) == row(old)
}

/// Adds to the job `new` the ranks of `old` that are no longer reported. They have ended, but their counters
/// still belong to the job. A rank without a process never started and is left out.
fn keep_ranks(new: &mut Job, old: Job) {
    let known: HashSet<_> = new.ranks.iter().map(|rank| (rank.rank, rank.pid, rank.host.clone())).collect();
    let over = old
        .ranks
        .into_iter()
        .filter(|rank| rank.pid != 0 && !known.contains(&(rank.rank, rank.pid, rank.host.clone())));
    new.ranks.extend(over.map(|rank| JobRank { state: ENDED.into(), ..rank }));
    new.ranks.sort_by_key(|rank| rank.rank);
}

/// Looks for jobs in `found` that run inside a job of `batch` (a batch system's jobs). Moves their ranks into
/// the batch job, and removes these jobs from `found`.
fn adopt(found: &mut Vec<Job>, batch: &mut [Job]) {
    found.retain_mut(|job| {
        let Some(whole) = batch.iter_mut().find(|whole| is_inside(job, whole)) else {
            return true;
        };
        // A job is not trusted if it names the job of another user, or one that does not run on all of its
        // nodes.
        if whole.user != job.user || !job.nodes.iter().all(|node| whole.nodes.contains(node)) {
            return true;
        }
        whole.ranks.append(&mut job.ranks);
        whole.ranks.sort_by_key(|rank| rank.rank);
        false
    });
}

/// Whether `job` says that it runs inside `whole`, which is a batch system's job.
fn is_inside(job: &Job, whole: &Job) -> bool {
    let place = job.inside.as_deref().and_then(|inside| inside.split_once('/'));
    place == Some((whole.source, whole.id.as_str()))
}

/// Whether a job runs inside a batch system's job that has ended.
fn is_of_ended(job: &Job, known: &[Job]) -> bool {
    known.iter().any(|whole| whole.end.is_some() && whole.user == job.user && is_inside(job, whole))
}

/// The SELECT statement for jobs, without conditions. `of_row` reads the rows that it returns.
const ROWS: &str = "SELECT id, source, user, name, nodes, ranks, state, toUnixTimestamp64Milli(start), \
                    toUnixTimestamp64Milli(end), project FROM jobs FINAL";

/// Returns a job from the store, or None if the store does not have it.
pub fn find(store: &Store, source: &str, id: &str) -> Result<Option<Job>, String> {
    let sql = format!("{ROWS} WHERE source = {{source:String}} AND id = {{id:String}}");
    let rows = store.select(&sql, &[("source", source.into()), ("id", id.into())])?;
    Ok(of_row(&rows[0]))
}

/// Returns the key of a job in the table `job_samples`. It contains the source, because two sources may use
/// the same number.
pub fn key(source: &str, id: &str) -> String {
    format!("{source}/{id}")
}

/// Makes a job of a row that `ROWS` has selected. Returns None if the row is no job.
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
        ranks_count: row[5].as_u64()?.try_into().ok()?,
        state: text(6)?,
        start: row[7].as_u64()?,
        end: row[8].as_u64(),
        ..Job::default()
    })
}

/// Returns a job's ranks from the store, as the monitor last saw them.
pub fn ranks_of(store: &Store, source: &str, id: &str) -> Result<Vec<JobRank>, String> {
    let sql = "SELECT rank, host, argMax(counters, ts), pid FROM job_samples WHERE job = {job:String} \
               GROUP BY rank, host, pid ORDER BY rank LIMIT 100000";
    let rows = store.select(sql, &[("job", key(source, id))])?;
    let rank = |row: &Value| {
        let counters =
            row[2].as_object()?.iter().filter_map(|(name, value)| Some((name.clone(), value.as_u64()?)));
        Some(JobRank {
            rank: row[0].as_u64()?.try_into().ok()?,
            host: row[1].as_str()?.into(),
            state: ENDED.into(),
            counters: counters.collect(),
            pid: row[3].as_u64()?.try_into().ok()?,
            ..JobRank::default()
        })
    };
    Ok(rows.as_array().into_iter().flatten().filter_map(rank).collect())
}

/// Returns a job as a row of the table `jobs`.
fn row(job: &Job, at: u64) -> String {
    let array = |texts: &[String]| {
        let texts: Vec<_> = texts.iter().map(|text| literal(text)).collect();
        format!("[{}]", texts.join(","))
    };
    let end = job.end.map_or("\\N".into(), seconds);
    let (id, user, name, state) = (field(&job.id), field(&job.user), field(&job.name), field(&job.state));
    let (nodes, ranks, start) = (array(&job.nodes), job.ranks_count, seconds(job.start));
    let (seen, project, source) = (seconds(at), field(&job.project), job.source);
    format!("{id}\t{source}\t{user}\t{name}\t{nodes}\t{ranks}\t{state}\t{start}\t{end}\t{seen}\t{project}\n")
}

/// Returns the counters of a job's ranks as rows of the table `job_samples`. A rank that has no process, or
/// has ended, gets no row.
fn samples(job: &Job, at: u64) -> String {
    let mut lines = String::new();
    for rank in job.ranks.iter().filter(|rank| rank.pid != 0 && rank.state != ENDED) {
        let counters: Vec<_> =
            rank.counters.iter().map(|(name, value)| format!("{}:{value}", literal(name))).collect();
        let counters = counters.join(",");
        let (id, host) = (field(&key(job.source, &job.id)), field(&rank.host));
        writeln!(lines, "{}\t{id}\t{}\t{host}\t{{{counters}}}\t{}", seconds(at), rank.rank, rank.pid)
            .expect("a String takes all");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_gone_has_ended_and_is_shown_for_a_while() {
        let job = |source, id: &str, end| Job { id: id.into(), source, end, ..Job::default() };
        let known = vec![job("slurm", "1", None), job("mpirun", "2", None), job("mpirun", "3", None)];
        let (jobs, changed) = joined(known, "mpirun", vec![job("mpirun", "3", None)], 1000);
        let ids = |jobs: &[Job]| jobs.iter().map(|job| job.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&jobs), ["1", "2", "3"]);
        assert_eq!((jobs[0].end, jobs[1].end, jobs[2].end), (None, Some(1000), None));
        assert_eq!((ids(&changed), changed[0].state.as_str()), (vec!["2".into()], "ENDED"));
        let (jobs, changed) = joined(jobs, "mpirun", Vec::new(), 1000 + SHOWN_AFTER_END_MS);
        assert_eq!((ids(&jobs), ids(&changed)), (vec!["1".into(), "3".into()], vec!["3".into()]));
        let ours = |user: &str, slurm: &str| Job {
            user: user.into(),
            inside: Some(format!("slurm/{slurm}")),
            ranks: vec![JobRank::default()],
            ..job("watch", "8", None)
        };
        let mut found = vec![ours("ann", "1"), ours("ann", "2"), ours("bob", "1")];
        found.push(Job { nodes: vec!["n2".into()], ..ours("ann", "1") });
        let mut slurm = [Job { user: "ann".into(), nodes: vec!["n1".into()], ..job("slurm", "1", None) }];
        adopt(&mut found, &mut slurm);
        assert_eq!((found.len(), slurm[0].ranks.len()), (3, 1), "only into his own job, where it runs");
        let over = Job { user: "ann".into(), ..job("slurm", "1", Some(5)) };
        let is_hidden = |user| is_of_ended(&ours(user, "1"), &[over.clone(), slurm[0].clone()]);
        assert!(is_hidden("ann") && !is_hidden("bob") && !is_of_ended(&ours("ann", "1"), &slurm));
        let many = (0..ENDED_MAX + 2).map(|at| job("mpirun", &at.to_string(), Some(at as u64))).collect();
        let (jobs, _) = joined(many, "mpirun", Vec::new(), 2000);
        assert_eq!((jobs.len(), jobs[0].id.as_str()), (ENDED_MAX, "2"), "the last to end are kept");
    }

    #[test]
    fn a_job_that_has_not_changed_is_not_written() {
        let job = |id: &str, state: &str| Job {
            id: id.into(),
            source: "slurm",
            state: state.into(),
            ranks: vec![JobRank { pid: 7, ..JobRank::default() }],
            ..Job::default()
        };
        let all = |state: &str| vec![job("1", "PENDING"), job("2", state)];
        let day = 86_400_000;
        let (jobs, changed) = joined(Vec::new(), "slurm", all("PENDING"), day);
        assert_eq!(changed.len(), 2, "they are new");
        let (jobs, changed) = joined(jobs, "slurm", all("PENDING"), day + 5);
        assert_eq!((changed.len(), samples(&jobs[0], 5).lines().count()), (0, 1));
        let (jobs, changed) = joined(jobs, "slurm", all("RUNNING"), day + 10);
        assert_eq!(changed.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["2"]);
        let (_, changed) = joined(jobs, "slurm", all("RUNNING"), 2 * day);
        assert_eq!(changed.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["1"], "once a day");
    }

    #[test]
    fn a_row_is_a_line_whatever_a_job_is_called() {
        let name = "a\\b\tc\nd'e\"f";
        let job = Job { name: name.into(), nodes: vec![name.into()], ..Job::default() };
        let row = row(&job, 5);
        assert_eq!((row.lines().count(), row.matches('\t').count()), (1, 10), "{row}");
        assert!(row.contains(r#"a\\b\tc\nd'e"f"#) && row.contains(r#"['a\\b\tc\nd\'e"f']"#), "{row}");
    }

    #[test]
    fn a_rank_is_one_before_and_after_it_has_a_process() {
        let job = |pids: &[u32]| Job {
            source: "mpirun",
            ranks: pids.iter().map(|pid| JobRank { pid: *pid, ..JobRank::default() }).collect(),
            ..Job::default()
        };
        let pids = |known: Job, reported: Job| {
            let (jobs, _) = joined(vec![known], "mpirun", vec![reported], 5);
            jobs[0].ranks.iter().map(|rank| rank.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(job(&[0]), job(&[7])), [7]);
        assert_eq!(pids(job(&[7]), job(&[8])), [8, 7], "another process of this number");
        assert_eq!(samples(&job(&[0, 7]), 5).lines().count(), 1);
    }

    #[test]
    fn a_job_of_several_hosts_is_one_and_keeps_ranks_that_ended() {
        let rank = |rank, host: &str| JobRank { rank, host: host.into(), pid: 7, ..JobRank::default() };
        let part = |id: &str, user: &str, host: &str, number| Job {
            id: id.into(),
            source: "watch",
            user: user.into(),
            nodes: vec![host.into()],
            ranks: vec![rank(number, host)],
            ..Job::default()
        };
        let host = |jobs| {
            let part = crate::agent::Figures::of_jobs(jobs);
            Host { report: crate::agent::Report { part, ..Default::default() }, ..Host::default() }
        };
        let mut hosts = BTreeMap::from([
            ("n1".to_string(), host(vec![part("7", "ann", "n1", 1)])),
            (
                "n2".into(),
                Host { gone: vec![part("7", "ann", "n2", 0)], ..host(vec![part("7", "bob", "n2", 3)]) },
            ),
        ]);
        let whole = reported(&mut hosts);
        let hosts_of = |job: &Job| job.ranks.iter().map(|rank| rank.host.clone()).collect::<Vec<_>>();
        assert_eq!((whole.len(), hosts_of(&whole[0])), (1, vec!["n2".into(), "n1".into()]));
        let later = reported(&mut hosts);
        assert_eq!(hosts_of(&later[0]), ["n1"], "what is gone is told once");
        let (jobs, _) = joined(whole, "watch", later, 5);
        assert_eq!(
            (hosts_of(&jobs[0]), jobs[0].ranks[0].state.as_str()),
            (vec!["n2".into(), "n1".into()], "Ended")
        );
    }
}
