// SPDX-License-Identifier: BSD-3-Clause
//! What processes show of themselves: the job's page, one page per rank, one per proxy. Each begins as zeros.

use super::atomic::Line;
use super::extents::ExtentTable;
use super::wait::Words;
use super::{Doorbell, LaunchRing, Report, Wait};
use std::sync::atomic::{AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a rank's instance directory.
pub const DIRECTORY_BUCKETS: usize = 1024;
/// Ranks that a segment can have: what a `RankSet` holds.
pub const RANKS_MAX: u32 = 4096;
/// Ports that can be open at the same time in a job.
pub const PORTS_MAX: usize = 1024;

/// The life of a process of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Has not attached yet.
    Unborn = 0,
    /// Attached; its pid is published.
    Running = 1,
    /// A rank that has left by MPI_Finalize.
    Finalized = 2,
    /// Known to have ended without saying so.
    Dead = 3,
}

impl State {
    /// The state of a shared word. Another value comes from a dead or broken process.
    fn of(word: u32) -> State {
        match word {
            0 => State::Unborn,
            1 => State::Running,
            2 => State::Finalized,
            _ => State::Dead,
        }
    }
}

/// The job's page. Its creator writes it before any process attaches, unless said otherwise.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Job {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    /// Which build of the library made it (`boot::create`).
    pub build: AtomicU64,
    pub(crate) ranks: AtomicU32,
    pub(crate) proxies: AtomicU32,
    pub(crate) arena_bytes: AtomicU64,
    pub(crate) total_bytes: AtomicU64,
    /// A number that tells this job from others of the machine.
    pub id: AtomicU64,
    /// When the segment was made, by `sys::clock::now`.
    pub start: AtomicU64,
    /// The process whose descendants all members are (mpirun), 0 if none.
    pub launcher: AtomicU32,
    /// 1 if the first world is no descendant of the launcher, or there is none.
    pub adopted: AtomicU32,
    /// 1 if every process has a cpu of its own, so that waiting may spin.
    pub spin_allowed: AtomicU32,
    /// 1 if sleepers fence for ringers (`sys::fence`): where processes hardly ever sleep. Never changes.
    pub sleepers_fence: AtomicU32,
    /// 1 if cross-memory attach must not be used although it may work (a setting).
    pub cma_forbidden: AtomicU32,
    /// 1 once some rank could not map another's arena (`RankPage::unmapped`).
    pub unmapped: AtomicU32,
    /// How often a rank has found that it cannot read another's private memory (`RankPage::unread`).
    pub unread: AtomicU32,
    /// The number of the latest world that was spawned (MPI 5.0, section 11.8).
    pub worlds: AtomicU64,
    /// Connections that MPI_Comm_accept and MPI_Comm_join have made so far.
    pub connections: AtomicU64,
    /// 1 once `mpirun` knows that no rank lives any more: proxies may go.
    pub ending: AtomicU32,
    /// The hosts of the job.
    pub nodes: AtomicU32,
    /// Which of them this one is.
    pub node: AtomicU32,
    /// 1 if the proxies of this host run on another computer (a data processing unit).
    pub dpu: AtomicU32,
    /// What all packets between hosts carry.
    pub secret: AtomicU64,
    /// This host's address, by which the others know it; empty if there are no others.
    pub address: Words<8>,
    /// The settings that only the job's maker and proxies read (`settings::agree`).
    pub launched: Words<512>,
    /// Those on which ranks must agree.
    pub agreed: Agreed,
    /// What the tuning table of this machine says (`tuning::Tuning::to_words`).
    pub tuning: Line<[AtomicU64; tuning::WORDS]>,
    /// What the first long messages showed where the table says nothing. Any rank writes it.
    pub probes: Line<[AtomicU64; tuning::PROBE_WORDS]>,
    /// Open ports: 0, or the rank that opened it plus 1 (high half) and a number that no other port has.
    pub ports: Line<[AtomicU64; PORTS_MAX]>,
    /// The ports that were closed last, also those of other hosts, and how many were.
    closed: Line<[AtomicU64; PORTS_MAX]>,
    closings: AtomicU64,
    /// The first ranks of all worlds: also of those that have ended, until their places are taken anew.
    pub(crate) firsts: Line<RankSet>,
}

impl Job {
    /// Whether waiting may spin.
    #[inline]
    pub fn may_spin(&self) -> bool {
        self.spin_allowed.load(Ordering::Relaxed) != 0
    }

    /// Notes that a port, by its entry in `ports`, was closed.
    pub fn note_closed(&self, port: u64) {
        let at = self.closings.fetch_add(1, Ordering::AcqRel);
        self.closed[at as usize % PORTS_MAX].store(port, Ordering::Release);
    }

    /// Whether a port was closed lately.
    pub fn was_closed(&self, port: u64) -> bool {
        self.closed.iter().any(|closed| closed.load(Ordering::Acquire) == port)
    }

