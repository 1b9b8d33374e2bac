// SPDX-License-Identifier: BSD-3-Clause
//! The predefined reductions, on packed elements: without gaps and with any alignment.
//!
//! Every loop reads, combines and writes one element at a time through unaligned accesses. Where the result
//! overwrites an operand, the loop has a form of its own: the compiler then sees two arrays instead of three,
//! and vectorises it. Read next: `long_double.c`, for the types that Rust lacks.

use crate::basic::{Basic, PredefinedOp};
use crate::buffer::Buffer;
use crate::float16::Float16;
use error::{Class, Result, fail};
use num_complex::Complex;
use sys::Span;

/// Checks that `op` takes elements of the type `basic` (MPI 5.0, section 6.9.2; characters, too, as in every
/// other MPI). The error names the types that `op` takes.
#[inline]
pub fn check_op(op: PredefinedOp, basic: Basic) -> Result<()> {
    use PredefinedOp::*;
    let (allowed, wanted) = match op {
        Max | Min => (is_integer(basic) || is_real(basic), "integers and floating-point numbers"),
        Sum | Prod => {
            let allowed = is_integer(basic) || is_real(basic) || is_complex(basic);
            (allowed, "integers, floating-point and complex numbers")
        }
        Land | Lor | Lxor => (is_integer(basic) || is_logical(basic), "integers and logicals"),
        Band | Bor | Bxor => (is_integer(basic) || basic == Basic::Byte, "integers and MPI_BYTE"),
        Maxloc | Minloc => (basic.pair().is_some(), "pairs of a value and an index, such as MPI_DOUBLE_INT"),
        Replace | NoOp => (true, "all"),
    };
    if !allowed {
        fail!(Class::Op, "{} takes {wanted}, but the datatype is {}", op.name(), basic.describe());
    }
    let moved_only = matches!(op, Replace | NoOp);
    if matches!(basic, Basic::F128 | Basic::C128) && !moved_only && !has_quad() {
        fail!(
            Class::UnsupportedOperation,
            "{}: this library was built by a C compiler without 128-bit floats",
            op.name()
        );
    }
    Ok(())
}

/// Computes `into[i] = left[i] op right[i]` for all elements of the spans, which have the same length: whole
/// elements in the packed form (`Basic::size` bytes each). `into` may be `left` or `right`, and must not
/// overlap these otherwise. The caller has called `check_op`. MPI_REPLACE takes the right operand, MPI_NO_OP
/// the left.
pub fn reduce(op: PredefinedOp, basic: Basic, left: Span, right: Span, into: Span) {
    let bytes = into.bytes();
    assert!(left.bytes() == bytes && right.bytes() == bytes, "reduction of spans of different lengths");
    let spans = Operands { left: left.address(), right: right.address(), into: into.address(), bytes };
    if bytes < WIDE_BYTES_MIN { by_basic(op, basic, spans) } else { reduce_long(op, basic, spans) }
}

#[inline(never)] // Otherwise short ones would save the registers that this needs.
fn reduce_long(op: PredefinedOp, basic: Basic, spans: Operands) {
    #[cfg(target_arch = "x86_64")]
    if has_wide_registers(op, basic) {
        // SAFETY: the processor has AVX2.
        return unsafe { by_wide_registers(op, basic, spans) };
    }
    by_basic(op, basic, spans)
}

#[inline(always)] // For the same reason.
fn by_basic(op: PredefinedOp, basic: Basic, spans: Operands) {
    use Basic::*;
    match (op, basic) {
        (PredefinedOp::Replace, _) => out_of_line(|| spans.copy(spans.right)),
        (PredefinedOp::NoOp, _) => out_of_line(|| spans.copy(spans.left)),
        (_, I8) => integers::<i8>(op, spans),
        (_, Char) => integers::<std::ffi::c_char>(op, spans),
        (_, I16) => integers::<i16>(op, spans),
        (_, I32) => integers::<i32>(op, spans),
        (_, I64) => integers::<i64>(op, spans),
        (_, I128) => integers::<i128>(op, spans),
        (_, U8) => integers::<u8>(op, spans),
        (_, U16) => integers::<u16>(op, spans),
        (_, U32) => integers::<u32>(op, spans),
        (_, U64) => integers::<u64>(op, spans),
        (_, F16) => out_of_line(|| reals::<Float16>(op, spans)),
        (_, F32) => out_of_line(|| reals::<f32>(op, spans)),
        (_, F64) => out_of_line(|| reals::<f64>(op, spans)),
        (_, C16) => out_of_line(|| sums::<Complex<Float16>>(op, spans)),
        (_, C32) => out_of_line(|| sums::<Complex<f32>>(op, spans)),
        (_, C64) => out_of_line(|| sums::<Complex<f64>>(op, spans)),
        (_, L8) => logicals::<u8>(op, spans),
        (_, L16) => logicals::<u16>(op, spans),
        (_, L32) => logicals::<u32>(op, spans),
        (_, L64) => logicals::<u64>(op, spans),
        (_, L128) => logicals::<u128>(op, spans),
        (_, Byte) => bits::<u8>(op, spans),
        (_, F32I32) => pairs::<f32, i32>(op, spans),
        (_, F64I32) => pairs::<f64, i32>(op, spans),
        (_, I64I32) => pairs::<i64, i32>(op, spans),
        (_, I32I32) => pairs::<i32, i32>(op, spans),
        (_, I16I32) => pairs::<i16, i32>(op, spans),
        (_, F32F32) => pairs::<f32, f32>(op, spans),
        (_, F64F64) => pairs::<f64, f64>(op, spans),
        (_, LongDouble | CLongDouble | LongDoubleI32 | F128 | C128) => extended(op, basic, spans),
        (_, WChar | Packed) => refused(op, basic),
    }
}

