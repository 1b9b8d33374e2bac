// SPDX-License-Identifier: BSD-3-Clause
//! The words by which a stream of a device and the host synchronise.

use std::sync::atomic::{AtomicU32, Ordering};

/// The two words of a stream. Both count the MPI operations of the stream.
#[derive(Debug)]
pub struct StreamWords {
    /// The number of MPI operations that the stream has reached; the stream writes it.
    pub reached: AtomicU32,
    /// The number of MPI operations that are over, so that the stream may continue after them; the host
    /// writes it.
    pub done: AtomicU32,
}

/// Whether a counter, which wraps, has reached `count`.
pub fn has_reached(word: &AtomicU32, count: u32) -> bool {
    word.load(Ordering::Acquire).wrapping_sub(count) as i32 >= 0
}
