// SPDX-License-Identifier: BSD-3-Clause
//! Buffers: `count` elements of a layout at an address, read and written through packed offsets.
//!
//! A buffer without gaps, the most common, is an address and a length, without a layout and its reference
//! count. All other buffers are accessed by `walk`, which turns a packed range into *strips*: pieces of equal
//! length at equal distances (`strip.rs`), for which the copy loops are specialised.

use crate::layout::{Layout, LayoutRun};
use crate::strip::{Strip, gather, scatter};
use std::borrow::Borrow;
use std::mem::MaybeUninit;
use std::sync::Arc;
use sys::Span;

/// A user's buffer, in the form that all layers above use. Offsets into it are packed offsets: they count
/// bytes of data, without the gaps.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The address of the first element's origin. In a buffer without gaps: the address of its first byte.
    base: usize,
    bytes: usize,
    /// The layout of the elements if there are gaps; None if the data are `bytes` bytes from `base` on.
    gaps: Option<Gaps>,
}

/// A user's buffer that is valid for one call. For an operation that outlives the call, or for elements with
/// gaps, the claim becomes a `Buffer`.
#[derive(Clone, Copy, Debug)]
pub struct BufferClaim<'a> {
    base: usize,
    count: usize,
    bytes: usize,
    layout: &'a Arc<Layout>,
}

impl<'a> BufferClaim<'a> {
    /// Claims `count` elements of `layout` at `base`, together `bytes` bytes of data.
    ///
    /// # Safety
    /// As for `Buffer::claim`.
    #[inline(always)]
    pub unsafe fn claim(base: usize, count: usize, bytes: usize, layout: &'a Arc<Layout>) -> BufferClaim<'a> {
        BufferClaim { base, count, bytes, layout }
    }

    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the span that the data occupy; None if there are gaps in them.
    #[inline(always)]
    pub fn contiguous(&self) -> Option<Span> {
        // SAFETY: the maker promised that the elements stay mapped; without gaps they are the bytes from the
        // base on.
        self.layout.is_contiguous().then(|| unsafe { Span::claim(self.base, self.bytes) })
    }

    #[inline]
    pub fn buffer(&self) -> Buffer {
        // SAFETY: the maker promised the same.
        unsafe { Buffer::claim(self.base, self.count, self.layout) }
    }
}

/// What a buffer of elements with gaps has in addition to its address and length.
#[derive(Clone, Debug)]
struct Gaps {
    layout: Arc<Layout>,
    /// The number of packed bytes of the elements at `base` that come before the buffer's first byte. It is 0
    /// unless the buffer is a slice of another.
    skip: usize,
}

impl Buffer {
    pub const EMPTY: Buffer = Buffer { base: 0, bytes: 0, gaps: None };

    /// Claims a user's buffer. `base` may be 0 (MPI_BOTTOM) where the layout's offsets are addresses. The
    /// caller has checked by `bytes_of` that the size fits a `usize`.
    ///
    /// # Safety
    /// All bytes that `count` elements of `layout` at `base` touch must stay mapped until the
    /// operation ends. MPI asks that of the caller of every communication function (MPI 5.0, section 2.2).
    #[inline(always)] // Without gaps no call is made.
    pub unsafe fn claim(base: usize, count: usize, layout: impl Borrow<Arc<Layout>>) -> Buffer {
        let shared = layout.borrow();
        let bytes = count * shared.size;
        if bytes == 0 {
            return Buffer::EMPTY;
        }
        if shared.is_contiguous() {
            return Buffer { base, bytes, gaps: None };
        }
        Buffer::with_gaps(base, count, shared)
    }

    /// Makes the buffer of `count` elements of a layout that is not contiguous. Its data may still have no
    /// gaps.
    #[inline(never)]
    fn with_gaps(base: usize, count: usize, layout: &Arc<Layout>) -> Buffer {
        let bytes = count * layout.size;
        match layout.only_piece() {
            Some(piece) if count == 1 || layout.extent == layout.size as i64 => {
                Buffer { base: base.wrapping_add_signed(piece.offset as isize), bytes, gaps: None }
            }
            _ => Buffer { base, bytes, gaps: Some(Gaps { layout: layout.clone(), skip: 0 }) },
        }
    }

