// SPDX-License-Identifier: BSD-3-Clause
//! The connection from an agent to the root: the pipe to the process that started the agent, or the root's
//! own queue if both are one process.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::frame::{self, ToRoot};
use super::link::{AgentEvent, Listener};
use crate::mpirun::command::say::Refusal;

/// How often each side of a pipe sends a pulse.
pub const PULSE: Duration = Duration::from_secs(2);
/// A process that looks so much later than the last time stood still itself, as on a suspended machine.
pub const STANDSTILL: Duration = Duration::from_secs(2);

/// How an agent reaches the root.
pub trait Uplink: Send + Sync {
    /// Sends a frame to the root. The end of the root is noticed elsewhere.
    fn send(&self, frame: ToRoot);

    /// Has the root print a line of the agent's own.
    fn say(&self, sentence: &str) {
        self.send(ToRoot::Print(sentence.to_owned()));
    }
}

/// The standard output of an agent's process.
pub struct PipeUplink(Mutex<File>);

impl PipeUplink {
    /// Duplicates the standard output of this process.
    pub fn open() -> std::io::Result<PipeUplink> {
        let output = std::io::stdout().as_fd().try_clone_to_owned()?;
        Ok(PipeUplink(Mutex::new(output.into())))
    }

    /// Sends the greeting, which comes before all frames.
    pub fn greet(&self) -> std::io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame::greeting())
    }
}

impl Uplink for PipeUplink {
    fn send(&self, frame: ToRoot) {
        let _ = frame::write(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), &frame);
    }
}

/// The queue of a root, for the agent in its process.
pub struct QueueUplink {
    pub listener: Listener,
    /// The number of the agent's node.
    pub node: u32,
}

impl Uplink for QueueUplink {
    fn send(&self, frame: ToRoot) {
        self.listener.report(self.node, AgentEvent::Frame(frame));
    }
}

/// Our standard input without a buffer: what the agent's first step does not read is left for the second.
pub fn input() -> Result<File, Refusal> {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    input.map(File::from).map_err(|error| Refusal::other(format!("cannot read frames: {error}")))
}
