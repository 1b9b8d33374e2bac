//! The agent of a job on one of its hosts: it runs the ranks of its node as `mpirun` does on one machine, and
//! tells `mpirun`.
//!
//! It starts in two steps. The first reads what to do, and becomes the second by `exec`, with the environment
//! and the folder of `mpirun`.
//!
//! Invariants: an agent whose `mpirun` is gone ends its ranks; nothing but frames is written to its standard
//! output.
//!
//! Read next: `frame.rs` (what is said), `nodes.rs` (the other side), `job.rs`.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Cursor, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::pipe::PipeFlags;
use sys::signal::Signals;
use transport::shm::State;

use super::frame::{self, Arrivals, Down, Start, Up};
use super::job::{self, Job};
use super::start::Refusal;
use super::statistics::Counted;

/// The hidden first argument of an agent.
pub const WORD: &str = "--agent";
/// That of its second step; the descriptor of a [`Start`] follows.
const AGAIN: &str = "--agent-with";
/// Variables that belong to a host or a login, not to a job.
const LOCAL_VARIABLES: [&str; 8] = [
    "HOSTNAME",
    "HOST",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "SLURMD_NODENAME",
];
/// How often each side says that it lives.
pub const PULSE: Duration = Duration::from_secs(2);
/// For how long the other side may be silent. Where processes are many more than cores, 20 s were seen.
pub const SILENCE: Duration = Duration::from_secs(45);
/// Whoever looks so much later than it last did stood still itself, as a suspended machine does.
pub const STANDSTILL: Duration = Duration::from_secs(2);

/// The way to `mpirun`: set in agents only.
static UPWARD: OnceLock<Mutex<File>> = OnceLock::new();

/// Whether this process is an agent.
pub fn is_one() -> bool {
    UPWARD.get().is_some()
}

/// Tells `mpirun` something. Its end is noticed elsewhere.
pub fn tell(frame: &Up) {
    if let Some(upward) = UPWARD.get() {
        let mut upward = upward.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = frame::write(&mut *upward, frame);
    }
}

/// Whether this is our business, and then the exit code.
pub fn serve(words: &[std::ffi::OsString]) -> Option<u8> {
    let step: fn(&str) -> Result<u8, Refusal> = match words.first()?.to_str()? {
        WORD => |_| begin(),
        AGAIN => run,
        _ => return None,
    };
    sys::child::name_myself("mpirun-agent");
    let output = std::io::stdout().as_fd().try_clone_to_owned().ok()?;
    UPWARD.get_or_init(|| Mutex::new(output.into()));
    let second = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let code = step(second).unwrap_or_else(|refusal| {
        tell(&Up::Failed { worlds: vec![0], sentence: refusal.message, code: refusal.code });
        refusal.code
    });
    tell(&Up::Done { code });
    Some(code)
}

/// Our standard input without a buffer: what the first step does not take is there for the second.
pub(super) fn input() -> Result<File, Refusal> {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    input.map(File::from).map_err(|error| Refusal::other(format!("cannot read frames: {error}")))
}

fn begin() -> Result<u8, Refusal> {
    if let Some(upward) = UPWARD.get() {
        let mut upward = upward.lock().unwrap_or_else(PoisonError::into_inner);
        let greeted = upward.write_all(&frame::greeting());
        greeted.map_err(|error| Refusal::other(format!("cannot greet: {error}")))?;
    }
    let wrong = |what: String| Refusal::other(format!("what an agent is to do cannot be read: {what}"));
    let first = frame::read(&mut input()?).map_err(|error| wrong(error.to_string()))?;
    let Some(Down::Start(start)) = first else { return Err(wrong("nothing came".into())) };
    let ours = |name: &&(std::ffi::OsString, std::ffi::OsString)| {
        !name.0.to_str().is_some_and(|name| LOCAL_VARIABLES.contains(&name))
    };
    let environment: Vec<_> = start.environment.iter().filter(ours).cloned().collect();
    if !start.directory.is_dir() {
        let sentence =
            format!("the folder {} does not exist (-wdir names another)", start.directory.display());
        return Err(Refusal::other(sentence));
    }
    let again = |error: std::io::Error| Refusal::other(format!("cannot start itself again: {error}"));
    let mut bytes = Vec::new();
    frame::write(&mut bytes, &*start).map_err(again)?;
    let fd = sys::memory::create("outboard-start", bytes.len() as u64).map_err(again)?;
    let mut file = File::from(fd);
    file.write_all(&bytes).and_then(|()| file.rewind()).map_err(again)?;
    sys::memory::inheritable(&file, true).map_err(again)?;
    let program = std::env::current_exe().map_err(again)?;
    let mut command = Command::new(program);
    command.arg(AGAIN).arg(file.as_raw_fd().to_string());
    Err(again(command.envs(environment).current_dir(&start.directory).exec()))
}

