// SPDX-License-Identifier: BSD-3-Clause
//! The loop of an agent (the `mpirun` process on one host): it starts processes, obeys frames (messages) from
//! the job's root (`mpirun`), and sees which processes have ended.
//!
//! The loop runs in one thread. It wakes for a signal (SIGCHLD: a child has ended, or a rank has a request),
//! for a frame, and a few times a second. If the root is in the same process, the root's loop calls `step`.
//!
//! Read next: `end.rs` (how a job ends), `serve.rs`, `receive.rs`.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use sys::process::ProcessHandle;
use sys::signal::name;

use super::end::children;
use super::foreign::{self, Suspect};
use super::guardian::Guardian;
use super::job::{AgentJob, JobProcess, LocalWorld};
use super::start::{RankPlacement, Setup};
use crate::mpirun::command::arguments::RankProgram;
use crate::mpirun::command::say::Refusal;
use crate::mpirun::place::cpus::{CorePlan, listed};
use crate::mpirun::streams::input;
use crate::mpirun::streams::output::Forwarder;
use crate::mpirun::wire::frame::{OutputStream, ToRoot};
use crate::mpirun::wire::statistics::Counted;
use crate::mpirun::wire::trace;

const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

impl AgentJob {
    /// Starts the ranks and proxies of this host. If one of them cannot be started, reports that to the job's
    /// root (`mpirun`), and ends the job.
    pub fn start(&mut self, programs: &[RankProgram], plan: &CorePlan) -> Result<(), Refusal> {
        self.open()?;
        if let Err(Refusal { message, code }) = self.start_all(programs, plan) {
            let is_here = self.upstream.is_here();
            let sentence = if is_here { message } else { format!("host {}: {message}", self.host) };
            self.send(ToRoot::Failed { worlds: vec![0], sentence, code });
            self.end_all(code, libc::SIGKILL);
        }
        Ok(())
    }

    /// Makes the program that runs already with this pid the only rank of its world, and from then on serves
    /// the program's requests.
    pub fn adopt(&mut self, pid: i32, process: ProcessHandle) -> Result<(), Refusal> {
        self.open()?;
        self.worlds.push(LocalWorld::new(0, 1));
        self.living.insert(pid, JobProcess::Rank(0));
        self.adopted = Some((pid, process));
        self.used = 1;
        inherited(&self.setup)?;
        self.segment.job().adopted.store(1, Ordering::Relaxed);
        // From now on requests are answered.
        self.segment.job().launcher.store(std::process::id(), Ordering::Release);
        self.page(0).bell.ring();
        Ok(())
    }

    /// Starts what the job needs before its first process: the guardian (`guardian.rs`), and the thread that
    /// forwards output.
    fn open(&mut self) -> Result<(), Refusal> {
        sys::child::adopt_orphans()
            .map_err(|error| Refusal::other(format!("cannot be a subreaper: {error}")))?;
        self.had_children = !children().is_empty();
        let guardian = Guardian::start(&self.setup.id)
            .map_err(|error| Refusal::other(format!("cannot start the guardian: {error}")))?;
        self.guardian = Some(guardian);
        let forwarder = Forwarder::start(self.upstream.uplink.clone(), self.upstream.is_here())
            .map_err(|error| Refusal::other(format!("cannot start the output thread: {error}")))?;
        self.forwarder = Some(forwarder);
        Ok(())
    }

    /// Runs the agent's loop if the job's root (`mpirun`) is in another process. The loop ends when no rank
    /// lives here and the root has said that the job ends. Returns the exit code of this host.
    pub fn watch(mut self) -> u8 {
        while !self.is_over() {
            let mut list = vec![PollFd::new(&*self.signals, PollFlags::IN)];
            list.extend(self.upstream.woken().map(|woken| PollFd::new(woken, PollFlags::IN)));
            // An interrupted or failed wait is followed by the next.
            let _ = poll(&mut list, Some(&TICK));
            while let Some(signal) = self.signals.next() {
                self.obey(signal);
            }
            self.step();
        }
        self.finish()
    }

