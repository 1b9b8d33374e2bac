// SPDX-License-Identifier: BSD-3-Clause
//! Copies some kilobytes with the instructions that are faster on this processor.
//!
//! From 4 to 16 KiB on, the C library copies by `rep movsb` if the processor claims to be fast at it. On some
//! processors vectors of 32 bytes are faster within the L2 cache (docs/measured/choices.md). So `outboard
//! tune` measures which is faster; without its table, the first copy of this length does.

use crate::Span;
use std::sync::atomic::{AtomicU8, Ordering};

/// The shortest copy that uses vectors, in bytes.
#[cfg(any(test, all(target_arch = "x86_64", not(miri))))]
const BYTES_MIN: usize = 4 << 10;
/// The longest copy that uses vectors, in bytes: a longer copy may use more memory than the L2 cache holds. A
/// caller whose buffers fit into the cache copies in parts of this length.
pub const BYTES_MAX: usize = 32 << 10;

/// Whether copies use vectors: `YES`, `NO`, or `UNKNOWN` before it has been measured or set.
static VECTORS: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Whether copies use vectors on this processor. The first call measures that, unless `set_vectors` was
/// called before.
#[inline]
pub fn vectors_suit() -> bool {
    match VECTORS.load(Ordering::Relaxed) {
        UNKNOWN => find_out(),
        known => known == YES,
    }
}

/// Sets whether copies use vectors. On a processor without AVX2 they never do.
pub fn set_vectors(are_used: bool) {
    VECTORS.store(if are_used && has_vectors() { YES } else { NO }, Ordering::Relaxed);
}

#[cold]
fn find_out() -> bool {
    set_vectors(measure().is_some_and(|(vectors, library)| vectors * 10 < library * 9));
    VECTORS.load(Ordering::Relaxed) == YES
}

fn has_vectors() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let has = std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let has = false;
    has
}

/// Measures how many ns a copy of 64 KiB takes, in parts of 16 KiB: first by vectors, then by the C library.
/// Returns None on a processor without AVX2. Takes about 50 us.
pub fn measure() -> Option<(u64, u64)> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if has_vectors() {
        const BYTES: usize = 64 << 10;
        const PIECE: usize = 16 << 10;
        let (from, to) = (crate::Block::of(&[1; BYTES]), crate::Block::new(BYTES));
        let pieces =
            || (0..BYTES).step_by(PIECE).map(|at| (from.span().slice(at, PIECE), to.span().slice(at, PIECE)));
        let time = |copy: &dyn Fn(Span, Span)| {
            let began = crate::clock::now();
            pieces().for_each(|(from, to)| copy(from, to));
            crate::clock::now() - began
        };
        // SAFETY: the processor has AVX2.
        let vectors = |from: Span, to: Span| unsafe { by_vectors(from, to) };
        let mut least = (u64::MAX, u64::MAX);
        for _ in 0..5 {
            least = (least.0.min(time(&vectors)), least.1.min(time(&by_library)));
        }
        return Some(least);
    }
    None
}

/// Copies `from` to `to`, which has the same length, by the C library's function.
fn by_library(from: Span, to: Span) {
    // SAFETY: the makers of both spans claimed so many bytes mapped (contract of `Span::claim`); `copy`
    // allows overlap.
    unsafe { std::ptr::copy(from.address() as *const u8, to.address() as *mut u8, from.bytes()) }
}

/// Copies `from` to `to`, which has the same length. The spans may overlap.
#[inline(never)]
pub(crate) fn copy(from: Span, to: Span) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        if (BYTES_MIN..=BYTES_MAX).contains(&from.bytes()) && vectors_suit() && !from.meets(to) {
            // SAFETY: the processor has AVX2.
            return unsafe { by_vectors(from, to) };
        }
    }
    by_library(from, to);
}

/// The bytes that one step of a copy by vectors moves: four vectors of 32 bytes each.
#[cfg(all(target_arch = "x86_64", not(miri)))]
type VectorStep = [std::arch::x86_64::__m256i; 4];

/// Copies `from` to `to`, which has the same length. The spans have at least the bytes of one step and do not
/// overlap. The first and last steps may be unaligned. The stores in between are aligned, so some bytes are
/// written twice.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
fn by_vectors(from: Span, to: Span) {
    const STEP: usize = size_of::<VectorStep>();
    let last = from.bytes() - STEP;
    let (mut source, mut target) = (from.address(), to.address());
    let end = target + last;
    move_step(source, target);
    let first = STEP - target % align_of::<VectorStep>();
    (source, target) = (source + first, target + first);
    while target < end {
        move_step(source, target);
        (source, target) = (source + STEP, target + STEP);
    }
    move_step(from.address() + last, end);
}

/// Moves the bytes of one step from the address `from` to the address `to`. Both must lie in spans that
/// contain all these bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[target_feature(enable = "avx2")]
fn move_step(from: usize, to: usize) {
    // SAFETY: a part of a span that its maker claimed mapped; any alignment will do.
    let step = unsafe { std::ptr::with_exposed_provenance::<VectorStep>(from).read_unaligned() };
    // SAFETY: likewise, and writable, since the caller copies into it.
    unsafe { std::ptr::with_exposed_provenance_mut::<VectorStep>(to).write_unaligned(step) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_and_no_other_is_touched() {
        let bytes_at = |at: usize| (at * 7 + at / 251) as u8;
        for bytes in (BYTES_MIN..BYTES_MIN + 300).chain([20_001, BYTES_MAX, BYTES_MAX + 1]) {
            for (from_at, to_at) in [(0, 0), (1, 0), (0, 31), (17, 5), (64, 63)] {
                let from: Vec<u8> = (0..from_at + bytes).map(bytes_at).collect();
                let mut to = vec![0xa5; to_at + bytes + 40];
                // SAFETY: a part of `from`, which lives until the end of the round.
                let source = unsafe { Span::claim(from.as_ptr().expose_provenance() + from_at, bytes) };
                // SAFETY: a part of `to`, which lives as long and is not read before the copy has ended.
                let target = unsafe { Span::claim(to.as_mut_ptr().expose_provenance() + to_at, bytes) };
                source.copy_to(target);
                assert!(to[..to_at].iter().all(|&byte| byte == 0xa5), "before {bytes} at {to_at}");
                assert_eq!(to[to_at..to_at + bytes], from[from_at..], "{bytes} from {from_at} to {to_at}");
                assert!(to[to_at + bytes..].iter().all(|&byte| byte == 0xa5), "behind {bytes} at {to_at}");
            }
        }
    }

    #[test]
    fn a_span_moves_by_less_than_its_length() {
        const BYTES: usize = 20_000;
        for (from_at, to_at) in [(0, 8), (8, 0), (0, BYTES - 1), (100, 100)] {
            let before: Vec<u8> = (0..2 * BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
            let mut memory = before.clone();
            let address = memory.as_mut_ptr().expose_provenance();
            // SAFETY: parts of `memory`, which is not used otherwise until the copy has ended.
            let [source, target] = [from_at, to_at].map(|at| unsafe { Span::claim(address + at, BYTES) });
            source.copy_to(target);
            assert_eq!(memory[to_at..to_at + BYTES], before[from_at..from_at + BYTES]);
        }
    }
}
