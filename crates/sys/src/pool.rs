// SPDX-License-Identifier: BSD-3-Clause
//! The pool: shared memory that the MPI library offers to the preloaded malloc. The struct is shared by
//! `liboutboard_malloc.so` and the MPI library.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The address ranges of the pool, and the functions that allocate memory from them. Any thread may call the
/// functions, also from within one of them.
#[repr(C)]
#[derive(Debug)]
pub struct Pool {
    /// The address ranges in which allocations may lie: the first address and the length in bytes of each.
    /// Ranges are added at the end and never removed.
    pub ranges: [(AtomicUsize, AtomicUsize); Pool::RANGES_MAX],
    /// How many entries of `ranges` are in use.
    pub count: AtomicUsize,
    /// The length in bytes of the shortest allocation that the pool serves. glibc's malloc serves shorter
    /// ones.
    pub bytes_min: usize,
    /// The function that allocates memory; its argument is the number of bytes. Returns null if the pool has
    /// no room. Does not change errno.
    pub alloc: extern "C" fn(usize) -> *mut c_void,
    /// The function that frees memory which `alloc` has returned. Does not change errno.
    pub free: extern "C" fn(*mut c_void),
    /// The function that returns how many bytes of the allocation at an address may be used. Returns 0 if
    /// there is no allocation at the address.
    pub usable: extern "C" fn(*mut c_void) -> usize,
}

impl Pool {
    /// The alignment: the address of every allocation is a multiple of this many bytes.
    pub const ALIGN: usize = 4096;

    /// The most address ranges that a pool may have.
    pub const RANGES_MAX: usize = 512;

    /// Whether an address lies in one of the pool's ranges.
    pub fn holds(&self, address: usize) -> bool {
        let count = self.count.load(Ordering::Acquire).min(Pool::RANGES_MAX);
        self.ranges[..count].iter().any(|(start, bytes)| {
            address.wrapping_sub(start.load(Ordering::Relaxed)) < bytes.load(Ordering::Relaxed)
        })
    }

    /// Adds a range to the pool. Returns false if the pool has `RANGES_MAX` ranges already. Only one thread
    /// at a time may call this.
    pub fn add(&self, start: usize, bytes: usize) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let Some(range) = self.ranges.get(count) else { return false };
        range.0.store(start, Ordering::Relaxed);
        range.1.store(bytes, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Release);
        true
    }
}
