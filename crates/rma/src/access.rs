//! Operations on a target's memory: put, get, accumulate and its kin (MPI 5.0, section 12.3).
//!
//! The origin computes which bytes of the target an operation touches, checks them against what the target exposes, and moves
//! them. The target's data become *pieces*: memory that can be addressed here, or private memory of another process. The most
//! frequent case comes first in each operation: mapped memory without gaps on both sides (`Target::direct`) is one copy, or one update, and
//! needs no pieces. Whatever is not so, errors too, takes the way behind it.

use crate::serve::{Piece as Far, Way};
use crate::window::{Memory, Target, Window};
use crate::{Regions, Rma};
use datatype::{Basic, Buffer, Layout, Loan, PredefinedOp, is_atomic, reduce};
use error::{Class, Result, fail};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use telemetry::{Counter, count, page};
use transport::shm::cma;

/// Where an operation goes at its target.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Displacement in the target's units; in a dynamic window, an address.
    pub disp: i64,
    /// Elements.
    pub count: usize,
    /// Their data bytes together.
    pub bytes: usize,
    /// Their layout.
    pub layout: &'a Arc<Layout>,
}

/// How an accumulate combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// The operator.
    pub op: PredefinedOp,
    /// The predefined datatype of all elements.
    pub basic: Basic,
}

/// What MPI_Compare_and_swap compares, puts and fetches: one element each.
#[derive(Clone, Copy, Debug)]
pub struct Swap {
    /// The predefined datatype of the element.
    pub basic: Basic,
    /// What the target's element is compared with.
    pub compare: Span,
    /// What replaces it.
    pub origin: Span,
    /// Where it goes as it was.
    pub result: Span,
}

/// Memory for operations that move their bytes in two steps.
#[derive(Default)]
pub(crate) struct Scratch {
    blocks: [Option<Span>; 3],
    pieces: Vec<Piece>,
    far: Vec<Far>,
}

/// What a block of the scratch memory is for.
#[derive(Clone, Copy)]
enum Block {
    Origin = 0,
    Fetched = 1,
    Target = 2,
}

/// Bytes of a block.
const BLOCK_BYTES: usize = 32 << 10;

/// Bytes that are fetched, then combined: they stay in the first-level cache.
const STEP_BYTES: usize = 4 << 10;

impl Scratch {
    /// `bytes` bytes of a block, which is made once for the life of the process.
    fn block(&mut self, which: Block, bytes: usize) -> Span {
        let make = || Span::of(Box::leak(vec![0u8; BLOCK_BYTES].into_boxed_slice()));
        self.blocks[which as usize].get_or_insert_with(make).slice(0, bytes)
    }
}

/// A stretch of the target's data.
#[derive(Clone, Copy)]
enum Piece {
    /// Addressable here. `mapped`: so for all others, too.
    Here { span: Span, mapped: bool },
    /// In another process.
    There { address: usize, bytes: usize },
}

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Piece::Here { span, .. } => span.bytes(),
            Piece::There { bytes, .. } => *bytes,
        }
    }
}

/// The target's data of one operation.
enum Spot {
    Here {
        buffer: Buffer,
        mapped: bool,
    },
    /// Elements from this address on in the target's process.
    There(usize),
}

impl Window {
    /// MPI_Put or MPI_Get at a target that `target` gave.
    #[inline(always)]
    pub fn copy(&mut self, rma: &mut Rma, target: usize, origin: Loan, place: Place, way: Way) -> Result<()> {
        if let Some(there) = self.targets[target].direct(place)
            && let Some(here) = origin.contiguous()
            && here.bytes() == there.bytes()
        {
            self.copy_span(here, there, way);
            return Ok(());
        }
        self.copy_pieces(rma, target, &origin.buffer(), place, way)
    }

