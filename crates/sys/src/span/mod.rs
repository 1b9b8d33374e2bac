// SPDX-License-Identifier: BSD-3-Clause
//! A span is a claim about memory: an address and a length. It is never a Rust slice, because a user may
//! write to a buffer while the library reads it, and another process may write to shared memory at any time.
//!
//! Only making a span is unsafe (`Span::claim`): the caller promises that the bytes stay mapped until the
//! operation that uses the span has ended. Each later use (a slice, a copy) is checked against the length.

mod block;
pub mod copy;

pub use block::Block;

use std::mem::MaybeUninit;

/// A claim that `bytes` bytes at `address` stay mapped until the operation that uses the span has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    address: usize,
    bytes: usize,
}

impl Span {
    /// A span of no bytes.
    pub const EMPTY: Span = Span { address: 0, bytes: 0 };

    /// Makes a span of the `bytes` bytes at `address`: claims that they stay mapped.
    ///
    /// # Safety
    /// The bytes must stay mapped (readable, and writable if the span is ever copied into) until the last use
    /// of the span or of a slice of it.
    #[inline]
    pub unsafe fn claim(address: usize, bytes: usize) -> Span {
        Span { address, bytes }
    }

    /// Returns the span of `bytes`, which is memory that is never freed, such as `Box::leak` returns.
    pub fn of(bytes: &'static mut [u8]) -> Span {
        Span { address: bytes.as_mut_ptr() as usize, bytes: bytes.len() }
    }

    /// Returns the address of the span's first byte in this process.
    #[inline]
    pub fn address(self) -> usize {
        self.address
    }

    /// Returns the length of the span in bytes.
    #[inline]
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Returns the span of `bytes` bytes that begins `from` bytes after this span's start. Panics if these
    /// bytes are not all inside this span.
    #[inline(always)]
    pub fn slice(self, from: usize, bytes: usize) -> Span {
        if from > self.bytes || bytes > self.bytes - from {
            outside(from, bytes, self.bytes)
        }
        Span { address: self.address.wrapping_add(from), bytes }
    }

    /// Asks the processor to load the span's first bytes, up to eight cache lines, into its cache.
    #[inline]
    pub fn prefetch(self) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..self.bytes.div_ceil(64).min(8) {
            let address = (self.address + line * 64) as *const i8;
            // SAFETY: a hint, which reads nothing and never faults.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address) };
        }
    }

    /// Asks the processor to take the cache line with the span's first byte from other cores, because this
    /// core will write to it.
    #[inline]
    pub fn prefetch_write(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint, which reads nothing and never faults; processors that do not know it skip it. The
        // intrinsic becomes a hint for reading where the compiler may not assume that all processors know it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) self.address, options(nostack, preserves_flags, readonly))
        };
    }

    /// Whether two spans have bytes in common.
    #[inline]
    pub fn meets(self, other: Span) -> bool {
        let starts_in = |a: Span, b: Span| a.address.wrapping_sub(b.address) < b.bytes;
        self.bytes > 0 && other.bytes > 0 && (starts_in(self, other) || starts_in(other, self))
    }

    /// Copies the whole span to `to`, which must have the same length. The spans may overlap.
    #[inline(always)] // A call would cost as much as a short copy.
    pub fn copy_to(self, to: Span) {
        if self.bytes != to.bytes {
            unequal(self.bytes, to.bytes)
        }
        if self.bytes == size_of::<u64>() {
            // The commonest length of a short message; a call of `memmove` takes several times as long.
            // SAFETY: 8 bytes that were claimed mapped, as below.
            let word = unsafe { (self.address as *const u64).read_unaligned() };
            // SAFETY: as above.
            return unsafe { (to.address as *mut u64).write_unaligned(word) };
        }
        copy::copy(self, to);
    }

    /// Writes zeroes to all bytes of the span.
    pub fn clear(self) {
        // SAFETY: the maker of the span promised that its bytes stay mapped, and writable since the caller
        // writes.
        unsafe { std::ptr::write_bytes(self.address as *mut u8, 0, self.bytes) }
    }

    /// Copies the bytes of the span to `to`, memory of the library, which must have the same length and may
    /// be uninitialised.
    #[inline]
    pub fn save(self, to: &mut [MaybeUninit<u8>]) {
        // SAFETY: the slice is live and exclusive until after the copy.
        self.copy_to(unsafe { Span::claim(to.as_mut_ptr().expose_provenance(), to.len()) });
    }

    /// Copies the bytes of `from`, memory of the library, into the span, which must have the same length.
    #[inline]
    pub fn restore(self, from: &[MaybeUninit<u8>]) {
        // SAFETY: the slice is live until after the copy, which only reads it.
        unsafe { Span::claim(from.as_ptr().expose_provenance(), from.len()) }.copy_to(self);
    }

    /// Copies the bytes of the span into `to`, which must have the same length.
    #[inline]
    pub fn read(self, to: &mut [u8]) {
        if self.bytes != to.len() {
            unequal(self.bytes, to.len())
        }
        // SAFETY: the span was claimed mapped; `to` is a live exclusive slice of the same length.
        unsafe { std::ptr::copy(self.address as *const u8, to.as_mut_ptr(), self.bytes) }
    }

    /// Returns a copy of the span's bytes.
    pub fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read(&mut bytes);
        bytes
    }

    /// Copies the bytes of `from` into the span, which must have the same length.
    #[inline]
    pub fn write(self, from: &[u8]) {
        if self.bytes != from.len() {
            unequal(from.len(), self.bytes)
        }
        // SAFETY: the span was claimed mapped and writable; `from` is a live slice of the same length.
        unsafe { std::ptr::copy(from.as_ptr(), self.address as *mut u8, self.bytes) }
    }
}

// These functions take values. With an assertion's sentence every caller would store the numbers in memory,
// whether or not the assertion fails.

#[cold]
#[inline(never)]
fn outside(from: usize, bytes: usize, whole: usize) -> ! {
    panic!("slice {from}+{bytes} of a span of {whole}")
}

#[cold]
#[inline(never)]
fn unequal(from: usize, to: usize) -> ! {
    panic!("copy of {from} bytes to a place of {to}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn what_is_not_inside_is_refused() {
        let mut bytes = [0; 16];
        // SAFETY: the array lives until the end of the test.
        let span = unsafe { Span::claim(bytes.as_mut_ptr().expose_provenance(), 16) };
        assert_eq!((span.slice(4, 12).address(), span.slice(16, 0).bytes()), (span.address() + 4, 0));
        for (from, length) in [(0, 17), (16, 1), (17, 0), (4, 13), (4, usize::MAX), (usize::MAX, 2)] {
            assert!(catch_unwind(|| span.slice(from, length)).is_err(), "slice {from}+{length}");
        }
        for (from, to) in [(8, 7), (7, 8), (0, 1)] {
            assert!(
                catch_unwind(|| span.slice(0, from).copy_to(span.slice(8, to))).is_err(),
                "{from} to {to}"
            );
            assert!(catch_unwind(|| span.slice(0, from).read(&mut [0; 8][..to])).is_err(), "{from} to {to}");
            assert!(catch_unwind(|| span.slice(0, to).write(&[0; 8][..from])).is_err(), "{from} to {to}");
        }
        span.slice(0, 8).write(&[1, 2, 3, 4, 5, 6, 7, 8]);
        span.slice(0, 8).copy_to(span.slice(8, 8));
        span.slice(2, 5).copy_to(span.slice(8, 5));
        let mut seen = [0; 8];
        span.slice(8, 8).read(&mut seen);
        assert_eq!(seen, [3, 4, 5, 6, 7, 6, 7, 8]);
    }
}
