// SPDX-License-Identifier: BSD-3-Clause
//! How a job ends on a host: what follows when a rank or proxy has ended, and how the remaining processes are
//! ended.
//!
//! The first failure decides the exit code. To end a world (an MPI_COMM_WORLD) and the worlds connected with
//! it, the agent (the `mpirun` process on the host) sends their ranks SIGTERM and, half a second later,
//! SIGKILL. Processes that ranks started and left behind become children of the agent (a subreaper): it never
//! guesses a pid. After a failure the agent ends these processes; otherwise they go on. Children that a shell
//! had before it became `mpirun` (`exec mpirun`) are left alone.
//!
//! Read next: `job.rs`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use objects::constants::ERROR_CLASSES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use sys::process::ProcessHandle;
use sys::signal::name;
use transport::shm::{EndCause, State};

use super::guardian::{Guardian, carries};
use super::job::{AgentJob, JobProcess, LocalWorld};
use crate::mpirun::wire::frame::ToRoot;

/// How long after SIGTERM the ranks of a failed world (an MPI_COMM_WORLD) get SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// How long proxies may go on after the last rank has ended, to write their traces. Then they get SIGKILL.
const PROXY_GRACE: Duration = Duration::from_millis(1000);

/// How long after SIGTERM processes that ranks had started and left behind get SIGKILL.
const ORPHAN_GRACE: Duration = Duration::from_secs(5);

/// How the process of a rank ended, as the system call `wait` says.
struct RankExit {
    /// The exit code. None if a signal killed the process, or if it is not a child of this process.
    code: Option<i32>,
    /// The signal that killed the process. None if the process exited, or is not a child of this process.
    signal: Option<i32>,
}

