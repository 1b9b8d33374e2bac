// SPDX-License-Identifier: BSD-3-Clause
//! Runs the benchmarks. In each round of a measure (a benchmark with its arguments) every MPI runs once. Then
//! each loop runs once that shows a limit: a lower bound for any MPI.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::measure::{Measure, WALL};
use super::peers::Player;

/// Everything that was measured: the rows of results, the MPIs, the failed runs and the conditions.
pub struct BenchTable {
    /// The name and version of each MPI, first Outboard's.
    pub players: Vec<(String, String)>,
    /// The rows of results: one for each measure (benchmark) and message size.
    pub rows: Vec<BenchRow>,
    /// The name of each failed run, with the last lines that it printed.
    pub failures: Vec<(String, String)>,
    /// The number of rounds: how many times each measure ran with each MPI.
    pub rounds: u32,
    /// Where and when the values were measured.
    pub conditions: Conditions,
}

impl BenchTable {
    /// Returns a table for these MPIs and this number of rounds. It has no rows yet.
    pub fn new(players: &[Player], rounds: u32) -> BenchTable {
        BenchTable {
            players: players.iter().map(|player| (player.name.clone(), player.version.clone())).collect(),
            rows: Vec::new(),
            failures: Vec::new(),
            rounds,
            conditions: Conditions::default(),
        }
    }
}

/// Where and when values were measured, and how busy the machine was.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// The name of the place, which is the heading of these results on the page.
    pub place: String,
    /// The processor, memory and kernel of the machine, in words.
    pub machine: String,
    /// The date and time at which the measurement started, or None if it is not known.
    pub date: Option<String>,
    /// The load average of the minute before the start, or None if it is not known.
    pub load: Option<f64>,
    /// The number of processors of the machine, or None if it is not known.
    pub cores: Option<u64>,
    /// The processor seconds that the hypervisor gave to other machines during the measurement (steal), or
    /// None if they are not known.
    pub steal_s: Option<f64>,
}

/// How many idle cores a measure with two ranks needs. It is less than 2, since a load average falls slowly.
const CORES_NEEDED: f64 = 1.5;
/// The load average up to which a machine counts as idle, however few cores it has.
const LOAD_OF_NOTHING: f64 = 0.3;
/// How many rounds must have run before a goal counts as met or missed.
const ROUNDS_FOR_VERDICT: u32 = 5;

impl BenchTable {
    /// Returns why this table can have no verdict (goal met or missed) on any goal. None if it can have
    /// verdicts.
    pub fn no_verdicts(&self) -> Option<String> {
        if self.rounds < ROUNDS_FOR_VERDICT {
            let are = if self.rounds == 1 { "round is" } else { "rounds are" };
            return Some(format!("{} {are} fewer than {ROUNDS_FOR_VERDICT}", self.rounds));
        }
        let (load, cores) = (self.conditions.load?, self.conditions.cores?);
        (load > (cores as f64 - CORES_NEEDED).max(LOAD_OF_NOTHING))
            .then(|| format!("before it began, the load was {load:.1} on {cores} processors"))
    }
}

/// A row of results: one measure (a benchmark) at one message size.
pub struct BenchRow {
    pub measure: Measure,
    pub bytes: u64,
    /// The value of each MPI in each round of the measurement; None where the run failed.
    pub values: Vec<Vec<Option<f64>>>,
    /// The value of each limit (a lower bound for any MPI) in each round of the measurement; None where the
    /// run failed.
    pub limits: Vec<Vec<Option<f64>>>,
    /// Whether this row may have a verdict on its goal (met or missed). It may if enough cores were idle and
    /// enough rounds ran.
    pub has_verdict: bool,
}

