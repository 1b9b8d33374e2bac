//! `mpirun` of a job on several hosts: it starts an agent on each, passes on what they say to each other, and
//! ends with them.
//!
//! An agent is spoken to over the standard input and output of the command that reaches its host; so nothing
//! listens anywhere. The agent of this machine is a child of ours.
//!
//! Invariants: the first failure decides the exit code, and ends the job on all hosts; an agent that is
//! silent for [`SILENCE`] has failed.
//!
//! Read next: `wire/link.rs`, `wire/frame.rs`, `agent/mod.rs`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use error::{Class, fail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use rustix::process::{Signal, kill_process};
use sys::signal::{Signals, name};

use super::agents::{Agent, Frames};
use super::world::SpreadWorld;
use crate::mpirun::agent::start::Setup;
use crate::mpirun::command::arguments::Arguments;
use crate::mpirun::command::refusal::Refusal;
use crate::mpirun::command::variables;
use crate::mpirun::place::hosts::{self, Placement};
use crate::mpirun::place::places::Places;
use crate::mpirun::streams::input;
use crate::mpirun::wire::frame::{Down, Node, Start, Up};
use crate::mpirun::wire::launch::{AGENT, Launch, Member};
use crate::mpirun::wire::link::{Event, Link, Listener};
use crate::mpirun::wire::trace::{self, Part};
use crate::mpirun::wire::upward::{PULSE, SILENCE, STANDSTILL, say};

/// How long an agent may take to start.
const START: Duration = Duration::from_secs(60);
/// What agents get to end their ranks, what those have left behind, and themselves.
const END: Duration = Duration::from_secs(12);
/// How long the last lines of a command that has ended may take.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long the address of a host may take to be found.
const LOOKUP: Duration = Duration::from_secs(10);
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Standard input that is under way to the ranks, in bytes.
const INPUT_BYTES_MAX: usize = 256 << 10;
/// Lines that a launcher's command printed last.
const LINES_MAX: usize = 4;

/// Standard input that ranks have not taken yet.
type Credit = Arc<(Mutex<usize>, Condvar)>;

pub(super) struct Root<'a> {
    arguments: &'a Arguments,
    pub(super) agents: Vec<Agent>,
    links: Vec<Link>,
    launch: Launch,
    /// What the agents are to do, but for the number of their node.
    pub(super) start: Start,
    /// Whether all agents of the first world have started: no rank runs in a job that lacks a host.
    has_begun: bool,
    /// Where ranks are placed next.
    pub(super) placement: Placement,
    pub(super) places: Places,
    pub(super) worlds: Vec<SpreadWorld>,
    /// The nodes of ranks that wait for a world's birth.
    pub(super) askers: HashMap<u32, usize>,
    /// The names of all endpoints, for agents that come later.
    pub(super) names: HashMap<u32, Vec<u8>>,
    events: Receiver<(usize, Event)>,
    listener: Listener,
    woken: OwnedFd,
    signals: Signals,
    /// Where the trace goes, and what has come of it.
    trace: Option<PathBuf>,
    parts: Vec<Part>,
    timeout: Option<(f64, Instant)>,
    looked: Instant,
    pulse: Instant,
    /// The exit code of the first failure.
    pub(super) failed: Option<u8>,
    /// When agents that have not ended are given up.
    end_at: Option<Instant>,
    credit: Credit,
}