/// Calls `reduce` without inlining it, so that a call that needs many registers does not slow its caller
/// down.
#[inline(never)]
fn out_of_line(reduce: impl FnOnce()) {
    reduce()
}

/// Computes `into = left op into` for whole buffers of equal length, with gaps or without: MPI_Reduce_local
/// (MPI 5.0, section 6.9.7).
pub fn reduce_buffers(op: PredefinedOp, basic: Basic, left: &Buffer, into: &Buffer) {
    assert_eq!(left.bytes(), into.bytes(), "reduction of buffers of different lengths");
    if let (Some(left), Some(into)) = (left.contiguous(), into.contiguous()) {
        return reduce(op, basic, left, into, into);
    }
    let block_bytes = basic.size() * BLOCK_ELEMENTS;
    let (mut left_block, mut into_block) = (vec![0u8; block_bytes], vec![0u8; block_bytes]);
    for offset in (0..into.bytes()).step_by(block_bytes) {
        let bytes = block_bytes.min(into.bytes() - offset);
        // SAFETY: the block lives until the end of the function, and only this loop uses it.
        let left_span = unsafe { Span::claim(left_block.as_mut_ptr().expose_provenance(), bytes) };
        // SAFETY: likewise.
        let into_span = unsafe { Span::claim(into_block.as_mut_ptr().expose_provenance(), bytes) };
        left.pack(offset, left_span);
        into.pack(offset, into_span);
        reduce(op, basic, left_span, into_span, into_span);
        into.unpack(offset, into_span);
    }
}

/// The number of elements that `reduce_buffers` combines at a time: two blocks of the largest type fit the
/// first-level cache.
const BLOCK_ELEMENTS: usize = 256;

#[inline]
pub(crate) fn is_integer(basic: Basic) -> bool {
    use Basic::*;
    matches!(basic, I8 | I16 | I32 | I64 | I128 | U8 | U16 | U32 | U64 | Char)
}

fn is_real(basic: Basic) -> bool {
    use Basic::*;
    matches!(basic, F16 | F32 | F64 | LongDouble | F128)
}

fn is_complex(basic: Basic) -> bool {
    use Basic::*;
    matches!(basic, C16 | C32 | C64 | CLongDouble | C128)
}

fn is_logical(basic: Basic) -> bool {
    use Basic::*;
    matches!(basic, L8 | L16 | L32 | L64 | L128)
}

/// The addresses of three arrays of packed elements, two operands and the result, and the length of each in
/// bytes.
#[derive(Clone, Copy)]
struct Operands {
    left: usize,
    right: usize,
    into: usize,
    bytes: usize,
}

impl Operands {
    /// Returns how many elements of `size` bytes each array has. Panics if the last element is incomplete.
    #[inline(always)]
    fn count(self, size: usize) -> usize {
        assert_eq!(self.bytes % size, 0, "reduction of a broken element");
        self.bytes / size
    }

    /// Copies the operand at the address `from` to the result.
    fn copy(self, from: usize) {
        // SAFETY: the makers of the spans promised that their bytes stay mapped.
        unsafe {
            std::ptr::copy(
                std::ptr::with_exposed_provenance::<u8>(from),
                std::ptr::with_exposed_provenance_mut(self.into),
                self.bytes,
            )
        }
    }

