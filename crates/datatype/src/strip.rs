// SPDX-License-Identifier: BSD-3-Clause
//! Strips: pieces of equal length at equal distances, and their copy loops, specialised by the length of a
//! piece.

#[derive(Clone, Copy)]
pub(crate) struct Strip {
    pub address: usize,
    pub bytes: usize,
    pub repeat: usize,
    pub stride: i64,
}

impl Strip {
    /// Returns the same strip with its address moved by `by` bytes.
    pub fn moved(self, by: i64) -> Strip {
        Strip { address: self.address.wrapping_add_signed(by as isize), ..self }
    }
}

/// Copies the pieces of a strip one after the other to the address `to`.
pub(crate) fn gather(strip: Strip, to: usize) {
    match strip.bytes {
        1 => gather_blocks::<1>(strip, to),
        2 => gather_blocks::<2>(strip, to),
        4 => gather_blocks::<4>(strip, to),
        8 => gather_words(strip, to),
        12 => gather_blocks::<12>(strip, to),
        16 => gather_blocks::<16>(strip, to),
        bytes => {
            let (mut from, mut to) = (strip.address, to);
            for _ in 0..strip.repeat {
                copy(from, to, bytes);
                (from, to) = (from.wrapping_add_signed(strip.stride as isize), to + bytes);
            }
        }
    }
}

/// Copies the bytes from the address `from` on over the pieces of a strip, one after the other.
pub(crate) fn scatter(from: usize, strip: Strip) {
    match strip.bytes {
        1 => scatter_blocks::<1>(from, strip),
        2 => scatter_blocks::<2>(from, strip),
        4 => scatter_blocks::<4>(from, strip),
        8 => scatter_words(from, strip),
        12 => scatter_blocks::<12>(from, strip),
        16 => scatter_blocks::<16>(from, strip),
        bytes => {
            let (mut from, mut to) = (from, strip.address);
            for _ in 0..strip.repeat {
                copy(from, to, bytes);
                (from, to) = (from + bytes, to.wrapping_add_signed(strip.stride as isize));
            }
        }
    }
}

fn gather_blocks<const BYTES: usize>(strip: Strip, to: usize) {
    let (mut from, mut to) = (strip.address, to);
    for _ in 0..strip.repeat {
        move_block::<BYTES>(from, to);
        (from, to) = (from.wrapping_add_signed(strip.stride as isize), to + BYTES);
    }
}

fn scatter_blocks<const BYTES: usize>(from: usize, strip: Strip) {
    let (mut from, mut to) = (from, strip.address);
    for _ in 0..strip.repeat {
        move_block::<BYTES>(from, to);
        (from, to) = (from + BYTES, to.wrapping_add_signed(strip.stride as isize));
    }
}

/// Copies the pieces of a strip of 8-byte pieces, the most common kind, one after the other to the address
/// `to`. It copies two at a time.
fn gather_words(strip: Strip, to: usize) {
    let (mut from, mut to, stride) = (strip.address, to, strip.stride as isize);
    for _ in 0..strip.repeat / 2 {
        join(from, from.wrapping_add_signed(stride), to);
        (from, to) = (from.wrapping_add_signed(2 * stride), to + 16);
    }
    if !strip.repeat.is_multiple_of(2) {
        move_block::<8>(from, to);
    }
}

fn scatter_words(from: usize, strip: Strip) {
    let (mut from, mut to, stride) = (from, strip.address, strip.stride as isize);
    for _ in 0..strip.repeat / 2 {
        split(from, to, to.wrapping_add_signed(stride));
        (from, to) = (from + 16, to.wrapping_add_signed(2 * stride));
    }
    if !strip.repeat.is_multiple_of(2) {
        move_block::<8>(from, to);
    }
}

/// Copies the 8 bytes at `first` and then the 8 bytes at `second` to 16 adjacent bytes at `to`.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn join(first: usize, second: usize, to: usize) {
    use std::arch::x86_64::{_mm_loadl_epi64, _mm_storeu_si128, _mm_unpacklo_epi64};
    // SAFETY: part of a buffer, whose maker promised that its bytes stay mapped; 8 bytes are read, of any
    // alignment.
    let first = unsafe { _mm_loadl_epi64(std::ptr::with_exposed_provenance(first)) };
    // SAFETY: likewise.
    let second = unsafe { _mm_loadl_epi64(std::ptr::with_exposed_provenance(second)) };
    // SAFETY: every x86-64 has SSE2.
    let both = unsafe { _mm_unpacklo_epi64(first, second) };
    // SAFETY: part of a buffer or span, and writable, since the caller copies into it.
    unsafe { _mm_storeu_si128(std::ptr::with_exposed_provenance_mut(to), both) }
}

/// Copies 16 adjacent bytes at `from`: the first 8 to `first`, the others to `second`.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn split(from: usize, first: usize, second: usize) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_storel_epi64, _mm_unpackhi_epi64};
    // SAFETY: 16 bytes of a buffer or span, whose maker promised that its bytes stay mapped, of any
    // alignment.
    let both = unsafe { _mm_loadu_si128(std::ptr::with_exposed_provenance(from)) };
    // SAFETY: every x86-64 has SSE2.
    let high = unsafe { _mm_unpackhi_epi64(both, both) };
    // SAFETY: 8 bytes of a buffer, and writable, since the caller copies into it.
    unsafe { _mm_storel_epi64(std::ptr::with_exposed_provenance_mut(first), both) };
    // SAFETY: likewise.
    unsafe { _mm_storel_epi64(std::ptr::with_exposed_provenance_mut(second), high) };
}

#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn join(first: usize, second: usize, to: usize) {
    move_block::<8>(first, to);
    move_block::<8>(second, to + 8);
}

#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn split(from: usize, first: usize, second: usize) {
    move_block::<8>(from, first);
    move_block::<8>(from + 8, second);
}

fn move_block<const BYTES: usize>(from: usize, to: usize) {
    let from = std::ptr::with_exposed_provenance::<[u8; BYTES]>(from);
    let to = std::ptr::with_exposed_provenance_mut::<[u8; BYTES]>(to);
    // SAFETY: the block is part of a buffer or span, whose maker promised that its bytes stay mapped.
    let block = unsafe { from.read_unaligned() };
    // SAFETY: as above, and writable, since the caller copies into it.
    unsafe { to.write_unaligned(block) }
}

fn copy(from: usize, to: usize, bytes: usize) {
    let from = std::ptr::with_exposed_provenance::<u8>(from);
    let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
    // SAFETY: both are parts of buffers or spans, whose makers promised that the bytes stay mapped; overlap
    // is allowed.
    unsafe { std::ptr::copy(from, to, bytes) }
}