    /// The ports that were closed after the first `seen`, which this counts.
    pub fn closed_since(&self, seen: &mut u64) -> Vec<u64> {
        let until = self.closings.load(Ordering::Acquire);
        let from = std::mem::replace(seen, until).max(until.saturating_sub(PORTS_MAX as u64));
        (from..until).map(|at| self.closed[at as usize % PORTS_MAX].load(Ordering::Acquire)).collect()
    }
}

/// What the first rank that joins says for all that come later.
#[repr(C)]
#[derive(Debug)]
pub struct Agreed {
    /// That rank plus 1, 0 before.
    first: AtomicU32,
    said: Gate,
    text: Words<512>,
}

impl Agreed {
    /// Says `text` for `rank` if no rank has said anything yet. Otherwise returns that rank and its text.
    /// `None` if `give_up` ends the wait for a rank that is about to say it.
    pub fn say(&self, rank: u32, text: &str, give_up: impl FnMut() -> bool) -> Option<(u32, String)> {
        match self.first.compare_exchange(0, rank + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                self.text.set(text);
                self.said.arrive();
                None
            }
            Err(first) => self.said.wait(1, give_up).then(|| (first - 1, self.text.text())),
        }
    }
}

/// What the processes of one MPI_COMM_WORLD share, in the page of the first of them. A job begins with one
/// world, at rank 0; MPI_Comm_spawn adds others, each a run of further ranks.
#[repr(C)]
#[derive(Debug)]
pub struct World {
    /// 0 for the first world; otherwise a number that no other world of the job ever has.
    pub id: AtomicU64,
    /// Processes in it.
    pub size: AtomicU32,
    /// All pass it in MPI_Init, after publishing their page.
    pub born: Gate,
    /// All pass it in MPI_Finalize.
    pub leaving: Gate,
    /// 0, or why the world ends (`Cause`, 2 bits), rank (30 bits) and code (32 bits) of who was first.
    abort: AtomicU64,
    /// 1 while its statistics must be told; the process that takes the 1 away tells them.
    pub statistics: AtomicU32,
    /// 1 once the launcher knows that no process of it lives any more, on whatever host.
    pub over: AtomicU32,
    /// The worlds to which comms of its processes on other hosts lead.
    pub connected_elsewhere: RankSet,
}

impl World {
    /// Ends the world: the first call counts. `Segment::abort` also wakes its processes.
    pub(crate) fn set_abort(&self, rank: u32, code: i32, cause: Cause) {
        let word = (cause as u64) << 62 | u64::from(rank & 0x3fff_ffff) << 32 | u64::from(code as u32);
        // Losing the race is fine: the world ends with the first code.
        let _ = self.abort.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The rank and code of the exit, MPI_Abort or fatal error that ends the world, if any.
    pub fn aborted(&self) -> Option<(u32, i32)> {
        let word = self.abort.load(Ordering::Acquire);
        (word != 0).then_some(((word >> 32) as u32 & 0x3fff_ffff, word as u32 as i32))
    }

    /// Why the world ends, if it does.
    pub fn cause(&self) -> Option<Cause> {
        match self.abort.load(Ordering::Acquire) >> 62 {
            0 => None,
            1 => Some(Cause::Exit),
            2 => Some(Cause::Abort),
            _ => Some(Cause::Error),
        }
    }

    /// With which code the processes of a world that ends do. An abort never looks like success.
    pub fn exit_code(&self) -> Option<u8> {
        let (_, code) = self.aborted()?;
        Some(if self.cause() == Some(Cause::Exit) { code as u8 } else { (code as u8).max(1) })
    }

    /// Whether all of its processes have reached MPI_Finalize.
    pub fn has_arrived(&self) -> bool {
        self.leaving.count() >= self.size.load(Ordering::Relaxed)
    }

    /// As it was before its first process.
    pub(crate) fn renew(&self, id: u64, size: u32) {
        self.statistics.store(0, Ordering::Relaxed);
        self.id.store(id, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        self.born.count.store(0, Ordering::Relaxed);
        self.leaving.count.store(0, Ordering::Relaxed);
        self.abort.store(0, Ordering::Relaxed);
        self.over.store(0, Ordering::Relaxed);
        self.connected_elsewhere.clear();
    }
}

/// Why a world ends before its processes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Cause {
    /// One of them ends all with a code that may say that all is well (shmem_global_exit).
    Exit = 1,
    /// MPI_Abort.
    Abort = 2,
    /// An error that no handler took.
    Error = 3,
}

/// A count of arrivals on which processes can wait: a barrier of single use, or of uses told apart by
/// `target`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Gate {
    count: AtomicU32,
}

impl Gate {
    /// One more has arrived. Waiters see what it stored before.
    pub fn arrive(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        sys::futex::wake(&self.count, i32::MAX as u32);
    }

