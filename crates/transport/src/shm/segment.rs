//! The job's one shared memory: header, a page of state per rank and per proxy, rings, arenas.
//!
//! `[Job][RankPage x ranks][ProxyPage x proxies][Peer x all][ring x ranks x ranks][arena x ranks]`, at
//! offsets that follow from `Shape`, so there is no connection protocol. The pages are one map. Each ring and
//! each arena is a map of its own, made on first use: tools that walk all mapped memory, as valgrind does,
//! find only what the process uses.
//!
//! Read next: `pages.rs`, `ring.rs`, `arena.rs`.

use super::endpoints::PROXY_ENDPOINTS;
use super::pages::{ENDPOINT_BYTES_MAX, Peer, RANKS_MAX};
use super::ring;
use super::{Job, ProxyPage, RankPage};
use error::{Class, Error, Result, fail};
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use sys::Span;
use sys::limits;
use sys::memory::{self, Map};

/// "OUTBOARD", read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"OUTBOARD");
/// Changes whenever the meaning of any shared byte changes.
const VERSION: u32 = 11;
/// Arenas begin at multiples of this and have multiples of it, so that huge pages can back them.
const ARENA_ALIGN: u64 = 2 << 20;
/// Rings begin at multiples of this, the largest page of our machines, so that each can be mapped alone.
const RING_ALIGN: u64 = 64 << 10;
/// What helps where memory cannot be mapped.
const REMEDY: &str =
    "raise `ulimit -v` and `ulimit -f`, or lower OUTBOARD_ARENA_BYTES and OUTBOARD_SPAWN_RANKS_MAX";
/// Bytes from one ring to the next.
const RING_STRIDE: u64 = ring::BYTES.next_multiple_of(RING_ALIGN);

/// If limits leave less for each arena, there is no room for spawned processes.
const ARENA_BYTES_MIN: u64 = 64 << 20;

/// How many of what a job has: all that the layout depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Ranks, 1 to 4096: those of the first world, and room for those that it may spawn.
    pub ranks: u32,
    /// Proxies, 0 to 4096. Rank r is served by proxy r % proxies.
    pub proxies: u32,
    /// Bytes of each rank's arena; rounded up to 2 MiB. Sparse, so what is not used costs nothing.
    pub arena_bytes: u64,
}

impl Shape {
    /// A shape whose arenas are as large as the machine's memory. Where address space (`ulimit -v`) or files
    /// (`ulimit -f`) are limited they are smaller: a process may map all of them in half its address space.
    /// There is room for `spawned` more ranks, unless that would leave less than [`ARENA_BYTES_MIN`].
    pub fn sparse(ranks: u32, spawned: u32, proxies: u32) -> Shape {
        Shape::within(
            Shape { ranks: ranks.saturating_add(spawned).min(RANKS_MAX).max(ranks), proxies, arena_bytes: 1 },
            ranks,
            (limits::memory_bytes(), limits::address_space(), limits::file_bytes()),
        )
    }

    fn within(most: Shape, ranks: u32, limits: (u64, Option<u64>, Option<u64>)) -> Shape {
        let (memory, space, file) = limits;
        let share = |shape: Shape| {
            let beside = shape.layout().map_or(u64::MAX, |layout| layout.arenas);
            let of_file =
                file.map_or(u64::MAX, |file| file.saturating_sub(beside) / u64::from(shape.ranks.max(1)));
            let of_space = space.map_or(u64::MAX, |space| space / 2 / u64::from(ranks.max(1)));
            of_file.min(of_space).min(memory)
        };
        let shape = if share(most) < ARENA_BYTES_MIN { Shape { ranks, ..most } } else { most };
        let bytes = share(shape).max(ARENA_ALIGN);
        // Rounded down where there is a limit, up otherwise, as `layout` does.
        Shape {
            arena_bytes: if bytes < memory { bytes / ARENA_ALIGN * ARENA_ALIGN } else { memory },
            ..shape
        }
    }

