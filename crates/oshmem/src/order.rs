// SPDX-License-Identifier: BSD-3-Clause
//! Memory ordering: a fence orders puts, and a quiet completes all operations of a PE.

use crate::context;
use crate::fault::mpi;
use crate::memory::load;
use crate::numbers as n;
use crate::process::{PeState, get, handle};
use std::ffi::c_int;
use std::sync::atomic::{self, Ordering};

/// Keeps the order of reads: what the program reads after this call is not older than what it has read
/// before.
pub fn acquire() {
    atomic::fence(Ordering::Acquire);
}

/// Keeps the order of puts: other PEs see the puts before this call no later than the puts after it. MPI's
/// windows keep no order, so the call waits until all puts through windows are complete.
pub fn fence(ctx: usize) {
    quiet(ctx);
}

/// Completes all operations of this PE: puts, gets and atomic operations.
pub fn quiet(_ctx: usize) {
    atomic::fence(Ordering::SeqCst);
    let process = get();
    // Another thread's quiet counts only once it has ended: this one may not return before.
    let given = process.given.load(Ordering::Relaxed);
    if process.complete.load(Ordering::Acquire) < given {
        for win in windows(process) {
            mpi!(MPI_Win_flush_all(win));
        }
        process.complete.fetch_max(given, Ordering::Release);
    }
}

/// Completes the operations of this PE on the `npes` PEs whose numbers are at `target_pes`.
pub fn pe_quiet(ctx: usize, target_pes: usize, npes: usize) {
    atomic::fence(Ordering::SeqCst);
    let process = get();
    for index in 0..npes {
        let pe = context::pe(process, ctx, load(target_pes + index * size_of::<c_int>()));
        process.check(pe);
        if process.complete.load(Ordering::Acquire) < process.given.load(Ordering::Relaxed) {
            for win in windows(process) {
                mpi!(MPI_Win_flush(pe, win));
            }
        }
    }
}

fn windows(process: &PeState) -> impl Iterator<Item = usize> {
    [process.heap.win, process.statics.win].into_iter().filter(|&win| win != handle(n::WIN_NULL))
}
