// SPDX-License-Identifier: BSD-3-Clause
//! Hosts by their last reports (`agent/`), and how fast their counters grew between the last two reports.
//!
//! A host that has sent no report for three of its intervals is *unreachable*, which is a state of its own.
//! Its jobs stay as they were. After an hour the host is forgotten.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::agent::{Report, host_key, signature};
use crate::job::Job;
use crate::secret;
use crate::store::{Writer, field, literal};
use crate::time::seconds;

const HOSTS_MAX: usize = 50_000;
/// The largest difference, in milliseconds, between the time in a report and the collector's time. If the
/// difference is larger, a clock is wrong, or somebody sends an old report again.
const CLOCKS_APART_MS: u64 = 600_000;
const FORGOTTEN_AFTER_MS: u64 = 3_600_000;
/// The most bytes that one report of a host may have.
pub const REPORT_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug, Default)]
pub struct Host {
    /// When the host's last report was received, by the collector's clock, in milliseconds since 1970.
    pub seen: u64,
    pub report: Report,
    /// How much each counter grew in a second, between the last two reports.
    pub rates: BTreeMap<String, f64>,
    /// Jobs that the last report no longer has. They stay here until `jobs::Collector` has noted their end.
    pub gone: Vec<Job>,
}

/// What a list of hosts shows of each host.
#[derive(Debug, Serialize, PartialEq)]
pub struct Summary {
    pub name: String,
    pub state: &'static str,
    pub seen: u64,
    /// The share of the processors' time that was used, from 0 to 1. None if it is unknown.
    pub cpu: Option<f64>,
    /// The share of the memory that is not available to programs, from 0 to 1. None if it is unknown.
    pub memory: Option<f64>,
    /// The bytes that all links of the host sent in a second.
    pub sent: f64,
    /// The bytes that all links of the host received in a second.
    pub received: f64,
    /// The power of the host's processor packages and GPUs in watts, as far as it is reported.
    pub watts: f64,
    /// The bytes that the host read from Lustre in a second.
    pub read: f64,
    /// The bytes that the host wrote to Lustre in a second.
    pub written: f64,
    pub errors: BTreeMap<String, String>,
}

impl Host {
    pub fn is_unreachable(&self, at: u64) -> bool {
        self.seen + 3000 * self.report.interval_s + 5000 < at
    }

    /// Returns the share of the processors' time that was used, from 0 to 1, or None if it is unknown.
    pub fn cpu(&self) -> Option<f64> {
        Some(
            (self.rates.get("cpu.busy_ms")? / 1000.0 / self.report.part.gauges.get("cpu.count")?)
                .clamp(0.0, 1.0),
        )
    }

    pub fn memory(&self) -> Option<f64> {
        let gauges = &self.report.part.gauges;
        Some(1.0 - gauges.get("memory.free_bytes")? / gauges.get("memory.all_bytes")?)
    }

    pub fn summary(&self, at: u64) -> Summary {
        let facts = &self.report.part.facts;
        let sum = |is_meant: &dyn Fn(&str, &str) -> bool| {
            let each = self.rates.iter().filter(|(name, _)| {
                name.rsplit_once('.').is_some_and(|(group, quantity)| is_meant(group, quantity))
            });
            // The sum of no numbers is -0.
            each.map(|(_, rate)| rate).sum::<f64>() + 0.0
        };
        let is_link = |group: &str| facts.contains_key(&format!("{group}.kind"));
        let of_client = |group: &str| group.starts_with("lustre.") && group.matches(['-', '.']).count() == 1;
        let gpus = self
            .report
            .part
            .gauges
            .iter()
            .filter(|(name, _)| name.starts_with("gpu") && name.ends_with(".watts"));
        // A part of a package is counted with the package.
        let packages = sum(&|group, quantity| {
            group == "energy" && quantity.starts_with("package-") && !quantity.contains('/')
        });
        Summary {
            name: self.report.host.clone(),
            state: if self.is_unreachable(at) { "unreachable" } else { "up" },
            seen: self.seen,
            cpu: self.cpu(),
            memory: self.memory(),
            sent: sum(&|group, quantity| quantity == "sent_bytes" && is_link(group)),
            received: sum(&|group, quantity| quantity == "received_bytes" && is_link(group)),
            watts: packages / 1e6 + gpus.map(|(_, watts)| watts).sum::<f64>(),
            read: sum(&|group, quantity| quantity == "read_bytes" && of_client(group)),
            written: sum(&|group, quantity| quantity == "write_bytes" && of_client(group)),
            errors: self.report.errors.clone(),
        }
    }

