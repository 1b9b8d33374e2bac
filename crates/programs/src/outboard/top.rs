// SPDX-License-Identifier: BSD-3-Clause
//! `outboard top` shows running jobs by the counters in their shared memory. It only reads, so it does not
//! slow the jobs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use sys::process::Stat;
use telemetry::summary::short;
use telemetry::{Counter, CounterPage, Unit};
use transport::shm::{LocalRank, RankPage, Segment};

use super::jobs::{RunningJob, ranks, running};

/// Show this user's running jobs, a line for each rank and proxy. q ends it.
#[derive(Args)]
pub struct Top {
    /// Only the job of this mpirun, or of this program run alone.
    #[arg(long, value_name = "PID")]
    job: Option<u32>,
    /// Print once and end.
    #[arg(long)]
    once: bool,
    /// Print all counters once, as JSON.
    #[arg(long)]
    json: bool,
}

/// The counters of all ranks and proxies of a job at one time: ranks first. `at` is that time, in ns of the
/// machine's monotonic clock.
struct Sample {
    at: u64,
    pages: Vec<ProcessCounts>,
}

/// The counters and the processor time of a rank or proxy since it started.
struct ProcessCounts {
    /// The values of the counters, in the order of [`Counter::ALL`].
    values: Vec<u64>,
    /// The processor time that the process has used, in ns. None if /proc does not show it.
    cpu_ns: Option<u64>,
}

impl Top {
    /// Prints the running jobs once (--once, --json), or shows them until the user presses q. Returns the
    /// text that is still to be printed.
    pub fn run(&self) -> Result<String, String> {
        if self.json {
            let jobs: Vec<Value> = running(self.job)?.iter().map(described).collect();
            return Ok(format!("{:#}\n", Value::Array(jobs)));
        }
        if self.once {
            let jobs = running(self.job)?;
            return Ok(jobs.iter().map(|job| table(job, None, &Sample::of(job))).collect());
        }
        self.watch()
    }

    fn watch(&self) -> Result<String, String> {
        let screen = Screen::open();
        let mut last: HashMap<u32, Sample> = HashMap::new();
        loop {
            let jobs = running(self.job)?;
            let mut text = String::new();
            for job in &jobs {
                let now = Sample::of(job);
                text += &table(job, last.get(&job.pid), &now);
                last.insert(job.pid, now);
            }
            if jobs.is_empty() {
                text += "No job of this user is running.\n";
            }
            if !screen.show(&text) {
                return Ok(String::new());
            }
        }
    }
}

impl Sample {
    fn of(job: &RunningJob) -> Sample {
        let at = sys::clock::now();
        let shape = job.segment.shape();
        let ranks = job.segment.places().map(|rank| {
            let page = job.segment.rank(rank);
            let mut done = ProcessCounts::of(&page.counters, page.pid.load(Ordering::Relaxed));
            // A wait is counted when it ends, which may be much later.
            done.values[Counter::WaitNs as usize] +=
                page.wait.since().map_or(0, |since| at.saturating_sub(since));
            done
        });
        let proxies = (0..shape.proxies).map(|proxy| {
            let page = job.segment.proxy(proxy);
            ProcessCounts::of(&page.counters, page.pid.load(Ordering::Relaxed))
        });
        Sample { at, pages: ranks.chain(proxies).collect() }
    }

    /// Returns the sum of some counters of the process with the index `page` in `pages`.
    fn sum(&self, page: usize, counters: &[Counter]) -> u64 {
        counters.iter().map(|counter| self.pages[page].values[*counter as usize]).sum()
    }
}

impl ProcessCounts {
    fn of(page: &CounterPage, pid: u32) -> ProcessCounts {
        let values = Counter::ALL.iter().map(|counter| page.value(*counter)).collect();
        ProcessCounts { values, cpu_ns: Stat::of(pid).map(|stat| stat.cpu_ns) }
    }
}

