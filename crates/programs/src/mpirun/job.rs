//! The watch over a job: who lives, who has failed, and how it all ends.
//!
//! One thread, one loop: it wakes for a signal (a child's end is one, a rank's request another) or a few times a second. The
//! first failure decides the exit code. To end a world and those connected with it, their ranks get SIGTERM and, half a second
//! later, SIGKILL; what they had started and left behind becomes our child (we are a subreaper) and is killed as such, so no
//! pid is ever guessed. Children that a shell had before it became `mpirun` (`exec mpirun`) are not ours to end.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::ChildStdin;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait};
use sys::process::Process;
use sys::signal::{Signals, name};
use transport::shm::{LocalRank, RankPage, Segment, State};

use super::agent::{self, Upstream};
use super::arguments::Program;
use super::cpus::{Plan, told};
use super::foreign::{self, Suspect};
use super::frame::Up;
use super::guardian::{Guardian, carries};
use super::output::{Forwarder, Style, To};
use super::start::{Place, Refusal, Setup};
use super::{hosts, input, say, trace};

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
pub(super) enum Member {
    Rank(u32),
    Proxy(u32),
}

/// What the command line says about the whole job.
#[derive(Default)]
pub struct Options {
    /// Seconds after which the job is ended.
    pub timeout: Option<f64>,
    /// How lines of output are shown.
    pub style: Style,
    /// Whether to say what is started where.
    pub verbose: bool,
    /// Whether to say where ranks run.
    pub report: bool,
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
    /// Some rank left other than by MPI_Finalize, so that what it shared cannot be trusted, and its place is never used again.
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

/// How a rank ended.
struct End {
    /// None for one that is not our child.
    code: Option<i32>,
    signal: Option<i32>,
}

/// A running job.
pub struct Job {
    pub(super) options: Options,
    pub(super) segment: Segment,
    pub(super) setup: Setup,
    pub(super) forwarder: Option<Forwarder>,
    pub(super) worlds: Vec<World>,
    /// Names that ranks published, and their ports.
    pub(super) names: HashMap<String, String>,
    signals: Signals,
    pub(super) host: String,
    /// The ranks of the first world that run here.
    pub(super) here: Vec<u32>,
    /// Of an agent.
    pub(super) upstream: Option<Upstream>,
    deadline: Option<Instant>,
    /// Of ranks that read what we pass on, until all have started.
    readers: Vec<ChildStdin>,
    pub(super) living: HashMap<i32, Member>,
    /// A rank that was there before us: the program for which we were started. Not our child.
    adopted: Option<(i32, Process)>,
    /// Ranks of the segment that were ever used.
    used: u32,
    /// The exit code of the first failure.
    failed: Option<u8>,
    /// Processes of our cgroup that the kernel had killed for want of memory before.
    oom_kills: u64,
}

impl Job {
    /// A job of which nothing runs yet.
    pub fn new(options: Options, segment: Segment, signals: Signals, setup: Setup, here: Vec<u32>) -> Job {
        let seconds = options.timeout.filter(|seconds| *seconds >= 0.0);
        let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Job {
            options,
            segment,
            setup,
            forwarder: None,
            worlds: Vec::new(),
            names: HashMap::new(),
            signals,
            host: hosts::own_name(),
            here,
            upstream: None,
            readers: Vec::new(),
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            living: HashMap::new(),
            adopted: None,
            used: 0,
            failed: None,
            oom_kills: sys::limits::oom_kills().unwrap_or(0),
        }
    }

    /// Starts everything, watches until all has ended, and returns the exit code.
    pub fn run(self, programs: &[Program], plan: &Plan) -> Result<u8, Refusal> {
        self.watch(|job| job.start(programs, plan))
    }

    /// Serves a program that runs already, as the only rank of its world, until it and all that it spawned have ended.
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
        while self.lives(|member| matches!(member, Member::Rank(_))) {
            self.step();
        }
        self.end_proxies();
        self.end_orphans(guardian.pid(), had_children);
        if let Some(forwarder) = self.forwarder.take() {
            forwarder.finish();
        }
        // Those of worlds that ended well have been told by them.
        self.worlds.iter().for_each(|world| boot::tell(&self.segment, world.first));
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

