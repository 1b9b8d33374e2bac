// SPDX-License-Identifier: BSD-3-Clause
//! Atomic operations. All operations on one object use the same method. An atomic instruction changes an
//! object in a heap of this host. An accumulate through a window changes any other object, even if the PE
//! that owns the object makes the operation.

use crate::bell;
use crate::c::MPI_Win;
use crate::context::{self, DEFAULT};
use crate::element::Word;
use crate::fault::mpi;
use crate::memory::{Update, apply, at, store};
use crate::numbers as n;
use crate::process::{ObjectPlace, get as process, handle};
use crate::seen::Call;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

fn address(value: &mut u64) -> *mut c_void {
    at((&raw mut *value).expose_provenance())
}

/// Carries out an atomic operation through a window. If `fetches`, or for a compare-and-swap, waits until PE
/// `pe` has answered, and returns the word's old value. Otherwise returns 0 at once.
fn by_window(
    (win, offset): (MPI_Win, i64),
    bytes: usize,
    update: Update,
    mut value: u64,
    pe: c_int,
    fetches: bool,
) -> u64 {
    let datatype = handle(if bytes == 4 { n::UINT32_T } else { n::UINT64_T });
    let mut found = 0;
    // The 4 bytes at the address of a word are its lower half.
    const { assert!(cfg!(target_endian = "little")) };
    let op = match update {
        Update::Fetch => n::NO_OP,
        Update::Set => n::REPLACE,
        Update::Add => n::SUM,
        Update::And => n::BAND,
        Update::Or => n::BOR,
        Update::Xor => n::BXOR,
        Update::CompareSwap(mut old) => {
            let (new, old, found_at) = (address(&mut value), address(&mut old), address(&mut found));
            mpi!(MPI_Compare_and_swap(new, old, found_at, datatype, pe, offset, win));
            mpi!(MPI_Win_flush(pe, win));
            return found;
        }
    };
    let value = address(&mut value);
    if !fetches {
        mpi!(MPI_Accumulate(value, 1, datatype, pe, offset, 1, datatype, handle(op), win));
        mpi!(MPI_Win_flush_local(pe, win));
        process().given.fetch_add(1, Ordering::Relaxed);
        return 0;
    }
    let found_at = address(&mut found);
    mpi!(MPI_Fetch_and_op(value, found_at, datatype, pe, offset, handle(op), win));
    mpi!(MPI_Win_flush(pe, win));
    found
}

/// Carries out an atomic operation on a word of `bytes` bytes in the memory of PE `pe` of the world. Returns
/// the word's old value.
#[inline]
pub fn update(dest: usize, bytes: usize, update: Update, value: u64, pe: c_int) -> u64 {
    operate(dest, bytes, update, value, pe, true)
}

/// Carries out an atomic operation on a word in the memory of PE `pe` of the world. The operation is complete
/// only after the next quiet (`order.rs`).
#[inline]
pub fn change(dest: usize, bytes: usize, update: Update, value: u64, pe: c_int) {
    operate(dest, bytes, update, value, pe, false);
}

#[inline]
fn operate(dest: usize, bytes: usize, update: Update, value: u64, pe: c_int, fetches: bool) -> u64 {
    let process = process();
    process.seen.call(Call::Atomic, pe, 0, || {
        let found = match process.place(dest, bytes, pe) {
            ObjectPlace::Mapped(address) => apply(address, bytes, update, value),
            ObjectPlace::Window(win, offset) => by_window((win, offset), bytes, update, value, pe, fetches),
        };
        if update != Update::Fetch {
            bell::ring(process, pe);
        }
        found
    })
}

#[inline]
fn run<T: Word>(ctx: usize, dest: usize, kind: Update, value: u64, pe: c_int) -> T {
    let pe = context::pe(process(), ctx, pe);
    T::of(update(dest, size_of::<T>(), kind, value, pe))
}

#[inline]
fn run_blind<T: Word>(ctx: usize, dest: usize, kind: Update, value: u64, pe: c_int) {
    let pe = context::pe(process(), ctx, pe);
    change(dest, size_of::<T>(), kind, value, pe);
}