    /// MPI_Put or MPI_Get of as many bytes without gaps as `here` has, from displacement `disp` on in the memory of the member `rank`; nothing
    /// where that takes more than a copy, or is wrong.
    #[inline(always)]
    pub fn copy_now(&mut self, rank: i32, disp: i64, here: Span, way: Way) -> Option<()> {
        let target = self.open_target(rank)?;
        let there = self.targets[target].mapped(disp, here.bytes())?;
        self.copy_span(here, there, way);
        Some(())
    }

    #[inline(always)]
    fn copy_span(&mut self, here: Span, there: Span, way: Way) {
        let page = page();
        page.count(Counter::WindowBytes, here.bytes() as u64);
        match way {
            Way::Put => {
                page.count(Counter::PutCalls, 1);
                self.stored = true;
                here.copy_to(there);
            }
            Way::Fetch => {
                page.count(Counter::GetCalls, 1);
                there.copy_to(here);
            }
        }
    }

    #[inline(never)]
    fn copy_pieces(
        &mut self,
        rma: &mut Rma,
        target: usize,
        origin: &Buffer,
        place: Place,
        way: Way,
    ) -> Result<()> {
        // What is sent must fit where it is received (MPI 5.0, sections 12.3.1 and 12.3.2).
        let (from, into) =
            if way == Way::Put { (origin.bytes(), place.bytes) } else { (place.bytes, origin.bytes()) };
        if from > into {
            return truncated(way, from, into);
        }
        count(if way == Way::Put { Counter::PutCalls } else { Counter::GetCalls }, 1);
        count(Counter::WindowBytes, from as u64);
        self.stored = true;
        match self.spot(rma, target, place)? {
            Spot::Here { buffer, .. } => match way {
                Way::Put => buffer.slice(0, from).copy_from(origin),
                Way::Fetch => origin.slice(0, from).copy_from(&buffer),
            },
            Spot::There(base) => {
                self.copy_far(rma, target, &origin.slice(0, from), (base, place.layout), way)?
            }
        }
        Ok(())
    }

    #[cold]
    fn copy_far(
        &self,
        rma: &mut Rma,
        target: usize,
        origin: &Buffer,
        (base, layout): (usize, &Arc<Layout>),
        way: Way,
    ) -> Result<()> {
        let target = &self.targets[target];
        let single = layout.is_contiguous() || (origin.bytes() <= layout.size && layout.pieces() == 1);
        let step = if single && origin.contiguous().is_some() { origin.bytes() } else { BLOCK_BYTES };
        let mut pieces = std::mem::take(&mut rma.scratch.pieces);
        let mut copy = |at: usize| {
            let bytes = step.min(origin.bytes() - at);
            let (span, whole) = match origin.contiguous() {
                Some(span) => (span.slice(at, bytes), true),
                None => (rma.scratch.block(Block::Origin, bytes), false),
            };
            pieces.clear();
            target.pieces_at(base, layout, at, bytes, &mut pieces)?;
            if way == Way::Put && !whole {
                origin.pack(at, span);
            }
            target.transfer(rma, &pieces, span, way)?;
            if way == Way::Fetch && !whole {
                origin.unpack(at, span);
            }
            Ok(())
        };
        let result = (0..origin.bytes()).step_by(step.max(1)).try_for_each(&mut copy);
        rma.scratch.pieces = pieces;
        result
    }