impl AgentJob {
    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            match self.living.remove(&pid) {
                Some(JobProcess::Rank(rank)) => {
                    let exit = RankExit { code: status.exit_status(), signal: status.terminating_signal() };
                    self.rank_ended(rank, pid, &exit);
                }
                Some(JobProcess::Proxy(proxy)) => self.proxy_ended(proxy, pid, status),
                // A descendant that became our child.
                None => {}
            }
        }
        let ended =
            |(_, process): &mut (i32, ProcessHandle)| process.ended(Some(Duration::ZERO)).unwrap_or(true);
        if let Some((pid, _)) = self.adopted.take_if(ended)
            && self.living.remove(&pid).is_some()
        {
            self.rank_ended(0, pid, &RankExit { code: None, signal: None });
        }
    }

    /// Returns the world to which process number `rank` belongs, or None if this agent (`mpirun` on a host)
    /// has forgotten the world.
    fn world_of(&mut self, rank: u32) -> Option<&mut LocalWorld> {
        let first = self.page(rank).first.load(Ordering::Relaxed);
        self.worlds.iter_mut().find(|world| world.first == first)
    }

    fn rank_ended(&mut self, rank: u32, pid: i32, exit: &RankExit) {
        let page = self.page(rank);
        let (state, first) = (page.state(), page.first.load(Ordering::Relaxed));
        if state != State::Finalized {
            page.set_state(State::Dead);
        }
        let name_of = self.segment.name(rank);
        let spawned = self.segment.world(first).id.load(Ordering::Relaxed) != 0;
        let Some(world) = self.world_of(rank) else { return };
        if world.kill_at.is_some() || world.failed_to_start {
            world.broken |= state == State::Running && !world.failed_to_start;
            return;
        }
        if spawned && state == State::Unborn {
            let number = rank - first;
            return self
                .spawn_failed(first, format!("process {number} of the started ones ended before MPI_Init"));
        }
        world.broken |= state != State::Finalized;
        if self.segment.world(first).aborted().is_some() {
            return self.report_abort(first);
        }
        let who = format!("{name_of} (pid {pid} on {})", self.host);
        if let Some(signal) = exit.signal {
            let sentence = format!(
                "{who} was killed by signal {signal} ({}){}; ending the job",
                name(signal),
                self.want_of_memory(signal)
            );
            return self.report(first, sentence, 128 + signal as u8);
        }
        let Some(code) = exit.code else {
            if state == State::Running {
                self.report(first, format!("{who} ended without MPI_Finalize; ending the job"), 1);
            }
            return;
        };
        if state == State::Running {
            let sentence = format!("{who} exited with code {code} without MPI_Finalize; ending the job");
            self.report(first, sentence, if code == 0 { 1 } else { code as u8 });
        } else if code != 0 && state == State::Finalized {
            // The exit code is the rank's own affair after MPI_Finalize: the other ranks end as they would.
            self.failed.get_or_insert(code as u8);
        } else if code != 0 {
            self.report(first, format!("{who} exited with code {code}; ending the job"), code as u8);
        } else if state == State::Unborn
            && let Some(world) = self.world_of(rank)
        {
            world.never_joined.get_or_insert(rank);
        }
    }

    /// Returns " by the kernel: ..." if the kernel killed a process because memory ran out. Returns an empty
    /// text if `signal` had another cause.
    fn want_of_memory(&self, signal: i32) -> String {
        if signal != libc::SIGKILL || sys::limits::oom_kills().is_none_or(|kills| kills <= self.oom_kills) {
            return String::new();
        }
        match sys::limits::cgroup_bytes() {
            Some(bytes) => {
                format!(" by the kernel: its cgroup has no more than {} MiB of memory", bytes >> 20)
            }
            None => " by the kernel: the machine has no memory left".into(),
        }
    }

    /// Marks an ended proxy as dead, and wakes all ranks here: each continues by itself the collectives that
    /// the proxy was carrying out for it.
    fn proxy_ended(&mut self, proxy: u32, pid: i32, status: WaitStatus) {
        let page = self.segment.proxy(proxy);
        if self.segment.proxies_are_servers() {
            let endpoint = self.segment.proxy_endpoint(proxy);
            self.segment.set_endpoint(endpoint, &[]);
            self.send(ToRoot::Names(vec![(endpoint, Vec::new())]));
        }
        if page.state() == State::Finalized && status.exit_status() == Some(0) {
            return;
        }
        page.set_state(State::Dead);
        self.living_ranks().iter().for_each(|(rank, _)| self.page(*rank).bell.ring());
        // A rank that kills a stalled proxy prints a line itself.
        let fenced = page.fenced.load(Ordering::Relaxed) != 0;
        let ending = self.worlds.iter().any(|world| world.kill_at.is_some());
        if fenced || ending || !self.is_dpu && !self.lives(|member| matches!(member, JobProcess::Rank(_))) {
            return;
        }
        let how = match status.terminating_signal() {
            Some(signal) => {
                format!("was killed by signal {signal} ({}){}", name(signal), self.want_of_memory(signal))
            }
            None => format!("exited with code {}", status.exit_status().unwrap_or(0)),
        };
        self.say(&format!("proxy {proxy} (pid {pid} on {}) {how}; its ranks go on without it", self.host));
    }

    pub(super) fn report_abort(&mut self, first: u32) {
        let world = self.segment.world(first);
        let Some((rank, code)) = world.aborted() else { return };
        let pid = self.page(rank.min(self.segment.shape().ranks - 1)).pid.load(Ordering::Relaxed);
        let (failed, what) = match world.cause() {
            Some(EndCause::Error) => (true, "had a fatal error of"),
            Some(EndCause::Exit) => (false, "ends all with"),
            _ => (false, "called MPI_Abort with"),
        };
        // The code of a fatal error is a class of the standard, unless the program added it.
        let class = ERROR_CLASSES.iter().find(|(number, _)| failed && *number == code);
        let class = class.map_or(String::new(), |(_, class)| format!(" ({class})"));
        let name = self.segment.name(rank);
        let sentence =
            format!("{name} (pid {pid} on {}) {what} code {code}{class}; ending the job", self.host);
        let code = world.exit_code().unwrap_or(1);
        self.report(first, sentence, code);
    }

    /// Reports to the job's root (`mpirun`) that the world whose first process number is `first`, and all
    /// worlds connected with it, must end. `sentence` says why. Also ends the ranks of these worlds on this
    /// host.
    pub(super) fn report(&mut self, first: u32, sentence: String, code: u8) {
        let connected = self.segment.connected(first);
        let ending = |world: &LocalWorld| connected.contains(&world.first) && world.kill_at.is_some();
        if !self.worlds.iter().any(ending) {
            // The first failure of this host decides its exit code.
            let code = self.failed.unwrap_or(code);
            self.send(ToRoot::Failed { worlds: connected.clone(), sentence, code });
        }
        self.end(&connected, code, libc::SIGTERM);
    }

    /// Sends `signal` to this host's ranks of the worlds `worlds`, and sees to it that ranks which still live
    /// get SIGKILL [`GRACE`] later. `code` becomes this host's exit code unless it has one already.
    pub(super) fn end(&mut self, worlds: &[u32], code: u8, signal: i32) {
        self.failed.get_or_insert(code);
        sys::debugger::show_end();
        for index in 0..self.worlds.len() {
            let world = &mut self.worlds[index];
            if !worlds.contains(&world.first) || world.kill_at.is_some() {
                continue;
            }
            world.kill_at = Some(Instant::now() + GRACE);
            if let Some(signal) = Signal::from_named_raw(signal) {
                let first = world.first;
                self.signal_world(first, signal);
            }
        }
    }

    pub(super) fn end_all(&mut self, code: u8, signal: i32) {
        self.upstream.is_closed = true;
        let all: Vec<u32> = self.worlds.iter().map(|world| world.first).collect();
        self.end(&all, code, signal);
    }

    pub(super) fn end_proxies(&mut self) {
        let kill_at = Instant::now() + PROXY_GRACE;
        self.segment.job().ending.store(1, Ordering::Relaxed);
        (0..self.segment.shape().proxies).for_each(|proxy| self.segment.proxy(proxy).bell.ring());
        if self.failed.is_some() {
            // A rank that did not leave by MPI_Finalize leaves its proxy waiting.
            self.signal_proxies(Signal::TERM);
        }
        while self.lives(|_| true) {
            if Instant::now() >= kill_at {
                self.signal_proxies(Signal::KILL);
            }
            let short = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = poll(&mut [PollFd::new(&*self.signals, PollFlags::IN)], Some(&short));
            while self.signals.next().is_some() {}
            self.reap();
        }
    }

    /// After a failure, ends the processes that ranks had started and left behind, and prints their names.
    /// These processes are our children now, so no other process has their pids. Children that we had before
    /// the job go on: they lack the job's id in their environment.
    pub(super) fn end_orphans(&mut self) {
        if self.failed.is_none() {
            return;
        }
        let (id, had_children) = (self.setup.id.clone(), self.had_children);
        let guardian = self.guardian.as_ref().map(Guardian::pid);
        let is_ours = |pid: &i32| Some(*pid) != guardian && (!had_children || carries(*pid, &id));
        let mut asked: Vec<i32> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        let mut kill_at = Instant::now() + ORPHAN_GRACE;
        let give_up_at = kill_at + PROXY_GRACE;
        // When a parent dies, its children become ours; so all are ended when a round finds none.
        loop {
            self.reap();
            let orphans: Vec<i32> = children().into_iter().filter(is_ours).collect();
            let now = Instant::now();
            if orphans.is_empty() || now >= give_up_at {
                break;
            }
            for pid in orphans {
                let signal = if now >= kill_at { Signal::KILL } else { Signal::TERM };
                let is_new = !asked.contains(&pid);
                if is_new {
                    asked.push(pid);
                    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                    names.push(format!("{} (pid {pid})", name.trim_end()));
                }
                if (is_new || signal == Signal::KILL)
                    && let Some(pid) = Pid::from_raw(pid)
                {
                    let _ = kill_process(pid, signal);
                }
            }
            let short = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let _ = poll(&mut [PollFd::new(&*self.signals, PollFlags::IN)], Some(&short));
            while let Some(signal) = self.signals.next() {
                if [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal) {
                    kill_at = Instant::now();
                }
            }
        }
        if !names.is_empty() {
            let how = if Instant::now() < kill_at { "SIGTERM" } else { "SIGKILL" };
            self.say(&format!(
                "ranks on {} had left processes behind: {}; ended by {how}",
                self.host,
                names.join(", ")
            ));
        }
    }
}

/// Returns the pids of this process's children, including processes adopted as a subreaper and ended ones not
/// reaped yet.
pub(super) fn children() -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .collect()
}