fn run(fd: &str) -> Result<u8, Refusal> {
    let signals = Signals::take(job::SIGNALS)
        .map_err(|error| Refusal::other(format!("cannot take over signals: {error}")))?;
    let lost =
        |error: std::io::Error| Refusal::other(format!("what an agent is to do cannot be read: {error}"));
    let fd: i32 = fd.parse().map_err(|_| Refusal::other(format!("{fd:?} is no descriptor")))?;
    let mut file = File::from(sys::memory::inherited(fd).map_err(lost)?);
    let start: Option<Start> = frame::read(&mut file).map_err(lost)?;
    let start = start.ok_or_else(|| Refusal::other("what an agent is to do is empty"))?;
    let upstream = Upstream::open()?;
    super::prepare(&start.global, &start.programs, &super::Share::of(&start), Some(upstream), signals)
}

/// What an agent's job hears of `mpirun`, and has told it.
pub struct Upstream {
    inbox: Receiver<Down>,
    /// Readable when there is something in `inbox`.
    woken: OwnedFd,
    /// For ranks that read standard input.
    input: Option<Sender<Vec<u8>>>,
    /// What was said of each world that has ranks here or elsewhere, by its first rank.
    worlds: HashMap<u32, Told>,
    /// Endpoints that were told, and those of proxies elsewhere that ranks here have given up.
    named: HashSet<u32>,
    given_up: HashSet<u32>,
    /// Ports of which it was told that they were closed.
    closings: u64,
    heard: Instant,
    looked: Instant,
    pulse: Instant,
    is_lost: bool,
    is_stopped: bool,
    /// Whether nothing more is to be started here.
    is_closed: bool,
}

/// What an agent and `mpirun` have said to each other of a world.
#[derive(Default)]
struct Told {
    /// Arrivals here, and elsewhere.
    arrived: Arrivals,
    elsewhere: Arrivals,
    connected: Vec<u32>,
    is_over: bool,
}