    /// So many more have arrived on other hosts.
    pub fn add(&self, arrivals: u32) {
        if arrivals > 0 {
            self.count.fetch_add(arrivals, Ordering::AcqRel);
            sys::futex::wake(&self.count, i32::MAX as u32);
        }
    }

    /// Arrivals so far.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Sleeps until `target` have arrived (true), or `give_up`, asked every 10 ms, says to stop (false).
    pub fn wait(&self, target: u32, mut give_up: impl FnMut() -> bool) -> bool {
        loop {
            let count = self.count();
            if count >= target {
                return true;
            }
            if give_up() {
                return false;
            }
            sys::futex::wait(&self.count, count, Some(Duration::from_millis(10)));
        }
    }
}

/// A set of ranks.
#[repr(C)]
#[derive(Debug)]
pub struct RankSet {
    words: [AtomicU64; RANKS_MAX as usize / 64],
}

impl RankSet {
    /// Adds a rank.
    pub fn add(&self, rank: u32) {
        if let Some(word) = self.words.get(rank as usize / 64) {
            word.fetch_or(1 << (rank % 64), Ordering::Release);
        }
    }

    /// The ranks from `64 * index` on, as bits. A poller keeps its own copy and looks here for new bits.
    pub fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Whether a rank is in it.
    pub fn has(&self, rank: u32) -> bool {
        self.word(rank as usize / 64) >> (rank % 64) & 1 != 0
    }

    /// Takes a rank out.
    pub fn remove(&self, rank: u32) {
        if let Some(word) = self.words.get(rank as usize / 64) {
            word.fetch_and(!(1 << (rank % 64)), Ordering::Release);
        }
    }

    /// Takes all ranks out.
    pub(crate) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Release));
    }

    /// The highest rank in it that is at most `rank`.
    pub(crate) fn last_until(&self, rank: u32) -> Option<u32> {
        let within = |index: usize| match index == rank as usize / 64 {
            true => self.word(index) & (u64::MAX >> (63 - rank % 64)),
            false => self.word(index),
        };
        let index = (0..=rank as usize / 64).rev().find(|index| within(*index) != 0)?;
        Some(index as u32 * 64 + 63 - within(index).leading_zeros())
    }

    /// Calls `each` with the ranks below `ranks` that are set, ascending.
    pub fn each(&self, ranks: u32, mut each: impl FnMut(u32)) {
        for index in 0..(ranks as usize).div_ceil(64) {
            let mut word = self.word(index);
            while word != 0 {
                let rank = index as u32 * 64 + word.trailing_zeros();
                if rank < ranks {
                    each(rank);
                }
                word &= word - 1;
            }
        }
    }
}

/// What a rank shows of itself.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct RankPage {
    /// Its process, 0 before it is born.
    pub pid: AtomicU32,
    state: AtomicU32,
    /// Address of the two words of `cma::publish` in the rank's memory, 0 if there are none.
    pub probe: AtomicU64,
    /// The code that it left with, once it is not running any more.
    pub exit_code: AtomicI32,
    /// Cpus it may use, 0 if unknown; and the first of them.
    pub cpus: AtomicU32,
    /// The first cpu it may use.
    pub cpu: AtomicU32,
    /// The cpu on which it last waited, plus 1; 0 if it never did.
    waits_on: AtomicU32,
    /// The thread level it asked for, plus 1; 0 before MPI_Init.
    pub thread_level: AtomicU32,
    /// What it waits for.
    pub wait: Line<Wait>,
    /// The same in full, on request.
    pub report: Line<Report>,
    /// The first rank of its world, in whose page the world lies.
    pub first: AtomicU32,
    /// The number of its program among those started together (MPI_APPNUM).
    pub application: AtomicU32,
    /// Of the first rank of a world: what the world shares.
    pub world: Line<World>,
    /// The worlds, by their first ranks, to which a comm of this rank leads (MPI 5.0, section 11.10.4).
    pub connected: Line<RankSet>,
    /// What it wants of its launcher.
    pub ask: Line<Ask>,
    /// Rung when there is news for the rank.
    pub bell: Line<Doorbell>,
    /// Where in its arena processes that cannot reach its private memory ask (`rma`). 0 if no thread serves
    /// them.
    pub inbox: AtomicU64,
    /// Grows before the bell is rung for news about windows (locks, posts, completions).
    pub window_news: Line<AtomicU64>,
    /// The ranks that ever wrote to it, whose rings it must look into.
    pub senders: Line<RankSet>,
    /// Where the extents of its arena end; those of an earlier process in this place stay.
    pub(super) extents: Line<ExtentTable>,
    /// The ranks whose arenas it could not map when it last needed them.
    pub unmapped: Line<RankSet>,
    /// The ranks whose private memory it, or its proxy, cannot read: they copy to their arenas what it is to
    /// have.
    pub unread: Line<RankSet>,
    /// What it hands to its proxy.
    pub launches: LaunchRing,
    /// Its counters.
    pub counters: Line<telemetry::Page>,
    /// Its collectives, where OUTBOARD_STATS asks for them.
    pub operations: Line<telemetry::Operations>,
    /// Where peers find its instances: offset in its arena of the first of each bucket, 0 if the bucket is
    /// empty.
    pub directory: Line<[AtomicU64; DIRECTORY_BUCKETS]>,
    /// Words that the `executor` crate defines.
    pub scalars: Line<[AtomicU64; 64]>,
}