    /// Makes the buffer of `count` elements of `layout` whose origin is `offset` bytes after the start of
    /// `span`. Returns None unless all elements are inside `span`.
    #[inline]
    pub fn within(span: Span, offset: usize, count: usize, layout: &Arc<Layout>) -> Option<Buffer> {
        Buffer::bytes_of(count, layout)?;
        if count > 0 && layout.size > 0 {
            let (first, end) = layout.reach(count)?;
            // The origin may lie before the span (negative offsets), so the sum wraps.
            let (first, end) = (offset as i64).checked_add(first).zip((offset as i64).checked_add(end))?;
            if first < 0 || end as u64 > span.bytes() as u64 {
                return None;
            }
        }
        // SAFETY: the first and the last byte are inside the span, whose maker promised that its bytes stay
        // mapped.
        Some(unsafe { Buffer::claim(span.address().wrapping_add(offset), count, layout) })
    }

    /// Returns the number of data bytes of `count` elements of `layout`; None if the number does not fit 63
    /// bits.
    #[inline]
    pub fn bytes_of(count: usize, layout: &Layout) -> Option<usize> {
        count.checked_mul(layout.size).filter(|&bytes| bytes <= isize::MAX as usize)
    }

    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of the first element's origin, or the address of the first byte if the buffer has
    /// no gaps.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Returns the layout of a buffer with gaps, and how many packed bytes of the elements at `base` the
    /// buffer skips. None without gaps. `from_parts` makes the same buffer in another process, given also
    /// `base` and `bytes`.
    pub fn parts(&self) -> Option<(&Arc<Layout>, usize)> {
        self.gaps.as_ref().map(|gaps| (&gaps.layout, gaps.skip))
    }

    /// Makes the buffer of `bytes` packed bytes of elements of `layout` at `base`, without the first `skip`
    /// packed bytes: the inverse of `parts`.
    ///
    /// # Safety
    /// As for `claim`: all bytes that this range touches must stay mapped. If `base` is an address
    /// in another process, only `pieces` may be used, and its spans only as arguments of cross-memory attach.
    pub unsafe fn from_parts(base: usize, layout: Arc<Layout>, skip: usize, bytes: usize) -> Buffer {
        if bytes == 0 || layout.size == 0 {
            return Buffer::EMPTY;
        }
        Buffer { base, bytes, gaps: Some(Gaps { layout, skip }) }
    }

    /// Returns the span that the data occupy; None if there are gaps in them.
    #[inline]
    pub fn contiguous(&self) -> Option<Span> {
        match self.gaps {
            // SAFETY: the maker of the buffer promised what `claim` asks (contract of `Buffer::claim`).
            None => Some(unsafe { Span::claim(self.base, self.bytes) }),
            Some(_) => None,
        }
    }

    /// Makes a buffer of this buffer's packed bytes `[offset, offset + bytes)`. Panics if these are not
    /// inside the buffer.
    pub fn slice(&self, offset: usize, bytes: usize) -> Buffer {
        self.check_range(offset, bytes);
        if bytes == 0 {
            return Buffer::EMPTY;
        }
        match &self.gaps {
            None => Buffer { base: self.base.wrapping_add(offset), bytes, gaps: None },
            Some(gaps) => {
                let (layout, at) = (gaps.layout.clone(), gaps.skip + offset);
                // Whole elements move into the base, so that `skip` stays below one element.
                let base = self.base.wrapping_add_signed(elements_offset(&layout, at / layout.size));
                let skip = at % layout.size;
                Buffer { base, bytes, gaps: Some(Gaps { layout, skip }) }
            }
        }
    }

    /// Copies packed bytes `[offset, offset + to.bytes())` of the data to `to`.
    #[inline]
    pub fn pack(&self, offset: usize, to: Span) {
        match self.contiguous() {
            Some(span) => span.slice(offset, to.bytes()).copy_to(to),
            None => self.gather(offset, to),
        }
    }

    /// Copies packed bytes `[offset, offset + to.bytes())` of the data to `to`, which is memory that another
    /// core has read. Only copies of whole cache lines are fast there. So data with gaps first go through a
    /// block on the stack (docs/measured/choices.md).
    #[inline]
    pub fn pack_away(&self, offset: usize, to: Span) {
        match self.contiguous() {
            Some(span) => span.slice(offset, to.bytes()).copy_to(to),
            None if to.bytes() < AWAY_BYTES_MIN => self.gather(offset, to),
            None => self.gather_away(offset, to),
        }
    }

