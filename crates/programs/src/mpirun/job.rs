//! The watch over a job: who lives, who has failed, and how it all ends.
//!
//! One thread, one loop: it wakes for a signal (a child's end is one) or a few times a second. The first failure decides
//! the exit code. To end a job, its ranks get SIGTERM and, half a second later, SIGKILL; what they had started and left
//! behind becomes our child (we are a subreaper) and is killed as such, so no pid is ever guessed.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait};
use sys::signal::{Signals, name};
use transport::shm::{Segment, State};

use super::arguments::Arguments;
use super::cpus::{Plan, told};
use super::guardian::Guardian;
use super::output::{Forwarder, To};
use super::start::{Refusal, Setup};
use super::{input, say, trace};

/// The signals that `mpirun` takes over.
pub const SIGNALS: &[i32] = &[
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// From the request to end until SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// What proxies get to end by themselves once all ranks have gone: they write their traces then.
const PROXY_GRACE: Duration = Duration::from_millis(1000);
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Rank(u32),
    Proxy(u32),
}

/// A running job.
pub struct Job<'a> {
    arguments: &'a Arguments,
    segment: Segment,
    signals: Signals,
    host: String,
    deadline: Option<Instant>,
    living: HashMap<i32, Member>,
    /// The exit code of the first failure.
    failed: Option<u8>,
    /// When those who still live will be killed: the job is being ended.
    kill_at: Option<Instant>,
    /// A rank that ended well without ever joining the job.
    never_joined: Option<u32>,
    pipes: Vec<(OwnedFd, u32, To)>,
}

impl<'a> Job<'a> {
    /// A job of which nothing runs yet.
    pub fn new(arguments: &'a Arguments, segment: Segment, signals: Signals) -> Job<'a> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let seconds = arguments.global.timeout.filter(|seconds| *seconds >= 0.0);
        let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Job {
            arguments,
            segment,
            signals,
            host: host.trim().to_string(),
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            living: HashMap::new(),
            failed: None,
            kill_at: None,
            never_joined: None,
            pipes: Vec::new(),
        }
    }

    /// Starts everything, watches until all has ended, and returns the exit code.
    pub fn run(mut self, setup: &Setup, plan: &Plan) -> Result<u8, Refusal> {
        sys::child::adopt_orphans()
            .map_err(|error| Refusal::other(format!("cannot be a subreaper: {error}")))?;
        let guardian = Guardian::start()
            .map_err(|error| Refusal::other(format!("cannot start the guardian: {error}")))?;
        let started = self.start(setup, plan);
        if started.is_err() {
            self.end(1, libc::SIGKILL);
        }
        let pipes = std::mem::take(&mut self.pipes);
        let forwarder = Forwarder::start(pipes, self.arguments.global.label)
            .map_err(|error| Refusal::other(format!("cannot start the output thread: {error}")));
        if forwarder.is_err() {
            self.end(1, libc::SIGKILL);
        }
        while self.lives(|member| matches!(member, Member::Rank(_))) {
            self.step();
        }
        self.end_proxies();
        self.end_orphans(guardian.pid());
        forwarder?.finish();
        if let Some(file) = &setup.trace {
            self.merge(file);
        }
        guardian.dismiss();
        started?;
        Ok(self.failed.unwrap_or(0))
    }

    fn start(&mut self, setup: &Setup, plan: &Plan) -> Result<(), Refusal> {
        sys::memory::inheritable(&setup.fd, true)
            .map_err(|error| Refusal::other(format!("cannot hand the job's memory on: {error}")))?;
        let verbose = self.arguments.global.verbose;
        for (proxy, cpus) in (0..).zip(&plan.proxies) {
            let child = setup.start_proxy(proxy, cpus)?;
            self.living.insert(child.id() as i32, Member::Proxy(proxy));
            if verbose {
                say(&format!("proxy {proxy} is process {} on cpus {}", child.id(), told(cpus)));
            }
        }
        let arguments = self.arguments;
        let programs = arguments.programs.iter().flat_map(|program| (0..program.count).map(move |_| program));
        for ((rank, cpus), program) in (0..).zip(&plan.ranks).zip(programs) {
            let mut child = setup.start_rank(program, rank, cpus)?;
            self.living.insert(child.id() as i32, Member::Rank(rank));
            if verbose {
                let name = program.words[0].to_string_lossy();
                say(&format!("rank {rank} is process {} ({name}) on cpus {}", child.id(), told(cpus)));
            }
            self.pipes.extend(child.stdout.take().map(|pipe| (pipe.into(), rank, To::Output)));
            self.pipes.extend(child.stderr.take().map(|pipe| (pipe.into(), rank, To::Error)));
            if let Some(pipe) = child.stdin.take() {
                input::pump(pipe).map_err(|error| Refusal::other(format!("cannot read input: {error}")))?;
            }
        }
        Ok(())
    }

