// SPDX-License-Identifier: BSD-3-Clause
//! A member of a window on this host, seen by an origin: where its memory is, and how bytes get there.

use crate::pieces::TargetPiece;
use crate::process::Rma;
use crate::record::MemberRecord;
use crate::serve::{Direction, RemotePiece};
use datatype::{Buffer, Layout};
use error::{Class, Result, fail};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use telemetry::{Counter, count};
use transport::shm::{LocalRank, cma};

/// The range of the target's memory that an operation touches: `count` elements of `layout` from `disp` on.
#[derive(Clone, Copy)]
pub struct TargetRange<'a> {
    /// The place of the first element: a displacement in the target's units, or in a dynamic window the
    /// element's address.
    pub disp: i64,
    pub count: usize,
    /// The number of data bytes of all elements together.
    pub bytes: usize,
    pub layout: &'a Arc<Layout>,
}

/// A member of a window on this host, and how this process reaches its memory.
pub(crate) struct LocalTarget {
    pub record: MemberRecord,
    /// This process's rank in the window, under which it uses the member's record.
    pub me: usize,
    /// The member's process, which is on this host.
    pub peer: LocalRank,
    pub bytes: u64,
    pub disp_unit: i64,
    pub memory: TargetMemory,
}

#[derive(Debug)]
pub(crate) enum TargetMemory {
    /// Memory in an arena, which all members on the host reach by loads and stores.
    Mapped(Span),
    /// This process's own private memory. Other members update it under the window's latch, so this process
    /// does, too.
    Local(Span),
    /// Private memory of the member's process, at this address in that process. This process's own memory on
    /// a device is described like this, too, since a thread of this process copies it.
    Private(usize),
    /// Memory of a dynamic window: the regions that the member has attached, according to its table when it
    /// was last read.
    Dynamic(AttachedRegions),
}

impl TargetMemory {
    /// Describes this process's own private memory `span`: as memory that it addresses, or as memory on a
    /// device.
    pub fn own(span: Span) -> Result<TargetMemory> {
        let is_on_device = device::on() && span.bytes() > 0 && device::holds(span.address(), span.bytes())?;
        Ok(if is_on_device { TargetMemory::Private(span.address()) } else { TargetMemory::Local(span) })
    }
}

/// The regions that a member of a dynamic window has attached.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttachedRegions {
    pub version: Option<u64>,
    /// For each region its address and length in bytes at the member, and how to reach it. The regions are in
    /// ascending order, disjoint, and not empty.
    pub known: Arc<[(usize, usize, TargetMemory)]>,
}

impl AttachedRegions {
    /// Returns the region that holds the byte at `address`, an address in the member's process. None if no
    /// attached region holds it.
    fn find(&self, address: usize) -> Option<&(usize, usize, TargetMemory)> {
        let after = self.known.partition_point(|region| region.0 <= address);
        self.known[..after].last().filter(|region| address - region.0 < region.1)
    }

    /// Finds the `bytes` bytes at `address` in the member's process, which may cross adjacent regions, and
    /// appends their contiguous parts to `pieces`. Returns None if all bytes are attached. Otherwise returns
    /// the address of the first byte that is not, and the number of bytes from it on.
    fn pieces(
        &self,
        mut address: usize,
        mut bytes: usize,
        pieces: &mut Vec<TargetPiece>,
    ) -> Option<(usize, usize)> {
        while bytes > 0 {
            let Some((start, length, memory)) = self.find(address) else { return Some((address, bytes)) };
            let (by, part) = (address - start, bytes.min(length - (address - start)));
            pieces.push(match memory {
                TargetMemory::Mapped(span) => TargetPiece::Here { span: span.slice(by, part), mapped: true },
                TargetMemory::Local(span) => TargetPiece::Here { span: span.slice(by, part), mapped: false },
                _ => TargetPiece::There { address, bytes: part },
            });
            (address, bytes) = (address + part, bytes - part);
        }
        None
    }

    /// Returns the range as one buffer if it is in one region that this process can address. Otherwise
    /// returns the address of the range in the member's process, from which the elements must be taken in
    /// parts.
    fn locate(&self, range: TargetRange) -> TargetData {
        let first = range.layout.reach(range.count.max(1)).map_or(0, |reach| reach.0);
        if let Some((address, _, memory)) =
            self.find((range.disp as usize).wrapping_add_signed(first as isize))
        {
            let (span, mapped) = match memory {
                TargetMemory::Mapped(span) => (*span, true),
                TargetMemory::Local(span) => (*span, false),
                _ => return TargetData::There(range.disp as usize),
            };
            let offset = (range.disp as usize).wrapping_sub(*address);
            if let Some(buffer) = Buffer::within(span, offset, range.count, range.layout) {
                return TargetData::Here { buffer, mapped };
            }
        }
        TargetData::There(range.disp as usize)
    }
}