    /// Returns the host's numbers as one row of the table `host_samples`: gauges as they are, and for
    /// counters the growth in a second.
    fn row(&self) -> String {
        let numbers = self.report.part.gauges.iter().chain(&self.rates);
        let each: Vec<_> = numbers.map(|(name, value)| format!("{}:{value}", literal(name))).collect();
        let (at, host) = (seconds(self.seen), field(&self.report.host));
        format!("{at}\t{host}\t{{{}}}\n", each.join(","))
    }
}

/// Checks the signature (`given`) of a report whose sender claims to be `host`, and returns the report. An
/// error says why the report is refused.
pub fn checked(secret: &str, host: &str, given: &str, body: &[u8]) -> Result<Report, String> {
    if !secret::same(&signature(&host_key(secret, host), body), given) {
        return Err(format!("the signature is not that of {host:?}"));
    }
    Report::read(host, body)
}

/// Checks that two times, in milliseconds, are at most `CLOCKS_APART_MS` apart.
pub fn are_near(one: u64, other: u64) -> Result<(), String> {
    if one.abs_diff(other) <= CLOCKS_APART_MS {
        return Ok(());
    }
    Err("its time is more than 10 minutes from the collector's: set the clocks".into())
}

/// Takes a report that was received now (`at`) into `hosts`, and gives its numbers to `writer` for the store.
/// An error says why the report is refused.
pub fn take(
    hosts: &mut BTreeMap<String, Host>,
    writer: &Writer,
    report: Report,
    at: u64,
) -> Result<(), String> {
    are_near(report.at, at)?;
    hosts.retain(|_, host| host.seen + FORGOTTEN_AFTER_MS > at);
    if !hosts.contains_key(&report.host) && hosts.len() >= HOSTS_MAX {
        return Err(format!("there are {HOSTS_MAX} hosts already"));
    }
    let mut before = hosts.remove(&report.host).unwrap_or_default();
    if before.report.at > at && report.at <= before.report.at {
        // The host's clock was ahead and has been set right, so the time since the last report is unknown.
        before.report.part.counters.clear();
        before.report.at = report.at.saturating_sub(1);
    }
    if before.report.at >= report.at {
        let why = "a later report came before it".into();
        hosts.insert(report.host.clone(), before);
        return Err(why);
    }
    let host = followed(before, report, at);
    writer.add("host_samples", host.row());
    hosts.insert(host.report.host.clone(), host);
    Ok(())
}

/// Returns a host's new state after `report`, which was received at `at`. `before` is the host's state until
/// now.
fn followed(before: Host, mut report: Report, at: u64) -> Host {
    let s = (report.at - before.report.at) as f64 / 1000.0;
    let old = &before.report.part;
    let rate = |(name, value): (&String, &u64)| {
        // A counter that fell has started again, and its growth before that is unknown.
        let more = value.checked_sub(*old.counters.get(name)?)?;
        Some((name.clone(), more as f64 / s))
    };
    let rates = report.part.counters.iter().filter_map(rate).collect();
    let is_reported = |report: &Report, job: &Job| {
        report.part.jobs.iter().any(|new| (new.source, &new.id) == (job.source, &job.id))
    };
    let mut gone = before.gone;
    // A job that is reported again was not over.
    gone.retain(|job| !is_reported(&report, job));
    for job in before.report.part.jobs {
        if is_reported(&report, &job) {
            continue;
        }
        // A source that does not answer does not prove that its jobs are over.
        if report.errors.contains_key(job.source) { report.part.jobs.push(job) } else { gone.push(job) }
    }
    Host { seen: at, report, rates, gone }
}

