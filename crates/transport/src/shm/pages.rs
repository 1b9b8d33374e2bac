// SPDX-License-Identifier: BSD-3-Clause
//! The pages in shared memory: one for the job, one for each rank, one for each proxy. All their bytes are
//! zero at first.

use super::atomic::CacheLine;
use super::extents::ExtentTable;
use super::wait::SharedText;
use super::{Doorbell, SubmissionRing, WaitRecord, WaitReport};
use std::sync::atomic::{AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The number of buckets in a rank's directory (`RankPage::directory`), a hash table by which peers find the
/// rank's instances (started schedules).
pub const DIRECTORY_BUCKETS: usize = 1024;
/// The most ranks that a segment has room for, and that a `RankSet` can hold.
pub const RANKS_MAX: u32 = 4096;
/// The most ports (MPI_Open_port) that can be open at the same time in a job.
pub const PORTS_MAX: usize = 1024;

/// The state of a process of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// The process has not attached yet.
    Unborn = 0,
    /// The process has attached, and its pid is published.
    Running = 1,
    /// The process, a rank, has left by MPI_Finalize.
    Finalized = 2,
    /// The process is known to have ended without MPI_Finalize.
    Dead = 3,
}

impl State {
    /// Returns the state for a word from shared memory: `Dead` if the word is no state, since then a dead or
    /// broken process has written it.
    fn of(word: u32) -> State {
        match word {
            0 => State::Unborn,
            1 => State::Running,
            2 => State::Finalized,
            _ => State::Dead,
        }
    }
}

/// The job's page. Its creator writes each field before any process attaches, unless the field says
/// otherwise.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct JobPage {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    /// The number of the library's build that made the job (`boot::create`). Processes of another build
    /// refuse the segment.
    pub build: AtomicU64,
    pub(crate) ranks: AtomicU32,
    pub(crate) proxies: AtomicU32,
    pub(crate) arena_bytes: AtomicU64,
    pub(crate) total_bytes: AtomicU64,
    /// The job's number, which no other job on this machine has.
    pub id: AtomicU64,
    /// When the segment was made, in nanoseconds of `sys::clock::now`.
    pub start: AtomicU64,
    /// The pid of `mpirun`, or of its agent on this host, from which the job's processes descend; 0 if the
    /// job has no launcher.
    pub launcher: AtomicU32,
    /// 1 if the processes of the first world do not descend from the launcher, or there is no launcher.
    pub adopted: AtomicU32,
    /// 1 if every process has a cpu of its own, so that a wait may spin.
    pub spin_allowed: AtomicU32,
    /// 1 if a sleeper also executes the memory fence for ringers (`sys::fence`), since processes hardly ever
    /// sleep. It never changes.
    pub sleepers_fence: AtomicU32,
    /// 1 if a setting forbids cross-memory attach, even where it would work.
    pub cma_forbidden: AtomicU32,
    /// 1 once any rank could not map another rank's arena (`RankPage::unmapped`).
    pub unmapped: AtomicU32,
    /// The number of times that any rank has found that it cannot read another rank's private memory
    /// (`RankPage::unreadable`).
    pub unreadable: AtomicU32,
    /// The number of the latest world that was spawned (MPI 5.0, section 11.8).
    pub worlds: AtomicU64,
    /// How many connections MPI_Comm_accept and MPI_Comm_join have made so far.
    pub connections: AtomicU64,
    /// 1 once `mpirun` knows that no rank lives any more: proxies may end.
    pub ending: AtomicU32,
    /// The number of hosts of the job.
    pub nodes: AtomicU32,
    /// The number of this host, from 0 on.
    pub node: AtomicU32,
    /// 1 if the proxies of this host run on another computer (a data processing unit).
    pub dpu: AtomicU32,
    /// The secret of the job, without which a packet from another host is refused.
    pub secret: AtomicU64,
    /// The IP address at which other hosts reach this host, as text; empty if the job has one host.
    pub address: SharedText<8>,
    /// The settings that only the job's maker and the proxies read: one line `NAME=value` for each setting
    /// that the user has set.
    pub launched: SharedText<512>,
    /// The settings on which all ranks must agree, as the first rank has published them.
    pub agreed: Agreed,
    /// The tuning table of this machine (thresholds such as the longest eager message), as
    /// `tuning::Tuning::to_words` makes it.
    pub tuning: CacheLine<[AtomicU64; tuning::WORDS]>,
    /// Times that ranks have measured in their first long messages, for tuning values that the machine's
    /// table lacks. Any rank writes them.
    pub probes: CacheLine<[AtomicU64; tuning::PROBE_WORDS]>,
    /// The open ports (MPI_Open_port). A free entry is 0. Otherwise the high half is the number, plus 1, of
    /// the rank that opened the port, and the low half is a number that no other port has.
    pub ports: CacheLine<[AtomicU64; PORTS_MAX]>,
    /// The ports that were closed last, on any host, each by the entry that it had in `ports`. New ones
    /// overwrite the oldest.
    closed: CacheLine<[AtomicU64; PORTS_MAX]>,
    /// The number of ports closed so far. This number modulo the length of `closed` is the index at which the
    /// next closed port is stored.
    closings: AtomicU64,
    /// The first ranks of all worlds (sets of processes with one MPI_COMM_WORLD). The first rank of a world
    /// that has ended stays in the set until its number is used again.
    pub(crate) firsts: CacheLine<RankSet>,
}

