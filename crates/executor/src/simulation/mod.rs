// SPDX-License-Identifier: BSD-3-Clause
//! Tests with whole jobs in one process. A random scheduler with a seed chooses which rank or proxy goes on
//! next. Proxies die between any two memory operations. A failing run names its seed.

mod algorithms;
mod export;
mod faults;
mod messages;
mod network;
mod plans;
mod random;

#[path = "../../../transport/tests/seeds/mod.rs"]
mod seeds;

use crate::proxy::Proxy;
use crate::{Config, Executor};
use datatype::{Buffer, Layout};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use sys::memory::Map;
use telemetry::Counter;
use transport::shm::{Allocator, Segment, Shape, State, cma};

/// How much private memory each rank of a simulated job has, in bytes.
const PRIVATE_BYTES: usize = 8 << 20;

/// A simulated job, or its part on one node. All its ranks and proxies are in this process.
pub struct Job {
    pub segment: Segment,
    pub ranks: Vec<Rank>,
    pub proxies: Vec<Proxy>,
    /// The segment (the job's shared memory) on the computer on which the proxies run. None if they run on
    /// the ranks' host.
    pub mirror: Option<Segment>,
}

/// A simulated rank: its executor and its private memory.
pub struct Rank {
    pub executor: Executor,
    private: Map,
    used: usize,
}

/// Where a test's buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    Private,
    Arena,
    /// Elements with gaps, in private memory.
    Gaps,
    /// Elements with gaps, in the arena.
    ArenaGaps,
}

impl Job {
    /// Makes the part of a job that runs on the node `node`. This part has memory for the ranks of other
    /// nodes, too, but does not use it.
    pub fn on_node(node: u32, nodes: u32, node_of: &[u32], proxies: u32, config: &Config) -> Job {
        let job = Job::new(node_of.len() as u32, proxies, config);
        job.segment.set_nodes(node, nodes, node_of, 1);
        job
    }

    pub fn new(ranks: u32, proxies: u32, config: &Config) -> Job {
        let (segment, _fd) = Segment::create(Shape { ranks, proxies, arena_bytes: 16 << 20 }).unwrap();
        // Cross-memory attach recognises a process by some of its words, and here jobs share one process.
        segment.job().id.store(1, Ordering::Relaxed);
        for rank in segment.places() {
            let page = segment.rank(rank);
            page.pid.store(sys::process::id(), Ordering::Relaxed);
            cma::publish(&segment, rank);
            page.set_state(State::Running);
        }
        // The proxies have no pid: a rank that would kill a proxy must not kill the test.
        (0..proxies).for_each(|proxy| segment.proxy(proxy).set_state(State::Running));
        let rank = |rank| {
            let allocator = Allocator::new(segment.arena(rank).unwrap(), 16 << 20);
            let executor = Executor::new(segment.clone(), rank, allocator, config.clone());
            let fd = sys::memory::create("outboard-test", PRIVATE_BYTES as u64).unwrap();
            Rank { executor, private: Map::shared(&fd, 0, PRIVATE_BYTES).unwrap(), used: 0 }
        };
        let ranks = segment.places().map(rank).collect();
        let mut proxies: Vec<_> =
            (0..proxies).map(|index| Proxy::new(segment.clone(), index, config)).collect();
        proxies.iter_mut().for_each(|proxy| {
            proxy.check_ranks();
        });
        Job { segment, ranks, proxies, mirror: None }
    }

