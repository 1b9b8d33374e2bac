// SPDX-License-Identifier: BSD-3-Clause
//! Locks, first come, first served: a queue of PEs, each of which waits for a change of its own memory.
//!
//! A lock is a `long` of each PE. The upper half of one PE's, which the address chooses, has the last of the
//! queue: its number and 1, or 0 while the lock is free. The lower half of each PE's has who comes behind it,
//! in the same way, and WAITS. What a PE has of its own is 0 while it is not in the queue.

use crate::amo::update;
use crate::memory::{Update, load};
use crate::order::quiet;
use crate::process::get;
use crate::seen::Call;
use crate::{context, wait};
use std::ffi::c_int;

/// The PE is in the queue, and not its first.
const WAITS: u64 = 1 << 31;

/// The PE that has the last of the queue.
fn home(lock: usize) -> c_int {
    let process = get();
    let base = if lock >= process.heap.base && lock - process.heap.base < process.heap.bytes {
        process.heap.base
    } else {
        process.statics.base
    };
    (lock.wrapping_sub(base) / 8 % process.n as usize) as c_int
}

/// Changes the last of the queue; who it was.
fn change_last(lock: usize, kind: Update, value: u64) -> u64 {
    update(lock + 4, 4, kind, value, home(lock))
}

/// Changes what a PE has of its own.
fn change_own(lock: usize, kind: Update, value: u64, pe: c_int) {
    update(lock, 4, kind, value, pe);
}

fn own(lock: usize) -> u64 {
    u64::from(load::<u32>(lock))
}

/// What this PE is in the queue.
fn number() -> u64 {
    get().me as u64 + 1
}

pub fn set(lock: usize) {
    let before = change_last(lock, Update::Set, number());
    if before != 0 {
        // Who comes behind may have said so already.
        change_own(lock, Update::Or, WAITS, get().me);
        change_own(lock, Update::Or, number(), before as c_int - 1);
        wait::while_not(Call::SetLock, || own(lock) & WAITS == 0);
    }
}

pub fn clear(lock: usize) {
    quiet(context::DEFAULT);
    let last = change_last(lock, Update::CompareSwap(number()), 0);
    // A lock that is free stays so.
    if last != number() && last != 0 {
        // Another has come, and says who it is.
        wait::while_not(Call::ClearLock, || own(lock) & !WAITS != 0);
        let next = (own(lock) & !WAITS) as c_int - 1;
        change_own(lock, Update::Set, 0, get().me);
        change_own(lock, Update::And, !WAITS, next);
    }
}

/// 0 if it was free and is set now.
pub fn test(lock: usize) -> c_int {
    c_int::from(change_last(lock, Update::CompareSwap(0), number()) != 0)
}