    /// Where everything lies. Errors: no machine can map the shape.
    fn layout(self) -> Result<Layout> {
        let Shape { ranks, proxies, arena_bytes } = self;
        if ranks == 0 || ranks > RANKS_MAX || proxies > RANKS_MAX {
            fail!(
                Class::Arg,
                "a job of {ranks} ranks and {proxies} proxies: 1 to {RANKS_MAX} ranks, up to {RANKS_MAX} proxies"
            );
        }
        // The sums stay far below 2^64: 4096 pages, 4096^2 rings of less than 2^20, 4096 arenas of 2^46 at
        // most.
        if arena_bytes == 0 || arena_bytes > 1 << 46 {
            fail!(Class::Arg, "an arena of {arena_bytes} bytes per rank: 1 to 2^46 are possible");
        }
        let rank_pages = size_of::<Job>() as u64;
        let proxy_pages = rank_pages + u64::from(ranks) * size_of::<RankPage>() as u64;
        let peers = proxy_pages + u64::from(proxies) * size_of::<ProxyPage>() as u64;
        let entries = u64::from(ranks) + u64::from(if proxies > 0 { PROXY_ENDPOINTS } else { 0 });
        let pages_end = peers + entries * size_of::<Peer>() as u64;
        let rings = pages_end.next_multiple_of(RING_ALIGN);
        let rings_end = rings + u64::from(ranks) * u64::from(ranks) * RING_STRIDE;
        let arenas = rings_end.next_multiple_of(ARENA_ALIGN);
        let arena_bytes = arena_bytes.next_multiple_of(ARENA_ALIGN);
        let total = arenas + u64::from(ranks) * arena_bytes;
        if total > i64::MAX as u64 {
            fail!(
                Class::Arg,
                "{ranks} ranks with an arena of {arena_bytes} bytes each make a file of {total} bytes"
            );
        }
        Ok(Layout { rank_pages, proxy_pages, peers, pages_end, rings, arenas, arena_bytes, total })
    }
}

/// Offsets in bytes from the start of the segment.
#[derive(Clone, Copy, Debug)]
struct Layout {
    rank_pages: u64,
    proxy_pages: u64,
    peers: u64,
    /// End of the part that is mapped at once.
    pages_end: u64,
    rings: u64,
    arenas: u64,
    arena_bytes: u64,
    total: u64,
}

/// Types that may lie in shared memory at a mapped, aligned address.
///
/// # Safety
/// Every bit pattern must be valid, and every field must be an atomic or plain bytes reached by `Span` only.
pub(super) unsafe trait Shared {}
// SAFETY: atomics only.
unsafe impl Shared for Job {}
// SAFETY: atomics only.
unsafe impl Shared for RankPage {}
// SAFETY: atomics only.
unsafe impl Shared for ProxyPage {}
// SAFETY: atomics only.
unsafe impl Shared for Peer {}

/// A process of this segment, by its place there: what pages, arenas, rings, bells, flat collectives and
/// cross-memory attach take. Only [`Segment::local`] makes one of a peer, and it can say no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalRank(pub(super) u32);

impl LocalRank {
    /// The process as any process of the job knows it.
    #[inline]
    pub fn peer(self) -> u32 {
        self.0
    }

    /// The number of its place, from 0 on.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for LocalRank {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A process's view of the job's shared memory. Cheap to clone; unmapped with the last clone.
#[derive(Clone, Debug)]
pub struct Segment {
    inner: Arc<Inner>,
}

/// A rank's page, found and checked once. Keeps the segment mapped.
#[derive(Clone, Debug)]
pub struct KeptPage {
    page: &'static RankPage,
    _segment: Segment,
}

impl std::ops::Deref for KeptPage {
    type Target = RankPage;
    #[inline]
    fn deref(&self) -> &RankPage {
        self.page
    }
}

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    shape: Shape,
    layout: Layout,
    pages: Map,
    arenas: Box<[OnceLock<Map>]>,
}

