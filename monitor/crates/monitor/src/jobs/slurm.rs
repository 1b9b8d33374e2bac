// SPDX-License-Identifier: BSD-3-Clause
//! Slurm's jobs, by `squeue --json` (Slurm 21.08 or newer), and how they ended, by `sacct --json`. In place
//! of these commands slurmrestd may be asked, whose answers have the same form. The form differs between
//! versions: a number may be a record of `set`, `infinite` and `number`, and a state may be a word or a list
//! of words.

use std::fmt::Formatter;
use std::io::Read;
use std::process::Command;
use std::time::Duration;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::text::{JOBS_MAX, NODES_MAX, words};
use crate::command::{output_of, read_of};
use crate::config::{self, Slurmrestd};
use crate::job::Job;

/// The most jobs for which Slurm's accounting is asked at once.
const GONE_MAX: usize = 500;
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// The longest time that `squeue --json` may take. It is slow on a large site.
const SQUEUE_TIME: Duration = Duration::from_secs(60);

/// The states in which a job is over ("JOB STATE CODES" in the manual of squeue).
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

/// How the monitor asks Slurm: through slurmrestd (`rest`), or by Slurm's commands if `rest` is None.
pub struct Slurm {
    rest: Option<Rest>,
    has_accounting: bool,
}

/// When a job ended and in which state, as Slurm's accounting reports it.
#[derive(Debug, PartialEq)]
pub struct JobEnd {
    pub id: String,
    pub state: String,
    /// When the job started, in milliseconds since 1970.
    pub start: u64,
    /// When the job ended, in milliseconds since 1970.
    pub end: u64,
}

impl Slurm {
    pub fn of(config: &config::JobsConfig) -> Slurm {
        Slurm { rest: config.slurmrestd.clone().map(Rest::of), has_accounting: config.accounting }
    }

    /// Returns Slurm's jobs, or none if there is neither `squeue` nor slurmrestd.
    pub fn jobs(&self) -> Result<Vec<Job>, String> {
        match &self.rest {
            Some(rest) => read(&mut rest.get("slurm", "jobs")?.as_slice()),
            // The output is read piece by piece, because many jobs make hundreds of megabytes.
            None => read_of(Command::new("squeue").arg("--json"), b"", SQUEUE_TIME, read)
                .unwrap_or(Ok(Vec::new())),
        }
    }

    /// Asks Slurm's accounting how the jobs `ids` ended, which Slurm's controller no longer lists. The result
    /// lacks jobs that accounting does not know.
    pub fn ends(&self, ids: &[&str]) -> Result<Vec<JobEnd>, String> {
        let ids = &ids[..ids.len().min(GONE_MAX)];
        if ids.is_empty() || !self.has_accounting {
            return Ok(Vec::new());
        }
        let Some(rest) = &self.rest else {
            let jobs = format!("--jobs={}", ids.join(","));
            let text = output_of(Command::new("sacct").args(["--json", "--allocations", &jobs]), b"");
            return text.map_or(Ok(Vec::new()), |text| read_ends(&mut text?.as_slice()));
        };
        let each = ids.iter().map(|id| read_ends(&mut rest.get("slurmdb", &format!("job/{id}"))?.as_slice()));
        Ok(each.collect::<Result<Vec<_>, String>>()?.into_iter().flatten().collect())
    }
}

/// A client of slurmrestd, Slurm's REST daemon.
struct Rest {
    config: Slurmrestd,
    http: ureq::Agent,
}

impl Rest {
    fn of(config: Slurmrestd) -> Rest {
        let time = Some(Duration::from_secs(10));
        let builder = ureq::Agent::config_builder().timeout_global(time).http_status_as_error(false);
        Rest { config, http: builder.build().new_agent() }
    }

    /// Requests `what`, such as `jobs`, from a part of slurmrestd (`slurm` or `slurmdb`). Returns the JSON of
    /// the answer.
    fn get(&self, part: &str, what: &str) -> Result<Vec<u8>, String> {
        let Slurmrestd { url, version, user, token_file } = &self.config;
        let place = format!("{}/{part}/{version}/{what}", url.trim_end_matches('/'));
        // The file is read again because a token is renewed by writing it.
        let token = std::fs::read_to_string(token_file)
            .map_err(|error| format!("{}: {error}", token_file.display()))?;
        let token = token.trim();
        let request = self.http.get(&place).header("X-SLURM-USER-NAME", user);
        let mut answer = request
            .header("X-SLURM-USER-TOKEN", token.strip_prefix("SLURM_JWT=").unwrap_or(token))
            .call()
            .map_err(|error| format!("{place}: {error}"))?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| format!("{place}: {error}"))?;
        if status.is_success() {
            return Ok(body);
        }
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        Err(format!("{place} refuses ({status}) {}", words(&said["errors"][0]["error"])))
    }
}

