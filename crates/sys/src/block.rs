//! Memory of our own that operations reach through spans.

use crate::Span;

/// Bytes on the heap, zero at first.
#[derive(Debug)]
pub struct Block {
    span: Span,
}

impl Block {
    /// `bytes` bytes. What is never touched costs no memory.
    pub fn new(bytes: usize) -> Block {
        Block { span: Span::of(Box::leak(vec![0; bytes].into_boxed_slice())) }
    }

    /// A copy of some bytes.
    pub fn of(bytes: &[u8]) -> Block {
        Block { span: Span::of(Box::leak(bytes.into())) }
    }

    /// All of it. Valid only while the block lives.
    pub fn span(&self) -> Span {
        self.span
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.span.bytes()];
        self.span.read(&mut bytes);
        bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let bytes = std::ptr::slice_from_raw_parts_mut(self.span.address() as *mut u8, self.span.bytes());
        // SAFETY: this is the box that `new` or `of` leaked; whoever holds its span was told not to outlive it.
        drop(unsafe { Box::from_raw(bytes) });
    }
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
}
