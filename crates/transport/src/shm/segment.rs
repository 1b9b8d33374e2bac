// SPDX-License-Identifier: BSD-3-Clause
//! The segment: the memory that all processes of a job on one host share.
//!
//! `[JobPage][RankPage x ranks][ProxyPage x proxies][PeerEntry x all][ring x ranks x ranks][arena x ranks]`,
//! at offsets that follow from `Shape`, so there is no connection protocol. The pages are one map. Each ring
//! and each extent of an arena (`extents.rs`) is a map of its own, made on first use, so a process takes
//! address space and locked memory only for what it uses. Before each map the inode of the descriptor is
//! checked: the program may have closed the descriptor and opened a file of its own under the same number.
//!
//! Read next: `pages.rs`, `ring.rs`, `arena.rs`.

use super::endpoints::PROXY_ENDPOINTS;
use super::extents::{Extents, MappedExtents, Mapper};
use super::pages::{ENDPOINT_BYTES_MAX, PeerEntry, RANKS_MAX};
use super::ring;
use super::{JobPage, ProxyPage, RankPage};
use error::{Class, Error, Result, fail};
use std::fmt;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use sys::limits;
use sys::memory::{self, Map, Memfd};

/// The number with which a segment begins: the bytes "OUTBOARD" in little-endian order.
const MAGIC: u64 = u64::from_le_bytes(*b"OUTBOARD");
/// The version of the segment's layout, which changes whenever the meaning of any shared byte changes.
const VERSION: u32 = 13;
/// Arenas and their extents begin at multiples of this many bytes, and their lengths are multiples of it, so
/// that huge pages can back them.
pub(super) const ARENA_ALIGN: u64 = 2 << 20;
/// An arena's range of offsets is this many times as long as the bytes that its rank may allocate. An
/// allocation lies in one extent, so free bytes in several extents cannot serve one allocation, and the rank
/// needs spare offsets.
const ARENA_RANGE: u64 = 4;
/// Rings begin at multiples of this many bytes, the largest page size of supported machines, so that each can
/// be mapped alone.
const RING_ALIGN: u64 = 64 << 10;
/// The distance from the start of a ring to the start of the next, in bytes.
const RING_STRIDE: u64 = ring::BYTES.next_multiple_of(RING_ALIGN);

/// The shortest arena, in bytes, with which a job may spawn ranks. If a limit on files leaves fewer bytes for
/// each arena, the job has no room for spawned ranks.
const ARENA_BYTES_MIN: u64 = 64 << 20;

/// How many processes a job has room for on a host, and how long its arenas are. The layout of the segment
/// follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many process numbers the job has on a host, 1 to 4096: one for each rank of the first world, and
    /// one for each rank that can be spawned.
    pub ranks: u32,
    /// The number of proxies on each host, 0 to 4096. Proxy `r % proxies` serves rank `r`.
    pub proxies: u32,
    /// How many bytes each rank may allocate in its arena, rounded up to 2 MiB. Unused bytes take no memory.
    pub arena_bytes: u64,
}

impl Shape {
    /// Makes a shape whose arenas are as large as the machine's memory, or smaller if files are limited
    /// (`ulimit -f`). It has room for `spawned` more ranks, unless each arena would then be shorter than
    /// `ARENA_BYTES_MIN`.
    pub fn sparse(ranks: u32, spawned: u32, proxies: u32) -> Shape {
        Shape::within(
            Shape { ranks: ranks.saturating_add(spawned).min(RANKS_MAX).max(ranks), proxies, arena_bytes: 1 },
            ranks,
            (limits::memory_bytes(), limits::file_bytes()),
        )
    }

    fn within(most: Shape, ranks: u32, (memory, file): (u64, Option<u64>)) -> Shape {
        let share = |shape: Shape| {
            let beside = shape.layout().map_or(u64::MAX, |layout| layout.arenas);
            let of_file = file.map_or(u64::MAX, |file| {
                file.saturating_sub(beside) / u64::from(shape.ranks.max(1)) / ARENA_RANGE
            });
            of_file.min(memory)
        };
        let shape = if share(most) < ARENA_BYTES_MIN { Shape { ranks, ..most } } else { most };
        let bytes = share(shape).max(ARENA_ALIGN);
        // Rounded down if there is a limit; `layout` rounds up otherwise.
        Shape {
            arena_bytes: if bytes < memory { bytes / ARENA_ALIGN * ARENA_ALIGN } else { memory },
            ..shape
        }
    }