fn read(text: &mut dyn Read) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    each(text, &mut |value| {
        if jobs.len() < JOBS_MAX {
            jobs.extend(job(&value));
        }
    })?;
    Ok(jobs)
}

fn read_ends(text: &mut dyn Read) -> Result<Vec<JobEnd>, String> {
    let mut ends = Vec::new();
    each(text, &mut |value| {
        if ends.len() < GONE_MAX {
            ends.extend(end(&value));
        }
    })?;
    Ok(ends)
}

/// Reads `{"jobs": [...], ...}` and calls `take` with each job. Only one job is in memory at a time.
fn each(text: &mut dyn Read, take: &mut dyn FnMut(Value)) -> Result<(), String> {
    let mut from = serde_json::Deserializer::from_reader(std::io::BufReader::new(text));
    let listed = Listed(take).deserialize(&mut from).and_then(|is_there| from.end().map(|()| is_there));
    match listed {
        Ok(true) => Ok(()),
        Ok(false) => Err("Slurm's JSON names no jobs".into()),
        Err(error) => Err(format!("Slurm's JSON cannot be read: {error}")),
    }
}

/// Reads a JSON object that has the list `jobs`, and calls the function in this field with each job. The
/// reading yields true if the object has such a list.
struct Listed<'a>(&'a mut dyn FnMut(Value));
/// Reads the JSON list `jobs`, and calls the function in this field with each job in the list.
struct Each<'a>(&'a mut dyn FnMut(Value));