    /// MPI_Accumulate, and with `result` MPI_Get_accumulate. For MPI_NO_OP there is no `origin`, and all
    /// of the place is fetched. The elements of the place are of the predefined datatype that `update` names.
    #[inline(always)]
    pub fn accumulate(
        &mut self,
        rma: &mut Rma,
        target: usize,
        update: Update,
        origin: Option<Loan>,
        result: Option<Loan>,
        place: Place,
    ) -> Result<()> {
        let page = page();
        page.count(Counter::AccumulateCalls, 1);
        let (without, fetches) = (update.op == PredefinedOp::NoOp, result.is_some());
        if let Some(there) = self.targets[target].direct(place)
            && let Some(from) = origin.map_or(Some(Span::EMPTY), |origin| origin.contiguous())
            && (without || from.bytes() == there.bytes())
            && let Some(fetched) = result.map_or(Some(Span::EMPTY), |result| result.contiguous())
            && (!fetches || fetched.bytes() == there.bytes())
        {
            page.count(Counter::WindowBytes, there.bytes() as u64);
            self.targets[target].update(update, there, from, fetched);
            return Ok(());
        }
        let origin = origin.map_or(Buffer::EMPTY, |origin| origin.buffer());
        let result = result.map(|result| result.buffer());
        self.accumulate_pieces(rma, target, update, &origin, result.as_ref(), place)
    }

    #[inline(never)]
    fn accumulate_pieces(
        &mut self,
        rma: &mut Rma,
        target: usize,
        update: Update,
        origin: &Buffer,
        result: Option<&Buffer>,
        place: Place,
    ) -> Result<()> {
        let total = if update.op == PredefinedOp::NoOp { place.bytes } else { origin.bytes() };
        if total > place.bytes {
            return truncated(Way::Put, total, place.bytes);
        }
        if !total.is_multiple_of(update.basic.size()) {
            fail!(
                Class::Type,
                "{total} bytes of the origin are no whole elements of {} bytes",
                update.basic.size()
            );
        }
        count(Counter::WindowBytes, total as u64);
        if let Some(result) = result
            && result.bytes() < total
        {
            return truncated(Way::Fetch, total, result.bytes());
        }
        self.stored = true;
        let spot = self.spot(rma, target, place)?;
        let target = &self.targets[target];
        let mut pieces = std::mem::take(&mut rma.scratch.pieces);
        let mut part = |at: usize, bytes: usize| {
            pieces.clear();
            match &spot {
                Spot::Here { buffer, mapped } => {
                    buffer.pieces(at, bytes, |span| pieces.push(Piece::Here { span, mapped: *mapped }));
                }
                Spot::There(base) => target.pieces_at(*base, place.layout, at, bytes, &mut pieces)?,
            }
            let from = match origin.contiguous() {
                _ if update.op == PredefinedOp::NoOp => Span::EMPTY,
                Some(span) => span.slice(at, bytes),
                None => {
                    let block = rma.scratch.block(Block::Origin, bytes);
                    origin.pack(at, block);
                    block
                }
            };
            let direct = result.and_then(Buffer::contiguous).map(|span| span.slice(at, bytes));
            let fetched = match result {
                Some(_) => direct.unwrap_or_else(|| rma.scratch.block(Block::Fetched, bytes)),
                None => Span::EMPTY,
            };
            match pieces[..] {
                [Piece::Here { span, mapped: true }] => target.update(update, span, from, fetched),
                _ => target.update_pieces(rma, update, &pieces, from, fetched)?,
            }
            if let (Some(result), None) = (result, direct) {
                result.unpack(at, fetched);
            }
            Ok(())
        };
        let step = BLOCK_BYTES / update.basic.size() * update.basic.size();
        let outcome = (0..total).step_by(step).try_for_each(|at| part(at, step.min(total - at)));
        rma.scratch.pieces = pieces;
        outcome
    }

    /// MPI_Compare_and_swap of one element.
    #[inline(always)]
    pub fn compare_and_swap(&mut self, rma: &mut Rma, target: usize, swap: Swap, place: Place) -> Result<()> {
        let page = page();
        page.count(Counter::AccumulateCalls, 1);
        page.count(Counter::WindowBytes, swap.basic.size() as u64);
        if let Some(there) = self.targets[target].direct(place)
            && is_atomic(swap.basic, there.address())
        {
            self.targets[target].swap(swap, there);
            return Ok(());
        }
        self.swap_pieces(rma, target, swap, place)
    }