pub fn fetch<T: Word>(ctx: usize, source: usize, pe: c_int) -> T {
    run(ctx, source, Update::Fetch, 0, pe)
}

pub fn set<T: Word>(ctx: usize, dest: usize, value: T, pe: c_int) {
    run_blind::<T>(ctx, dest, Update::Set, value.bits(), pe);
}

pub fn swap<T: Word>(ctx: usize, dest: usize, value: T, pe: c_int) -> T {
    run(ctx, dest, Update::Set, value.bits(), pe)
}

pub fn compare_swap<T: Word>(ctx: usize, dest: usize, cond: T, value: T, pe: c_int) -> T {
    run(ctx, dest, Update::CompareSwap(cond.bits()), value.bits(), pe)
}

pub fn fetch_inc<T: Word>(ctx: usize, dest: usize, pe: c_int) -> T {
    run(ctx, dest, Update::Add, 1, pe)
}

pub fn inc<T: Word>(ctx: usize, dest: usize, pe: c_int) {
    run_blind::<T>(ctx, dest, Update::Add, 1, pe);
}

/// Defines three functions for each operation with one operand. One returns the word's old value, one returns
/// nothing, and one stores the old value at an address (`shmem_atomic_fetch_add_nbi` and the like).
macro_rules! operations {
    ($($fetch:ident $plain:ident $later:ident $update:ident;)*) => { $(
        pub fn $fetch<T: Word>(ctx: usize, dest: usize, value: T, pe: c_int) -> T {
            run(ctx, dest, Update::$update, value.bits(), pe)
        }

        pub fn $plain<T: Word>(ctx: usize, dest: usize, value: T, pe: c_int) {
            run_blind::<T>(ctx, dest, Update::$update, value.bits(), pe);
        }

        pub fn $later<T: Word>(ctx: usize, fetch: usize, dest: usize, value: T, pe: c_int) {
            store(fetch, $fetch(ctx, dest, value, pe));
        }
    )* };
}

operations! {
    fetch_add add fetch_add_nbi Add;
    fetch_and and fetch_and_nbi And;
    fetch_or or fetch_or_nbi Or;
    fetch_xor xor fetch_xor_nbi Xor;
}

pub fn fetch_nbi<T: Word>(ctx: usize, to: usize, source: usize, pe: c_int) {
    store(to, fetch::<T>(ctx, source, pe));
}

pub fn swap_nbi<T: Word>(ctx: usize, to: usize, dest: usize, value: T, pe: c_int) {
    store(to, swap(ctx, dest, value, pe));
}

pub fn compare_swap_nbi<T: Word>(ctx: usize, to: usize, dest: usize, cond: T, value: T, pe: c_int) {
    store(to, compare_swap(ctx, dest, cond, value, pe));
}

pub fn fetch_inc_nbi<T: Word>(ctx: usize, to: usize, dest: usize, pe: c_int) {
    store(to, fetch_inc::<T>(ctx, dest, pe));
}

pub fn fetch_old<T: Word>(source: usize, pe: c_int) -> T {
    fetch(DEFAULT, source, pe)
}

pub fn set_old<T: Word>(dest: usize, value: T, pe: c_int) {
    set(DEFAULT, dest, value, pe);
}

pub fn swap_old<T: Word>(dest: usize, value: T, pe: c_int) -> T {
    swap(DEFAULT, dest, value, pe)
}

pub fn compare_swap_old<T: Word>(dest: usize, cond: T, value: T, pe: c_int) -> T {
    compare_swap(DEFAULT, dest, cond, value, pe)
}

pub fn fetch_add_old<T: Word>(dest: usize, value: T, pe: c_int) -> T {
    fetch_add(DEFAULT, dest, value, pe)
}

pub fn add_old<T: Word>(dest: usize, value: T, pe: c_int) {
    add(DEFAULT, dest, value, pe);
}

pub fn fetch_inc_old<T: Word>(dest: usize, pe: c_int) -> T {
    fetch_inc(DEFAULT, dest, pe)
}

pub fn inc_old<T: Word>(dest: usize, pe: c_int) {
    inc::<T>(DEFAULT, dest, pe);
}
