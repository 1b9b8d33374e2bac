// SPDX-License-Identifier: BSD-3-Clause
//! Set-up, exit and queries.

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

/// Initialises. The first call decides the level of thread support.
pub fn init_thread(requested: c_int, provided: usize) -> c_int {
    begin(requested.clamp(SINGLE, MULTIPLE));
    query_thread(provided);
    0
}

/// How many initialisations have not been finalized.
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
    /// glibc's function like `atexit`; the registered function gets the exit code.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Ends the library at a return from main, if the program has not (section on the execution model). A PE that
/// exits with an error does not wait for the others: its exit ends the job.
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

/// Finalizes. As many calls as there were initialisations are needed: the last ends the library, the others
/// are barriers.
pub fn finalize() {
    get();
    match INITIALISATIONS.fetch_sub(1, Ordering::Relaxed) {
        1 => process::stop(),
        _ => crate::coll::barrier_all(),
    }
}

/// Ends the job, with status 0, too: a PE that finds what all were looking for may end the program well.
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

/// Whether a property holds. SHMEM_PROGRESS_MPI does: a wait here also advances MPI's communication. UPC is
/// not known.
pub fn interoperability(property: c_int) -> c_int {
    c_int::from(property == PROGRESS_MPI)
}

/// The old way to initialise. Later calls do nothing.
pub fn start_pes(_n: c_int) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| begin(SINGLE));
}

/// Does nothing: caches are coherent.
pub fn nothing() {}

pub fn nothing_at(_address: usize) {}

/// The type of a lock is C's long.
const _: () = assert!(size_of::<c_long>() == 8);