    /// Stores `combine(left, right)` in the result for each pair of elements. `T` must be free of padding and
    /// valid for any bits.
    #[inline(always)]
    fn combine<T: Copy>(self, combine: impl Fn(T, T) -> T) {
        let left = std::ptr::with_exposed_provenance::<T>(self.left);
        let right = std::ptr::with_exposed_provenance::<T>(self.right);
        let into = std::ptr::with_exposed_provenance_mut::<T>(self.into);
        let count = self.count(size_of::<T>());
        if count == 1 {
            // One element is the most common.
            each(left, right, into, 1, combine)
        } else if self.left == self.into {
            each(into, right, into, count, combine)
        } else if self.right == self.into {
            each(left, into, into, count, combine)
        } else {
            each(left, right, into, count, combine)
        }
    }
}

#[inline(always)]
fn each<T: Copy>(left: *const T, right: *const T, into: *mut T, count: usize, combine: impl Fn(T, T) -> T) {
    for i in 0..count {
        // SAFETY: `i` is below the count, and the makers of the spans promised that their bytes stay mapped.
        let a = unsafe { left.wrapping_add(i).read_unaligned() };
        // SAFETY: as above.
        let b = unsafe { right.wrapping_add(i).read_unaligned() };
        // SAFETY: as above, and writable, since the caller made it the result.
        unsafe { into.wrapping_add(i).write_unaligned(combine(a, b)) };
    }
}

/// Panics, because `op` does not take elements of the type `what`. The caller should have learnt that from
/// `check_op`.
#[cold]
fn refused(op: PredefinedOp, what: impl std::fmt::Debug) -> ! {
    panic!("{} on {what:?}, which check_op refuses", op.name())
}

/// Numbers that MPI_SUM and MPI_PROD combine.
trait Arithmetic: Copy {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
}

/// Numbers that the bitwise and the logical operators combine.
trait BitLogic: Copy {
    const TRUE: Self;
    const FALSE: Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn exclusive_or(self, other: Self) -> Self;
    fn truth(self) -> bool;
    fn from_truth(truth: bool) -> Self {
        if truth { Self::TRUE } else { Self::FALSE }
    }
}

macro_rules! integer {
    ($($type:ty)*) => {$(
        impl Arithmetic for $type {
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            fn product(self, other: Self) -> Self { self.wrapping_mul(other) }
        }
        impl BitLogic for $type {
            const TRUE: Self = 1;
            const FALSE: Self = 0;
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn exclusive_or(self, other: Self) -> Self { self ^ other }
            fn truth(self) -> bool { self != 0 }
        }
    )*};
}
integer!(i8 i16 i32 i64 i128 u8 u16 u32 u64 u128);

macro_rules! float {
    ($($type:ty)*) => {$(
        impl Arithmetic for $type {
            fn sum(self, other: Self) -> Self { self + other }
            fn product(self, other: Self) -> Self { self * other }
        }
    )*};
}
float!(f32 f64 Complex<f32> Complex<f64>);

impl Arithmetic for Float16 {
    #[inline(always)] // Long for the compiler, and vectorised only within the loop.
    fn sum(self, other: Self) -> Self {
        Float16::narrow(self.widen() + other.widen())
    }
    #[inline(always)]
    fn product(self, other: Self) -> Self {
        Float16::narrow(self.widen() * other.widen())
    }
}

impl Arithmetic for Complex<Float16> {
    fn sum(self, other: Self) -> Self {
        narrow(wide(self) + wide(other))
    }
    fn product(self, other: Self) -> Self {
        narrow(wide(self) * wide(other))
    }
}

fn wide(z: Complex<Float16>) -> Complex<f32> {
    Complex::new(z.re.widen(), z.im.widen())
}

fn narrow(z: Complex<f32>) -> Complex<Float16> {
    Complex::new(Float16::narrow(z.re), Float16::narrow(z.im))
}

/// The shortest arrays, in bytes, for which asking whether the processor has wide registers costs less than
/// these save.
const WIDE_BYTES_MIN: usize = 256;

#[cfg(target_arch = "x86_64")]
fn has_wide_registers(op: PredefinedOp, basic: Basic) -> bool {
    use PredefinedOp::*;
    let known = matches!(basic, Basic::I32 | Basic::I64 | Basic::F16 | Basic::F32 | Basic::F64);
    known && matches!(op, Max | Min | Sum | Prod) && std::arch::is_x86_feature_detected!("avx2")
}

/// Carries out the most common reductions in wide registers, which not every processor has. They are twice as
/// fast on data in the caches.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn by_wide_registers(op: PredefinedOp, basic: Basic, spans: Operands) {
    match basic {
        Basic::I32 => reals::<i32>(op, spans),
        Basic::I64 => reals::<i64>(op, spans),
        Basic::F16 => reals::<Float16>(op, spans),
        Basic::F32 => reals::<f32>(op, spans),
        Basic::F64 => reals::<f64>(op, spans),
        _ => refused(op, basic),
    }
}

