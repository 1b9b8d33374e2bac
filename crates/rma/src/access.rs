// SPDX-License-Identifier: BSD-3-Clause
//! Operations on a target's memory: put, get, accumulate and similar operations (MPI 5.0, section 12.3).
//!
//! The origin checks the range of an operation against what the target exposes, and moves the bytes itself,
//! or asks a target on another host to do so (`far.rs`). Each operation first tries the frequent case: one
//! copy or update of mapped memory, without gaps in the origin's or the target's buffer
//! (`LocalTarget::direct`). In every other case, errors included, the target's memory is a list of contiguous
//! parts (`TargetPiece`). Each is either addressable in this process or private memory of another process.

use crate::far::RemoteRequest;
use crate::pieces::{BLOCK_BYTES, STEP_BYTES, ScratchUse, TargetPiece};
use crate::process::Rma;
use crate::serve::Direction;
use crate::target::{LocalTarget, TargetData, TargetRange};
use crate::update::{Swap, Update};
use crate::window::Window;
use datatype::{Buffer, BufferClaim, Layout, PredefinedOp, is_atomic, reduce};
use error::{Class, Result, fail};
use std::sync::Arc;
use sys::Span;
use telemetry::{Counter, count, page};

impl Window {
    /// Carries out MPI_Put or MPI_Get (`way`) between `origin` and a range of `target`, a member that
    /// `Window::target` returned.
    #[inline(always)]
    pub fn copy(
        &mut self,
        rma: &mut Rma,
        target: usize,
        origin: BufferClaim,
        range: TargetRange,
        way: Direction,
    ) -> Result<()> {
        if let Some(there) = self.here(target).and_then(|target| target.direct(range))
            && let Some(here) = origin.contiguous()
            && here.bytes() == there.bytes()
        {
            self.copy_span(here, there, way);
            return Ok(());
        }
        self.copy_pieces(rma, target, &origin.buffer(), range, way)
    }

    /// Carries out MPI_Put or MPI_Get (`way`) of `here.bytes()` bytes between `here` and displacement `disp`
    /// of rank `rank`, if one copy of mapped memory does it. Otherwise does nothing and returns None. The
    /// caller then calls `copy`, which also reports errors.
    #[inline(always)]
    pub fn copy_now(&mut self, rank: i32, disp: i64, here: Span, way: Direction) -> Option<()> {
        let target = self.open_target(rank)?;
        let there = self.here(target)?.mapped(disp, here.bytes())?;
        self.copy_span(here, there, way);
        Some(())
    }

