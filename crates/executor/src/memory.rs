// SPDX-License-Identifier: BSD-3-Clause
//! How a driver reaches memory: its own, mapped arenas, and private memory of other processes.
//!
//! `Reach::fetch` gives a span of this process with bytes of a region (a copy only where they cannot be
//! addressed); `fetch_into` copies them to a span; `put` copies a span over them.

use crate::fault::{Corruption, Fault};
use crate::imported::ImportedMemory;
use crate::note::{Note, NoteKind};
use crate::record::{IN_ARENA, InstanceRecord, STAGED, record_bytes};
use datatype::{Buffer, Layout};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use sys::memory::Map;
use sys::remote::{self, Piece};
use telemetry::Counter;
use transport::shm::{Arena, FIRST_EXTENT_BYTES, LocalRank, Segment, cma};

/// The length of each buffer through which bytes pass that cannot be copied directly. It is long enough to
/// make the cost of a system call small.
const BOUNCE_BYTES: usize = 256 << 10;

/// The index into a rank's `scalars` of the number of bytes that the rank could not map when it last failed
/// to.
const UNMAPPED_BYTES: usize = 1;
/// The index of the system's error code for that.
const UNMAPPED_CODE: usize = 2;

/// The process that drives an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The rank whose instance it is.
    Rank(LocalRank),
    /// The proxy of this index, which serves that rank.
    Proxy(u32),
}

/// A piece of memory in which packed bytes of a buffer lie, and how this process reaches it.
#[derive(Clone, Debug)]
pub enum Region {
    /// Memory that this process can address: its own or a mapped arena.
    Local(Span),
    /// Scratch that a proxy on another computer has, too: it reads here, and writes here and to the rank.
    Mirrored { span: Span, rank: LocalRank, address: usize },
    /// Elements with gaps in memory of this process.
    LocalGaps(Buffer),
    /// Contiguous private memory of another process.
    Remote { rank: LocalRank, address: usize },
    /// Elements with gaps in memory of another rank, private or in its arena.
    RemoteGaps(RemoteLayout),
}

impl Region {
    /// A region without bytes.
    pub const NOTHING: Region = Region::Local(Span::EMPTY);
}

/// Data with gaps that belongs to another process.
#[derive(Clone, Debug)]
pub struct RemoteLayout {
    /// The rank to which the data belongs.
    pub rank: LocalRank,
    /// Whether `base` is an offset into the rank's arena instead of an address in its process.
    pub mapped: bool,
    /// The address, or the offset in the arena, at which the first element's layout begins.
    pub base: usize,
    /// The layout of one element: where its bytes and gaps are.
    pub layout: Arc<Layout>,
    /// How many packed bytes of the first element lie before the region.
    pub skip: usize,
}

/// Which of the three bounce buffers a fetch may use. Spans in use at the same time need different ones.
#[derive(Clone, Copy, Debug)]
pub enum Bounce {
    /// The buffer for the source of a copy, or the left operand of a reduction.
    Left = 0,
    /// The buffer for the right operand of a reduction.
    Right = 1,
    /// The buffer for the result of a reduction.
    Into = 2,
}

