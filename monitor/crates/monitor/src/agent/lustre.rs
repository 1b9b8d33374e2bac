// SPDX-License-Identifier: BSD-3-Clause
//! Lustre's statistics by `lctl get_param`, which finds them in every version of Lustre. A client counts what
//! its programs did (`llite`) and what it requested from servers (`osc`, `mdc`). A server counts what it did
//! (`obdfilter`, `mdt`), in all and for each job (`job_stats`).
//!
//! A line of statistics is `name count samples [unit] min max sum sumsq`. The part from `min` on is missing
//! if there is only a count (Lustre's manual, "Lustre Parameters"; wiki.lustre.org, "Lustre Statistics
//! Guide").

use std::collections::BTreeMap;
use std::process::Command;

use super::report::Figures;
use crate::command::run;

const PARAMETERS: [&str; 7] = [
    "llite.*.stats",
    "osc.*.stats",
    "mdc.*.stats",
    "obdfilter.*.stats",
    "mdt.*.md_stats",
    "obdfilter.*.job_stats",
    "mdt.*.job_stats",
];
/// The most jobs whose counters (`job_stats`) one file server reports.
const JOBS_MAX: usize = 2000;

/// Reads Lustre's statistics. A host without `lctl` has no Lustre, so its figures are empty. `lctl` fails on
/// a host that is only a client or only a server, because some of `PARAMETERS` are missing there, but it
/// prints the others.
pub fn read() -> Result<Figures, String> {
    match run(Command::new("lctl").arg("get_param").args(PARAMETERS), b"") {
        Some(done) => Ok(of_text(&String::from_utf8_lossy(&done?.1))),
        None => Ok(Figures::default()),
    }
}

fn of_text(text: &str) -> Figures {
    let mut part = Figures::default();
    let (mut group, mut job) = (None, None);
    for line in text.lines() {
        if let Some((name, "")) = line.split_once('=') {
            (group, job) = (Group::of(name), None);
            continue;
        }
        let Some(group) = &group else { continue };
        if !group.is_of_jobs {
            statistic(&mut part.counters, &group.prefix, line);
        } else if let Some(id) = line.trim().strip_prefix("- job_id:") {
            job = Some(id.trim().trim_matches('"').to_string()).filter(|id| !id.is_empty());
        } else if let Some(job) = &job
            && (part.storage.len() < JOBS_MAX || part.storage.contains_key(job))
            && let Some((name, values)) = line.trim().split_once(':')
        {
            of_job(part.storage.entry(job.clone()).or_default(), name, values);
        }
    }
    part.storage.retain(|_, counters| !counters.is_empty());
    part
}

/// What the name of a Lustre parameter says about the statistics in it: the prefix of the counters' names,
/// and whether each counter belongs to one job.
struct Group {
    prefix: String,
    is_of_jobs: bool,
}

impl Group {
    /// Returns what a parameter's name says, or None if `PARAMETERS` does not ask for the parameter.
    /// Parameters have names such as `llite.scratch-ffff8d0a9b3f8000.stats` or
    /// `osc.scratch-OST0000-osc-ffff8d0a9b3f8000.stats`. A client's counters are summed over its servers.
    fn of(parameter: &str) -> Option<Group> {
        let (kind, rest) = parameter.split_once('.')?;
        let (target, which) = rest.rsplit_once('.')?;
        let system = target.split('-').next()?;
        let prefix = match kind {
            "llite" => format!("lustre.{system}."),
            "osc" | "mdc" => format!("lustre.{system}.{kind}_"),
            "obdfilter" | "mdt" => format!("lustre.{target}."),
            _ => return None,
        };
        Some(Group { prefix, is_of_jobs: which == "job_stats" })
    }
}

fn statistic(counters: &mut BTreeMap<String, u64>, prefix: &str, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, count, "samples", unit, values @ ..] = &words[..] else { return };
    let Ok(count) = count.parse::<u64>() else { return };
    let mut add = |name: String, value: u64| {
        let sum = counters.entry(format!("{prefix}{name}")).or_default();
        *sum = sum.saturating_add(value);
    };
    let sum = values.get(2).and_then(|sum| sum.parse().ok());
    match (*unit, sum) {
        ("[bytes]", Some(sum)) => {
            add(name.to_string(), sum);
            add(format!("{}_calls", name.trim_end_matches("_bytes")), count);
        }
        ("[usec]" | "[usecs]", Some(sum)) => {
            add(format!("{name}_us"), sum);
            add(format!("{name}_calls"), count);
        }
        _ => add(format!("{name}_calls"), count),
    }
}

