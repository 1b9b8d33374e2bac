// SPDX-License-Identifier: BSD-3-Clause
//! How a driver (the rank or proxy that drives an instance) reaches memory: its own, mapped arenas, and
//! private memory of other processes.
//!
//! `Reach::fetch` returns a span of this process with bytes of a region; it copies them only where this
//! process cannot address them. `fetch_into` copies bytes of a region to a span. `put` copies a span over
//! bytes of a region.

use crate::fault::{Corruption, Fault};
use crate::imported::ImportedMemory;
use crate::note::{Note, NoteKind};
use crate::record::{IN_ARENA, InstanceRecord, STAGED, record_bytes};
use datatype::{Buffer, Layout};
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use sys::memory::Map;
use sys::remote::{self, Piece};
use telemetry::Counter;
use transport::pending_read::PendingRead;
use transport::shm::{Arena, FIRST_EXTENT_BYTES, LocalRank, Segment, State, cma};

/// The length in bytes of each bounce buffer, through which bytes go that cannot be copied directly. Long
/// enough that the system calls cost little.
const BOUNCE_BYTES: usize = 256 << 10;

/// The index, in a rank's `scalars`, of the word that holds the number of bytes that the rank tried to map
/// when it last failed to map memory.
const UNMAPPED_BYTES: usize = 1;
/// The index, in a rank's `scalars`, of the word that holds the system's error code when the rank last failed
/// to map memory.
const UNMAPPED_CODE: usize = 2;

/// The process that drives an operation, and so reads and writes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The rank that started the operation drives it.
    Rank(LocalRank),
    /// The proxy with this index drives the operation, for a rank that it serves.
    Proxy(u32),
}

/// Memory that holds packed bytes of a buffer, and the way in which this process reaches it.
#[derive(Clone, Debug)]
pub enum Region {
    /// Memory that this process can address: its own memory, or a mapped arena.
    Local(Span),
    /// A scratch buffer that exists twice: in the rank's memory at `address`, and in a proxy's copy on
    /// another computer. The proxy reads its copy, and writes to both.
    Mirrored { span: Span, rank: LocalRank, address: usize },
    /// Elements with gaps (as of a strided datatype) in this process's memory.
    LocalGaps(Buffer),
    /// Contiguous private memory of another rank's process.
    Remote { rank: LocalRank, address: usize },
    /// Elements with gaps (as of a strided datatype) in another rank's private memory or arena.
    RemoteGaps(RemoteLayout),
}

impl Region {
    /// A region without bytes.
    pub const NOTHING: Region = Region::Local(Span::EMPTY);
}

/// Where elements with gaps lie in another process's memory.
#[derive(Clone, Debug)]
pub struct RemoteLayout {
    /// The rank to which the data belongs.
    pub rank: LocalRank,
    /// Whether `base` is an offset in the rank's arena. If not, it is an address in the rank's process.
    pub mapped: bool,
    /// The address, or the offset in the arena, at which the first element's layout begins.
    pub base: usize,
    /// The layout of one element: where its bytes and gaps are.
    pub layout: Arc<Layout>,
    /// The number of packed bytes of the first element that come before the region.
    pub skip: usize,
}

/// Selects one of three bounce buffers, through which bytes go that cannot be copied directly. Spans that are
/// in use together need different buffers.
#[derive(Clone, Copy, Debug)]
pub enum Bounce {
    /// The buffer for the source of a copy, or the left operand of a reduction.
    Left = 0,
    /// The buffer for the right operand of a reduction.
    Right = 1,
    /// The buffer for the result of a reduction.
    Into = 2,
}

/// The job's memory as one driver sees it: how this process reads, writes and maps the memory of other
/// processes.
pub struct Reach {
    /// The memory that the job's processes on this host share.
    pub segment: Segment,
    /// The process that reads and writes by this view of memory: a rank or a proxy.
    pub driver: Driver,
    /// The most bytes that a step moves before other steps get their turn.
    pub chunk_bytes: u64,
    /// For a proxy on another computer, the memory of its ranks, which it reaches by RDMA. None for all other
    /// processes.
    pub imported: Option<ImportedMemory>,
    arenas: Box<[OnceCell<Arena>]>,
    /// For each rank, the process id at which this process last reached the rank's private memory. If the
    /// rank's page has another id, this process tests that id before it uses it.
    reached: Box<[Cell<u32>]>,
    bounces: OnceCell<Map>,
    pieces: RefCell<Vec<Piece>>,
    /// The processor time in nanoseconds that the driver's thread had used when it ended its last operation.
    /// It is set only while operations are timed.
    pub ended_cpu: Cell<u64>,
    /// In tests, the number of memory operations after which this driver dies; 0 if it does not die.
    #[cfg(test)]
    pub fuse: Cell<u64>,
    /// In tests, a bit for each rank. It is set if the kernel refuses access to the private memory of the
    /// rank.
    #[cfg(test)]
    pub test_refused: Cell<u64>,
    /// In tests, a bit for each rank. It is set if the arena of the rank cannot be mapped.
    #[cfg(test)]
    pub test_unmapped: Cell<u64>,
}

