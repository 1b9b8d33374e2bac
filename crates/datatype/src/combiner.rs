// SPDX-License-Identifier: BSD-3-Clause
//! The names of the constructors of datatypes (MPI 5.0, section 5.1.13).

/// Names the constructor that made a datatype, with the numbers of the MPI_COMBINER constants in the standard
/// ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)] // The names are the standard's.
pub enum Combiner {
    Named = 101,
    Dup = 102,
    Contiguous = 103,
    Vector = 104,
    Hvector = 105,
    Indexed = 106,
    Hindexed = 107,
    IndexedBlock = 108,
    HindexedBlock = 109,
    Struct = 110,
    Subarray = 111,
    Darray = 112,
    F90Real = 113,
    F90Complex = 114,
    F90Integer = 115,
    Resized = 116,
    ValueIndex = 117,
}

/// The form of a constructor: with `int` arguments, or with MPI_Count arguments (`_c`). MPI_Type_get_envelope
/// tells them apart: the `_c` form records counts and displacements as large counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// The form of `MPI_Type_vector`: arguments of the types int and MPI_Aint.
    Int,
    /// The form of `MPI_Type_vector_c`: arguments of the type MPI_Count.
    Count,
}
