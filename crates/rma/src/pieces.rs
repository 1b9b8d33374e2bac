//! A target's data as pieces, and memory for operations that move their bytes in two steps.

use crate::serve::RemotePiece;
use sys::Span;

/// Memory for operations that move their bytes in two steps.
#[derive(Default)]
pub(crate) struct Scratch {
    blocks: [Option<Span>; 3],
    pub pieces: Vec<Piece>,
    pub far: Vec<RemotePiece>,
}

/// What a block of the scratch memory is for.
#[derive(Clone, Copy)]
pub(crate) enum Block {
    Origin = 0,
    Fetched = 1,
    Target = 2,
}

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 32 << 10;

/// Bytes that are fetched, then combined: they stay in the first-level cache.
pub(crate) const STEP_BYTES: usize = 4 << 10;

impl Scratch {
    /// `bytes` bytes of a block, which is made once for the life of the process.
    pub fn block(&mut self, which: Block, bytes: usize) -> Span {
        let make = || Span::of(Box::leak(vec![0u8; BLOCK_BYTES].into_boxed_slice()));
        self.blocks[which as usize].get_or_insert_with(make).slice(0, bytes)
    }
}

/// A stretch of the target's data.
#[derive(Clone, Copy)]
pub(crate) enum Piece {
    /// Addressable here. `mapped`: so for all others, too.
    Here { span: Span, mapped: bool },
    /// In another process.
    There { address: usize, bytes: usize },
}

impl Piece {
    pub fn bytes(&self) -> usize {
        match self {
            Piece::Here { span, .. } => span.bytes(),
            Piece::There { bytes, .. } => *bytes,
        }
    }
}
