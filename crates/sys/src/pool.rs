// SPDX-License-Identifier: BSD-3-Clause
//! What a malloc that stands before glibc's knows of a pool of memory elsewhere: the form that
//! `liboutboard_malloc.so` and the MPI library share.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ranges of addresses, and the functions that divide them. They may be called by any thread, and within each
/// other.
#[repr(C)]
#[derive(Debug)]
pub struct Pool {
    /// The ranges: first address and length in bytes. More come behind, none goes.
    pub ranges: [(AtomicUsize, AtomicUsize); Pool::RANGES_MAX],
    /// How many there are.
    pub count: AtomicUsize,
    /// Allocations of fewer bytes belong elsewhere.
    pub bytes_min: usize,
    /// Allocates; null if there is no room. Leaves errno as it is.
    pub alloc: extern "C" fn(usize) -> *mut c_void,
    /// Frees. Leaves errno as it is.
    pub free: extern "C" fn(*mut c_void),
    /// The length of an allocation; 0 for what is none.
    pub usable: extern "C" fn(*mut c_void) -> usize,
}

impl Pool {
    /// Every allocation begins at a multiple of this.
    pub const ALIGN: usize = 4096;

    /// The most ranges that there can be.
    pub const RANGES_MAX: usize = 512;

    /// Whether an address lies inside.
    pub fn holds(&self, address: usize) -> bool {
        let count = self.count.load(Ordering::Acquire).min(Pool::RANGES_MAX);
        self.ranges[..count].iter().any(|(start, bytes)| {
            address.wrapping_sub(start.load(Ordering::Relaxed)) < bytes.load(Ordering::Relaxed)
        })
    }

    /// Adds a range; false if there is no room for it. One thread at a time.
    pub fn add(&self, start: usize, bytes: usize) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let Some(range) = self.ranges.get(count) else { return false };
        range.0.store(start, Ordering::Relaxed);
        range.1.store(bytes, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Release);
        true
    }
}
