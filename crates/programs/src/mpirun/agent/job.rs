// SPDX-License-Identifier: BSD-3-Clause
//! A job as the agent of one host (the `mpirun` process there) sees it: its processes on the host, its worlds
//! (each an MPI_COMM_WORLD), and its shared memory.
//!
//! Read next: `watch.rs`.

use std::collections::HashMap;
use std::process::ChildStdin;
use std::sync::Arc;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};
use sys::process::ProcessHandle;
use sys::signal::Signals;
use transport::shm::{LocalRank, RankPage, Segment};

use super::facts::FactsKeeper;
use super::guardian::Guardian;
use super::start::Setup;
use super::upstream::Upstream;
use crate::mpirun::place::claims::Claims;
use crate::mpirun::streams::output::{Forwarder, Style};
use crate::mpirun::wire::frame::ToRoot;

/// The signals that `mpirun` handles itself instead of letting their default action happen.
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

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JobProcess {
    Rank(u32),
    Proxy(u32),
}

/// What this agent (`mpirun` on a host) knows of one MPI_COMM_WORLD. It is kept until another world gets the
/// process numbers of this one.
pub(super) struct LocalWorld {
    /// The process number of the world's rank 0 in the segment. It also names the world.
    pub first: u32,
    /// How many ranks the world has on all hosts.
    pub size: u32,
    /// The environment variables that were set for the ranks of this world, as names and values.
    pub environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// When the world's living ranks get SIGKILL. None unless the world is being ended.
    pub kill_at: Option<Instant>,
    /// The process number of the first rank that ended with exit code 0 before MPI_Init, or None if no rank
    /// did so.
    pub never_joined: Option<u32>,
    /// Whether some rank ended other than by MPI_Finalize. The shared memory of that rank cannot be trusted
    /// any more, and its process number is never given to another rank.
    pub broken: bool,
    /// Whether this spawned world has failed to start: a rank ended before all had come to MPI_Init. Only
    /// MPI_Comm_spawn fails then, and the job goes on.
    pub failed_to_start: bool,
}

impl LocalWorld {
    pub fn new(first: u32, size: u32) -> LocalWorld {
        LocalWorld {
            first,
            size,
            environment: Vec::new(),
            kill_at: None,
            never_joined: None,
            broken: false,
            failed_to_start: false,
        }
    }
}

/// The part of a job that runs on this host, as the agent (the `mpirun` process on the host) sees it.
pub struct AgentJob {
    /// How the lines that ranks print are shown: with the rank or the time in front, or written to files.
    pub(super) style: Style,
    pub(super) segment: Segment,
    pub(super) setup: Setup,
    pub(super) forwarder: Option<Forwarder>,
    pub(super) worlds: Vec<LocalWorld>,
    /// The spawned worlds of which some rank on this host has not come to MPI_Init yet. Each world is named
    /// by its first process number.
    pub(super) births: Vec<u32>,
    pub(super) signals: Arc<Signals>,
    pub(super) host: String,
    /// The process numbers of those ranks of the first world that run on this host.
    pub(super) here: Vec<u32>,
    pub(super) upstream: Upstream,
    pub(super) guardian: Option<Guardian>,
    /// Whether this process had children before the job. A shell has some when it becomes `mpirun` by `exec`.
    pub(super) had_children: bool,
    /// The cores that this job has claimed, so that other jobs keep off them. None if `mpirun` adopted a
    /// program that was already running.
    pub(super) claims: Option<Claims>,
    /// Keeps what the ranks find about their messages; None if nothing is to be kept.
    pub(super) facts: Option<FactsKeeper>,
    /// Whether this agent runs on a DPU: only proxies run here, for the ranks of another host. The segment
    /// here is then the mirror of that host's segment.
    pub(super) is_dpu: bool,
    /// The pipes to the ranks that read the job's standard input. Once all ranks have started, the thread
    /// that writes to these pipes takes them.
    pub(super) readers: Vec<ChildStdin>,
    /// The living ranks and proxies of this host, by pid.
    pub(super) living: HashMap<i32, JobProcess>,
    /// The pid and handle of a program that ran before this `mpirun` and became rank 0 of the job; it is not
    /// our child. None if `mpirun` has started the ranks itself.
    pub(super) adopted: Option<(i32, ProcessHandle)>,
    /// One more than the highest process number that a rank on this host has ever had.
    pub(super) used: u32,
    /// The exit code of this host's first failure, or None if there has been no failure here.
    pub(super) failed: Option<u8>,
    /// How many processes of our cgroup the kernel had killed for lack of memory (out-of-memory killer)
    /// before the job began.
    pub(super) oom_kills: u64,
}