impl JobPage {
    /// Whether a process may spin while it waits: every process has a cpu of its own.
    #[inline]
    pub fn may_spin(&self) -> bool {
        self.spin_allowed.load(Ordering::Relaxed) != 0
    }

    /// Records that a port has been closed, by the entry that it had in `ports`.
    pub fn note_closed(&self, port: u64) {
        let at = self.closings.fetch_add(1, Ordering::AcqRel);
        self.closed[at as usize % PORTS_MAX].store(port, Ordering::Release);
    }

    /// Whether the port that had this entry in `ports` is among those that were closed last.
    pub fn was_closed(&self, port: u64) -> bool {
        self.closed.iter().any(|closed| closed.load(Ordering::Acquire) == port)
    }

    /// Returns the ports closed since the caller's last call, oldest first, each by its entry in `ports`.
    /// `seen` holds how many had been closed before, and this call updates it. Only the last `PORTS_MAX`
    /// closed ports are known.
    pub fn closed_since(&self, seen: &mut u64) -> Vec<u64> {
        let until = self.closings.load(Ordering::Acquire);
        let from = std::mem::replace(seen, until).max(until.saturating_sub(PORTS_MAX as u64));
        (from..until).map(|at| self.closed[at as usize % PORTS_MAX].load(Ordering::Acquire)).collect()
    }
}

/// The settings on which all ranks must agree, as text that the first rank to join has published.
#[repr(C)]
#[derive(Debug)]
pub struct Agreed {
    /// The first rank that has joined the job, plus 1; 0 before any rank has joined.
    first: AtomicU32,
    published: Gate,
    text: SharedText<512>,
}

impl Agreed {
    /// Publishes `text` if no rank has published one, and returns None. Otherwise waits for the first rank's
    /// text, and returns that rank and its text. Also returns None if `give_up` ends the wait.
    pub fn publish_first(
        &self,
        rank: u32,
        text: &str,
        give_up: impl FnMut() -> bool,
    ) -> Option<(u32, String)> {
        match self.first.compare_exchange(0, rank + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                self.text.set(text);
                self.published.arrive();
                None
            }
            Err(first) => self.published.wait(1, give_up).then(|| (first - 1, self.text.text())),
        }
    }
}

/// The state that the processes of one MPI_COMM_WORLD share, in the page of its first rank. A job starts with
/// one world, whose first rank is 0; MPI_Comm_spawn adds worlds, each a run of further ranks.
#[repr(C)]
#[derive(Debug)]
pub struct World {
    /// 0 for the first world; otherwise a number that no other world of the job ever has.
    pub id: AtomicU64,
    /// The number of the world's processes, on all hosts.
    pub size: AtomicU32,
    /// The gate that all processes of the world pass in MPI_Init, after each has published its page.
    pub born: Gate,
    /// The gate that all processes of the world pass in MPI_Finalize.
    pub leaving: Gate,
    /// 0 while the world is not to end. Otherwise why it ends (`EndCause`, the high 2 bits), the rank that
    /// ended it (30 bits) and the exit code (32 bits).
    abort: AtomicU64,
    /// 1 if the world's statistics still have to be printed. The process that changes it to 0 prints them.
    pub statistics: AtomicU32,
    /// 1 once the launcher knows that no process of the world lives any more, on any host.
    pub over: AtomicU32,
    /// The worlds with which this world is connected by comms that its processes on other hosts have. Each
    /// world is named by its first rank.
    pub connected_elsewhere: RankSet,
}