impl Segment {
    /// Makes the shared memory of a new job. The descriptor is for children (`sys::memory::inheritable`); the
    /// segment keeps one of its own.
    pub fn create(shape: Shape) -> Result<(Segment, OwnedFd)> {
        let layout = shape.layout()?;
        let shape = Shape { arena_bytes: layout.arena_bytes, ..shape };
        let create = || -> std::io::Result<_> {
            let fd = memory::create("outboard-job", layout.total)?;
            let copy = fd.try_clone()?;
            Ok((fd, copy))
        };
        let (fd, copy) = create().map_err(|error| {
            Error::new(
                Class::NoMem,
                format!("cannot make a sparse memfd of {} bytes: {error}; {REMEDY}", layout.total),
            )
        })?;
        let segment = Segment::map(fd, shape, layout)?;
        let job = segment.job();
        job.version.store(VERSION, Ordering::Relaxed);
        job.ranks.store(shape.ranks, Ordering::Relaxed);
        job.proxies.store(shape.proxies, Ordering::Relaxed);
        job.arena_bytes.store(shape.arena_bytes, Ordering::Relaxed);
        job.total_bytes.store(layout.total, Ordering::Relaxed);
        job.start.store(sys::clock::now(), Ordering::Relaxed);
        // Unique enough among the jobs that could meet on one machine, and never 0.
        job.id.store((sys::clock::wall() << 16 ^ u64::from(sys::process::id())) | 1, Ordering::Relaxed);
        segment.world(0).renew(0, shape.ranks);
        job.firsts.add(0);
        job.magic.store(MAGIC, Ordering::Release);
        Ok((segment, copy))
    }

    /// Enters a job by an inherited descriptor, after checking that it is one, and one of this build.
    pub fn attach(fd: OwnedFd) -> Result<Segment> {
        if !memory::is_sealed(&fd) {
            fail!(
                Class::Other,
                "the job's descriptor is no sealed memfd: was OUTBOARD_JOB_FD set by another mpirun?"
            );
        }
        let bytes = memory::length(&fd).map_err(unreadable)?;
        if bytes < size_of::<Job>() as u64 {
            fail!(Class::Other, "the job's memory has {bytes} bytes, less than its header");
        }
        let header = Map::shared(&fd, 0, size_of::<Job>()).map_err(unreadable)?;
        let job = view::<Job>(header.span(), 0);
        let magic = job.magic.load(Ordering::Acquire);
        let version = job.version.load(Ordering::Relaxed);
        if magic != MAGIC {
            fail!(Class::Other, "the job's memory begins with {magic:#x}: it was not made by Outboard");
        }
        if version != VERSION {
            fail!(
                Class::Other,
                "the job's memory has layout {version}, this library layout {VERSION}: mpirun, library and proxy must be of one build"
            );
        }
        let shape = Shape {
            ranks: job.ranks.load(Ordering::Relaxed),
            proxies: job.proxies.load(Ordering::Relaxed),
            arena_bytes: job.arena_bytes.load(Ordering::Relaxed),
        };
        if job.sleepers_fence.load(Ordering::Relaxed) != 0 {
            sys::fence::join();
        }
        let layout = shape.layout()?;
        let said = job.total_bytes.load(Ordering::Relaxed);
        if layout.total != bytes || said != bytes {
            fail!(
                Class::Other,
                "the job's memory has {bytes} bytes, says {said}, and {shape:?} would have {}: mpirun, library and proxy must be of one build",
                layout.total
            );
        }
        Segment::map(fd, shape, layout)
    }

    fn map(fd: OwnedFd, shape: Shape, layout: Layout) -> Result<Segment> {
        let pages = map(&fd, 0, layout.pages_end, || "the job's pages".into())?;
        let arenas = (0..shape.ranks).map(|_| OnceLock::new()).collect();
        Ok(Segment { inner: Arc::new(Inner { fd, shape, layout, pages, arenas }) })
    }

    pub fn shape(&self) -> Shape {
        self.inner.shape
    }

    /// What concerns all.
    #[inline]
    pub fn job(&self) -> &Job {
        view(self.inner.pages.span(), 0)
    }

    /// A peer's place in this segment, if it has one.
    #[inline]
    pub fn local(&self, peer: u32) -> Option<LocalRank> {
        let here = self.job().node.load(Ordering::Relaxed);
        (self.node_of(peer) == here).then_some(LocalRank(peer))
    }

    /// The same, where a peer that has none is an error.
    pub fn require(&self, peer: u32) -> Result<LocalRank> {
        let Some(rank) = self.local(peer) else {
            fail!(
                Class::Rank,
                "peer {peer} is none of the {} processes of this host's segment",
                self.inner.shape.ranks
            );
        };
        Ok(rank)
    }

    /// All places, whether taken or not.
    pub fn places(&self) -> impl ExactSizeIterator<Item = LocalRank> + Clone + use<> {
        (0..self.inner.shape.ranks).map(LocalRank)
    }

