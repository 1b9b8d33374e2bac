//! The connections from `mpirun` to its agents: the commands that reach their hosts, and those commands'
//! streams.
//!
//! With more hosts than OUTBOARD_LAUNCH_FANOUT they are a tree: a command then reaches the first of several
//! hosts, where a relay starts the agents of all of them (`relay.rs`). To whoever listens a relay makes no
//! difference: an event says of which node it is.
//!
//! Read next: `frame.rs`, `agent.rs`, `relay.rs`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::arguments::{Global, Launcher};
use super::frame::{self, Down, Up};
use super::output::To;
use super::relay::{self, Relay};
use super::start::Refusal;
use super::{agent, allocation, hosts};

/// Commands that a process starts, where they are ssh, rsh or srun.
const FANOUT: usize = 32;
/// What a launcher's command may print before the agent's greeting.
const NOISE_BYTES_MAX: usize = 64 << 10;

/// Something that happened to an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Event {
    /// It has started; the number of its build.
    Greeted(u64),
    /// It says something.
    Said(Up),
    /// Its command wrote a line to standard error.
    Line(String),
    /// It writes no more lines to standard error.
    SaidAll,
    /// It says nothing more; what became of its command.
    Closed(String),
}

/// The host of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Member {
    /// The number of its node.
    pub(super) node: u32,
    /// Its name, as a launcher's command takes it.
    pub(super) name: String,
}

/// An agent, seen from `mpirun`.
pub(super) struct Agent {
    pub(super) name: String,
    /// The command by which it was started, for people.
    pub(super) command: String,
    /// The place of its link in the list of them.
    pub(super) link: usize,
    /// To its standard input.
    pub(super) frames: Frames,
    /// What it is told once it has started.
    held: Vec<Down>,
    /// Whether it has greeted, by an agent of our build.
    pub(super) has_started: bool,
    /// When it was begun.
    pub(super) begun: Instant,
    /// Whether it has been told what to do, so that it understands other frames.
    is_open: bool,
    /// Whether its ranks are stopped.
    pub(super) is_stopped: bool,
    /// Its exit code, once nothing of the job is left there.
    pub(super) done: Option<u8>,
    pub(super) is_closed: bool,
    pub(super) heard: Instant,
    /// The last lines that its command wrote before it started.
    pub(super) lines: Vec<String>,
    /// Whether no more lines come.
    pub(super) has_said_all: bool,
}

/// The way of frames to a node.
#[derive(Clone)]
pub(super) struct Frames {
    node: u32,
    queue: Sender<(u32, Down)>,
}

impl Frames {
    /// One that has ended is noticed elsewhere.
    pub(super) fn send(&self, frame: Down) {
        let _ = self.queue.send((self.node, frame));
    }
}

impl Agent {
    /// The agent of a node to which a link leads.
    pub(super) fn new(name: String, node: u32, command: String, link: usize, to: &Link) -> Agent {
        let now = Instant::now();
        Agent {
            name,
            command,
            link,
            frames: Frames { node, queue: to.queue.clone() },
            held: Vec::new(),
            has_started: false,
            begun: now,
            is_open: false,
            is_stopped: false,
            done: None,
            is_closed: false,
            heard: now,
            lines: Vec::new(),
            has_said_all: false,
        }
    }

    pub(super) fn send(&mut self, frame: Down) {
        if self.is_open {
            self.frames.send(frame);
        } else {
            self.held.push(frame);
        }
    }

    /// Frames go to it from now on; the first of them says what to do.
    pub(super) fn open(&mut self) {
        (self.is_open, self.heard) = (true, Instant::now());
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|frame| self.frames.send(frame));
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_closed || self.done.is_some()
    }
}

/// To whom threads tell what happens.
#[derive(Clone)]
pub(super) enum Listener {
    /// The thread of `mpirun` that waits.
    Root { events: Sender<(usize, Event)>, wake: Arc<OwnedFd> },
    /// Whoever listens to a relay.
    Upward(Arc<Mutex<File>>),
}

