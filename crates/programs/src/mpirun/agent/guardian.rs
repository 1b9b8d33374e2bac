// SPDX-License-Identifier: BSD-3-Clause
//! Ends what is left of a job when `mpirun` itself is killed. The kernel ends the children of `mpirun`
//! (PDEATHSIG). The guardian, a small process that `mpirun` starts, ends the other descendants.
//!
//! The guardian reads from a pipe. At an orderly end `mpirun` writes a byte into the pipe; if the pipe ends
//! without that byte, `mpirun` was killed. All descendants of the job have its random `OUTBOARD_JOB_ID` in
//! their environment, even if they have left its process group, session or parent.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The hidden first argument with which `mpirun` runs as the guardian; the job's id follows.
pub const WORD: &str = "--guard-job-of";
/// The environment variable with the job's id, which all processes of a job inherit.
pub const JOB_ID: &str = "OUTBOARD_JOB_ID";
/// The byte that `mpirun` writes to its guardian at an orderly end.
const ENDED_WELL: u8 = b'.';

/// The guardian process of this job, as `mpirun` sees it, with the pipe to the guardian.
pub struct Guardian {
    pipe: ChildStdin,
    child: Child,
}

impl Guardian {
    /// Starts the guardian process of the job with this id. Returns a handle to the process.
    pub fn start(id: &str) -> std::io::Result<Guardian> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(WORD).arg(id);
        // The guardian has its own process group, so that Ctrl-C spares it; it has none of our streams, so
        // that no reader waits for it to close them; and it has no JOB_ID, so that it never counts as part of
        // an outer job.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env_remove(JOB_ID);
        let mut child = command.spawn()?;
        let pipe = child.stdin.take().ok_or_else(|| std::io::Error::other("no pipe to the guardian"))?;
        Ok(Guardian { pipe, child })
    }

    /// Returns the guardian's process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Tells the guardian that the job has ended in order, so that it kills nothing, and waits until the
    /// guardian has ended.
    pub fn dismiss(mut self) {
        // A guardian that has ended already needs no word.
        let _ = self.pipe.write_all(&[ENDED_WELL]);
        drop(self.pipe);
        let _ = self.child.wait();
    }
}

/// Runs this process as the guardian of the job `id`: waits for the end of `mpirun`. If `mpirun` was killed,
/// kills all processes that are left of the job.
pub fn guard(id: &str) {
    sys::child::name_myself("mpirun-guardian");
    let mut word = [0];
    if std::io::stdin().read(&mut word).is_ok_and(|bytes| bytes == 1) && word[0] == ENDED_WELL {
        return;
    }
    // Processes that started during a look are found by the next one.
    for _ in 0..20 {
        let members = members(id);
        if members.is_empty() {
            return;
        }
        for pid in members {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the living processes, except this one, that have the job id `id` in their environment.
fn members(id: &str) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != std::process::id() as i32 && carries(*pid, id))
        .filter_map(Pid::from_raw)
        .collect()
}

/// Whether the process `pid` was started with the job id `id` in its environment. False for a process that
/// has ended or belongs to another user: its environment cannot be read.
pub fn carries(pid: i32, id: &str) -> bool {
    let variable = format!("{JOB_ID}={id}");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}
