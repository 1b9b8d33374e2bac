//! `mpirun` of a job on several hosts: it starts an agent on each, passes on what they say to each other, and
//! ends with them.
//!
//! An agent is started by a command that reaches its host (`--launcher`), and is spoken to over that
//! command's standard input and output; so nothing listens anywhere. The agent of this machine is a child of
//! ours.
//!
//! Invariants: the first failure decides the exit code, and ends the job on all hosts; an agent that is
//! silent for [`agent::SILENCE`] has failed.
//!
//! Read next: `frame.rs`, `agent.rs`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use rustix::process::{Signal, kill_process};
use sys::signal::{Signals, name};

use super::agent::{self, PULSE, SILENCE};
use super::allocation;
use super::arguments::{Arguments, Launcher};
use super::frame::{self, Arrivals, Down, Node, Start, Up};
use super::output::To;
use super::start::Refusal;
use super::{hosts, input, say};

/// How long an agent may take to start.
const START: Duration = Duration::from_secs(60);
/// What agents get to end their ranks and themselves.
const END: Duration = Duration::from_secs(5);
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Standard input that is under way to the ranks, in bytes.
const INPUT_BYTES_MAX: usize = 256 << 10;
/// What a launcher's command may print before the agent's greeting.
const NOISE_BYTES_MAX: usize = 64 << 10;
/// Lines that a launcher's command printed last.
const LINES_MAX: usize = 4;

/// Something that happened to an agent.
enum Event {
    /// It has started; the number of its build.
    Greeted(u64),
    /// It says something.
    Said(Up),
    /// Its command wrote a line to standard error.
    Line(String),
    /// It says nothing more.
    Closed,
}

/// An agent, seen from `mpirun`.
struct Agent {
    name: String,
    /// The command by which it was started, for people.
    command: String,
    child: Child,
    /// To its standard input.
    frames: Sender<Down>,
    /// Whether it has greeted, by an agent of our build.
    has_started: bool,
    /// Whether its ranks are stopped.
    is_stopped: bool,
    /// Whether what it says is just being printed, and a reader of ours may be slow.
    is_printing: Arc<AtomicBool>,
    /// Its exit code, once nothing of the job is left there.
    done: Option<u8>,
    is_closed: bool,
    arrived: Arrivals,
    heard: Instant,
    /// The last lines that its command wrote before it started.
    lines: Vec<String>,
}

impl Agent {
    fn send(&self, frame: Down) {
        // One that has ended is noticed elsewhere.
        let _ = self.frames.send(frame);
    }

    fn is_over(&self) -> bool {
        self.is_closed || self.done.is_some()
    }
}

/// Standard input that ranks have not taken yet.
type Credit = Arc<(Mutex<usize>, Condvar)>;

struct Root {
    agents: Vec<Agent>,
    /// What the agents are to do, until all have started: no rank runs in a job that lacks a host.
    start: Option<Start>,
    events: Receiver<(usize, Event)>,
    woken: OwnedFd,
    signals: Signals,
    timeout: Option<(f64, Instant)>,
    started: Instant,
    pulse: Instant,
    /// The exit code of the first failure.
    failed: Option<u8>,
    /// When agents that have not ended are given up.
    end_at: Option<Instant>,
    credit: Credit,
}

/// Runs a job on several hosts, and returns the exit code.
pub fn launch(arguments: &Arguments, signals: Signals) -> Result<u8, Refusal> {
    let (woken, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|error| Refusal::other(format!("cannot make a pipe: {error}")))?;
    let (sender, events) = channel();
    let waker = Waker { events: sender, wake: Arc::new(wake) };
    let now = Instant::now();
    let seconds = arguments.global.timeout.filter(|seconds| *seconds >= 0.0);
    let deadline = |seconds| Some((seconds, now.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?));
    let mut root = Root {
        agents: Vec::new(),
        start: None,
        events,
        woken,
        signals,
        timeout: seconds.and_then(deadline),
        started: now,
        pulse: now,
        failed: None,
        end_at: None,
        credit: Credit::default(),
    };
    let nodes = nodes(arguments)?;
    let start = Start {
        node: 0,
        node_of: arguments.node_of.clone(),
        secret: secret().map_err(|error| Refusal::other(format!("cannot make a secret: {error}")))?,
        environment: std::env::vars_os().collect(),
        directory: std::env::current_dir().unwrap_or_default(),
        global: arguments.global.clone(),
        programs: arguments.programs.clone(),
        universe: Some(arguments.slots).filter(|slots| *slots > arguments.ranks()),
        nodes,
    };
    for (index, node) in start.nodes.iter().enumerate() {
        match begin(arguments, &node.name, index, &waker) {
            Ok(agent) => root.agents.push(agent),
            Err(refusal) => {
                root.give_up();
                return Err(refusal);
            }
        }
    }
    root.start = Some(start);
    Ok(root.run())
}

