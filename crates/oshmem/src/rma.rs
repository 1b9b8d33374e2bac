// SPDX-License-Identifier: BSD-3-Clause
//! Put and get: loads and stores where the peer's memory is mapped, else by a window.

use crate::c::MPI_Win;
use crate::fault::mpi;
use crate::memory::{buffer, copy, load, store};
use crate::numbers as n;
use crate::process::{Place, Process, get as process, handle};
use crate::{bell, context};
use std::ffi::c_int;
use std::sync::atomic::Ordering;

fn put_window(win: MPI_Win, at: i64, from: usize, bytes: usize, pe: c_int) {
    let (count, byte) = (bytes as i64, handle(n::BYTE));
    mpi!(MPI_Put_c(buffer(from), count, byte, pe, at, count, byte, win));
    process().is_pending.store(true, Ordering::Relaxed);
}

fn get_window(win: MPI_Win, at: i64, to: usize, bytes: usize, pe: c_int) {
    let (count, byte) = (bytes as i64, handle(n::BYTE));
    mpi!(MPI_Get_c(buffer(to), count, byte, pe, at, count, byte, win));
    process().is_pending.store(true, Ordering::Relaxed);
}

/// Puts bytes, without waiting for them. The window that has them, if one has.
#[inline]
pub fn start_put(process: &Process, dest: usize, source: usize, bytes: usize, pe: c_int) -> Option<MPI_Win> {
    let used = match process.place(dest, bytes, pe) {
        Place::Mapped(to) => {
            copy(to, source, bytes);
            None
        }
        Place::Window(..) if pe == process.me => {
            copy(dest, source, bytes);
            None
        }
        Place::Window(win, at) => {
            put_window(win, at, source, bytes, pe);
            Some(win)
        }
    };
    bell::ring(process, pe);
    used
}

#[inline]
fn start_get(process: &Process, dest: usize, source: usize, bytes: usize, pe: c_int) -> Option<MPI_Win> {
    match process.place(source, bytes, pe) {
        Place::Mapped(from) => copy(dest, from, bytes),
        Place::Window(..) if pe == process.me => copy(dest, source, bytes),
        Place::Window(win, at) => {
            get_window(win, at, dest, bytes, pe);
            return Some(win);
        }
    }
    None
}

/// The length in bytes; longer than the address space is an error of the program that `place` then finds.
fn length<T>(elements: usize) -> usize {
    elements.saturating_mul(size_of::<T>())
}

#[inline]
pub fn put<T>(ctx: usize, dest: usize, source: usize, elements: usize, pe: c_int) {
    let process = process();
    let pe = context::pe(process, ctx, pe);
    if elements > 0
        && let Some(win) = start_put(process, dest, source, length::<T>(elements), pe)
    {
        mpi!(MPI_Win_flush_local(pe, win));
    }
}

pub fn put_nbi<T>(ctx: usize, dest: usize, source: usize, elements: usize, pe: c_int) {
    let process = process();
    if elements > 0 {
        start_put(process, dest, source, length::<T>(elements), context::pe(process, ctx, pe));
    }
}

#[inline]
pub fn get<T>(ctx: usize, dest: usize, source: usize, elements: usize, pe: c_int) {
    let process = process();
    let pe = context::pe(process, ctx, pe);
    if elements > 0
        && let Some(win) = start_get(process, dest, source, length::<T>(elements), pe)
    {
        mpi!(MPI_Win_flush(pe, win));
    }
}

pub fn get_nbi<T>(ctx: usize, dest: usize, source: usize, elements: usize, pe: c_int) {
    let process = process();
    if elements > 0 {
        start_get(process, dest, source, length::<T>(elements), context::pe(process, ctx, pe));
    }
}

#[inline]
pub fn p<T: Copy>(ctx: usize, dest: usize, value: T, pe: c_int) {
    let process = process();
    let pe = context::pe(process, ctx, pe);
    match process.place(dest, size_of::<T>(), pe) {
        Place::Mapped(to) => {
            store(to, value);
            bell::ring(process, pe);
        }
        _ => put::<T>(context::DEFAULT, dest, (&raw const value).expose_provenance(), 1, pe),
    }
}

#[inline]
pub fn g<T: Copy + Default>(ctx: usize, source: usize, pe: c_int) -> T {
    let process = process();
    let pe = context::pe(process, ctx, pe);
    match process.place(source, size_of::<T>(), pe) {
        Place::Mapped(from) => load(from),
        _ => {
            let mut value = T::default();
            get::<T>(context::DEFAULT, (&raw mut value).expose_provenance(), source, 1, pe);
            value
        }
    }
}

/// Blocks of `block` elements, whose beginnings are `strides` elements apart.
struct Strided {
    to: usize,
    from: usize,
    /// In bytes.
    strides: (isize, isize),
    block: usize,
    count: usize,
}

impl Strided {
    fn new<T>(to: usize, from: usize, strides: (isize, isize), block: usize, count: usize) -> Strided {
        let bytes = size_of::<T>() as isize;
        Strided {
            to,
            from,
            strides: (strides.0 * bytes, strides.1 * bytes),
            block: length::<T>(block),
            count,
        }
    }

    /// Does each block; then flushes the window if one was used.
    fn run(&self, each: impl Fn(usize, usize) -> Option<MPI_Win>, finish: impl Fn(MPI_Win)) {
        let mut used = None;
        for index in 0..if self.block == 0 { 0 } else { self.count as isize } {
            let to = self.to.wrapping_add_signed(self.strides.0 * index);
            let from = self.from.wrapping_add_signed(self.strides.1 * index);
            used = each(to, from).or(used);
        }
        if let Some(win) = used {
            finish(win);
        }
    }

    fn put(&self, ctx: usize, pe: c_int) {
        let process = process();
        let pe = context::pe(process, ctx, pe);
        let flush = |win| mpi!(MPI_Win_flush_local(pe, win));
        self.run(|to, from| start_put(process, to, from, self.block, pe), flush);
    }

    fn get(&self, ctx: usize, pe: c_int) {
        let process = process();
        let pe = context::pe(process, ctx, pe);
        let flush = |win| mpi!(MPI_Win_flush(pe, win));
        self.run(|to, from| start_get(process, to, from, self.block, pe), flush);
    }
}

pub fn iput<T>(ctx: usize, dest: usize, source: usize, dst: isize, sst: isize, elements: usize, pe: c_int) {
    Strided::new::<T>(dest, source, (dst, sst), 1, elements).put(ctx, pe);
}

pub fn iget<T>(ctx: usize, dest: usize, source: usize, dst: isize, sst: isize, elements: usize, pe: c_int) {
    Strided::new::<T>(dest, source, (dst, sst), 1, elements).get(ctx, pe);
}

#[allow(clippy::too_many_arguments)]
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
    Strided::new::<T>(dest, source, (dst, sst), block, count).put(ctx, pe);
}

#[allow(clippy::too_many_arguments)]
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
    Strided::new::<T>(dest, source, (dst, sst), block, count).get(ctx, pe);
}
