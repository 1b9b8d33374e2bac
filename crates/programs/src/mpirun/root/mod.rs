// SPDX-License-Identifier: BSD-3-Clause
//! The root of a job is the `mpirun` process that decides what happens where: the hosts and numbers of ranks,
//! spawned worlds, published names, what follows the first failure, and --timeout. It starts an agent on each
//! host, and passes frames on between agents. When all agents have ended, it ends.
//!
//! The root reaches an agent by the standard input and output of the command that started the agent, so no
//! process listens on a port. If the job has this machine only, its agent is in this process (`here.rs`), and
//! the same frames go by two queues.
//!
//! Invariants: the first failure decides the exit code, and ends the job on all hosts; an agent in another
//! process that is silent for OUTBOARD_LAUNCH_SILENCE_MS has failed.
//!
//! Read next: `here.rs`, `worlds.rs` (spawned worlds), `wire/frame.rs`, `wire/link.rs`, `agent/mod.rs`.

pub mod adopt;
mod agents;
mod clock;
mod dpus;
mod here;
mod hosts;
mod input;
mod world;
mod worlds;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use rustix::process::{Signal, kill_process};
use settings::Settings;
use sys::signal::{Signals, name};

use super::agent::job::AgentJob;
use super::agent::start::Setup;
use super::command::arguments::CommandLine;
use super::command::say::{Refusal, say};
use super::command::variables;
use super::place::hosts::Placement;
use super::place::places::ProcessNumbers;
use super::streams::input::Credit;
use super::wire::clock::Clock;
use super::wire::frame::{Start, ToAgent, ToRoot};
use super::wire::launch::AgentCommand;
use super::wire::link::{AgentEvent, AgentLink, Listener};
use super::wire::trace::{self, TracePart};
use agents::Agent;
use world::SpreadWorld;

/// How long agents have to end their ranks, the processes that ranks left behind, and themselves. Then the
/// job's root (`mpirun`) gives the agents up.
const END: Duration = Duration::from_secs(12);
/// How long the job's root (`mpirun`) waits for last lines on the standard error of an agent's command, such
/// as ssh, that has ended.
const LAST_LINES: Duration = Duration::from_secs(2);
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// How many of the latest lines are kept that an agent's command, such as ssh, wrote to standard error.
const LINES_MAX: usize = 4;

struct Root {
    agents: Vec<Agent>,
    links: Vec<AgentLink>,
    launch: AgentCommand,
    /// The frame (message) that tells an agent (`mpirun` on a host) what to start. Each agent gets a copy
    /// with its own node number.
    start: Start,
    /// Whether all agents (`mpirun` on each host) of the first world have started. No rank starts before
    /// that, because a host may be missing.
    job_has_started: bool,
    /// The hosts of the job, and the host of each rank of the first world. It also chooses the hosts of
    /// spawned ranks.
    placement: Placement,
    numbers: ProcessNumbers,
    worlds: Vec<SpreadWorld>,
    /// For each rank that waits for an answer to MPI_Comm_spawn, by its process number: the node that it is
    /// on.
    askers: HashMap<u32, usize>,
    /// The network names of all endpoints, by the endpoint's number. Agents that start later get them.
    names: HashMap<u32, Vec<u8>>,
    events: Receiver<(usize, AgentEvent)>,
    listener: Listener,
    woken: OwnedFd,
    signals: Arc<Signals>,
    /// The agent in this process. None if the job has other hosts, before this agent has started, and once it
    /// has ended.
    here: Option<AgentJob>,
    /// Whether the job has this machine only, so that its agent is in this process.
    is_here: bool,
    /// The file into which the trace is written when the job ends. None if the user wants no trace.
    trace: Option<PathBuf>,
    /// The parts of the trace that agents have sent so far, each with the index of its agent.
    parts: Vec<(usize, TracePart)>,
    /// The seconds that the user gave with `--timeout`, and when they are over. None without the option.
    timeout: Option<(f64, Instant)>,
    /// When the job's root (`mpirun`) last looked for silent agents. A long time since then means that this
    /// process was stopped itself.
    looked: Instant,
    /// When the job's root (`mpirun`) last sent the frame `Alive` to all agents.
    pulse: Instant,
    /// How long an agent may send nothing before the job's root (`mpirun`) takes its host for lost
    /// (OUTBOARD_LAUNCH_SILENCE_MS).
    silence: Duration,
    /// The exit code of the job's first failure, or None if there has been no failure.
    failed: Option<u8>,
    /// When the job's root (`mpirun`) gives up the agents that have not ended by then. None unless the job is
    /// being ended.
    end_at: Option<Instant>,
    /// How much standard input has been sent to the agents (`mpirun` on each host) and not yet been taken by
    /// ranks.
    credit: Credit,
}

