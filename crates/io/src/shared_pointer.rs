// SPDX-License-Identifier: BSD-3-Clause
//! The shared file pointer (MPI 5.0, section 14.4.4): a word in the arena of the file's rank 0.

use error::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::shm::Arena;

/// A word in the shared memory of the job that counts etypes.
#[derive(Clone, Debug)]
pub struct SharedPointer {
    arena: Arena,
    offset: u64,
}

impl SharedPointer {
    /// The pointer at an offset of an arena; MPI_ERR_INTERN outside, MPI_ERR_NO_MEM if it cannot be mapped.
    pub fn new(arena: Arena, offset: u64) -> Result<SharedPointer> {
        arena.word(offset)?;
        Ok(SharedPointer { arena, offset })
    }

    /// Advances the pointer. Returns its old value, in etypes.
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

    /// The address of the word in this process.
    pub fn address(&self) -> usize {
        std::ptr::from_ref(self.word()).addr()
    }
}
