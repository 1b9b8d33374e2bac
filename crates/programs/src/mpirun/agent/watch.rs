//! The watch over a job: what it starts, what it hears, and who lives.
//!
//! One thread, one loop: it wakes for a signal (a child's end is one, a rank's request another) or a few
//! times a second.
//!
//! Read next: `end.rs` (how it ends), `serve.rs`, `hear.rs`.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_process};
use sys::process::Process;
use sys::signal::name;

use super::end::children;
use super::foreign::{self, Suspect};
use super::guardian::Guardian;
use super::job::{Job, Member, World};
use super::start::{Place, Setup};
use crate::mpirun::command::arguments::Program;
use crate::mpirun::command::refusal::Refusal;
use crate::mpirun::place::cpus::{Plan, told};
use crate::mpirun::streams::input;
use crate::mpirun::streams::output::Forwarder;
use crate::mpirun::wire::frame::{To, Up};
use crate::mpirun::wire::statistics::Counted;
use crate::mpirun::wire::upward::{say, tell};

const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

impl Job {
    /// Starts everything, watches until all has ended, and returns the exit code.
    pub fn run(self, programs: &[Program], plan: &Plan) -> Result<u8, Refusal> {
        self.watch(|job| job.start(programs, plan))
    }

    /// Serves a program that runs already, as the only rank of its world, until it and all that it spawned
    /// have ended.
    pub fn adopt(self, pid: i32, process: Process) -> Result<u8, Refusal> {
        self.watch(|job| {
            job.worlds.push(World::new(0, 1));
            job.living.insert(pid, Member::Rank(0));
            job.adopted = Some((pid, process));
            job.used = 1;
            inherited(&job.setup)?;
            job.segment.job().adopted.store(1, Ordering::Relaxed);
            // From now on requests are answered.
            job.segment.job().launcher.store(std::process::id(), Ordering::Release);
            job.page(0).bell.ring();
            Ok(())
        })
    }

    fn watch(mut self, start: impl FnOnce(&mut Job) -> Result<(), Refusal>) -> Result<u8, Refusal> {
        sys::child::adopt_orphans()
            .map_err(|error| Refusal::other(format!("cannot be a subreaper: {error}")))?;
        let had_children = !children().is_empty();
        let guardian = Guardian::start(&self.setup.id)
            .map_err(|error| Refusal::other(format!("cannot start the guardian: {error}")))?;
        let forwarder = Forwarder::start()
            .map_err(|error| Refusal::other(format!("cannot start the output thread: {error}")))?;
        self.forwarder = Some(forwarder);
        let started = start(&mut self);
        if started.is_err() {
            self.end_all(1, libc::SIGKILL);
        }
        while self.lives(|member| matches!(member, Member::Rank(_)))
            || self.upstream.as_ref().is_some_and(|upstream| !upstream.is_closed())
        {
            self.step();
        }
        self.end_proxies();
        if self.is_dpu {
            tell(&Up::Counted { first: 0, counted: Counted::of_proxies(&self.segment) });
        }
        self.end_orphans(guardian.pid(), had_children);
        if let Some(forwarder) = self.forwarder.take() {
            forwarder.finish();
        }
        if self.upstream.is_none() {
            // Those of worlds that ended well have been told by them.
            self.worlds.iter().for_each(|world| boot::tell(&self.segment, world.first));
        }
        if let Some(file) = &self.setup.trace {
            self.merge(file);
        }
        guardian.dismiss();
        started?;
        Ok(self.failed.unwrap_or(0))
    }

