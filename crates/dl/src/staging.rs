//! Buffers for the results of long reductions in place. MPI must not overwrite an operand before all have
//! read it, so with MPI_IN_PLACE it takes new memory for each call and waits between the passes of a ring: 33
//! ms for 25 MiB on two ranks, where 8 ms with two buffers and 4 ms for a copy in a buffer that is there are
//! 13.

use std::sync::{Mutex, PoisonError};

/// Shorter ones go by shared slots.
const BYTES_MIN: usize = 1 << 20;
/// What lies idle at most.
const IDLE_BYTES_MAX: usize = 256 << 20;

static IDLE: Mutex<Vec<Staged>> = Mutex::new(Vec::new());

#[derive(Debug)]
pub struct Staged {
    words: Vec<u64>,
    bytes: usize,
    to: usize,
}

impl Staged {
    /// A buffer for a result of so many bytes that belongs at `to`, if staging pays.
    pub fn of(to: usize, bytes: usize) -> Option<Staged> {
        if bytes <= BYTES_MIN {
            return None;
        }
        let words = bytes.div_ceil(8);
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = idle.iter().position(|one| (words..=2 * words).contains(&one.words.len()));
        let words = place.map_or_else(|| vec![0; words], |place| idle.swap_remove(place).words);
        Some(Staged { words, bytes, to })
    }

    pub fn address(&mut self) -> usize {
        self.words.as_mut_ptr() as usize
    }

    /// Puts the result where it belongs, and the buffer aside.
    pub fn finish(self) {
        let from: *const u8 = self.words.as_ptr().cast();
        // SAFETY: both have so many bytes: the buffer by `of`, the operation's receive buffer by the crate's
        // contract; they are apart, because the buffer is this library's.
        unsafe { std::ptr::copy_nonoverlapping(from, self.to as *mut u8, self.bytes) };
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let lying: usize = idle.iter().map(|one| 8 * one.words.len()).sum();
        if lying + 8 * self.words.len() <= IDLE_BYTES_MAX {
            idle.push(self);
        }
    }
}
