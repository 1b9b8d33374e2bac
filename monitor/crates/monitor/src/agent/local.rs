// SPDX-License-Identifier: BSD-3-Clause
//! Outboard's jobs on this host, by `outboard top --json`: the jobs whose shared segment this user may open.
//! That program reads counters that ranks keep in any case, so ranks do no extra work.

use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use crate::command::output_of;
use crate::job::{Job, JobRank};

/// A job as `outboard top --json` prints it. Fields that later versions add are ignored.
#[derive(Deserialize)]
struct Printed {
    job: u32,
    ranks: Vec<PrintedRank>,
}

#[derive(Deserialize)]
struct PrintedRank {
    rank: u32,
    pid: u32,
    state: String,
    waiting_for: String,
    counters: std::collections::BTreeMap<String, u64>,
}

pub fn jobs() -> Result<Vec<Job>, String> {
    let beside = std::env::current_exe().ok().and_then(|here| Some(here.parent()?.join("outboard")));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from("outboard"));
    match output_of(Command::new(program).args(["top", "--json"]), b"") {
        Some(text) => read(&text?),
        None => Err("the program outboard is neither beside outboard-monitor nor in PATH".into()),
    }
}

fn read(text: &[u8]) -> Result<Vec<Job>, String> {
    let printed: Vec<Printed> = serde_json::from_slice(text)
        .map_err(|error| format!("outboard top --json cannot be read: {error}"))?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(printed.into_iter().filter_map(|job| described(job, &host)).collect())
}

/// Makes a `Job` of a job that `outboard top` printed. Returns None if all processes of the job have ended.
fn described(job: Printed, host: &str) -> Option<Job> {
    // A job without an mpirun has the number of one of its ranks, and that rank may have ended.
    let pids = std::iter::once(job.job).chain(job.ranks.iter().map(|rank| rank.pid));
    let (pid, facts) = pids.into_iter().find_map(|pid| Some((pid, ProcessFacts::of(pid)?)))?;
    let first = job.ranks.first().and_then(|rank| ProcessFacts::of(rank.pid));
    let (name, first_inside) = first.map_or_else(Default::default, |first| (first.program, first.inside));
    Some(Job {
        // The kernel uses a pid again; with the time of its start the id is unique.
        id: format!("{host}-{pid}-{}", facts.start / 1000),
        source: "mpirun",
        user: facts.user,
        name: if name.is_empty() { facts.program } else { name },
        nodes: vec![host.into()],
        ranks_count: job.ranks.len() as u32,
        ranks: job
            .ranks
            .into_iter()
            .map(|rank| JobRank {
                rank: rank.rank,
                host: host.into(),
                pid: rank.pid,
                state: rank.state,
                waiting_for: rank.waiting_for,
                counters: rank
                    .counters
                    .into_iter()
                    .filter(|(_, value)| *value > 0)
                    .chain(usage(rank.pid))
                    .collect(),
            })
            .collect(),
        state: "RUNNING".into(),
        start: facts.start,
        inside: facts.inside.or(first_inside),
        ..Job::default()
    })
}

/// Returns the processor time and memory of a process as counters (`cpu_ns`, `memory_bytes`). Returns no
/// counters if the process has ended or belongs to another user.
pub fn usage(pid: u32) -> Vec<(String, u64)> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let stat = read("stat");
    // Fields 14 and 15, in ticks. They are counted from behind the second field, which may hold any letters.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let status = read("status");
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok());
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let cpu = ticks(11)
        .zip(ticks(12))
        .map(|(user, system)| ("cpu_ns".to_string(), (user + system).saturating_mul(tick_ns)));
    let memory = kilobytes.map(|kilobytes| ("memory_bytes".to_string(), kilobytes * 1024));
    cpu.into_iter().chain(memory).collect()
}

/// What /proc shows of a process. `program` and `user` are empty if /proc does not show them.
#[derive(Default)]
struct ProcessFacts {
    program: String,
    user: String,
    /// The time at which the process started, in milliseconds since 1970.
    start: u64,
    /// The batch job in which the process runs, such as `slurm/7`, as the process's environment names it.
    /// None if the environment names no batch job.
    inside: Option<String>,
}

impl ProcessFacts {
    fn of(pid: u32) -> Option<ProcessFacts> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let status = read("status");
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
        // Field 22, in ticks since the machine's start, counted from behind the second field, which may hold
        // any letters.
        let stat = read("stat");
        let ticks = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse::<u64>().ok())?;
        let boot = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let boot = boot
            .lines()
            .find_map(|line| line.strip_prefix("btime ")?.trim().parse::<u64>().ok())
            .unwrap_or(0);
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let inside = environment.split(|byte| *byte == 0).find_map(|entry| {
            let (name, id) = std::str::from_utf8(entry).ok()?.split_once('=')?;
            let source = match name {
                "SLURM_JOB_ID" => "slurm",
                "PBS_JOBID" => "pbs",
                _ => return None,
            };
            (id.len() < 128 && !id.contains(char::is_control)).then(|| format!("{source}/{id}"))
        });
        Some(ProcessFacts {
            inside,
            program: read("comm").trim().chars().filter(|char| !char.is_control()).collect(),
            user: uid.map_or_else(String::new, name_of),
            start: boot * 1000 + ticks * 1000 / rustix::param::clock_ticks_per_second().max(1),
        })
    }
}

/// Returns a user's name from /etc/passwd, or `uid` itself for a user who is not in it.
pub fn name_of(uid: &str) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_string())
    });
    found.unwrap_or_else(|| uid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_top_prints_is_read() {
        let text = r#"[{"job": 1, "ranks": [{"rank": 0, "pid": 1, "state": "Running", "waiting_for": "",
            "counters": {"eager_bytes_sent": 18446744073709551615}}], "proxies": []}]"#;
        let jobs = read(text.as_bytes()).unwrap();
        assert_eq!(jobs[0].ranks[0].counters["eager_bytes_sent"], u64::MAX);
        let without = text.replace("\"job\": 1", "\"job\": 0");
        assert_eq!(read(without.as_bytes()).unwrap().len(), 1, "by a rank's process");
        let own = usage(std::process::id());
        assert_eq!(own.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["cpu_ns", "memory_bytes"]);
        assert!(own[1].1 > 1 << 20 && usage(u32::MAX).is_empty());
        assert!(read(b"[{\"job\": -1}]").unwrap_err().contains("outboard top"));
    }
}