/// What runs once in each round of a measure: an MPI with a benchmark, or a loop of bench/limits.c.
struct Runner<'a> {
    /// The name of the MPI library or of the loop (of bench/limits.c), for the progress bar and for failed
    /// runs.
    name: &'a str,
    player: &'a Player,
    command: &'a str,
    /// The field that holds the result in the JSON lines that the command prints.
    column: &'a str,
    /// The index of this runner in the values of a measure: first the MPIs, then the limits.
    place: usize,
    /// The kind of device memory that the run uses, or None for host memory.
    device: Option<&'a str>,
    failed: bool,
}

fn runners<'a>(players: &'a [Player], measure: &'a Measure) -> Vec<Runner<'a>> {
    let mpis = players.iter().filter(|_| !measure.run.is_empty()).enumerate().map(|(place, player)| Runner {
        name: &player.name,
        player,
        command: &measure.run,
        column: &measure.column,
        place,
        device: measure.device.as_deref(),
        failed: false,
    });
    // The loops run on the cores where Outboard's launcher puts ranks.
    let limits = measure.limits.iter().enumerate().map(|(at, (name, command))| Runner {
        name,
        player: &players[0],
        command,
        column: "value",
        place: players.len() + at,
        device: None,
        failed: false,
    });
    mpis.chain(limits).collect()
}

/// Runs all rounds of all measures (benchmarks). `table` must have no rows. Adds a row for each result, and
/// returns the table. Calls `look` with the table after each measure, so that an interrupted run keeps its
/// results.
pub fn play(
    mut table: BenchTable,
    players: &[Player],
    measures: &[Measure],
    timeout: Duration,
    mut look: impl FnMut(&BenchTable) -> Result<(), String>,
) -> Result<BenchTable, String> {
    let runs: usize = measures.iter().map(|measure| runners(players, measure).len()).sum();
    let style = "{elapsed_precise} [{bar:30}] {pos}/{len} {msg} (about {eta} left)";
    let bar = ProgressBar::new(runs as u64 * u64::from(table.rounds))
        .with_style(ProgressStyle::with_template(style).expect("a sound template"));
    let (has_verdict, steal_before) = (table.no_verdicts().is_none(), steal_s());
    for (at, measure) in measures.iter().enumerate() {
        // A log file gets no progress bar.
        if bar.is_hidden() {
            eprintln!("outboard: {} of {}: {}", at + 1, measures.len(), measure.name);
        }
        let mut cells = Cells::new(players.len() + measure.limits.len(), table.rounds);
        table.failures.extend(cells.fill_all(runners(players, measure), measure, timeout, &bar));
        table.rows.extend(cells.rows(measure, players.len(), has_verdict));
        table.conditions.steal_s = steal_s().zip(steal_before).map(|(now, before)| now - before);
        look(&table)?;
    }
    bar.finish_and_clear();
    Ok(table)
}

/// The values of one measure, by message size, then by the index of the runner, then by round.
struct Cells {
    by_bytes: BTreeMap<u64, Vec<Vec<Option<f64>>>>,
    /// The values of one message size before anything has run: None for each runner and each round.
    empty: Vec<Vec<Option<f64>>>,
    rounds: u32,
}

impl Cells {
    fn new(places: usize, rounds: u32) -> Cells {
        Cells { by_bytes: BTreeMap::new(), empty: vec![vec![None; rounds as usize]; places], rounds }
    }

    /// Runs each MPI and loop once in each round. Returns the names of failed runs, with the last lines that
    /// they printed.
    fn fill_all(
        &mut self,
        mut runners: Vec<Runner>,
        measure: &Measure,
        timeout: Duration,
        bar: &ProgressBar,
    ) -> Vec<(String, String)> {
        let mut failures = Vec::new();
        for round in 0..self.rounds {
            for runner in &mut runners {
                bar.set_message(format!("{}, {}, round {}", measure.name, runner.name, round + 1));
                failures.extend(self.fill(runner, measure, round, timeout).err());
                bar.inc(1);
            }
        }
        failures
    }