impl<'de> DeserializeSeed<'de> for Listed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Listed<'_> {
    type Value = bool;

    fn expecting(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        to.write_str("an object with jobs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut is_there = false;
        while let Some(name) = map.next_key::<String>()? {
            if name == "jobs" {
                map.next_value_seed(Each(&mut *self.0))?;
                is_there = true;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(is_there)
    }
}

impl<'de> DeserializeSeed<'de> for Each<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Each<'_> {
    type Value = ();

    fn expecting(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        to.write_str("a list of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while let Some(value) = all.next_element::<Value>()? {
            (self.0)(value);
        }
        Ok(())
    }
}

/// Reads a job as Slurm's accounting describes it. Returns None if the job is not over.
fn end(value: &Value) -> Option<JobEnd> {
    let time = &value["time"];
    let state = word(&value["state"]["current"])?;
    Some(JobEnd {
        id: number(&value["job_id"])?.to_string(),
        state: OVER.contains(&state).then(|| state.into())?,
        start: number(&time["start"]).unwrap_or(0) * 1000,
        end: number(&time["end"])? * 1000,
    })
}

/// Returns the text in `value`, or the first text if `value` is a list. Returns None if there is no text.
fn word(value: &Value) -> Option<&str> {
    match value {
        Value::Array(words) => words.first()?.as_str(),
        word => word.as_str(),
    }
}

fn job(value: &Value) -> Option<Job> {
    let id = number(&value["job_id"])?;
    let state = word(&value["job_state"])?;
    let end = number(&value["end_time"]).filter(|_| OVER.contains(&state)).map(|end| end * 1000);
    Some(Job {
        id: id.to_string(),
        source: "slurm",
        user: words(&value["user_name"]),
        project: words(&value["account"]),
        name: words(&value["name"]),
        nodes: expand(&words(&value["nodes"])),
        ranks_count: number(&value["tasks"]).unwrap_or(0).min(u32::MAX.into()) as u32,
        state: state.into(),
        start: number(&value["start_time"]).unwrap_or(0) * 1000,
        end,
        ..Job::default()
    })
}

fn number(value: &Value) -> Option<u64> {
    // Seconds up to the year 10000, so that milliseconds fit.
    let number = value.as_u64().or_else(|| value["number"].as_u64())?;
    (number < 253_402_300_800).then_some(number)
}

/// Returns the names in a node list such as `n[01-03,7],gpu1`.
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

/// Returns the position of the first comma outside brackets in `list`, or the length of `list`.
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
        let job = read(&mut old.as_bytes()).unwrap().remove(0);
        assert_eq!(job, read(&mut new.as_bytes()).unwrap().remove(0));
        assert_eq!(job.nodes, ["n08", "n09", "n10", "gpu1"]);
        assert_eq!((job.user.as_str(), job.project.as_str()), ("ann", "cfd"));
        assert_eq!((job.ranks_count, job.start, job.end), (8, 1_764_000_000_000, None));
        let over = read(&mut old.replace("RUNNING", "PREEMPTED").as_bytes()).unwrap().remove(0);
        assert_eq!(over.end, Some(1_764_003_600_000));
    }

    /// Reads recorded output of Slurm 22.05, from the hosts on which the project is tested.
    #[test]
    fn what_slurm_printed_is_read() {
        let jobs = read(&mut &include_bytes!("recorded/squeue-22.05.json")[..]).unwrap();
        assert_eq!(
            (jobs[0].id.as_str(), jobs[0].nodes.as_slice()),
            ("1", &["h1".to_string(), "h2".into()][..])
        );
        assert_eq!((jobs[0].state.as_str(), jobs[0].end), ("FAILED", Some(1_795_633_300_000)));
        assert_eq!((jobs[1].state.as_str(), jobs[1].end, jobs[1].ranks_count), ("RUNNING", None, 1));
        let text = String::from_utf8_lossy(include_bytes!("recorded/sacct-22.05.json")).into_owned();
        let ends = read_ends(&mut text.as_bytes()).unwrap();
        let first = JobEnd {
            id: "1".into(),
            state: "FAILED".into(),
            start: 1_795_633_299_000,
            end: 1_795_633_300_000,
        };
        assert_eq!((&ends[0], ends[1].state.as_str()), (&first, "CANCELLED"));
        // Newer versions print lists, and the job may still run.
        let newer = text.replace("\"FAILED\"", "[\"FAILED\"]").replace("\"CANCELLED\"", "[\"RUNNING\"]");
        assert_eq!(read_ends(&mut newer.as_bytes()).unwrap(), [first]);
    }

    #[test]
    fn an_answer_without_jobs_is_no_answer() {
        for odd in ["7", "[]", "{}", r#"{"jobs": null}"#, r#"{"jobs": {"job_id": 7}}"#] {
            let why = read(&mut odd.as_bytes()).unwrap_err();
            assert!(why.contains("jobs"), "{odd}: {why}");
        }
        assert_eq!(read(&mut &br#"{"jobs": [], "errors": [7]}"#[..]), Ok(Vec::new()));
    }

    /// Reads a list of 10,000 jobs, which is generated while it is read, so that it is never whole in memory.
    #[test]
    fn a_text_of_many_jobs_is_read_as_it_comes() {
        let pad = "x".repeat(20_000);
        let one =
            |number: usize| format!(r#"{{"job_id": {number}, "job_state": "RUNNING", "comment": "{pad}"}}"#);
        let mut number = 0;
        let mut left = std::collections::VecDeque::from(br#"{"meta": {}, "jobs": ["#.to_vec());
        struct TextInParts<F>(F);
        impl<F: FnMut(&mut [u8]) -> usize> Read for TextInParts<F> {
            fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
                Ok((self.0)(to))
            }
        }
        let mut made = TextInParts(|to: &mut [u8]| {
            if left.is_empty() && number < 10_000 {
                number += 1;
                left.extend(one(number).bytes());
                left.extend(if number < 10_000 { &b","[..] } else { &b"]}"[..] });
            }
            left.read(to).unwrap()
        });
        let jobs = read(&mut made).unwrap();
        assert_eq!((jobs.len(), jobs[9999].id.as_str()), (10_000, "10000"));
    }

    /// Plays a slurmrestd that gives one answer. Returns how the monitor read the answer, and the request
    /// that it had sent.
    fn answered(status: &str, body: &str) -> (Result<Vec<u8>, String>, String) {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let token_file = folder.path().join("token");
        std::fs::write(&token_file, "SLURM_JWT=secret\n").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (version, user) = ("v0.0.38".into(), "ann".into());
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut asked, mut part) = (String::new(), [0; 4096]);
            while !asked.contains("\r\n\r\n") {
                let read = stream.read(&mut part).unwrap();
                asked += std::str::from_utf8(&part[..read]).unwrap();
            }
            stream.write_all(answer.as_bytes()).unwrap();
            asked.to_lowercase()
        });
        let listed = Rest::of(Slurmrestd { url, version, user, token_file }).get("slurm", "jobs");
        (listed, server.join().unwrap())
    }

    #[test]
    fn slurmrestd_is_asked_with_the_token_and_its_refusal_is_told() {
        let (listed, asked) = answered("200 OK", r#"{"jobs": []}"#);
        assert_eq!(listed.unwrap(), br#"{"jobs": []}"#);
        assert!(asked.starts_with("get /slurm/v0.0.38/jobs http"), "{asked}");
        assert!(
            asked.contains("x-slurm-user-name: ann\r\n") && asked.contains("x-slurm-user-token: secret\r\n")
        );
        let (listed, _) = answered("401 Unauthorized", r#"{"errors": [{"error": "no such token"}]}"#);
        let why = listed.unwrap_err();
        assert!(why.contains("401") && why.contains("no such token"), "{why}");
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
            prop_assert!(read(&mut bytes.as_slice()).is_err() && read_ends(&mut bytes.as_slice()).is_err());
        }
    }
}