    /// A rank's page.
    #[inline]
    pub fn rank(&self, rank: LocalRank) -> &RankPage {
        self.page(rank)
    }

    /// As `rank`, for keeping.
    pub fn keep_rank(&self, rank: LocalRank) -> KeptPage {
        KeptPage { page: self.page(rank), _segment: self.clone() }
    }

    /// As `rank`, for a caller that keeps this segment for `'a`.
    #[inline]
    pub(super) fn page<'a>(&self, rank: LocalRank) -> &'a RankPage {
        // A place of another segment may be none of this one.
        assert!(rank.0 < self.inner.shape.ranks, "rank {rank} of {}", self.inner.shape.ranks);
        let offset = self.inner.layout.rank_pages + u64::from(rank.0) * size_of::<RankPage>() as u64;
        view(self.inner.pages.span(), offset)
    }

    /// A proxy's page. Panics if there is no such proxy.
    pub fn proxy(&self, proxy: u32) -> &ProxyPage {
        assert!(proxy < self.inner.shape.proxies, "proxy {proxy} of {}", self.inner.shape.proxies);
        let offset = self.inner.layout.proxy_pages + u64::from(proxy) * size_of::<ProxyPage>() as u64;
        view(self.inner.pages.span(), offset)
    }

    /// Where a proxy's heartbeat lies. Panics if there is no such proxy.
    pub fn heartbeat(&self, proxy: u32) -> Span {
        let page = self.proxy(proxy);
        let pages = self.inner.pages.span();
        pages.slice((&raw const *page.heartbeat).addr() - pages.address(), size_of::<u64>())
    }

    pub(super) fn peer(&self, peer: u32) -> Option<&Peer> {
        (peer < self.inner.shape.ranks).then(|| self.entry(peer))
    }

    /// An entry of the table of peers, which the layout has.
    pub(super) fn entry(&self, at: u32) -> &Peer {
        let offset = self.inner.layout.peers + u64::from(at) * size_of::<Peer>() as u64;
        view(self.inner.pages.span(), offset)
    }

    /// Says where everybody is: this host is number `node` of `nodes`. Once, before anybody attaches.
    pub fn set_nodes(&self, node: u32, nodes: u32, node_of: &[u32], secret: u64) {
        let job = self.job();
        job.node.store(node, Ordering::Relaxed);
        job.nodes.store(nodes, Ordering::Relaxed);
        job.secret.store(secret, Ordering::Relaxed);
        for (peer, node) in (0..).zip(node_of) {
            self.peer(peer).into_iter().for_each(|peer| peer.node.store(*node, Ordering::Relaxed));
        }
    }

    /// Whether the job runs on several hosts.
    pub fn has_nodes(&self) -> bool {
        self.job().nodes.load(Ordering::Relaxed) > 1
    }

    /// Whether the proxies of this host run on another computer.
    #[inline]
    pub fn has_dpu(&self) -> bool {
        self.job().dpu.load(Ordering::Relaxed) != 0
    }

    /// The number of a process's host; one that no host has if there is no such process.
    pub fn node_of(&self, peer: u32) -> u32 {
        self.peer(peer).map_or(u32::MAX, |peer| peer.node.load(Ordering::Relaxed))
    }