impl World {
    /// Publishes that the world ends: by which rank, with which exit code, and why. Only the first call
    /// counts. `Segment::end` also wakes the world's processes.
    pub(crate) fn set_abort(&self, rank: u32, code: i32, cause: EndCause) {
        let word = (cause as u64) << 62 | u64::from(rank & 0x3fff_ffff) << 32 | u64::from(code as u32);
        // If another process was first, the world ends with its code.
        let _ = self.abort.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Returns the rank that ended the world (by an exit, MPI_Abort or a fatal error) and its exit code.
    /// Returns None while the world is not to end.
    pub fn aborted(&self) -> Option<(u32, i32)> {
        let word = self.abort.load(Ordering::Acquire);
        (word != 0).then_some(((word >> 32) as u32 & 0x3fff_ffff, word as u32 as i32))
    }

    /// Returns why the world ends; None while it is not to end.
    pub fn cause(&self) -> Option<EndCause> {
        match self.abort.load(Ordering::Acquire) >> 62 {
            0 => None,
            1 => Some(EndCause::Exit),
            2 => Some(EndCause::Abort),
            _ => Some(EndCause::Error),
        }
    }

    /// Returns the code with which the world's processes must exit; None while the world is not to end. Only
    /// with `EndCause::Exit` may the code mean success.
    pub fn exit_code(&self) -> Option<u8> {
        let (_, code) = self.aborted()?;
        Some(if self.cause() == Some(EndCause::Exit) { code as u8 } else { (code as u8).max(1) })
    }

    /// Whether all processes of the world have reached MPI_Finalize.
    pub fn has_arrived(&self) -> bool {
        self.leaving.count() >= self.size.load(Ordering::Relaxed)
    }

    /// Makes this the state of a new world with this id and `size` processes.
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

/// Why a world ends before all its processes have called MPI_Finalize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum EndCause {
    /// A process has ended the world with a code that may mean success (shmem_global_exit).
    Exit = 1,
    /// A process has called MPI_Abort.
    Abort = 2,
    /// A process has had a fatal error, which ends the world.
    Error = 3,
}

/// A count of processes that have arrived, on which others wait. It serves as a barrier once, or several
/// times with growing targets.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Gate {
    count: AtomicU32,
}

impl Gate {
    /// Counts the calling process as arrived. Processes that wait then see what it has stored before.
    pub fn arrive(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        sys::futex::wake(&self.count, i32::MAX as u32);
    }

    /// Counts `arrivals` processes of other hosts as arrived.
    pub fn add(&self, arrivals: u32) {
        if arrivals > 0 {
            self.count.fetch_add(arrivals, Ordering::AcqRel);
            sys::futex::wake(&self.count, i32::MAX as u32);
        }
    }

    /// Returns how many processes have arrived so far.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Sleeps until `target` processes have arrived, and returns true. Returns false if `give_up`, called
    /// every 10 ms, has returned true.
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

/// A set of ranks by their process numbers, in shared memory: a bit for each.
#[repr(C)]
#[derive(Debug)]
pub struct RankSet {
    words: [AtomicU64; RANKS_MAX as usize / 64],
}

impl RankSet {
    /// Adds a rank to the set.
    pub fn add(&self, rank: u32) {
        if let Some(word) = self.words.get(rank as usize / 64) {
            word.fetch_or(1 << (rank % 64), Ordering::Release);
        }
    }

    /// Returns the bits of the ranks `64 * index` to `64 * index + 63`. A process that polls the set compares
    /// them with its earlier copy to find new ranks.
    pub fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Whether a rank is in the set.
    pub fn has(&self, rank: u32) -> bool {
        self.word(rank as usize / 64) >> (rank % 64) & 1 != 0
    }

    /// Removes a rank from the set.
    pub fn remove(&self, rank: u32) {
        if let Some(word) = self.words.get(rank as usize / 64) {
            word.fetch_and(!(1 << (rank % 64)), Ordering::Release);
        }
    }

