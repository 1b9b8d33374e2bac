//! The connection from `mpirun` to an agent: the command that reaches its host, and that command's streams.
//!
//! Read next: `frame.rs`, `agent.rs`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use super::arguments::{Arguments, Launcher};
use super::frame::{self, Down, Up};
use super::output::To;
use super::start::Refusal;
use super::{agent, allocation, hosts, say};

/// What a launcher's command may print before the agent's greeting.
const NOISE_BYTES_MAX: usize = 64 << 10;

/// Something that happened to an agent.
pub(super) enum Event {
    /// It has started; the number of its build.
    Greeted(u64),
    /// It says something.
    Said(Up),
    /// Its command wrote a line to standard error.
    Line(String),
    /// It writes no more lines to standard error.
    SaidAll,
    /// It says nothing more.
    Closed,
}

/// An agent, seen from `mpirun`.
pub(super) struct Agent {
    pub(super) name: String,
    /// The command by which it was started, for people.
    pub(super) command: String,
    pub(super) child: Child,
    /// To its standard input.
    pub(super) frames: Sender<Down>,
    /// What it is told once it has started.
    pub(super) held: Vec<Down>,
    /// Whether it has greeted, by an agent of our build.
    pub(super) has_started: bool,
    /// When it was begun.
    pub(super) begun: Instant,
    /// Whether it has been told what to do, so that it understands other frames.
    is_open: bool,
    /// Whether its ranks are stopped.
    pub(super) is_stopped: bool,
    /// Whether what it says is just being printed, and a reader of ours may be slow.
    pub(super) is_printing: Arc<AtomicBool>,
    /// Its exit code, once nothing of the job is left there.
    pub(super) done: Option<u8>,
    pub(super) is_closed: bool,
    pub(super) heard: Instant,
    /// The last lines that its command wrote before it started.
    pub(super) lines: Vec<String>,
    /// Whether no more lines come.
    pub(super) has_said_all: bool,
}

impl Agent {
    pub(super) fn send(&mut self, frame: Down) {
        if self.is_open {
            // One that has ended is noticed elsewhere.
            let _ = self.frames.send(frame);
        } else {
            self.held.push(frame);
        }
    }

    /// Frames go to it from now on; the first of them says what to do.
    pub(super) fn open(&mut self) {
        (self.is_open, self.heard) = (true, Instant::now());
        self.held.drain(..).for_each(|frame| drop(self.frames.send(frame)));
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_closed || self.done.is_some()
    }
}

/// How threads tell the one that waits.
#[derive(Clone)]
pub(super) struct Waker {
    pub(super) events: Sender<(usize, Event)>,
    pub(super) wake: Arc<OwnedFd>,
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
    if global.launcher_exec.is_none() && hosts::is_here(host, &sys::host::name()) {
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
            ("ssh", &["-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=10"])
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
            if launcher == Launcher::Ssh {
                command.args(allocation::ssh_options());
            }
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

pub(super) fn begin(
    arguments: &Arguments,
    host: &str,
    index: usize,
    waker: &Waker,
) -> Result<Agent, Refusal> {
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
        liner.tell(index, Event::SaidAll);
    };
    thread("lines", Box::new(lines))?;
    Ok(Agent {
        name: host.to_owned(),
        command: told,
        child,
        frames,
        held: Vec::new(),
        has_started: false,
        begun: Instant::now(),
        is_open: false,
        is_stopped: false,
        is_printing,
        done: None,
        is_closed: false,
        heard: Instant::now(),
        lines: Vec::new(),
        has_said_all: false,
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