impl AgentJob {
    /// Returns a job of which no process runs yet. `here`: the process numbers of the ranks of its first
    /// world that are to run on this host.
    pub fn new(
        segment: Segment,
        signals: Arc<Signals>,
        setup: Setup,
        here: Vec<u32>,
        upstream: Upstream,
    ) -> AgentJob {
        AgentJob {
            style: Style::of(&setup.global),
            segment,
            setup,
            forwarder: None,
            worlds: Vec::new(),
            births: Vec::new(),
            signals,
            host: sys::host::name(),
            here,
            upstream,
            guardian: None,
            had_children: false,
            claims: None,
            facts: None,
            is_dpu: false,
            readers: Vec::new(),
            living: HashMap::new(),
            adopted: None,
            used: 0,
            failed: None,
            oom_kills: sys::limits::oom_kills().unwrap_or(0),
        }
    }

    /// Sends a frame (a message between an agent and the root) to the job's root (`mpirun`).
    pub(super) fn send(&self, frame: ToRoot) {
        self.upstream.uplink.send(frame);
    }

    /// Has the job's root (`mpirun`) print `sentence` as a line of its own for the user.
    pub(super) fn say(&self, sentence: &str) {
        self.upstream.uplink.say(sentence);
    }

    /// Returns the living ranks of this host in ascending order: process number and pid.
    pub(super) fn living_ranks(&self) -> Vec<(u32, i32)> {
        let mut ranks: Vec<(u32, i32)> = self
            .living
            .iter()
            .filter_map(
                |(pid, member)| if let JobProcess::Rank(rank) = member { Some((*rank, *pid)) } else { None },
            )
            .collect();
        ranks.sort_unstable();
        ranks
    }

    /// Returns process number `rank` as an index into this host's segment. Panics if the segment has no such
    /// rank, which the agent never asks for.
    pub(super) fn local(&self, rank: u32) -> LocalRank {
        self.segment.local(rank).expect("a launcher gives away only places of its segment")
    }

    /// Returns the page of process number `rank` in shared memory, in which the rank keeps its state.
    pub(super) fn page(&self, rank: u32) -> &RankPage {
        self.segment.rank(self.local(rank))
    }

    /// Writes the programs and pids of the ranks into the table that parallel debuggers read
    /// (`sys::debugger`).
    pub(super) fn show_processes(&self) {
        let ranks = self.living_ranks();
        let program = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let processes: Vec<(String, i32)> =
            ranks.iter().map(|(_, pid)| (program(*pid).to_string_lossy().into_owned(), *pid)).collect();
        sys::debugger::show_processes(&self.host, &processes);
    }

    pub(super) fn lives(&self, which: impl Fn(JobProcess) -> bool) -> bool {
        self.living.values().any(|member| which(*member))
    }

    pub(super) fn signal_ranks(&self, signal: Signal) {
        self.signal_group(signal, |member| matches!(member, JobProcess::Rank(_)));
    }

    pub(super) fn signal_world(&self, first: u32, signal: Signal) {
        let ranks: Vec<u32> = self.segment.members(first).map(|rank| rank.peer()).collect();
        self.signal_group(signal, |member| matches!(member, JobProcess::Rank(rank) if ranks.contains(&rank)));
    }

    pub(super) fn signal_proxies(&self, signal: Signal) {
        self.signal_group(signal, |member| matches!(member, JobProcess::Proxy(_)));
    }

    /// Sends a signal to the process groups of the living ranks and proxies for which `which` returns true. A
    /// child's pid and group stay its own until we reap it. A program that ran before this `mpirun` is not
    /// our child (`adopted`) and leads no group of ours, so the signal goes to its process only.
    fn signal_group(&self, signal: Signal, which: impl Fn(JobProcess) -> bool) {
        for (pid, _) in self.living.iter().filter(|(_, member)| which(**member)) {
            match (&self.adopted, Pid::from_raw(*pid)) {
                (Some((adopted, process)), _) if adopted == pid => drop(process.signal(signal.as_raw())),
                (_, Some(pid)) => drop(kill_process_group(pid, signal)),
                _ => {}
            }
        }
    }
}