/// Runs a job on several hosts, and returns the exit code.
pub fn launch(arguments: &Arguments, signals: Signals) -> Result<u8, Refusal> {
    let (woken, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|error| Refusal::other(format!("cannot make a pipe: {error}")))?;
    let (sender, events) = channel();
    let now = Instant::now();
    let seconds = arguments.global.timeout.filter(|seconds| *seconds >= 0.0);
    let deadline = |seconds| Some((seconds, now.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?));
    let settings = variables::settings(&arguments.global)?;
    let number =
        || sys::host::secret().map_err(|error| Refusal::other(format!("cannot make a secret: {error}")));
    let placement = arguments.placement.clone();
    let start = Start {
        node: 0,
        node_of: placement.node_of.clone(),
        dpus: placement.dpus.clone(),
        secret: number()?,
        job: number()? | 1,
        environment: std::env::vars_os().collect(),
        directory: std::env::current_dir().unwrap_or_default(),
        global: arguments.global.clone(),
        programs: arguments.programs.clone(),
        libraries: crate::tables::find(&settings.tuning).map_err(Refusal::other)?.tuning.libraries(),
        universe: Some(arguments.slots).filter(|slots| *slots > arguments.ranks()),
        nodes: Vec::new(),
    };
    let mut root = Root {
        arguments,
        agents: Vec::new(),
        links: Vec::new(),
        launch: Launch::of(&arguments.global, settings.launch_fanout),
        has_begun: false,
        places: Places::new(
            arguments.ranks() + settings.spawn_ranks_max as u32,
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
        signals,
        trace: Setup::trace_path(&settings, None),
        parts: Vec::new(),
        timeout: seconds.and_then(deadline),
        looked: now,
        pulse: now,
        failed: None,
        end_at: None,
        credit: Credit::default(),
    };
    if let Err(error) = root.start_agents() {
        root.give_up();
        return Err(Refusal::other(error.message.clone()));
    }
    Ok(root.run())
}

/// A host's address, at which the other hosts find it. `Err`: a sentence.
fn address(name: &str, placement: &Placement) -> Result<String, String> {
    let own = sys::host::name();
    if placement.nodes.iter().all(|name| hosts::is_here(name, &own))
        && placement.dealt.iter().all(|(hosts, _)| hosts.are_here())
    {
        let alone = placement.nodes.len() == 1;
        return Ok(if alone { String::new() } else { Ipv4Addr::LOCALHOST.to_string() });
    }
    // The name under which others may know this machine.
    let name = if name == "localhost" { own.as_str() } else { name };
    let host = name.rsplit_once('@').map_or(name, |(_, host)| host);
    let unknown = |why: String| format!("the address of host {name} is not known here: {why}");
    let found = lookup(host).map_err(unknown)?;
    let outside = found.iter().find(|address| !address.is_loopback());
    let Some(address) = outside.or(found.first()) else { return Err(format!("host {name} has no address")) };
    if address.is_loopback() {
        return Err(format!(
            "host {name} has the address {address}, where no other host reaches it: name it by another address"
        ));
    }
    Ok(address.to_string())
}

/// The addresses of a host, unless finding them takes so long that agents would take us for dead.
fn lookup(host: &str) -> Result<Vec<IpAddr>, String> {
    let (sender, found) = channel();
    let host = host.to_owned();
    let look = move || {
        let addresses = (host.as_str(), 0).to_socket_addrs();
        let addresses = addresses.map(|all| all.map(|address| address.ip()).collect());
        // Nobody may listen any more.
        let _ = sender.send(addresses.map_err(|error| error.to_string()));
    };
    std::thread::Builder::new().name("lookup".into()).spawn(look).map_err(|error| error.to_string())?;
    let late = |_| Err(format!("no answer within {} s", LOOKUP.as_secs()));
    found.recv_timeout(LOOKUP).unwrap_or_else(late)
}

impl Root<'_> {
    /// Starts an agent on each host of the placement that has none.
    pub(super) fn start_agents(&mut self) -> error::Result<()> {
        let before = self.agents.len();
        let started = self.find_addresses(before).and_then(|()| self.start_links(before));
        if let Err(sentence) = started {
            // A spawn that fails leaves nothing behind.
            self.placement.nodes.truncate(self.agents.len());
            self.start.nodes.truncate(self.agents.len());
            fail!(Class::Spawn, "{sentence}");
        }
        if self.has_begun {
            for index in before..self.agents.len() {
                self.send_start(index);
                self.catch_up(index);
            }
        }
        Ok(())
    }

    fn find_addresses(&mut self, before: usize) -> Result<(), String> {
        for name in &self.placement.nodes[before..] {
            let address = address(name, &self.placement)?;
            let address = self.reachable(name, address)?;
            self.start.nodes.push(Node { name: name.clone(), address });
        }
        Ok(())
    }

    fn start_links(&mut self, before: usize) -> Result<(), String> {
        let names = (0..).zip(&self.placement.nodes).skip(before);
        let members: Vec<Member> =
            names.map(|(node, name)| Member { node, name: self.launch.name(name) }).collect();
        for group in self.launch.groups(&members) {
            let link = Link::to(&self.launch, group, &self.listener).map_err(|refusal| refusal.message)?;
            for member in group {
                let name = &self.placement.nodes[member.node as usize];
                let command = self.launch.command(&member.name, AGENT);
                let mut told = format!("{command:?}").replace('"', "");
                if member.node != group[0].node {
                    told = format!("{told} (by host {})", group[0].name);
                }
                if self.arguments.global.verbose {
                    say(&format!("node {} is host {name}: {told}", member.node));
                }
                self.agents.push(Agent::new(name.clone(), member.node, told, self.links.len(), &link));
            }
            self.links.push(link);
        }
        Ok(())
    }

    /// The address of a host, unless the ranks that run already have been told addresses of this machine
    /// only.
    fn reachable(&self, name: &str, address: String) -> Result<String, String> {
        let is_within = |address: &str| address.is_empty() || address == Ipv4Addr::LOCALHOST.to_string();
        if !is_within(&address) && self.start.nodes.iter().any(|node| is_within(&node.address)) {
            return Err(format!(
                "host {name} is another machine than this, to which alone mpirun was given: name it by mpirun -hosts"
            ));
        }
        Ok(address)
    }

    fn send_start(&mut self, index: usize) {
        let start = Start { node: index as u32, ..self.start.clone() };
        self.agents[index].send(Down::Start(Box::new(start)));
    }

    fn run(mut self) -> u8 {
        while !self.agents.iter().all(Agent::is_over) {
            let mut list =
                [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
            // An interrupted or failed wait is followed by the next.
            let _ = poll(&mut list, Some(&TICK));
            while let Some(signal) = self.signals.next() {
                self.obey(signal);
            }
            let _ = rustix::io::read(&self.woken, &mut [0; 256]);
            while let Ok((index, event)) = self.events.try_recv() {
                self.hear(index, event);
            }
            self.look_at_clock();
            if self.end_at.is_some_and(|at| Instant::now() >= at) {
                break;
            }
        }
        self.give_up();
        self.worlds.iter_mut().for_each(SpreadWorld::tell);
        if let Some(file) = self.trace.take() {
            trace::write_all(&file, std::mem::take(&mut self.parts), say);
        }
        self.failed.unwrap_or(0)
    }

    fn hear(&mut self, index: usize, event: Event) {
        let now = Instant::now();
        let agent = &mut self.agents[index];
        agent.heard = now;
        match event {
            Event::Greeted(build) if build != boot::BUILD => {
                let sentence = format!(
                    "host {} has another build of Outboard, {build:016x}; this is {:016x}: all hosts must have the same",
                    agent.name,
                    boot::BUILD
                );
                self.fail(&sentence, 1);
            }
            Event::Greeted(_) => {
                agent.has_started = true;
                if self.has_begun {
                    agent.open();
                } else if self.agents.iter().all(|agent| agent.has_started) {
                    self.start_ranks();
                }
            }
            Event::Line(line) if agent.has_started => eprintln!("{line}"),
            Event::Line(line) => {
                agent.lines.push(line);
                if agent.lines.len() > LINES_MAX {
                    agent.lines.remove(0);
                }
            }
            Event::SaidAll => agent.has_said_all = true,
            Event::Closed(ended) => self.closed(index, &ended),
            Event::Said(frame) => self.hear_frame(index, frame),
        }
    }

    fn start_ranks(&mut self) {
        self.has_begun = true;
        for index in 0..self.agents.len() {
            self.send_start(index);
            self.agents[index].open();
        }
        if let Err(refusal) = self.read_input() {
            self.fail(&refusal.message, refusal.code);
        }
    }

    /// Before the job has begun, agents understand nothing.
    pub(super) fn send_all(&mut self, frame: &Down) {
        if self.has_begun {
            self.agents.iter_mut().for_each(|agent| agent.send(frame.clone()));
        }
    }

    fn hear_frame(&mut self, index: usize, frame: Up) {
        match frame {
            Up::Names(names) => {
                self.names.extend(names.iter().cloned());
                let others = self.agents.iter_mut().enumerate().filter(|(other, _)| *other != index);
                others.for_each(|(_, agent)| agent.send(Down::Names(names.clone())));
            }
            Up::Closed(ports) => {
                let others = self.agents.iter_mut().enumerate().filter(|(other, _)| *other != index);
                others.for_each(|(_, agent)| agent.send(Down::Closed(ports.clone())));
            }
            Up::Arrived { first, arrivals } => self.arrived(index, first, arrivals),
            Up::Ask { rank, request } => self.asked(index, rank, &request),
            Up::Born { first } => self.born(index, first),
            Up::Stillborn { first, sentence } => self.stillborn(first, sentence),
            Up::Connected { first, to } => self.connected(index, first, to),
            Up::Counted { first, counted } => self.counted(first, counted),
            Up::Traced(part) => self.parts.push(part),
            Up::Over { first, is_broken } => self.over(index, first, is_broken),
            Up::Said(sentence) if self.agents.len() > 1 => {
                let name = &self.agents[index].name;
                say(&format!("[{name}] {sentence}"));
            }
            Up::Said(sentence) => say(&sentence),
            Up::Taken(bytes) => {
                let (under_way, changed) = &*self.credit;
                let mut under_way = under_way.lock().unwrap_or_else(PoisonError::into_inner);
                *under_way = under_way.saturating_sub(bytes as usize);
                changed.notify_all();
            }
            Up::Failed { worlds, sentence, code } => {
                if self.end_at.is_some() || !self.fail_some(&worlds, &sentence, code) {
                    self.fail(&sentence, code);
                }
            }
            Up::Done { code } => {
                self.agents[index].done = Some(code);
                if self.is_dpu(index) {
                    if self.end_at.is_none() && !self.worlds.iter().all(SpreadWorld::is_over) {
                        self.lose_dpu(index, &format!("ended (code {code})"));
                    }
                } else if code != 0 && self.worlds.iter().all(SpreadWorld::is_over) {
                    self.failed.get_or_insert(code);
                } else if code != 0 {
                    // What a rank did was told before; a batch system may have ended the ranks there.
                    let name = &self.agents[index].name;
                    let sentence =
                        format!("the ranks on host {name} were ended there (code {code}); ending the job");
                    self.fail(&sentence, code);
                }
            }
            Up::Stopped => {
                self.agents[index].is_stopped = true;
                self.stop_if_all_have();
            }
            Up::Output(..) | Up::Alive => {}
        }
    }

    /// An agent says nothing more; if it has not ended well, that ends the job.
    fn closed(&mut self, index: usize, ended: &str) {
        let agent = &mut self.agents[index];
        let was_closed = std::mem::replace(&mut agent.is_closed, true);
        if was_closed || agent.done.is_some() || self.end_at.is_some() {
            return;
        }
        let later = self.hear_last_lines(index);
        let sentence = self.why_closed(index, ended);
        if self.agents[index].has_started && self.is_dpu(index) {
            self.lose_dpu(index, ended);
        } else if self.agents[index].has_started || !self.is_stillborn_with(index, &sentence) {
            self.fail(&sentence, 1);
        }
        later.into_iter().for_each(|(other, event)| self.hear(other, event));
    }

    /// What an agent's command said last may come later than its end, and a process that it left may hold the
    /// stream open. Returns what else happened meanwhile: others may have ended with it.
    fn hear_last_lines(&mut self, index: usize) -> Vec<(usize, Event)> {
        let (until, mut later) = (Instant::now() + LAST_LINES, Vec::new());
        while !self.agents[index].has_said_all
            && let Ok((other, event)) = self.events.recv_timeout(until.duration_since(Instant::now()))
        {
            match event {
                Event::Line(_) | Event::SaidAll if other == index => self.hear(other, event),
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

    /// Ends the job; the first time with a sentence.
    fn fail(&mut self, sentence: &str, code: u8) {
        if self.end_at.is_none() {
            say(sentence);
        }
        self.end(libc::SIGTERM, code);
    }

    fn end(&mut self, signal: i32, code: u8) {
        self.failed.get_or_insert(code);
        self.end_at.get_or_insert_with(|| Instant::now() + END);
        if self.has_begun {
            self.send_all(&Down::Close { signal, code });
        } else {
            self.links.iter().for_each(Link::kill);
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
                // We stop when all have said that they have; otherwise the frame might stay here.
                self.send_all(&Down::Stop);
            }
            libc::SIGUSR1 | libc::SIGUSR2 => self.send_all(&Down::Signal(signal)),
            _ => {}
        }
    }

    /// Ctrl-Z: when all ranks have stopped, so do we; whoever continues us continues everybody.
    fn stop_if_all_have(&mut self) {
        if !self.agents.iter().all(|agent| agent.is_stopped || agent.is_over()) {
            return;
        }
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
        let now = Instant::now();
        for agent in &mut self.agents {
            (agent.is_stopped, agent.heard) = (false, now);
            agent.send(Down::Continue);
        }
    }

    fn look_at_clock(&mut self) {
        let now = Instant::now();
        let gap = now.duration_since(std::mem::replace(&mut self.looked, now));
        if gap > STANDSTILL {
            self.agents.iter_mut().for_each(|agent| agent.heard += gap);
        }
        if now.duration_since(self.pulse) > PULSE {
            self.pulse = now;
            self.send_all(&Down::Alive);
        }
        if let Some((seconds, _)) = self.timeout.take_if(|(_, at)| now >= *at) {
            say(&format!("the time of {seconds} s (--timeout) is over; ending the job"));
            self.send_all(&Down::Signal(libc::SIGUSR1));
            self.end(libc::SIGTERM, 124);
        }
        if self.end_at.is_some() {
            return;
        }
        let late = |agent: &&Agent| !agent.has_started && now.duration_since(agent.begun) > START;
        let silent = |agent: &&Agent| {
            let is_printing = self.links[agent.link].is_printing.load(Ordering::Relaxed);
            !agent.is_over() && !is_printing && now.duration_since(agent.heard) > SILENCE
        };
        let sentence = if let Some(agent) = self.agents.iter().find(late) {
            Some(format!(
                "no agent has started on host {} within {} s by {}",
                agent.name,
                START.as_secs(),
                agent.command
            ))
        } else {
            let is_silent = |agent: &Agent| self.has_begun && agent.has_started && silent(&agent);
            let index = self.agents.iter().position(is_silent);
            if let Some(index) = index.filter(|index| self.is_dpu(*index)) {
                self.agents[index].is_closed = true;
                return self.lose_dpu(index, &format!("silent for {} s", SILENCE.as_secs()));
            }
            index.map(|index| &self.agents[index]).map(|agent| {
                format!("host {} has been silent for {} s; ending the job", agent.name, SILENCE.as_secs())
            })
        };
        if let Some(sentence) = sentence {
            self.fail(&sentence, 1);
        }
    }

    /// Passes our standard input on to the agents of those that read it, in a thread that is never waited
    /// for.
    fn read_input(&self) -> Result<(), Refusal> {
        let reads = |node: u32| {
            let mut ranks = (0..).zip(&self.start.node_of);
            ranks.any(|(rank, of)| *of == node && self.start.global.stdin.has(rank))
        };
        let readers = (0..).zip(&self.agents).filter(|(node, _)| reads(*node));
        let frames: Vec<Frames> = readers.map(|(_, agent)| agent.frames.clone()).collect();
        if frames.is_empty() {
            return Ok(());
        }
        let credit = self.credit.clone();
        let terminal =
            input::terminal().map_err(|error| Refusal::other(format!("cannot read input: {error}")))?;
        let copy = move || {
            // An agent that has ended needs no input.
            let send =
                |bytes: &[u8]| frames.iter().for_each(|frames| frames.send(Down::Input(bytes.to_vec())));
            input::copy(terminal, |bytes| {
                let (under_way, changed) = &*credit;
                let mut under_way = under_way.lock().unwrap_or_else(PoisonError::into_inner);
                *under_way += bytes.len() * frames.len();
                send(bytes);
                while *under_way > INPUT_BYTES_MAX {
                    under_way = changed.wait(under_way).unwrap_or_else(PoisonError::into_inner);
                }
                true
            });
            send(&[]);
        };
        let thread = std::thread::Builder::new().name("input".into()).spawn(copy);
        thread.map(drop).map_err(|error| Refusal::other(format!("cannot start a thread: {error}")))
    }

    /// Ends the commands of agents that have not ended, and takes leave of the others.
    fn give_up(&mut self) {
        for agent in &mut self.agents {
            if agent.done.is_none() && !agent.is_closed {
                if agent.has_started {
                    say(&format!("host {} does not answer; what it runs may be left there", agent.name));
                }
                self.links[agent.link].kill();
            }
        }
        self.agents.clear();
        self.links.drain(..).for_each(Link::close);
    }
}
