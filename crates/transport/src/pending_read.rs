// SPDX-License-Identifier: BSD-3-Clause
//! Reads of memory on another computer that go on while their owner does something else.
//!
//! Invariant: no byte is stored after the read's owner has dropped it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::{Block, Span};

/// A read of a rank's memory, which may be under way, and the block to which its bytes go.
pub struct PendingRead {
    block: Block,
    handle: ReadHandle,
}

impl PendingRead {
    /// Makes a read of `bytes` bytes. Returns the read for its owner, and the handle by which the bytes are
    /// stored when they come.
    pub fn new(bytes: usize) -> (PendingRead, ReadHandle) {
        let block = Block::new(bytes);
        let handle = ReadHandle::new(block.span());
        (PendingRead { block, handle: handle.clone() }, handle)
    }

    /// Returns the bytes, or an error if the read has failed; None while the read is under way.
    pub fn bytes(&self) -> Option<std::result::Result<Span, ReadFailed>> {
        let has_all = self.handle.has_all()?;
        Some(if has_all { Ok(self.block.span()) } else { Err(ReadFailed) })
    }

    /// Returns how many bytes the whole read has.
    pub fn length(&self) -> usize {
        self.block.span().bytes()
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        self.handle.fail();
    }
}

/// The error of a read that has failed because the rank whose memory it reads is out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadFailed;

/// The handle by which the bytes of a read are stored, when they come, in the memory of the read's owner.
#[derive(Clone)]
pub struct ReadHandle(Arc<Mutex<ReadState>>);

struct ReadState {
    /// The memory to which the bytes go. None once the read has failed, or nobody wants the bytes any more.
    into: Option<Span>,
    /// The number of bytes of this read that have not been stored yet.
    left: usize,
}

impl ReadHandle {
    pub(crate) fn new(into: Span) -> ReadHandle {
        ReadHandle(Arc::new(Mutex::new(ReadState { into: Some(into), left: into.bytes() })))
    }

    /// Stores bytes of the read, from offset `at` of the read on.
    pub fn store(&self, at: usize, bytes: Span) {
        let mut state = self.lock();
        if let Some(into) = state.into {
            bytes.copy_to(into.slice(at, bytes.bytes()));
            state.left -= bytes.bytes();
        }
    }

    /// Makes later calls of `store` do nothing, because the read has failed or nobody wants its bytes any
    /// more.
    pub fn fail(&self) {
        self.lock().into = None;
    }

    /// Returns true if all bytes are stored, false if the read has failed, None while it is under way.
    pub(crate) fn has_all(&self) -> Option<bool> {
        let state = self.lock();
        match (state.into, state.left) {
            (None, _) => Some(false),
            (Some(_), left) => (left == 0).then_some(true),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReadState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
