// SPDX-License-Identifier: BSD-3-Clause
//! The agents, as the root sees them.

use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::mpirun::wire::clock::Clock;
use crate::mpirun::wire::frame::ToAgent;

/// An agent, as the root sees it.
pub(super) struct Agent {
    pub(super) name: String,
    /// The command by which it was started, as the user reads it.
    pub(super) command: String,
    /// The index of its link in `Root::links`; None for the agent in this process.
    pub(super) link: Option<usize>,
    /// Leads to the agent.
    pub(super) frames: FrameSender,
    /// Frames that wait until the agent has started.
    waiting: Vec<ToAgent>,
    /// Whether an agent of our build has greeted.
    pub(super) has_started: bool,
    /// When the command was started.
    pub(super) started: Instant,
    /// Whether the user has been told that the agent starts slowly.
    pub(super) is_called_slow: bool,
    /// Whether frames go to the agent at once. `Start` is the first of them.
    is_open: bool,
    /// Whether its ranks are stopped.
    pub(super) is_stopped: bool,
    /// The agent's exit code, once nothing of the job is left on its node.
    pub(super) done: Option<u8>,
    pub(super) is_closed: bool,
    pub(super) received: Instant,
    /// The agent's clock, if a trace is wanted.
    pub(super) clock: Clock,
    /// The last lines that the command printed before the agent started.
    pub(super) lines: Vec<String>,
    /// Whether no more lines come.
    pub(super) lines_ended: bool,
}

/// Sends frames to a node.
#[derive(Clone)]
pub(super) struct FrameSender {
    node: u32,
    queue: Sender<(u32, ToAgent)>,
}

impl FrameSender {
    /// Sends a frame. The end of the thread that passes it on is noticed elsewhere.
    pub(super) fn send(&self, frame: ToAgent) {
        let _ = self.queue.send((self.node, frame));
    }
}

impl Agent {
    /// The agent of a node; `queue` leads to it.
    pub(super) fn new(name: String, node: u32, command: String, queue: Sender<(u32, ToAgent)>) -> Agent {
        let now = Instant::now();
        Agent {
            name,
            command,
            link: None,
            frames: FrameSender { node, queue },
            waiting: Vec::new(),
            has_started: false,
            started: now,
            is_called_slow: false,
            is_open: false,
            is_stopped: false,
            done: None,
            is_closed: false,
            received: now,
            clock: Clock::default(),
            lines: Vec::new(),
            lines_ended: false,
        }
    }

    pub(super) fn send(&mut self, frame: ToAgent) {
        if self.is_open {
            self.frames.send(frame);
        } else {
            self.waiting.push(frame);
        }
    }

    /// Sends the frames that wait, and from now on all others at once.
    pub(super) fn open(&mut self) {
        (self.is_open, self.received) = (true, Instant::now());
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|frame| self.frames.send(frame));
    }

    /// Starts a row of questions for the agent's clock.
    pub(super) fn ask_clock(&mut self) {
        self.clock.start();
        self.send(ToAgent::Clock { sent: 0 });
    }

    /// Takes an answer of the agent's clock, and asks again until the row is complete.
    pub(super) fn receive_clock(&mut self, sent: u64, there: u64, back: u64) {
        if self.clock.receive(sent, there, back) {
            self.send(ToAgent::Clock { sent: 0 });
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_closed || self.done.is_some()
    }
}
