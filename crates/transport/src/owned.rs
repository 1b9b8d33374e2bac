//! The own route: messages of a process to itself never become packets, so all that is needed is memory in which bytes wait.

use std::mem::MaybeUninit;
use sys::Span;

/// Bytes on the heap: an unexpected message until its receive is posted, or a buffered send until it has left.
pub struct Memory(Box<[MaybeUninit<u8>]>);

impl Memory {
    /// `bytes` bytes of undefined content.
    pub fn new(bytes: usize) -> Memory {
        Memory(Box::new_uninit_slice(bytes))
    }

    /// A copy of a span.
    pub fn copy_of(from: Span) -> Memory {
        let mut memory = Memory::new(from.bytes());
        memory.lend(|to| from.copy_to(to));
        memory
    }

    /// The length.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Lends the bytes as a span, which must not be kept beyond the call.
    pub fn lend<R>(&mut self, work: impl FnOnce(Span) -> R) -> R {
        // SAFETY: the box lives, at this address, until after the call, and `work` keeps the span no longer.
        work(unsafe { Span::claim(self.0.as_mut_ptr() as usize, self.0.len()) })
    }
}

/// Lends a slice as a span, which must not be kept beyond the call.
pub fn lend<R>(bytes: &mut [u8], work: impl FnOnce(Span) -> R) -> R {
    // SAFETY: the exclusive borrow outlives the call, and `work` keeps the span no longer.
    work(unsafe { Span::claim(bytes.as_mut_ptr() as usize, bytes.len()) })
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_holds_what_was_there() {
        let mut from = *b"outboard";
        let mut memory = lend(&mut from, Memory::copy_of);
        from.fill(0);
        let mut to = [0u8; 8];
        memory.lend(|span| span.read(&mut to));
        assert_eq!(&to, b"outboard");
    }
}