/// The hosts with their addresses, where they must find each other.
fn nodes(arguments: &Arguments) -> Result<Vec<Node>, Refusal> {
    let alone = arguments.nodes.len() == 1;
    let own = hosts::own_name();
    let all_here = arguments.nodes.iter().all(|name| hosts::is_here(name, &own));
    let node = |name: &String| {
        if alone || all_here {
            let address = if alone { String::new() } else { Ipv4Addr::LOCALHOST.to_string() };
            return Ok(Node { name: name.clone(), address });
        }
        // The name under which others may know this machine.
        let name = if name == "localhost" { own.clone() } else { name.clone() };
        let host = name.rsplit_once('@').map_or(name.as_str(), |(_, host)| host);
        let found: Vec<IpAddr> = match (host, 0).to_socket_addrs() {
            Ok(found) => found.map(|address| address.ip()).collect(),
            Err(error) => {
                let sentence = format!("the address of host {name} is not known here: {error}");
                return Err(Refusal::other(sentence));
            }
        };
        let outside = found.iter().find(|address| !address.is_loopback());
        let Some(address) = outside.or(found.first()) else {
            return Err(Refusal::other(format!("host {name} has no address")));
        };
        if address.is_loopback() {
            return Err(Refusal::other(format!(
                "host {name} has the address {address}, where no other host reaches it: name it by another address"
            )));
        }
        Ok(Node { name: name.clone(), address: address.to_string() })
    };
    arguments.nodes.iter().map(node).collect()
}

/// A number that nobody guesses.
fn secret() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// How threads tell the one that waits.
#[derive(Clone)]
struct Waker {
    events: Sender<(usize, Event)>,
    wake: Arc<OwnedFd>,
}

impl Waker {
    fn tell(&self, index: usize, event: Event) {
        // A full pipe wakes as well.
        let _ = self.events.send((index, event));
        let _ = rustix::io::write(&self.wake, &[0]);
    }
}

/// The command that starts an agent on a host.
fn command(arguments: &Arguments, host: &str) -> Command {
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("mpirun"));
    let global = &arguments.global;
    let given = if global.launcher.is_none() { allocation::launcher_exec() } else { None };
    let launcher_exec = global.launcher_exec.clone().or(given);
    if global.launcher_exec.is_none() && hosts::is_here(host, &hosts::own_name()) {
        let mut command = Command::new(own);
        command.arg(agent::WORD);
        return command;
    }
    let in_slurm = || settings::foreign::variable("SLURM_JOB_ID").is_some();
    let launcher = match global.launcher {
        Some(launcher) => launcher,
        None if launcher_exec.is_none() && in_slurm() => Launcher::Srun,
        None => Launcher::Ssh,
    };
    let (program, options): (&str, &[&str]) = match launcher {
        Launcher::Ssh => {
            ("ssh", &["-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=5"])
        }
        Launcher::Rsh => ("rsh", &[]),
        Launcher::Srun => (
            "srun",
            &[
                "--nodes=1",
                "--ntasks=1",
                "--overlap",
                "--input=all",
                "--unbuffered",
                "--mpi=none",
                "--cpu-bind=none",
            ],
        ),
    };
    let mut command = match &launcher_exec {
        // Options of ssh mean nothing to what has its form only.
        Some(path) => Command::new(path),
        None => {
            let mut command = Command::new(program);
            command.args(options);
            command
        }
    };
    if launcher_exec.is_none() && launcher == Launcher::Srun {
        command.arg(format!("--nodelist={host}")).arg(own).arg(agent::WORD);
    } else {
        command.arg(host).arg(quoted(&own)).arg(agent::WORD);
    }
    command
}

/// A path as a remote shell takes it for one word.
fn quoted(path: &Path) -> OsString {
    match shlex::try_quote(&path.to_string_lossy()) {
        Ok(word) => word.into_owned().into(),
        Err(_) => path.into(),
    }
}