    /// Waits for something to happen, and acts on it.
    fn step(&mut self) {
        // An interrupted or failed wait is followed by the next.
        let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&TICK));
        while let Some(signal) = self.signals.next() {
            self.obey(signal);
        }
        self.reap();
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.deadline = None;
            let seconds = self.arguments.global.timeout.unwrap_or(0.0);
            self.report(format!("the time of {seconds} s (--timeout) is over; ending the job"), 124);
        }
        if self.kill_at.is_none() {
            if let Some((rank, code)) = self.segment.job().aborted() {
                self.report_abort(rank, code);
            } else if let Some(rank) = self.never_joined
                && (0..self.segment.shape().ranks)
                    .any(|rank| self.segment.rank(rank).state() == State::Running)
            {
                let sentence =
                    format!("rank {rank} ended without MPI_Init, in which other ranks wait; ending the job");
                self.report(sentence, 1);
            }
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.signal_ranks(Signal::KILL);
        }
    }

    fn obey(&mut self, signal: i32) {
        match signal {
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT if self.kill_at.is_some() => {
                self.signal_ranks(Signal::KILL);
            }
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                say(&format!("got {}; ending the job", name(signal)));
                self.end(128 + signal as u8, signal);
            }
            libc::SIGTSTP => self.pause(),
            libc::SIGUSR1 => self.signal_ranks(Signal::USR1),
            libc::SIGUSR2 => self.signal_ranks(Signal::USR2),
            _ => {}
        }
    }

    /// Ctrl-Z: everybody stops, we too; whoever continues us continues everybody. Proxies go on first and stop last, so
    /// that no rank takes a stopped proxy for a stalled one.
    fn pause(&self) {
        self.signal_ranks(Signal::STOP);
        self.signal_proxies(Signal::STOP);
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
        self.signal_proxies(Signal::CONT);
        self.signal_ranks(Signal::CONT);
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            match self.living.remove(&pid) {
                Some(Member::Rank(rank)) => self.rank_ended(rank, pid, status),
                Some(Member::Proxy(proxy)) => self.proxy_ended(proxy, pid, status),
                // A descendant that we adopted.
                None => {}
            }
        }
    }

    fn rank_ended(&mut self, rank: u32, pid: i32, status: WaitStatus) {
        let page = self.segment.rank(rank);
        let state = page.state();
        if state != State::Finalized {
            page.set_state(State::Dead);
        }
        if self.kill_at.is_some() {
            return;
        }
        if let Some((rank, code)) = self.segment.job().aborted() {
            return self.report_abort(rank, code);
        }
        let who = format!("rank {rank} (pid {pid} on {})", self.host);
        let code = status.exit_status().unwrap_or(0);
        if let Some(signal) = status.terminating_signal() {
            let sentence = format!("{who} was killed by signal {signal} ({}); ending the job", name(signal));
            self.report(sentence, 128 + signal as u8);
        } else if state == State::Running {
            let sentence = format!("{who} exited with code {code} without MPI_Finalize; ending the job");
            self.report(sentence, if code == 0 { 1 } else { code as u8 });
        } else if code != 0 && state == State::Finalized {
            // Its own affair: the others end as they would.
            self.failed.get_or_insert(code as u8);
        } else if code != 0 {
            self.report(format!("{who} exited with code {code}; ending the job"), code as u8);
        } else if state == State::Unborn {
            self.never_joined.get_or_insert(rank);
        }
    }

    /// A proxy's death costs nothing but speed: ranks carry its operations on.
    fn proxy_ended(&mut self, proxy: u32, pid: i32, status: WaitStatus) {
        let shape = self.segment.shape();
        let page = self.segment.proxy(proxy);
        if page.state() == State::Finalized && status.exit_status() == Some(0) {
            return;
        }
        page.set_state(State::Dead);
        (0..shape.ranks).for_each(|rank| self.segment.rank(rank).bell.ring());
        // A rank that kills a stalled proxy says so itself.
        let fenced = page.scalars[executor::FENCED].load(Ordering::Relaxed) != 0;
        if fenced || self.kill_at.is_some() || !self.lives(|member| matches!(member, Member::Rank(_))) {
            return;
        }
        let how = match status.terminating_signal() {
            Some(signal) => format!("was killed by signal {signal} ({})", name(signal)),
            None => format!("exited with code {}", status.exit_status().unwrap_or(0)),
        };
        say(&format!("proxy {proxy} (pid {pid} on {}) {how}; its ranks go on without it", self.host));
    }

    fn report_abort(&mut self, rank: u32, code: i32) {
        let pid = self.segment.rank(rank.min(self.segment.shape().ranks - 1)).pid.load(Ordering::Relaxed);
        let what = if self.segment.job().failed() { "had a fatal error of" } else { "called MPI_Abort with" };
        let sentence = format!("rank {rank} (pid {pid} on {}) {what} code {code}; ending the job", self.host);
        self.report(sentence, if code & 0xff == 0 { 1 } else { code as u8 });
    }

    /// Prints why the job is ended, and ends it.
    fn report(&mut self, sentence: String, code: u8) {
        if self.kill_at.is_none() {
            say(&sentence);
        }
        self.end(code, libc::SIGTERM);
    }

    /// Begins to end the job: `signal` now, SIGKILL after [`GRACE`].
    fn end(&mut self, code: u8, signal: i32) {
        self.failed.get_or_insert(code);
        if self.kill_at.is_none() {
            self.kill_at = Some(Instant::now() + GRACE);
            if let Some(signal) = Signal::from_named_raw(signal) {
                self.signal_ranks(signal);
            }
        }
    }

    fn end_proxies(&mut self) {
        let kill_at = Instant::now() + PROXY_GRACE;
        (0..self.segment.shape().proxies).for_each(|proxy| self.segment.proxy(proxy).bell.ring());
        if self.failed.is_some() {
            // Ranks that did not leave by MPI_Finalize leave proxies waiting.
            self.signal_proxies(Signal::TERM);
        }
        while self.lives(|_| true) {
            if Instant::now() >= kill_at {
                self.signal_proxies(Signal::KILL);
            }
            let short = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&short));
            while self.signals.next().is_some() {}
            self.reap();
        }
    }

    /// Kills what ranks had started and left behind. Being our children now, their pids cannot be anybody else's.
    fn end_orphans(&mut self, guardian: i32) {
        // The death of a parent makes its children ours, so it is over when a round finds nobody.
        for _ in 0..1000 {
            let orphans: Vec<i32> = children().into_iter().filter(|pid| *pid != guardian).collect();
            if orphans.is_empty() {
                return;
            }
            for pid in orphans.into_iter().filter_map(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(1));
            self.reap();
        }
    }

    fn merge(&self, file: &std::path::Path) {
        let shape = self.segment.shape();
        match trace::merge(file, shape.ranks, shape.proxies) {
            Ok(0) => {}
            Ok(missing) => {
                say(&format!("the trace lacks {missing} processes that did not end by MPI_Finalize"))
            }
            Err(error) => say(&format!("cannot write the trace {}: {error}", file.display())),
        }
    }

    fn lives(&self, which: impl Fn(Member) -> bool) -> bool {
        self.living.values().any(|member| which(*member))
    }

    fn signal_ranks(&self, signal: Signal) {
        self.signal_group(signal, |member| matches!(member, Member::Rank(_)));
    }

    fn signal_proxies(&self, signal: Signal) {
        self.signal_group(signal, |member| matches!(member, Member::Proxy(_)));
    }

    /// Signals the process groups of our living children: not reaped yet, their pids and groups are theirs.
    fn signal_group(&self, signal: Signal, which: impl Fn(Member) -> bool) {
        for (pid, _) in self.living.iter().filter(|(_, member)| which(**member)) {
            if let Some(pid) = Pid::from_raw(*pid) {
                let _ = kill_process_group(pid, signal);
            }
        }
    }
}

/// The children of this process, adopted ones and those not reaped yet included.
fn children() -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .collect()
}