/// Runs a job on all its hosts until it has ended, and returns its exit code.
pub fn launch(arguments: &CommandLine, signals: Signals) -> Result<u8, Refusal> {
    let settings = variables::settings(&arguments.global)?;
    let mut root = Root::new(arguments, &settings, signals)?;
    if arguments.is_here {
        root.start_here()?;
    } else if let Err(error) = root.start_agents() {
        root.give_up();
        return Err(Refusal::other(error.message.clone()));
    }
    Ok(root.run())
}

impl Root {
    /// Returns the root (the part of `mpirun` that decides) of a job in which no process runs yet.
    fn new(arguments: &CommandLine, settings: &Settings, signals: Signals) -> Result<Root, Refusal> {
        let (woken, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| Refusal::other(format!("cannot make a pipe: {error}")))?;
        let (sender, events) = channel();
        let now = Instant::now();
        let seconds = arguments.global.timeout.filter(|seconds| *seconds >= 0.0);
        let deadline =
            |seconds| Some((seconds, now.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?));
        let number = || {
            sys::host::random_number()
                .map_err(|error| Refusal::other(format!("cannot make a secret: {error}")))
        };
        let (placement, is_here) = (arguments.placement.clone(), arguments.is_here);
        // A single host has no other to agree with.
        let (secret, job, libraries) = match is_here {
            true => (0, None, None),
            false => {
                let found = crate::tables::find(settings).map_err(Refusal::other)?;
                (number()?, Some(number()? | 1), Some(found.tuning.libraries()))
            }
        };
        let start = Start {
            node: 0,
            node_of: placement.node_of.clone(),
            dpus: placement.dpus.clone(),
            secret,
            job,
            environment: std::env::vars_os().collect(),
            directory: std::env::current_dir().unwrap_or_default(),
            global: arguments.global.clone(),
            programs: arguments.programs.clone(),
            libraries,
            universe: Some(arguments.slots).filter(|slots| *slots > placement.node_of.len() as u32),
            nodes: Vec::new(),
        };
        Ok(Root {
            agents: Vec::new(),
            links: Vec::new(),
            launch: AgentCommand::of(&arguments.global, settings.launch_fanout),
            job_has_started: false,
            numbers: ProcessNumbers::new(
                (placement.node_of.len() as u32).saturating_add(settings.spawn_ranks_max as u32),
                placement.node_of.iter().copied(),
            ),
            worlds: vec![SpreadWorld::of_job(&placement.node_of)],
            askers: HashMap::new(),
            names: HashMap::new(),
            placement,
            start,
            events,
            listener: Listener::Root { events: sender, wake: Arc::new(wake) },
            woken,
            signals: Arc::new(signals),
            here: None,
            is_here,
            trace: Setup::trace_path(settings, None),
            parts: Vec::new(),
            timeout: seconds.and_then(deadline),
            looked: now,
            pulse: now,
            silence: Duration::from_millis(settings.launch_silence_ms),
            failed: None,
            end_at: None,
            credit: Credit::default(),
        })
    }

    fn run(mut self) -> u8 {
        while !self.agents.iter().all(Agent::is_over) {
            self.wait();
            while let Some(signal) = self.signals.next() {
                self.obey(signal);
            }
            self.check_time();
            self.receive_all();
            self.step_here();
            // The agent of this process ends by itself.
            if self.here.is_none() && self.end_at.is_some_and(|at| Instant::now() >= at) {
                break;
            }
        }
        let clocks: Vec<Clock> =
            self.agents.iter_mut().map(|agent| std::mem::take(&mut agent.clock)).collect();
        self.give_up();
        self.worlds.iter_mut().for_each(SpreadWorld::print_counted);
        if let Some(file) = self.trace.take() {
            trace::write_all(&file, std::mem::take(&mut self.parts), &clocks);
        }
        self.failed.unwrap_or(0)
    }

