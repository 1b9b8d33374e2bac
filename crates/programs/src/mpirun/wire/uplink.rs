// SPDX-License-Identifier: BSD-3-Clause
//! An agent's connection to the job's root (`mpirun`): the pipe to the process that started the agent, or the
//! root's own queue if both are in one process.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::frame::{self, ToRoot};
use super::link::{AgentEvent, Listener};
use crate::mpirun::command::say::Refusal;

/// How often the job's root (`mpirun`) and an agent in another process send each other the frame `Alive`,
/// which says that the sender lives.
pub const PULSE: Duration = Duration::from_secs(2);
/// A process that reads its clock twice and finds more than this time in between concludes that it was
/// stopped meanwhile, as on a suspended machine.
pub const STANDSTILL: Duration = Duration::from_secs(2);

/// A connection over which an agent sends frames (messages) to the job's root (`mpirun`).
pub trait Uplink: Send + Sync {
    /// Sends a frame (message) to the job's root (`mpirun`). The frame is lost if the root has ended; the
    /// agent notices the root's end only when it receives.
    fn send(&self, frame: ToRoot);

    /// Sends a sentence from the agent itself to the job's root (`mpirun`), which prints it as a line.
    fn say(&self, sentence: &str) {
        self.send(ToRoot::Print(sentence.to_owned()));
    }
}

/// The connection to the job's root (`mpirun`) in another process: the standard output of this process.
pub struct PipeUplink(Mutex<File>);

impl PipeUplink {
    /// Returns the connection over the standard output of this process.
    pub fn open() -> std::io::Result<PipeUplink> {
        let output = std::io::stdout().as_fd().try_clone_to_owned()?;
        Ok(PipeUplink(Mutex::new(output.into())))
    }

    /// Sends the agent's greeting, after which the job's root (`mpirun`) expects frames (messages).
    pub fn greet(&self) -> std::io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame::greeting())
    }
}

impl Uplink for PipeUplink {
    fn send(&self, frame: ToRoot) {
        let _ = frame::write(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), &frame);
    }
}

/// The connection to the job's root (`mpirun`) in the same process: the root's queue of events.
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

/// Opens our standard input without a buffer. The agent's first step reads only one frame (message) from it,
/// and the second step reads all others.
pub fn input() -> Result<File, Refusal> {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    input.map(File::from).map_err(|error| Refusal::other(format!("cannot read frames: {error}")))
}