/// Returns the offset in bytes of a range from the start of the target's memory. Errors (MPI_ERR_RMA_RANGE):
/// the offset does not fit 63 bits.
#[inline]
fn offset_of(range: TargetRange, disp_unit: i64) -> Result<i64> {
    match range.disp.checked_mul(disp_unit) {
        Some(offset) => Ok(offset),
        None => fail!(Class::RmaRange, "displacement {} in units of {disp_unit} bytes", range.disp),
    }
}

/// Returns the offset in bytes of a range from the start of the `bytes` bytes that `peer` exposes. Errors
/// (MPI_ERR_RMA_RANGE): some of the range is outside these bytes.
pub(crate) fn checked_offset(
    range: TargetRange,
    disp_unit: i64,
    bytes: u64,
    peer: impl Display,
) -> Result<i64> {
    let offset = offset_of(range, disp_unit)?;
    let reach = if range.count == 0 { Some((0, 0)) } else { range.layout.reach(range.count) };
    let inside = reach.is_some_and(|(first, end)| {
        let first = offset.checked_add(first).is_some_and(|first| first >= 0);
        first && offset.checked_add(end).is_some_and(|end| end as u64 <= bytes)
    });
    if inside || range.layout.size == 0 { Ok(offset) } else { outside(range, disp_unit, bytes, peer) }
}

#[cold]
fn outside<T>(range: TargetRange, disp_unit: i64, bytes: u64, peer: impl Display) -> Result<T> {
    let (first, end) = range.layout.reach(range.count.max(1)).unwrap_or((0, i64::MAX));
    fail!(
        Class::RmaRange,
        "displacement {} in units of {disp_unit} bytes, and data from byte {first} to byte {end} behind it, leave the window, which has {bytes} bytes at peer {peer}",
        range.disp
    )
}

/// The data that one operation touches at a target on this host, in the form in which this process reaches
/// them.
pub(crate) enum TargetData {
    Here {
        buffer: Buffer,
        mapped: bool,
    },
    /// Elements from this address on in the target's process, to be taken in parts.
    There(usize),
}

impl LocalTarget {
    /// Returns where a range without gaps is mapped in this process. None if the range has gaps, is not
    /// inside the memory that the target exposes, or is not mapped.
    #[inline(always)]
    pub fn direct(&self, range: TargetRange) -> Option<Span> {
        if range.layout.is_contiguous() { self.mapped(range.disp, range.bytes) } else { None }
    }

    /// Returns where `bytes` bytes at displacement `disp` are mapped in this process. None if they are not
    /// inside the memory that the target exposes, or are not mapped.
    #[inline(always)]
    pub fn mapped(&self, disp: i64, bytes: usize) -> Option<Span> {
        let TargetMemory::Mapped(span) = &self.memory else { return None };
        // A negative offset becomes a huge one, which is outside.
        let offset = disp.checked_mul(self.disp_unit)? as usize;
        let inside = offset <= span.bytes() && bytes <= span.bytes() - offset;
        inside.then(|| span.slice(offset, bytes))
    }

    /// Finds the memory of `range` at this target. Errors (MPI_ERR_RMA_RANGE): the range is not inside the
    /// memory that the target exposes.
    pub fn locate(&self, range: TargetRange) -> Result<TargetData> {
        match &self.memory {
            TargetMemory::Mapped(span) => self.within(*span, range, true),
            TargetMemory::Local(span) => self.within(*span, range, false),
            TargetMemory::Private(base) => {
                let offset = checked_offset(range, self.disp_unit, self.bytes, self.peer)?;
                Ok(TargetData::There(base.wrapping_add_signed(offset as isize)))
            }
            TargetMemory::Dynamic(regions) => Ok(regions.locate(range)),
        }
    }

    /// Returns the range as a buffer in `span`, the target's memory as this process addresses it. Errors
    /// (MPI_ERR_RMA_RANGE): the range is not inside `span`.
    #[inline]
    fn within(&self, span: Span, range: TargetRange, mapped: bool) -> Result<TargetData> {
        let offset = offset_of(range, self.disp_unit)?;
        match Buffer::within(span, offset as usize, range.count, range.layout) {
            Some(buffer) => Ok(TargetData::Here { buffer, mapped }),
            None => outside(range, self.disp_unit, self.bytes, self.peer),
        }
    }