    /// Whether a limit on the length of files leaves each rank less than the machine's memory to allocate.
    pub fn is_cut(self) -> bool {
        self.arena_bytes < limits::memory_bytes() && limits::file_bytes().is_some()
    }

    /// Returns where the parts of a segment of this shape lie. Errors: there are too many processes, or more
    /// bytes than any machine can map.
    fn layout(self) -> Result<Layout> {
        let Shape { ranks, proxies, arena_bytes } = self;
        if ranks == 0 || ranks > RANKS_MAX || proxies > RANKS_MAX {
            fail!(
                Class::Arg,
                "a job of {ranks} ranks and {proxies} proxies: 1 to {RANKS_MAX} ranks, up to {RANKS_MAX} proxies"
            );
        }
        // The sums stay far below 2^64: 4096 pages, 4096^2 rings of less than 2^20 bytes, 4096 ranges of at
        // most 2^48 bytes.
        if arena_bytes == 0 || arena_bytes > 1 << 46 {
            fail!(Class::Arg, "an arena of {arena_bytes} bytes per rank: 1 to 2^46 are possible");
        }
        let rank_pages = size_of::<JobPage>() as u64;
        let proxy_pages = rank_pages + u64::from(ranks) * size_of::<RankPage>() as u64;
        let peers = proxy_pages + u64::from(proxies) * size_of::<ProxyPage>() as u64;
        let entries = u64::from(ranks) + u64::from(if proxies > 0 { PROXY_ENDPOINTS } else { 0 });
        let pages_end = peers + entries * size_of::<PeerEntry>() as u64;
        let rings = pages_end.next_multiple_of(RING_ALIGN);
        let rings_end = rings + u64::from(ranks) * u64::from(ranks) * RING_STRIDE;
        let arenas = rings_end.next_multiple_of(ARENA_ALIGN);
        let arena_bytes = arena_bytes.next_multiple_of(ARENA_ALIGN);
        let total = arenas + u64::from(ranks) * arena_bytes * ARENA_RANGE;
        if total > i64::MAX as u64 {
            fail!(
                Class::Arg,
                "{ranks} ranks with an arena of {arena_bytes} bytes each make a file of {total} bytes"
            );
        }
        Ok(Layout { rank_pages, proxy_pages, peers, pages_end, rings, arenas, arena_bytes, total })
    }
}

/// Where the parts of a segment begin, in bytes from its start, and how long they are.
#[derive(Clone, Copy, Debug)]
struct Layout {
    rank_pages: u64,
    proxy_pages: u64,
    peers: u64,
    /// The length of the first part of the segment: the pages and the table of endpoints. A process maps this
    /// part when it attaches.
    pages_end: u64,
    rings: u64,
    arenas: u64,
    arena_bytes: u64,
    total: u64,
}

impl Layout {
    /// Returns the distance from the start of an arena to the start of the next, in bytes.
    fn arena_range(&self) -> u64 {
        self.arena_bytes * ARENA_RANGE
    }
}

/// Types that may lie in shared memory at a mapped, aligned address.
///
/// # Safety
/// Every bit pattern must be valid, and every field must be an atomic or bytes that are reached by
/// `Span` only.
pub(super) unsafe trait InSharedMemory {}
// SAFETY: atomics only.
unsafe impl InSharedMemory for JobPage {}
// SAFETY: atomics only.
unsafe impl InSharedMemory for RankPage {}
// SAFETY: atomics only.
unsafe impl InSharedMemory for ProxyPage {}
// SAFETY: atomics only.
unsafe impl InSharedMemory for PeerEntry {}

/// The number of a process of this host, by which functions find its page, arena, ring and doorbell.
/// [`Segment::local`] makes it from a peer number, and returns None for a peer on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalRank(pub(super) u32);

impl LocalRank {
    /// Returns the peer number by which any process of the job knows this process.
    #[inline]
    pub fn peer(self) -> u32 {
        self.0
    }

