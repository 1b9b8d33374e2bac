// SPDX-License-Identifier: BSD-3-Clause
//! The agents, seen from the root.

use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::mpirun::wire::clock::Clock;
use crate::mpirun::wire::frame::Down;

/// An agent, seen from `mpirun`.
pub(super) struct Agent {
    pub(super) name: String,
    /// The command by which it was started, for people.
    pub(super) command: String,
    /// The place of its link in the list of them; nothing for the agent in this process.
    pub(super) link: Option<usize>,
    /// To its standard input, or to itself.
    pub(super) frames: Frames,
    /// What it is told once it has started.
    held: Vec<Down>,
    /// Whether it has greeted, by an agent of our build.
    pub(super) has_started: bool,
    /// When it was begun.
    pub(super) begun: Instant,
    /// Whether the user has been told that it takes long.
    pub(super) is_called_slow: bool,
    /// Whether it has been told what to do, so that it understands other frames.
    is_open: bool,
    /// Whether its ranks are stopped.
    pub(super) is_stopped: bool,
    /// Its exit code, once nothing of the job is left there.
    pub(super) done: Option<u8>,
    pub(super) is_closed: bool,
    pub(super) heard: Instant,
    /// Its clock, if a trace is wanted.
    pub(super) clock: Clock,
    /// The last lines that its command wrote before it started.
    pub(super) lines: Vec<String>,
    /// Whether no more lines come.
    pub(super) has_said_all: bool,
}

/// The way of frames to a node.
#[derive(Clone)]
pub(super) struct Frames {
    node: u32,
    queue: Sender<(u32, Down)>,
}

impl Frames {
    /// One that has ended is noticed elsewhere.
    pub(super) fn send(&self, frame: Down) {
        let _ = self.queue.send((self.node, frame));
    }
}

impl Agent {
    /// The agent of a node, to which `queue` leads.
    pub(super) fn new(name: String, node: u32, command: String, queue: Sender<(u32, Down)>) -> Agent {
        let now = Instant::now();
        Agent {
            name,
            command,
            link: None,
            frames: Frames { node, queue },
            held: Vec::new(),
            has_started: false,
            begun: now,
            is_called_slow: false,
            is_open: false,
            is_stopped: false,
            done: None,
            is_closed: false,
            heard: now,
            clock: Clock::default(),
            lines: Vec::new(),
            has_said_all: false,
        }
    }

    pub(super) fn send(&mut self, frame: Down) {
        if self.is_open {
            self.frames.send(frame);
        } else {
            self.held.push(frame);
        }
    }

    /// Frames go to it from now on; the first of them says what to do.
    pub(super) fn open(&mut self) {
        (self.is_open, self.heard) = (true, Instant::now());
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|frame| self.frames.send(frame));
    }

    /// Asks for its clock.
    pub(super) fn ask_clock(&mut self) {
        self.clock.begin();
        self.send(Down::Clock { sent: 0 });
    }

    /// What its clock says.
    pub(super) fn hear_clock(&mut self, sent: u64, there: u64, back: u64) {
        if self.clock.hear(sent, there, back) {
            self.send(Down::Clock { sent: 0 });
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_closed || self.done.is_some()
    }
}