    #[inline(never)]
    fn swap_pieces(&mut self, rma: &mut Rma, target: usize, swap: Swap, place: Place) -> Result<()> {
        let Swap { basic, compare, origin, result } = swap;
        self.stored = true;
        let spot = self.spot(rma, target, place)?;
        let target = &self.targets[target];
        let mut pieces = Vec::new();
        match &spot {
            Spot::Here { buffer, mapped } => {
                if let Some(span) = buffer.contiguous()
                    && *mapped
                    && is_atomic(basic, span.address())
                {
                    target.swap(swap, span);
                    return Ok(());
                }
                buffer.pieces(0, basic.size(), |span| pieces.push(Piece::Here { span, mapped: *mapped }));
            }
            Spot::There(base) => target.pieces_at(*base, place.layout, 0, basic.size(), &mut pieces)?,
        }
        let _latched = target.record.latch();
        let now = rma.scratch.block(Block::Target, basic.size());
        target.transfer(rma, &pieces, now, Way::Fetch)?;
        if bytes_of(now) == bytes_of(compare) {
            target.transfer(rma, &pieces, origin, Way::Put)?;
        }
        now.copy_to(result);
        Ok(())
    }

    /// Where an operation goes, checked against what the target exposes.
    fn spot(&mut self, rma: &Rma, target: usize, place: Place) -> Result<Spot> {
        self.refresh(rma, target)?;
        let target = &self.targets[target];
        match &target.memory {
            Memory::Mapped(span) => within(target, *span, place, true),
            Memory::Local(span) => within(target, *span, place, false),
            Memory::Private(base) => {
                let offset = target.offset(place)?;
                let reach = if place.count == 0 { Some((0, 0)) } else { place.layout.reach(place.count) };
                let inside = reach.is_some_and(|(first, end)| {
                    let first = offset.checked_add(first).is_some_and(|first| first >= 0);
                    first && offset.checked_add(end).is_some_and(|end| end as u64 <= target.bytes)
                });
                if inside || place.layout.size == 0 {
                    Ok(Spot::There(base.wrapping_add_signed(offset as isize)))
                } else {
                    outside(target, place)
                }
            }
            Memory::Dynamic(regions) => Ok(dynamic(regions, place)),
        }
    }
}

/// The place in memory that is addressable here.
#[inline]
fn within(target: &Target, span: Span, place: Place, mapped: bool) -> Result<Spot> {
    let offset = target.offset(place)?;
    match Buffer::within(span, offset as usize, place.count, place.layout) {
        Some(buffer) => Ok(Spot::Here { buffer, mapped }),
        None => outside(target, place),
    }
}

/// The place in a dynamic window: wholly in one region that is addressable here, or whatever its pieces say.
fn dynamic(regions: &Regions, place: Place) -> Spot {
    let first = place.layout.reach(place.count.max(1)).map_or(0, |reach| reach.0);
    if let Some((address, _, memory)) =
        regions.find((place.disp as usize).wrapping_add_signed(first as isize))
    {
        let (span, mapped) = match memory {
            Memory::Mapped(span) => (*span, true),
            Memory::Local(span) => (*span, false),
            _ => return Spot::There(place.disp as usize),
        };
        let offset = (place.disp as usize).wrapping_sub(*address);
        if let Some(buffer) = Buffer::within(span, offset, place.count, place.layout) {
            return Spot::Here { buffer, mapped };
        }
    }
    Spot::There(place.disp as usize)
}

impl Target {
    /// The memory of a place that everybody reaches by loads and stores, where it has no gaps and is inside of what the target exposes.
    #[inline(always)]
    fn direct(&self, place: Place) -> Option<Span> {
        if place.layout.is_contiguous() { self.mapped(place.disp, place.bytes) } else { None }
    }