    /// Shows debuggers where the ranks are.
    pub(super) fn show_processes(&self) {
        let ranks = self.living_ranks();
        let program = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let processes: Vec<(String, i32)> =
            ranks.iter().map(|(_, pid)| (program(*pid).to_string_lossy().into_owned(), *pid)).collect();
        sys::debugger::show_processes(&self.host, &processes);
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
            libc::SIGUSR1 => self.explain(),
            libc::SIGUSR2 => self.signal_ranks(Signal::USR2),
            _ => {}
        }
    }

    /// Ctrl-Z: everybody stops, we too; whoever continues us continues everybody. Proxies go on first and stop last, so
    /// that no rank takes a stopped proxy for a stalled one.
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

    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            match self.living.remove(&pid) {
                Some(Member::Rank(rank)) => {
                    let end = End { code: status.exit_status(), signal: status.terminating_signal() };
                    self.rank_ended(rank, pid, &end);
                }
                Some(Member::Proxy(proxy)) => self.proxy_ended(proxy, pid, status),
                // A descendant that we adopted.
                None => {}
            }
        }
        let ended = |(_, process): &mut (i32, Process)| process.ended(Some(Duration::ZERO)).unwrap_or(true);
        if let Some((pid, _)) = self.adopted.take_if(ended)
            && self.living.remove(&pid).is_some()
        {
            self.rank_ended(0, pid, &End { code: None, signal: None });
        }
    }

    /// The place of a rank that this launcher has given away.
    pub(super) fn local(&self, rank: u32) -> LocalRank {
        self.segment.local(rank).expect("a launcher gives away only places of its segment")
    }

    /// The page of such a rank.
    pub(super) fn page(&self, rank: u32) -> &RankPage {
        self.segment.rank(self.local(rank))
    }

    /// The world of a rank.
    fn world_of(&mut self, rank: u32) -> Option<&mut World> {
        let first = self.page(rank).first.load(Ordering::Relaxed);
        self.worlds.iter_mut().find(|world| world.first == first)
    }

    fn rank_ended(&mut self, rank: u32, pid: i32, end: &End) {
        let page = self.page(rank);
        let (state, first) = (page.state(), page.first.load(Ordering::Relaxed));
        if state != State::Finalized {
            page.set_state(State::Dead);
        }
        let name_of = self.segment.name(rank);
        let spawned = self.segment.world(first).id.load(Ordering::Relaxed) != 0;
        let Some(world) = self.world_of(rank) else { return };
        if world.kill_at.is_some() || world.stillborn {
            world.broken |= state == State::Running && !world.stillborn;
            return;
        }
        if spawned && state == State::Unborn {
            self.undo(first);
            // The root of the spawn is waiting for us to find this out.
            (0..self.used).for_each(|rank| self.page(rank).bell.ring());
            return;
        }
        world.broken |= state != State::Finalized;
        if self.segment.world(first).aborted().is_some() {
            return self.report_abort(first);
        }
        let who = format!("{name_of} (pid {pid} on {})", self.host);
        if let Some(signal) = end.signal {
            let sentence = format!(
                "{who} was killed by signal {signal} ({}){}; ending the job",
                name(signal),
                self.want_of_memory(signal)
            );
            return self.report(first, sentence, 128 + signal as u8);
        }
        let Some(code) = end.code else {
            if state == State::Running {
                self.report(first, format!("{who} ended without MPI_Finalize; ending the job"), 1);
            }
            return;
        };
        if state == State::Running {
            let sentence = format!("{who} exited with code {code} without MPI_Finalize; ending the job");
            self.report(first, sentence, if code == 0 { 1 } else { code as u8 });
        } else if code != 0 && state == State::Finalized {
            // Its own affair: the others end as they would.
            self.failed.get_or_insert(code as u8);
        } else if code != 0 {
            self.report(first, format!("{who} exited with code {code}; ending the job"), code as u8);
        } else if state == State::Unborn
            && let Some(world) = self.world_of(rank)
        {
            world.never_joined.get_or_insert(rank);
        }
    }

    /// Whose SIGKILL it was, if the kernel's for want of memory.
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

    /// A proxy's death costs nothing but speed: ranks carry its operations on.
    fn proxy_ended(&mut self, proxy: u32, pid: i32, status: WaitStatus) {
        let page = self.segment.proxy(proxy);
        if page.state() == State::Finalized && status.exit_status() == Some(0) {
            return;
        }
        page.set_state(State::Dead);
        (0..self.used).for_each(|rank| self.page(rank).bell.ring());
        // A rank that kills a stalled proxy says so itself.
        let fenced = page.scalars[executor::FENCED].load(Ordering::Relaxed) != 0;
        let ending = self.worlds.iter().any(|world| world.kill_at.is_some());
        if fenced || ending || !self.lives(|member| matches!(member, Member::Rank(_))) {
            return;
        }
        let how = match status.terminating_signal() {
            Some(signal) => {
                format!("was killed by signal {signal} ({}){}", name(signal), self.want_of_memory(signal))
            }
            None => format!("exited with code {}", status.exit_status().unwrap_or(0)),
        };
        say(&format!("proxy {proxy} (pid {pid} on {}) {how}; its ranks go on without it", self.host));
    }

    fn report_abort(&mut self, first: u32) {
        let world = self.segment.world(first);
        let Some((rank, code)) = world.aborted() else { return };
        let pid = self.page(rank.min(self.segment.shape().ranks - 1)).pid.load(Ordering::Relaxed);
        let what = if world.failed() { "had a fatal error of" } else { "called MPI_Abort with" };
        let name = self.segment.name(rank);
        let sentence = format!("{name} (pid {pid} on {}) {what} code {code}; ending the job", self.host);
        self.report(first, sentence, if code & 0xff == 0 { 1 } else { code as u8 });
    }

    /// Prints why a world and those connected with it are ended, and ends them.
    fn report(&mut self, first: u32, sentence: String, code: u8) {
        let connected = self.segment.connected(first);
        let ending = |world: &World| connected.contains(&world.first) && world.kill_at.is_some();
        if !self.worlds.iter().any(ending) {
            match self.upstream {
                Some(_) => agent::tell(&Up::Failed { sentence, code }),
                None => say(&sentence),
            }
        }
        self.end(&connected, code, libc::SIGTERM);
    }

    /// Begins to end worlds: `signal` now, SIGKILL after [`GRACE`].
    fn end(&mut self, worlds: &[u32], code: u8, signal: i32) {
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
        let all: Vec<u32> = self.worlds.iter().map(|world| world.first).collect();
        self.end(&all, code, signal);
    }

    fn end_proxies(&mut self) {
        let kill_at = Instant::now() + PROXY_GRACE;
        self.segment.job().ending.store(1, Ordering::Relaxed);
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

    /// Kills what ranks had started and left behind. Being our children now, their pids cannot be anybody else's. If we
    /// `had_children` before the job, they and their orphans are told apart by the job's id.
    fn end_orphans(&mut self, guardian: i32, had_children: bool) {
        let id = self.setup.id.clone();
        let is_ours = |pid: &i32| *pid != guardian && (!had_children || carries(*pid, &id));
        // The death of a parent makes its children ours, so it is over when a round finds nobody.
        for _ in 0..1000 {
            let orphans: Vec<i32> = children().into_iter().filter(is_ours).collect();
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
        match trace::merge(file, self.used, self.segment.shape().proxies) {
            Ok(0) => {}
            Ok(missing) => say(&format!("the trace lacks {missing} processes that never came to MPI_Init")),
            Err(error) => say(&format!("cannot write the trace {}: {error}", file.display())),
        }
    }

    pub(super) fn lives(&self, which: impl Fn(Member) -> bool) -> bool {
        self.living.values().any(|member| which(*member))
    }

    fn signal_ranks(&self, signal: Signal) {
        self.signal_group(signal, |member| matches!(member, Member::Rank(_)));
    }

    pub(super) fn signal_world(&self, first: u32, signal: Signal) {
        let ranks: Vec<u32> = self.segment.members(first).map(|rank| rank.peer()).collect();
        self.signal_group(signal, |member| matches!(member, Member::Rank(rank) if ranks.contains(&rank)));
    }

    fn signal_proxies(&self, signal: Signal) {
        self.signal_group(signal, |member| matches!(member, Member::Proxy(_)));
    }

    /// Signals the process groups of our living children: not reaped yet, their pids and groups are theirs. Of a program that we
    /// were started for, only the process itself, as it does not lead a group of ours.
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

/// Lets children inherit the job's memory.
fn inherited(setup: &Setup) -> Result<(), Refusal> {
    sys::memory::inheritable(&setup.fd, true)
        .map_err(|error| Refusal::other(format!("cannot hand the job's memory on: {error}")))
}

/// The children of this process, adopted ones and those not reaped yet included.
fn children() -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .collect()
}
