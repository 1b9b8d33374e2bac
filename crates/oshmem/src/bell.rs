// SPDX-License-Identifier: BSD-3-Clause
//! Bells, on which the threads of a PE sleep: a count of sleepers and a futex word, behind the PE's heap. A
//! PE that has changed another's memory looks at that count, and rings the bell if it is not 0.
//!
//! A sleeper can miss a change: the store may become visible after the look at the count, and a store through
//! `shmem_ptr` rings no bell. So every sleep is short, and a missed change is seen when the sleep ends.

use crate::memory::at;
use crate::process::PeState;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The number of bytes that are kept for the bell behind a heap.
pub const BYTES: usize = 4096;

#[repr(C)]
struct Bell {
    /// The number of threads that sleep on this bell.
    sleepers: AtomicU32,
    /// The number of rings so far. Threads sleep until it changes.
    rings: AtomicU32,
}

/// Returns the bell of a PE. None if the PE is on another host.
#[inline]
fn of(process: &PeState, pe: c_int) -> Option<&Bell> {
    match *process.heap.mapped.get(pe as usize)? {
        0 => None,
        // SAFETY: the heap's memory has room for it behind the heap, begins with zeros, and stays mapped.
        base => Some(unsafe { &*at::<Bell>(base + process.heap.bytes) }),
    }
}

/// Wakes the sleeping threads of PE `pe`, since this PE has changed memory of that PE.
#[inline]
pub fn ring(process: &PeState, pe: c_int) {
    if let Some(bell) = of(process, pe)
        && bell.sleepers.load(Ordering::Relaxed) > 0
    {
        wake(bell);
    }
}

#[cold]
fn wake(bell: &Bell) {
    bell.rings.fetch_add(1, Ordering::Release);
    // SAFETY: the word is mapped, and the call touches nothing else.
    unsafe { libc::syscall(libc::SYS_futex, bell.rings.as_ptr(), libc::FUTEX_WAKE, c_int::MAX) };
}

/// Calls `is_so` first, and returns at once if it is true. Otherwise sleeps until this PE's bell rings, at
/// most for `longest`.
pub fn sleep(process: &PeState, longest: Duration, mut is_so: impl FnMut() -> bool) {
    let Some(bell) = of(process, process.me) else { return };
    let rings = bell.rings.load(Ordering::Acquire);
    bell.sleepers.fetch_add(1, Ordering::SeqCst);
    if !is_so() {
        let longest = libc::timespec { tv_sec: 0, tv_nsec: longest.subsec_nanos().into() };
        // SAFETY: the word is mapped, the time is read during the call; a wake, a signal or the end of the
        // time ends it.
        unsafe {
            libc::syscall(libc::SYS_futex, bell.rings.as_ptr(), libc::FUTEX_WAIT, rings, &raw const longest)
        };
    }
    bell.sleepers.fetch_sub(1, Ordering::Relaxed);
}
