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

/// How often the root and an agent in another process send each other a pulse, which says that they live.
pub const PULSE: Duration = Duration::from_secs(2);
/// The gap between two looks at the clock from which on a process concludes that it stood still itself, as on
/// a suspended machine.
pub const STANDSTILL: Duration = Duration::from_secs(2);

/// The way by which an agent's frames get to the root.
pub trait Uplink: Send + Sync {
    /// Sends a frame to the root. The end of the root is noticed elsewhere.
    fn send(&self, frame: ToRoot);

    /// Sends the root a line of the agent's own, which the root prints.
    fn say(&self, sentence: &str) {
        self.send(ToRoot::Print(sentence.to_owned()));
    }
}

/// The way to a root in another process: the standard output of the agent's process.
pub struct PipeUplink(Mutex<File>);

impl PipeUplink {
    /// Returns the way that leads over the standard output of this process.
    pub fn open() -> std::io::Result<PipeUplink> {
        let output = std::io::stdout().as_fd().try_clone_to_owned()?;
        Ok(PipeUplink(Mutex::new(output.into())))
    }

    /// Sends the agent's greeting, by which the root knows that frames follow.
    pub fn greet(&self) -> std::io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame::greeting())
    }
}

impl Uplink for PipeUplink {
    fn send(&self, frame: ToRoot) {
        let _ = frame::write(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), &frame);
    }
}

/// The way to a root in the same process: the root's queue of events.
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

/// Opens our standard input without a buffer: what the agent's first step does not read is left for the
/// second.
pub fn input() -> Result<File, Refusal> {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    input.map(File::from).map_err(|error| Refusal::other(format!("cannot read frames: {error}")))
}
