// SPDX-License-Identifier: BSD-3-Clause
//! An agent's connection to the root: what it has received, and what it has reported.
//!
//! Read next: `receive.rs`.

use std::collections::{HashMap, HashSet};
use std::io::{Cursor, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use rustix::pipe::PipeFlags;

use crate::mpirun::command::say::Refusal;
use crate::mpirun::wire::frame::{self, Arrivals, ToAgent, ToRoot};
use crate::mpirun::wire::uplink::{PULSE, STANDSTILL, Uplink, input};

/// An agent's connection to the root, and what each side has told the other over it.
pub struct Upstream {
    pub(super) uplink: Arc<dyn Uplink>,
    /// The queue of frames from the root, each with the number of this agent's node.
    inbox: Receiver<(u32, ToAgent)>,
    /// What is known of a root in another process; None if the root is in this process.
    remote: Option<RemoteRoot>,
    /// The queue to the thread that writes standard input to the ranks that read it. None before that thread
    /// exists, and after the end of standard input.
    pub(super) input: Option<Sender<Vec<u8>>>,
    /// What this agent and the root have told each other about each world, by the world's first rank.
    pub(super) worlds: HashMap<u32, ReportedWorld>,
    /// The endpoints of this host whose names the root has been told.
    pub(super) named: HashSet<u32>,
    /// The proxies on another computer (a DPU) that ranks here have given up, as the root has been told.
    pub(super) given_up: HashSet<u32>,
    /// How many entries of the segment's list of closed ports this agent has read.
    pub(super) closings: u64,
    /// Whether the connection to the root was found to be lost.
    is_lost: bool,
    /// Whether the ranks are stopped (Ctrl-Z), so that a root that sends nothing is not taken for lost.
    pub(super) is_stopped: bool,
    /// Whether no more ranks may start here, because the job ends.
    pub(super) is_closed: bool,
}

/// What is known of a root in another process, which may end or fall silent.
struct RemoteRoot {
    /// A pipe that is readable when `inbox` has frames.
    woken: OwnedFd,
    /// When the last frame came from the root.
    received: Instant,
    /// When `is_silent` was last called: a long gap means that this process stood still itself.
    looked: Instant,
    /// When this agent last sent a pulse.
    pulse: Instant,
    /// How long the root may send nothing before it counts as lost (OUTBOARD_LAUNCH_SILENCE_MS).
    silence: Duration,
}

impl RemoteRoot {
    /// Whether the root has sent nothing for longer than `silence`. Also sends a pulse when one is due.
    fn is_silent(&mut self, has_received: bool, is_stopped: bool, uplink: &dyn Uplink) -> bool {
        let now = Instant::now();
        let gap = now.duration_since(std::mem::replace(&mut self.looked, now));
        if gap > STANDSTILL {
            self.received += gap;
        }
        if has_received {
            self.received = now;
        }
        if now.duration_since(self.pulse) > PULSE {
            self.pulse = now;
            uplink.send(ToRoot::Alive);
        }
        // A stopped `mpirun` sends nothing.
        !is_stopped && now.duration_since(self.received) > self.silence
    }
}

/// What an agent and the root have reported to each other about a world.
#[derive(Default)]
pub(super) struct ReportedWorld {
    /// How many ranks of the world have arrived at MPI_Init and MPI_Finalize on this host, as last reported.
    pub(super) arrived: Arrivals,
    /// How many ranks of the world have arrived on all other hosts, as the root has said last.
    pub(super) elsewhere: Arrivals,
    /// The worlds with which the world is connected on this host, by their first ranks, as last reported.
    pub(super) connected: Vec<u32>,
    /// Whether the root has been told that no rank of the world lives here any more.
    pub(super) is_over: bool,
}

impl Upstream {
    /// Returns the connection to a root in this process: `uplink` sends to it, `inbox` receives from it.
    pub fn here(uplink: Arc<dyn Uplink>, inbox: Receiver<(u32, ToAgent)>) -> Upstream {
        Upstream {
            uplink,
            inbox,
            remote: None,
            input: None,
            worlds: HashMap::new(),
            named: HashSet::new(),
            given_up: HashSet::new(),
            closings: 0,
            is_lost: false,
            is_stopped: false,
            is_closed: false,
        }
    }

    /// Opens the connection to a root that writes frames to our standard input. It counts as lost when it has
    /// sent nothing for `silence`.
    pub fn open(uplink: Arc<dyn Uplink>, silence: Duration) -> Result<Upstream, Refusal> {
        let wrong = |error: std::io::Error| Refusal::other(format!("cannot hear mpirun: {error}"));
        let (woken, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| wrong(error.into()))?;
        let (sender, inbox) = channel();
        let mut from = input()?;
        let asked = uplink.clone();
        let listen = move || {
            while let Ok(Some(frame)) = frame::read(&mut from) {
                // The answer goes out at once: time spent in the inbox would count as the time of the
                // network.
                if let ToAgent::Clock { sent } = frame {
                    asked.send(ToRoot::Clock { sent, there: sys::clock::now(), back: 0 });
                    continue;
                }
                if sender.send((0, frame)).is_err() {
                    return;
                }
                let _ = rustix::io::write(&wake, &[0]);
            }
            drop(sender);
            let _ = rustix::io::write(&wake, &[0]);
        };
        std::thread::Builder::new().name("upstream".into()).spawn(listen).map_err(wrong)?;
        let now = Instant::now();
        let remote = Some(RemoteRoot { woken, received: now, looked: now, pulse: now, silence });
        Ok(Upstream { remote, ..Upstream::here(uplink, inbox) })
    }

    /// Whether the root is in this process, so that this process has the standard streams of the job.
    pub fn is_here(&self) -> bool {
        self.remote.is_none()
    }

    /// Returns the pipe that becomes readable when a root in another process has sent a frame. None if the
    /// root is in this process.
    pub fn woken(&self) -> Option<&OwnedFd> {
        self.remote.as_ref().map(|remote| &remote.woken)
    }

    /// Returns all frames that have come from the root, and whether its connection was found to be lost in
    /// this call.
    pub(super) fn receive(&mut self) -> (Vec<ToAgent>, bool) {
        let mut bytes = [0; 64];
        while self
            .woken()
            .is_some_and(|woken| rustix::io::read(woken, &mut bytes).is_ok_and(|read| read == bytes.len()))
        {
        }
        let mut frames = Vec::new();
        let mut is_gone = loop {
            match self.inbox.try_recv() {
                Ok((_, frame)) => frames.push(frame),
                Err(error) => break error == TryRecvError::Disconnected,
            }
        };
        if let Some(remote) = &mut self.remote {
            is_gone |= remote.is_silent(!frames.is_empty(), self.is_stopped, &*self.uplink);
        }
        (frames, is_gone && !std::mem::replace(&mut self.is_lost, true))
    }

    /// Makes the queue by which standard input reaches the ranks that read it, and returns its reading end.
    /// It is called once.
    pub fn take_input(&mut self) -> InputPieces {
        let (sender, from) = channel();
        self.input = Some(sender);
        InputPieces { from, rest: Cursor::default(), uplink: self.uplink.clone() }
    }
}

/// The standard input of `mpirun`, piece by piece. It reports how much the ranks took, also of what no rank
/// reads any more, so that the readers on other hosts go on.
pub struct InputPieces {
    from: Receiver<Vec<u8>>,
    rest: Cursor<Vec<u8>>,
    uplink: Arc<dyn Uplink>,
}

impl Read for InputPieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut bytes = self.rest.read(buffer)?;
        while bytes == 0 {
            let Ok(next) = self.from.recv() else { return Ok(0) };
            self.rest = Cursor::new(next);
            bytes = self.rest.read(buffer)?;
        }
        self.uplink.send(ToRoot::Taken(bytes as u32));
        Ok(bytes)
    }
}

impl Drop for InputPieces {
    /// Takes and drops the rest of standard input. This runs in the thread that copies it to the ranks, for
    /// whose end nothing waits.
    fn drop(&mut self) {
        let mut buffer = [0; 4096];
        while self.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    }
}
