//! Slurm's jobs, by `squeue --json` (Slurm 21.08 or newer). Its form differs between versions: a number is a
//! number, or a record of `set`, `infinite` and `number`; a state is a word, or a list of words.

use std::process::Command;

use serde_json::Value;

use super::text::{JOBS_MAX, NODES_MAX, words};
use crate::command::output_of;
use crate::job::Job;

/// States of jobs that are over ("JOB STATE CODES" of squeue's manual).
const OVER: [&str; 9] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
];

/// No `squeue` here: no jobs.
pub fn jobs() -> Result<Vec<Job>, String> {
    match output_of(Command::new("squeue").arg("--json"), b"") {
        Some(text) => read(&text?),
        None => Ok(Vec::new()),
    }
}

fn read(text: &[u8]) -> Result<Vec<Job>, String> {
    let value: Value =
        serde_json::from_slice(text).map_err(|error| format!("squeue --json cannot be read: {error}"))?;
    let jobs = value["jobs"].as_array().ok_or("squeue --json names no jobs")?;
    Ok(jobs.iter().take(JOBS_MAX).filter_map(job).collect())
}

fn job(value: &Value) -> Option<Job> {
    let id = number(&value["job_id"])?;
    let state = match &value["job_state"] {
        Value::Array(words) => words.first()?.as_str()?,
        word => word.as_str()?,
    };
    let end = number(&value["end_time"]).filter(|_| OVER.contains(&state)).map(|end| end * 1000);
    Some(Job {
        id: id.to_string(),
        source: "slurm",
        user: words(&value["user_name"]),
        project: words(&value["account"]),
        name: words(&value["name"]),
        nodes: expand(&words(&value["nodes"])),
        ranks: Vec::new(),
        ranks_count: number(&value["tasks"]).unwrap_or(0).min(u32::MAX.into()) as u32,
        state: state.into(),
        start: number(&value["start_time"]).unwrap_or(0) * 1000,
        end,
        inside: None,
    })
}

fn number(value: &Value) -> Option<u64> {
    // Seconds up to the year 10000, so that milliseconds fit.
    let number = value.as_u64().or_else(|| value["number"].as_u64())?;
    (number < 253_402_300_800).then_some(number)
}

/// The names of a node list: `n[01-03,7],gpu1`.
fn expand(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = list;
    while !rest.is_empty() && names.len() < NODES_MAX {
        let end = top_comma(rest);
        let (entry, tail) = rest.split_at(end);
        rest = tail.strip_prefix(',').unwrap_or(tail);
        let Some((prefix, inner)) = entry.split_once('[') else {
            if !entry.is_empty() {
                names.push(entry.to_string());
            }
            continue;
        };
        let (inner, suffix) = inner.split_once(']').unwrap_or((inner, ""));
        for range in inner.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (Ok(from), Ok(to)) = (first.parse::<u64>(), last.parse::<u64>()) else { continue };
            for number in from..=to {
                if names.len() >= NODES_MAX {
                    break;
                }
                names.push(format!("{prefix}{number:0width$}{suffix}", width = first.len().min(20)));
            }
        }
    }
    names
}

/// Where the first comma outside brackets stands, or the end.
fn top_comma(list: &str) -> usize {
    let mut is_inside = false;
    for (at, char) in list.char_indices() {
        match char {
            '[' => is_inside = true,
            ']' => is_inside = false,
            ',' if !is_inside => return at,
            _ => {}
        }
    }
    list.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_forms_of_squeue_are_read() {
        let old = r#"{"jobs": [{"job_id": 7, "job_state": "RUNNING", "user_name": "ann", "account": "cfd", "name": "cfd",
            "nodes": "n[08-10],gpu1", "tasks": 8, "start_time": 1764000000, "end_time": 1764003600}]}"#;
        let new = r#"{"jobs": [{"job_id": 7, "job_state": ["RUNNING"], "user_name": "ann", "account": "cfd", "name": "cfd",
            "nodes": "n[08-10],gpu1", "tasks": {"set": true, "infinite": false, "number": 8},
            "start_time": {"set": true, "number": 1764000000}, "end_time": {"set": true, "number": 1764003600}}]}"#;
        let job = read(old.as_bytes()).unwrap().remove(0);
        assert_eq!(job, read(new.as_bytes()).unwrap().remove(0));
        assert_eq!(job.nodes, ["n08", "n09", "n10", "gpu1"]);
        assert_eq!((job.user.as_str(), job.project.as_str()), ("ann", "cfd"));
        assert_eq!((job.ranks_count, job.start, job.end), (8, 1_764_000_000_000, None));
        let over = read(old.replace("RUNNING", "PREEMPTED").as_bytes()).unwrap().remove(0);
        assert_eq!(over.end, Some(1_764_003_600_000));
    }

    #[test]
    fn a_list_is_bounded() {
        assert_eq!(expand("n[0-99999999999]").len(), NODES_MAX);
        assert_eq!(expand("a,,b[1"), ["a", "b1"]);
    }

    proptest! {
        #[test]
        fn no_list_is_too_odd(list in "[a-c0-9\\[\\],-]{0,40}", bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(expand(&list).len() <= NODES_MAX);
            prop_assert!(read(&bytes).is_err());
        }
    }
}