/// Adds one line of `job_stats`, Lustre's statistics for a job, to the job's counters. The line has a name
/// such as `write_bytes`, and values such as
/// `{ samples: 4, unit: bytes, min: 4096, max: 1048576, sum: 2097152 }`.
fn of_job(counters: &mut BTreeMap<String, u64>, name: &str, values: &str) {
    let value = |key: &str| {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_string())
        };
        values.trim().trim_matches(['{', '}']).split(',').find_map(pair)
    };
    let number = |key| value(key).and_then(|value| value.parse::<u64>().ok());
    let Some(samples) = number("samples").filter(|samples| *samples > 0) else { return };
    let mut add = |name: String, value: u64| {
        let sum = counters.entry(name).or_default();
        *sum = sum.saturating_add(value);
    };
    let is_of_bytes = value("unit").as_deref() == Some("bytes");
    if let (true, Some(sum)) = (is_of_bytes, number("sum")) {
        add(name.into(), sum);
    }
    add(format!("{}_calls", name.trim_end_matches("_bytes")), samples);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "llite.scratch-ffff8d0a9b3f8000.stats=
snapshot_time             1500481834.148420 secs.usecs
read_bytes                10 samples [bytes] 4096 1048576 10489856
write_bytes               3 samples [bytes] 1 1048576 2097153 1099511627776
open                      22 samples [regs]
close                     22 samples [usec] 1 20 100 1000
osc.scratch-OST0000-osc-ffff8d0a9b3f8000.stats=
req_waittime              5 samples [usec] 100 300 1000 250000
osc.scratch-OST0001-osc-ffff8d0a9b3f8000.stats=
req_waittime              1 samples [usec] 7 7 7 49
version=2.15
obdfilter.scratch-OST0000.job_stats=
job_stats:
- job_id:          1234
  snapshot_time:   1500481834
  read_bytes:      { samples:           4, unit: bytes, min:    4096, max: 1048576, sum:         2097152 }
  write_bytes:     { samples:           0, unit: bytes, min:       0, max:       0, sum:               0 }
- job_id:          \"cp.0\"
  write:           { samples:           1, unit: bytes, min: 7, max: 7, sum: 7, sumsq: 49 }
obdfilter.scratch-OST0001.job_stats=
job_stats:
- job_id:          1234
  read_bytes:      { samples:           1, unit: bytes, min: 5, max: 5, sum: 5 }
mdt.scratch-MDT0000.job_stats=
job_stats:
- job_id:          1234
  open:            { samples:          12, unit:  reqs }
";

    #[test]
    fn clients_servers_and_jobs_are_read() {
        let part = of_text(TEXT);
        let expected = [
            ("lustre.scratch.close_calls", 22),
            ("lustre.scratch.close_us", 100),
            ("lustre.scratch.open_calls", 22),
            ("lustre.scratch.osc_req_waittime_calls", 6),
            ("lustre.scratch.osc_req_waittime_us", 1007),
            ("lustre.scratch.read_bytes", 10489856),
            ("lustre.scratch.read_calls", 10),
            ("lustre.scratch.write_bytes", 2097153),
            ("lustre.scratch.write_calls", 3),
        ];
        let counters: Vec<_> = part.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(counters, expected);
        let job = |id: &str| {
            part.storage[id].iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>()
        };
        assert_eq!(job("1234"), [("open_calls", 12), ("read_bytes", 2097157), ("read_calls", 5)]);
        assert_eq!(job("cp.0"), [("write", 7), ("write_calls", 1)]);
        assert_eq!(part.storage.len(), 2);
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "((llite|obdfilter)\\.[a-z.-]{0,9}(stats|job_stats)=\n|- job_id: [a-z]?\n|[a-z:{}, 0-9\\[\\]]{0,30}\n){0,9}") {
            let _ = of_text(&text);
        }
    }
}