impl Listener {
    pub(super) fn tell(&self, node: u32, event: Event) {
        // Whoever does not listen any more is noticed elsewhere.
        match self {
            Listener::Root { events, wake } => {
                let _ = events.send((node as usize, event));
                // A full pipe wakes as well.
                let _ = rustix::io::write(wake, &[0]);
            }
            Listener::Upward(output) => {
                let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = frame::write(&mut *output, &(node, event));
            }
        }
    }
}

/// How hosts are reached, whoever does it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Launch {
    /// The words before a host's name, and what stands before the name in its own word.
    before: Vec<OsString>,
    prefix: String,
    /// The program, as the command takes it.
    program: OsString,
    /// Whether the host where the command would be given needs none.
    has_shortcut: bool,
    /// How many commands a process starts at most, unless a single host is the first that it reaches.
    pub(super) fanout: usize,
}

impl Launch {
    /// As the user wants it, or else as the environment says.
    pub(super) fn of(global: &Global, fanout: Option<u64>) -> Launch {
        let own = std::env::current_exe().unwrap_or_else(|_| "mpirun".into());
        let given = if global.launcher.is_none() { allocation::launcher_exec() } else { None };
        let launcher_exec = global.launcher_exec.clone().or(given);
        let in_slurm = || settings::foreign::variable("SLURM_JOB_ID").is_some();
        let launcher = match global.launcher {
            Some(launcher) => launcher,
            None if launcher_exec.is_none() && in_slurm() => Launcher::Srun,
            None => Launcher::Ssh,
        };
        let words: &[&str] = match launcher {
            // Options of ssh mean nothing to what has its form only.
            _ if launcher_exec.is_some() => &[],
            Launcher::Ssh => {
                let alive = "ServerAliveInterval=10";
                &["ssh", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", alive]
            }
            Launcher::Rsh => &["rsh"],
            Launcher::Srun => &[
                "srun",
                "--nodes=1",
                "--ntasks=1",
                "--overlap",
                "--input=all",
                "--unbuffered",
                "--mpi=none",
                "--cpu-bind=none",
            ],
        };
        let is_srun = launcher_exec.is_none() && launcher == Launcher::Srun;
        let is_ssh = launcher_exec.is_none() && launcher == Launcher::Ssh;
        let options = if is_ssh { allocation::ssh_options() } else { Vec::new() };
        // What reaches hosts from here only must not be asked to do so from there.
        let unless_told = if launcher_exec.is_some() { usize::MAX } else { FANOUT };
        let before = launcher_exec.into_iter().map(OsString::from);
        Launch {
            before: before
                .chain(words.iter().map(OsString::from))
                .chain(options.into_iter().map(OsString::from))
                .collect(),
            prefix: if is_srun { "--nodelist=" } else { "" }.to_owned(),
            program: if is_srun { own.into_os_string() } else { quoted(&own) },
            has_shortcut: global.launcher_exec.is_none(),
            fanout: fanout.map_or(unless_told, |fanout| fanout as usize),
        }
    }

    /// A host's name as all that start commands understand it: `localhost` is another for each.
    pub(super) fn name(&self, host: &str) -> String {
        let own = sys::host::name();
        if self.has_shortcut && hosts::is_here(host, &own) { own } else { host.to_owned() }
    }

    /// The command that starts ourselves on a host, with `word`.
    pub(super) fn command(&self, host: &str, word: &str) -> Command {
        if self.has_shortcut && hosts::is_here(host, &sys::host::name()) {
            return Launch::here(word);
        }
        let mut words = self.before.iter();
        let mut command = Command::new(words.next().map_or("ssh".as_ref(), OsString::as_os_str));
        command.args(words).arg(format!("{}{host}", self.prefix)).arg(&self.program).arg(word);
        command
    }

    /// The command that starts ourselves on this host.
    pub(super) fn here(word: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "mpirun".into()));
        command.arg(word);
        command
    }

    /// Deals hosts out to commands, of which each reaches the first of its hosts.
    pub(super) fn groups<'a>(&self, members: &'a [Member]) -> impl Iterator<Item = &'a [Member]> {
        let (hosts, commands) = (members.len(), members.len().min(self.fanout));
        (0..commands).map(move |at| &members[at * hosts / commands..(at + 1) * hosts / commands])
    }

    /// Starts the agents of the members: a single one's own, or a relay on the host of the first of several.
    pub(super) fn start(&self, members: &[Member], listener: &Listener) -> Result<Link, Refusal> {
        match members {
            [one] => Link::start(self.command(&one.name, agent::WORD), members, None, listener),
            _ => {
                let command = self.command(&members[0].name, relay::WORD);
                let relay = Relay { launch: self.clone(), members: members.to_vec() };
                Link::start(command, members, Some(relay), listener)
            }
        }
    }
}