fn begin(arguments: &Arguments, host: &str, index: usize, waker: &Waker) -> Result<Agent, Refusal> {
    let mut command = command(arguments, host);
    let told = format!("{command:?}").replace('"', "");
    if arguments.global.verbose {
        say(&format!("node {index} is host {host}: {told}"));
    }
    // Ctrl-C reaches the job through us.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        Refusal::other(format!("host {host} cannot be reached: {program} cannot be started: {error}"))
    })?;
    let (Some(mut input), Some(output), Some(error)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Refusal::other("a child without its streams"));
    };
    let (frames, queue) = channel::<Down>();
    let thread = |name: &str, run: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new()
            .name(name.into())
            .spawn(run)
            .map(drop)
            .map_err(|error| Refusal::other(format!("cannot start a thread: {error}")))
    };
    let write = move || {
        for frame in queue {
            if frame::write(&mut input, &frame).is_err() {
                return;
            }
        }
    };
    let (listener, liner) = (waker.clone(), waker.clone());
    let is_printing = Arc::new(AtomicBool::new(false));
    let printing = is_printing.clone();
    thread("frames", Box::new(write))?;
    thread("agent", Box::new(move || listen(output, index, &listener, &printing)))?;
    let lines = move || {
        for line in BufReader::new(error).lines().map_while(Result::ok) {
            liner.tell(index, Event::Line(line));
        }
    };
    thread("lines", Box::new(lines))?;
    Ok(Agent {
        name: host.to_owned(),
        command: told,
        child,
        frames,
        has_started: false,
        is_stopped: false,
        is_printing,
        done: None,
        is_closed: false,
        arrived: Arrivals::default(),
        heard: Instant::now(),
        lines: Vec::new(),
    })
}

/// Hears an agent to its end.
fn listen(mut output: ChildStdout, index: usize, waker: &Waker, is_printing: &AtomicBool) {
    let mut noise = Vec::new();
    let mut byte = [0];
    let build = loop {
        if noise.len() > NOISE_BYTES_MAX || output.read_exact(&mut byte).is_err() {
            return waker.tell(index, Event::Closed);
        }
        noise.push(byte[0]);
        if let Some((_, build)) =
            frame::find_greeting(&noise[noise.len().saturating_sub(frame::GREETING_BYTES)..])
        {
            break build;
        }
    };
    waker.tell(index, Event::Greeted(build));
    let mut output = BufReader::new(output);
    while let Ok(Some(frame)) = frame::read::<Up>(&mut output) {
        if let Up::Output(to, bytes) = frame {
            // Here, so that a reader of ours that stalls keeps only this agent.
            is_printing.store(true, Ordering::Relaxed);
            show(to, &bytes);
            is_printing.store(false, Ordering::Relaxed);
        } else {
            waker.tell(index, Event::Said(frame));
        }
    }
    waker.tell(index, Event::Closed);
}

/// Waits for a command a moment: what it has started may keep it.
fn wait_briefly(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..100 {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            other => return other.ok().flatten(),
        }
    }
    None
}

/// Prints what ranks print.
fn show(to: To, bytes: &[u8]) {
    let written = match to {
        To::Output => std::io::stdout().lock().write_all(bytes).and_then(|()| std::io::stdout().flush()),
        To::Error => std::io::stderr().lock().write_all(bytes),
    };
    // Without anybody to read it there is nothing to do about it.
    let _ = written;
}

