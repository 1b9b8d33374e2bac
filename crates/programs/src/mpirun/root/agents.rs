// SPDX-License-Identifier: BSD-3-Clause
//! What the root knows of each agent, and how it sends frames to it.

use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::mpirun::wire::clock::Clock;
use crate::mpirun::wire::frame::ToAgent;

/// An agent, as the root sees it: its command, its link, and what it has reported.
pub(super) struct Agent {
    pub(super) name: String,
    /// The command that started the agent, as text for the user.
    pub(super) command: String,
    /// The index in `Root::links` of the connection to the agent; None for the agent in this process.
    pub(super) link: Option<usize>,
    /// The queue of frames to the agent.
    pub(super) frames: FrameSender,
    /// Frames that wait until `open` is called, because the agent has not started yet.
    waiting: Vec<ToAgent>,
    /// Whether the agent has greeted, and is of the same build as this `mpirun`.
    pub(super) has_started: bool,
    /// When the command that starts the agent was started.
    pub(super) started: Instant,
    /// Whether the user has been told that the agent starts slowly.
    pub(super) is_called_slow: bool,
    /// Whether `send` sends frames at once, instead of keeping them in `waiting`. The first frame sent is
    /// `Start`.
    is_open: bool,
    /// Whether the agent has reported that its ranks are stopped (Ctrl-Z).
    pub(super) is_stopped: bool,
    /// The exit code that the agent reported when nothing of the job was left on its node; None before.
    pub(super) done: Option<u8>,
    /// Whether the connection to the agent has ended.
    pub(super) is_closed: bool,
    /// When the agent last sent something.
    pub(super) received: Instant,
    /// How far the clock of the agent's host differs from ours; measured only for a trace.
    pub(super) clock: Clock,
    /// The last lines that the command wrote to standard error before the agent started: they say why it did
    /// not.
    pub(super) lines: Vec<String>,
    /// Whether the standard error of the command has ended.
    pub(super) lines_ended: bool,
}

/// The queue of frames to a node, which adds the node's number to each frame.
#[derive(Clone)]
pub(super) struct FrameSender {
    node: u32,
    queue: Sender<(u32, ToAgent)>,
}

impl FrameSender {
    /// Puts a frame into the queue. The end of the thread that empties the queue is noticed elsewhere.
    pub(super) fn send(&self, frame: ToAgent) {
        let _ = self.queue.send((self.node, frame));
    }
}

impl Agent {
    /// Returns the agent of node `node` before it has started. `queue` leads to the thread that sends it
    /// frames.
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

    /// Sends the frames that wait for the agent's start; from now on `send` sends frames at once.
    pub(super) fn open(&mut self) {
        (self.is_open, self.received) = (true, Instant::now());
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|frame| self.frames.send(frame));
    }

    /// Asks the agent for its clock, as the first of a row of questions.
    pub(super) fn ask_clock(&mut self) {
        self.clock.start();
        self.send(ToAgent::Clock { sent: 0 });
    }

    /// Takes the agent's answer to a question for its clock, and asks again until the row is complete.
    pub(super) fn receive_clock(&mut self, sent: u64, there: u64, back: u64) {
        if self.clock.receive(sent, there, back) {
            self.send(ToAgent::Clock { sent: 0 });
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_closed || self.done.is_some()
    }
}