    #[inline(always)]
    fn copy_span(&mut self, here: Span, there: Span, way: Direction) {
        let page = page();
        page.count(Counter::WindowBytes, here.bytes() as u64);
        match way {
            Direction::Put => {
                page.count(Counter::PutCalls, 1);
                self.stored = true;
                here.copy_to(there);
            }
            Direction::Fetch => {
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
        range: TargetRange,
        way: Direction,
    ) -> Result<()> {
        // The bytes sent must fit where they are received (MPI 5.0, sections 12.3.1 and 12.3.2).
        let (from, into) =
            if way == Direction::Put { (origin.bytes(), range.bytes) } else { (range.bytes, origin.bytes()) };
        if from > into {
            return truncated(way, from, into);
        }
        count(if way == Direction::Put { Counter::PutCalls } else { Counter::GetCalls }, 1);
        count(Counter::WindowBytes, from as u64);
        if self.here(target).is_none() {
            let what = if way == Direction::Put { RemoteRequest::Put } else { RemoteRequest::Get };
            let here = origin.slice(0, from);
            return self.send_operation(rma, target, what, (here.clone(), here), range, from);
        }
        self.stored = true;
        match self.locate(rma, target, range)? {
            TargetData::Here { buffer, .. } => match way {
                Direction::Put => buffer.slice(0, from).copy_from(origin),
                Direction::Fetch => origin.slice(0, from).copy_from(&buffer),
            },
            TargetData::There(base) => {
                self.copy_private(rma, target, &origin.slice(0, from), (base, range.layout), way)?
            }
        }
        Ok(())
    }

    #[cold]
    fn copy_private(
        &self,
        rma: &mut Rma,
        target: usize,
        origin: &Buffer,
        (base, layout): (usize, &Arc<Layout>),
        way: Direction,
    ) -> Result<()> {
        let target = self.on_host(target)?;
        let single = layout.is_contiguous() || (origin.bytes() <= layout.size && layout.pieces() == 1);
        let step = if single && origin.contiguous().is_some() { origin.bytes() } else { BLOCK_BYTES };
        let mut pieces = std::mem::take(&mut rma.scratch.pieces);
        let mut copy = |at: usize| {
            let bytes = step.min(origin.bytes() - at);
            let (span, whole) = match origin.contiguous() {
                Some(span) => (span.slice(at, bytes), true),
                None => (rma.scratch.block(ScratchUse::Origin, bytes), false),
            };
            pieces.clear();
            target.pieces_at(base, layout, at, bytes, &mut pieces)?;
            if way == Direction::Put && !whole {
                origin.pack(at, span);
            }
            target.transfer(rma, &pieces, span, way)?;
            if way == Direction::Fetch && !whole {
                origin.unpack(at, span);
            }
            Ok(())
        };
        let result = (0..origin.bytes()).step_by(step.max(1)).try_for_each(&mut copy);
        rma.scratch.pieces = pieces;
        result
    }

    /// Carries out MPI_Accumulate, or MPI_Get_accumulate if there is a `result`. MPI_NO_OP has no `origin`,
    /// and fetches the whole range. All elements have the predefined datatype in `update`.
    #[inline(always)]
    pub fn accumulate(
        &mut self,
        rma: &mut Rma,
        target: usize,
        update: Update,
        origin: Option<BufferClaim>,
        result: Option<BufferClaim>,
        range: TargetRange,
    ) -> Result<()> {
        let page = page();
        page.count(Counter::AccumulateCalls, 1);
        let (without, fetches) = (update.op == PredefinedOp::NoOp, result.is_some());
        if let Some(near) = self.here(target)
            && let Some(there) = near.direct(range)
            && let Some(from) = origin.map_or(Some(Span::EMPTY), |origin| origin.contiguous())
            && (without || from.bytes() == there.bytes())
            && let Some(fetched) = result.map_or(Some(Span::EMPTY), |result| result.contiguous())
            && (!fetches || fetched.bytes() == there.bytes())
        {
            page.count(Counter::WindowBytes, there.bytes() as u64);
            near.update(update, there, from, fetched);
            return Ok(());
        }
        let origin = origin.map_or(Buffer::EMPTY, |origin| origin.buffer());
        let result = result.map(|result| result.buffer());
        self.accumulate_pieces(rma, target, update, &origin, result.as_ref(), range)
    }

    #[inline(never)]
    fn accumulate_pieces(
        &mut self,
        rma: &mut Rma,
        target: usize,
        update: Update,
        origin: &Buffer,
        result: Option<&Buffer>,
        range: TargetRange,
    ) -> Result<()> {
        let total = whole_elements(update, origin, result, range.bytes)?;
        count(Counter::WindowBytes, total as u64);
        if self.here(target).is_none() {
            let fetched = result.map_or(Buffer::EMPTY, |result| result.slice(0, total));
            let what = if result.is_some() {
                RemoteRequest::FetchAndOp(update)
            } else {
                RemoteRequest::Accumulate(update)
            };
            return self.send_operation(rma, target, what, (origin.clone(), fetched), range, total);
        }
        self.stored = true;
        let data = self.locate(rma, target, range)?;
        let target = self.on_host(target)?;
        let mut pieces = std::mem::take(&mut rma.scratch.pieces);
        let mut part = |at: usize, bytes: usize| {
            pieces.clear();
            match &data {
                TargetData::Here { buffer, mapped } => {
                    buffer.pieces(at, bytes, |span| pieces.push(TargetPiece::Here { span, mapped: *mapped }));
                }
                TargetData::There(base) => target.pieces_at(*base, range.layout, at, bytes, &mut pieces)?,
            }
            let from = match origin.contiguous() {
                _ if update.op == PredefinedOp::NoOp => Span::EMPTY,
                Some(span) => span.slice(at, bytes),
                None => {
                    let block = rma.scratch.block(ScratchUse::Origin, bytes);
                    origin.pack(at, block);
                    block
                }
            };
            let direct = result.and_then(Buffer::contiguous).map(|span| span.slice(at, bytes));
            let fetched = match result {
                Some(_) => direct.unwrap_or_else(|| rma.scratch.block(ScratchUse::Fetched, bytes)),
                None => Span::EMPTY,
            };
            target.update_pieces(rma, update, &pieces, from, fetched)?;
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

    /// Carries out MPI_Compare_and_swap of the one element in `range`.
    #[inline(always)]
    pub fn compare_and_swap(
        &mut self,
        rma: &mut Rma,
        target: usize,
        swap: Swap,
        range: TargetRange,
    ) -> Result<()> {
        let page = page();
        page.count(Counter::AccumulateCalls, 1);
        page.count(Counter::WindowBytes, swap.basic.size() as u64);
        if let Some(near) = self.here(target)
            && let Some(there) = near.direct(range)
            && is_atomic(swap.basic, there.address())
        {
            near.swap(swap, there);
            return Ok(());
        }
        self.swap_pieces(rma, target, swap, range)
    }

    #[inline(never)]
    fn swap_pieces(&mut self, rma: &mut Rma, target: usize, swap: Swap, range: TargetRange) -> Result<()> {
        let bytes = swap.basic.size();
        if self.here(target).is_none() {
            return self.send_operation(
                rma,
                target,
                RemoteRequest::Swap(swap),
                (Buffer::EMPTY, swap.result.into()),
                range,
                bytes,
            );
        }
        self.stored = true;
        let data = self.locate(rma, target, range)?;
        let target = self.on_host(target)?;
        let mut pieces = Vec::new();
        match &data {
            TargetData::Here { buffer, mapped } => {
                buffer.pieces(0, bytes, |span| pieces.push(TargetPiece::Here { span, mapped: *mapped }));
            }
            TargetData::There(base) => target.pieces_at(*base, range.layout, 0, bytes, &mut pieces)?,
        }
        target.swap_pieces(rma, swap, &pieces)
    }

    /// Returns how to reach a member on this host. Errors: the member is on another host.
    fn on_host(&self, member: usize) -> Result<&LocalTarget> {
        match self.here(member) {
            Some(target) => Ok(target),
            None => fail!(Class::Intern, "member {member} of a window is on another host"),
        }
    }

    /// Finds the memory of `range` at a member on this host. Errors: the range is not inside the memory that
    /// the member exposes.
    fn locate(&mut self, rma: &Rma, target: usize, range: TargetRange) -> Result<TargetData> {
        self.refresh(rma, target)?;
        self.on_host(target)?.locate(range)
    }
}

impl LocalTarget {
    /// Combines the target's mapped memory `there` with `from`. Stores the target's old content in `fetched`,
    /// unless that is empty. One aligned element is updated by an atomic instruction, several together under
    /// the window's latch (a lock). The latch makes the whole update atomic. MPI only promises this for each
    /// element (5.0, section 12.7.1), but programs expect it when they replace small structs as bytes.
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

    #[inline]
    fn swap(&self, Swap { basic, compare, origin, result }: Swap, there: Span) {
        let _unlatched = self.record.unlatched(self.me);
        datatype::compare_and_swap(basic, there, compare, origin, result);
    }

    /// Compares and swaps one element of the target, whose memory `pieces` names. A mapped, aligned element
    /// is swapped by an atomic instruction, any other under the latch, the window's lock for updates.
    pub fn swap_pieces(&self, rma: &mut Rma, swap: Swap, pieces: &[TargetPiece]) -> Result<()> {
        let Swap { basic, compare, origin, result } = swap;
        if let [TargetPiece::Here { span, mapped: true }] = pieces
            && is_atomic(basic, span.address())
        {
            self.swap(swap, *span);
            return Ok(());
        }
        let _latched = self.record.latch();
        let now = rma.scratch.block(ScratchUse::Target, basic.size());
        self.transfer(rma, pieces, now, Direction::Fetch)?;
        if bytes_of(now) == bytes_of(compare) {
            self.transfer(rma, pieces, origin, Direction::Put)?;
        }
        now.copy_to(result);
        Ok(())
    }

    /// Combines target elements, whose memory `pieces` names, with `from`. Stores their old content in
    /// `fetched`, unless `fetched` is empty. Elements that are not all in one contiguous part of mapped
    /// memory are updated under the latch, the window's lock for updates.
    pub fn update_pieces(
        &self,
        rma: &mut Rma,
        update: Update,
        pieces: &[TargetPiece],
        from: Span,
        fetched: Span,
    ) -> Result<()> {
        if let [TargetPiece::Here { span, mapped: true }] = pieces {
            self.update(update, *span, from, fetched);
            return Ok(());
        }
        let _latched = self.record.latch();
        // One piece that is addressable here is updated in place.
        if let [TargetPiece::Here { span, .. }] = pieces {
            combine(update, *span, from, fetched);
            return Ok(());
        }
        let now = rma.scratch.block(ScratchUse::Target, pieces.iter().map(TargetPiece::bytes).sum());
        self.transfer(rma, pieces, now, Direction::Fetch)?;
        combine(update, now, from, fetched);
        if update.op == PredefinedOp::NoOp { Ok(()) } else { self.transfer(rma, pieces, now, Direction::Put) }
    }
}

/// Combines the elements at `there` with `from` without atomic instructions. Stores their old content in
/// `fetched`, unless `fetched` is empty. `fetched` must overlap no other argument (MPI 5.0, section 12.3.4).
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

fn bytes_of(span: Span) -> Vec<u8> {
    let mut bytes = vec![0; span.bytes()];
    span.read(&mut bytes);
    bytes
}

/// Returns the number of bytes of the target that an accumulate combines or fetches.
///
/// Errors: the bytes do not fit the target or `result`, or are not whole elements.
fn whole_elements(update: Update, origin: &Buffer, result: Option<&Buffer>, target: usize) -> Result<usize> {
    let total = if update.op == PredefinedOp::NoOp { target } else { origin.bytes() };
    if total > target {
        truncated(Direction::Put, total, target)?;
    }
    if !total.is_multiple_of(update.basic.size()) {
        let size = update.basic.size();
        fail!(Class::Type, "{total} bytes of the origin are no whole elements of {size} bytes");
    }
    if let Some(result) = result
        && result.bytes() < total
    {
        truncated(Direction::Fetch, total, result.bytes())?;
    }
    Ok(total)
}

#[cold]
fn truncated(way: Direction, from: usize, into: usize) -> Result<()> {
    let (what, to) = if way == Direction::Put { ("origin", "target") } else { ("target", "origin") };
    fail!(Class::Truncate, "{from} bytes of the {what} do not fit the {into} bytes of the {to}")
}