    /// Copies `to.len()` packed bytes of the data, from `offset` on, to `to`, which is memory of this
    /// library.
    #[inline]
    pub fn save(&self, offset: usize, to: &mut [MaybeUninit<u8>]) {
        // SAFETY: the slice is live and exclusive until after the copy.
        self.pack(offset, unsafe { Span::claim(to.as_mut_ptr().expose_provenance(), to.len()) });
    }

    /// Copies `from`, which is memory of this library, over `from.len()` packed bytes of the data, from
    /// `offset` on.
    #[inline]
    pub fn restore(&self, offset: usize, from: &[MaybeUninit<u8>]) {
        // SAFETY: the slice is live until after the copy, which only reads it.
        self.unpack(offset, unsafe { Span::claim(from.as_ptr().expose_provenance(), from.len()) });
    }

    #[inline(never)] // The block is on the stack.
    fn gather_away(&self, offset: usize, to: Span) {
        let mut block = MaybeUninit::<[u8; AWAY_BLOCK_BYTES]>::uninit();
        for at in (0..to.bytes()).step_by(AWAY_BLOCK_BYTES) {
            let bytes = AWAY_BLOCK_BYTES.min(to.bytes() - at);
            // SAFETY: the block is on this stack until the end of the function, nothing else uses it, and it
            // is written before it is read.
            let span = unsafe { Span::claim(block.as_mut_ptr().expose_provenance(), bytes) };
            self.gather(offset + at, span);
            span.copy_to(to.slice(at, bytes));
        }
    }

    fn gather(&self, offset: usize, to: Span) {
        let mut to_address = to.address();
        self.walk(offset, to.bytes(), |strip| {
            gather(strip, to_address);
            to_address += strip.bytes * strip.repeat;
        });
    }

    /// Copies `from` over packed bytes `[offset, offset + from.bytes())` of the data.
    #[inline]
    pub fn unpack(&self, offset: usize, from: Span) {
        match self.contiguous() {
            Some(span) => from.copy_to(span.slice(offset, from.bytes())),
            None => self.scatter(offset, from),
        }
    }

    fn scatter(&self, offset: usize, from: Span) {
        let mut from_address = from.address();
        self.walk(offset, from.bytes(), |strip| {
            scatter(from_address, strip);
            from_address += strip.bytes * strip.repeat;
        });
    }

    /// Whether the kernel lets other processes read and write the buffer's memory (`sys::remote`). Only the
    /// first and the last byte are tested.
    pub fn is_attachable(&self) -> bool {
        let (mut first, mut last) = (Span::EMPTY, Span::EMPTY);
        if self.bytes > 0 {
            self.pieces(0, 1, |span| first = span);
            self.pieces(self.bytes - 1, 1, |span| last = span);
        }
        sys::remote::attachable(first, last, self.bytes)
    }

    /// Returns the span from the buffer's first byte in memory to its last, to be registered with a network
    /// or device. The gaps in this span may not even be mapped.
    pub fn hull(&self) -> Span {
        let Some(Gaps { layout, skip }) = &self.gaps else {
            // SAFETY: the maker promised that the bytes stay mapped.
            return unsafe { Span::claim(self.base, self.bytes) };
        };
        let count = (skip + self.bytes).div_ceil(layout.size.max(1));
        let Some((first, end)) = layout.reach(count) else { return Span::EMPTY };
        // SAFETY: as above; nobody reads what lies in gaps.
        unsafe { Span::claim(self.base.wrapping_add_signed(first as isize), (end - first) as usize) }
    }

    /// Calls `each` with the memory of packed bytes `[offset, offset + bytes)`: once for each contiguous
    /// piece, in typemap order.
    pub fn pieces(&self, offset: usize, bytes: usize, mut each: impl FnMut(Span)) {
        self.walk(offset, bytes, |strip| {
            for piece in 0..strip.repeat {
                let address =
                    strip.address.wrapping_add_signed((strip.stride as isize).wrapping_mul(piece as isize));
                // SAFETY: the piece is part of the buffer, whose maker promised that its bytes stay mapped.
                each(unsafe { Span::claim(address, strip.bytes) });
            }
        });
    }

