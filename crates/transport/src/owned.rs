// SPDX-License-Identifier: BSD-3-Clause
//! Private memory in which bytes wait: those of unexpected messages until they are received, and those of
//! buffered sends until they have left.
//!
//! Callers get the memory as Rust slices, never as spans, so no access outlives it. Its content is undefined
//! until it is written, hence `MaybeUninit`; `sys::Span` and `datatype::Buffer` copy to and from such slices.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use sys::Span;

/// A buffer in the process's private memory, whose bytes are undefined until they are written.
pub struct Memory(Box<[MaybeUninit<u8>]>);

impl Memory {
    /// Allocates `bytes` bytes, whose content is undefined.
    pub fn new(bytes: usize) -> Memory {
        Memory(Box::new_uninit_slice(bytes))
    }

    /// Allocates as many bytes as `from` has, and copies the bytes of `from` into them.
    pub fn copy_of(from: Span) -> Memory {
        let mut memory = Memory::new(from.bytes());
        from.save(&mut memory);
        memory
    }
}

impl Deref for Memory {
    type Target = [MaybeUninit<u8>];
    #[inline]
    fn deref(&self) -> &[MaybeUninit<u8>] {
        &self.0
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        &mut self.0
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_holds_what_was_there() {
        let from = Span::of(Box::leak(Box::new(*b"outboard")));
        let memory = Memory::copy_of(from);
        from.write(&[0; 8]);
        from.restore(&memory);
        let mut to = [0; 8];
        from.read(&mut to);
        assert_eq!(&to, b"outboard");
    }
}
