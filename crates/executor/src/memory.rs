//! How a driver reaches memory: its own, mapped arenas, and private memory of other processes.
//!
//! `Reach::fetch` gives a span of this process that holds bytes of a region (copied only where they cannot be
//! addressed); `fetch_into` copies them to a span; `put` copies a span over them.

use crate::fault::{Corruption, Fault};
use crate::lent::LentMemory;
use crate::note::{Kind, Note};
use crate::record::InstanceRecord;
use datatype::{Buffer, Layout};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use sys::memory::Map;
use sys::remote::{self, Piece};
use telemetry::Counter;
use transport::shm::{Arena, LocalRank, Segment};

/// Bytes of a bounce buffer: enough to make the cost of a system call small.
const BOUNCE_BYTES: usize = 256 << 10;

/// The process that drives an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The rank itself.
    Rank(LocalRank),
    /// A proxy.
    Proxy(u32),
}

/// A region of packed bytes, as this process sees it.
#[derive(Clone, Debug)]
pub enum Region {
    /// Addressable: memory of this process or a mapped arena.
    Local(Span),
    /// Scratch that a proxy on another computer has, too: read here, written here and to the rank.
    Mirrored { span: Span, rank: LocalRank, address: usize },
    /// Memory of this process with gaps.
    LocalGaps(Buffer),
    /// Private memory of another process.
    Remote { rank: LocalRank, address: usize },
    /// Memory of another rank with gaps, private or in its arena.
    RemoteGaps(RemoteLayout),
}

/// Data with gaps that belongs to another process.
#[derive(Clone, Debug)]
pub struct RemoteLayout {
    /// Whose.
    pub rank: LocalRank,
    /// Whether `base` is an offset into the rank's arena instead of an address in its process.
    pub mapped: bool,
    /// Origin of the first element.
    pub base: usize,
    /// What lies there.
    pub layout: Arc<Layout>,
    /// Packed bytes of the first element before the region.
    pub skip: usize,
}

/// Which bounce buffer a fetch may use: one for each span in use at the same time.
#[derive(Clone, Copy, Debug)]
pub enum Bounce {
    /// A copy's source, a reduction's left operand.
    Left = 0,
    /// A reduction's right operand.
    Right = 1,
    /// A reduction's result.
    Into = 2,
}

/// A driver's view of the job's memory.
pub struct Reach {
    /// The job.
    pub segment: Segment,
    /// The process whose view this is.
    pub driver: Driver,
    /// The bytes that a step moves at a time.
    pub chunk_bytes: u64,
    /// A proxy's on another computer: how it reaches the memory of ranks.
    pub lent: Option<LentMemory>,
    arenas: Box<[OnceCell<Arena>]>,
    bounces: OnceCell<Option<Map>>,
    pieces: RefCell<Vec<Piece>>,
    /// The driver's processor time at the end of the last instance, where operations are timed.
    pub ended_cpu: Cell<u64>,
    /// Tests: memory operations until this driver dies; 0 for never.
    #[cfg(test)]
    pub fuse: Cell<u64>,
}