    /// Removes all ranks from the set.
    pub(crate) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Release));
    }

    /// Returns the highest rank in the set that is not above `rank`; None if there is no such rank.
    pub(crate) fn last_until(&self, rank: u32) -> Option<u32> {
        let within = |index: usize| match index == rank as usize / 64 {
            true => self.word(index) & (u64::MAX >> (63 - rank % 64)),
            false => self.word(index),
        };
        let index = (0..=rank as usize / 64).rev().find(|index| within(*index) != 0)?;
        Some(index as u32 * 64 + 63 - within(index).leading_zeros())
    }

    /// Calls `each` with the ranks in the set that are less than `ranks`, in ascending order.
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

/// What a rank publishes for the other processes of its host.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct RankPage {
    /// The pid of the rank's process; 0 before the process has attached.
    pub pid: AtomicU32,
    state: AtomicU32,
    /// The address, in the rank's memory, of two words by which peers test whether they can reach that memory
    /// (`cma::publish`); 0 before the rank has published it.
    pub probe: AtomicU64,
    /// The exit code of the rank's process; valid once the process has ended.
    pub exit_code: AtomicI32,
    /// The number of cpus on which the rank may run; 0 if it is unknown.
    pub cpus: AtomicU32,
    /// The number of the first cpu on which the rank may run.
    pub cpu: AtomicU32,
    /// The number of the cpu on which the rank last waited, plus 1; 0 if it has never waited.
    waits_on: AtomicU32,
    /// The level of thread support that the program asked for, plus 1; 0 before MPI_Init.
    pub thread_level: AtomicU32,
    /// What the rank's current or latest long wait is for, as a short text, with its times.
    pub wait: CacheLine<WaitRecord>,
    /// A full report of what the rank waits for, which the rank writes when another process requests it.
    pub report: CacheLine<WaitReport>,
    /// The first rank of this rank's world. Its page holds the state of the world.
    pub first: AtomicU32,
    /// The number of the rank's program among the programs that were started together (MPI_APPNUM).
    pub application: AtomicU32,
    /// The state of the rank's world, if this rank is the world's first; unused in the pages of other ranks.
    pub world: CacheLine<World>,
    /// The worlds to which comms of this rank lead, each by its first rank (MPI 5.0, section 11.10.4).
    pub connected: CacheLine<RankSet>,
    /// The rank's request to its launcher (`mpirun`), and the launcher's answer.
    pub launcher_request: CacheLine<LauncherRequest>,
    /// The doorbell that others ring when there is news for the rank.
    pub bell: CacheLine<Doorbell>,
    /// The offset in the rank's arena to which processes write RMA requests if they cannot reach the rank's
    /// private memory; 0 if no thread of the rank serves such requests.
    pub inbox: AtomicU64,
    /// A count that other processes increase when a window of the rank has news (lock, post, completion).
    /// They then ring the rank's bell.
    pub window_news: CacheLine<AtomicU64>,
    /// The ranks of this host that have ever sent to this rank, so that it must poll their rings.
    pub senders: CacheLine<RankSet>,
    /// The table of the extents of the rank's arena, including extents left by an earlier process with this
    /// number.
    pub(super) extents: CacheLine<ExtentTable>,
    /// The ranks whose arenas this rank could not map, at its last attempt.
    pub unmapped: CacheLine<RankSet>,
    /// The ranks whose private memory this rank or its proxy cannot read. Those ranks copy what they send to
    /// this rank into their arenas.
    pub unreadable: CacheLine<RankSet>,
    /// The queue by which the rank gives instances (started schedules) to its proxy.
    pub submissions: SubmissionRing,
    /// The rank's counters, which `outboard top` and OUTBOARD_STATS show.
    pub counters: CacheLine<telemetry::CounterPage>,
    /// The statistics of the rank's collectives, if OUTBOARD_STATS asks for them.
    pub operations: CacheLine<telemetry::Operations>,
    /// The directory by which peers find the rank's instances (started schedules): for each bucket, the
    /// offset in the rank's arena of the first instance's record, or 0.
    pub directory: CacheLine<[AtomicU64; DIRECTORY_BUCKETS]>,
    /// Single words that ranks and proxies share; the `executor` crate defines what each word means.
    pub scalars: CacheLine<[AtomicU64; 64]>,
}

impl RankPage {
    /// Returns the state of the rank's process.
    pub fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    /// Publishes on which cpu the rank waits. Writes shared memory only if the cpu has changed.
    #[inline]
    pub fn wait_on(&self, cpu: usize) {
        let here = cpu as u32 + 1;
        if self.waits_on.load(Ordering::Relaxed) != here {
            self.waits_on.store(here, Ordering::Relaxed);
        }
    }

