// SPDX-License-Identifier: BSD-3-Clause
//! The types of the elements that OpenSHMEM's functions move, reduce and change.

use crate::numbers as n;
use std::ffi::c_int;

/// An element type that OpenSHMEM's collectives can reduce, because MPI has a datatype for it.
pub trait Element: Copy {
    /// The number of the MPI datatype of this type.
    const DATATYPE: c_int;
}

/// A type of 4 or 8 bytes that OpenSHMEM's atomic operations can change.
pub trait Word: Copy {
    fn bits(self) -> u64;
    fn of(bits: u64) -> Self;
}

/// C's long double. This library only moves its bytes.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct LongDouble(#[allow(dead_code)] [u8; 16]);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ComplexFloat(#[allow(dead_code)] [f32; 2]);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ComplexDouble(#[allow(dead_code)] [f64; 2]);

macro_rules! elements {
    ($($ty:ty: $datatype:ident;)*) => { $(
        impl Element for $ty { const DATATYPE: c_int = n::$datatype; }
    )* };
}

elements! {
    i8: INT8_T; i16: INT16_T; i32: INT32_T; i64: INT64_T;
    u8: UINT8_T; u16: UINT16_T; u32: UINT32_T; u64: UINT64_T;
    f32: FLOAT; f64: DOUBLE; LongDouble: LONG_DOUBLE;
    ComplexFloat: C_FLOAT_COMPLEX; ComplexDouble: C_DOUBLE_COMPLEX;
}

macro_rules! words {
    ($($ty:ty: $unsigned:ty;)*) => { $(
        impl Word for $ty {
            fn bits(self) -> u64 { u64::from(self.cast_bits()) }
            fn of(bits: u64) -> Self { <$ty as Cast>::from_cast(bits as $unsigned) }
        }
        impl Cast for $ty {
            type Unsigned = $unsigned;
            fn cast_bits(self) -> $unsigned { <$unsigned>::from_ne_bytes(self.to_ne_bytes()) }
            fn from_cast(bits: $unsigned) -> Self { <$ty>::from_ne_bytes(bits.to_ne_bytes()) }
        }
    )* };
}

trait Cast {
    type Unsigned;
    fn cast_bits(self) -> Self::Unsigned;
    fn from_cast(bits: Self::Unsigned) -> Self;
}

words! { i32: u32; u32: u32; f32: u32; i64: u64; u64: u64; f64: u64; }