    /// Calls `each` for every strip (pieces of equal length at equal distances) of packed bytes `[offset,
    /// offset + bytes)`: with the address of its first piece, the length of a piece, the number of pieces,
    /// and the distance from one piece to the next. Lengths and distances are in bytes.
    pub fn strips(&self, offset: usize, bytes: usize, mut each: impl FnMut(usize, usize, usize, i64)) {
        self.walk(offset, bytes, |strip| each(strip.address, strip.bytes, strip.repeat, strip.stride));
    }

    /// Copies all of `from`, which has as many bytes as this buffer, to this buffer. If both have gaps, the
    /// bytes go through a small block.
    #[inline]
    pub fn copy_from(&self, from: &Buffer) {
        assert_eq!(self.bytes, from.bytes, "copy between buffers of different lengths");
        if let Some(span) = self.contiguous() {
            return from.pack(0, span);
        }
        if let Some(span) = from.contiguous() {
            return self.unpack(0, span);
        }
        let mut block = [0u8; BLOCK_BYTES];
        for offset in (0..self.bytes).step_by(BLOCK_BYTES) {
            let bytes = BLOCK_BYTES.min(self.bytes - offset);
            // SAFETY: the block lives on this stack until the end of the function, and nothing else uses it.
            let span = unsafe { Span::claim(block.as_mut_ptr().expose_provenance(), bytes) };
            from.pack(offset, span);
            self.unpack(offset, span);
        }
    }

    fn check_range(&self, offset: usize, bytes: usize) {
        let inside = offset <= self.bytes && bytes <= self.bytes - offset;
        assert!(inside, "packed bytes {offset}+{bytes} of a buffer of {}", self.bytes);
    }

    /// Calls `each` with the strips of packed bytes `[offset, offset + bytes)`, in typemap order.
    fn walk(&self, offset: usize, bytes: usize, mut each: impl FnMut(Strip)) {
        self.check_range(offset, bytes);
        if bytes == 0 {
            return;
        }
        let Some(Gaps { layout, skip }) = &self.gaps else {
            return each(Strip { address: self.base, bytes, repeat: 1, stride: 0 }.moved(offset as i64));
        };
        let (from, to) = (skip + offset, skip + offset + bytes);
        if let Some(piece) = layout.only_piece() {
            // Elements of one piece form a strip, whose length is the count.
            let whole = LayoutRun { repeat: u64::MAX, stride: layout.extent, ..piece };
            return walk_run(self.base, whole, from, to, &mut each);
        }
        let pass_bytes = layout.pass_bytes();
        let passes = layout.size / pass_bytes;
        let (mut pass, mut start) = (from / pass_bytes, from % pass_bytes);
        let mut left = bytes;
        while left > 0 {
            let end = pass_bytes.min(start + left);
            let within = if passes == 1 { 0 } else { layout.pass_offset(pass % passes) };
            let origin = self.base.wrapping_add_signed(elements_offset(layout, pass / passes));
            walk_pass(layout, origin.wrapping_add_signed(within as isize), start, end, &mut each);
            left -= end - start;
            (pass, start) = (pass + 1, 0);
        }
    }
}

impl Layout {
    /// Returns the offsets, from the first element's origin, at which the data of `count` elements begin and
    /// end in memory; None if the offsets do not fit 63 bits. `count` and the layout's size must not be 0.
    pub fn reach(&self, count: usize) -> Option<(i64, i64)> {
        let last = i64::try_from(count).ok()?.checked_sub(1)?.checked_mul(self.extent)?;
        let end = self.true_lb.checked_add(self.true_extent)?.checked_add(last.max(0))?;
        Some((self.true_lb.checked_add(last.min(0))?, end))
    }

