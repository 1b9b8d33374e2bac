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

/// An agent's connection to the root, and what has been reported over it.
pub struct Upstream {
    pub(super) uplink: Arc<dyn Uplink>,
    /// Frames with the number of the node, which is this agent's.
    inbox: Receiver<(u32, ToAgent)>,
    /// The state of the root's process, if it is another one.
    remote: Option<RemoteRoot>,
    /// Leads to the thread that writes to the ranks that read standard input.
    pub(super) input: Option<Sender<Vec<u8>>>,
    /// What was reported about each world that has ranks here or elsewhere, by its first rank.
    pub(super) worlds: HashMap<u32, ReportedWorld>,
    /// Endpoints whose names were reported.
    pub(super) named: HashSet<u32>,
    /// Proxies on another computer that ranks here have given up.
    pub(super) given_up: HashSet<u32>,
    /// How many closed ports of the segment's list have been looked at.
    pub(super) closings: u64,
    is_lost: bool,
    pub(super) is_stopped: bool,
    /// Whether the root wants nothing more to be started here.
    pub(super) is_closed: bool,
}

/// What is known of a root in another process, which may end or fall silent.
struct RemoteRoot {
    /// Readable when the inbox has frames.
    woken: OwnedFd,
    received: Instant,
    looked: Instant,
    pulse: Instant,
    /// How long the root may be silent.
    silence: Duration,
}

impl RemoteRoot {
    /// Whether the root has been silent for too long.
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
    /// How many ranks have arrived on this host, and on the others.
    pub(super) arrived: Arrivals,
    pub(super) elsewhere: Arrivals,
    pub(super) connected: Vec<u32>,
    pub(super) is_over: bool,
}

impl Upstream {
    /// The connection to a root in this process.
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

    /// The connection to a root that writes to our standard input, and may be silent for `silence`.
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

    /// Whether the root is in this process, so that its streams are ours.
    pub fn is_here(&self) -> bool {
        self.remote.is_none()
    }

    /// Becomes readable when a root in another process has sent something.
    pub fn woken(&self) -> Option<&OwnedFd> {
        self.remote.as_ref().map(|remote| &remote.woken)
    }

    /// All frames that have come from the root, and whether its connection was found to be lost in this call.
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

    /// The standard input for the ranks that read it. It is taken once.
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
    /// Takes and drops the rest. This runs in the thread that copies, for which nothing waits.
    fn drop(&mut self) {
        let mut buffer = [0; 4096];
        while self.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    }
}