    /// Returns the process number, for use as an index.
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

/// A process's view of the job's shared memory on its host. Clones share one view, and the memory is unmapped
/// with the last of them.
#[derive(Clone, Debug)]
pub struct Segment {
    inner: Arc<Inner>,
}

/// A rank's page, in a value that keeps the segment mapped.
#[derive(Clone, Debug)]
pub struct RankPageRef {
    page: &'static RankPage,
    _segment: Segment,
}

impl std::ops::Deref for RankPageRef {
    type Target = RankPage;
    #[inline]
    fn deref(&self) -> &RankPage {
        self.page
    }
}

#[derive(Debug)]
struct Inner {
    fd: Memfd,
    shape: Shape,
    layout: Layout,
    pages: Map,
    arenas: Box<[MappedExtents]>,
}

impl Segment {
    /// Makes the segment of a new job. The returned descriptor is for child processes, which inherit it
    /// (`sys::memory::inheritable`); the segment keeps a copy of its own.
    pub fn create(shape: Shape) -> Result<(Segment, OwnedFd)> {
        let layout = shape.layout()?;
        let shape = Shape { arena_bytes: layout.arena_bytes, ..shape };
        let create = || -> std::io::Result<_> {
            let fd = memory::create("outboard-job", layout.total)?;
            let copy = fd.try_clone()?;
            Ok((fd, copy))
        };
        let (fd, copy) = create().map_err(|error| {
            let remedy = "raise `ulimit -f`, or lower OUTBOARD_ARENA_BYTES and OUTBOARD_SPAWN_RANKS_MAX";
            Error::new(
                Class::NoMem,
                format!("cannot make a sparse memfd of {} bytes: {error}; {remedy}", layout.total),
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
        // Unique enough among the jobs of one machine, and never 0.
        job.id.store((sys::clock::wall() << 16 ^ u64::from(sys::process::id())) | 1, Ordering::Relaxed);
        segment.world(0).renew(0, shape.ranks);
        job.firsts.add(0);
        job.magic.store(MAGIC, Ordering::Release);
        Ok((segment, copy))
    }

    /// Returns the job's segment, to whose descriptor `fd` this process attaches; the process has inherited
    /// it. Errors: the descriptor is not that of a segment, or the segment's layout is of another version.
    pub fn attach(fd: OwnedFd) -> Result<Segment> {
        if !memory::is_sealed(&fd) {
            fail!(
                Class::Other,
                "the job's descriptor is no sealed memfd: was OUTBOARD_JOB_FD set by another mpirun?"
            );
        }
        let bytes = memory::length(&fd).map_err(unreadable)?;
        if bytes < size_of::<JobPage>() as u64 {
            fail!(Class::Other, "the job's memory has {bytes} bytes, less than its header");
        }
        let header = Map::shared(&fd, 0, size_of::<JobPage>()).map_err(unreadable)?;
        let job = view::<JobPage>(header.span(), 0);
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
        let fd = Memfd::new(fd).map_err(unreadable)?;
        let pages = map(&fd, 0..layout.pages_end, || "the job's pages".into())?;
        let arenas = (0..shape.ranks).map(|_| MappedExtents::default()).collect();
        Ok(Segment { inner: Arc::new(Inner { fd, shape, layout, pages, arenas }) })
    }

    pub fn shape(&self) -> Shape {
        self.inner.shape
    }

    /// Returns the page of the job, which holds the values that all processes of the job share.
    #[inline]
    pub fn job(&self) -> &JobPage {
        view(self.inner.pages.span(), 0)
    }

    /// Returns the peer as a process of this host; None if it is on another host.
    #[inline]
    pub fn local(&self, peer: u32) -> Option<LocalRank> {
        let here = self.job().node.load(Ordering::Relaxed);
        (self.node_of(peer) == here).then_some(LocalRank(peer))
    }

    /// Returns the peer as a process of this host. Errors (MPI_ERR_RANK): it is on another host.
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

    /// Iterates over all process numbers of the segment, whether or not a process of this host has the
    /// number.
    pub fn places(&self) -> impl ExactSizeIterator<Item = LocalRank> + Clone + use<> {
        (0..self.inner.shape.ranks).map(LocalRank)
    }

    /// Returns the page in which a rank publishes its state.
    #[inline]
    pub fn rank(&self, rank: LocalRank) -> &RankPage {
        self.page(rank)
    }

    /// Returns a rank's page, in a value that keeps the segment mapped.
    pub fn rank_page_ref(&self, rank: LocalRank) -> RankPageRef {
        RankPageRef { page: self.page(rank), _segment: self.clone() }
    }

    /// Returns a rank's page, to a caller that keeps this segment as long as `'a`.
    #[inline]
    pub(super) fn page<'a>(&self, rank: LocalRank) -> &'a RankPage {
        // A `LocalRank` of another segment may be out of bounds here.
        assert!(rank.0 < self.inner.shape.ranks, "rank {rank} of {}", self.inner.shape.ranks);
        let offset = self.inner.layout.rank_pages + u64::from(rank.0) * size_of::<RankPage>() as u64;
        view(self.inner.pages.span(), offset)
    }

    /// Returns the page in which a proxy publishes its state. Panics if there is no such proxy.
    pub fn proxy(&self, proxy: u32) -> &ProxyPage {
        assert!(proxy < self.inner.shape.proxies, "proxy {proxy} of {}", self.inner.shape.proxies);
        let offset = self.inner.layout.proxy_pages + u64::from(proxy) * size_of::<ProxyPage>() as u64;
        view(self.inner.pages.span(), offset)
    }

    /// Returns the memory of the count that a proxy increases while it lives. Panics if there is no such
    /// proxy.
    pub fn heartbeat(&self, proxy: u32) -> Span {
        let page = self.proxy(proxy);
        let pages = self.inner.pages.span();
        pages.slice((&raw const *page.heartbeat).addr() - pages.address(), size_of::<u64>())
    }

    pub(super) fn peer(&self, peer: u32) -> Option<&PeerEntry> {
        (peer < self.inner.shape.ranks).then(|| self.entry(peer))
    }

    /// Returns entry `at` of the table of endpoints. The caller has checked that there is such an entry.
    pub(super) fn entry(&self, at: u32) -> &PeerEntry {
        let offset = self.inner.layout.peers + u64::from(at) * size_of::<PeerEntry>() as u64;
        view(self.inner.pages.span(), offset)
    }

    /// Stores the host of each peer (`node_of`), this host's number `node` among `nodes` hosts, and the job's
    /// secret. Called once, before any process attaches.
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

    /// Whether the proxies of this host run on another computer, such as a data processing unit (DPU).
    #[inline]
    pub fn has_dpu(&self) -> bool {
        self.job().dpu.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of the host on which `peer` runs; `u32::MAX` if there is no such process.
    pub fn node_of(&self, peer: u32) -> u32 {
        self.peer(peer).map_or(u32::MAX, |peer| peer.node.load(Ordering::Relaxed))
    }

    /// Publishes the name of a process's endpoint. Ignores a name that is too long, and a process that does
    /// not exist. An empty name says that the process, a proxy, has ended.
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

    /// Returns the name of the endpoint of `peer`; None before it is known, and after a proxy has ended.
    pub fn endpoint(&self, peer: u32) -> Option<Vec<u8>> {
        let peer = self.endpoint_entry(peer)?;
        let bytes = peer.name_bytes.load(Ordering::Acquire) as usize;
        let mut name: Vec<u8> =
            peer.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        name.truncate(bytes);
        (0 < bytes && bytes <= ENDPOINT_BYTES_MAX).then_some(name)
    }

    /// Returns the number of the proxy that serves `rank`; None if the job has no proxies.
    pub fn proxy_of(&self, rank: LocalRank) -> Option<u32> {
        (self.inner.shape.proxies > 0).then(|| rank.0 % self.inner.shape.proxies)
    }

    /// Returns the extents of a rank's arena, with the maps that this process has of them. Panics if there is
    /// no such rank.
    #[inline]
    pub(super) fn extents(&self, rank: LocalRank) -> Extents<'_, ArenaMapper<'_>> {
        Extents {
            table: &self.rank(rank).extents,
            mapped: &self.inner.arenas[rank.index()],
            mapper: ArenaMapper { segment: self, rank },
            range: self.inner.layout.arena_range(),
        }
    }

    /// Returns the memory of a rank's whole arena to the system, before the next process gets the rank's
    /// number.
    pub(super) fn empty_arena(&self, rank: LocalRank) -> Result<()> {
        self.discard(rank, 0..self.inner.layout.arena_range()).map_err(unreadable)
    }

    /// Returns the memory of a part of a rank's arena to the system. The part then reads as zeroes.
    pub(super) fn discard(&self, rank: LocalRank, part: Range<u64>) -> std::io::Result<()> {
        memory::punch_hole(self.inner.fd.get()?, self.arena_offset(rank) + part.start, part.end - part.start)
    }

    /// Finds the arena that holds the bytes that this process has at `address`. Returns the arena's rank and
    /// the offset in the arena; None if they do not all lie in one mapped extent of an arena.
    pub fn locate(&self, address: usize, bytes: u64) -> Option<(LocalRank, u64)> {
        self.places().find_map(|rank| Some((rank, self.extents(rank).offset_of(address, bytes)?)))
    }

    /// From now on, keeps this process's writes to arenas from the other processes. A forked child calls
    /// this. The child still sees what the job's processes write, except in pages that it has written itself.
    pub fn make_private(&self) {
        let Ok(fd) = self.inner.fd.get() else { return };
        for rank in self.places() {
            let start = self.arena_offset(rank);
            self.extents(rank).each_mapped(|offset, span| {
                // If this fails, the memory stays shared.
                let _ = memory::make_private(span, fd, start + offset);
            });
        }
    }

    /// Returns the descriptor of the segment, which child processes may inherit.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.inner.fd.borrow()
    }

    /// Returns for how many bytes of the segment the kernel has allocated memory.
    pub fn resident(&self) -> Result<u64> {
        self.inner.fd.get().and_then(memory::resident).map_err(unreadable)
    }

    /// Maps the bytes `part`, whole pages, of the ring `from -> to`, and returns the map. Panics if there are
    /// no such ranks.
    pub(super) fn ring_map(&self, from: LocalRank, to: LocalRank, part: Range<u64>) -> Result<Map> {
        let ranks = self.inner.shape.ranks;
        let (LocalRank(sender), LocalRank(receiver)) = (from, to);
        assert!(sender < ranks && receiver < ranks, "ring {from} -> {to} of {ranks} ranks");
        let index = u64::from(receiver) * u64::from(ranks) + u64::from(sender);
        let offset = self.inner.layout.rings + index * RING_STRIDE;
        map(&self.inner.fd, offset + part.start..offset + part.end, || {
            format!("the ring from {} to {}", self.name(sender), self.name(receiver))
        })
    }

    /// Returns the offset in the segment at which a rank's arena begins.
    pub(super) fn arena_offset(&self, rank: LocalRank) -> u64 {
        self.inner.layout.arenas + u64::from(rank.0) * self.inner.layout.arena_range()
    }
}

/// What `Extents` needs to map parts of an arena: the segment, and the rank to which the arena belongs.
pub(super) struct ArenaMapper<'a> {
    segment: &'a Segment,
    rank: LocalRank,
}

impl Mapper for ArenaMapper<'_> {
    fn map(&self, part: Range<u64>) -> Result<Map> {
        let Segment { inner } = self.segment;
        let start = self.segment.arena_offset(self.rank);
        map(&inner.fd, start + part.start..start + part.end, || {
            format!("a part of the arena of {}", self.name())
        })
    }

    fn name(&self) -> String {
        self.segment.name(self.rank.peer())
    }
}

/// Maps a part of the segment, and returns the map. Only pages that are touched take memory. `what` returns
/// the part's name for error sentences.
fn map(fd: &Memfd, part: Range<u64>, what: impl FnOnce() -> String) -> Result<Map> {
    let bytes = part.end - part.start;
    let mapped = fd.get().and_then(|fd| Map::shared(fd, part.start, bytes as usize));
    mapped.map_err(|error| {
        let (class, remedy) = unmapped(error.raw_os_error().unwrap_or(0));
        let sentence = format!("cannot map {}, {bytes} bytes of address space: {error}; {remedy}", what());
        Error::new(class, sentence).with_errno(error.raw_os_error())
    })
}

/// Returns the error class and the advice for the error sentence, if a part of a segment could not be mapped
/// because of `errno`.
pub fn unmapped(errno: i32) -> (Class, &'static str) {
    match errno {
        Memfd::GONE => (
            Class::Other,
            "the program has closed the descriptor of the job's memory, as one that closes all descriptors from 3 on does",
        ),
        memory::LOCKED => (Class::NoMem, "the program locks its memory (mlockall); raise `ulimit -l`"),
        _ => (
            Class::NoMem,
            "raise `ulimit -v` (RLIMIT_AS), or vm.max_map_count where the process has as many maps",
        ),
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(Class::Other, format!("cannot read the job's descriptor: {error}"))
}

/// Returns the `T` at `offset` in mapped memory. The caller keeps the map as long as `'a`.
#[inline]
pub(super) fn view<'a, T: InSharedMemory>(span: Span, offset: u64) -> &'a T {
    let place = span.slice(offset as usize, size_of::<T>());
    assert!(place.address().is_multiple_of(align_of::<T>()), "a shared page at a crooked address");
    // SAFETY: mapped (contract of `Span::claim`), aligned (above), in bounds (`slice`), valid whatever it
    // holds (`InSharedMemory`).
    unsafe { &*(place.address() as *const T) }
}

#[cfg(all(test, not(loom)))]
#[path = "segment_tests.rs"]
mod tests;
