// SPDX-License-Identifier: BSD-3-Clause
//! Memory ordering: fence and quiet.

use crate::fault::mpi;
use crate::numbers as n;
use crate::process::{get, handle};
use std::sync::atomic::{self, Ordering};

/// What was read before it is not older than what is read after it.
pub fn acquire() {
    atomic::fence(Ordering::Acquire);
}

/// Puts before it are seen before puts after it. Windows have no order, so theirs end first.
pub fn fence(ctx: usize) {
    quiet(ctx);
}

/// All operations of this PE are complete.
pub fn quiet(_ctx: usize) {
    atomic::fence(Ordering::SeqCst);
    let process = get();
    if process.is_pending.swap(false, Ordering::Relaxed) {
        for win in [process.heap.win, process.statics.win] {
            if win != handle(n::WIN_NULL) {
                mpi!(MPI_Win_flush_all(win));
            }
        }
    }
}