/// Returns the collector's secret from the data folder. The key of each host is made from this secret.
pub fn secret_of(data: &Path) -> Result<String, String> {
    secret::kept(&data.join("agent-secret"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Figures;

    fn report(at: u64, counters: &[(&str, u64)], jobs: &[&str]) -> Report {
        let job = |id: &&str| Job { id: id.to_string(), source: "watch", ..Job::default() };
        let part = Figures {
            counters: counters.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
            gauges: BTreeMap::from([
                ("cpu.count".into(), 4.0),
                ("memory.all_bytes".into(), 8.0),
                ("memory.free_bytes".into(), 2.0),
            ]),
            facts: BTreeMap::from([("eth0.kind".into(), "Ethernet".into())]),
            jobs: jobs.iter().map(job).collect(),
            ..Figures::default()
        };
        Report { host: "n1".into(), at, interval_s: 10, part, ..Report::default() }
    }

    #[test]
    fn counters_become_rates_and_a_host_unreachable() {
        let (mut hosts, writer) = (BTreeMap::new(), Writer::idle());
        let start = 1_000_000;
        let first = [
            ("eth0.sent_bytes", 100),
            ("cpu.busy_ms", 0),
            ("energy.package-0_uj", 0),
            ("lustre.s.read_bytes", 5),
        ];
        take(&mut hosts, &writer, report(start, &first, &["a"]), start + 7).unwrap();
        assert!(hosts["n1"].rates.is_empty());
        let next = [
            ("eth0.sent_bytes", 2100),
            ("cpu.busy_ms", 20_000),
            ("energy.package-0_uj", 900_000_000),
            ("energy.package-0/dram_uj", 9),
            ("lustre.s.read_bytes", 4),
        ];
        take(&mut hosts, &writer, report(start + 10_000, &next, &["b"]), start + 10_000).unwrap();
        let host = &hosts["n1"];
        let summary = host.summary(start + 10_000);
        assert_eq!(
            (summary.sent, summary.cpu, summary.memory, summary.watts),
            (200.0, Some(0.5), Some(0.75), 90.0)
        );
        assert!(!host.rates.contains_key("lustre.s.read_bytes"), "it fell");
        assert_eq!(host.gone.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!((summary.state, host.summary(start + 45_001).state), ("up", "unreachable"));
        let row = host.row();
        assert!(
            row.starts_with("0000001010.000\tn1\t{'cpu.count':4,") && row.contains("'eth0.sent_bytes':200"),
            "{row}"
        );
        take(&mut hosts, &writer, report(start + 20_000, &next, &["a", "b"]), start + 20_000).unwrap();
        assert!(hosts["n1"].gone.is_empty(), "a job that is back is not over");
    }

    #[test]
    fn what_is_old_repeated_or_forged_is_refused() {
        let (mut hosts, writer, at) = (BTreeMap::new(), Writer::idle(), 10_000_000);
        take(&mut hosts, &writer, report(at, &[], &["a"]), at).unwrap();
        assert!(take(&mut hosts, &writer, report(at, &[], &[]), at + 1).unwrap_err().contains("later"));
        assert!(
            take(&mut hosts, &writer, report(at + 700_000, &[], &[]), at + 1).unwrap_err().contains("clocks")
        );
        assert_eq!(hosts["n1"].report.part.jobs.len(), 1);
        // A clock that was 5 minutes ahead is set right.
        let mut ahead = BTreeMap::new();
        take(&mut ahead, &writer, report(at + 300_000, &[("eth0.sent_bytes", 5)], &[]), at).unwrap();
        take(&mut ahead, &writer, report(at + 9, &[("eth0.sent_bytes", 7)], &[]), at + 10).unwrap();
        assert!(
            ahead["n1"].rates.is_empty()
                && take(&mut ahead, &writer, report(at + 9, &[], &[]), at + 10).is_err()
        );
        // The source does not answer, so the job stays.
        let mut silent = report(at + 1, &[], &[]);
        silent.errors.insert("watch".into(), "no answer".into());
        take(&mut hosts, &writer, silent, at + 1).unwrap();
        assert_eq!((hosts["n1"].report.part.jobs.len(), hosts["n1"].gone.len()), (1, 0));
        let body = serde_json::to_vec(&report(at, &[], &[])).unwrap();
        let key = host_key("secret", "n1");
        assert!(checked("secret", "n1", &signature(&key, &body), &body).is_ok());
        assert!(checked("secret", "n1", &signature(&host_key("secret", "n2"), &body), &body).is_err());
        assert!(
            checked("secret", "n2", &signature(&host_key("secret", "n2"), &body), &body)
                .unwrap_err()
                .contains("\"n1\"")
        );
        assert!(checked("secret", "n1", "", &body).is_err());
        take(
            &mut hosts,
            &writer,
            Report { host: "n2".into(), ..report(at, &[], &[]) },
            at + FORGOTTEN_AFTER_MS + 2,
        )
        .unwrap_err();
        let later = at + FORGOTTEN_AFTER_MS + 2;
        take(&mut hosts, &writer, Report { host: "n2".into(), ..report(later, &[], &[]) }, later).unwrap();
        assert_eq!(hosts.keys().collect::<Vec<_>>(), ["n2"]);
    }
}
