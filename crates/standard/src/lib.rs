// SPDX-License-Identifier: BSD-3-Clause
//! libmpi_abi.so.1: the C functions of the MPI-5.0 standard ABI, and those of include/mpi-ext.h.
mod extra;
mod shim;