    /// The same of so many bytes from a displacement on.
    #[inline(always)]
    fn mapped(&self, disp: i64, bytes: usize) -> Option<Span> {
        let Memory::Mapped(span) = &self.memory else { return None };
        // Negative offsets are great ones.
        let offset = disp.checked_mul(self.disp_unit)? as usize;
        let inside = offset <= span.bytes() && bytes <= span.bytes() - offset;
        inside.then(|| span.slice(offset, bytes))
    }

    /// Bytes from the start of the target's memory to the place.
    #[inline]
    fn offset(&self, place: Place) -> Result<i64> {
        match place.disp.checked_mul(self.disp_unit) {
            Some(offset) => Ok(offset),
            None => {
                fail!(Class::RmaRange, "displacement {} in units of {} bytes", place.disp, self.disp_unit)
            }
        }
    }

    /// Packed bytes `[at, at + bytes)` of elements at `base` in the target's process.
    fn pieces_at(
        &self,
        base: usize,
        layout: &Arc<Layout>,
        at: usize,
        bytes: usize,
        pieces: &mut Vec<Piece>,
    ) -> Result<()> {
        let Memory::Dynamic(regions) = &self.memory else {
            layout.pieces_at(base, at, bytes, |address, bytes| pieces.push(Piece::There { address, bytes }));
            return Ok(());
        };
        let mut missing = None;
        layout.pieces_at(base, at, bytes, |mut address, mut bytes| {
            // A piece may reach over regions that touch each other.
            while bytes > 0 && missing.is_none() {
                let Some((start, length, memory)) = regions.find(address) else {
                    missing = Some((address, bytes));
                    return;
                };
                let (by, part) = (address - start, bytes.min(length - (address - start)));
                pieces.push(match memory {
                    Memory::Mapped(span) => Piece::Here { span: span.slice(by, part), mapped: true },
                    Memory::Local(span) => Piece::Here { span: span.slice(by, part), mapped: false },
                    _ => Piece::There { address, bytes: part },
                });
                (address, bytes) = (address + part, bytes - part);
            }
        });
        match missing {
            None => Ok(()),
            Some((address, bytes)) => {
                fail!(Class::RmaRange, "{bytes} bytes at {address:#x} of peer {} are not attached", self.peer)
            }
        }
    }

    /// Moves bytes between a span and pieces, which have the same length.
    fn transfer(&self, rma: &mut Rma, pieces: &[Piece], span: Span, way: Way) -> Result<()> {
        let mut done = 0;
        let mut far = std::mem::take(&mut rma.scratch.far);
        let mut moved = Ok(());
        for run in pieces.chunk_by(|a, b| matches!((a, b), (Piece::There { .. }, Piece::There { .. }))) {
            let bytes = run.iter().map(Piece::bytes).sum();
            let here = span.slice(done, bytes);
            done += bytes;
            if let [Piece::Here { span, .. }] = run {
                match way {
                    Way::Put => here.copy_to(*span),
                    Way::Fetch => span.copy_to(here),
                }
                continue;
            }
            far.clear();
            far.extend(run.iter().filter_map(|piece| match piece {
                Piece::There { address, bytes } => Some((*address, *bytes)),
                Piece::Here { .. } => None,
            }));
            moved = self.transfer_far(rma, &far, here, way);
            if moved.is_err() {
                break;
            }
        }
        rma.scratch.far = far;
        moved
    }

    fn transfer_far(&self, rma: &Rma, far: &[Far], here: Span, way: Way) -> Result<()> {
        let page = rma.segment.rank(self.peer);
        let mut refused = None;
        if rma.reaches(self.peer) {
            let pid = page.pid.load(Ordering::Relaxed);
            let moved = match way {
                Way::Put => cma::write(pid, far, here),
                Way::Fetch => cma::read(pid, far, here),
            };
            match moved {
                Ok(()) => {
                    count(Counter::CmaBytes, here.bytes() as u64);
                    return Ok(());
                }
                // A device's memory, perhaps: its owner has found out, and serves it.
                Err(error) => refused = Some(error),
            }
        }
        match (&rma.asker, page.inbox.load(Ordering::Acquire), refused) {
            (Some(asker), inbox, _) if inbox != 0 => {
                asker.transfer(&rma.segment, self.peer, inbox, far, here, way)
            }
            (.., Some(error)) => Err(error),
            _ => fail!(Class::Intern, "nobody serves the private memory of peer {}", self.peer),
        }
    }

