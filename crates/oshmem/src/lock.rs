// SPDX-License-Identifier: BSD-3-Clause
//! Locks, first come, first served: a queue of PEs, in which each waits for a change of its own memory.
//!
//! | part of a lock (a `long` of each PE) | value |
//! |---|---|
//! | upper half, on the home PE (from the address) | the queue's last PE plus 1; 0 if the lock is free |
//! | lower half, on each PE in the queue | the next PE plus 1, or 0; and the bit WAITS |
//! | lower half, on other PEs | 0 |

use crate::amo::update;
use crate::memory::{Update, load};
use crate::order::quiet;
use crate::process::get;
use crate::seen::Call;
use crate::{context, wait};
use std::ffi::c_int;

/// The bit in the lower half of a lock, in a PE's memory, that is set while this PE is in the lock's queue,
/// but not the first there.
const WAITS: u64 = 1 << 31;

/// Returns the home PE of a lock: the PE whose memory names the last PE in the lock's queue.
fn home(lock: usize) -> c_int {
    let process = get();
    let base = if lock >= process.heap.base && lock - process.heap.base < process.heap.bytes {
        process.heap.base
    } else {
        process.statics.base
    };
    (lock.wrapping_sub(base) / 8 % process.n as usize) as c_int
}

/// Changes the upper half of a lock on its home PE. That half names the queue's last PE. Returns its old
/// value.
fn change_last(lock: usize, kind: Update, value: u64) -> u64 {
    update(lock + 4, 4, kind, value, home(lock))
}

/// Changes the lower half of a lock in the memory of PE `pe`.
fn change_own(lock: usize, kind: Update, value: u64, pe: c_int) {
    update(lock, 4, kind, value, pe);
}

fn own(lock: usize) -> u64 {
    u64::from(load::<u32>(lock))
}

/// Returns the value that stands for this PE in a lock: its number plus 1.
fn number() -> u64 {
    get().me as u64 + 1
}

pub fn set(lock: usize) {
    let before = change_last(lock, Update::Set, number());
    if before != 0 {
        // The next PE may have entered itself already.
        change_own(lock, Update::Or, WAITS, get().me);
        change_own(lock, Update::Or, number(), before as c_int - 1);
        wait::while_not(Call::SetLock, || own(lock) & WAITS == 0);
    }
}

pub fn clear(lock: usize) {
    quiet(context::DEFAULT);
    let last = change_last(lock, Update::CompareSwap(number()), 0);
    // A free lock stays free.
    if last != number() && last != 0 {
        // Another PE has come, and will enter itself.
        wait::while_not(Call::ClearLock, || own(lock) & !WAITS != 0);
        let next = (own(lock) & !WAITS) as c_int - 1;
        change_own(lock, Update::Set, 0, get().me);
        change_own(lock, Update::And, !WAITS, next);
    }
}

/// Takes the lock if it is free. Returns 0 if the lock was taken, otherwise 1.
pub fn test(lock: usize) -> c_int {
    c_int::from(change_last(lock, Update::CompareSwap(0), number()) != 0)
}