/// Why a driver stops driving an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The instance or a step of it fails.
    Fault(Fault),
    /// Tests: the driver has died here.
    #[cfg(test)]
    Died,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl Reach {
    /// A view of a job's memory.
    pub fn new(segment: Segment, driver: Driver, chunk_bytes: u64) -> Reach {
        let ranks = segment.shape().ranks;
        Reach {
            segment,
            driver,
            chunk_bytes: chunk_bytes.max(64),
            lent: None,
            arenas: (0..ranks).map(|_| OnceCell::new()).collect(),
            bounces: OnceCell::new(),
            pieces: RefCell::new(Vec::new()),
            ended_cpu: Cell::new(0),
            #[cfg(test)]
            fuse: Cell::new(0),
        }
    }

    /// The arena of a rank.
    pub fn arena(&self, rank: LocalRank) -> Result<&Arena, Fault> {
        let peer = rank.peer();
        let entry = self.arenas.get(rank.index()).ok_or(Fault::Corrupt { peer, what: Corruption::Offset })?;
        if let Some(arena) = entry.get() {
            return Ok(arena);
        }
        let arena = self.segment.arena(rank).map_err(|_| Fault::Unreachable { peer, code: 12 })?;
        Ok(entry.get_or_init(|| arena))
    }

    /// Scratch of an instance, at an offset of its rank's arena.
    pub fn scratch(&self, rank: LocalRank, at: u64, bytes: u64) -> Option<Region> {
        let span = self.arena(rank).ok()?.span(at, bytes).ok()?;
        Some(match &self.lent {
            None => Region::Local(span),
            Some(lent) => Region::Mirrored { span, rank, address: lent.address(at)? as usize },
        })
    }

    /// Counts in the driver's page.
    #[inline]
    pub fn count(&self, counter: Counter, n: u64) {
        match self.driver {
            Driver::Rank(rank) => self.segment.rank(rank).counters.count(counter, n),
            Driver::Proxy(proxy) => self.segment.proxy(proxy).counters.count(counter, n),
        }
    }

    /// Marks a point between two memory operations, where a driver may die.
    #[inline]
    pub fn fault_point(&self) -> Result<(), Stop> {
        #[cfg(test)]
        {
            let left = self.fuse.get();
            if left > 0 {
                self.fuse.set(left - 1);
                if left == 1 {
                    return Err(Stop::Died);
                }
            }
        }
        Ok(())
    }

    /// Wakes the drivers of `rank`'s instances: itself and its proxy.
    #[inline]
    pub fn wake(&self, rank: LocalRank) {
        if self.driver != Driver::Rank(rank) {
            self.segment.rank(rank).bell.ring();
        }
        if let Some(proxy) = self.segment.proxy_of(rank)
            && self.driver != Driver::Proxy(proxy)
        {
            self.segment.proxy(proxy).bell.ring();
        }
    }

    /// Wakes the process that answers for `rank` when ranks of other hosts ask.
    pub fn wake_server(&self, rank: LocalRank) {
        if let Some(proxy) = self.segment.proxy_of(rank)
            && self.driver != Driver::Proxy(proxy)
        {
            self.segment.proxy(proxy).bell.ring();
        }
    }

    /// Before notes leave: what they say must lie in the memory of its rank.
    pub(crate) fn settle(&self, outbox: &VecDeque<(u32, Note)>) {
        if let Some(lent) = self.lent.as_ref().filter(|_| !outbox.is_empty()) {
            lent.settle();
        }
    }

    /// Writes a step's `done` to a rank on another computer; if that is lost, whatever comes next fails.
    pub(crate) fn tell(&self, rank: LocalRank, record: &InstanceRecord, step: u32) {
        if let Some(lent) = &self.lent {
            let _ = lent.tell(rank, record, step);
        }
    }

    /// Whether a note tells of progress that its rank does not know of, and never will by us.
    pub(crate) fn must_not_tell(&self, note: &Note) -> bool {
        let Some(lent) = &self.lent else { return false };
        let rank = match note.kind {
            Kind::Done => note.receiver,
            Kind::Known => note.sender,
            _ => return false,
        };
        self.segment.local(rank).is_some_and(|rank| lent.is_lost(rank))
    }

    /// A span that holds bytes `[offset, offset + bytes)` of a region; at most `BOUNCE_BYTES` unless the
    /// region is local. It is valid until the next fetch with the same bounce buffer.
    pub fn fetch(&self, region: &Region, offset: u64, bytes: u64, bounce: Bounce) -> Result<Span, Fault> {
        if let Region::Local(span) | Region::Mirrored { span, .. } = region {
            return Ok(span.slice(offset as usize, bytes as usize));
        }
        let span = self.bounce(bounce)?.slice(0, bytes as usize);
        self.fetch_into(region, offset, span)?;
        Ok(span)
    }

    /// Copies bytes from `offset` of a region to `into`.
    pub fn fetch_into(&self, region: &Region, offset: u64, into: Span) -> Result<(), Fault> {
        match region {
            Region::Local(span) | Region::Mirrored { span, .. } => {
                span.slice(offset as usize, into.bytes()).copy_to(into);
                self.count(Counter::CopiedBytes, into.bytes() as u64);
            }
            Region::LocalGaps(buffer) => {
                buffer.pack(offset as usize, into);
                self.count(Counter::CopiedBytes, into.bytes() as u64);
            }
            Region::Remote { rank, address } => {
                let piece = (address.wrapping_add(offset as usize), into.bytes());
                if let Some(lent) = &self.lent {
                    return lent.read(*rank, &[piece], into);
                }
                self.count(Counter::CmaBytes, into.bytes() as u64);
                remote::read(self.pid(*rank), &[piece], &[into])
                    .map_err(|error| unreachable(*rank, &error))?;
            }
            Region::RemoteGaps(far) => self.far(far, offset, into, Transfer::Fetch)?,
        }
        Ok(())
    }

    /// Copies `from` over the bytes from `offset` of a region.
    pub fn put(&self, region: &Region, offset: u64, from: Span) -> Result<(), Fault> {
        match region {
            Region::Local(span) => {
                from.copy_to(span.slice(offset as usize, from.bytes()));
                self.count(Counter::CopiedBytes, from.bytes() as u64);
            }
            Region::Mirrored { span, rank, address } => {
                from.copy_to(span.slice(offset as usize, from.bytes()));
                if let Some(lent) = &self.lent {
                    lent.write(*rank, &[(address.wrapping_add(offset as usize), from.bytes())], from)?;
                }
            }
            Region::LocalGaps(buffer) => {
                buffer.unpack(offset as usize, from);
                self.count(Counter::CopiedBytes, from.bytes() as u64);
            }
            Region::Remote { rank, address } => {
                let piece = (address.wrapping_add(offset as usize), from.bytes());
                if let Some(lent) = &self.lent {
                    return lent.write(*rank, &[piece], from);
                }
                self.count(Counter::CmaBytes, from.bytes() as u64);
                remote::write(self.pid(*rank), &[piece], &[from])
                    .map_err(|error| unreachable(*rank, &error))?;
            }
            Region::RemoteGaps(far) => self.far(far, offset, from, Transfer::Put)?,
        }
        Ok(())
    }

    /// Copies `bytes` bytes between two regions, directly where one is local, else through a bounce buffer.
    pub fn copy(&self, from: (&Region, u64), into: (&Region, u64), bytes: u64) -> Result<(), Fault> {
        if let Region::Local(span) = into.0 {
            return self.fetch_into(from.0, from.1, span.slice(into.1 as usize, bytes as usize));
        }
        let mut done = 0;
        while done < bytes {
            let part = match from.0 {
                Region::Local(_) | Region::Mirrored { .. } => bytes,
                _ => (bytes - done).min(BOUNCE_BYTES as u64),
            };
            let span = self.fetch(from.0, from.1 + done, part, Bounce::Left)?;
            self.put(into.0, into.1 + done, span)?;
            done += part;
        }
        Ok(())
    }

    /// The most that `fetch` gives at once.
    pub fn fetch_bytes_max(&self) -> u64 {
        BOUNCE_BYTES as u64
    }

    /// A bounce buffer.
    pub fn bounce(&self, which: Bounce) -> Result<Span, Fault> {
        let map = self.bounces.get_or_init(|| {
            let bytes = 3 * BOUNCE_BYTES;
            let fd = sys::memory::create("outboard-bounce", bytes as u64).ok()?;
            Map::shared(&fd, 0, bytes).ok()
        });
        let whole = map.as_ref().ok_or(Fault::Unreachable { peer: 0, code: 12 })?.span();
        Ok(whole.slice(which as usize * BOUNCE_BYTES, BOUNCE_BYTES))
    }

    fn pid(&self, rank: LocalRank) -> u32 {
        self.segment.rank(rank).pid.load(Ordering::Relaxed)
    }

    fn far(&self, far: &RemoteLayout, offset: u64, span: Span, way: Transfer) -> Result<(), Fault> {
        let mut pieces = self.pieces.borrow_mut();
        pieces.clear();
        far.layout.pieces_at(far.base, far.skip + offset as usize, span.bytes(), |address, bytes| {
            pieces.push((address, bytes));
        });
        if let Some(lent) = &self.lent {
            return match way {
                Transfer::Fetch => lent.read(far.rank, &pieces, span),
                Transfer::Put => lent.write(far.rank, &pieces, span),
            };
        }
        self.count(if far.mapped { Counter::CopiedBytes } else { Counter::CmaBytes }, span.bytes() as u64);
        if !far.mapped {
            let moved = match way {
                Transfer::Fetch => remote::read(self.pid(far.rank), &pieces, &[span]),
                Transfer::Put => remote::write(self.pid(far.rank), &pieces, &[span]),
            };
            return moved.map_err(|error| unreachable(far.rank, &error));
        }
        let arena = self.arena(far.rank)?;
        let mut done = 0;
        for &(at, bytes) in pieces.iter() {
            let outside = Fault::Corrupt { peer: far.rank.peer(), what: Corruption::Offset };
            let there = arena.span(at as u64, bytes as u64).map_err(|_| outside)?;
            let here = span.slice(done, bytes);
            match way {
                Transfer::Fetch => there.copy_to(here),
                Transfer::Put => here.copy_to(there),
            }
            done += bytes;
        }
        Ok(())
    }
}

enum Transfer {
    Fetch,
    Put,
}

fn unreachable(rank: LocalRank, error: &std::io::Error) -> Fault {
    Fault::Unreachable { peer: rank.peer(), code: error.raw_os_error().unwrap_or(0) }
}
