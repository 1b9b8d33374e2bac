// SPDX-License-Identifier: BSD-3-Clause
//! The words by which a stream of a device and the host tell each other how far they are.

use std::sync::atomic::{AtomicU32, Ordering};

/// Where a stream and the host meet. Both count the operations of the stream.
#[derive(Debug)]
pub struct Words {
    /// The operations that the stream has come to.
    pub reached: AtomicU32,
    /// The operations that are over, so that the stream may go on.
    pub done: AtomicU32,
}

/// Whether a counter, which wraps, has come to `count`.
pub fn is_at(word: &AtomicU32, count: u32) -> bool {
    word.load(Ordering::Acquire).wrapping_sub(count) as i32 >= 0
}
