// SPDX-License-Identifier: BSD-3-Clause
//! The Fortran bindings as a library, `libmpifort_abi.so.1`: `mpi_send_` of `mpif.h` and `mpi`,
//! `MPI_Send_f08ts` of `mpi_f08`, and the PMPI forms of both.
//!
//! It calls the C functions of `libmpi_abi.so.1` by their names and nothing else of Outboard, so it works
//! with every library of the standard ABI. Statuses have one form in C and Fortran. Handles are converted by
//! `MPI_Comm_toint` and the like. Addresses with a special meaning (MPI_BOTTOM) are those of variables here.
//!
//! Contract of all unsafe code here: what Fortran passes is what the interfaces of the modules say; each
//! argument may be read, and written if it is an output (MPI 5.0, section 19.1). Read next: `memory.rs`
//! (special addresses), `section.rs` (array sections), `callback.rs`, then the generated `shim.rs`.

mod attribute;
mod by_hand;
mod c;
mod callback;
mod dialect;
mod fault;
mod handles;
mod logical;
mod memory;
#[rustfmt::skip]
mod numbers;
mod peers;
#[cfg(mpich)]
mod removed;
mod section;
mod shim;
mod text;