/// The job's memory as a driver sees it: how it reads, writes and maps what belongs to other processes.
pub struct Reach {
    /// The memory that the job's processes on this host share.
    pub segment: Segment,
    /// The process that reads and writes here.
    pub driver: Driver,
    /// The most bytes that a step moves before other steps get their turn.
    pub chunk_bytes: u64,
    /// The memory of its ranks, for a proxy on another computer. None for all others.
    pub imported: Option<ImportedMemory>,
    arenas: Box<[OnceCell<Arena>]>,
    /// For each rank, the process id under which its private memory was reached; another id is not trusted
    /// yet.
    reached: Box<[Cell<u32>]>,
    bounces: OnceCell<Map>,
    pieces: RefCell<Vec<Piece>>,
    /// The processor time of the driver's thread when it ended its last instance, where operations are timed.
    pub ended_cpu: Cell<u64>,
    /// Tests: the memory operations until this driver dies; 0 for never.
    #[cfg(test)]
    pub fuse: Cell<u64>,
    /// Tests: the ranks, as bits, whose private memory the kernel refuses.
    #[cfg(test)]
    pub refused: Cell<u64>,
    /// Tests: the ranks, as bits, whose arenas cannot be mapped.
    #[cfg(test)]
    pub unmapped: Cell<u64>,
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
            imported: None,
            arenas: (0..ranks).map(|_| OnceCell::new()).collect(),
            reached: (0..ranks).map(|_| Cell::new(0)).collect(),
            bounces: OnceCell::new(),
            pieces: RefCell::new(Vec::new()),
            ended_cpu: Cell::new(0),
            #[cfg(test)]
            fuse: Cell::new(0),
            #[cfg(test)]
            refused: Cell::new(0),
            #[cfg(test)]
            unmapped: Cell::new(0),
        }
    }

    /// The arena of a rank.
    pub fn arena(&self, rank: LocalRank) -> Result<&Arena, Fault> {
        let peer = rank.peer();
        let entry = self.arenas.get(rank.index()).ok_or(Fault::Corrupt { peer, what: Corruption::Offset })?;
        if let Some(arena) = entry.get() {
            return Ok(arena);
        }
        let bytes = FIRST_EXTENT_BYTES.min(self.segment.shape().arena_bytes);
        #[cfg(test)]
        if self.unmapped.get() >> rank.index() & 1 != 0 {
            return Err(Fault::Unmapped { by: self.me(), peer, bytes, code: 12 });
        }
        let arena =
            self.segment.arena(rank).map_err(|error| Fault::of_arena(self.me(), peer, bytes, &error))?;
        Ok(entry.get_or_init(|| arena))
    }

    /// A span of a rank's arena.
    pub fn span(&self, rank: LocalRank, at: u64, bytes: u64) -> Result<Span, Fault> {
        let span = self.arena(rank)?.span(at, bytes);
        span.map_err(|error| Fault::of_arena(self.me(), rank.peer(), bytes, &error))
    }

    /// A record in an arena.
    pub fn record(&self, arena: &Arena, at: u64, steps: u32) -> Result<InstanceRecord, Fault> {
        let (peer, bytes) = (arena.rank().peer(), record_bytes(steps as usize));
        InstanceRecord::new(arena, at, steps).map_err(|error| Fault::of_arena(self.me(), peer, bytes, &error))
    }

    /// Returns the number by which `Fault::Unmapped` names this process: the rank, or `u32::MAX` for a proxy.
    pub(crate) fn me(&self) -> u32 {
        match self.driver {
            Driver::Rank(rank) => rank.peer(),
            Driver::Proxy(_) => u32::MAX,
        }
    }

    /// Scratch of an instance, at an offset of its rank's arena.
    pub fn scratch(&self, rank: LocalRank, at: u64, bytes: u64) -> Option<Region> {
        let span = self.span(rank, at, bytes).ok()?;
        Some(match &self.imported {
            None => Region::Local(span),
            Some(imported) => Region::Mirrored { span, rank, address: imported.address(at)? as usize },
        })
    }

    /// Adds `n` to a counter of the rank or proxy that drives.
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

    /// Returns the region that holds the bytes of a send of `rank`, from the address in its record.
    pub fn region_of_send(&self, rank: LocalRank, address: u64, bytes: u64) -> Result<Region, Fault> {
        if bytes == 0 {
            return Ok(Region::NOTHING);
        }
        if address & IN_ARENA == 0 {
            return Ok(Region::Remote { rank, address: address as usize });
        }
        Ok(Region::Local(self.span(rank, address & !(IN_ARENA | STAGED), bytes)?))
    }

    /// Reports to `peer` that `rank` cannot map `peer`'s arena, and so will take nothing that `peer` sends.
    pub(crate) fn report_unmapped(&self, rank: LocalRank, peer: LocalRank, fault: Fault) {
        let Fault::Unmapped { bytes, code, .. } = fault else { return };
        let page = self.segment.rank(rank);
        page.scalars[UNMAPPED_BYTES].store(bytes, Ordering::Relaxed);
        page.scalars[UNMAPPED_CODE].store(code as u32 as u64, Ordering::Relaxed);
        page.unmapped.add(peer.peer());
        self.segment.job().unmapped.store(1, Ordering::Release);
        self.wake(peer);
    }

    /// Reports to all ranks that `rank` cannot read `peer`'s private memory, so that `peer` copies what it
    /// sends to `rank`.
    pub(crate) fn mark_unread(&self, rank: LocalRank, peer: LocalRank) {
        let unread = &self.segment.rank(rank).unread;
        if !unread.has(peer.peer()) {
            unread.add(peer.peer());
            self.segment.job().unread.fetch_add(1, Ordering::Release);
        }
    }

    /// Withdraws the report of `report_unmapped`: `rank` has mapped `peer`'s arena.
    pub(crate) fn clear_unmapped(&self, rank: LocalRank, peer: LocalRank) {
        if self.segment.job().unmapped.load(Ordering::Relaxed) != 0 {
            self.segment.rank(rank).unmapped.remove(peer.peer());
        }
    }

    /// Returns why rank `to` will not take what `rank` sends to it, or None if `to` has reported nothing.
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

    /// Wakes the drivers of `rank`'s instances: the rank and its proxy.
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

    /// Waits until the memory of the ranks holds what these notes report, before they leave.
    pub(crate) fn settle(&self, outbox: &VecDeque<(u32, Note)>) {
        if let Some(imported) = self.imported.as_ref().filter(|_| !outbox.is_empty()) {
            imported.settle();
        }
    }

    /// Writes a step's `done` to a rank on another computer. If the write is lost, all that follows fails.
    pub(crate) fn write_done(&self, rank: LocalRank, record: &InstanceRecord, step: u32) {
        if let Some(imported) = &self.imported {
            let _ = imported.write_done(rank, record, step);
        }
    }

    /// Writes what a send within the host has published to its rank, on another computer, as `write_done`
    /// writes `done`.
    pub(crate) fn write_published(&self, rank: LocalRank, record: &InstanceRecord, step: u32) {
        if let Some(imported) = &self.imported {
            let _ = imported.write_published(rank, record, step);
        }
    }

    /// Whether the driver of a receive may start to write. The rank learns of that before the first byte.
    pub(crate) fn claim(&self, rank: LocalRank, record: &InstanceRecord) -> bool {
        let is_first = record.claim().is_none();
        let may_start = record.start_receive();
        // Only messages have one step.
        if is_first && record.steps() == 1 {
            self.write_claim(rank, record);
        }
        may_start
    }

    /// Writes the claim of the receive of a message to its rank, on another computer.
    pub(crate) fn write_claim(&self, rank: LocalRank, record: &InstanceRecord) {
        if let Some(imported) = &self.imported {
            let _ = imported.write_claim(rank, record);
        }
    }

    /// Fetches bytes of scratch that the rank, on another computer, has written.
    pub(crate) fn refresh(&self, region: &Region, offset: u64, bytes: u64) -> Result<(), Fault> {
        let (Region::Mirrored { span, rank, address }, Some(imported)) = (region, &self.imported) else {
            return Ok(());
        };
        let piece = (address.wrapping_add(offset as usize), bytes as usize);
        imported.read(*rank, &[piece], span.slice(offset as usize, bytes as usize))
    }

    /// Whether a note reports progress that its rank does not know of, and that this process cannot write to
    /// it any more.
    pub(crate) fn reports_unknown(&self, note: &Note) -> bool {
        let Some(imported) = &self.imported else { return false };
        let rank = match note.kind {
            NoteKind::Done => note.receiver,
            NoteKind::Known => note.sender,
            _ => return false,
        };
        self.segment.local(rank).is_some_and(|rank| imported.is_lost(rank))
    }

    /// Returns a span of this process with the bytes `[offset, offset + bytes)` of a region; at most
    /// `BOUNCE_BYTES` unless the region is local. The span is valid until the next fetch with the same bounce
    /// buffer.
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

    /// Copies `from` over the bytes from `offset` of a region.
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

    /// Returns the most bytes for which `fetch` can be asked.
    pub fn fetch_bytes_max(&self) -> u64 {
        BOUNCE_BYTES as u64
    }

    /// A bounce buffer.
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

    /// Reads or writes private memory of a rank's process. The first contact tests whether the process is
    /// that rank: its number may be that of another process here.
    fn attach(&self, rank: LocalRank, access: impl FnOnce(u32) -> io::Result<()>) -> Result<(), Fault> {
        let refused = Fault::Unreachable { peer: rank.peer(), code: 1 };
        #[cfg(test)]
        if self.refused.get() >> rank.index() & 1 != 0 {
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