const SENDS: &[Counter] =
    &[Counter::OwnMessages, Counter::EagerMessagesSent, Counter::RendezvousMessagesSent];
const SENT: &[Counter] = &[Counter::OwnBytes, Counter::EagerBytesSent, Counter::RendezvousBytesSent];
const RECEIVED: &[Counter] = &[Counter::EagerBytesReceived, Counter::RendezvousBytesReceived];
const MOVED: &[Counter] = &[Counter::CmaBytes, Counter::CopiedBytes];
const COLLECTIVES: &[Counter] = &[
    Counter::BarrierCalls,
    Counter::BcastCalls,
    Counter::GatherCalls,
    Counter::ScatterCalls,
    Counter::AllgatherCalls,
    Counter::AlltoallCalls,
    Counter::ReduceCalls,
    Counter::AllreduceCalls,
    Counter::ReduceScatterCalls,
    Counter::ScanCalls,
    Counter::NeighborCalls,
];

const SHMEM: &[Counter] = &[Counter::ShmemPuts, Counter::ShmemGets, Counter::ShmemAtomics];

/// Returns the line above a job's table: its pid, how many ranks and proxies it has, its age and its memory.
fn title(job: &RunningJob, age: u64, is_rate: bool) -> String {
    let what = if is_rate { "per second" } else { "since its start" };
    let memory = job.segment.resident().map_or("?".into(), |bytes| short(bytes, Unit::Bytes));
    format!(
        "job {}: {} ranks{}, {} proxies, running for {}, shared memory {memory}; {what}:\n",
        job.pid,
        ranks(&job.segment).count(),
        elsewhere(&job.segment),
        job.segment.shape().proxies,
        short(age, Unit::Nanoseconds)
    )
}

/// The headings of the columns of a job's table.
const HEAD: [&str; COLUMNS] = [
    "pid",
    "state",
    "cpu",
    "sends",
    "sent",
    "received",
    "colls",
    "shmem",
    "moved",
    "offload",
    "busy",
    "wait",
    "cpu%",
    "waiting for",
];

/// Returns the table of a job, with a line for each rank and proxy. With the earlier sample `last` the
/// numbers are rates per second since then; without it they are totals since the job's start.
fn table(job: &RunningJob, last: Option<&Sample>, now: &Sample) -> String {
    let shape = job.segment.shape();
    let start = job.segment.job().start.load(Ordering::Relaxed);
    let age = now.at.saturating_sub(start);
    let whole = last.map_or(age, |last| now.at - last.at).max(1) as f64;
    let sum = |page: usize, counters: &[Counter], unit: Unit| {
        let done = now.sum(page, counters);
        match last {
            Some(last) => {
                let done = done.saturating_sub(last.sum(page, counters)) as f64;
                short((done * 1e9 / whole) as u64, unit)
            }
            None => short(done, unit),
        }
    };
    let percent = |part: f64| format!("{:.0}%", 100.0 * part);
    // Counters change while they are read, and several threads may count, so a share may exceed the whole.
    let share = |page: usize, counters: &[Counter]| {
        let before = last.map_or(0, |last| last.sum(page, counters));
        (now.sum(page, counters).saturating_sub(before) as f64 / whole).min(1.0)
    };
    let cpu = |page: usize| {
        let before = last.map_or(Some(0), |last| last.pages[page].cpu_ns);
        let used = now.pages[page].cpu_ns.zip(before).map(|(now, before)| now.saturating_sub(before));
        used.map_or("-".into(), |used| percent(used as f64 / whole))
    };
    let mut text = title(job, age, last.is_some());
    line(&mut text, "", &HEAD.map(String::from));
    for rank in ranks(&job.segment) {
        let (page, index) = (job.segment.rank(rank), rank.index());
        let waits = share(index, &[Counter::WaitNs, Counter::ShmemWaitNs]);
        let cells = [
            page.pid.load(Ordering::Relaxed).to_string(),
            format!("{:?}", page.state()),
            place(page.cpus.load(Ordering::Relaxed), page.cpu.load(Ordering::Relaxed)),
            sum(index, SENDS, Unit::Count),
            sum(index, SENT, Unit::Bytes),
            sum(index, RECEIVED, Unit::Bytes),
            sum(index, COLLECTIVES, Unit::Count),
            sum(index, SHMEM, Unit::Count),
            sum(index, MOVED, Unit::Bytes),
            sum(index, &[Counter::Offloaded], Unit::Count),
            percent(1.0 - waits),
            percent(waits),
            cpu(index),
            waiting(page),
        ];
        line(&mut text, &named(&job.segment, rank), &cells);
    }
    for proxy in 0..shape.proxies {
        let (page, index) = (job.segment.proxy(proxy), (shape.ranks + proxy) as usize);
        let busy = share(index, &[Counter::ProxyBusyNs]);
        let mut cells = [const { String::new() }; COLUMNS];
        cells[0] = page.pid.load(Ordering::Relaxed).to_string();
        cells[1] = format!("{:?}", page.state());
        cells[2] = place(page.cpus.load(Ordering::Relaxed), page.cpu.load(Ordering::Relaxed));
        cells[6] = sum(index, &[Counter::Instances], Unit::Count);
        cells[8] = sum(index, MOVED, Unit::Bytes);
        cells[10] = percent(busy);
        cells[11] = percent(1.0 - busy);
        cells[12] = cpu(index);
        line(&mut text, &format!("proxy {proxy}"), &cells);
    }
    text.push('\n');
    text
}

