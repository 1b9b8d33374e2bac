// SPDX-License-Identifier: BSD-3-Clause
//! The report that a host sends to the collector, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::job::Job;

/// The most names that a report may have: names of figures and facts, and ids of jobs in `storage`.
const NAMES_MAX: usize = 20_000;
/// The most characters of a name or of another text in a report.
const CHARS_MAX: usize = 256;
const JOBS_MAX: usize = 1000;
const RANKS_MAX: usize = 10_000;
const INTERVAL_S_MAX: u64 = 3600;

/// What one or more sources of a host (such as links or energy) have found. Names of figures have the form
/// `group.quantity`, such as `eth0.sent_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Values at the time of the report, such as the free memory, by name.
    pub gauges: BTreeMap<String, f64>,
    /// Values that only grow, such as the bytes that a link has sent, by name.
    pub counters: BTreeMap<String, u64>,
    /// Facts that are texts, such as the state of a link, by name.
    pub facts: BTreeMap<String, String>,
    pub jobs: Vec<Job>,
    /// For a host that is a server of a file system: the server's counters for each job, by the job's id.
    pub storage: BTreeMap<String, BTreeMap<String, u64>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    pub host: String,
    /// When the report was made: milliseconds since 1970, by the host's clock.
    pub at: u64,
    pub interval_s: u64,
    /// For each source of figures that could not be read, by name: the reason.
    pub errors: BTreeMap<String, String>,
    #[serde(flatten)]
    pub part: Figures,
}

impl Figures {
    pub fn of_jobs(jobs: Vec<Job>) -> Figures {
        Figures { jobs, ..Figures::default() }
    }

    pub fn add(&mut self, other: Figures) {
        self.gauges.extend(other.gauges);
        self.counters.extend(other.counters);
        self.facts.extend(other.facts);
        self.jobs.extend(other.jobs);
        self.storage.extend(other.storage);
    }

    pub fn gauge(&mut self, name: String, value: f64) {
        if value.is_finite() {
            self.gauges.insert(name, value);
        }
    }
}

impl Report {
    /// Reads a report in JSON. The sender is known to be `host`, so the report may name no other host. An
    /// error says why the report is refused.
    pub fn read(host: &str, body: &[u8]) -> Result<Report, String> {
        let mut report: Report =
            serde_json::from_slice(body).map_err(|error| format!("no report: {error}"))?;
        if report.host != host {
            return Err(format!("a report of {:?} from {host:?}", report.host));
        }
        let Figures { gauges, counters, facts, jobs, storage } = &mut report.part;
        let names = || gauges.keys().chain(counters.keys()).chain(facts.keys()).chain(storage.keys());
        let words =
            || names().chain(facts.values()).chain(report.errors.keys()).chain(report.errors.values());
        let is_odd = |text: &String| text.chars().count() > CHARS_MAX || text.contains(char::is_control);
        let of_storage = || storage.values().flat_map(BTreeMap::keys);
        if names().count() + of_storage().count() > NAMES_MAX
            || report.errors.len() > NAMES_MAX
            || words().chain(of_storage()).any(is_odd)
        {
            return Err(format!("more than {NAMES_MAX} names, or a text that is too long"));
        }
        if jobs.len() > JOBS_MAX || jobs.iter().map(|job| job.ranks.len()).sum::<usize>() > RANKS_MAX {
            return Err(format!("more than {JOBS_MAX} jobs, or {RANKS_MAX} ranks"));
        }
        for job in jobs {
            let counters = job.ranks.iter().flat_map(|rank| rank.counters.keys());
            if job.words().chain(counters).any(is_odd) {
                return Err("a job with a text that is too long".into());
            }
            if job.source != "mpirun" && job.source != "watch" {
                return Err("a job that a host cannot know".into());
            }
            job.nodes = vec![host.into()];
            job.end = None;
            job.start = job.start.min(report.at);
            for rank in &mut job.ranks {
                rank.host = host.into();
            }
        }
        report.interval_s = report.interval_s.clamp(1, INTERVAL_S_MAX);
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_host_speaks_of_itself_only() {
        let text = |host: &str, source: &str| {
            format!(
                r#"{{"host": "{host}", "at": 5, "interval_s": 10, "gauges": {{"cpu.count": 2}}, "later": 1, "jobs": [{{"id": "1",
                "source": "{source}", "user": "ann", "nodes": ["n9"], "start": 9, "ranks": [{{"rank": 0, "host": "n9",
                "counters": {{"send_calls": 3}}}}]}}]}}"#
            )
        };
        let report = Report::read("n1", text("n1", "watch").as_bytes()).unwrap();
        let job = &report.part.jobs[0];
        assert_eq!((job.nodes.as_slice(), job.ranks[0].host.as_str()), (&["n1".to_string()][..], "n1"));
        assert_eq!((job.start, report.part.gauges["cpu.count"]), (5, 2.0));
        assert!(Report::read("n1", text("n2", "watch").as_bytes()).unwrap_err().contains("\"n2\""));
        assert!(Report::read("n1", text("n1", "slurm").as_bytes()).is_err());
        let long = "x".repeat(CHARS_MAX + 1);
        for odd in
            [format!(r#"{{"host": "n1", "facts": {{"a": "{long}"}}}}"#), r#"{"host": 1}"#.into(), "[]".into()]
        {
            assert!(Report::read("n1", odd.as_bytes()).is_err(), "{odd}");
        }
        let back = serde_json::to_vec(&report).unwrap();
        assert_eq!(Report::read("n1", &back).unwrap(), report);
    }

    proptest! {
        #[test]
        fn no_body_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Report::read("n1", &bytes);
        }
    }
}
