// SPDX-License-Identifier: BSD-3-Clause
//! Blocks: memory of the library itself that operations reach through spans.
//!
//! Invariant: the memory stays mapped for ever, as `Span::claim` requires. A later block uses the memory of a
//! dropped block again. So a span that outlives its block is a bug, but never leads to memory that is not
//! mapped.

use crate::Span;
use crate::limits::page_bytes;
use rustix::mm::Advice;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// Memory of the library itself. Its bytes are zero at first.
#[derive(Debug)]
pub struct Block {
    whole: Span,
    bytes: usize,
}

/// The memory of dropped blocks, by its length in bytes, for later blocks. All its bytes are zero.
static SPARE: Mutex<BTreeMap<usize, Vec<Span>>> = Mutex::new(BTreeMap::new());

/// The longest block, in bytes, that is zeroed when it is dropped. The pages of a longer block go back to the
/// kernel, which gives zero pages on the next use.
const KEPT_BYTES_MAX: usize = 64 << 10;

impl Block {
    /// Makes a block of `bytes` bytes. Pages that are never touched take no memory.
    pub fn new(bytes: usize) -> Block {
        // Only a few lengths, so that memory fits later blocks; at most an eighth too long.
        let length = bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(64)).max(64);
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&length).and_then(Vec::pop);
        let fresh = || Span::of(Box::leak(vec![0; length].into_boxed_slice()));
        Block { whole: spare.unwrap_or_else(fresh), bytes }
    }

    /// Makes a block that holds a copy of `bytes`.
    pub fn of(bytes: &[u8]) -> Block {
        let block = Block::new(bytes.len());
        block.span().write(bytes);
        block
    }

    /// Returns the address and length of the block's memory.
    pub fn span(&self) -> Span {
        self.whole.slice(0, self.bytes)
    }

    /// Returns a copy of the block's bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.span().to_vec()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.bytes > KEPT_BYTES_MAX {
            discard(self.span());
        } else {
            self.span().clear();
        }
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        spare.entry(self.whole.bytes()).or_default().push(self.whole);
    }
}

/// Zeroes the bytes of `span`, which is private memory. Its whole pages go back to the kernel until they are
/// used again.
fn discard(span: Span) {
    let (start, end) = (span.address().next_multiple_of(page_bytes()), span.address() + span.bytes());
    let end = end / page_bytes() * page_bytes();
    if end <= start || cfg!(miri) {
        return span.clear();
    }
    // SAFETY: whole pages of a span, whose maker promised that they stay mapped; private pages read as zeroes
    // afterwards.
    let advised = unsafe { rustix::mm::madvise(start as *mut c_void, end - start, Advice::LinuxDontNeed) };
    if advised.is_err() {
        return span.clear();
    }
    let (head, tail) = (start - span.address(), end - span.address());
    span.slice(0, head).clear();
    span.slice(tail, span.bytes() - tail).clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_written_through_its_span() {
        let block = Block::of(b"inboard");
        block.span().slice(0, 2).write(b"on");
        assert_eq!(block.to_vec(), b"onboard");
        assert_eq!(Block::new(3).to_vec(), [0; 3]);
        assert_eq!(Block::new(0).to_vec(), []);
    }

    // Goal: a new block is zero, and a span of a dropped one still leads to mapped memory. Method: lengths
    // around pages.
    #[test]
    fn memory_is_used_again_and_is_zero() {
        for bytes in [1, 64, 65, 4096, KEPT_BYTES_MAX, KEPT_BYTES_MAX + 1, 1 << 20, (1 << 20) + 4097] {
            let old = Block::of(&vec![7; bytes]);
            let stale = old.span();
            drop(old);
            assert!(Block::new(bytes).to_vec().iter().all(|byte| *byte == 0), "{bytes}");
            stale.read(&mut vec![0; bytes]);
        }
    }
}
