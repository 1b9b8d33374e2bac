// SPDX-License-Identifier: BSD-3-Clause
//! Loads, stores and atomic instructions at addresses of the program and of peers' heaps.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub fn at<T>(address: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address)
}

pub fn buffer(address: usize) -> *mut c_void {
    at(address)
}

/// Copies `bytes` bytes; the two ranges may overlap. A 64-bit word is copied without a call.
#[inline]
pub fn copy(to: usize, from: usize, bytes: usize) {
    if bytes == size_of::<u64>() {
        // SAFETY: both are what the program passed, or a checked part of a peer's heap.
        let word = unsafe { at::<u64>(from).read_unaligned() };
        // SAFETY: as above.
        return unsafe { at::<u64>(to).write_unaligned(word) };
    }
    // SAFETY: as above.
    unsafe { std::ptr::copy(at::<u8>(from).cast_const(), at::<u8>(to), bytes) }
}

pub fn load<T: Copy>(address: usize) -> T {
    // SAFETY: the program passed the address of such a value, or of a peer's.
    unsafe { at::<T>(address).read_volatile() }
}

pub fn store<T: Copy>(address: usize, value: T) {
    // SAFETY: as in `load`.
    unsafe { at::<T>(address).write_volatile(value) }
}

pub fn fill(address: usize, bytes: usize) {
    // SAFETY: an allocation of this PE's heap.
    unsafe { at::<u8>(address).write_bytes(0, bytes) }
}

/// The kind of an atomic operation, which makes the new value of a word from its old value and an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    Fetch,
    Set,
    Add,
    And,
    Or,
    Xor,
    /// The operation stores the operand in the word if the word is equal to this number.
    CompareSwap(u64),
}

macro_rules! apply {
    ($name:ident, $atomic:ty, $word:ty) => {
        #[inline]
        fn $name(address: usize, update: Update, value: u64) -> u64 {
            // SAFETY: an aligned word of a heap, which processes share; it stays mapped.
            let word = unsafe { <$atomic>::from_ptr(at::<$word>(address)) };
            let (value, order) = (value as $word, Ordering::SeqCst);
            u64::from(match update {
                Update::Fetch => word.load(order),
                Update::Set => word.swap(value, order),
                Update::Add => word.fetch_add(value, order),
                Update::And => word.fetch_and(value, order),
                Update::Or => word.fetch_or(value, order),
                Update::Xor => word.fetch_xor(value, order),
                Update::CompareSwap(old) => {
                    word.compare_exchange(old as $word, value, order, order).unwrap_or_else(|found| found)
                }
            })
        }
    };
}

apply!(apply_4, AtomicU32, u32);
apply!(apply_8, AtomicU64, u64);

/// Carries out an atomic operation on a word of `bytes` (4 or 8) bytes by one instruction. Returns the word's
/// old value.
#[inline]
pub fn apply(address: usize, bytes: usize, update: Update, value: u64) -> u64 {
    if bytes == 4 { apply_4(address, update, value) } else { apply_8(address, update, value) }
}