    /// Whether no rank lives on this host, and the job's root (`mpirun`) has said that no more will start.
    pub fn is_over(&self) -> bool {
        self.upstream.is_closed && !self.lives(|member| matches!(member, JobProcess::Rank(_)))
    }

    /// Returns the handle of the adopted program, a rank that is not our child: no SIGCHLD comes when it
    /// ends. None if `mpirun` started the ranks itself.
    pub fn adopted(&self) -> Option<&ProcessHandle> {
        self.adopted.as_ref().map(|(_, process)| process)
    }

    /// Makes one round of the agent's loop: handles what has happened on this host, then the frames
    /// (messages) from the job's root (`mpirun`). Returns whether there were frames.
    pub fn step(&mut self) -> bool {
        self.reap();
        // First, so that the root knows which ranks have ended when it looks for free ranks.
        self.report_changes();
        self.serve();
        let has_received = self.receive_frames();
        self.check_worlds();
        has_received
    }

    /// Ends the proxies and the processes that ranks left behind, and sends the last reports. It is called
    /// once no rank lives any more. Returns the exit code of this host.
    pub fn finish(mut self) -> u8 {
        self.end_proxies();
        if self.is_dpu {
            self.send(ToRoot::Counted { first: 0, counted: Counted::of_proxies(&self.segment) });
        }
        self.end_orphans();
        if let Some(facts) = self.facts.take().filter(|_| self.failed.is_none()) {
            facts.store(&self.segment);
        }
        if let Some(forwarder) = self.forwarder.take() {
            forwarder.finish();
        }
        if let Some(file) = &self.setup.trace {
            trace::take(file, &self.segment, self.used).for_each(|part| self.send(ToRoot::Traced(part)));
        }
        self.guardian.take().into_iter().for_each(Guardian::dismiss);
        self.failed.unwrap_or(0)
    }

    fn start_all(&mut self, programs: &[RankProgram], plan: &CorePlan) -> Result<(), Refusal> {
        inherited(&self.setup)?;
        for (proxy, cpus) in (0..).zip(&plan.proxies) {
            let child = self.setup.start_proxy(proxy, cpus)?;
            self.living.insert(child.id() as i32, JobProcess::Proxy(proxy));
            if self.setup.global.verbose {
                self.say(&format!("proxy {proxy} is process {} on cpus {}", child.id(), listed(cpus)));
            }
        }
        let size = programs.iter().map(|program| program.count).sum();
        let environment = programs.first().map(|program| program.environment.clone()).unwrap_or_default();
        self.worlds.push(LocalWorld { environment, ..LocalWorld::new(0, size) });
        let all: Vec<_> = (0..)
            .zip(programs)
            .flat_map(|(index, program)| (0..program.count).map(move |_| (index, program)))
            .collect();
        let mut suspects = Vec::new();
        for (local_rank, cpus) in plan.ranks.iter().enumerate() {
            let rank = self.here[local_rank];
            let (index, program) = all[rank as usize];
            self.page(rank).application.store(index, Ordering::Relaxed);
            let local = (local_rank as u32, self.here.len() as u32);
            let pid = self.start_rank(
                program,
                &RankPlacement { rank, number: rank, size, local, parents: &[] },
                cpus,
            )?;
            if suspects.len() <= index as usize {
                let program = program.words[0].to_string_lossy().into_owned();
                suspects.push(Suspect { rank, pid, program });
            }
        }
        let readers = std::mem::take(&mut self.readers);
        if !readers.is_empty() {
            let pumped = if self.upstream.is_here() {
                input::terminal().and_then(|terminal| input::pump(readers, terminal))
            } else {
                let mut pieces = self.upstream.take_input();
                input::pump(readers, move |buffer: &mut [u8]| pieces.read(buffer))
            };
            pumped.map_err(|error| Refusal::other(format!("cannot read input: {error}")))?;
        }
        self.show_processes();
        foreign::watch(self.segment.clone(), suspects, size, self.upstream.uplink.clone())
            .map_err(|error| Refusal::other(format!("cannot start a thread: {error}")))
    }

