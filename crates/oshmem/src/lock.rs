// SPDX-License-Identifier: BSD-3-Clause
//! Locks, first come, first served: a PE draws a number and waits until it is served. Both words lie in the
//! lock's `long` on one PE, which the address chooses; 0 is free.

use crate::amo::update;
use crate::memory::Update;
use crate::order::quiet;
use crate::process::get;
use crate::{context, wait};
use std::ffi::c_int;

/// The number that is drawn next is in the upper half, the one that is served in the lower.
const NEXT: u64 = 1 << 32;

/// The PE that has the words.
fn home(lock: usize) -> c_int {
    let process = get();
    let base = if lock >= process.heap.base && lock - process.heap.base < process.heap.bytes {
        process.heap.base
    } else {
        process.statics.base
    };
    (lock.wrapping_sub(base) / 8 % process.n as usize) as c_int
}

fn change(lock: usize, kind: Update, value: u64) -> u64 {
    update(lock, 8, kind, value, home(lock))
}

pub fn set(lock: usize) {
    let number = change(lock, Update::Add, NEXT) >> 32;
    wait::while_not(|| change(lock, Update::Fetch, 0) & (NEXT - 1) == number);
}

pub fn clear(lock: usize) {
    quiet(context::DEFAULT);
    let mut word = change(lock, Update::Fetch, 0);
    loop {
        // The lower half goes round by itself.
        let after = word & !(NEXT - 1) | u64::from((word as u32).wrapping_add(1));
        match change(lock, Update::CompareSwap(word), after) {
            found if found == word => return,
            found => word = found,
        }
    }
}

/// 0 if it was free and is set now.
pub fn test(lock: usize) -> c_int {
    let word = change(lock, Update::Fetch, 0);
    let is_free = word >> 32 == word & (NEXT - 1);
    c_int::from(!is_free || change(lock, Update::CompareSwap(word), word.wrapping_add(NEXT)) != word)
}
