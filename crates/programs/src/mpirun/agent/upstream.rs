//! What an agent has heard of `mpirun`, and told it.
//!
//! Read next: `hear.rs`.

use std::collections::{HashMap, HashSet};
use std::io::{Cursor, Read};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use rustix::pipe::PipeFlags;

use crate::mpirun::command::refusal::Refusal;
use crate::mpirun::wire::frame::{self, Arrivals, Down, Up};
use crate::mpirun::wire::upward::{input, tell};

/// What an agent's job hears of `mpirun`, and has told it.
pub struct Upstream {
    pub(super) inbox: Receiver<Down>,
    /// Readable when there is something in `inbox`.
    pub(super) woken: OwnedFd,
    /// For ranks that read standard input.
    pub(super) input: Option<Sender<Vec<u8>>>,
    /// What was said of each world that has ranks here or elsewhere, by its first rank.
    pub(super) worlds: HashMap<u32, Told>,
    /// Endpoints that were told, and those of proxies elsewhere that ranks here have given up.
    pub(super) named: HashSet<u32>,
    pub(super) given_up: HashSet<u32>,
    /// Ports of which it was told that they were closed.
    pub(super) closings: u64,
    pub(super) heard: Instant,
    pub(super) looked: Instant,
    pub(super) pulse: Instant,
    pub(super) is_lost: bool,
    pub(super) is_stopped: bool,
    /// Whether nothing more is to be started here.
    pub(super) is_closed: bool,
}

/// What an agent and `mpirun` have said to each other of a world.
#[derive(Default)]
pub(super) struct Told {
    /// Arrivals here, and elsewhere.
    pub(super) arrived: Arrivals,
    pub(super) elsewhere: Arrivals,
    pub(super) connected: Vec<u32>,
    pub(super) is_over: bool,
}

impl Upstream {
    pub(super) fn open() -> Result<Upstream, Refusal> {
        let wrong = |error: std::io::Error| Refusal::other(format!("cannot hear mpirun: {error}"));
        let (woken, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| wrong(error.into()))?;
        let (sender, inbox) = channel();
        let mut from = input()?;
        let listen = move || {
            while let Ok(Some(frame)) = frame::read(&mut from) {
                if sender.send(frame).is_err() {
                    return;
                }
                let _ = rustix::io::write(&wake, &[0]);
            }
            drop(sender);
            let _ = rustix::io::write(&wake, &[0]);
        };
        std::thread::Builder::new().name("upstream".into()).spawn(listen).map_err(wrong)?;
        let now = Instant::now();
        Ok(Upstream {
            inbox,
            woken,
            input: None,
            worlds: HashMap::new(),
            named: HashSet::new(),
            given_up: HashSet::new(),
            closings: 0,
            heard: now,
            looked: now,
            pulse: now,
            is_lost: false,
            is_stopped: false,
            is_closed: false,
        })
    }

    /// Whether `mpirun` wants nothing more of us.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Nothing more is to be started.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// What becomes readable when `Job::hear` has something to do.
    pub fn woken(&self) -> &OwnedFd {
        &self.woken
    }

    /// For the ranks that read standard input; once.
    pub fn take_input(&mut self) -> Pieces {
        let (sender, from) = channel();
        self.input = Some(sender);
        Pieces { from, rest: Cursor::default() }
    }
}

/// What `mpirun` passes on of its standard input, piece by piece. It hears how much was taken, also of what
/// no rank reads any more, so that its other readers go on.
pub struct Pieces {
    from: Receiver<Vec<u8>>,
    rest: Cursor<Vec<u8>>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut bytes = self.rest.read(buffer)?;
        while bytes == 0 {
            let Ok(next) = self.from.recv() else { return Ok(0) };
            self.rest = Cursor::new(next);
            bytes = self.rest.read(buffer)?;
        }
        tell(&Up::Taken(bytes as u32));
        Ok(bytes)
    }
}

impl Drop for Pieces {
    /// Runs in the thread that copies, which is never waited for.
    fn drop(&mut self) {
        let mut buffer = [0; 4096];
        while self.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    }
}