    /// Combines memory that everybody reaches by loads and stores with `from`, and stores what was there in `fetched` unless that is empty.
    /// One element is updated by an atomic instruction, if there is one for it. More are updated faster without, in the latch, and so
    /// as a whole: programs replace and fetch small structs as bytes and expect that, although the standard promises less (MPI 5.0,
    /// section 12.7.1).
    #[inline(always)]
    fn update(&self, update: Update, there: Span, from: Span, fetched: Span) {
        let Update { op, basic } = update;
        if there.bytes() == basic.size() && is_atomic(basic, there.address()) {
            let _unlatched = self.record.unlatched(self.me);
            datatype::accumulate(op, basic, there, from, fetched);
        } else {
            let _latched = self.record.latch();
            combine(update, there, from, fetched);
        }
    }

    /// Compares and swaps by an atomic instruction.
    #[inline]
    fn swap(&self, Swap { basic, compare, origin, result }: Swap, there: Span) {
        let _unlatched = self.record.unlatched(self.me);
        datatype::compare_and_swap(basic, there, compare, origin, result);
    }

    /// As `update`, of pieces anywhere.
    fn update_pieces(
        &self,
        rma: &mut Rma,
        update: Update,
        pieces: &[Piece],
        from: Span,
        fetched: Span,
    ) -> Result<()> {
        let _latched = self.record.latch();
        // What is in one stretch here is updated where it lies.
        if let [Piece::Here { span, .. }] = pieces {
            combine(update, *span, from, fetched);
            return Ok(());
        }
        let now = rma.scratch.block(Block::Target, pieces.iter().map(Piece::bytes).sum());
        self.transfer(rma, pieces, now, Way::Fetch)?;
        combine(update, now, from, fetched);
        if update.op == PredefinedOp::NoOp { Ok(()) } else { self.transfer(rma, pieces, now, Way::Put) }
    }
}

/// Combines elements with `from` without atomic instructions, and stores what was there in `fetched` unless that is empty. It is other
/// memory than the rest (MPI 5.0, section 12.3.4).
fn combine(Update { op, basic }: Update, there: Span, from: Span, fetched: Span) {
    if fetched.bytes() == 0 {
        return reduce(op, basic, there, from, there);
    }
    let step = STEP_BYTES / basic.size() * basic.size();
    for at in (0..there.bytes()).step_by(step) {
        let part = there.slice(at, step.min(there.bytes() - at));
        part.copy_to(fetched.slice(at, part.bytes()));
        if op != PredefinedOp::NoOp {
            reduce(op, basic, part, from.slice(at, part.bytes()), part);
        }
    }
}

/// A few bytes: one element.
fn bytes_of(span: Span) -> Vec<u8> {
    let mut bytes = vec![0; span.bytes()];
    span.read(&mut bytes);
    bytes
}

#[cold]
fn truncated(way: Way, from: usize, into: usize) -> Result<()> {
    let (what, to) = if way == Way::Put { ("origin", "target") } else { ("target", "origin") };
    fail!(Class::Truncate, "{from} bytes of the {what} do not fit the {into} bytes of the {to}")
}

#[cold]
fn outside(target: &Target, place: Place) -> Result<Spot> {
    let (first, end) = place.layout.reach(place.count.max(1)).unwrap_or((0, i64::MAX));
    fail!(
        Class::RmaRange,
        "displacement {} in units of {} bytes, and data from byte {first} to byte {end} behind it, leave the window, which has {} bytes at peer {}",
        place.disp,
        target.disp_unit,
        target.bytes,
        target.peer
    )
}
