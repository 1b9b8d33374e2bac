// SPDX-License-Identifier: BSD-3-Clause
//! The agent of a job on one of its hosts: it starts, watches and signals the processes there, forwards their
//! input and output, and reports to the job's root (`mpirun`). If the job has one host only, the agent runs
//! in the root's process.
//!
//! On any other host the agent starts in two steps. The first step reads the frame `Start` from the root. It
//! then runs `mpirun` again by `exec`, as the second step, with the environment and the working folder of the
//! root.
//!
//! Invariants: an agent that has lost the root ends its ranks; an agent writes only frames (messages) to its
//! standard output.
//!
//! Read next: `watch.rs`, `receive.rs`, `wire/frame.rs` (the frames), `root/mod.rs` (what the root does).

mod deadlock;
mod end;
mod facts;
mod foreign;
pub mod guardian;
pub mod job;
mod prepare;
mod receive;
mod serve;
pub mod start;
pub mod upstream;
mod watch;

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sys::signal::Signals;

use super::command::say::Refusal;
use super::command::variables;
use super::wire::frame::{self, Start, ToAgent, ToRoot};
use super::wire::launch::AGENT as WORD;
use super::wire::uplink::{PipeUplink, Uplink, input};
use job::AgentJob;
use upstream::Upstream;

/// The hidden first argument of an agent's second step. The number of a file descriptor follows, from which
/// the agent reads a [`Start`].
const AGAIN: &str = "--agent-with";
/// Environment variables that belong to a host or a login. An agent keeps its own values of these; all other
/// variables come from the job's root (`mpirun`).
const LOCAL_VARIABLES: [&str; 8] = [
    "HOSTNAME",
    "HOST",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "SLURMD_NODENAME",
];

/// Runs an agent (`mpirun` on a host) if the first word of the command line asks for one, and returns its
/// exit code. Otherwise returns None at once.
pub fn serve(words: &[std::ffi::OsString]) -> Option<u8> {
    let step: fn(&str, &Arc<PipeUplink>) -> Result<u8, Refusal> = match words.first()?.to_str()? {
        WORD => |_, pipe| begin(pipe),
        AGAIN => run,
        _ => return None,
    };
    sys::child::name_myself("mpirun-agent");
    let pipe = Arc::new(PipeUplink::open().ok()?);
    let second = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let code = step(second, &pipe).unwrap_or_else(|refusal| {
        let sentence = format!("host {}: {}", sys::host::name(), refusal.message);
        pipe.send(ToRoot::Failed { worlds: vec![0], sentence, code: refusal.code });
        refusal.code
    });
    pipe.send(ToRoot::Done { code });
    Some(code)
}

fn begin(pipe: &PipeUplink) -> Result<u8, Refusal> {
    pipe.greet().map_err(|error| Refusal::other(format!("cannot greet: {error}")))?;
    let wrong = |what: String| Refusal::other(format!("what an agent is to do cannot be read: {what}"));
    let first = frame::read(&mut input()?).map_err(|error| wrong(error.to_string()))?;
    let Some(ToAgent::Start(start)) = first else { return Err(wrong("nothing came".into())) };
    let ours = |name: &&(std::ffi::OsString, std::ffi::OsString)| {
        !name.0.to_str().is_some_and(|name| LOCAL_VARIABLES.contains(&name))
    };
    let environment: Vec<_> = start.environment.iter().filter(ours).cloned().collect();
    if !start.directory.is_dir() {
        let sentence =
            format!("the folder {} does not exist (-wdir names another)", start.directory.display());
        return Err(Refusal::other(sentence));
    }
    let again = |error: std::io::Error| Refusal::other(format!("cannot start itself again: {error}"));
    let mut bytes = Vec::new();
    frame::write(&mut bytes, &*start).map_err(again)?;
    let fd = sys::memory::create("outboard-start", bytes.len() as u64).map_err(again)?;
    let mut file = File::from(fd);
    file.write_all(&bytes).and_then(|()| file.rewind()).map_err(again)?;
    sys::memory::inheritable(&file, true).map_err(again)?;
    let program = std::env::current_exe().map_err(again)?;
    let mut command = Command::new(program);
    command.arg(AGAIN).arg(file.as_raw_fd().to_string());
    Err(again(command.envs(environment).current_dir(&start.directory).exec()))
}

fn run(fd: &str, pipe: &Arc<PipeUplink>) -> Result<u8, Refusal> {
    let signals = Signals::take(job::SIGNALS)
        .map_err(|error| Refusal::other(format!("cannot take over signals: {error}")))?;
    let lost =
        |error: std::io::Error| Refusal::other(format!("what an agent is to do cannot be read: {error}"));
    let fd: i32 = fd.parse().map_err(|_| Refusal::other(format!("{fd:?} is no descriptor")))?;
    let mut file = File::from(sys::memory::inherited(fd).map_err(lost)?);
    let start: Option<Start> = frame::read(&mut file).map_err(lost)?;
    let start = start.ok_or_else(|| Refusal::other("what an agent is to do is empty"))?;
    let silence = Duration::from_millis(variables::settings(&start.global)?.launch_silence_ms);
    let upstream = Upstream::open(pipe.clone(), silence)?;
    let (mut job, plan) = AgentJob::prepare(&start, upstream, Arc::new(signals))?;
    job.start(&start.programs, &plan)?;
    Ok(job.watch())
}
