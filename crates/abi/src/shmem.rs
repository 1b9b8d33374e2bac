// SPDX-License-Identifier: BSD-3-Clause
//! What `liboshmem.so` needs of this library beside MPI's functions: a way to end the job, and the words and
//! calls by which OUTBOARD_STATS, `outboard top` and traces see OpenSHMEM. No header has them.
//!
//! Contract of every function, kept by that library: MPI is initialised, and addresses are good.
#![allow(non_snake_case)]

use crate::process::{On, beside, call};
use std::ffi::{c_int, c_void};
use telemetry::Counter;

/// What is counted, in the order in which `crates/oshmem/src/seen.rs` has it.
const COUNTERS: [Counter; 6] = [
    Counter::ShmemPuts,
    Counter::ShmemGets,
    Counter::ShmemAtomics,
    Counter::ShmemWaits,
    Counter::ShmemBytes,
    Counter::ShmemWaitNs,
];

/// The calls that are seen, in the same order there.
const CALLS: [&str; 6] =
    ["shmem_put", "shmem_get", "shmem_atomic", "shmem_wait_until", "shmem_set_lock", "shmem_clear_lock"];

fn name(what: c_int) -> &'static str {
    usize::try_from(what).ok().and_then(|what| CALLS.get(what)).copied().unwrap_or("shmem")
}

/// Ends the job with a code that may be 0, and does not return.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_exit(code: c_int) {
    call("shmem_global_exit", On::Nothing, |guard| guard.job().membership.exit(code));
}

/// Tells where the word lies that is not 0 while calls are timed, and the counters.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_words(words: *mut [*const c_void; 7]) {
    let page = telemetry::page();
    let mut found = [(&raw const *telemetry::timed_word()).cast(); 7];
    for (word, counter) in found[1..].iter_mut().zip(COUNTERS) {
        *word = (&raw const *page.word(counter)).cast();
    }
    // SAFETY: the caller has an array of seven.
    unsafe { words.write(found) };
}

/// A call begins that moves bytes to or from a PE, or waits, for none: what its end is told with.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_enter(what: c_int, pe: c_int, bytes: u64) -> u64 {
    match u32::try_from(pe) {
        Ok(pe) => telemetry::enter_access(name(what), pe, bytes),
        Err(_) => telemetry::enter(name(what)),
    }
}

/// A call is over.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_leave(begun: u64) {
    telemetry::leave(begun);
}

/// Shows in which call this process waits, from now or `since`, which it returns; or, with -1, that it does
/// not. A wait calls it again and again, and so answers whoever asks what this process does.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Shmem_show(what: c_int, since: u64) -> u64 {
    let now = sys::clock::now();
    let since = if since == 0 { now } else { since };
    beside(name(what), |guard| {
        if what >= 0 {
            guard.show(since, "");
        } else if let Some(job) = &guard.job {
            job.membership.segment.rank(job.membership.rank).wait.end(now);
        }
    });
    since
}
