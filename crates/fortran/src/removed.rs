// SPDX-License-Identifier: BSD-3-Clause
//! Procedures of MPICH's Fortran library that the standard's library does not have: procedures that MPI-3.0
//! removed (MPI 5.0, section 17.1) and old programs call, and MPI_SIZEOF for each type. In the standard's
//! library one MPI_SIZEOF serves all types, because it gets a descriptor.

use crate::{c, callback, fault};

/// Exports each procedure under its MPI and PMPI names. References and pointers are Fortran's arguments,
/// which are valid (see the contract in `lib.rs`).
macro_rules! removed {
    ($($name:ident $profiled:ident ($($argument:ident: $kind:ty),*) $code:expr;)*) => { $(
        removed!(@ $name ($($argument: $kind),*) $code);
        removed!(@ $profiled ($($argument: $kind),*) $code);
    )* };
    (@ $name:ident ($($argument:ident: $kind:ty),*) $code:expr) => {
        #[doc = concat!("`", stringify!($name), "`")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $kind,)* ierror: *mut i32) {
            fault::end(ierror, $code);
        }
    };
}

removed! {
    mpi_type_extent_ pmpi_type_extent_(datatype: &i32, extent: &mut i32) {
        bounds(*datatype, |_, whole| narrow(whole, extent))
    };
    mpi_type_lb_ pmpi_type_lb_(datatype: &i32, displacement: &mut i32) {
        bounds(*datatype, |lower, _| narrow(lower, displacement))
    };
    mpi_type_ub_ pmpi_type_ub_(datatype: &i32, displacement: &mut i32) {
        bounds(*datatype, |lower, whole| narrow(lower + whole, displacement))
    };
    mpi_address_ pmpi_address_(location: *mut std::ffi::c_void, address: &mut i32) {
        narrow(location.addr() as i64, address)
    };
    mpi_type_hvector_ pmpi_type_hvector_(count: &i32, length: &i32, stride: &i32, old: &i32, new: &mut i32) {
        // SAFETY: C checks the handle, and writes the new one.
        unsafe { c::MPI_Type_create_hvector(*count, *length, (*stride).into(), *old, new) }
    };
    mpi_type_hindexed_ pmpi_type_hindexed_
    (count: &i32, lengths: *mut i32, places: *const i32, old: &i32, new: &mut i32) {
        let mut places = wide(places, *count);
        // SAFETY: arrays of `count` elements; C checks the handle, and writes the new one.
        unsafe { c::MPI_Type_create_hindexed(*count, lengths, places.as_mut_ptr(), *old, new) }
    };
    mpi_type_struct_ pmpi_type_struct_
    (count: &i32, lengths: *mut i32, places: *const i32, old: *mut i32, new: &mut i32) {
        let mut places = wide(places, *count);
        // SAFETY: arrays of `count` elements; C checks the handles, and writes the new one.
        unsafe { c::MPI_Type_create_struct(*count, lengths, places.as_mut_ptr(), old, new) }
    };
    mpi_errhandler_create_ pmpi_errhandler_create_(function: usize, handler: &mut i32) {
        // SAFETY: a function of this library; C writes the handle.
        unsafe { c::MPI_Comm_create_errhandler(callback::comm_errhandler(function), handler) }
    };
    mpi_errhandler_get_ pmpi_errhandler_get_(comm: &i32, handler: &mut i32) {
        // SAFETY: C checks the handle, and writes the other.
        unsafe { c::MPI_Comm_get_errhandler(*comm, handler) }
    };
    mpi_errhandler_set_ pmpi_errhandler_set_(comm: &i32, handler: &i32) {
        // SAFETY: C checks the handles.
        unsafe { c::MPI_Comm_set_errhandler(*comm, *handler) }
    };
}

/// Calls `store` with the lower bound and the extent of `datatype`. Returns the code that `store` returns, or
/// the error code of MPI_Type_get_extent, if it fails.
fn bounds(datatype: i32, store: impl FnOnce(i64, i64) -> i32) -> i32 {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: the addresses of locals; C checks the handle.
    let code = unsafe { c::MPI_Type_get_extent(datatype, &mut lower, &mut extent) };
    if code == c::SUCCESS { store(lower, extent) } else { code }
}

/// Stores `value` as an INTEGER, and returns an error code. Fails if `value` does not fit an INTEGER. For
/// this reason MPI-3.0 removed the procedures that return such values as INTEGERs.
fn narrow(value: i64, to: &mut i32) -> i32 {
    let Ok(value) = i32::try_from(value) else {
        let sentence =
            format!("an INTEGER cannot hold {value}; the call that replaced this one has a longer kind");
        let error = fault::Error { class: c::ERR_ARG, sentence };
        return error.raise("a procedure that MPI-3.0 removed", fault::ErrorTarget::Nothing);
    };
    *to = value;
    c::SUCCESS
}

/// Converts an array of `count` displacements, which Fortran passes as INTEGERs, to 64 bits.
fn wide(places: *const i32, count: i32) -> Vec<i64> {
    let at = |index: usize| {
        // SAFETY: an array of `count` elements (contract of the crate).
        i64::from(unsafe { places.wrapping_add(index).read() })
    };
    (0..usize::try_from(count).unwrap_or(0)).map(at).collect()
}

/// Exports MPI_SIZEOF for each type, once for a variable and once for an array, under gfortran's names.
macro_rules! sizes {
    ($($of_one:ident $of_array:ident $bytes:literal;)*) => { $(
        sizes!(@ $of_one $bytes);
        sizes!(@ $of_array $bytes);
    )* };
    (@ $name:ident $bytes:literal) => {
        #[doc = "The bytes of a variable."]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)] // As gfortran writes it.
        pub extern "C" fn $name(_variable: *const std::ffi::c_void, size: &mut i32, ierror: *mut i32) {
            *size = $bytes;
            fault::end(ierror, c::SUCCESS);
        }
    };
}

sizes! {
    __mpi_sizeofs_MOD_mpi_sizeof_ch __mpi_sizeofs_MOD_mpi_sizeof_chv 1;
    __mpi_sizeofs_MOD_mpi_sizeof_cx __mpi_sizeofs_MOD_mpi_sizeof_cxv 8;
    __mpi_sizeofs_MOD_mpi_sizeof_d __mpi_sizeofs_MOD_mpi_sizeof_dv 8;
    __mpi_sizeofs_MOD_mpi_sizeof_i __mpi_sizeofs_MOD_mpi_sizeof_iv 4;
    __mpi_sizeofs_MOD_mpi_sizeof_i1 __mpi_sizeofs_MOD_mpi_sizeof_i1v 1;
    __mpi_sizeofs_MOD_mpi_sizeof_i2 __mpi_sizeofs_MOD_mpi_sizeof_i2v 2;
    __mpi_sizeofs_MOD_mpi_sizeof_i8 __mpi_sizeofs_MOD_mpi_sizeof_i8v 8;
    __mpi_sizeofs_MOD_mpi_sizeof_l __mpi_sizeofs_MOD_mpi_sizeof_lv 4;
    __mpi_sizeofs_MOD_mpi_sizeof_r __mpi_sizeofs_MOD_mpi_sizeof_rv 4;
}
