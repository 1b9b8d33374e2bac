// SPDX-License-Identifier: BSD-3-Clause
//! Put and get: loads and stores if the peer's memory is mapped, else by a window.

use crate::c::MPI_Win;
use crate::fault::mpi;
use crate::memory::{buffer, copy, load, store};
use crate::numbers as n;
use crate::process::{ObjectPlace, PeState, get as process, handle};
use crate::seen::Call;
use crate::{bell, context};
use std::ffi::c_int;
use std::sync::atomic::Ordering;

fn put_window(win: MPI_Win, at: i64, from: usize, bytes: usize, pe: c_int) {
    let (count, byte) = (bytes as i64, handle(n::BYTE));
    mpi!(MPI_Put_c(buffer(from), count, byte, pe, at, count, byte, win));
    process().given.fetch_add(1, Ordering::Relaxed);
}

fn get_window(win: MPI_Win, at: i64, to: usize, bytes: usize, pe: c_int) {
    let (count, byte) = (bytes as i64, handle(n::BYTE));
    mpi!(MPI_Get_c(buffer(to), count, byte, pe, at, count, byte, win));
    process().given.fetch_add(1, Ordering::Relaxed);
}

impl PeState {
    /// Returns where this PE finds bytes of PE `pe`: mapped in this process or in a window. This PE's own
    /// memory always counts as mapped.
    #[inline]
    fn place_for_bytes(&self, address: usize, bytes: usize, pe: c_int) -> ObjectPlace {
        match self.place(address, bytes, pe) {
            ObjectPlace::Window(..) if pe == self.me => ObjectPlace::Mapped(address),
            place => place,
        }
    }
}

/// Starts to put bytes. Returns the window that moves them, or None if they were stored directly.
#[inline]
pub fn start_put(process: &PeState, dest: usize, source: usize, bytes: usize, pe: c_int) -> Option<MPI_Win> {
    let used = match process.place_for_bytes(dest, bytes, pe) {
        ObjectPlace::Mapped(to) => {
            copy(to, source, bytes);
            None
        }
        ObjectPlace::Window(win, at) => {
            put_window(win, at, source, bytes, pe);
            Some(win)
        }
    };
    bell::ring(process, pe);
    used
}

#[inline]
fn start_get(process: &PeState, dest: usize, source: usize, bytes: usize, pe: c_int) -> Option<MPI_Win> {
    match process.place_for_bytes(source, bytes, pe) {
        ObjectPlace::Mapped(from) => {
            copy(dest, from, bytes);
            None
        }
        ObjectPlace::Window(win, at) => {
            get_window(win, at, dest, bytes, pe);
            Some(win)
        }
    }
}

/// Puts bytes, and returns once the memory at `source` may change.
#[inline]
fn put_bytes(process: &PeState, dest: usize, source: usize, bytes: usize, pe: c_int) {
    if let Some(win) = start_put(process, dest, source, bytes, pe) {
        mpi!(MPI_Win_flush_local(pe, win));
    }
}

#[inline]
fn get_bytes(process: &PeState, dest: usize, source: usize, bytes: usize, pe: c_int) {
    if let Some(win) = start_get(process, dest, source, bytes, pe) {
        mpi!(MPI_Win_flush(pe, win));
    }
}

/// Returns the length of `elements` elements in bytes. A length beyond the address space becomes the largest
/// usize, and `PeState::place` then ends the job.
fn length<T>(elements: usize) -> usize {
    elements.saturating_mul(size_of::<T>())
}

