// SPDX-License-Identifier: BSD-3-Clause
//! Compares jobs that choose by themselves with jobs whose choice is forced. The choice is how messages move:
//! through cells, or by reads of the sender's memory. No job has a table of tuning. The program of the jobs
//! is bench/choice.c.
//!
//! The best rounds of a comparison would hide a job that chose wrongly; here every job counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

use super::times::{CELLS, Forced, READ, median};
use crate::outboard::bench::peers::Player;

/// Two times that differ by less than this factor count as equal, and either choice is right.
const EQUAL: f64 = 1.05;

/// What one job prints: a line for each pattern of messages and each length in bytes.
type JobLines = Vec<((String, u64), JobLine)>;

/// What a job prints for one pattern and length of messages.
#[derive(Clone, Copy)]
struct JobLine {
    /// What part of the bytes (0 to 1) receivers read from the sender's memory, once 64 messages have come.
    read: f64,
    /// The median time of a message, in us.
    us: f64,
}

/// Runs `jobs` jobs that choose by themselves, each with a fresh cache folder, and in between jobs with a
/// forced choice. Returns a table of the times of both.
pub(super) fn check(ourselves: &dyn Fn() -> Result<Player, String>, jobs: u32) -> Result<String, String> {
    let player = ourselves()?;
    let mut found: [Vec<JobLines>; 3] = Default::default();
    for number in 0..jobs {
        for (kind, forced) in [&[][..], CELLS, READ].into_iter().enumerate() {
            // The median of fewer jobs is enough for the forced ones.
            if kind == 0 || number % 2 == 0 {
                found[kind].push(run(&player, forced)?);
            }
        }
    }
    let [auto, cells, read] = found;
    Ok(table(&auto, [&cells, &read]))
}

/// Runs a job of bench/choice.c with the environment variables `forced`, and returns what it prints.
fn run(player: &Player, forced: Forced) -> Result<JobLines, String> {
    let cache = std::env::temp_dir().join(format!("outboard-choice-{}", std::process::id()));
    let mut command = Command::new(&player.launch[0]);
    command.args(&player.launch[1..]).args(["-n", "2"]).arg(player.programs.join("choice"));
    command.envs(player.environment.iter().cloned()).envs(forced.iter().copied());
    // A rank whose core another job has claimed does not measure.
    command.env("XDG_CACHE_HOME", &cache).env("OUTBOARD_CLAIM_CORES", "0").stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{command:?}: {error}"));
    // The folder is missing if the job kept nothing.
    let _ = std::fs::remove_dir_all(&cache);
    let output = output?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: JobLines = text.lines().filter_map(line).collect();
    if !output.status.success() || lines.is_empty() {
        return Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(lines)
}

fn line(text: &str) -> Option<((String, u64), JobLine)> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let key = (value["pattern"].as_str()?.to_owned(), value["bytes"].as_u64()?);
    Some((key, JobLine { read: value["read"].as_f64()?, us: value["us"].as_f64()? }))
}

/// Returns the table of the jobs' times: a line for each pattern and length, and a last line about all jobs.
fn table(auto: &[JobLines], forced: [&[JobLines]; 2]) -> String {
    let by_key = |jobs: &[JobLines]| {
        let mut lines: BTreeMap<(String, u64), Vec<JobLine>> = BTreeMap::new();
        let all = jobs.iter().flatten().cloned();
        all.for_each(|(key, line)| lines.entry(key).or_default().push(line));
        lines
    };
    let (auto_lines, [cells, read]) = (by_key(auto), forced.map(by_key));
    let time = |lines: &BTreeMap<(String, u64), Vec<JobLine>>, key: &(String, u64)| {
        lines.get(key).map_or(f64::INFINITY, |lines| median(lines.iter().map(|line| line.us)))
    };
    let mut text = format!(
        "{:<10} {:>8} {:>9} {:>9} {:>9}  jobs that read  right\n",
        "us", "bytes", "auto", "cells", "read"
    );
    let (mut right_jobs, mut wrong) = (vec![true; auto.len()], Vec::new());
    for (key, lines) in &auto_lines {
        let [cells, read] = [&cells, &read].map(|forced| time(forced, key));
        let reads = |line: &&JobLine| line.read >= 0.5;
        let is_right =
            |line: &JobLine| if reads(&line) { read <= cells * EQUAL } else { cells <= read * EQUAL };
        let (many, right) = (lines.iter().filter(reads).count(), lines.iter().filter(|line| is_right(line)));
        let (right, (name, bytes)) = (right.count(), key);
        right_jobs.iter_mut().zip(lines).for_each(|(all, line)| *all &= is_right(line));
        let auto = median(lines.iter().map(|line| line.us));
        writeln!(text, "{name:<10} {bytes:>8} {auto:>9.2} {cells:>9.2} {read:>9.2}  {many:>14}  {right}")
            .expect("a String takes all");
        if right < lines.len() {
            wrong.push(format!("{name} {bytes}: {} wrong", lines.len() - right));
        }
    }
    let right = right_jobs.iter().filter(|right| **right).count();
    writeln!(
        text,
        "after 64 messages {right} of {} jobs use the faster way, or one within 5 % of it, in all cases{}",
        auto.len(),
        if wrong.is_empty() { String::new() } else { format!(" ({})", wrong.join("; ")) }
    )
    .expect("a String takes all");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a job that chose the slower way counts, though others chose well; equally fast ways do not count.
    #[test]
    fn every_job_counts() {
        let job = |reads: [f64; 2], us: f64| -> JobLines {
            let line = |(at, read)| (("latency".to_owned(), 1_u64 << (20 + at)), JobLine { read, us });
            reads.into_iter().enumerate().map(line).collect()
        };
        let forced = |us: [f64; 2]| -> JobLines {
            let line = |(at, us)| (("latency".to_owned(), 1_u64 << (20 + at)), JobLine { read: 0.0, us });
            us.into_iter().enumerate().map(line).collect()
        };
        let (cells, read) = ([forced([80.0, 400.0])], [forced([55.0, 410.0])]);
        let auto = [job([1.0, 0.0], 55.0), job([0.01, 0.0], 81.0), job([1.0, 1.0], 56.0)];
        let text = table(&auto, [&cells, &read]);
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("after 64 messages 2 of 3 jobs") && last.ends_with("(latency 1048576: 1 wrong)"),
            "{text}"
        );
        assert!(
            table(&auto[..1], [&cells, &read])
                .ends_with("1 of 1 jobs use the faster way, or one within 5 % of it, in all cases\n")
        );
        assert!(line("{\"pattern\": \"latency\", \"bytes\": 16384, \"read\": 0.5, \"us\": 1.9}").is_some());
        assert!(line("no line").is_none());
    }
}