    /// Appends to `pieces` the contiguous parts of `bytes` bytes of this process's own memory, for which a
    /// member on another host has asked. The bytes are at `offset`, or in a dynamic window at the address
    /// `offset`. Errors (MPI_ERR_RMA_RANGE): the memory is not exposed.
    pub fn exposed(&self, offset: usize, bytes: usize, pieces: &mut Vec<TargetPiece>) -> Result<()> {
        let (span, mapped) = match &self.memory {
            TargetMemory::Mapped(span) => (*span, true),
            TargetMemory::Local(span) => (*span, false),
            TargetMemory::Dynamic(regions) => {
                let missing = regions.pieces(offset, bytes, pieces);
                return missing.map_or(Ok(()), |missing| self.not_attached(missing));
            }
            TargetMemory::Private(_) => (Span::EMPTY, false),
        };
        if offset > span.bytes() || bytes > span.bytes() - offset {
            fail!(
                Class::RmaRange,
                "{bytes} bytes at byte {offset} leave the window, which has {} bytes at peer {}",
                self.bytes,
                self.peer
            );
        }
        pieces.push(TargetPiece::Here { span: span.slice(offset, bytes), mapped });
        Ok(())
    }

    #[cold]
    fn not_attached<T>(&self, (address, bytes): (usize, usize)) -> Result<T> {
        fail!(Class::RmaRange, "{bytes} bytes at {address:#x} of peer {} are not attached", self.peer)
    }

    /// Finds the packed bytes `[at, at + bytes)` of elements of `layout`, and appends their contiguous parts
    /// to `pieces`. The elements begin at the address `base` in the target's process.
    pub fn pieces_at(
        &self,
        base: usize,
        layout: &Arc<Layout>,
        at: usize,
        bytes: usize,
        pieces: &mut Vec<TargetPiece>,
    ) -> Result<()> {
        let TargetMemory::Dynamic(regions) = &self.memory else {
            layout.pieces_at(base, at, bytes, |address, bytes| {
                pieces.push(TargetPiece::There { address, bytes })
            });
            return Ok(());
        };
        let mut missing = None;
        layout.pieces_at(base, at, bytes, |address, bytes| {
            missing = missing.or_else(|| regions.pieces(address, bytes, pieces));
        });
        missing.map_or(Ok(()), |missing| self.not_attached(missing))
    }

    /// Moves bytes between `span` and the parts `pieces` of the target's data. The parts together are as long
    /// as `span`.
    pub fn transfer(&self, rma: &mut Rma, pieces: &[TargetPiece], span: Span, way: Direction) -> Result<()> {
        let mut done = 0;
        let mut far = std::mem::take(&mut rma.scratch.far);
        let mut moved = Ok(());
        for run in
            pieces.chunk_by(|a, b| matches!((a, b), (TargetPiece::There { .. }, TargetPiece::There { .. })))
        {
            let bytes = run.iter().map(TargetPiece::bytes).sum();
            let here = span.slice(done, bytes);
            done += bytes;
            if let [TargetPiece::Here { span, .. }] = run {
                match way {
                    Direction::Put => here.copy_to(*span),
                    Direction::Fetch => span.copy_to(here),
                }
                continue;
            }
            far.clear();
            far.extend(run.iter().filter_map(|piece| match piece {
                TargetPiece::There { address, bytes } => Some((*address, *bytes)),
                TargetPiece::Here { .. } => None,
            }));
            moved = self.transfer_far(rma, &far, here, way);
            if moved.is_err() {
                break;
            }
        }
        rma.scratch.far = far;
        moved
    }

    fn transfer_far(&self, rma: &Rma, far: &[RemotePiece], here: Span, way: Direction) -> Result<()> {
        let page = rma.segment.rank(self.peer);
        let mut refused = None;
        if rma.reaches(self.peer) {
            let pid = page.pid.load(Ordering::Relaxed);
            let moved = match way {
                Direction::Put => cma::write(pid, far, here),
                Direction::Fetch => cma::read(pid, far, here),
            };
            match moved {
                Ok(()) => {
                    count(Counter::CmaBytes, here.bytes() as u64);
                    return Ok(());
                }
                // It may be a device's memory; its owner has noticed that, and serves it.
                Err(error) => refused = Some(error),
            }
        }
        match (&rma.mailbox, page.inbox.load(Ordering::Acquire), refused) {
            (Some(mailbox), inbox, _) if inbox != 0 => {
                mailbox.transfer(&rma.segment, self.peer, inbox, far, here, way)
            }
            (.., Some(error)) => Err(error),
            _ => fail!(Class::Intern, "nobody serves the private memory of peer {}", self.peer),
        }
    }
}
