// SPDX-License-Identifier: BSD-3-Clause
//! A target's memory as contiguous parts (`TargetPiece`), and scratch memory for operations that move bytes
//! in two steps.

use crate::serve::RemotePiece;
use sys::Span;

#[derive(Default)]
pub(crate) struct Scratch {
    blocks: [Option<Span>; 3],
    pub pieces: Vec<TargetPiece>,
    pub far: Vec<RemotePiece>,
}

#[derive(Clone, Copy)]
pub(crate) enum ScratchUse {
    Origin = 0,
    Fetched = 1,
    Target = 2,
}

pub(crate) const BLOCK_BYTES: usize = 32 << 10;

/// The most bytes of target elements that are copied and then combined at a time, so that they stay in the
/// first-level cache.
pub(crate) const STEP_BYTES: usize = 4 << 10;

impl Scratch {
    /// Returns the first `bytes` bytes of the scratch block for this use. The block is made at its first use,
    /// and stays for the life of the process.
    pub fn block(&mut self, which: ScratchUse, bytes: usize) -> Span {
        let make = || Span::of(Box::leak(vec![0u8; BLOCK_BYTES].into_boxed_slice()));
        self.blocks[which as usize].get_or_insert_with(make).slice(0, bytes)
    }
}

/// A contiguous part of the target's memory that an operation touches, in the form in which this process
/// reaches it.
#[derive(Clone, Copy)]
pub(crate) enum TargetPiece {
    /// Memory that this process can address. `mapped` says whether every other process of the host can
    /// address it, too.
    Here { span: Span, mapped: bool },
    /// Private memory of the target's process, at `address` in that process.
    There { address: usize, bytes: usize },
}

impl TargetPiece {
    pub fn bytes(&self) -> usize {
        match self {
            TargetPiece::Here { span, .. } => span.bytes(),
            TargetPiece::There { bytes, .. } => *bytes,
        }
    }
}
