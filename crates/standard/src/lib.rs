//! libmpi_abi.so.1: the C entry points of the MPI-5.0 standard ABI, and nothing else.
mod shim;