    /// Waits until a signal has come, an agent (`mpirun` on a host) has sent something, or the time [`TICK`]
    /// is over.
    fn wait(&self) {
        let mut list =
            vec![PollFd::new(&*self.signals, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
        let adopted = self.here.as_ref().and_then(AgentJob::adopted);
        list.extend(adopted.map(|process| PollFd::new(process, PollFlags::IN)));
        // An interrupted or failed wait is followed by the next.
        let _ = poll(&mut list, Some(&TICK));
    }

    /// Acts on all events from agents that have come. Returns whether there were any.
    fn receive_all(&mut self) -> bool {
        let _ = rustix::io::read(&self.woken, &mut [0; 256]);
        let mut has_received = false;
        while let Ok((index, event)) = self.events.try_recv() {
            self.take_event(index, event);
            has_received = true;
        }
        has_received
    }

    fn take_event(&mut self, index: usize, event: AgentEvent) {
        let now = Instant::now();
        let agent = &mut self.agents[index];
        agent.received = now;
        match event {
            AgentEvent::Greeted(build) if build != boot::BUILD => {
                let sentence = format!(
                    "host {} has another build of Outboard, {build:016x}; this is {:016x}: all hosts must have the same",
                    agent.name,
                    boot::BUILD
                );
                self.fail(&sentence, 1);
            }
            AgentEvent::Greeted(_) => {
                agent.has_started = true;
                if self.job_has_started {
                    agent.open();
                } else if self.agents.iter().all(|agent| agent.has_started) {
                    self.start_ranks();
                }
            }
            AgentEvent::Line(line) if agent.has_started => eprintln!("{line}"),
            AgentEvent::Line(line) => {
                agent.lines.push(line);
                if agent.lines.len() > LINES_MAX {
                    agent.lines.remove(0);
                }
            }
            AgentEvent::LinesEnded => agent.lines_ended = true,
            AgentEvent::Closed(ended) => self.closed(index, &ended),
            AgentEvent::Frame(frame) => self.receive_frame(index, frame),
        }
    }

    fn start_ranks(&mut self) {
        self.job_has_started = true;
        for index in 0..self.agents.len() {
            self.send_start(index);
            self.agents[index].open();
        }
        self.ask_clocks();
        if let Err(refusal) = self.read_input() {
            self.fail(&refusal.message, refusal.code);
        }
    }

    /// Sends a frame (message) to all agents (`mpirun` on each host). Does nothing before the job has
    /// started, because an agent's first frame must be `Start`.
    fn send_all(&mut self, frame: &ToAgent) {
        if self.job_has_started {
            self.agents.iter_mut().for_each(|agent| agent.send(frame.clone()));
        }
    }

    fn receive_frame(&mut self, index: usize, frame: ToRoot) {
        match frame {
            ToRoot::Names(names) => {
                self.names.extend(names.iter().cloned());
                self.send_others(index, &ToAgent::Names(names));
            }
            ToRoot::PortsClosed(ports) => self.send_others(index, &ToAgent::PortsClosed(ports)),
            ToRoot::Arrived { first, arrivals } => self.arrived(index, first, arrivals),
            ToRoot::Ask { rank, request } => self.asked(index, rank, &request),
            ToRoot::Born { first } => self.born(index, first),
            ToRoot::FailedToStart { first, sentence } => self.spawn_failed(first, sentence),
            ToRoot::Connected { first, to } => self.connected(index, first, to),
            ToRoot::Counted { first, counted } => self.counted(first, counted),
            ToRoot::Traced(part) => self.parts.push((index, part)),
            ToRoot::Clock { sent, there, back } => self.agents[index].receive_clock(sent, there, back),
            ToRoot::Over { first, is_broken } => self.over(index, first, is_broken),
            ToRoot::Print(sentence) if self.agents.len() > 1 => {
                let name = &self.agents[index].name;
                say(&format!("[{name}] {sentence}"));
            }
            ToRoot::Print(sentence) => say(&sentence),
            ToRoot::Taken(bytes) => self.credit.give_back(bytes as usize),
            ToRoot::Failed { worlds, sentence, code } => self.ranks_failed(&worlds, &sentence, code),
            ToRoot::Done { code } => self.agent_done(index, code),
            ToRoot::Stopped => {
                self.agents[index].is_stopped = true;
                self.stop_if_all_have();
            }
            ToRoot::Output(..) | ToRoot::Alive => {}
        }
    }

    /// Sends a frame (message) to all agents (`mpirun` on each host) except agent number `index`.
    fn send_others(&mut self, index: usize, frame: &ToAgent) {
        let others = self.agents.iter_mut().enumerate().filter(|(other, _)| *other != index);
        others.for_each(|(_, agent)| agent.send(frame.clone()));
    }

    /// Ends the worlds whose first process numbers are `worlds`, because of a failure on some host. If the
    /// list is empty, ends the whole job.
    fn ranks_failed(&mut self, worlds: &[u32], sentence: &str, code: u8) {
        let is_of_all = worlds.is_empty() || self.end_at.is_some();
        if is_of_all || !self.fail_some(worlds, sentence, code) {
            self.fail(sentence, code);
        }
    }

    /// Acts on the last frame (message) of agent number `index`: no process of the job is left on its node.
    /// An exit code other than 0 ends the job, unless all worlds are over or the node only ran proxies.
    fn agent_done(&mut self, index: usize, code: u8) {
        self.agents[index].done = Some(code);
        let all_are_over = self.worlds.iter().all(SpreadWorld::is_over);
        if self.is_dpu(index) {
            if self.end_at.is_none() && !all_are_over {
                self.lose_dpu(index, &format!("ended (code {code})"));
            }
        } else if code != 0 && all_are_over {
            self.failed.get_or_insert(code);
        } else if code != 0 {
            // Failures of ranks were reported before. A batch system may have ended the ranks there.
            let name = &self.agents[index].name;
            let sentence = format!("the ranks on host {name} were ended there (code {code}); ending the job");
            self.fail(&sentence, code);
        }
    }

    /// Acts on the end of the connection to agent number `index`; `ended` says how its command ended. If the
    /// agent had not reported its own end, the job ends.
    fn closed(&mut self, index: usize, ended: &str) {
        let agent = &mut self.agents[index];
        let was_closed = std::mem::replace(&mut agent.is_closed, true);
        if was_closed || agent.done.is_some() || self.end_at.is_some() {
            return;
        }
        let later = self.take_last_lines(index);
        let sentence = self.why_closed(index, ended);
        if self.agents[index].has_started && self.is_dpu(index) {
            self.lose_dpu(index, ended);
        } else if self.agents[index].has_started || !self.fails_spawns(index, &sentence) {
            self.fail(&sentence, 1);
        }
        later.into_iter().for_each(|(other, event)| self.take_event(other, event));
    }

    /// Waits for the last lines that an agent's command wrote to standard error, for [`LAST_LINES`] at most:
    /// lines may come after the command's end, and a process that the command left behind may keep the stream
    /// open. Returns all other events that came meanwhile.
    fn take_last_lines(&mut self, index: usize) -> Vec<(usize, AgentEvent)> {
        let (until, mut later) = (Instant::now() + LAST_LINES, Vec::new());
        while !self.agents[index].lines_ended
            && let Ok((other, event)) = self.events.recv_timeout(until.duration_since(Instant::now()))
        {
            match event {
                AgentEvent::Line(_) | AgentEvent::LinesEnded if other == index => {
                    self.take_event(other, event)
                }
                event => later.push((other, event)),
            }
        }
        later
    }

    fn why_closed(&self, index: usize, ended: &str) -> String {
        let agent = &self.agents[index];
        let said = match agent.lines.last() {
            Some(_) => format!(": {}", agent.lines.join("; ")),
            None => String::new(),
        };
        if agent.has_started {
            format!(
                "the connection to host {} is lost ({} {ended}){said}; ending the job",
                agent.name, agent.command
            )
        } else {
            format!("no agent could be started on host {}: {} {ended}{said}", agent.name, agent.command)
        }
    }

    /// Ends the job because of a failure. `code` becomes the job's exit code if this is the first failure.
    /// Prints `sentence` unless the job is being ended already.
    fn fail(&mut self, sentence: &str, code: u8) {
        if self.end_at.is_none() {
            say(sentence);
        }
        self.end(libc::SIGTERM, code);
    }

    fn end(&mut self, signal: i32, code: u8) {
        self.failed.get_or_insert(code);
        self.end_at.get_or_insert_with(|| Instant::now() + END);
        if self.job_has_started {
            self.send_all(&ToAgent::EndJob { signal, code });
        } else {
            self.links.iter().for_each(AgentLink::kill);
        }
    }

    fn obey(&mut self, signal: i32) {
        match signal {
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                if self.end_at.is_none() {
                    say(&format!("got {}; ending the job", name(signal)));
                }
                let again = self.end_at.is_some();
                self.end(if again { libc::SIGKILL } else { signal }, 128 + signal as u8);
            }
            libc::SIGTSTP => {
                // The root stops when all agents have answered; otherwise the frame might never leave this
                // process.
                self.send_all(&ToAgent::Stop);
            }
            libc::SIGUSR1 | libc::SIGUSR2 => self.send_all(&ToAgent::Signal(signal)),
            _ => {}
        }
    }

    /// After Ctrl-Z, stops this `mpirun` once all agents have stopped their ranks. When SIGCONT lets it go
    /// on, tells all agents to let their ranks continue.
    fn stop_if_all_have(&mut self) {
        if !self.agents.iter().all(|agent| agent.is_stopped || agent.is_over()) {
            return;
        }
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
        let now = Instant::now();
        for agent in &mut self.agents {
            (agent.is_stopped, agent.received) = (false, now);
            agent.send(ToAgent::Continue);
        }
    }

    /// Kills the commands of agents that have not ended, and closes all connections.
    fn give_up(&mut self) {
        for agent in &mut self.agents {
            if agent.done.is_none() && !agent.is_closed {
                if agent.has_started {
                    say(&format!("host {} does not answer; what it runs may be left there", agent.name));
                }
                agent.link.into_iter().for_each(|link| self.links[link].kill());
            }
        }
        self.agents.clear();
        self.links.drain(..).for_each(AgentLink::close);
    }
}
