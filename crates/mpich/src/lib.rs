// SPDX-License-Identifier: BSD-3-Clause
//! libmpi.so.12: the C functions of the MPICH ABI, for programs compiled for MPICH, Intel MPI or MVAPICH.
//! They call the same functions of the crate `abi` as the standard ABI's do. MPICH's Fortran bindings are
//! another library.
//!
//! Read next: `translate.rs` (numbers, handles, pointers), `extra.rs` (what the standard ABI does not have).
mod extra;
mod numbers;
mod shim;
mod translate;

/// Makes the loader call the function `choose` before any other code of this library.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE: extern "C" fn() = choose;

extern "C" fn choose() {
    abi::shim::choose(&translate::SHIM);
}
