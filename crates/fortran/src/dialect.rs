// SPDX-License-Identifier: BSD-3-Clause
//! The types of MPI's C functions that the Fortran bindings use. A status is `STATUS_INTS` ints in C and in
//! Fortran.
#![allow(non_camel_case_types)] // The names are the standard's.

pub use crate::numbers::*;

/// The C type of most handles. In the standard ABI all handles are pointers, in MPICH all except files are
/// ints.
#[cfg(not(mpich))]
pub type Handle = usize;
#[cfg(mpich)]
pub type Handle = std::ffi::c_int;

pub type MPI_Comm = Handle;
pub type MPI_Datatype = Handle;
pub type MPI_Errhandler = Handle;
pub type MPI_File = usize;
pub type MPI_Group = Handle;
pub type MPI_Info = Handle;
pub type MPI_Message = Handle;
pub type MPI_Op = Handle;
pub type MPI_Request = Handle;
pub type MPI_Session = Handle;
pub type MPI_Win = Handle;

/// The number of ints in a status.
pub const STATUS_INTS: usize = F_STATUS_SIZE as usize;
