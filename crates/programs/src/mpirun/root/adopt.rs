// SPDX-License-Identifier: BSD-3-Clause
//! A launcher for a program that was started without `mpirun` and needs one: to spawn processes, or to
//! publish a name of a port.
//!
//! The library starts `mpirun` with the hidden argument [`WORD`]. That process starts a second one, which is
//! the launcher, and ends. So the launcher is no child of the program, which gets no SIGCHLD when the
//! launcher ends.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use settings::Settings;
use sys::process::ProcessHandle;
use sys::signal::Signals;
use transport::shm::Segment;

use super::Root;
use crate::mpirun::agent::job::{self, AgentJob};
use crate::mpirun::agent::start::Setup;
use crate::mpirun::command::arguments::{CommandLine, Global};
use crate::mpirun::command::say::{Refusal, say};
use crate::mpirun::place::hosts::Placement;

/// The first argument, hidden from users, with which the library starts `mpirun` for a program that runs
/// already; the program's pid follows.
pub const WORD: &str = "--launch-for";
/// The first argument of the launcher itself, which the process with [`WORD`] starts. The program's pid
/// follows.
const AGAIN: &str = "--launch-for-now";

/// Runs the launcher for the program with this pid if the argument `word` asks for that, and returns the exit
/// code. Otherwise returns None at once.
pub fn serve(word: &str, pid: &str) -> Option<u8> {
    match word {
        WORD => Some(match detach(pid) {
            Ok(()) => 0,
            Err(refusal) => refused(refusal),
        }),
        AGAIN => Some(launch(pid).unwrap_or_else(refused)),
        _ => None,
    }
}

fn refused(refusal: Refusal) -> u8 {
    say(&refusal.message);
    refusal.code
}

/// Starts the launcher for the program with this pid, in a process of its own, and does not wait for it.
/// First checks the settings and the job's memory, so that the program's library learns of errors in these.
fn detach(pid: &str) -> Result<(), Refusal> {
    let settings = settings::load().map_err(|error| Refusal::other(error.message.clone()))?;
    let (_, fd) = job_memory(settings)?;
    let again = |error| Refusal::other(format!("cannot start itself again: {error}"));
    sys::memory::inheritable(&fd, true).map_err(again)?;
    let start = || {
        Command::new(std::env::current_exe()?)
            .args([AGAIN, pid])
            .process_group(0)
            .stdin(Stdio::null())
            .spawn()
    };
    start().map(drop).map_err(again)
}

/// Opens the job's memory of the program for which this launcher runs (OUTBOARD_JOB_FD). Returns the segment
/// and its descriptor.
fn job_memory(settings: &Settings) -> Result<(Segment, OwnedFd), Refusal> {
    let Some(fd) = settings.job_fd else { return Err(Refusal::other("OUTBOARD_JOB_FD is not set")) };
    let lost = |error| Refusal::other(format!("the descriptor OUTBOARD_JOB_FD={fd}: {error}"));
    let fd = sys::memory::inherited(fd as i32).map_err(lost)?;
    let segment =
        boot::attach(fd.try_clone().map_err(lost)?).map_err(|error| Refusal::other(error.to_string()))?;
    Ok((segment, fd))
}

fn launch(pid: &str) -> Result<u8, Refusal> {
    sys::child::name_myself("mpirun");
    let signals = Signals::take(job::SIGNALS)
        .map_err(|error| Refusal::other(format!("cannot take over signals: {error}")))?;
    let settings = settings::load().map_err(|error| Refusal::other(error.message.clone()))?;
    let pid: u32 = pid.parse().map_err(|_| Refusal::other(format!("{pid:?} is no process")))?;
    let gone = |error| Refusal::other(format!("process {pid}, for which this mpirun was started: {error}"));
    let process = ProcessHandle::open(pid).map_err(gone)?;
    let (segment, fd) = job_memory(settings)?;
    let setup = Setup {
        fd,
        id: Setup::new_id(),
        global: Global::default(),
        reads_ours: true,
        universe: None,
        trace: Setup::trace_path(settings, None),
    };
    let arguments = CommandLine {
        global: Global::default(),
        programs: Vec::new(),
        slots: 1,
        placement: Placement::here(1, 1),
        is_here: true,
        notes: Vec::new(),
        warning: None,
    };
    let mut root = Root::new(&arguments, settings, signals)?;
    let upstream = root.open_here();
    let signals = root.signals.clone();
    let mut job = AgentJob::new(segment, signals, setup, vec![0], upstream);
    job.adopt(pid as i32, process)?;
    root.here = Some(job);
    Ok(root.run())
}
