// SPDX-License-Identifier: BSD-3-Clause
//! PBS's jobs, by `qstat -f -F json` (OpenPBS and PBS Professional). This file was tested on a recorded
//! output only, with no running PBS.

use std::collections::HashSet;
use std::process::Command;

use serde_json::Value;

use super::text::{JOBS_MAX, NODES_MAX, civil, words};
use crate::command::output_of;
use crate::job::Job;

/// Returns PBS's jobs, or none if there is no `qstat`. `qstat` prints times in the time zone of its
/// environment, which is set to UTC here.
pub fn jobs() -> Result<Vec<Job>, String> {
    match output_of(Command::new("qstat").args(["-f", "-F", "json"]).env("TZ", "UTC"), b"") {
        Some(text) => read(&text?),
        None => Ok(Vec::new()),
    }
}

fn read(text: &[u8]) -> Result<Vec<Job>, String> {
    let value: Value =
        serde_json::from_slice(text).map_err(|error| format!("qstat -F json cannot be read: {error}"))?;
    // The field is missing if there are no jobs.
    let Some(jobs) = value["Jobs"].as_object() else {
        return if value.is_object() { Ok(Vec::new()) } else { Err("qstat -F json is no record".into()) };
    };
    Ok(jobs.iter().take(JOBS_MAX).map(|(id, job)| described(id, job)).collect())
}

fn described(id: &str, job: &Value) -> Job {
    let state = match job["job_state"].as_str().unwrap_or_default() {
        "R" => "RUNNING",
        "Q" | "W" | "T" => "PENDING",
        "H" => "HELD",
        "S" | "U" => "SUSPENDED",
        "E" => "COMPLETING",
        "F" | "X" | "M" => "COMPLETED",
        other => other,
    };
    let owner = words(&job["Job_Owner"]);
    // New versions print a number, old ones a text.
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let list = &job["Resource_List"];
    let ranks = number(&list["mpiprocs"]).or_else(|| number(&list["ncpus"])).unwrap_or(0);
    Job {
        id: id.chars().filter(|char| !char.is_control()).take(256).collect(),
        source: "pbs",
        user: owner.split('@').next().unwrap_or_default().into(),
        project: words(&job["Account_Name"]),
        name: words(&job["Job_Name"]),
        nodes: nodes(&words(&job["exec_host"])),
        ranks_count: ranks.min(u32::MAX.into()) as u32,
        state: state.chars().take(32).collect(),
        start: began(&words(&job["stime"])).unwrap_or(0),
        ..Job::default()
    }
}

/// Returns the names of the nodes in a list such as `n01/0*8+n02/0*8`, each once, in order.
fn nodes(list: &str) -> Vec<String> {
    let mut known = HashSet::new();
    let names = list.split('+').take(NODES_MAX).filter_map(|part| part.split('/').next());
    names.filter(|name| !name.is_empty() && known.insert(*name)).map(String::from).collect()
}

/// Reads a time such as `Tue Nov 14 10:00:00 2023`. Returns milliseconds since 1970, or None for a text of
/// another form.
fn began(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [_, month, day, clock, year] = parts[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    civil(year.parse().ok()?, month, day.parse().ok()?, clock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_qstat_prints_is_read() {
        let text = r#"{"timestamp": 1700000000, "pbs_version": "22.05.11", "pbs_server": "head", "Jobs": {
            "123.head": {"Job_Name": "cfd", "Job_Owner": "ann@login1.site", "job_state": "R", "Account_Name": "aero",
                "exec_host": "n02/0*8+n02/1*8+n01/0*8+n02/2*8+", "stime": "Tue Nov 14 10:00:01 2023", "Resource_List": {"mpiprocs": 16, "ncpus": "24"}},
            "124[].head": {"Job_Name": "later", "Job_Owner": "bob@login1", "job_state": "Q", "Resource_List": {"ncpus": "4"}}}}"#;
        let jobs = read(text.as_bytes()).unwrap();
        let first = &jobs[0];
        assert_eq!(
            (first.id.as_str(), first.user.as_str(), first.project.as_str()),
            ("123.head", "ann", "aero")
        );
        assert_eq!((first.nodes.as_slice(), first.ranks_count), (&["n02".to_string(), "n01".into()][..], 16));
        assert_eq!((first.state.as_str(), first.start), ("RUNNING", 1_699_956_001_000));
        assert_eq!((jobs[1].state.as_str(), jobs[1].ranks_count, jobs[1].start), ("PENDING", 4, 0));
        assert!(read(br#"{"pbs_server": "head"}"#).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(host in "[a-z0-9/+*]{0,30}", time in "[A-Za-z0-9: ]{0,30}", bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let text = serde_json::json!({"Jobs": {"1": {"exec_host": host, "stime": time, "Job_Owner": 7}}}).to_string();
            prop_assert_eq!(read(text.as_bytes()).unwrap().len(), 1);
            let _ = read(&bytes);
        }
    }
}
