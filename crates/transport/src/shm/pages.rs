//! What processes show of themselves: the job's page, one page per rank, one per proxy. All zero is how each begins.

use super::atomic::Line;
use super::{Doorbell, LaunchRing};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a rank's instance directory.
pub const DIRECTORY_BUCKETS: usize = 1024;
/// Ranks that a segment can have: what a `Senders` bitmap holds.
pub(crate) const RANKS_MAX: u32 = 4096;

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
    /// The state that a shared word means; a value that is none of ours comes from a dead or broken process.
    fn of(word: u32) -> State {
        match word {
            0 => State::Unborn,
            1 => State::Running,
            2 => State::Finalized,
            _ => State::Dead,
        }
    }
}

/// What concerns all: written by the creator before anybody attaches, unless said otherwise.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Job {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
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
    /// 1 if every process has a cpu of its own, so that waiting may spin.
    pub spin_allowed: AtomicU32,
    /// 1 if cross-memory attach must not be used although it may work (a setting).
    pub cma_forbidden: AtomicU32,
    /// All ranks pass it in MPI_Init, after publishing their page.
    pub born: Gate,
    /// All ranks pass it in MPI_Finalize.
    pub leaving: Gate,
    /// 0, or bit 63, whether it was an error (bit 62), the rank (30 bits) and the code (32 bits) of the first that ended the job.
    abort: Line<AtomicU64>,
}

impl Job {
    /// Whether waiting may spin.
    pub fn may_spin(&self) -> bool {
        self.spin_allowed.load(Ordering::Relaxed) != 0
    }

    /// Ends the job: the first call counts. `Segment::abort` also wakes everybody.
    pub(crate) fn set_abort(&self, rank: u32, code: i32, error: bool) {
        let word =
            1 << 63 | u64::from(error) << 62 | u64::from(rank & 0x3fff_ffff) << 32 | u64::from(code as u32);
        // Losing the race is fine: the job ends with the first code.
        let _ = self.abort.0.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The rank and code of the MPI_Abort or fatal error that ends the job, if any.
    pub fn aborted(&self) -> Option<(u32, i32)> {
        let word = self.abort.0.load(Ordering::Acquire);
        (word != 0).then_some(((word >> 32) as u32 & 0x3fff_ffff, word as u32 as i32))
    }

    /// Whether the job is ended by an error that no handler of the program took, not by MPI_Abort.
    pub fn failed(&self) -> bool {
        self.abort.0.load(Ordering::Acquire) >> 62 & 1 == 1
    }
}

/// A count of arrivals on which one can wait: a barrier of single use, or of uses told apart by `target`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Gate {
    count: AtomicU32,
}

impl Gate {
    /// One more has arrived; what it stored before is seen by whoever waits for it.
    pub fn arrive(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        sys::futex::wake(&self.count, i32::MAX as u32);
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

/// The peers that ever wrote to a rank: which rings it must look into.
#[repr(C)]
#[derive(Debug)]
pub struct Senders {
    words: [AtomicU64; RANKS_MAX as usize / 64],
}

impl Senders {
    /// Adds a rank.
    pub fn add(&self, rank: u32) {
        if let Some(word) = self.words.get(rank as usize / 64) {
            word.fetch_or(1 << (rank % 64), Ordering::Release);
        }
    }

    /// The ranks `64 * index ..` as bits. A caller that polls keeps its own copy and looks here for new bits.
    pub fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Acquire))
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
pub struct RankPage {
    /// Its process, 0 before it is born.
    pub pid: AtomicU32,
    state: AtomicU32,
    /// Address (in the rank's memory) of the two words of `cma::publish`, 0 if there are none.
    pub probe: AtomicU64,
    /// The code that it left with, once it is not running any more.
    pub exit_code: AtomicI32,
    /// Cpus it may use, 0 if unknown; and the first of them.
    pub cpus: AtomicU32,
    /// The first cpu it may use.
    pub cpu: AtomicU32,
    /// The thread level it asked for, plus 1; 0 before MPI_Init.
    pub thread_level: AtomicU32,
    /// 1 if this rank could reach the first peer it tried by cross-memory attach, 2 if it was refused, 0 before.
    pub cma: AtomicU32,
    /// What it is in: number of the MPI call, its start, peer, tag, ... as the `abi` room defines.
    pub in_call: Line<[AtomicU64; 8]>,
    /// Rung by whoever has news for the rank.
    pub bell: Line<Doorbell>,
    /// Grows before the bell is rung for news about windows (locks, posts, completions).
    pub window_news: Line<AtomicU64>,
    /// Who ever wrote to it.
    pub senders: Line<Senders>,
    /// What it hands to its proxy.
    pub launches: LaunchRing,
    /// Its counters.
    pub counters: Line<telemetry::Page>,
    /// Where peers find its instances: offset in its arena of the first of each bucket, 0 if the bucket is empty.
    pub directory: Line<[AtomicU64; DIRECTORY_BUCKETS]>,
    /// Words that the `executor` room defines.
    pub scalars: Line<[AtomicU64; 64]>,
}

impl RankPage {
    /// How far its life has come.
    pub fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    /// Publishes a new state, after all else that belongs to it.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }
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
    /// Rung by whoever has news for the proxy.
    pub bell: Line<Doorbell>,
    /// Its counters.
    pub counters: Line<telemetry::Page>,
    /// Words that the `executor` room defines.
    pub scalars: Line<[AtomicU64; 64]>,
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
