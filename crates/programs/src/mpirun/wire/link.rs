// SPDX-License-Identifier: BSD-3-Clause
//! The connections of the root (the `mpirun` process that decides) to its agents, one on each host: the
//! standard streams of the commands that start the agents.
//!
//! Each event names the node that it is about, so the root does not see whether a relay lies between.
//!
//! Read next: `frame.rs`, `relay.rs`.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::frame::{self, OutputStream, ToAgent, ToRoot};
use super::launch::{AGENT, AgentCommand, AgentHost, RELAY, Relay};
use crate::mpirun::command::say::Refusal;

/// How many bytes are kept of what a command such as ssh prints before the agent's greeting. They may tell
/// the user why no agent started.
const NOISE_BYTES_KEPT: usize = 4 << 10;

/// What has happened to an agent (`mpirun` on a host). The threads that read from agents report these events.
#[derive(Debug, Serialize, Deserialize)]
pub enum AgentEvent {
    /// The agent (`mpirun` on a host) has started, and is of the build with this number.
    Greeted(u64),
    /// A frame (message) has come from the agent (`mpirun` on a host).
    Frame(ToRoot),
    /// The command that started the agent (such as ssh) has written this line to standard error.
    Line(String),
    /// The standard error of the agent's command has ended.
    LinesEnded,
    /// The connection to the agent (`mpirun` on a host) has ended. The text says how its command ended, such
    /// as "ended with code 1".
    Closed(String),
}

/// The place to which the threads that read from agents report what has happened.
#[derive(Clone)]
pub enum Listener {
    /// The job's root (`mpirun`), in this process: its thread takes the events from a queue, and a pipe wakes
    /// it.
    Root { events: Sender<(usize, AgentEvent)>, wake: Arc<OwnedFd> },
    /// The job's root (`mpirun`) in another process: this process is a relay, and writes the events to its
    /// standard output.
    Upward(Arc<Mutex<File>>),
}

impl Listener {
    pub fn report(&self, node: u32, event: AgentEvent) {
        // The end of a listener is noticed elsewhere.
        match self {
            Listener::Root { events, wake } => {
                let _ = events.send((node as usize, event));
                // A full pipe wakes the thread as well.
                let _ = rustix::io::write(wake, &[0]);
            }
            Listener::Upward(output) => {
                let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = frame::write(&mut *output, &(node, event));
            }
        }
    }
}

/// A running command, such as ssh, that leads to the agent (`mpirun`) on one host, or to a relay and the
/// agents behind the relay.
pub struct AgentLink {
    pub nodes: Vec<u32>,
    child: Arc<Mutex<Child>>,
    pub queue: Sender<(u32, ToAgent)>,
    has_greeted: Arc<AtomicBool>,
    /// Whether the job's root (`mpirun`) is printing output from this link now. A slow reader of our output
    /// can delay that, so the link's agents do not count as silent then.
    pub is_printing: Arc<AtomicBool>,
}

impl AgentLink {
    /// Starts the command that reaches the hosts `members`. A single host gets an agent; several hosts get a
    /// relay on the first of them, which starts their agents. Returns the link to the command.
    pub fn to(
        launch: &AgentCommand,
        members: &[AgentHost],
        listener: &Listener,
    ) -> Result<AgentLink, Refusal> {
        match members {
            [one] => AgentLink::start(launch.command(&one.name, AGENT), members, None, listener),
            _ => {
                let command = launch.command(&members[0].name, RELAY);
                let relay = Relay { launch: launch.clone(), members: members.to_vec() };
                AgentLink::start(command, members, Some(relay), listener)
            }
        }
    }

