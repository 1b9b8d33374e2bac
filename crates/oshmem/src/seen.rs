// SPDX-License-Identifier: BSD-3-Clause
//! What OUTBOARD_STATS, `outboard top` and traces show of OpenSHMEM: counters in this process's page, and
//! calls while they are timed. The MPI library's part of this is in `crates/abi/src/shmem.rs`.

pub use crate::shmem::Call;
use crate::shmem::Counted;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

unsafe extern "C" {
    pub fn MPIX_Shmem_exit(code: c_int);
    pub fn MPIX_Shmem_may_end() -> c_int;
    fn MPIX_Shmem_words(words: *mut [*const c_void; WORDS]);
    fn MPIX_Shmem_enter(what: c_int, pe: c_int, bytes: u64) -> u64;
    fn MPIX_Shmem_leave(started: u64);
    fn MPIX_Shmem_show(what: c_int, since: u64) -> u64;
}

/// The number of words that the MPI library shows to this library: the flag that says whether calls are
/// timed, and the counters.
const WORDS: usize = 1 + Counted::ALL.len();

impl Call {
    fn counted(self) -> Counted {
        match self {
            Call::Put => Counted::Puts,
            Call::Get => Counted::Gets,
            Call::Atomic => Counted::Atomics,
            Call::WaitUntil | Call::SetLock | Call::ClearLock => Counted::Waits,
        }
    }
}

/// The MPI library's flag that says whether calls are timed, and the counters of OpenSHMEM calls in this
/// process's page, which `outboard top` reads.
pub struct Seen {
    timed: &'static AtomicBool,
    counters: [&'static AtomicU64; Counted::ALL.len()],
}

impl Seen {
    /// Asks the MPI library, which is initialised, for this process's flag and counters.
    pub fn new() -> Seen {
        let mut words = [std::ptr::null::<c_void>(); WORDS];
        // SAFETY: the library fills them.
        unsafe { MPIX_Shmem_words(&raw mut words) };
        // SAFETY: words of the library's, or of the job's memory, which stay while the process does.
        let counter = |index: usize| unsafe { &*words[index + 1].cast::<AtomicU64>() };
        // SAFETY: as above; the first is a flag.
        let timed = unsafe { &*words[0].cast::<AtomicBool>() };
        Seen { timed, counters: std::array::from_fn(counter) }
    }

    /// Adds `by` to a counter. Two threads that count at once could lose one count, no more. The MPI library
    /// counts in the same way.
    #[inline]
    fn count(&self, counted: Counted, by: u64) {
        let word = self.counters[counted as usize];
        word.store(word.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// Counts and times a call that moves bytes to or from a PE.
    #[inline(always)]
    pub fn call<T>(&self, what: Call, pe: c_int, bytes: usize, body: impl FnOnce() -> T) -> T {
        self.count(what.counted(), 1);
        self.count(Counted::Bytes, bytes as u64);
        let started = match self.timed.load(Ordering::Relaxed) {
            // SAFETY: the function takes any numbers.
            true => unsafe { MPIX_Shmem_enter(what as c_int, pe, bytes as u64) },
            false => 0,
        };
        let value = body();
        if started != 0 {
            // SAFETY: as above.
            unsafe { MPIX_Shmem_leave(started) };
        }
        value
    }

    /// Starts to count a wait that has not ended after a few looks at its object. The wait ends when the
    /// returned value is dropped.
    pub fn wait(&self, what: Call) -> Wait<'_> {
        let started = match self.timed.load(Ordering::Relaxed) {
            // SAFETY: the function takes any numbers.
            true => unsafe { MPIX_Shmem_enter(what as c_int, -1, 0) },
            false => 0,
        };
        Wait { seen: self, what, from: Instant::now(), started, shown: 0 }
    }
}

/// A wait that has not ended after a few looks at its object. It is counted, and ends when this value is
/// dropped.
pub struct Wait<'a> {
    seen: &'a Seen,
    what: Call,
    pub from: Instant,
    started: u64,
    /// The value that the MPI library returned when it last showed this wait; 0 before the first time. The
    /// next `show` passes the value back to the library.
    shown: u64,
}

impl Wait<'_> {
    /// Lets `outboard top` see the wait. If someone has asked what this PE does, answers the question.
    pub fn show(&mut self) {
        // SAFETY: the function takes any numbers.
        self.shown = unsafe { MPIX_Shmem_show(self.what as c_int, self.shown) };
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // SAFETY: the functions take any numbers.
        unsafe { MPIX_Shmem_leave(self.started) };
        if self.shown != 0 {
            // SAFETY: as above.
            unsafe { MPIX_Shmem_show(-1, self.shown) };
        }
        self.seen.count(self.what.counted(), 1);
        self.seen.count(Counted::WaitNs, self.from.elapsed().as_nanos() as u64);
    }
}
