//! libmpi.so.12: the MPICH ABI over the same bodies as the standard ABI, for programs that were compiled for MPICH, Intel MPI or MVAPICH.
//!
//! Read next: `translate.rs` (how numbers, handles and pointers are translated), `extra.rs` (what the standard ABI does not have).
//! Functions of the Fortran bindings are not here.
mod extra;
mod numbers;
mod shim;
mod translate;

/// Run by the loader before anything else of this library.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE: extern "C" fn() = choose;

extern "C" fn choose() {
    abi::shim::choose(&translate::SHIM);
}