/// Returns a text that says which of the job's hosts this is. Empty if the job has one host.
fn elsewhere(segment: &Segment) -> String {
    if !segment.has_nodes() {
        return String::new();
    }
    let job = segment.job();
    let (node, nodes) = (job.node.load(Ordering::Relaxed) + 1, job.nodes.load(Ordering::Relaxed));
    let all = segment.world(0).size.load(Ordering::Relaxed);
    format!(" here (host {node} of {nodes}; the job began with {all} ranks)")
}

/// Returns the name of a rank, such as `rank 3`, or `rank 2.3` in the spawned world 2.
fn named(segment: &Segment, rank: LocalRank) -> String {
    let first = segment.rank(rank).first.load(Ordering::Relaxed);
    match segment.world(first).id.load(Ordering::Relaxed) {
        0 => format!("rank {rank}"),
        world => format!("rank {world}.{}", rank.peer().wrapping_sub(first)),
    }
}

/// Returns what a rank waits for, and how long it has waited; empty if it does not wait.
fn waiting(page: &RankPage) -> String {
    let Some(since) = page.wait.since() else { return String::new() };
    let long = short(sys::clock::now().saturating_sub(since), Unit::Nanoseconds);
    format!("{} ({long})", page.wait.text())
}

const COLUMNS: usize = 14;

fn line(text: &mut String, name: &str, cells: &[String; COLUMNS]) {
    const WIDTHS: [usize; COLUMNS] = [8, 10, 5, 8, 9, 9, 8, 8, 9, 8, 5, 5, 5, 0];
    let mut line = format!("{name:<10}");
    for (cell, width) in cells.iter().zip(WIDTHS) {
        write!(line, " {cell:>width$}").expect("a String takes all");
    }
    writeln!(text, "{}", line.trim_end()).expect("a String takes all");
}

/// Returns where a process may run, as text: the number of its only cpu, or in brackets how many cpus it may
/// use.
fn place(cpus: u32, first: u32) -> String {
    match cpus {
        0 => "-".into(),
        1 => first.to_string(),
        cpus => format!("({cpus})"),
    }
}