    /// Runs one MPI or loop once. The error is the name of the failed run and the last lines that it printed.
    /// After a failure the runner never runs again: it would most likely fail again, after as long a time.
    fn fill(
        &mut self,
        runner: &mut Runner,
        measure: &Measure,
        round: u32,
        timeout: Duration,
    ) -> Result<(), (String, String)> {
        if runner.failed {
            return Ok(());
        }
        let values = run(runner, measure, timeout).map_err(|output| {
            runner.failed = true;
            (format!("{} with {}, round {}", measure.name, runner.name, round + 1), output)
        })?;
        for (bytes, value) in values {
            let row = self.by_bytes.entry(bytes).or_insert_with(|| self.empty.clone());
            row[runner.place][round as usize] = Some(value);
        }
        Ok(())
    }

    /// Returns the rows of results of a measure, one for each message size. A measure without any value gets
    /// one row.
    fn rows(self, measure: &Measure, players: usize, has_verdict: bool) -> Vec<BenchRow> {
        let Cells { mut by_bytes, empty, .. } = self;
        if by_bytes.is_empty() {
            by_bytes.insert(0, empty);
        }
        let row = |(bytes, mut values): (u64, Vec<Vec<Option<f64>>>)| {
            let limits = values.split_off(players);
            BenchRow { measure: measure.clone(), bytes, values, limits, has_verdict }
        };
        by_bytes.into_iter().map(row).collect()
    }
}

/// Returns the processor seconds that the hypervisor has given to other machines (steal) since this machine
/// started. None if the kernel does not say.
fn steal_s() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks: f64 = stat.lines().next()?.split_whitespace().nth(8)?.parse().ok()?;
    Some(ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// Runs a benchmark once. Returns each message size in bytes with the value for this size. The error has the
/// last lines that the run printed.
fn run(runner: &Runner, measure: &Measure, timeout: Duration) -> Result<Vec<(u64, f64)>, String> {
    let player = runner.player;
    let mut words = runner.command.split_whitespace();
    let mut command = Command::new(&player.launch[0]);
    command.args(&player.launch[1..]).args(["-n", &measure.ranks.to_string()]);
    if measure.own {
        command.args(words.map(|word| word.replace("{mpi}", &player.name)));
        // A program for the standard ABI runs with each MPI's library.
        command.env("LD_LIBRARY_PATH", &player.libraries);
    } else {
        command.arg(player.programs.join(words.next().unwrap_or_default())).args(words).arg("--json");
    }
    if let Some(kind) = runner.device {
        command.args(["-d", kind]).env("OUTBOARD_DEVICE", backend(kind));
    }
    command.envs(player.environment.iter().cloned()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let began = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || drain(stdout));
    let err = std::thread::spawn(move || drain(stderr));
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if began.elapsed() < timeout => std::thread::sleep(Duration::from_millis(1)),
            _ => {
                // The whole process group of the launcher is killed: some launchers leave their ranks behind.
                let group = rustix::process::Pid::from_child(&child);
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                let _ = child.wait();
                break None;
            }
        }
    };
    let wall_ms = began.elapsed().as_secs_f64() * 1e3;
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    match status {
        Some(status) if status.success() => {}
        Some(status) => return Err(format!("{status}\n{}", tail(&(out + &err)))),
        None => return Err(format!("stopped after {} s\n{}", timeout.as_secs(), tail(&(out + &err)))),
    }
    if runner.column == WALL {
        return Ok(vec![(0, wall_ms)]);
    }
    let lines = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let value = |line: Value| Some((line["bytes"].as_u64().unwrap_or(0), line[runner.column].as_f64()?));
    let values: Vec<_> = lines.filter_map(value).collect();
    if values.is_empty() { Err(format!("it printed no result\n{}", tail(&(out + &err)))) } else { Ok(values) }
}

/// Returns the value of OUTBOARD_DEVICE with which Outboard accepts this kind of device memory.
fn backend(kind: &str) -> &str {
    match kind {
        "managed" => "cuda",
        "rocm" => "hip",
        kind => kind,
    }
}

fn drain(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // The output before the error is still shown.
    let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