    /// Starts a rank, and has the output thread forward what it prints. Returns the rank's pid.
    pub(super) fn start_rank(
        &mut self,
        program: &RankProgram,
        placement: &RankPlacement,
        cpus: &[usize],
    ) -> Result<i32, Refusal> {
        let (mut child, output) = self.setup.start_rank(program, placement, cpus)?;
        self.living.insert(child.id() as i32, JobProcess::Rank(placement.rank));
        self.used = self.used.max(placement.rank + 1);
        let name = self.segment.name(placement.rank);
        let program = program.words[0].to_string_lossy();
        if self.setup.global.verbose {
            self.say(&format!("{name} is process {} ({program}) on cpus {}", child.id(), listed(cpus)));
        }
        if self.setup.global.report_bindings {
            let placement =
                if cpus.is_empty() { "not bound".into() } else { format!("bound to cpus {}", listed(cpus)) };
            self.say(&format!("{name} ({program}) on {}: {placement}", self.host));
        }
        let world = self.segment.world_of(self.local(placement.rank)).id.load(Ordering::Relaxed);
        if let Some(forwarder) = &mut self.forwarder {
            let mut add = |pipe: Option<OwnedFd>, to| match pipe {
                Some(pipe) => forwarder.add(pipe, &self.style, (world, placement.number), &self.host, to),
                None => Ok(()),
            };
            add(output, OutputStream::Output)
                .and_then(|()| add(child.stderr.take().map(OwnedFd::from), OutputStream::Error))
                .map_err(Refusal::other)?;
        }
        self.readers.extend(child.stdin.take());
        Ok(child.id() as i32)
    }

    /// Ends each world in which a rank has called MPI_Abort, or in which a rank has ended without MPI_Init
    /// while others wait for it. Sends SIGKILL to the ranks of ending worlds when their time after SIGTERM is
    /// over.
    fn check_worlds(&mut self) {
        let now = Instant::now();
        for index in 0..self.worlds.len() {
            let LocalWorld { first, kill_at, never_joined, .. } = self.worlds[index];
            if kill_at.is_none() {
                if self.segment.world(first).aborted().is_some() {
                    self.report_abort(first);
                } else if let Some(rank) = never_joined
                    && self.segment.world(first).born.count() > 0
                {
                    let sentence = format!(
                        "rank {rank} ended without MPI_Init, in which other ranks wait; ending the job"
                    );
                    self.report(first, sentence, 1);
                }
            }
            if kill_at.is_some_and(|at| now >= at) {
                self.signal_world(first, Signal::KILL);
            }
        }
    }

    /// Carries out what a signal asks for: one that this process got, or one that the job's root (`mpirun`)
    /// passed on by a frame (message).
    pub(super) fn obey(&mut self, signal: i32) {
        match signal {
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT
                if self.worlds.iter().any(|world| world.kill_at.is_some()) =>
            {
                self.end_all(128 + signal as u8, signal);
                self.signal_ranks(Signal::KILL);
            }
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                self.say(&format!("got {}; ending the job", name(signal)));
                self.end_all(128 + signal as u8, signal);
            }
            libc::SIGUSR1 if self.is_dpu => {}
            libc::SIGUSR1 => self.explain(),
            libc::SIGUSR2 => self.signal_ranks(Signal::USR2),
            _ => {}
        }
    }

    /// Stops all ranks and proxies (SIGSTOP). Proxies stop last and continue first, so that no rank takes a
    /// stopped proxy for one that hangs.
    pub(super) fn stop(&self) {
        self.signal_ranks(Signal::STOP);
        self.signal_proxies(Signal::STOP);
    }

    /// Lets all ranks and proxies that `stop` has stopped continue (SIGCONT).
    pub(super) fn go_on(&self) {
        self.signal_proxies(Signal::CONT);
        self.signal_ranks(Signal::CONT);
    }
}

/// Makes the descriptor of the job's segment inheritable, so that ranks and proxies get it.
fn inherited(setup: &Setup) -> Result<(), Refusal> {
    sys::memory::inheritable(&setup.fd, true)
        .map_err(|error| Refusal::other(format!("cannot hand the job's memory on: {error}")))
}