impl RankPage {
    /// How far its life has come.
    pub fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    /// Says on which cpu it waits. Writes the line only when that is news.
    #[inline]
    pub fn wait_on(&self, cpu: usize) {
        let here = cpu as u32 + 1;
        if self.waits_on.load(Ordering::Relaxed) != here {
            self.waits_on.store(here, Ordering::Relaxed);
        }
    }

    /// The cpu on which it last waited, if it ever did.
    #[inline]
    pub fn waits_on(&self) -> Option<usize> {
        (self.waits_on.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Publishes a new state, after all else that belongs to it.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }

    /// Makes it the page of an unborn rank, after a rank that has left. The bell, the senders, and the
    /// extents of the arena stay, because others may still use them.
    pub(crate) fn renew(&self) {
        for word in [
            &self.pid,
            &self.state,
            &self.cpus,
            &self.cpu,
            &self.waits_on,
            &self.thread_level,
            &self.first,
            &self.application,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.exit_code.store(0, Ordering::Relaxed);
        self.probe.store(0, Ordering::Relaxed);
        self.inbox.store(0, Ordering::Relaxed);
        self.ask.state.store(Ask::NOTHING, Ordering::Relaxed);
        self.launches.clear();
        self.wait.clear();
        self.report.clear();
        [&self.connected, &self.unmapped, &self.unread].iter().for_each(|set| set.clear());
        self.directory.iter().chain(&self.scalars[..]).for_each(|word| word.store(0, Ordering::Relaxed));
        telemetry::Counter::ALL.iter().for_each(|counter| self.counters.set(*counter, 0));
        self.operations.clear();
        self.world.renew(0, 0);
    }
}

/// Bytes of the longest name that an endpoint may have.
pub const ENDPOINT_BYTES_MAX: usize = 56;

/// Where a process of the job is: 64 bytes for each, on every host.
#[repr(C)]
#[derive(Debug)]
pub struct Peer {
    /// The number of its host.
    pub(super) node: AtomicU32,
    /// How long the name of its endpoint is; 0 before it is known.
    pub(super) name_bytes: AtomicU16,
    /// The number of its world: the place is used again after a spawned world has ended.
    pub(super) generation: AtomicU32,
    pub(super) name: [AtomicU64; ENDPOINT_BYTES_MAX / 8],
}

/// A request of a rank to its launcher (`mpirun`), with its words in the rank's arena, where the answer takes
/// their place.
#[repr(C)]
#[derive(Debug)]
pub struct Ask {
    /// One of the constants below.
    pub state: AtomicU32,
    /// What is wanted, as `launcher` defines.
    pub kind: AtomicU32,
    /// Where in the rank's arena.
    pub at: AtomicU64,
    /// How much room there is.
    pub capacity: AtomicU64,
    /// How much of it the request, then the answer, takes.
    pub bytes: AtomicU64,
}

impl Ask {
    /// Nothing is wanted.
    pub const NOTHING: u32 = 0;
    /// A thread of the rank is writing a request.
    pub const WRITING: u32 = 1;
    /// The launcher must answer.
    pub const ASKED: u32 = 2;
    /// The answer is there.
    pub const ANSWERED: u32 = 3;
    /// The launcher has read the request, and will answer.
    pub const TAKEN: u32 = 4;
}

/// What a proxy shows of itself.
#[repr(C, align(4096))]
pub struct ProxyPage {
    /// Its process, 0 before it is born.
    pub pid: AtomicU32,
    state: AtomicU32,
    /// Cpus it may use, 0 if unknown.
    pub cpus: AtomicU32,
    /// The first cpu it may use.
    pub cpu: AtomicU32,
    /// Grows while the proxy lives and is not asleep.
    pub heartbeat: Line<AtomicU64>,
    /// Rung when there is news for the proxy.
    pub bell: Line<Doorbell>,
    /// Its counters.
    pub counters: Line<telemetry::Page>,
    /// 1 once a rank kills it and reports that, so that whoever watches it does not.
    pub fenced: AtomicU32,
}

impl ProxyPage {
    /// How far its life has come.
    pub fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    /// Publishes a new state, after all else that belongs to it.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }
}