/// Calls `body` for an operation that moves one block, unless the block has no elements. `body` gets the
/// length in bytes, and the PE's number in the world.
#[inline]
fn block<T>(
    what: Call,
    ctx: usize,
    elements: usize,
    pe: c_int,
    body: impl FnOnce(&'static PeState, usize, c_int),
) {
    if elements > 0 {
        let process = process();
        let (pe, bytes) = (context::pe(process, ctx, pe), length::<T>(elements));
        process.seen.call(what, pe, bytes, || body(process, bytes, pe));
    }
}

#[inline]
pub fn put<T>(ctx: usize, dest: usize, source: usize, elements: usize, pe: c_int) {
    block::<T>(Call::Put, ctx, elements, pe, |process, bytes, pe| {
        put_bytes(process, dest, source, bytes, pe)
    });
}

pub fn put_nbi<T>(ctx: usize, dest: usize, source: usize, elements: usize, pe: c_int) {
    block::<T>(Call::Put, ctx, elements, pe, |process, bytes, pe| {
        start_put(process, dest, source, bytes, pe);
    });
}

#[inline]
pub fn get<T>(ctx: usize, dest: usize, source: usize, elements: usize, pe: c_int) {
    block::<T>(Call::Get, ctx, elements, pe, |process, bytes, pe| {
        get_bytes(process, dest, source, bytes, pe)
    });
}

pub fn get_nbi<T>(ctx: usize, dest: usize, source: usize, elements: usize, pe: c_int) {
    block::<T>(Call::Get, ctx, elements, pe, |process, bytes, pe| {
        start_get(process, dest, source, bytes, pe);
    });
}

#[inline]
pub fn p<T: Copy>(ctx: usize, dest: usize, value: T, pe: c_int) {
    block::<T>(Call::Put, ctx, 1, pe, |process, bytes, pe| match process.place(dest, bytes, pe) {
        ObjectPlace::Mapped(to) => {
            store(to, value);
            bell::ring(process, pe);
        }
        _ => put_bytes(process, dest, (&raw const value).expose_provenance(), bytes, pe),
    });
}

#[inline]
pub fn g<T: Copy + Default>(ctx: usize, source: usize, pe: c_int) -> T {
    let mut value = T::default();
    block::<T>(Call::Get, ctx, 1, pe, |process, bytes, pe| match process.place(source, bytes, pe) {
        ObjectPlace::Mapped(from) => value = load(from),
        _ => get_bytes(process, (&raw mut value).expose_provenance(), source, bytes, pe),
    });
    value
}

/// Blocks at regular distances, which an operation moves between the memory of PE `pe` and this process's
/// memory.
struct Strided {
    /// The distances in bytes from one block to the next: first in the memory of PE `pe`, then in this
    /// process's memory.
    strides: (isize, isize),
    /// The length of a block in bytes.
    block: usize,
    /// The number of blocks.
    count: usize,
    pe: c_int,
}

impl Strided {
    /// Returns where the blocks in the memory of PE `pe` lie: their lowest address, and the number of bytes
    /// from there to their end. The first block is at `first`.
    fn span(&self, first: usize) -> (usize, usize) {
        let last = first.wrapping_add_signed(self.strides.0.wrapping_mul(self.count as isize - 1));
        (first.min(last), first.abs_diff(last).saturating_add(self.block))
    }

    /// Calls `near` for each block if the memory of PE `pe` is mapped, else `far`. Returns the window that
    /// `far` has used, or None if the memory is mapped.
    #[inline(always)]
    fn each(
        &self,
        process: &PeState,
        (there, here): (usize, usize),
        near: impl Fn(usize, usize),
        far: impl Fn(MPI_Win, i64, usize),
    ) -> Option<MPI_Win> {
        let (lowest, bytes) = self.span(there);
        let place = process.place_for_bytes(lowest, bytes, self.pe);
        let mut offset = (there - lowest) as isize;
        let mut here = here;
        for _ in 0..self.count {
            match place {
                ObjectPlace::Mapped(base) => near(base.wrapping_add_signed(offset), here),
                ObjectPlace::Window(win, at) => far(win, at + offset as i64, here),
            }
            offset = offset.wrapping_add(self.strides.0);
            here = here.wrapping_add_signed(self.strides.1);
        }
        match place {
            ObjectPlace::Window(win, _) => Some(win),
            ObjectPlace::Mapped(_) => None,
        }
    }
}

/// Calls `body` for an operation that moves `count` blocks of `elements` elements, unless there are no blocks
/// or no elements.
#[inline(always)]
fn strided<T>(
    what: Call,
    ctx: usize,
    strides: (isize, isize),
    (elements, count): (usize, usize),
    pe: c_int,
    body: impl FnOnce(&'static PeState, &Strided),
) {
    if elements > 0 && count > 0 {
        let process = process();
        let one = size_of::<T>() as isize;
        let strides = (strides.0.wrapping_mul(one), strides.1.wrapping_mul(one));
        let (pe, block) = (context::pe(process, ctx, pe), length::<T>(elements));
        let all = Strided { strides, block, count, pe };
        process.seen.call(what, pe, block.saturating_mul(count), || body(process, &all));
    }
}

#[allow(clippy::too_many_arguments)]
#[inline(always)]
pub fn ibput<T>(
    ctx: usize,
    dest: usize,
    source: usize,
    dst: isize,
    sst: isize,
    block: usize,
    count: usize,
    pe: c_int,
) {
    strided::<T>(Call::Put, ctx, (dst, sst), (block, count), pe, |process, all| {
        let bytes = length::<T>(block);
        let near = |to, from| copy(to, from, bytes);
        let far = |win, at, from| put_window(win, at, from, bytes, all.pe);
        if let Some(win) = all.each(process, (dest, source), near, far) {
            mpi!(MPI_Win_flush_local(all.pe, win));
        }
        bell::ring(process, all.pe);
    });
}

#[allow(clippy::too_many_arguments)]
#[inline(always)]
pub fn ibget<T>(
    ctx: usize,
    dest: usize,
    source: usize,
    dst: isize,
    sst: isize,
    block: usize,
    count: usize,
    pe: c_int,
) {
    strided::<T>(Call::Get, ctx, (sst, dst), (block, count), pe, |process, all| {
        let bytes = length::<T>(block);
        let near = |from, to| copy(to, from, bytes);
        let far = |win, at, to| get_window(win, at, to, bytes, all.pe);
        if let Some(win) = all.each(process, (source, dest), near, far) {
            mpi!(MPI_Win_flush(all.pe, win));
        }
    });
}

pub fn iput<T>(ctx: usize, dest: usize, source: usize, dst: isize, sst: isize, elements: usize, pe: c_int) {
    ibput::<T>(ctx, dest, source, dst, sst, 1, elements, pe);
}

pub fn iget<T>(ctx: usize, dest: usize, source: usize, dst: isize, sst: isize, elements: usize, pe: c_int) {
    ibget::<T>(ctx, dest, source, dst, sst, 1, elements, pe);
}
