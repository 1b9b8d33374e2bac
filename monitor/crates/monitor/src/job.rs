// SPDX-License-Identifier: BSD-3-Clause
//! A job and its ranks, by the last description from the source (`mpirun`, Slurm, ...) that reports the job.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// The name of a source that reports jobs: one of `SOURCES`.
pub type JobSource = &'static str;
/// The sources that report jobs: two of processes on hosts, and three batch systems.
pub const SOURCES: [JobSource; 5] = ["mpirun", "watch", "slurm", "pbs", "kubernetes"];

fn source<'de, D: Deserializer<'de>>(from: D) -> Result<JobSource, D::Error> {
    let name = String::deserialize(from)?;
    let known = SOURCES.into_iter().find(|source| *source == name);
    known.ok_or_else(|| serde::de::Error::custom(format!("{name:?} is no source of jobs")))
}

/// A job, by the last description from the source that reports it. Times are in milliseconds since 1970.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Job {
    pub id: String,
    #[serde(deserialize_with = "source")]
    pub source: JobSource,
    pub user: String,
    /// The project to which the job's time is charged; empty if it is unknown.
    pub project: String,
    pub name: String,
    pub nodes: Vec<String>,
    pub ranks: Vec<JobRank>,
    pub ranks_count: u32,
    pub state: String,
    pub start: u64,
    /// When the job ended, or None while it runs.
    pub end: Option<u64>,
    /// The batch system's job inside which this job's processes run, such as `slurm/7`. None if they run
    /// outside batch jobs.
    pub inside: Option<String>,
    /// When this monitor last wrote the job into the store, in milliseconds since 1970.
    #[serde(skip)]
    pub stored: u64,
}

/// A rank of a job that `mpirun` has started or `liboutboard_watch.so` watches, with its counters.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct JobRank {
    pub rank: u32,
    pub host: String,
    pub pid: u32,
    pub state: String,
    pub waiting_for: String,
    pub counters: BTreeMap<String, u64>,
}

/// Collectives that no rank leaves before all have entered. For each, the beginning of its counters' names,
/// and the name of the MPI call.
const SYMMETRIC: [(&str, &str); 5] = [
    ("barrier", "MPI_Barrier"),
    ("allreduce", "MPI_Allreduce"),
    ("allgather", "MPI_Allgather"),
    ("alltoall", "MPI_Alltoall"),
    ("reduce_scatter", "MPI_Reduce_scatter"),
];
/// The fewest calls of a collective that are needed to say which rank arrives last in it.
const CALLS_MIN: u64 = 20;
/// The least time, in nanoseconds, that the other ranks must have waited in a collective on average before
/// one rank is called the last to arrive.
const WAIT_MIN_NS: u64 = 500_000_000;