    /// Publishes the name of a process's endpoint; a name that is too long, or of nobody, is left out. A
    /// proxy without a name has ended.
    pub fn set_endpoint(&self, peer: u32, name: &[u8]) {
        if name.is_empty() {
            return self.set_gone(peer);
        }
        let Some(peer) = self.endpoint_entry(peer).filter(|_| name.len() <= ENDPOINT_BYTES_MAX) else {
            return;
        };
        for (word, bytes) in peer.name.iter().zip(name.chunks(8)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(all), Ordering::Relaxed);
        }
        peer.name_bytes.store(name.len() as u16, Ordering::Release);
    }

    /// The name of a process's endpoint, once it is known.
    pub fn endpoint(&self, peer: u32) -> Option<Vec<u8>> {
        let peer = self.endpoint_entry(peer)?;
        let bytes = peer.name_bytes.load(Ordering::Acquire) as usize;
        let mut name: Vec<u8> =
            peer.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        name.truncate(bytes);
        (0 < bytes && bytes <= ENDPOINT_BYTES_MAX).then_some(name)
    }

    /// The proxy that serves a rank, if the job has proxies.
    pub fn proxy_of(&self, rank: LocalRank) -> Option<u32> {
        (self.inner.shape.proxies > 0).then(|| rank.0 % self.inner.shape.proxies)
    }

    /// The memory of a rank's arena, mapped now if it was not yet; `arena` lends it.
    pub(super) fn arena_memory(&self, rank: LocalRank) -> Result<Span> {
        let Some(slot) = self.inner.arenas.get(rank.index()) else {
            fail!(Class::Rank, "there is no arena of rank {rank} among {} ranks", self.inner.shape.ranks);
        };
        if let Some(map) = slot.get() {
            return Ok(map.span());
        }
        let (offset, bytes) = (self.arena_offset(rank), self.inner.layout.arena_bytes);
        let map = map(&self.inner.fd, offset, bytes, || format!("the arena of rank {rank}"))?;
        Ok(slot.get_or_init(|| map).span())
    }

    /// Gives the memory of a rank's arena back to the system.
    pub(super) fn empty_arena(&self, rank: LocalRank) -> Result<()> {
        memory::punch_hole(&self.inner.fd, self.arena_offset(rank), self.inner.layout.arena_bytes)
            .map_err(unreadable)
    }

    /// The arena that holds all of `[address, address + bytes)` of this process: its rank, and the offset in
    /// it. Only arenas that this process has mapped hold any of its addresses.
    pub fn locate(&self, address: usize, bytes: u64) -> Option<(LocalRank, u64)> {
        self.inner.arenas.iter().enumerate().find_map(|(rank, map)| {
            let span = map.get()?.span();
            let offset = address.wrapping_sub(span.address());
            let inside = offset <= span.bytes() && bytes <= (span.bytes() - offset) as u64;
            inside.then_some((LocalRank(rank as u32), offset as u64))
        })
    }

    /// The descriptor, for children.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }

    /// Bytes of the segment that have memory behind them.
    pub fn resident(&self) -> Result<u64> {
        memory::resident(&self.inner.fd).map_err(unreadable)
    }

    /// Maps these bytes of the ring `from -> to`, whole pages. Panics if there are no such ranks.
    pub(super) fn ring_map(&self, from: LocalRank, to: LocalRank, part: Range<u64>) -> Result<Map> {
        let ranks = self.inner.shape.ranks;
        let (LocalRank(sender), LocalRank(receiver)) = (from, to);
        assert!(sender < ranks && receiver < ranks, "ring {from} -> {to} of {ranks} ranks");
        let index = u64::from(receiver) * u64::from(ranks) + u64::from(sender);
        let offset = self.inner.layout.rings + index * RING_STRIDE;
        map(&self.inner.fd, offset + part.start, part.end - part.start, || {
            format!("the ring from rank {from} to rank {to}")
        })
    }

    /// Where a rank's arena begins in the segment.
    pub(super) fn arena_offset(&self, rank: LocalRank) -> u64 {
        self.inner.layout.arenas + u64::from(rank.0) * self.inner.layout.arena_bytes
    }
}

/// Maps a part of the segment, of which only what is used takes memory.
fn map(fd: &OwnedFd, offset: u64, bytes: u64, what: impl FnOnce() -> String) -> Result<Map> {
    Map::shared(fd, offset, bytes as usize).map_err(|error| {
        let what = what();
        Error::new(
            Class::NoMem,
            format!("cannot map {what}, {bytes} bytes of address space: {error}; {REMEDY}"),
        )
    })
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(Class::Other, format!("cannot read the job's descriptor: {error}"))
}

/// The `T` that lies `offset` bytes into mapped memory. The caller keeps the map alive for `'a`.
#[inline]
pub(super) fn view<'a, T: Shared>(span: Span, offset: u64) -> &'a T {
    let place = span.slice(offset as usize, size_of::<T>());
    assert!(place.address().is_multiple_of(align_of::<T>()), "a shared page at a crooked address");
    // SAFETY: mapped (contract of `Span::claim`), aligned (above), in bounds (`slice`), valid whatever it
    // holds (`Shared`).
    unsafe { &*(place.address() as *const T) }
}

#[cfg(all(test, not(loom)))]
#[path = "segment_tests.rs"]
mod tests;
