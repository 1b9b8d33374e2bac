// SPDX-License-Identifier: BSD-3-Clause
//! The collective buffer: the data that an aggregator (a rank that accesses the file for all) moves in one
//! round.

use crate::view::Tiles;
use datatype::Buffer;
use std::sync::Arc;
use sys::{Block, Span};

/// The part of the file that an aggregator moves in one round, and all ranks' data in this part.
pub(crate) struct CollectiveBuffer {
    /// The offset in the file of the first byte that any rank accesses in this round.
    pub from: u64,
    /// The offset in the file after the last byte that any rank accesses in this round.
    pub to: u64,
    /// For each rank, which packed bytes of its view (without the holes) are moved in this round: the number
    /// of the first byte, and how many bytes.
    pub parts: Vec<(u64, u64)>,
    /// All ranks' data of this round, rank after rank, as the ranks exchange them.
    pub packed: Arc<Block>,
    /// The bytes `[from, to)` of the file. In a write they are to be written; in a read they are valid once
    /// the read has ended.
    pub file: Arc<Block>,
}

impl CollectiveBuffer {
    /// Makes the buffer for the bytes of the file within `bounds` that any rank accesses. Rank `i` accesses
    /// the packed bytes `ranges[i]` of `views[i]`.
    pub fn new(bounds: (u64, u64), ranges: &[(u64, u64)], views: &[Tiles]) -> CollectiveBuffer {
        let (mut first, mut end, mut total) = (u64::MAX, 0, 0);
        let mut within = |range: &(u64, u64), tiles: &Tiles| {
            let (packed, bytes) = part(tiles, range.0, range.1, bounds);
            if bytes > 0 {
                first = first.min(tiles.offset_of(packed));
                end = end.max(tiles.offset_of(packed + bytes - 1) + 1);
                total += bytes;
            }
            (packed, bytes)
        };
        let parts = ranges.iter().zip(views).map(|(range, tiles)| within(range, tiles)).collect();
        let (from, to) = if total > 0 { (first, end) } else { (bounds.0, bounds.0) };
        let packed = Arc::new(Block::new(total as usize));
        CollectiveBuffer { from, to, parts, packed, file: Arc::new(Block::new((to - from) as usize)) }
    }

    /// Copies the ranks' data from `packed` to their places in `file`, before a write. Returns the filled
    /// parts of `file`, each as its offset and length.
    pub fn lay_out(&self, views: &[Tiles]) -> Vec<(usize, usize)> {
        let mut filled = vec![0u64; ((self.to - self.from) as usize).div_ceil(64)];
        let mut at = 0;
        for (tiles, &(packed, bytes)) in views.iter().zip(&self.parts) {
            tiles.pieces(packed, bytes, |offset, length| {
                let (to, length) = ((offset - self.from) as usize, length as usize);
                self.packed.span().slice(at, length).copy_to(self.file.span().slice(to, length));
                mark(&mut filled, to, length);
                at += length;
            });
        }
        stretches(&filled)
    }

    /// Copies the ranks' data from their places in `file` to `packed`, after a read.
    pub fn pick(&self, views: &[Tiles]) {
        let mut at = 0;
        for (tiles, &(packed, bytes)) in views.iter().zip(&self.parts) {
            tiles.pieces(packed, bytes, |offset, length| {
                let (from, length) = ((offset - self.from) as usize, length as usize);
                self.file.span().slice(from, length).copy_to(self.packed.span().slice(at, length));
                at += length;
            });
        }
    }
}

/// Returns which of the packed bytes `[from, to)` of the view `tiles` are within `bounds` in the file: the
/// number of the first byte, and how many bytes.
pub(crate) fn part(tiles: &Tiles, from: u64, to: u64, bounds: (u64, u64)) -> (u64, u64) {
    let first = from + tiles.below(bounds.0, from, to);
    (first, tiles.below(bounds.1, first, to))
}

/// Divides a span into buffers of these lengths, one after the other, and returns the buffers.
pub(crate) fn slices(span: Span, lengths: &[usize]) -> Vec<Buffer> {
    let mut at = 0;
    let slice = |length: &usize| {
        at += length;
        Buffer::from(span.slice(at - length, *length))
    };
    lengths.iter().map(slice).collect()
}

fn mark(bits: &mut [u64], from: usize, length: usize) {
    let (mut at, end) = (from, from + length);
    while at < end {
        let (word, first) = (at / 64, at % 64);
        let many = (64 - first).min(end - at);
        bits[word] |= (u64::MAX >> (64 - many)) << first;
        at += many;
    }
}

/// Finds the runs of set bits in `bits`. Returns the index of each run's first bit, and its length.
fn stretches(bits: &[u64]) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (at, word) in bits.iter().enumerate() {
        let (mut rest, mut bit) = (*word, 0);
        while rest != 0 {
            let zeros = rest.trailing_zeros();
            let ones = (rest >> zeros).trailing_ones();
            let from = at * 64 + (bit + zeros) as usize;
            match found.last_mut() {
                Some((start, length)) if *start + *length == from => *length += ones as usize,
                _ => found.push((from, ones as usize)),
            }
            bit += zeros + ones;
            rest = (*word).checked_shr(bit).unwrap_or(0);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_bits_are_found_as_stretches() {
        let mut bits = vec![0u64; 5];
        let parts = [(0, 3), (3, 2), (60, 8), (100, 1), (128, 128), (256, 10), (310, 10)];
        parts.iter().for_each(|&(from, length)| mark(&mut bits, from, length));
        assert_eq!(stretches(&bits), [(0, 5), (60, 8), (100, 1), (128, 138), (310, 10)]);
        assert_eq!(stretches(&[u64::MAX, 0, u64::MAX]), [(0, 64), (128, 64)]);
    }
}
