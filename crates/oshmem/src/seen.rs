// SPDX-License-Identifier: BSD-3-Clause
//! What OUTBOARD_STATS, `outboard top` and traces see of OpenSHMEM: counters in this process's page, and
//! calls while they are timed. `crates/abi/src/shmem.rs` has the other side.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

unsafe extern "C" {
    pub fn MPIX_Shmem_exit(code: c_int);
    fn MPIX_Shmem_words(words: *mut [*const c_void; 7]);
    fn MPIX_Shmem_enter(what: c_int, pe: c_int, bytes: u64) -> u64;
    fn MPIX_Shmem_leave(begun: u64);
    fn MPIX_Shmem_show(what: c_int, since: u64) -> u64;
}

/// Calls that are seen; the first have a counter each.
#[derive(Clone, Copy)]
#[repr(C)]
pub enum Call {
    Put,
    Get,
    Atomic,
    WaitUntil,
    SetLock,
    ClearLock,
}

/// Counters behind those of calls.
const WAITS: usize = 3;
const BYTES: usize = 4;
const WAIT_NS: usize = 5;

/// Where the words are.
pub struct Seen {
    timed: &'static AtomicBool,
    counters: [&'static AtomicU64; 6],
}

impl Seen {
    /// MPI is initialised.
    pub fn new() -> Seen {
        let mut words = [std::ptr::null::<c_void>(); 7];
        // SAFETY: the library fills seven.
        unsafe { MPIX_Shmem_words(&raw mut words) };
        // SAFETY: words of the library's, or of the job's memory, which stay while the process does.
        let counter = |index: usize| unsafe { &*words[index + 1].cast::<AtomicU64>() };
        // SAFETY: as above; the first is a flag.
        let timed = unsafe { &*words[0].cast::<AtomicBool>() };
        Seen { timed, counters: std::array::from_fn(counter) }
    }

    /// Two threads at once could lose a count, no more; so counts the MPI library.
    #[inline]
    fn count(&self, counter: usize, by: u64) {
        let word = self.counters[counter];
        word.store(word.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// A call that moves bytes to or from a PE.
    #[inline(always)]
    pub fn call<T>(&self, what: Call, pe: c_int, bytes: usize, body: impl FnOnce() -> T) -> T {
        self.count(what as usize, 1);
        self.count(BYTES, bytes as u64);
        if !self.timed.load(Ordering::Relaxed) {
            return body();
        }
        // SAFETY: the functions take any numbers.
        let begun = unsafe { MPIX_Shmem_enter(what as c_int, pe, bytes as u64) };
        let value = body();
        // SAFETY: as above.
        unsafe { MPIX_Shmem_leave(begun) };
        value
    }

    /// A wait that is longer than a moment begins, and lasts as long as what this returns.
    pub fn wait(&self, what: Call) -> Wait<'_> {
        let begun = match self.timed.load(Ordering::Relaxed) {
            // SAFETY: the function takes any numbers.
            true => unsafe { MPIX_Shmem_enter(what as c_int, -1, 0) },
            false => 0,
        };
        Wait { seen: self, what, from: Instant::now(), begun, shown: 0 }
    }
}

/// A wait under way.
pub struct Wait<'a> {
    seen: &'a Seen,
    what: Call,
    pub from: Instant,
    begun: u64,
    /// What showing it has returned; 0 before.
    shown: u64,
}

impl Wait<'_> {
    /// Lets `outboard top` see it, and answers who asks what this PE does.
    pub fn show(&mut self) {
        // SAFETY: the function takes any numbers.
        self.shown = unsafe { MPIX_Shmem_show(self.what as c_int, self.shown) };
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // SAFETY: the functions take any numbers.
        unsafe { MPIX_Shmem_leave(self.begun) };
        if self.shown != 0 {
            // SAFETY: as above.
            unsafe { MPIX_Shmem_show(-1, self.shown) };
        }
        self.seen.count(WAITS, 1);
        self.seen.count(WAIT_NS, self.from.elapsed().as_nanos() as u64);
    }
}