#[inline(always)] // Compiled for the registers of its caller.
fn sums<T: Arithmetic>(op: PredefinedOp, spans: Operands) {
    match op {
        PredefinedOp::Sum => spans.combine(T::sum),
        PredefinedOp::Prod => spans.combine(T::product),
        _ => refused(op, std::any::type_name::<T>()),
    }
}

#[inline(always)] // For the same reason.
fn reals<T: Arithmetic + PartialOrd>(op: PredefinedOp, spans: Operands) {
    match op {
        PredefinedOp::Max => spans.combine(|a: T, b| if a > b { a } else { b }),
        PredefinedOp::Min => spans.combine(|a: T, b| if a < b { a } else { b }),
        _ => sums::<T>(op, spans),
    }
}

fn bits<T: BitLogic>(op: PredefinedOp, spans: Operands) {
    match op {
        PredefinedOp::Band => spans.combine(T::and),
        PredefinedOp::Bor => spans.combine(T::or),
        PredefinedOp::Bxor => spans.combine(T::exclusive_or),
        _ => refused(op, std::any::type_name::<T>()),
    }
}

fn logicals<T: BitLogic>(op: PredefinedOp, spans: Operands) {
    match op {
        PredefinedOp::Land => spans.combine(|a: T, b| T::from_truth(a.truth() & b.truth())),
        PredefinedOp::Lor => spans.combine(|a: T, b| T::from_truth(a.truth() | b.truth())),
        PredefinedOp::Lxor => spans.combine(|a: T, b| T::from_truth(a.truth() ^ b.truth())),
        _ => refused(op, std::any::type_name::<T>()),
    }
}

fn integers<T: Arithmetic + BitLogic + PartialOrd>(op: PredefinedOp, spans: Operands) {
    use PredefinedOp::*;
    match op {
        Land | Lor | Lxor => logicals::<T>(op, spans),
        Band | Bor | Bxor => bits::<T>(op, spans),
        _ => reals::<T>(op, spans),
    }
}

/// An element of MPI_MAXLOC or MPI_MINLOC in the packed form: a value, then its index.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct ValueIndex<V, I> {
    value: V,
    index: I,
}

/// Carries out MPI_MAXLOC or MPI_MINLOC on pairs of a value and an index. Among equal values the lowest index
/// counts (MPI 5.0, section 6.9.4).
fn pairs<V: Copy + PartialOrd, I: Copy + PartialOrd>(op: PredefinedOp, spans: Operands) {
    let pick = |a: ValueIndex<V, I>, b: ValueIndex<V, I>, better: bool| {
        let (left, right) = (a.index, b.index);
        let tie = { a.value } == { b.value };
        if better || (tie && left <= right) { a } else { b }
    };
    match op {
        PredefinedOp::Maxloc => spans.combine(|a, b| pick(a, b, { a.value } > { b.value })),
        PredefinedOp::Minloc => spans.combine(|a, b| pick(a, b, { a.value } < { b.value })),
        _ => refused(op, std::any::type_name::<(V, I)>()),
    }
}

unsafe extern "C" {
    safe fn outboard_has_quad() -> i32;
    fn outboard_reduce_extended(
        kind: i32,
        op: i32,
        count: usize,
        left: *const u8,
        right: *const u8,
        into: *mut u8,
    );
}

fn has_quad() -> bool {
    // Miri calls no C.
    !cfg!(miri) && outboard_has_quad() != 0
}

/// Carries out a reduction of types that Rust lacks by the loops in C. `long_double.c` has the same numbers
/// for types and operators in its enums.
fn extended(op: PredefinedOp, basic: Basic, spans: Operands) {
    let kind = match basic {
        Basic::LongDouble => 0,
        Basic::CLongDouble => 1,
        Basic::LongDoubleI32 => 2,
        Basic::F128 => 3,
        _ => 4,
    };
    let op_number = match op {
        PredefinedOp::Max => 0,
        PredefinedOp::Min => 1,
        PredefinedOp::Sum => 2,
        PredefinedOp::Prod => 3,
        PredefinedOp::Maxloc => 4,
        PredefinedOp::Minloc => 5,
        _ => refused(op, basic),
    };
    let left = std::ptr::with_exposed_provenance(spans.left);
    let right = std::ptr::with_exposed_provenance(spans.right);
    let into = std::ptr::with_exposed_provenance_mut(spans.into);
    let count = spans.count(basic.size());
    // SAFETY: the makers of the spans promised that `count` elements stay mapped at each; the C loops move
    // bytes of any alignment and allow the result to lie over an operand.
    unsafe { outboard_reduce_extended(kind, op_number, count, left, right, into) }
}