    /// Returns the cpu on which the rank last waited; None if it has never waited.
    #[inline]
    pub fn waits_on(&self) -> Option<usize> {
        (self.waits_on.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Publishes a new state of the process. The caller has first written the fields that go with this state.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }

    /// Resets the page of a rank that has left, for the next process with this number. The bell, the senders,
    /// and the extents of the arena stay, because other processes may still use them.
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
        self.launcher_request.state.store(LauncherRequest::NOTHING, Ordering::Relaxed);
        self.submissions.clear();
        self.wait.clear();
        self.report.clear();
        [&self.connected, &self.unmapped, &self.unreadable].iter().for_each(|set| set.clear());
        self.directory.iter().chain(&self.scalars[..]).for_each(|word| word.store(0, Ordering::Relaxed));
        telemetry::Counter::ALL.iter().for_each(|counter| self.counters.set(*counter, 0));
        self.operations.clear();
        self.world.renew(0, 0);
    }
}

/// The longest name of an endpoint, in bytes.
pub const ENDPOINT_BYTES_MAX: usize = 56;

/// What every host knows of one endpoint, a rank's or a proxy's: its host and its name. The entry has 64
/// bytes.
#[repr(C)]
#[derive(Debug)]
pub struct PeerEntry {
    /// The number of the host on which the endpoint's process runs.
    pub(super) node: AtomicU32,
    /// The length of the endpoint's name, in bytes; 0 before the name is known.
    pub(super) name_bytes: AtomicU16,
    /// The generation of the process's world, a number that changes when a new world uses the same process
    /// number.
    pub(super) generation: AtomicU32,
    pub(super) name: [AtomicU64; ENDPOINT_BYTES_MAX / 8],
}

/// A request of a rank to its launcher (`mpirun`), and the launcher's answer. The bytes of both lie at the
/// same offset in the rank's arena.
#[repr(C)]
#[derive(Debug)]
pub struct LauncherRequest {
    /// The state of the request: `NOTHING`, `WRITING`, `ASKED`, `TAKEN` or `ANSWERED`.
    pub state: AtomicU32,
    /// The number of the kind of request, which `shm::launcher` defines.
    pub kind: AtomicU32,
    /// The offset in the rank's arena of the request's bytes, which the answer's bytes replace.
    pub at: AtomicU64,
    /// The length of the memory at offset `at`, in bytes. The answer must fit into it.
    pub capacity: AtomicU64,
    /// The length of the request in bytes; once the launcher has answered, that of the answer.
    pub bytes: AtomicU64,
}

impl LauncherRequest {
    /// The rank has no request under way.
    pub const NOTHING: u32 = 0;
    /// A thread of the rank is writing a request.
    pub const WRITING: u32 = 1;
    /// The rank waits for an answer, and the launcher has not read the request yet.
    pub const ASKED: u32 = 2;
    /// The launcher has written its answer, and the rank has not read it yet.
    pub const ANSWERED: u32 = 3;
    /// The launcher has read the request, and will answer.
    pub const TAKEN: u32 = 4;
}

/// What a proxy publishes for the other processes of its host.
#[repr(C, align(4096))]
pub struct ProxyPage {
    /// The pid of the proxy's process; 0 before the process has attached.
    pub pid: AtomicU32,
    state: AtomicU32,
    /// The number of cpus on which the proxy may run; 0 if it is unknown.
    pub cpus: AtomicU32,
    /// The number of the first cpu on which the proxy may run.
    pub cpu: AtomicU32,
    /// A count that the proxy increases while it lives and does not sleep.
    pub heartbeat: CacheLine<AtomicU64>,
    /// The doorbell that others ring when there is news for the proxy.
    pub bell: CacheLine<Doorbell>,
    /// The proxy's counters, which `outboard top` and OUTBOARD_STATS show.
    pub counters: CacheLine<telemetry::CounterPage>,
    /// 1 once a rank kills the proxy and reports that it has ended, so that the proxy's parent does not
    /// report it again.
    pub fenced: AtomicU32,
}

impl ProxyPage {
    /// Returns the state of the proxy's process.
    pub fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    /// Publishes a new state of the process. The caller has first written the fields that go with this state.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }
}
