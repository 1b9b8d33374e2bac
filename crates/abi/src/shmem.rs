// SPDX-License-Identifier: BSD-3-Clause
//! Functions that `liboshmem.so` (OpenSHMEM) needs and MPI does not have. One of them ends the job. The
//! others tell OUTBOARD_STATS, `outboard top` and traces about OpenSHMEM's calls. No header declares the
//! functions.
//!
//! `liboshmem.so` guarantees that MPI is initialised, and that addresses are valid.
#![allow(non_snake_case)]

use crate::process::{Guard, On, call, raise, run_locked};
use std::ffi::{c_int, c_void};
use telemetry::Counter;
use telemetry::shmem::{Call, Counted};

fn counter(counted: Counted) -> Counter {
    match counted {
        Counted::Puts => Counter::ShmemPuts,
        Counted::Gets => Counter::ShmemGets,
        Counted::Atomics => Counter::ShmemAtomics,
        Counted::Waits => Counter::ShmemWaits,
        Counted::Bytes => Counter::ShmemBytes,
        Counted::WaitNs => Counter::ShmemWaitNs,
    }
}

/// Returns the name of the OpenSHMEM call with the number `what` in `Call::ALL`.
fn name(what: c_int) -> &'static str {
    match usize::try_from(what).ok().and_then(|what| Call::ALL.get(what)) {
        Some(Call::Put) => "shmem_put",
        Some(Call::Get) => "shmem_get",
        Some(Call::Atomic) => "shmem_atomic",
        Some(Call::WaitUntil) => "shmem_wait_until",
        Some(Call::SetLock) => "shmem_set_lock",
        Some(Call::ClearLock) => "shmem_clear_lock",
        None => "shmem",
    }
}

/// How many addresses `MPIX_Shmem_words` stores.
const WORDS: usize = 1 + Counted::ALL.len();

/// Ends the job with the exit code `code`, which may be 0, and does not return.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_exit(code: c_int) {
    call("shmem_global_exit", On::Nothing, |guard| guard.job().membership.exit(code));
}

/// Returns 1 if OpenSHMEM may finalize while this rank exits, otherwise 0. It may if the rank exits outside
/// MPI calls, and if the job is not being aborted.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_may_end() -> c_int {
    // Other threads may call MPI meanwhile.
    let goes_on =
        || Guard::enter().job.as_ref().is_some_and(|job| job.membership.world().aborted().is_none());
    c_int::from(!raise::is_leaving() && goes_on())
}

/// Stores addresses in `words`: first the address of the word that is nonzero while calls are timed, then the
/// addresses of OpenSHMEM's counters.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_words(words: *mut [*const c_void; WORDS]) {
    let page = telemetry::page();
    let mut found = [(&raw const *telemetry::timed_word()).cast(); WORDS];
    for (word, counted) in found[1..].iter_mut().zip(Counted::ALL) {
        *word = (&raw const *page.word(counter(counted))).cast();
    }
    // SAFETY: the caller has such an array.
    unsafe { words.write(found) };
}

/// Starts the record of an OpenSHMEM call for statistics and trace. The call moves bytes to or from the
/// process `pe`, or waits if `pe` is negative. Returns a value to pass to `MPIX_Shmem_leave`.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_enter(what: c_int, pe: c_int, bytes: u64) -> u64 {
    match u32::try_from(pe) {
        Ok(pe) => telemetry::enter_access(name(what), pe, bytes),
        Err(_) => telemetry::enter(name(what)),
    }
}

/// Ends the record that `MPIX_Shmem_enter` started when it returned `started`.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_leave(started: u64) {
    telemetry::leave(started);
}

/// Shows in this rank's page that it has waited in the call `what` since the time `since`, or since now if
/// `since` is 0. Shows that the wait is over if `what` is -1. Returns the time at which the wait began. A
/// wait calls this again and again, so that a report for which `mpirun` asks is also written.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_show(what: c_int, since: u64) -> u64 {
    let now = sys::clock::now();
    let since = if since == 0 { now } else { since };
    run_locked(name(what), |guard| {
        if what >= 0 {
            guard.show(since, "");
        } else if let Some(job) = &guard.job {
            job.membership.segment.rank(job.membership.rank).wait.end(now);
        }
    });
    since
}
