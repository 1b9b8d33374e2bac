// SPDX-License-Identifier: BSD-3-Clause
//! A job as the launcher of a host sees it: its processes, its worlds, its memory.
//!
//! Read next: `watch.rs`.

use std::collections::HashMap;
use std::process::ChildStdin;
use std::sync::Arc;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};
use sys::process::Process;
use sys::signal::Signals;
use transport::shm::{LocalRank, RankPage, Segment};

use super::guardian::Guardian;
use super::start::Setup;
use super::upstream::Upstream;
use crate::mpirun::place::claims::Claims;
use crate::mpirun::streams::output::{Forwarder, Style};
use crate::mpirun::wire::frame::Up;

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

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    Rank(u32),
    Proxy(u32),
}

/// The processes of one MPI_COMM_WORLD, as long as their places in the segment are taken.
pub(super) struct World {
    /// Its first rank in the segment.
    pub first: u32,
    /// Its ranks.
    pub size: u32,
    /// The variables that were set for it.
    pub environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// When those who still live will be killed: the world is being ended.
    pub kill_at: Option<Instant>,
    /// A rank that ended well without ever joining the job.
    pub never_joined: Option<u32>,
    /// Some rank left other than by MPI_Finalize, so that what it shared cannot be trusted, and its place is
    /// never used again.
    pub broken: bool,
    /// A spawned rank ended before all had been born: the spawn has failed, nothing else.
    pub stillborn: bool,
}

impl World {
    pub fn new(first: u32, size: u32) -> World {
        World {
            first,
            size,
            environment: Vec::new(),
            kill_at: None,
            never_joined: None,
            broken: false,
            stillborn: false,
        }
    }
}

/// The part of a job that runs on a host.
pub struct Job {
    /// How lines of output are shown.
    pub(super) style: Style,
    pub(super) segment: Segment,
    pub(super) setup: Setup,
    pub(super) forwarder: Option<Forwarder>,
    pub(super) worlds: Vec<World>,
    /// The first ranks of spawned worlds of which not all processes have come.
    pub(super) births: Vec<u32>,
    pub(super) signals: Arc<Signals>,
    pub(super) host: String,
    /// The ranks of the first world that run here.
    pub(super) here: Vec<u32>,
    pub(super) upstream: Upstream,
    pub(super) guardian: Option<Guardian>,
    /// Whether this process had children before the job.
    pub(super) had_children: bool,
    /// The cores that other jobs keep off.
    pub(super) claims: Option<Claims>,
    /// Whether only proxies run here, for the ranks of another host, whose segment this one mirrors.
    pub(super) is_dpu: bool,
    /// Of ranks that read what we pass on, until all have started.
    pub(super) readers: Vec<ChildStdin>,
    pub(super) living: HashMap<i32, Member>,
    /// A rank that was there before us: the program for which we were started. Not our child.
    pub(super) adopted: Option<(i32, Process)>,
    /// Ranks of the segment that were ever used.
    pub(super) used: u32,
    /// The exit code of the first failure.
    pub(super) failed: Option<u8>,
    /// Processes of our cgroup that the kernel had killed for want of memory before.
    pub(super) oom_kills: u64,
}

impl Job {
    /// A job of which nothing runs yet; `here` are the ranks of its first world that are to run on this host.
    pub fn new(
        segment: Segment,
        signals: Arc<Signals>,
        setup: Setup,
        here: Vec<u32>,
        upstream: Upstream,
    ) -> Job {
        Job {
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
            is_dpu: false,
            readers: Vec::new(),
            living: HashMap::new(),
            adopted: None,
            used: 0,
            failed: None,
            oom_kills: sys::limits::oom_kills().unwrap_or(0),
        }
    }

    /// Tells the root something.
    pub(super) fn tell(&self, frame: Up) {
        self.upstream.way.tell(frame);
    }

    /// Has the root print a line.
    pub(super) fn say(&self, sentence: &str) {
        self.upstream.way.say(sentence);
    }

    /// The ranks that live, and their processes.
    pub(super) fn living_ranks(&self) -> Vec<(u32, i32)> {
        let mut ranks: Vec<(u32, i32)> = self
            .living
            .iter()
            .filter_map(
                |(pid, member)| if let Member::Rank(rank) = member { Some((*rank, *pid)) } else { None },
            )
            .collect();
        ranks.sort_unstable();
        ranks
    }

    /// The place of a rank that this launcher has given away.
    pub(super) fn local(&self, rank: u32) -> LocalRank {
        self.segment.local(rank).expect("a launcher gives away only places of its segment")
    }

    /// The page of such a rank.
    pub(super) fn page(&self, rank: u32) -> &RankPage {
        self.segment.rank(self.local(rank))
    }

    /// Shows debuggers where the ranks are.
    pub(super) fn show_processes(&self) {
        let ranks = self.living_ranks();
        let program = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let processes: Vec<(String, i32)> =
            ranks.iter().map(|(_, pid)| (program(*pid).to_string_lossy().into_owned(), *pid)).collect();
        sys::debugger::show_processes(&self.host, &processes);
    }

    pub(super) fn lives(&self, which: impl Fn(Member) -> bool) -> bool {
        self.living.values().any(|member| which(*member))
    }

    pub(super) fn signal_ranks(&self, signal: Signal) {
        self.signal_group(signal, |member| matches!(member, Member::Rank(_)));
    }

    pub(super) fn signal_world(&self, first: u32, signal: Signal) {
        let ranks: Vec<u32> = self.segment.members(first).map(|rank| rank.peer()).collect();
        self.signal_group(signal, |member| matches!(member, Member::Rank(rank) if ranks.contains(&rank)));
    }

    pub(super) fn signal_proxies(&self, signal: Signal) {
        self.signal_group(signal, |member| matches!(member, Member::Proxy(_)));
    }

    /// Signals the process groups of our living children: not reaped yet, their pids and groups are theirs.
    /// Of a program that we were started for, only the process itself, as it does not lead a group of ours.
    fn signal_group(&self, signal: Signal, which: impl Fn(Member) -> bool) {
        for (pid, _) in self.living.iter().filter(|(_, member)| which(**member)) {
            match (&self.adopted, Pid::from_raw(*pid)) {
                (Some((adopted, process)), _) if adopted == pid => drop(process.signal(signal.as_raw())),
                (_, Some(pid)) => drop(kill_process_group(pid, signal)),
                _ => {}
            }
        }
    }
}
