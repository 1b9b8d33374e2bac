// SPDX-License-Identifier: BSD-3-Clause
//! The shared file pointer (MPI 5.0, section 14.4.4): a word in the arena of the file's rank 0.

use error::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::shm::Arena;

/// The shared file pointer: a word in memory that all ranks on rank 0's host share. It counts etypes of the
/// view.
#[derive(Clone, Debug)]
pub struct SharedPointer {
    arena: Arena,
    offset: u64,
}

impl SharedPointer {
    /// Makes the pointer whose word is at `offset` of `arena`. Errors: the word is outside the arena
    /// (MPI_ERR_INTERN), or cannot be mapped (MPI_ERR_NO_MEM).
    pub fn new(arena: Arena, offset: u64) -> Result<SharedPointer> {
        arena.word(offset)?;
        Ok(SharedPointer { arena, offset })
    }

    /// Advances the pointer by `etypes`. Returns its old value.
    pub fn advance(&self, etypes: u64) -> u64 {
        self.word().fetch_add(etypes, Ordering::AcqRel)
    }

    pub fn set(&self, etypes: u64) {
        self.word().store(etypes, Ordering::Release);
    }

    fn word(&self) -> &AtomicU64 {
        self.arena.word(self.offset).expect("checked when it was made")
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the address at which the pointer's word is mapped in this process.
    pub fn address(&self) -> usize {
        std::ptr::from_ref(self.word()).addr()
    }
}
