// SPDX-License-Identifier: BSD-3-Clause
//! libmpi.so.12: the MPICH ABI over the bodies of the standard ABI, for programs compiled for MPICH, Intel
//! MPI or MVAPICH. Functions of the Fortran bindings are not here.
//!
//! Read next: `translate.rs` (numbers, handles, pointers), `extra.rs` (what the standard ABI does not have).
mod extra;
mod numbers;
mod shim;
mod translate;

/// Makes the loader call `choose` before anything else of this library.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE: extern "C" fn() = choose;

extern "C" fn choose() {
    abi::shim::choose(&translate::SHIM);
}