    /// Makes the proxies run on another computer. Nothing may have started before.
    pub fn add_dpu(&mut self, config: &Config) {
        let (mirror, _fd) = Segment::create(self.segment.shape()).unwrap();
        let job = self.segment.job();
        let ranks = self.segment.shape().ranks;
        let node_of: Vec<u32> = (0..ranks).map(|peer| self.segment.node_of(peer)).collect();
        let word = |word: &std::sync::atomic::AtomicU32| word.load(Ordering::Relaxed);
        mirror.set_nodes(word(&job.node), word(&job.nodes), &node_of, 1);
        [job, mirror.job()].iter().for_each(|job| job.dpu.store(1, Ordering::Relaxed));
        let keys = export::Keys::default();
        let proxy = |index| {
            let mut proxy = Proxy::new(mirror.clone(), index, config);
            proxy.import(Box::new(export::ProxyMemory::new(&keys, &self.segment)));
            proxy
        };
        self.proxies = (0..self.segment.shape().proxies).map(proxy).collect();
        for rank in self.segment.places() {
            let allocator = Allocator::new(self.segment.arena(rank).unwrap(), 16 << 20);
            let executor = &mut self.ranks[rank.index()].executor;
            *executor = Executor::new(self.segment.clone(), rank, allocator, config.clone());
            if node_of[rank.index()] == word(&job.node) {
                executor.join_remote_proxy(Box::new(export::RankMemory {
                    rank: rank.peer(),
                    keys: keys.clone(),
                }));
            }
        }
        self.mirror = Some(mirror);
    }

    /// Returns how many operations proxies on another computer have carried out.
    pub fn ended_elsewhere(&self) -> u64 {
        let Some(mirror) = &self.mirror else { return 0 };
        (0..mirror.shape().proxies).map(|proxy| mirror.proxy(proxy).counters.value(Counter::Instances)).sum()
    }

    /// Tells this part of the job that the proxy with this endpoint has ended.
    pub fn proxy_ended(&self, endpoint: u32) {
        self.segment.set_endpoint(endpoint, &[]);
        self.mirror.iter().for_each(|mirror| mirror.set_endpoint(endpoint, &[]));
    }
}

impl Rank {
    /// Allocates memory in the rank's arena (`arena`) or in its private memory. The memory overlaps no buffer
    /// that is in use.
    pub fn span(&mut self, bytes: usize, arena: bool) -> Span {
        if arena {
            let at = self.executor.memory().alloc(bytes as u64).unwrap();
            return self.executor.memory().arena().span(at, bytes as u64).unwrap();
        }
        let at = self.used;
        // Odd addresses happen.
        self.used += bytes + 4;
        self.private.span().slice(at, bytes)
    }

    /// Allocates a buffer that holds the bytes `data`.
    pub fn buffer(&mut self, data: &[u8], home: Home) -> Buffer {
        let arena = matches!(home, Home::Arena | Home::ArenaGaps);
        let buffer = match home {
            Home::Private | Home::Arena => Buffer::from(self.span(data.len(), arena)),
            // These are elements of 4 bytes in an extent of 12.
            Home::Gaps | Home::ArenaGaps if data.len().is_multiple_of(4) && !data.is_empty() => {
                let span = self.span(data.len() * 3, arena);
                Buffer::within(span, 0, data.len() / 4, &thirds()).unwrap()
            }
            Home::Gaps | Home::ArenaGaps => Buffer::from(self.span(data.len(), arena)),
        };
        let packed = self.span(data.len(), false);
        packed.write(data);
        buffer.unpack(0, packed);
        self.used -= data.len() + 4;
        buffer
    }

    /// Sets all bytes of data in a buffer to `byte`.
    pub fn fill(&mut self, buffer: &Buffer, byte: u8) {
        let packed = self.span(buffer.bytes(), false);
        packed.write(&vec![byte; buffer.bytes()]);
        buffer.unpack(0, packed);
        self.used -= buffer.bytes() + 4;
    }

    /// Returns the bytes of data in a buffer.
    pub fn data(&mut self, buffer: &Buffer) -> Vec<u8> {
        let packed = self.span(buffer.bytes(), false);
        buffer.pack(0, packed);
        self.used -= buffer.bytes() + 4;
        let mut data = vec![0; buffer.bytes()];
        packed.read(&mut data);
        data
    }
}

/// Returns the layout of an element of 4 bytes of data and a gap of 8 bytes.
fn thirds() -> Arc<Layout> {
    // The words of a layout: size 4, bounds 0 and 12, one run.
    let mut words = Layout::contiguous(4).to_words();
    words[3] = 12;
    Arc::new(Layout::from_words(&words).unwrap())
}