impl Upstream {
    fn open() -> Result<Upstream, Refusal> {
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

impl Job {
    /// Obeys `mpirun`, and tells it what is new here.
    pub(super) fn hear(&mut self) {
        let Some(mut upstream) = self.upstream.take() else { return };
        let mut bytes = [0; 64];
        while rustix::io::read(&upstream.woken, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
        let now = Instant::now();
        let gap = now.duration_since(std::mem::replace(&mut upstream.looked, now));
        if gap > STANDSTILL {
            upstream.heard += gap;
        }
        loop {
            match upstream.inbox.try_recv() {
                Ok(frame) => {
                    upstream.heard = now;
                    self.obey_frame(&mut upstream, frame);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.lose(&mut upstream);
                    break;
                }
            }
        }
        // A stopped `mpirun` says nothing.
        if !upstream.is_stopped && now.duration_since(upstream.heard) > SILENCE {
            self.lose(&mut upstream);
        }
        if now.duration_since(upstream.pulse) > PULSE {
            upstream.pulse = now;
            tell(&Up::Alive);
        }
        self.tell_news(&mut upstream);
        self.upstream = Some(upstream);
    }

    fn obey_frame(&mut self, upstream: &mut Upstream, frame: Down) {
        match frame {
            Down::Names(names) => {
                names.iter().for_each(|(rank, name)| self.segment.set_endpoint(*rank, name));
                self.ring_all();
            }
            Down::Arrived { first, arrivals } => {
                let world = self.segment.world(first);
                let elsewhere = &mut upstream.worlds.entry(first).or_default().elsewhere;
                world.born.add(arrivals.born.saturating_sub(elsewhere.born));
                world.leaving.add(arrivals.leaving.saturating_sub(elsewhere.leaving));
                *elsewhere = arrivals;
                self.ring_all();
            }
            Down::Begin(begin) => {
                let places = begin.first..begin.first + begin.node_of.len() as u32;
                upstream.named.retain(|rank| !places.contains(rank));
                upstream.worlds.retain(|first, _| !places.contains(first));
                if let Err(error) = self.begin(&begin, None) {
                    tell(&Up::Stillborn { first: begin.first, sentence: error.message.clone() });
                }
            }
            Down::Answer { rank, bytes } => self.reply(rank, &bytes),
            Down::Undo { first } => self.undo(first),
            Down::Connected { first, to } => {
                let set = &self.segment.world(first).connected_elsewhere;
                set.each(self.segment.shape().ranks, |world| {
                    if !to.contains(&world) {
                        set.remove(world)
                    }
                });
                to.iter().for_each(|world| set.add(*world));
                self.ring_all();
            }
            Down::Closed(ports) => {
                ports.iter().for_each(|port| self.segment.job().note_closed(*port));
                self.ring_all();
            }
            Down::Over { first } => {
                self.segment.world(first).over.store(1, Ordering::Release);
                self.ring_all();
            }
            Down::Input(bytes) if bytes.is_empty() => upstream.input = None,
            Down::Input(bytes) => {
                // Ranks that do not read any more need nothing.
                let sent = upstream.input.as_ref().is_some_and(|input| input.send(bytes.clone()).is_ok());
                if !sent {
                    tell(&Up::Taken(bytes.len() as u32));
                }
            }
            Down::Signal(signal) => self.obey(signal),
            Down::Stop => {
                upstream.is_stopped = true;
                self.stop();
                tell(&Up::Stopped);
            }
            Down::Continue => {
                upstream.is_stopped = false;
                self.go_on();
            }
            Down::End { worlds, signal, code } => self.end(&worlds, code, signal),
            Down::Close { signal, code } => {
                upstream.is_closed = true;
                if code != 0 {
                    self.end_all(code, signal);
                }
            }
            Down::Start(_) | Down::Alive => {}
        }
    }

    /// `mpirun`, or the way to it, is gone.
    fn lose(&mut self, upstream: &mut Upstream) {
        if !std::mem::replace(&mut upstream.is_lost, true) {
            upstream.is_closed = true;
            self.end_all(1, libc::SIGKILL);
        }
    }

    fn tell_news(&mut self, upstream: &mut Upstream) {
        let living: Vec<u32> = self.living_ranks().into_iter().map(|(rank, _)| rank).collect();
        let ranks = living.iter().filter(|rank| self.page(**rank).state() == State::Running);
        let proxies = (0..self.segment.shape().proxies).map(|proxy| self.segment.proxy_endpoint(proxy));
        // Those that run elsewhere are told from there; their end also from here, if ranks gave them up.
        let is_elsewhere = self.segment.has_dpu() && !self.is_dpu;
        let gone = proxies.clone().filter(|it| is_elsewhere && self.segment.is_gone(*it));
        for proxy in gone.filter(|it| upstream.given_up.insert(*it)).collect::<Vec<_>>() {
            tell(&Up::Names(vec![(proxy, Vec::new())]));
        }
        let names: Vec<_> = ranks
            .copied()
            .chain(proxies.filter(|_| !is_elsewhere))
            .filter(|endpoint| !upstream.named.contains(endpoint))
            .filter_map(|endpoint| Some((endpoint, self.segment.endpoint(endpoint)?)))
            .collect();
        if !names.is_empty() {
            upstream.named.extend(names.iter().map(|(endpoint, _)| *endpoint));
            tell(&Up::Names(names));
        }
        if self.is_dpu {
            return;
        }
        let is_ours = |port: &u64| self.segment.local(((port >> 32) as u32).wrapping_sub(1)).is_some();
        let mut closed = self.segment.job().closed_since(&mut upstream.closings);
        closed.retain(is_ours);
        if !closed.is_empty() {
            tell(&Up::Closed(closed));
        }
        for world in &self.worlds {
            let (first, places) = (world.first, world.first..world.first + world.size);
            let told = upstream.worlds.entry(first).or_default();
            let shared = self.segment.world(first);
            let arrived = Arrivals {
                born: shared.born.count() - told.elsewhere.born,
                leaving: shared.leaving.count() - told.elsewhere.leaving,
            };
            if arrived != told.arrived {
                told.arrived = arrived;
                tell(&Up::Arrived { first, arrivals: arrived });
            }
            let connected = self.segment.connected_here(first);
            if connected != told.connected {
                told.connected.clone_from(&connected);
                tell(&Up::Connected { first, to: connected });
            }
            let is_here = self.segment.members(first).next().is_some();
            if is_here && !told.is_over && !living.iter().any(|rank| places.contains(rank)) {
                told.is_over = true;
                if shared.statistics.swap(0, Ordering::Relaxed) != 0 {
                    tell(&Up::Counted { first, counted: Counted::here(&self.segment, first) });
                }
                tell(&Up::Over { first, is_broken: world.broken });
            }
        }
    }

    fn ring_all(&self) {
        self.living_ranks().iter().for_each(|(rank, _)| self.page(*rank).bell.ring());
        (0..self.segment.shape().proxies).for_each(|proxy| self.segment.proxy(proxy).bell.ring());
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