    /// Calls `each` with address and length of every piece of packed bytes `[offset, offset + bytes)` of
    /// consecutive elements at `base`, in typemap order. The memory is not touched, and may be another
    /// process's.
    pub fn pieces_at(
        self: &Arc<Layout>,
        base: usize,
        offset: usize,
        bytes: usize,
        mut each: impl FnMut(usize, usize),
    ) {
        if bytes == 0 || self.size == 0 {
            return;
        }
        if self.is_contiguous() {
            return each(base.wrapping_add(offset), bytes);
        }
        let gaps = Some(Gaps { layout: self.clone(), skip: 0 });
        Buffer { base, bytes: offset + bytes, gaps }.walk(offset, bytes, |strip| {
            for piece in 0..strip.repeat {
                let by = (strip.stride as isize).wrapping_mul(piece as isize);
                each(strip.address.wrapping_add_signed(by), strip.bytes);
            }
        });
    }
}

/// The most bytes that `pack_away` copies at a time. `memmove` writes whole cache lines for copies of this
/// length.
const AWAY_BLOCK_BYTES: usize = 16 << 10;

/// The shortest data with gaps, in bytes, that `pack_away` copies through a block on the stack.
const AWAY_BYTES_MIN: usize = 1 << 10;

/// The length, in bytes, of the block through which `copy_from` copies.
const BLOCK_BYTES: usize = 4096;

impl From<Span> for Buffer {
    #[inline]
    fn from(span: Span) -> Buffer {
        Buffer { base: span.address(), bytes: span.bytes(), gaps: None }
    }
}

/// Returns the distance in bytes from the origin of one element to the origin of the `elements`th element
/// after it. The result wraps, as addresses from MPI_BOTTOM do.
fn elements_offset(layout: &Layout, elements: usize) -> isize {
    (layout.extent as isize).wrapping_mul(elements as isize)
}

/// Calls `each` with the strips of packed bytes `[from, to)` of one pass over the layout's runs. The runs'
/// offsets count from the address `origin`.
fn walk_pass(layout: &Layout, origin: usize, from: usize, to: usize, each: &mut impl FnMut(Strip)) {
    let (first, mut start) = layout.run_at(from);
    for &run in &layout.runs()[first..] {
        let run_bytes = (run.bytes * run.repeat) as usize;
        walk_run(origin, run, from.max(start) - start, run_bytes.min(to - start), each);
        start += run_bytes;
        if start >= to {
            return;
        }
    }
}

/// Calls `each` with the strips of packed bytes `[from, to)` of one run. These are at most three: the rest of
/// a piece cut by `from`, whole pieces, and the start of a piece cut by `to`. The run's offset counts from
/// the address `origin`.
fn walk_run(origin: usize, run: LayoutRun, from: usize, to: usize, each: &mut impl FnMut(Strip)) {
    let bytes = run.bytes as usize;
    let origin = origin.wrapping_add_signed(run.offset as isize);
    if run.repeat == 1 {
        return each(Strip { address: origin.wrapping_add(from), bytes: to - from, repeat: 1, stride: 0 });
    }
    let address =
        |piece: usize| origin.wrapping_add_signed((run.stride as isize).wrapping_mul(piece as isize));
    let (mut piece, cut) = (from / bytes, from % bytes);
    let (last, tail) = (to / bytes, to % bytes);
    if cut > 0 {
        let end = bytes.min(cut + to - from);
        each(Strip { address: address(piece).wrapping_add(cut), bytes: end - cut, repeat: 1, stride: 0 });
        if end < bytes {
            return;
        }
        piece += 1;
    }
    if piece < last {
        each(Strip { address: address(piece), bytes, repeat: last - piece, stride: run.stride });
    }
    if tail > 0 {
        each(Strip { address: address(last), bytes: tail, repeat: 1, stride: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Body;

    fn span(bytes: &mut [u8]) -> Span {
        // SAFETY: the tests keep the slice alive while they use the span.
        unsafe { Span::claim(bytes.as_mut_ptr().expose_provenance(), bytes.len()) }
    }

    fn column() -> Arc<Layout> {
        // Three blocks of 4 bytes, 8 apart, then 3 bytes at 40, in an extent of 48.
        let mut body = Body::piece(0, 4).repeated(3, 8);
        body.append(&Body::piece(40, 3), 0).unwrap();
        Arc::new(Layout::new(body, 0, 48).unwrap())
    }

    #[test]
    fn every_range_packs_and_unpacks() {
        let mut memory: Vec<u8> = (0..96).collect();
        let expected: Vec<u8> = [0, 48]
            .iter()
            .flat_map(|e| [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 40, 41, 42].map(|o| o + e))
            .collect();
        let base = memory.as_mut_ptr().expose_provenance();
        // SAFETY: `memory` outlives the buffer.
        let buffer = unsafe { Buffer::claim(base, 2, column()) };
        assert_eq!(buffer.bytes(), 30);
        assert!(buffer.contiguous().is_none());
        for from in 0..=30 {
            for to in from..=30 {
                let mut packed = vec![0u8; to - from];
                buffer.pack(from, span(&mut packed));
                assert_eq!(packed, expected[from..to]);
                let slice = buffer.slice(from, to - from);
                let mut again = vec![0u8; to - from];
                slice.pack(0, span(&mut again));
                assert_eq!(again, packed);
                let mut pieces = vec![];
                buffer.pieces(from, to - from, |piece| {
                    let mut bytes = vec![0u8; piece.bytes()];
                    piece.read(&mut bytes);
                    pieces.extend(bytes);
                });
                assert_eq!(pieces, packed);
            }
        }
        let mut target = vec![0u8; 96];
        // SAFETY: `target` outlives the buffer.
        let copy = unsafe { Buffer::claim(target.as_mut_ptr().expose_provenance(), 2, column()) };
        copy.copy_from(&buffer);
        for (at, byte) in target.iter().enumerate() {
            assert_eq!(*byte, if expected.contains(&(at as u8)) { at as u8 } else { 0 });
        }
    }

    // Goal: strided words are copied both ways, for any number and stride. Method: each number says where it
    // belongs.
    #[test]
    fn strided_words() {
        for (words, stride) in [(1, 2), (2, 3), (7, 2), (127, 5), (AWAY_BLOCK_BYTES / 8 + 3, 2), (9, -2isize)]
        {
            let at = |word: usize| (if stride < 0 { words - 1 - word } else { word }) * stride.unsigned_abs();
            let mut memory: Vec<u64> = (0..words as u64 * stride.unsigned_abs() as u64).collect();
            let body = Body::piece(8 * at(0) as i64, 8).repeated(words as u64, 8 * stride as i64);
            let layout = Arc::new(Layout::new(body, 0, 8 * memory.len() as i64).unwrap());
            // SAFETY: `memory` outlives the buffer.
            let buffer = unsafe { Buffer::claim(memory.as_mut_ptr().expose_provenance(), 1, &layout) };
            let expected: Vec<u8> = (0..words).flat_map(|word| (at(word) as u64).to_ne_bytes()).collect();
            let (mut packed, mut away) = (vec![0; 8 * words], vec![0; 8 * words]);
            buffer.pack(0, span(&mut packed));
            buffer.pack_away(0, span(&mut away));
            assert!(packed == expected && away == expected, "{words} words, stride {stride}");
            packed.fill(255);
            buffer.unpack(0, span(&mut packed));
            let changed = memory.iter().filter(|&&word| word == u64::MAX).count();
            assert_eq!((changed, memory[at(words - 1)]), (words, u64::MAX));
        }
    }

    #[test]
    fn within_refuses_what_sticks_out() {
        let mut memory = vec![0u8; 96];
        let whole = span(&mut memory);
        assert_eq!(Buffer::within(whole, 0, 2, &column()).unwrap().bytes(), 30);
        // The last piece ends at 43 of an element of 48.
        assert!(Buffer::within(whole, 5, 2, &column()).is_some());
        assert!(Buffer::within(whole, 6, 2, &column()).is_none());
        assert!(Buffer::within(whole, usize::MAX, 1, &column()).is_none());
        assert!(Buffer::within(whole, 0, usize::MAX, &column()).is_none());
    }

    #[test]
    fn absolute_addresses_work_from_bottom() {
        let mut memory = [1u8, 2, 3, 4, 5, 6, 7, 8];
        let address = memory.as_mut_ptr().expose_provenance() as i64;
        let mut body = Body::piece(address + 6, 2);
        body.append(&Body::piece(address, 3), 0).unwrap();
        let layout = Arc::new(Layout::new(body, 0, 8).unwrap());
        // SAFETY: `memory` outlives the buffer.
        let buffer = unsafe { Buffer::claim(0, 1, &layout) };
        let mut packed = [0u8; 5];
        buffer.pack(0, span(&mut packed));
        assert_eq!(packed, [7, 8, 1, 2, 3]);
        buffer.unpack(1, span(&mut [9, 10]));
        assert_eq!(memory, [10, 2, 3, 4, 5, 6, 7, 9]);
    }

    #[test]
    fn one_displaced_piece_is_contiguous() {
        let mut memory = [0u8; 16];
        let base = memory.as_mut_ptr().expose_provenance();
        let layout = Arc::new(Layout::new(Body::piece(4, 8), 0, 32).unwrap());
        // SAFETY: `memory` outlives the buffer.
        let buffer = unsafe { Buffer::claim(base, 1, &layout) };
        assert_eq!(buffer.contiguous().map(|span| (span.address(), span.bytes())), Some((base + 4, 8)));
    }
}