fn described(job: &RunningJob) -> Value {
    let counters = |page: &CounterPage| -> Value {
        page.values()
            .map(|(counter, value)| (counter.name().to_string(), value.into()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let shape = job.segment.shape();
    let ranks = ranks(&job.segment).map(|rank| {
        let page = job.segment.rank(rank);
        let pid = page.pid.load(Ordering::Relaxed);
        json!({"rank": rank.peer(), "pid": pid, "state": format!("{:?}", page.state()), "waiting_for": waiting(page), "counters": counters(&page.counters)})
    });
    let proxies = (0..shape.proxies).map(|proxy| {
        let page = job.segment.proxy(proxy);
        let (pid, heartbeat) = (page.pid.load(Ordering::Relaxed), page.heartbeat.load(Ordering::Relaxed));
        let state = format!("{:?}", page.state());
        json!({"proxy": proxy, "pid": pid, "state": state, "heartbeat": heartbeat, "counters": counters(&page.counters)})
    });
    json!({"job": job.pid, "ranks": ranks.collect::<Vec<_>>(), "proxies": proxies.collect::<Vec<_>>()})
}

/// The terminal while `top` uses it: keys arrive at once and are not shown. Dropping this restores the
/// terminal.
struct Screen {
    before: Option<Termios>,
}

impl Screen {
    fn open() -> Screen {
        let before = tcgetattr(std::io::stdin()).ok();
        if let Some(mut modes) = before.clone() {
            modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
            // If this fails, the user must type a return after q.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &modes);
        }
        Screen { before }
    }

    /// Shows `text` for a second. Returns false if the user has pressed q or the output has no reader any
    /// more, so that `top` ends.
    fn show(&self, text: &str) -> bool {
        let mut out = std::io::stdout();
        let clear = if out.is_terminal() { "\x1b[H\x1b[2J" } else { "" };
        if write!(out, "{clear}{text}").and_then(|()| out.flush()).is_err() {
            return false;
        }
        if self.before.is_none() {
            std::thread::sleep(Duration::from_secs(1));
            return true;
        }
        let stdin = std::io::stdin();
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&stdin.as_fd(), PollFlags::IN)], Some(&second)).unwrap_or(0) == 0 {
            return true;
        }
        let mut key = [0];
        let read = rustix::io::read(&stdin, &mut key).unwrap_or(0);
        // q, Ctrl-C, Ctrl-D, or the end of the terminal's input.
        read == 1 && !matches!(key[0], b'q' | 3 | 4)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::shm::Shape;

    /// Returns the text in the column `column` of rank 0's line.
    fn cell(table: &str, column: &str) -> String {
        let words = |line: usize| table.lines().nth(line).unwrap().split_whitespace();
        // The name in front has two words.
        let at = words(1).position(|word| word == column).unwrap() + 2;
        words(2).nth(at).unwrap().to_string()
    }

    #[test]
    fn a_long_wait_is_a_share_of_each_second_that_it_lasts() {
        let (segment, _fd) = Segment::create(Shape { ranks: 1, proxies: 0, arena_bytes: 1 << 20 }).unwrap();
        segment.world(0).size.store(1, Ordering::Relaxed);
        let job = RunningJob { pid: 1, segment };
        let (page, now) = (job.segment.rank(job.segment.require(0).unwrap()), sys::clock::now());
        page.pid.store(std::process::id(), Ordering::Relaxed);
        let sample = |at: u64| Sample { at, ..Sample::of(&job) };
        page.wait.start(now - 4_000_000_000, "MPI_Recv");
        let waiting = sample(now);
        // The wait ends half a second later, which counts its 4.5 s; the next sample is a second later.
        page.wait.end(now + 500_000_000);
        page.counters.count(Counter::WaitNs, 4_500_000_000);
        page.counters.count(Counter::EagerMessagesSent, 7);
        let text = table(&job, Some(&waiting), &sample(now + 1_000_000_000));
        assert_eq!(
            [cell(&text, "busy"), cell(&text, "wait"), cell(&text, "sends")],
            ["50%", "50%", "7"],
            "{text}"
        );
        assert!(cell(&text, "cpu%").ends_with('%'), "{text}");
    }
}