/// Why a driver stops driving an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A step, or the whole operation, fails.
    Fault(Fault),
    /// The driver has died here, in a test (`Reach::fuse`).
    #[cfg(test)]
    Died,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl Reach {
    /// Makes the view that the process `driver` has of the job's memory.
    pub fn new(segment: Segment, driver: Driver, chunk_bytes: u64) -> Reach {
        let ranks = segment.shape().ranks;
        Reach {
            segment,
            driver,
            chunk_bytes: chunk_bytes.max(64),
            imported: None,
            arenas: (0..ranks).map(|_| OnceCell::new()).collect(),
            reached: (0..ranks).map(|_| Cell::new(0)).collect(),
            bounces: OnceCell::new(),
            pieces: RefCell::new(Vec::new()),
            ended_cpu: Cell::new(0),
            #[cfg(test)]
            fuse: Cell::new(0),
            #[cfg(test)]
            test_refused: Cell::new(0),
            #[cfg(test)]
            test_unmapped: Cell::new(0),
        }
    }

    /// Returns a rank's arena, and maps it at the first call.
    pub fn arena(&self, rank: LocalRank) -> Result<&Arena, Fault> {
        let peer = rank.peer();
        let entry = self.arenas.get(rank.index()).ok_or(Fault::Corrupt { peer, what: Corruption::Offset })?;
        if let Some(arena) = entry.get() {
            return Ok(arena);
        }
        let bytes = FIRST_EXTENT_BYTES.min(self.segment.shape().arena_bytes);
        #[cfg(test)]
        if self.test_unmapped.get() >> rank.index() & 1 != 0 {
            return Err(Fault::Unmapped { by: self.me(), peer, bytes, code: 12 });
        }
        let arena =
            self.segment.arena(rank).map_err(|error| Fault::of_arena(self.me(), peer, bytes, &error))?;
        Ok(entry.get_or_init(|| arena))
    }

    /// Returns `bytes` bytes at the offset `at` of a rank's arena.
    pub fn span(&self, rank: LocalRank, at: u64, bytes: u64) -> Result<Span, Fault> {
        let span = self.arena(rank)?.span(at, bytes);
        span.map_err(|error| Fault::of_arena(self.me(), rank.peer(), bytes, &error))
    }

    /// Returns the record (the words that count an operation's progress) at the offset `at` of an arena.
    pub fn record(&self, arena: &Arena, at: u64, steps: u32) -> Result<InstanceRecord, Fault> {
        let (peer, bytes) = (arena.rank().peer(), record_bytes(steps as usize));
        InstanceRecord::new(arena, at, steps).map_err(|error| Fault::of_arena(self.me(), peer, bytes, &error))
    }

    /// Returns the number by which `Fault::Unmapped` names this process: a rank's number, or `u32::MAX` for a
    /// proxy.
    pub(crate) fn me(&self) -> u32 {
        match self.driver {
            Driver::Rank(rank) => rank.peer(),
            Driver::Proxy(_) => u32::MAX,
        }
    }

    /// Returns the region of a scratch buffer of `bytes` bytes, at the offset `at` of its rank's arena. None
    /// if it would not lie inside the arena.
    pub fn scratch(&self, rank: LocalRank, at: u64, bytes: u64) -> Option<Region> {
        let span = self.span(rank, at, bytes).ok()?;
        Some(match &self.imported {
            None => Region::Local(span),
            Some(imported) => Region::Mirrored { span, rank, address: imported.address(at)? as usize },
        })
    }

    /// Adds `n` to a counter of this process, a rank or a proxy.
    #[inline]
    pub fn count(&self, counter: Counter, n: u64) {
        match self.driver {
            Driver::Rank(rank) => self.segment.rank(rank).counters.count(counter, n),
            Driver::Proxy(proxy) => self.segment.proxy(proxy).counters.count(counter, n),
        }
    }

    /// Marks a point between two memory operations at which tests let this driver die.
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

    /// Returns the region that holds the bytes of a send. `address` is the send's `Address` word in the
    /// record of `rank`.
    pub fn region_of_send(&self, rank: LocalRank, address: u64, bytes: u64) -> Result<Region, Fault> {
        if bytes == 0 {
            return Ok(Region::NOTHING);
        }
        if address & IN_ARENA == 0 {
            return Ok(Region::Remote { rank, address: address as usize });
        }
        Ok(Region::Local(self.span(rank, address & !(IN_ARENA | STAGED), bytes)?))
    }

    /// Tells `peer` that `rank` cannot map `peer`'s arena, and so cannot receive anything from `peer`.
    pub(crate) fn report_unmapped(&self, rank: LocalRank, peer: LocalRank, fault: Fault) {
        let Fault::Unmapped { bytes, code, .. } = fault else { return };
        let page = self.segment.rank(rank);
        page.scalars[UNMAPPED_BYTES].store(bytes, Ordering::Relaxed);
        page.scalars[UNMAPPED_CODE].store(code as u32 as u64, Ordering::Relaxed);
        page.unmapped.add(peer.peer());
        self.segment.job().unmapped.store(1, Ordering::Release);
        self.wake(peer);
    }

    /// Tells all ranks that `rank` cannot read `peer`'s private memory. From then on `peer` copies to its
    /// arena what it sends to `rank`.
    pub(crate) fn mark_unread(&self, rank: LocalRank, peer: LocalRank) {
        let unreadable = &self.segment.rank(rank).unreadable;
        if !unreadable.has(peer.peer()) {
            unreadable.add(peer.peer());
            self.segment.job().unreadable.fetch_add(1, Ordering::Release);
        }
    }

    /// Withdraws what `report_unmapped` told `peer`, since `rank` has mapped `peer`'s arena after all.
    pub(crate) fn clear_unmapped(&self, rank: LocalRank, peer: LocalRank) {
        if self.segment.job().unmapped.load(Ordering::Relaxed) != 0 {
            self.segment.rank(rank).unmapped.remove(peer.peer());
        }
    }

    /// Returns the fault that rank `to` has reported if `to` cannot map `rank`'s arena, and so cannot receive
    /// from `rank`. None if `to` has reported no such fault.
    #[inline]
    pub(crate) fn unmapped_by(&self, rank: LocalRank, to: Option<LocalRank>) -> Option<Fault> {
        if self.segment.job().unmapped.load(Ordering::Acquire) == 0 {
            return None;
        }
        let to = to?;
        let page = self.segment.rank(to);
        page.unmapped.has(rank.peer()).then(|| Fault::Unmapped {
            by: to.peer(),
            peer: rank.peer(),
            bytes: page.scalars[UNMAPPED_BYTES].load(Ordering::Relaxed),
            code: page.scalars[UNMAPPED_CODE].load(Ordering::Relaxed) as i32,
        })
    }

    /// Wakes the processes that may drive `rank`'s operations: the rank and its proxy.
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

    /// Wakes the proxy of `rank`, which answers when other hosts ask for bytes that `rank` sends.
    pub fn wake_server(&self, rank: LocalRank) {
        if let Some(proxy) = self.segment.proxy_of(rank)
            && self.driver != Driver::Proxy(proxy)
        {
            self.segment.proxy(proxy).bell.ring();
        }
    }

    /// Remembers that this proxy must tell `rank`, on another computer, to look at its instances, since the
    /// proxy has written to the rank's memory.
    pub(crate) fn announce(&self, rank: LocalRank) {
        if let Some(imported) = &self.imported {
            imported.announce(rank);
        }
    }

    /// Writes a step's `done` word to a rank on another computer. If the write fails, the connection is lost,
    /// and all later writes fail, too.
    pub(crate) fn write_done(&self, rank: LocalRank, record: &InstanceRecord, step: u32) {
        if let Some(imported) = &self.imported {
            let _ = imported.write_done(rank, record, step);
        }
    }

    /// Writes a send's `published` word to a rank on another computer. If the write fails, all later writes
    /// fail, too.
    pub(crate) fn write_published(&self, rank: LocalRank, record: &InstanceRecord, step: u32) {
        if let Some(imported) = &self.imported {
            let _ = imported.write_published(rank, record, step);
        }
    }

    /// Whether a receive's driver may start to write to the buffer: true unless the rank has withdrawn the
    /// receive. For a message, a driver on another computer first tells the rank that it starts.
    pub(crate) fn claim(&self, rank: LocalRank, record: &InstanceRecord) -> bool {
        let is_first = record.claim().is_none();
        let may_start = record.start_receive();
        // Only messages have one step.
        if is_first && record.steps() == 1 {
            self.write_claim(rank, record);
        }
        may_start
    }

    /// Writes the word `Claim` of a message's receive to its rank, on another computer.
    pub(crate) fn write_claim(&self, rank: LocalRank, record: &InstanceRecord) {
        if let Some(imported) = &self.imported {
            let _ = imported.write_claim(rank, record);
        }
    }

    /// Fetches bytes of a scratch buffer that the rank, on another computer, has written. Other regions need
    /// no fetch.
    pub(crate) fn refresh(&self, region: &Region, offset: u64, bytes: u64) -> Result<(), Fault> {
        let (Region::Mirrored { span, rank, address }, Some(imported)) = (region, &self.imported) else {
            return Ok(());
        };
        let piece = (address.wrapping_add(offset as usize), bytes as usize);
        imported.read(*rank, &[piece], span.slice(offset as usize, bytes as usize))
    }

    /// Whether a note (a message) reports an instance's progress that this process could not write to the
    /// rank of the instance, because it can no longer reach that rank. A rank that has parted from its proxy
    /// knew all of its progress.
    pub(crate) fn reports_unknown(&self, note: &Note) -> bool {
        let Some(imported) = &self.imported else { return false };
        let rank = match note.kind {
            NoteKind::Done => note.receiver,
            NoteKind::Known => note.sender,
            _ => return false,
        };
        let has_parted = |rank| self.segment.rank(rank).state() == State::Finalized;
        self.segment.local(rank).is_some_and(|rank| imported.is_lost(rank) && !has_parted(rank))
    }

    /// Returns a span of this process with the bytes `[offset, offset + bytes)` of a region. `bytes` is at
    /// most `BOUNCE_BYTES` unless the region is local. The span is valid until the next fetch with the same
    /// bounce buffer.
    pub fn fetch(&self, region: &Region, offset: u64, bytes: u64, bounce: Bounce) -> Result<Span, Fault> {
        if let Region::Local(span) | Region::Mirrored { span, .. } = region {
            return Ok(span.slice(offset as usize, bytes as usize));
        }
        let span = self.bounce(bounce)?.slice(0, bytes as usize);
        self.fetch_into(region, offset, span)?;
        Ok(span)
    }

    /// Copies the bytes from the offset `offset` of a region to `into`.
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
                if let Some(imported) = &self.imported {
                    return imported.read(*rank, &[piece], into);
                }
                self.count(Counter::CmaBytes, into.bytes() as u64);
                self.attach(*rank, |pid| remote::read(pid, &[piece], &[into]))?;
            }
            Region::RemoteGaps(far) => self.access_gaps(far, offset, into, Transfer::Fetch)?,
        }
        Ok(())
    }

    /// Whether the bytes of a region lie with a rank on another computer, and only there.
    pub fn is_imported(&self, region: &Region) -> bool {
        self.imported.is_some() && matches!(region, Region::Remote { .. })
    }

    /// Starts to read bytes of a region for which `is_imported` holds.
    pub fn start_fetch(&self, region: &Region, offset: u64, bytes: u64) -> Result<PendingRead, Fault> {
        let (Region::Remote { rank, address }, Some(imported)) = (region, &self.imported) else {
            panic!("an imported region");
        };
        imported.start_read(*rank, (address.wrapping_add(offset as usize), bytes as usize))
    }

    /// Copies the bytes of `from` to the offset `offset` of a region.
    pub fn put(&self, region: &Region, offset: u64, from: Span) -> Result<(), Fault> {
        match region {
            Region::Local(span) => {
                from.copy_to(span.slice(offset as usize, from.bytes()));
                self.count(Counter::CopiedBytes, from.bytes() as u64);
            }
            Region::Mirrored { span, rank, address } => {
                from.copy_to(span.slice(offset as usize, from.bytes()));
                if let Some(imported) = &self.imported {
                    imported.write(*rank, &[(address.wrapping_add(offset as usize), from.bytes())], from)?;
                }
            }
            Region::LocalGaps(buffer) => {
                buffer.unpack(offset as usize, from);
                self.count(Counter::CopiedBytes, from.bytes() as u64);
            }
            Region::Remote { rank, address } => {
                let piece = (address.wrapping_add(offset as usize), from.bytes());
                if let Some(imported) = &self.imported {
                    return imported.write(*rank, &[piece], from);
                }
                self.count(Counter::CmaBytes, from.bytes() as u64);
                self.attach(*rank, |pid| remote::write(pid, &[piece], &[from]))?;
            }
            Region::RemoteGaps(far) => self.access_gaps(far, offset, from, Transfer::Put)?,
        }
        Ok(())
    }

    /// Copies `bytes` bytes from one region to another: directly where one of them is local, else through a
    /// bounce buffer.
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

    /// Returns the most bytes that one call of `fetch` can return from any kind of region.
    pub fn fetch_bytes_max(&self) -> u64 {
        BOUNCE_BYTES as u64
    }

    /// Returns a bounce buffer: memory through which bytes go that cannot be copied directly.
    pub fn bounce(&self, which: Bounce) -> Result<Span, Fault> {
        let bytes = 3 * BOUNCE_BYTES;
        let whole = match self.bounces.get() {
            Some(map) => map.span(),
            None => {
                let map = sys::memory::create("outboard-bounce", bytes as u64)
                    .and_then(|fd| Map::shared(&fd, 0, bytes));
                let map = map.map_err(|error| {
                    let code = error.raw_os_error().unwrap_or(0);
                    Fault::Unmapped { by: self.me(), peer: self.me(), bytes: bytes as u64, code }
                })?;
                self.bounces.get_or_init(|| map).span()
            }
        };
        Ok(whole.slice(which as usize * BOUNCE_BYTES, BOUNCE_BYTES))
    }

    /// Calls `access` with the process id of a rank, to read or write private memory of that process. Before
    /// the first call it tests that the id is right, since another process on this host may have it.
    fn attach(&self, rank: LocalRank, access: impl FnOnce(u32) -> io::Result<()>) -> Result<(), Fault> {
        let refused = Fault::Unreachable { peer: rank.peer(), code: 1 };
        #[cfg(test)]
        if self.test_refused.get() >> rank.index() & 1 != 0 {
            return Err(refused);
        }
        let pid = self.segment.rank(rank).pid.load(Ordering::Relaxed);
        let reached = &self.reached[rank.index()];
        if reached.get() != pid || pid == 0 {
            if !cma::reaches(&self.segment, rank) {
                return Err(refused);
            }
            reached.set(pid);
        }
        access(pid).map_err(|error| {
            reached.set(0);
            Fault::Unreachable { peer: rank.peer(), code: error.raw_os_error().unwrap_or(0) }
        })
    }

    fn access_gaps(&self, far: &RemoteLayout, offset: u64, span: Span, way: Transfer) -> Result<(), Fault> {
        let mut pieces = self.pieces.borrow_mut();
        pieces.clear();
        far.layout.pieces_at(far.base, far.skip + offset as usize, span.bytes(), |address, bytes| {
            pieces.push((address, bytes));
        });
        if let Some(imported) = &self.imported {
            return match way {
                Transfer::Fetch => imported.read(far.rank, &pieces, span),
                Transfer::Put => imported.write(far.rank, &pieces, span),
            };
        }
        self.count(if far.mapped { Counter::CopiedBytes } else { Counter::CmaBytes }, span.bytes() as u64);
        if !far.mapped {
            return self.attach(far.rank, |pid| match way {
                Transfer::Fetch => remote::read(pid, &pieces, &[span]),
                Transfer::Put => remote::write(pid, &pieces, &[span]),
            });
        }
        // The pieces mostly lie in one extent, which is then looked up once.
        let low = pieces.iter().map(|&(at, _)| at).min().unwrap_or(0);
        let high = pieces.iter().map(|&(at, bytes)| at.saturating_add(bytes)).max().unwrap_or(0);
        let around = self.span(far.rank, low as u64, (high - low) as u64).ok();
        let mut done = 0;
        for &(at, bytes) in pieces.iter() {
            let there = match around {
                Some(around) => around.slice(at - low, bytes),
                None => self.span(far.rank, at as u64, bytes as u64)?,
            };
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
