// SPDX-License-Identifier: BSD-3-Clause
//! The functions that initialise and end the library, and its queries.

use crate::memory::store;
use crate::process::{self, NAME, ObjectPlace, get, try_get};
use std::ffi::{c_int, c_long, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

pub const SINGLE: c_int = 0;
const MULTIPLE: c_int = 3;
const PROGRESS_MPI: c_int = 1;

pub fn init() {
    begin(SINGLE);
}

/// Initialises the library, and stores at `provided` the level of thread support. The first call decides the
/// level.
pub fn init_thread(requested: c_int, provided: usize) -> c_int {
    begin(requested.clamp(SINGLE, MULTIPLE));
    query_thread(provided);
    0
}

/// The number of initialisations that have not been finalized.
static INITIALISATIONS: AtomicUsize = AtomicUsize::new(0);

fn begin(level: c_int) {
    static ONCE: Once = Once::new();
    if try_get().is_none() {
        process::start(level);
    }
    INITIALISATIONS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the function stays loaded to the end of the program.
    ONCE.call_once(|| unsafe { _ = on_exit(at_exit, std::ptr::null_mut()) });
}

unsafe extern "C" {
    /// glibc's on_exit: registers a function that gets the exit code when the program exits.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Ends the library when the program exits, unless the program has ended it already (section on the execution
/// model). A PE that exits with an error does not wait for the others: its exit ends the job.
extern "C" fn at_exit(code: c_int, _: *mut c_void) {
    // A child of fork is no PE.
    let is_here = try_get().is_some_and(|process| process.pid == std::process::id());
    // SAFETY: the function asks for nothing.
    if code == 0 && is_here && unsafe { crate::seen::MPIX_Shmem_may_end() } != 0 {
        process::stop();
    }
}

pub fn query_thread(provided: usize) {
    store(provided, get().threads);
}

pub fn query_initialized(initialized: usize) {
    store(initialized, c_int::from(try_get().is_some()));
}

/// Takes back one initialisation. The call that takes back the last one ends the library; all other calls are
/// barriers.
pub fn finalize() {
    get();
    match INITIALISATIONS.fetch_sub(1, Ordering::Relaxed) {
        1 => process::stop(),
        _ => crate::coll::barrier_all(),
    }
}

/// Ends the job for all PEs, also with status 0: a PE that finds what all were looking for may end the
/// program well.
pub fn global_exit(status: c_int) {
    get();
    // SAFETY: the function takes any number.
    unsafe { crate::seen::MPIX_Shmem_exit(status) };
}

pub fn my_pe() -> c_int {
    get().me
}

pub fn n_pes() -> c_int {
    get().n
}

pub fn pe_accessible(pe: c_int) -> c_int {
    c_int::from((0..get().n).contains(&pe))
}

pub fn addr_accessible(address: usize, pe: c_int) -> c_int {
    c_int::from(get().find(address, 1, pe).is_some())
}

pub fn ptr(address: usize, pe: c_int) -> usize {
    let process = get();
    match process.find(address, 1, pe) {
        Some(ObjectPlace::Mapped(here)) => here,
        Some(ObjectPlace::Window(..)) if pe == process.me => address,
        _ => 0,
    }
}

pub fn version(major: usize, minor: usize) {
    store::<c_int>(major, 1);
    store::<c_int>(minor, 6);
}

pub fn name(name: usize) {
    let bytes = NAME.to_bytes_with_nul();
    crate::memory::copy(name, bytes.as_ptr().expose_provenance(), bytes.len());
}

/// Does nothing. A profiling tool replaces it.
pub fn pcontrol(_level: c_int) {}

/// Returns 1 if a property of `shmem_query_interoperability` holds, else 0. Only SHMEM_PROGRESS_MPI holds: a
/// wait here also advances MPI's communication.
pub fn interoperability(property: c_int) -> c_int {
    c_int::from(property == PROGRESS_MPI)
}

/// Initialises the library in the old way. Only the first call does anything.
pub fn start_pes(_n: c_int) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| begin(SINGLE));
}

/// Does nothing. It stands for the old functions that flush caches, which are coherent here.
pub fn nothing() {}

pub fn nothing_at(_address: usize) {}

/// Checks that a C long, which is a lock, has 8 bytes, since `lock.rs` uses two halves of 4 bytes.
const _: () = assert!(size_of::<c_long>() == 8);
