// SPDX-License-Identifier: BSD-3-Clause
//! Blocks of memory that unexpected messages have used, stored for later ones. Without this, the allocator
//! returns memory at the end of the heap to the system, and the page faults that follow cost ten times the
//! copy.

use transport::owned::Memory;

/// The free blocks of memory: those of 2^n bytes at index `n` of `free`.
pub(crate) struct Spares {
    free: [Vec<Memory>; LOG_MAX + 1],
    bytes: usize,
}

/// The base-2 logarithm of the length of the longest block that is stored.
const LOG_MAX: usize = 16;
/// The most bytes that the stored blocks may have together.
const BYTES_MAX: usize = 1 << 20;

impl Spares {
    pub(crate) fn new() -> Spares {
        Spares { free: std::array::from_fn(|_| Vec::new()), bytes: 0 }
    }

    /// Returns a block of at least `bytes` bytes, a stored one if there is one. Its content is undefined.
    pub(crate) fn take(&mut self, bytes: usize) -> Memory {
        let length = bytes.next_power_of_two();
        match self.free.get_mut(length.trailing_zeros() as usize) {
            None => Memory::new(bytes),
            Some(free) => match free.pop() {
                None => Memory::new(length),
                Some(memory) => {
                    self.bytes -= length;
                    memory
                }
            },
        }
    }

    /// Stores a block for later use, or frees it if it is too long or too much is stored.
    pub(crate) fn give(&mut self, memory: Memory) {
        let length = memory.len();
        let log = length.trailing_zeros() as usize;
        if length.is_power_of_two() && log <= LOG_MAX && self.bytes + length <= BYTES_MAX {
            self.bytes += length;
            self.free[log].push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_up_to_a_bound() {
        let mut spares = Spares::new();
        for bytes in [1, 41, 64, 65, 65536, 65537, 100_000] {
            let memory = spares.take(bytes);
            assert!(memory.len() >= bytes);
            let place = memory.as_ptr();
            spares.give(memory);
            if bytes <= 65536 {
                assert_eq!(spares.take(bytes).as_ptr(), place);
            }
        }
        let many: Vec<Memory> = (0..40).map(|_| spares.take(40_000)).collect();
        many.into_iter().for_each(|memory| spares.give(memory));
        assert!(spares.bytes <= BYTES_MAX && spares.free[16].len() >= 15);
    }
}