impl Root {
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
                if self.agents.iter().all(|agent| agent.has_started) {
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
            Event::Closed => self.closed(index),
            Event::Said(frame) => self.hear_frame(index, frame),
        }
    }

    fn start_ranks(&mut self) {
        let Some(start) = self.start.take() else { return };
        let now = Instant::now();
        for (node, agent) in (0..).zip(&mut self.agents) {
            agent.heard = now;
            agent.send(Down::Start(Box::new(Start { node, ..start.clone() })));
        }
        if let Err(refusal) = self.read_input(&start) {
            self.fail(&refusal.message, refusal.code);
        }
    }

    /// Before they have started, agents understand nothing.
    fn send_all(&self, frame: &Down) {
        if self.start.is_none() {
            self.agents.iter().for_each(|agent| agent.send(frame.clone()));
        }
    }

    fn hear_frame(&mut self, index: usize, frame: Up) {
        match frame {
            Up::Names(names) => {
                let others = self.agents.iter().enumerate().filter(|(other, _)| *other != index);
                others.for_each(|(_, agent)| agent.send(Down::Names(names.clone())));
            }
            Up::Arrived(arrived) => {
                self.agents[index].arrived = arrived;
                let sum = |of: fn(&Arrivals) -> u32| {
                    self.agents.iter().map(|agent| of(&agent.arrived)).sum::<u32>()
                };
                let total = Arrivals { born: sum(|it| it.born), leaving: sum(|it| it.leaving) };
                for agent in &self.agents {
                    agent.send(Down::Arrived(Arrivals {
                        born: total.born - agent.arrived.born,
                        leaving: total.leaving - agent.arrived.leaving,
                    }));
                }
            }
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
            Up::Failed { sentence, code } => self.fail(&sentence, code),
            Up::Done { code } => {
                self.agents[index].done = Some(code);
                if code != 0 {
                    self.failed.get_or_insert(code);
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
    fn closed(&mut self, index: usize) {
        let agent = &mut self.agents[index];
        agent.is_closed = true;
        if agent.done.is_some() || self.end_at.is_some() {
            return;
        }
        let ended = match wait_briefly(&mut agent.child) {
            None => "has closed its output".into(),
            Some(status) => match status.code() {
                Some(code) => format!("ended with code {code}"),
                None => format!("was killed ({status})"),
            },
        };
        // Lines of standard error may come a moment later than its end.
        std::thread::sleep(Duration::from_millis(50));
        while let Ok((other, event)) = self.events.try_recv() {
            match event {
                Event::Line(line) if other == index => self.agents[index].lines.push(line),
                event if other != index => self.hear(other, event),
                _ => {}
            }
        }
        let agent = &self.agents[index];
        let said = match agent.lines.last() {
            Some(_) => format!(": {}", agent.lines.join("; ")),
            None => String::new(),
        };
        let sentence = if agent.has_started {
            format!(
                "the connection to host {} is lost ({} {ended}){said}; ending the job",
                agent.name, agent.command
            )
        } else {
            format!("no agent could be started on host {}: {} {ended}{said}", agent.name, agent.command)
        };
        self.fail(&sentence, 1);
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
        if self.start.take().is_some() {
            self.agents.iter_mut().for_each(|agent| drop(agent.child.kill()));
        } else {
            self.send_all(&Down::End { signal, code });
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
        let late = now.duration_since(self.started) > START;
        let silent = |agent: &&Agent| {
            let is_printing = agent.is_printing.load(Ordering::Relaxed);
            !agent.is_over() && !is_printing && now.duration_since(agent.heard) > SILENCE
        };
        let sentence = if let Some(agent) = self.agents.iter().find(|agent| late && !agent.has_started) {
            Some(format!(
                "no agent has started on host {} within {} s by {}",
                agent.name,
                START.as_secs(),
                agent.command
            ))
        } else {
            let agent = self.agents.iter().find(|agent| self.start.is_none() && silent(agent));
            agent.map(|agent| {
                format!("host {} has been silent for {} s; ending the job", agent.name, SILENCE.as_secs())
            })
        };
        if let Some(sentence) = sentence {
            self.fail(&sentence, 1);
        }
    }

    /// Passes our standard input on to the agents of those that read it, in a thread that is never waited
    /// for.
    fn read_input(&self, start: &Start) -> Result<(), Refusal> {
        let reads = |node: u32| {
            let mut ranks = (0..).zip(&start.node_of);
            ranks.any(|(rank, of)| *of == node && start.global.stdin.has(rank))
        };
        let readers = (0..).zip(&self.agents).filter(|(node, _)| reads(*node));
        let frames: Vec<Sender<Down>> = readers.map(|(_, agent)| agent.frames.clone()).collect();
        if frames.is_empty() {
            return Ok(());
        }
        let credit = self.credit.clone();
        let terminal =
            input::terminal().map_err(|error| Refusal::other(format!("cannot read input: {error}")))?;
        let copy = move || {
            // An agent that has ended needs no input.
            let send = |bytes: &[u8]| {
                frames.iter().for_each(|frames| drop(frames.send(Down::Input(bytes.to_vec()))))
            };
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
                let _ = agent.child.kill();
            }
        }
        for mut agent in self.agents.drain(..) {
            // Its end of our pipe closes with the sender.
            drop(agent.frames);
            if wait_briefly(&mut agent.child).is_none() {
                // Killed, it ends at once.
                let _ = agent.child.kill();
                let _ = agent.child.wait();
            }
        }
    }
}
