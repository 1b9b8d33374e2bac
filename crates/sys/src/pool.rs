// SPDX-License-Identifier: BSD-3-Clause
//! The pool of shared memory that the MPI library offers to the preloaded malloc: the struct that
//! `liboutboard_malloc.so` and the MPI library share.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ranges of addresses, and the functions that allocate from them. Any thread may call the functions, also
/// from within one of them.
#[repr(C)]
#[derive(Debug)]
pub struct Pool {
    /// The ranges of addresses in which allocations may lie: the first address and the length of each in
    /// bytes. Ranges are appended and never removed.
    pub ranges: [(AtomicUsize, AtomicUsize); Pool::RANGES_MAX],
    /// How many of `ranges` are in use.
    pub count: AtomicUsize,
    /// The shortest allocation that the pool takes; glibc's malloc takes shorter ones.
    pub bytes_min: usize,
    /// Allocates so many bytes. Returns null if there is no room. Does not change errno.
    pub alloc: extern "C" fn(usize) -> *mut c_void,
    /// Frees memory that `alloc` has returned. Does not change errno.
    pub free: extern "C" fn(*mut c_void),
    /// Returns how many bytes of an allocation may be used; 0 if there is no allocation at the address.
    pub usable: extern "C" fn(*mut c_void) -> usize,
}

impl Pool {
    /// The addresses of all allocations are multiples of this.
    pub const ALIGN: usize = 4096;

    /// The most ranges that a pool may have.
    pub const RANGES_MAX: usize = 512;

    /// Whether an address lies in one of the ranges.
    pub fn holds(&self, address: usize) -> bool {
        let count = self.count.load(Ordering::Acquire).min(Pool::RANGES_MAX);
        self.ranges[..count].iter().any(|(start, bytes)| {
            address.wrapping_sub(start.load(Ordering::Relaxed)) < bytes.load(Ordering::Relaxed)
        })
    }

    /// Adds a range; false if there are `RANGES_MAX` already. Only one thread at a time may call this.
    pub fn add(&self, start: usize, bytes: usize) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let Some(range) = self.ranges.get(count) else { return false };
        range.0.store(start, Ordering::Relaxed);
        range.1.store(bytes, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Release);
        true
    }
}
