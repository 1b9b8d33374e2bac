// SPDX-License-Identifier: BSD-3-Clause
//! What the root (the `mpirun` process that decides) knows of each agent (the `mpirun` process on a host),
//! and how it sends frames (messages) to an agent.

use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::mpirun::wire::clock::Clock;
use crate::mpirun::wire::frame::ToAgent;

/// An agent, as the job's root (`mpirun`) sees it: the command that started it, the connection to it, and
/// what it has reported.
pub(super) struct Agent {
    pub(super) name: String,
    /// The command line that started the agent (`mpirun` on a host), as text for the user.
    pub(super) command: String,
    /// The index in `Root::links` of the connection to the agent (`mpirun` on a host). None for the agent in
    /// this process.
    pub(super) link: Option<usize>,
    /// The queue from which frames (messages) go to the agent (`mpirun` on a host).
    pub(super) frames: FrameSender,
    /// Frames (messages) for an agent (`mpirun` on a host) that has not started yet. `open` sends them.
    waiting: Vec<ToAgent>,
    /// Whether the agent's greeting (its first bytes) has come and names the same build as that of this
    /// `mpirun`.
    pub(super) has_started: bool,
    /// When `mpirun` started the command that starts the agent.
    pub(super) started: Instant,
    /// Whether the user has been told that this agent (`mpirun` on a host) starts slowly.
    pub(super) is_called_slow: bool,
    /// Whether `send` puts frames (messages) into the queue at once. Until `open` is called it keeps them in
    /// `waiting` instead. The first frame is `Start`.
    is_open: bool,
    /// Whether the agent (`mpirun` on a host) has reported that its ranks are stopped (Ctrl-Z).
    pub(super) is_stopped: bool,
    /// The exit code that the agent (`mpirun` on a host) reported with its last frame (message), when no
    /// process of the job was left on its node. None before that.
    pub(super) done: Option<u8>,
    /// Whether the connection to the agent has ended, or the job's root (`mpirun`) has given the agent up.
    pub(super) is_closed: bool,
    /// When the agent's latest frame (message), greeting or line came, but later by the time for which the
    /// job's root (`mpirun`) was stopped since. So such a time does not count as silence of the agent.
    pub(super) received: Instant,
    /// How far the clock of the agent's host differs from the clock of the job's root (`mpirun`). It is
    /// measured only if the user wants a trace.
    pub(super) clock: Clock,
    /// The latest lines that the agent's command (such as ssh) wrote to standard error before the agent
    /// started. They tell the user why it did not start.
    pub(super) lines: Vec<String>,
    /// Whether the standard error of the agent's command has ended.
    pub(super) lines_ended: bool,
}

/// A queue of frames (messages) for the agent of one node. Each frame carries the node's number, because
/// several agents may share the queue.
#[derive(Clone)]
pub(super) struct FrameSender {
    node: u32,
    queue: Sender<(u32, ToAgent)>,
}

impl FrameSender {
    /// Puts a frame (message) into the queue. If the thread that empties the queue has ended, the frame is
    /// lost: the job's root (`mpirun`) learns of the lost connection by an event.
    pub(super) fn send(&self, frame: ToAgent) {
        let _ = self.queue.send((self.node, frame));
    }
}

impl Agent {
    /// Returns the agent of node `node`, which has not started yet. The thread that empties `queue` sends the
    /// frames (messages) to the agent.
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

    /// Sends the frames (messages) that have waited for the agent's start. From now on `send` puts frames
    /// into the queue at once.
    pub(super) fn open(&mut self) {
        (self.is_open, self.received) = (true, Instant::now());
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|frame| self.frames.send(frame));
    }

    /// Asks the agent (`mpirun` on a host) what time its clock has. This begins a row of such questions,
    /// because only the fastest answer counts.
    pub(super) fn ask_clock(&mut self) {
        self.clock.start();
        self.send(ToAgent::Clock { sent: 0 });
    }

    /// Takes the agent's answer to a question about its clock, and asks again until the row of questions is
    /// complete.
    pub(super) fn receive_clock(&mut self, sent: u64, there: u64, back: u64) {
        if self.clock.receive(sent, there, back) {
            self.send(ToAgent::Clock { sent: 0 });
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_closed || self.done.is_some()
    }
}
