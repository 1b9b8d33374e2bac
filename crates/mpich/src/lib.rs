//! libmpi.so.12: the MPICH ABI over the same bodies as the standard ABI, for programs that were compiled for MPICH, Intel MPI or MVAPICH.
//!
//! Read next: `door.rs` (how numbers, handles and pointers are translated), `extra.rs` (what the standard ABI does not have).
//! Functions of the Fortran bindings are not here.
mod door;
mod extra;
mod face;
mod numbers;

/// Run by the loader before anything else of this library.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE: extern "C" fn() = choose;

extern "C" fn choose() {
    abi::face::choose(&door::FACE);
}
