// SPDX-License-Identifier: BSD-3-Clause
//! The connection of an agent (the `mpirun` process on one host) to the root (the `mpirun` process that
//! decides): the frames (messages) that have come from the root, and what the agent has reported to it.
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

/// An agent's connection to the job's root (`mpirun`), and what the agent and the root have told each other
/// over it.
pub struct Upstream {
    pub(super) uplink: Arc<dyn Uplink>,
    /// The queue of frames (messages) from the job's root (`mpirun`). The number in front of each frame is
    /// the node it is for, which the agent ignores.
    inbox: Receiver<(u32, ToAgent)>,
    /// The state of the connection to the job's root (`mpirun`) if the root is in another process. None if it
    /// is in this process.
    remote: Option<RemoteRoot>,
    /// The queue to the thread that writes standard input to the ranks that read it. None before that thread
    /// has started, and after the end of standard input.
    pub(super) input: Option<Sender<Vec<u8>>>,
    /// What this agent and the job's root (`mpirun`) have told each other about each world. The key is the
    /// world's first process number.
    pub(super) worlds: HashMap<u32, ReportedWorld>,
    /// The network endpoints of this host whose names this agent has reported to the job's root (`mpirun`).
    pub(super) named: HashSet<u32>,
    /// The proxies on a DPU that ranks here have given up, and whose end this agent has reported to the job's
    /// root (`mpirun`). Each is named by its endpoint.
    pub(super) given_up: HashSet<u32>,
    /// The number of entries that this agent (`mpirun` on a host) has read so far in the segment's list of
    /// closed ports.
    pub(super) closings: u64,
    /// Whether this agent has found that its connection to the job's root (`mpirun`) is lost.
    is_lost: bool,
    /// Whether the user has stopped the ranks (Ctrl-Z). A stopped root sends nothing, and is not taken for
    /// lost then.
    pub(super) is_stopped: bool,
    /// Whether no more ranks may start on this host, because the job ends.
    pub(super) is_closed: bool,
}

/// The state of a connection to a root in another process. That root may end, or send nothing any more.
struct RemoteRoot {
    /// The reading end of a pipe, readable when frames (messages) have come into `inbox`.
    woken: OwnedFd,
    /// When the latest frame (message) came from the job's root (`mpirun`). If this process was stopped
    /// since, the length of the stop is added, so that it does not count as silence of the root.
    received: Instant,
    /// When `is_silent` was last called. A long time since then means that this process was stopped itself.
    looked: Instant,
    /// When this agent last sent the frame `Alive`, which shows the job's root (`mpirun`) that the agent
    /// lives.
    pulse: Instant,
    /// How long the job's root (`mpirun`) may send nothing before the agent takes it for lost
    /// (OUTBOARD_LAUNCH_SILENCE_MS).
    silence: Duration,
}

impl RemoteRoot {
    /// Whether the job's root (`mpirun`) has sent nothing for longer than `silence`. Also sends the frame
    /// `Alive` to the root when it is due.
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

/// What an agent and the job's root (`mpirun`) have last reported to each other about one world.
#[derive(Default)]
pub(super) struct ReportedWorld {
    /// How many ranks of the world had come to MPI_Init and to MPI_Finalize on this host at the agent's last
    /// report.
    pub(super) arrived: Arrivals,
    /// How many ranks of the world have come to MPI_Init and to MPI_Finalize on all other hosts, according to
    /// the latest frame (message) from the job's root (`mpirun`).
    pub(super) elsewhere: Arrivals,
    /// The worlds with which this world was connected on this host at the agent's last report. Each is named
    /// by its first process number.
    pub(super) connected: Vec<u32>,
    /// Whether this agent has reported to the job's root (`mpirun`) that no rank of the world lives on this
    /// host any more.
    pub(super) is_over: bool,
}

impl Upstream {
    /// Returns the connection of an agent in the same process as the job's root (`mpirun`). `uplink` sends
    /// frames (messages) to the root, and `inbox` receives frames from it.
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

    /// Opens the connection to the job's root (`mpirun`) in another process, which writes frames (messages)
    /// to our standard input. The agent takes the root for lost when it has sent nothing for `silence`.
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

    /// Whether the job's root (`mpirun`) is in this process. If so, this process has the standard input and
    /// output of the job.
    pub fn is_here(&self) -> bool {
        self.remote.is_none()
    }

    /// Returns the pipe that becomes readable when the job's root (`mpirun`) in another process has sent a
    /// frame (message). None if the root is in this process.
    pub fn woken(&self) -> Option<&OwnedFd> {
        self.remote.as_ref().map(|remote| &remote.woken)
    }

    /// Returns all frames (messages) that have come from the job's root (`mpirun`). The bool is true in the
    /// one call that finds the connection lost.
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

    /// Makes the queue that brings standard input to the thread that writes it to the ranks, and returns the
    /// reading end. It is called once.
    pub fn take_input(&mut self) -> InputPieces {
        let (sender, from) = channel();
        self.input = Some(sender);
        InputPieces { from, rest: Cursor::default(), uplink: self.uplink.clone() }
    }
}

/// Reads the standard input of `mpirun`, which the root sends bit by bit. Reports to the root how many bytes
/// were taken, so that the root sends more. Bytes that no rank here reads any more are taken and reported,
/// too: otherwise ranks on other hosts would wait for the bytes after these.
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
    /// Takes and drops the rest of standard input. This runs in the thread that writes standard input to the
    /// ranks. No other thread waits for the end of that thread.
    fn drop(&mut self) {
        let mut buffer = [0; 4096];
        while self.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    }
}