/// A path as a remote shell takes it for one word.
fn quoted(path: &Path) -> OsString {
    match shlex::try_quote(&path.to_string_lossy()) {
        Ok(word) => word.into_owned().into(),
        Err(_) => path.into(),
    }
}

/// A command that leads to the agent of a host, or to a relay and the agents behind it.
pub(super) struct Link {
    pub(super) nodes: Vec<u32>,
    child: Arc<Mutex<Child>>,
    queue: Sender<(u32, Down)>,
    has_greeted: Arc<AtomicBool>,
    /// Whether what is said there is just being printed, and a reader of ours may be slow.
    pub(super) is_printing: Arc<AtomicBool>,
}

impl Link {
    pub(super) fn start(
        mut command: Command,
        members: &[Member],
        relay: Option<Relay>,
        listener: &Listener,
    ) -> Result<Link, Refusal> {
        let host = &members[0].name;
        // Ctrl-C reaches the job through `mpirun`.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy();
            Refusal::other(format!("host {host} cannot be reached: {program} cannot be started: {error}"))
        })?;
        let (Some(input), Some(output), Some(error)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Refusal::other("a child without its streams"));
        };
        let (queue, frames) = channel();
        let link = Link {
            nodes: members.iter().map(|member| member.node).collect(),
            child: Arc::new(Mutex::new(child)),
            queue,
            has_greeted: Arc::default(),
            is_printing: Arc::default(),
        };
        let ear = Ear {
            nodes: link.nodes.clone(),
            is_relay: relay.is_some(),
            child: link.child.clone(),
            has_greeted: link.has_greeted.clone(),
            is_printing: link.is_printing.clone(),
            listener: listener.clone(),
        };
        let (liner, first) = (listener.clone(), link.nodes[0]);
        let lines = move || {
            for line in BufReader::new(error).lines().map_while(Result::ok) {
                liner.tell(first, Event::Line(line));
            }
            liner.tell(first, Event::SaidAll);
        };
        thread("frames", move || speak(input, relay, frames))?;
        thread("agent", move || ear.listen(output))?;
        thread("lines", lines)?;
        Ok(link)
    }

    pub(super) fn send(&self, node: u32, frame: Down) {
        // One that has ended is noticed elsewhere.
        let _ = self.queue.send((node, frame));
    }

    /// Whether there is anybody who notices that we are gone.
    pub(super) fn has_greeted(&self) -> bool {
        self.has_greeted.load(Ordering::Relaxed)
    }

    pub(super) fn kill(&self) {
        // It may have ended.
        let _ = lock(&self.child).kill();
    }

    /// Takes leave: its end of our pipe closes with all senders of frames.
    pub(super) fn close(self) {
        drop(self.queue);
        let mut child = lock(&self.child);
        if wait_briefly(&mut child).is_none() {
            // Killed, it ends at once.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    started.map(drop).map_err(|error| Refusal::other(format!("cannot start a thread: {error}")))
}

/// Passes frames on to a command, until there is nobody on one side.
fn speak(mut input: ChildStdin, relay: Option<Relay>, frames: Receiver<(u32, Down)>) {
    let is_relay = relay.is_some();
    if relay.is_some_and(|relay| frame::write(&mut input, &relay).is_err()) {
        return;
    }
    for (node, frame) in frames {
        let written = match is_relay {
            true => frame::write(&mut input, &(node, frame)),
            false => frame::write(&mut input, &frame),
        };
        if written.is_err() {
            return;
        }
    }
}

/// Hears what comes through a link.
struct Ear {
    nodes: Vec<u32>,
    is_relay: bool,
    child: Arc<Mutex<Child>>,
    has_greeted: Arc<AtomicBool>,
    is_printing: Arc<AtomicBool>,
    listener: Listener,
}

impl Ear {
    /// To its end.
    fn listen(self, mut output: ChildStdout) {
        if let Some(build) = greeted(&mut output) {
            self.has_greeted.store(true, Ordering::Relaxed);
            // A relay of our build has the agent of its host greet.
            if !self.is_relay || build != boot::BUILD {
                self.listener.tell(self.nodes[0], Event::Greeted(build));
            }
            let mut output = BufReader::new(output);
            while let Some((node, event)) = self.hear(&mut output) {
                if self.nodes.contains(&node) {
                    self.pass_on(node, event);
                }
            }
        }
        let ended = match wait_briefly(&mut lock(&self.child)) {
            None => "has closed its output".into(),
            Some(status) => match status.code() {
                Some(code) => format!("ended with code {code}"),
                None => format!("was killed ({status})"),
            },
        };
        self.nodes.iter().for_each(|node| self.listener.tell(*node, Event::Closed(ended.clone())));
    }

    fn hear(&self, output: &mut impl Read) -> Option<(u32, Event)> {
        match self.is_relay {
            true => frame::read(output).ok()?,
            false => frame::read(output).ok()?.map(|up| (self.nodes[0], Event::Said(up))),
        }
    }

    fn pass_on(&self, node: u32, event: Event) {
        match (&self.listener, event) {
            (Listener::Root { .. }, Event::Said(Up::Output(to, bytes))) => {
                // Here, so that a reader of ours that stalls keeps only this link.
                self.is_printing.store(true, Ordering::Relaxed);
                show(to, &bytes);
                self.is_printing.store(false, Ordering::Relaxed);
            }
            (listener, event) => listener.tell(node, event),
        }
    }
}

/// Waits for the greeting behind what a shell prints; the number of the build.
fn greeted(output: &mut ChildStdout) -> Option<u64> {
    let mut noise = Vec::new();
    let mut byte = [0];
    while noise.len() <= NOISE_BYTES_MAX && output.read_exact(&mut byte).is_ok() {
        noise.push(byte[0]);
        let last = &noise[noise.len().saturating_sub(frame::GREETING_BYTES)..];
        if let Some((_, build)) = frame::find_greeting(last) {
            return Some(build);
        }
    }
    None
}

/// Waits for a command a moment: what it has started may keep it.
pub(super) fn wait_briefly(child: &mut Child) -> Option<ExitStatus> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each host is reached once, by the agent's command of its own, and nobody starts more commands
    /// than the fan-out, itself not counted. Method: the tree of 1 to 300 hosts, followed as relays do.
    #[test]
    fn a_tree_reaches_each_host_once() {
        fn follow(launch: &Launch, members: &[Member], reached: &mut Vec<u32>) -> usize {
            let mut depth = 0;
            let groups: Vec<_> = launch.groups(members).collect();
            assert!(groups.len() <= launch.fanout);
            for group in groups {
                reached.push(group[0].node);
                depth = depth.max(1 + follow(launch, &group[1..], reached));
            }
            depth
        }
        for hosts in (1..=300).step_by(7) {
            let members: Vec<_> = (0..hosts).map(|node| Member { node, name: format!("h{node}") }).collect();
            for (fanout, depth_max) in [(2, 8), (3, 6), (32, 2), (300, 1)] {
                let mut reached = Vec::new();
                let (before, prefix, program) = (Vec::new(), String::new(), OsString::new());
                let launch = Launch { before, prefix, program, has_shortcut: false, fanout };
                let depth = follow(&launch, &members, &mut reached);
                reached.sort_unstable();
                assert_eq!(reached, (0..hosts).collect::<Vec<_>>());
                assert!(depth <= depth_max, "{hosts} hosts, {fanout} each: {depth} levels");
            }
        }
    }
}
