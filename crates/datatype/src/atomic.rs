// SPDX-License-Identifier: BSD-3-Clause
//! The predefined reductions as atomic updates of one element, in memory that other processes update, too
//! (MPI 5.0, section 12.3.4).
//!
//! Invariant: whether an element is updated atomically depends only on its length and address (`is_atomic`),
//! so all processes use one method. Operators without a machine instruction are a loop of compare-and-swap
//! around `reduce`.

use crate::basic::{Basic, PredefinedOp};
use crate::reduce::reduce;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sys::Span;

/// Whether an element at `address` is updated by an atomic instruction: it has 4 or 8 bytes, and its address
/// is a multiple of its length.
#[inline]
pub fn is_atomic(basic: Basic, address: usize) -> bool {
    let bytes = basic.size();
    matches!(bytes, 4 | 8) && address.is_multiple_of(bytes)
}

/// Computes `target = target op origin` for one element, atomically. Stores the old content of `target` in
/// `fetched`, unless `fetched` is empty. The caller has checked `is_atomic` for `target`, and `check_op`.
/// `origin` may be empty for MPI_NO_OP.
#[inline(always)]
pub fn accumulate(op: PredefinedOp, basic: Basic, target: Span, origin: Span, fetched: Span) {
    assert!(is_atomic(basic, target.address()), "a crooked target");
    let bytes = basic.size();
    let given = origin.bytes() == bytes || op == PredefinedOp::NoOp;
    assert!(given && target.bytes() == bytes && [0, bytes].contains(&fetched.bytes()), "not one element");
    match bytes {
        4 => accumulate_word::<AtomicU32>(op, basic, target, origin, fetched),
        _ => accumulate_word::<AtomicU64>(op, basic, target, origin, fetched),
    }
}

/// Replaces the element at `target` by `origin` if it equals `compare`, atomically. Stores the old content of
/// `target` in `fetched`. The caller has checked `is_atomic` for `target`.
#[inline]
pub fn compare_and_swap(basic: Basic, target: Span, compare: Span, origin: Span, fetched: Span) {
    assert!(is_atomic(basic, target.address()), "a crooked target");
    let bytes = basic.size();
    assert!([target, compare, origin, fetched].iter().all(|span| span.bytes() == bytes), "not one element");
    match bytes {
        4 => swap::<AtomicU32>(target, compare, origin, fetched),
        _ => swap::<AtomicU64>(target, compare, origin, fetched),
    }
}

#[inline(always)]
fn accumulate_word<W: AtomicWord>(op: PredefinedOp, basic: Basic, target: Span, origin: Span, fetched: Span) {
    let word = W::at(target.address());
    let operand = || W::read(origin.address());
    let before = match op {
        PredefinedOp::NoOp => word.get(),
        PredefinedOp::Replace => word.replace(operand()),
        // Signed and unsigned sums have the same bits.
        PredefinedOp::Sum if crate::reduce::is_integer(basic) => word.add(operand()),
        _ => accumulate_rare(op, basic, word, operand()),
    };
    if fetched.bytes() > 0 {
        W::write(fetched.address(), before);
    }
}

#[inline(never)]
fn accumulate_rare<W: AtomicWord>(op: PredefinedOp, basic: Basic, word: &W, operand: W::Bits) -> W::Bits {
    match op {
        PredefinedOp::Band => word.and(operand),
        PredefinedOp::Bor => word.or(operand),
        PredefinedOp::Bxor => word.exclusive_or(operand),
        _ => word.update(|current| combine(op, basic, current, operand)),
    }
}

#[inline]
fn swap<W: AtomicWord>(target: Span, compare: Span, origin: Span, fetched: Span) {
    let (compare, new) = (W::read(compare.address()), W::read(origin.address()));
    W::write(fetched.address(), W::at(target.address()).swap_if(compare, new));
}

/// Returns `left op right` for one element, as the loops of `reduce` compute it.
fn combine<B: Copy>(op: PredefinedOp, basic: Basic, mut left: B, mut right: B) -> B {
    reduce(op, basic, span_of_value(&mut left), span_of_value(&mut right), span_of_value(&mut right));
    right
}

/// Makes a span of a variable, which `combine` passes to `reduce` and then drops.
fn span_of_value<B>(value: &mut B) -> Span {
    // SAFETY: `combine`, the only caller, keeps the variable on its stack until `reduce` has returned.
    unsafe { Span::claim(std::ptr::from_mut(value).expose_provenance(), size_of::<B>()) }
}

/// An atomic machine word, which can also be read and written as an ordinary word of the same length. Each
/// `address` comes from a span, whose maker promised that it is mapped.
trait AtomicWord: Sized + 'static {
    type Bits: Copy;
    fn at(address: usize) -> &'static Self;
    fn read(address: usize) -> Self::Bits;
    fn write(address: usize, bits: Self::Bits);
    fn get(&self) -> Self::Bits;
    fn replace(&self, bits: Self::Bits) -> Self::Bits;
    fn add(&self, bits: Self::Bits) -> Self::Bits;
    fn and(&self, bits: Self::Bits) -> Self::Bits;
    fn or(&self, bits: Self::Bits) -> Self::Bits;
    fn exclusive_or(&self, bits: Self::Bits) -> Self::Bits;
    fn swap_if(&self, compare: Self::Bits, new: Self::Bits) -> Self::Bits;
    fn update(&self, change: impl Fn(Self::Bits) -> Self::Bits) -> Self::Bits;
}