    fn start(&mut self, programs: &[Program], plan: &Plan) -> Result<(), Refusal> {
        inherited(&self.setup)?;
        for (proxy, cpus) in (0..).zip(&plan.proxies) {
            let child = self.setup.start_proxy(proxy, cpus)?;
            self.living.insert(child.id() as i32, Member::Proxy(proxy));
            if self.options.verbose {
                say(&format!("proxy {proxy} is process {} on cpus {}", child.id(), told(cpus)));
            }
        }
        let size = programs.iter().map(|program| program.count).sum();
        let environment = programs.first().map(|program| program.environment.clone()).unwrap_or_default();
        self.worlds.push(World { environment, ..World::new(0, size) });
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
            let pid =
                self.start_rank(program, &Place { rank, number: rank, size, local, parents: &[] }, cpus)?;
            if suspects.len() <= index as usize {
                let program = program.words[0].to_string_lossy().into_owned();
                suspects.push(Suspect { rank, pid, program });
            }
        }
        let readers = std::mem::take(&mut self.readers);
        if !readers.is_empty() {
            let pumped = match &mut self.upstream {
                Some(upstream) => {
                    let mut pieces = upstream.take_input();
                    input::pump(readers, move |buffer: &mut [u8]| pieces.read(buffer))
                }
                None => input::terminal().and_then(|terminal| input::pump(readers, terminal)),
            };
            pumped.map_err(|error| Refusal::other(format!("cannot read input: {error}")))?;
        }
        self.show_processes();
        foreign::watch(self.segment.clone(), suspects, size)
            .map_err(|error| Refusal::other(format!("cannot start a thread: {error}")))
    }

    /// Starts a rank, and passes on what it prints; returns its pid.
    pub(super) fn start_rank(
        &mut self,
        program: &Program,
        place: &Place,
        cpus: &[usize],
    ) -> Result<i32, Refusal> {
        let (mut child, output) = self.setup.start_rank(program, place, cpus)?;
        self.living.insert(child.id() as i32, Member::Rank(place.rank));
        self.used = self.used.max(place.rank + 1);
        let name = self.segment.name(place.rank);
        let program = program.words[0].to_string_lossy();
        if self.options.verbose {
            say(&format!("{name} is process {} ({program}) on cpus {}", child.id(), told(cpus)));
        }
        if self.options.report {
            let place =
                if cpus.is_empty() { "not bound".into() } else { format!("bound to cpus {}", told(cpus)) };
            say(&format!("{name} ({program}) on {}: {place}", self.host));
        }
        let world = self.segment.world_of(self.local(place.rank)).id.load(Ordering::Relaxed);
        if let Some(forwarder) = &mut self.forwarder {
            let mut add = |pipe: Option<OwnedFd>, to| match pipe {
                Some(pipe) => forwarder.add(pipe, &self.options.style, (world, place.number), &self.host, to),
                None => Ok(()),
            };
            add(output, To::Output)
                .and_then(|()| add(child.stderr.take().map(OwnedFd::from), To::Error))
                .map_err(Refusal::other)?;
        }
        self.readers.extend(child.stdin.take());
        Ok(child.id() as i32)
    }

    /// Waits for something to happen, and acts on it.
    fn step(&mut self) {
        let mut list = vec![PollFd::new(&self.signals, PollFlags::IN)];
        list.extend(self.adopted.iter().map(|(_, process)| PollFd::new(process, PollFlags::IN)));
        list.extend(self.upstream.iter().map(|upstream| PollFd::new(upstream.woken(), PollFlags::IN)));
        // An interrupted or failed wait is followed by the next.
        let _ = poll(&mut list, Some(&TICK));
        while let Some(signal) = self.signals.next() {
            self.obey(signal);
        }
        self.reap();
        self.serve();
        self.hear();
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.deadline = None;
            let seconds = self.options.timeout.unwrap_or(0.0);
            say(&format!("the time of {seconds} s (--timeout) is over; ending the job"));
            self.explain();
            self.end_all(124, libc::SIGTERM);
        }
        for index in 0..self.worlds.len() {
            let World { first, kill_at, never_joined, .. } = self.worlds[index];
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

    pub(super) fn obey(&mut self, signal: i32) {
        match signal {
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT
                if self.worlds.iter().any(|world| world.kill_at.is_some()) =>
            {
                self.end_all(128 + signal as u8, signal);
                self.signal_ranks(Signal::KILL);
            }
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                say(&format!("got {}; ending the job", name(signal)));
                self.end_all(128 + signal as u8, signal);
            }
            libc::SIGTSTP => self.pause(),
            libc::SIGUSR1 if self.is_dpu => {}
            libc::SIGUSR1 => self.explain(),
            libc::SIGUSR2 => self.signal_ranks(Signal::USR2),
            _ => {}
        }
    }

    /// Ctrl-Z: everybody stops, we too; whoever continues us continues everybody. Proxies go on first and
    /// stop last, so that no rank takes a stopped proxy for a stalled one.
    fn pause(&self) {
        self.stop();
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
        self.go_on();
    }

    /// Stops all ranks and proxies.
    pub(super) fn stop(&self) {
        self.signal_ranks(Signal::STOP);
        self.signal_proxies(Signal::STOP);
    }

    /// Lets all ranks and proxies go on.
    pub(super) fn go_on(&self) {
        self.signal_proxies(Signal::CONT);
        self.signal_ranks(Signal::CONT);
    }
}

/// Lets children inherit the job's memory.
fn inherited(setup: &Setup) -> Result<(), Refusal> {
    sys::memory::inheritable(&setup.fd, true)
        .map_err(|error| Refusal::other(format!("cannot hand the job's memory on: {error}")))
}