    pub fn start(
        mut command: Command,
        members: &[AgentHost],
        relay: Option<Relay>,
        listener: &Listener,
    ) -> Result<AgentLink, Refusal> {
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
        let link = AgentLink {
            nodes: members.iter().map(|member| member.node).collect(),
            child: Arc::new(Mutex::new(child)),
            queue,
            has_greeted: Arc::default(),
            is_printing: Arc::default(),
        };
        let reader = LinkReader {
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
                liner.report(first, AgentEvent::Line(line));
            }
            liner.report(first, AgentEvent::LinesEnded);
        };
        thread("frames", move || send_frames(input, relay, frames))?;
        thread("agent", move || reader.receive_all(output))?;
        thread("lines", lines)?;
        Ok(link)
    }

    pub fn send(&self, node: u32, frame: ToAgent) {
        // The end of the thread that sends is noticed elsewhere.
        let _ = self.queue.send((node, frame));
    }

    /// Whether the agent (`mpirun` on a host) or relay at the other end has greeted. If so, it runs, and will
    /// notice when we close the link.
    pub fn has_greeted(&self) -> bool {
        self.has_greeted.load(Ordering::Relaxed)
    }

    pub fn kill(&self) {
        // The command may have ended already.
        let _ = lock(&self.child).kill();
    }

    /// Closes our ends of the pipes to the link's command (ssh or the like), and waits for the command's end.
    /// Kills the command if it does not end within a second.
    pub fn close(self) {
        drop(self.queue);
        let mut child = lock(&self.child);
        if wait_briefly(&mut child).is_none() {
            // A killed command ends at once.
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

/// Writes the frames (messages) of the queue `frames` to the standard input of a command (ssh or the like),
/// until the queue or the command has ended. For a relay it first writes what the relay has to do.
fn send_frames(mut input: ChildStdin, relay: Option<Relay>, frames: Receiver<(u32, ToAgent)>) {
    let is_relay = relay.is_some();
    if relay.is_some_and(|relay| frame::write(&mut input, &relay).is_err()) {
        return;
    }
    for (node, mut frame) in frames {
        // The time is set here, where the root sends, not in a relay.
        if let ToAgent::Clock { sent: sent @ 0 } = &mut frame {
            *sent = sys::clock::now();
        }
        let written = match is_relay {
            true => frame::write(&mut input, &(node, frame)),
            false => frame::write(&mut input, &frame),
        };
        if written.is_err() {
            return;
        }
    }
}

/// The state of the thread that reads what an agent (`mpirun` on a host) or relay writes to its standard
/// output.
struct LinkReader {
    nodes: Vec<u32>,
    is_relay: bool,
    child: Arc<Mutex<Child>>,
    has_greeted: Arc<AtomicBool>,
    is_printing: Arc<AtomicBool>,
    listener: Listener,
}

impl LinkReader {
    /// Reads the greeting and then frames (messages) until the output ends. Reports each of them, and the
    /// end, to the listener.
    fn receive_all(self, output: ChildStdout) {
        let mut output = BufReader::new(output);
        let (greeting, noise) = read_greeting(&mut output);
        if let Some(build) = greeting {
            self.has_greeted.store(true, Ordering::Relaxed);
            // A relay of our build leaves the greeting to the agent of its host.
            if !self.is_relay || build != boot::BUILD {
                self.listener.report(self.nodes[0], AgentEvent::Greeted(build));
            }
            while let Some((node, event)) = self.receive(&mut output) {
                if self.nodes.contains(&node) {
                    self.pass_on(node, event);
                }
            }
        } else if let Some(line) = last_line(&noise) {
            self.listener.report(self.nodes[0], AgentEvent::Line(line));
        }
        let ended = match wait_briefly(&mut lock(&self.child)) {
            None => "has closed its output".into(),
            Some(status) => match status.code() {
                Some(code) => format!("ended with code {code}"),
                None => format!("was killed ({status})"),
            },
        };
        self.nodes.iter().for_each(|node| self.listener.report(*node, AgentEvent::Closed(ended.clone())));
    }

    fn receive(&self, output: &mut impl Read) -> Option<(u32, AgentEvent)> {
        match self.is_relay {
            true => frame::read(output).ok()?,
            false => frame::read(output).ok()?.map(|up| (self.nodes[0], AgentEvent::Frame(up))),
        }
    }

    fn pass_on(&self, node: u32, event: AgentEvent) {
        match (&self.listener, event) {
            (Listener::Root { .. }, AgentEvent::Frame(ToRoot::Output(to, bytes))) => {
                // Printing here means that a slow reader of our output delays only this link.
                self.is_printing.store(true, Ordering::Relaxed);
                let written = print(to, &bytes);
                self.is_printing.store(false, Ordering::Relaxed);
                // A reader that is gone cannot be helped.
                if let Err(error) = written
                    && error.kind() != ErrorKind::BrokenPipe
                {
                    self.listener.report(node, AgentEvent::Frame(ToRoot::not_written(to.name(), &error)));
                }
            }
            (listener @ Listener::Root { .. }, AgentEvent::Frame(ToRoot::Clock { sent, there, .. })) => {
                listener
                    .report(node, AgentEvent::Frame(ToRoot::Clock { sent, there, back: sys::clock::now() }));
            }
            (listener, event) => listener.report(node, event),
        }
    }
}

/// Reads an agent's output up to and including the greeting. Returns the number of the agent's build, or None
/// if no greeting came, and the last bytes before the greeting, which a login shell may have printed.
fn read_greeting(output: &mut impl BufRead) -> (Option<u64>, Vec<u8>) {
    let mut noise = Vec::new();
    while let Ok(more) = output.fill_buf()
        && !more.is_empty()
    {
        let before = noise.len();
        noise.extend_from_slice(more);
        if let Some((at, build)) = frame::find_greeting(&noise) {
            output.consume(at + frame::GREETING_BYTES - before);
            noise.truncate(at);
            return (Some(build), noise);
        }
        let bytes = more.len();
        output.consume(bytes);
        noise.drain(..noise.len().saturating_sub(NOISE_BYTES_KEPT));
    }
    (None, noise)
}

/// Returns the last line of `noise` that is not blank, or None if all lines are blank.
fn last_line(noise: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(noise);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

/// Waits at most a second for the end of a command, and returns its exit status. Returns None if the command
/// still runs: it may wait for a process that it has started.
pub fn wait_briefly(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..100 {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            other => return other.ok().flatten(),
        }
    }
    None
}

/// Writes bytes that ranks have printed to the stream `to` of this process.
fn print(to: OutputStream, bytes: &[u8]) -> std::io::Result<()> {
    match to {
        OutputStream::Output => {
            std::io::stdout().lock().write_all(bytes).and_then(|()| std::io::stdout().flush())
        }
        OutputStream::Error => std::io::stderr().lock().write_all(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_found_behind_any_noise_and_what_follows_is_kept() {
        for bytes in [0, 1, 8191, 8192, 100_000, 3 << 20] {
            let said = [vec![b'x'; bytes], frame::greeting().to_vec(), b"rest".to_vec()].concat();
            let mut output = BufReader::new(&said[..]);
            let (build, noise) = read_greeting(&mut output);
            assert_eq!(build, Some(boot::BUILD), "{bytes}");
            assert!(noise.len() <= bytes && noise.len() <= NOISE_BYTES_KEPT + (8 << 10), "{}", noise.len());
            let mut rest = Vec::new();
            output.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, b"rest");
        }
        let (build, noise) = read_greeting(&mut BufReader::new(&b"Hello\nYour password has expired\n\n"[..]));
        assert_eq!((build, last_line(&noise).as_deref()), (None, Some("Your password has expired")));
    }
}
