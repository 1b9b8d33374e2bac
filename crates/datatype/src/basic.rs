// SPDX-License-Identifier: BSD-3-Clause
//! The machine types of the predefined datatypes: length, alignment and arithmetic.

/// The machine type of the elements of a predefined datatype. Reductions choose their arithmetic by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // The names give signedness and bits.
#[rustfmt::skip]
pub enum Basic {
    I8, I16, I32, I64, U8, U16, U32, U64,
    F16, F32, F64, LongDouble, F128,
    /// Complex numbers. The name gives the bits of one part, real or imaginary.
    C16, C32, C64, CLongDouble,
    /// Logicals of C and Fortran. The name gives the bits; nonzero is true.
    L8, L16, L32, L64, L128,
    Byte,
    /// Pairs for MPI_MINLOC and MPI_MAXLOC: a value, then its index. In the packed form they have no padding.
    F32I32, F64I32, I64I32, I32I32, I16I32, LongDoubleI32, F32F32, F64F64,
    I128, C128,
    /// Characters of C and Fortran. Operators take MPI_CHAR and MPI_CHARACTER as the integer that C's `char`
    /// is, and refuse MPI_WCHAR.
    Char, WChar,
    /// A byte that MPI_Pack has made (MPI_PACKED). Only MPI_Unpack knows its meaning.
    Packed,
}

impl Basic {
    /// Returns the length of an element in the packed form, in bytes; pairs have no padding there.
    #[inline]
    pub const fn size(self) -> usize {
        use Basic::*;
        match self {
            I8 | U8 | L8 | Byte | Char | Packed => 1,
            I16 | U16 | F16 | L16 => 2,
            I32 | U32 | F32 | L32 | WChar | C16 => 4,
            I64 | U64 | F64 | L64 | C32 | F32I32 | I32I32 | F32F32 => 8,
            I16I32 => 6,
            F64I32 | I64I32 => 12,
            LongDouble | F128 | L128 | I128 | C64 | F64F64 => 16,
            LongDoubleI32 => 20,
            CLongDouble | C128 => 32,
        }
    }

    /// Returns the alignment, in bytes, that C and Fortran compilers give an element on x86-64 and aarch64
    /// Linux.
    pub const fn align(self) -> usize {
        use Basic::*;
        match self {
            I8 | U8 | L8 | Byte | Char | Packed => 1,
            I16 | U16 | F16 | L16 | C16 => 2,
            I32 | U32 | F32 | L32 | WChar | C32 | F32I32 | I32I32 | I16I32 | F32F32 => 4,
            I64 | U64 | F64 | L64 | C64 | F64I32 | I64I32 | F64F64 => 8,
            LongDouble | F128 | L128 | I128 | LongDoubleI32 | CLongDouble | C128 => 16,
        }
    }

    /// Returns the types of the value and of the index in a pair; None for any other type.
    pub const fn pair(self) -> Option<(Basic, Basic)> {
        use Basic::*;
        Some(match self {
            F32I32 => (F32, I32),
            F64I32 => (F64, I32),
            I64I32 => (I64, I32),
            I32I32 => (I32, I32),
            I16I32 => (I16, I32),
            LongDoubleI32 => (LongDouble, I32),
            F32F32 => (F32, F32),
            F64F64 => (F64, F64),
            _ => return None,
        })
    }

    /// Returns what an element is called in error messages, with an article.
    pub const fn describe(self) -> &'static str {
        use Basic::*;
        match self {
            I8 | I16 | I32 | I64 | I128 => "a signed integer",
            U8 | U16 | U32 | U64 => "an unsigned integer",
            F16 | F32 | F64 | LongDouble | F128 => "a floating-point number",
            C16 | C32 | C64 | CLongDouble | C128 => "a complex number",
            L8 | L16 | L32 | L64 | L128 => "a logical",
            Byte => "MPI_BYTE",
            Char | WChar => "a character",
            Packed => "MPI_PACKED",
            _ => "a value and index pair",
        }
    }

    #[rustfmt::skip]
    pub const ALL: [Basic; 36] = {
        use Basic::*;
        [
            I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64, LongDouble, F128, C16, C32, C64, CLongDouble,
            L8, L16, L32, L64, L128, Byte, F32I32, F64I32, I64I32, I32I32, I16I32, LongDoubleI32, F32F32,
            F64F64, I128, C128, Char, WChar, Packed,
        ]
    };

    /// Returns the machine type with this number (`basic as u8`), which may come from another process; None
    /// if no type has it.
    pub fn from_number(number: u8) -> Option<Basic> {
        Basic::ALL.get(number as usize).copied()
    }
}

/// The predefined operators (MPI 5.0, section 6.9.2). `Replace` and `NoOp` are for one-sided communication
/// only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // The names are the standard's.
#[rustfmt::skip]
pub enum PredefinedOp { Max, Min, Sum, Prod, Land, Band, Lor, Bor, Lxor, Bxor, Maxloc, Minloc, Replace, NoOp }

impl PredefinedOp {
    #[rustfmt::skip]
    pub const ALL: [PredefinedOp; 14] = {
        use PredefinedOp::*;
        [Max, Min, Sum, Prod, Land, Band, Lor, Bor, Lxor, Bxor, Maxloc, Minloc, Replace, NoOp]
    };

    /// Returns the operator with this number (`op as u8`), which may come from another process; None if no
    /// operator has it.
    pub fn from_number(number: u8) -> Option<PredefinedOp> {
        PredefinedOp::ALL.get(number as usize).copied()
    }

    /// Returns the operator that has this handle in the standard ABI; None if no predefined operator has this
    /// handle.
    pub fn from_handle(handle: u32) -> Option<PredefinedOp> {
        PredefinedOp::ALL.into_iter().find(|op| op.handle() == handle)
    }

    /// Returns the operator's handle in the standard ABI.
    pub const fn handle(self) -> u32 {
        use PredefinedOp::*;
        match self {
            Sum => 0x21,
            Min => 0x22,
            Max => 0x23,
            Prod => 0x24,
            Band => 0x28,
            Bor => 0x29,
            Bxor => 0x2a,
            Land => 0x30,
            Lor => 0x31,
            Lxor => 0x32,
            Minloc => 0x38,
            Maxloc => 0x39,
            Replace => 0x3c,
            NoOp => 0x3d,
        }
    }

    /// Returns the operator's name in the standard, such as `MPI_SUM`.
    pub const fn name(self) -> &'static str {
        use PredefinedOp::*;
        match self {
            Sum => "MPI_SUM",
            Min => "MPI_MIN",
            Max => "MPI_MAX",
            Prod => "MPI_PROD",
            Band => "MPI_BAND",
            Bor => "MPI_BOR",
            Bxor => "MPI_BXOR",
            Land => "MPI_LAND",
            Lor => "MPI_LOR",
            Lxor => "MPI_LXOR",
            Minloc => "MPI_MINLOC",
            Maxloc => "MPI_MAXLOC",
            Replace => "MPI_REPLACE",
            NoOp => "MPI_NO_OP",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lists_agree() {
        for (number, basic) in Basic::ALL.into_iter().enumerate() {
            assert_eq!(basic as usize, number);
            if let Some((value, index)) = basic.pair() {
                assert_eq!(basic.size(), value.size() + index.size());
                assert_eq!(basic.align(), value.align().max(index.align()));
            }
        }
        for (number, op) in PredefinedOp::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, number);
            assert_eq!(PredefinedOp::from_handle(op.handle()), Some(op));
        }
        assert_eq!(Basic::from_number(36), None);
        assert_eq!(PredefinedOp::from_number(14), None);
    }
}