macro_rules! word {
    ($($atomic:ty, $bits:ty;)*) => {$(
        impl AtomicWord for $atomic {
            type Bits = $bits;
            #[inline]
            fn at(address: usize) -> &'static Self {
                // SAFETY: part of a span that was claimed mapped, aligned (`is_atomic`), valid whatever it
                // holds; used within the call only.
                unsafe { &*std::ptr::with_exposed_provenance(address) }
            }
            #[inline]
            fn read(address: usize) -> $bits {
                // SAFETY: part of a span that was claimed mapped.
                unsafe { std::ptr::with_exposed_provenance::<$bits>(address).read_unaligned() }
            }
            #[inline]
            fn write(address: usize, bits: $bits) {
                // SAFETY: part of a span that was claimed mapped and writable.
                unsafe { std::ptr::with_exposed_provenance_mut::<$bits>(address).write_unaligned(bits) }
            }
            #[inline]
            fn get(&self) -> $bits { self.load(Ordering::Acquire) }
            #[inline]
            fn replace(&self, bits: $bits) -> $bits { self.swap(bits, Ordering::AcqRel) }
            #[inline]
            fn add(&self, bits: $bits) -> $bits { self.fetch_add(bits, Ordering::AcqRel) }
            #[inline]
            fn and(&self, bits: $bits) -> $bits { self.fetch_and(bits, Ordering::AcqRel) }
            #[inline]
            fn or(&self, bits: $bits) -> $bits { self.fetch_or(bits, Ordering::AcqRel) }
            #[inline]
            fn exclusive_or(&self, bits: $bits) -> $bits { self.fetch_xor(bits, Ordering::AcqRel) }
            #[inline]
            fn swap_if(&self, compare: $bits, new: $bits) -> $bits {
                match self.compare_exchange(compare, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(before) | Err(before) => before,
                }
            }
            #[inline]
            fn update(&self, change: impl Fn($bits) -> $bits) -> $bits {
                let mut before = self.load(Ordering::Relaxed);
                loop {
                    let new = change(before);
                    match self.compare_exchange_weak(before, new, Ordering::AcqRel, Ordering::Relaxed) {
                        Ok(_) => return before,
                        Err(now) => before = now,
                    }
                }
            }
        }
    )*};
}
word! { AtomicU32, u32; AtomicU64, u64; }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check_op;

    fn span<T>(values: &mut [T]) -> Span {
        // SAFETY: the tests keep the values alive while they use the span.
        unsafe { Span::claim(values.as_mut_ptr().expose_provenance(), size_of_val(values)) }
    }

    // Goal: every operator on every type that fits a word gives the result of `reduce`, and returns the old
    // value.
    #[test]
    fn all_words_agree_with_reduce() {
        let mut combinations = 0;
        for (basic, op) in Basic::ALL.iter().flat_map(|b| PredefinedOp::ALL.map(|op| (*b, op))) {
            if check_op(op, basic).is_err() || !is_atomic(basic, 0) {
                continue;
            }
            combinations += 1;
            let mut target: Vec<u64> = (0..4).map(|i: u64| 0x3f81_0203_4105_4007 ^ (i * 0x11)).collect();
            let mut origin: Vec<u64> = (0..4).map(|i: u64| 0x3ff1_0253_4005_4107 + i).collect();
            let (before, mut expected, mut fetched) = (target.clone(), target.clone(), vec![0u64; 4]);
            let into = span(&mut expected);
            reduce(op, basic, into, span(&mut origin), into);
            let spans = (span(&mut target), span(&mut origin), span(&mut fetched));
            for at in (0..32).step_by(basic.size()) {
                let element = |span: Span| span.slice(at, basic.size());
                accumulate(op, basic, element(spans.0), element(spans.1), element(spans.2));
            }
            assert_eq!((target, fetched), (expected, before), "{op:?} of {basic:?}");
        }
        assert!(combinations > 60, "{combinations}");
    }

    #[test]
    fn threads_lose_no_update() {
        let mut total = [0u64, 0];
        // This is one expression because borrowing one half by an index of the whole would end the span of
        // the other half.
        let places = total.each_mut().map(|word| span(std::slice::from_mut(word)));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        accumulate(PredefinedOp::Sum, Basic::I64, places[0], span(&mut [1i64]), Span::EMPTY);
                        accumulate(PredefinedOp::Sum, Basic::F64, places[1], span(&mut [1f64]), Span::EMPTY);
                    }
                });
            }
        });
        assert_eq!((total[0], f64::from_bits(total[1])), (40_000, 40_000.0));
    }

    #[test]
    fn swaps_only_what_is_equal() {
        let (mut target, mut fetched) = ([7u32, 8], [0u32]);
        let place = span(&mut target[..1]);
        compare_and_swap(Basic::U32, place, span(&mut [6u32]), span(&mut [9u32]), span(&mut fetched));
        assert_eq!((target, fetched), ([7, 8], [7]));
        compare_and_swap(Basic::U32, place, span(&mut [7u32]), span(&mut [9u32]), span(&mut fetched));
        assert_eq!((target, fetched), ([9, 8], [7]));
        assert!(
            !is_atomic(Basic::U32, 2)
                && !is_atomic(Basic::I16I32, 8)
                && is_atomic(Basic::C32, 8)
                && !is_atomic(Basic::U16, 8)
        );
    }
}