impl JobRank {
    fn value(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

impl Job {
    /// Returns all texts in the job, to be checked for length, except the names of counters.
    pub fn words(&self) -> impl Iterator<Item = &String> {
        let ranks = self.ranks.iter().flat_map(|rank| [&rank.host, &rank.state, &rank.waiting_for]);
        let own = [&self.id, &self.user, &self.project, &self.name, &self.state];
        own.into_iter().chain(&self.nodes).chain(&self.inside).chain(ranks)
    }

    /// Returns a sentence for each striking fact in the job's counters. `at` is now, in milliseconds since
    /// 1970.
    pub fn verdicts(&self, at: u64) -> Vec<String> {
        let mut verdicts: Vec<String> =
            SYMMETRIC.iter().filter_map(|(name, call)| self.late(name, call)).collect();
        verdicts.extend(self.waits(at));
        verdicts.extend(self.unexpected());
        verdicts
    }

    /// Returns a sentence that names the rank that arrives last in a collective, so that the others wait for
    /// it. Returns None if no rank is clearly the last. The names of the collective's counters begin with
    /// `name`; `call` is the collective's MPI name.
    fn late(&self, name: &str, call: &str) -> Option<String> {
        let (calls, waits) = (format!("{name}_calls"), format!("{name}_waits"));
        let time = format!("{name}_wait_ns");
        let last = self.ranks.iter().min_by_key(|rank| rank.value(&time))?;
        let others = self.ranks.len() as u64 - 1;
        let sum: u64 = self.ranks.iter().map(|rank| rank.value(&time)).fold(0, u64::saturating_add);
        let mean = (sum - last.value(&time)).checked_div(others)?;
        let count = last.value(&calls);
        // A rank that waits at most a third as long as the others is the one they wait for; noise differs
        // less.
        if count < CALLS_MIN || mean < WAIT_MIN_NS || mean < last.value(&time).saturating_mul(3) {
            return None;
        }
        let share = 100 * count.saturating_sub(last.value(&waits)) / count;
        Some(format!(
            "rank {} on {} arrives last, or nearly, in {share} % of {count} {call}: the others have waited {:.1} s there \
             on average, it {:.1} s",
            last.rank,
            last.host,
            mean as f64 / 1e9,
            last.value(&time) as f64 / 1e9
        ))
    }

    /// Returns a sentence about the share of its time for which the job waits in MPI, or None if the share is
    /// small.
    fn waits(&self, at: u64) -> Option<String> {
        let whole = self.end.unwrap_or(at).saturating_sub(self.start) as f64 / 1e3;
        let sum = self.ranks.iter().map(|rank| rank.value("wait_ns") as f64 / 1e9).sum::<f64>();
        let share = sum / (whole * self.ranks.len() as f64);
        let least = self.ranks.iter().min_by_key(|rank| rank.value("wait_ns"))?;
        (whole > 10.0 && share.is_finite() && share >= 0.3).then(|| {
            format!(
                "its ranks have spent {:.0} % of their time waiting in MPI, rank {} on {} the least: {:.1} s",
                (100.0 * share).min(100.0),
                least.rank,
                least.host,
                least.value("wait_ns") as f64 / 1e9
            )
        })
    }

    /// Returns a sentence about the messages that arrive before their receives are posted, which costs a
    /// copy. Returns None if there are few such messages.
    fn unexpected(&self) -> Option<String> {
        let sum = |names: &[&str]| -> u64 {
            let each = self.ranks.iter().flat_map(|rank| names.iter().map(|name| rank.value(name)));
            each.fold(0, u64::saturating_add)
        };
        let received = sum(&["eager_messages_received", "rendezvous_messages_received"]);
        let share = (100 * u128::from(sum(&["unexpected_messages"]))).checked_div(received.into())?;
        (received >= 1000 && share >= 50).then(|| {
            format!("{share} % of {received} messages came before their receive was posted; earlier receives save a copy")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(ranks: &[&[(&str, u64)]]) -> Job {
        let rank = |(rank, counters): (usize, &&[(&str, u64)])| JobRank {
            rank: rank as u32,
            host: format!("n{rank:02}"),
            counters: counters.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
            ..JobRank::default()
        };
        Job { ranks: ranks.iter().enumerate().map(rank).collect(), end: Some(0), ..Job::default() }
    }

    #[test]
    fn who_arrives_last_is_named() {
        let of =
            |waits, ns| [("allreduce_calls", 200), ("allreduce_waits", waits), ("allreduce_wait_ns", ns)];
        let verdicts =
            job(&[&of(190, 4_000_000_000), &of(58, 100_000_000), &of(199, 2_000_000_000)]).verdicts(0);
        let expected = "rank 1 on n01 arrives last, or nearly, in 71 % of 200 MPI_Allreduce: the others have waited \
                        3.0 s there on average, it 0.1 s";
        assert_eq!(verdicts, [expected]);
        assert!(job(&[&of(190, 4_000_000_000), &of(180, 3_000_000_000)]).verdicts(0).is_empty(), "alike");
        assert!(job(&[&of(190, 400_000_000), &of(1, 0)]).verdicts(0).is_empty(), "too little");
        assert!(job(&[&of(190, u64::MAX)]).verdicts(0).is_empty() && job(&[]).verdicts(0).is_empty());
    }

    #[test]
    fn late_receives_are_named() {
        let of = |unexpected| [("eager_messages_received", 1000), ("unexpected_messages", unexpected)];
        assert!(job(&[&of(700)]).verdicts(0)[0].starts_with("70 % of 1000 messages"));
        assert!(job(&[&of(400)]).verdicts(0).is_empty());
    }
}
