// SPDX-License-Identifier: BSD-3-Clause
//! The lengths of Fortran arrays that have an element for each peer, neighbour or dimension of a comm. The
//! length is 0 for a comm that is not valid: C's function then reports the error.

use crate::c;
use std::ffi::c_int;

/// Which neighbours of a rank are counted: those to which it sends, or those from which it receives.
pub enum NeighborSide {
    Send,
    Receive,
}

/// Returns the number of ranks with which a collective on `comm` exchanges data: the size of the comm, or of
/// the remote group of an intercommunicator.
pub fn of(comm: i32) -> c_int {
    let (mut inter, mut size) = (0, 0);
    // SAFETY: C takes every number.
    let comm = unsafe { c::MPI_Comm_fromint(comm) };
    // SAFETY: the address of a local; C checks the handle.
    if unsafe { c::PMPI_Comm_test_inter(comm, &mut inter) } != c::SUCCESS {
        return 0;
    }
    let of = if inter == 0 { c::PMPI_Comm_size } else { c::PMPI_Comm_remote_size };
    // SAFETY: as above.
    unsafe { of(comm, &mut size) };
    size
}

/// Returns how many neighbours the calling rank has in the topology of `comm`, to send to or to receive from,
/// as `side` says.
pub fn neighbors(comm: i32, side: NeighborSide) -> c_int {
    let (mut kind, mut count, mut rank) = (c::UNDEFINED, 0, 0);
    // SAFETY: C takes every number.
    let handle = unsafe { c::MPI_Comm_fromint(comm) };
    // SAFETY: the address of a local; C checks the handle.
    unsafe { c::PMPI_Topo_test(handle, &mut kind) };
    if kind == c::CART {
        return 2 * dimensions(comm);
    }
    if kind == c::GRAPH {
        // SAFETY: as above.
        unsafe { c::PMPI_Comm_rank(handle, &mut rank) };
        // SAFETY: as above.
        unsafe { c::PMPI_Graph_neighbors_count(handle, rank, &mut count) };
        return count;
    }
    let (mut from, mut to, mut weighted) = (0, 0, 0);
    if kind == c::DIST_GRAPH {
        // SAFETY: as above.
        unsafe { c::PMPI_Dist_graph_neighbors_count(handle, &mut from, &mut to, &mut weighted) };
    }
    match side {
        NeighborSide::Send => to,
        NeighborSide::Receive => from,
    }
}

/// Returns how many dimensions the Cartesian topology of a comm has, or 0 if the comm has none.
pub fn dimensions(comm: i32) -> c_int {
    let mut dimensions = 0;
    // SAFETY: C takes every number.
    let comm = unsafe { c::MPI_Comm_fromint(comm) };
    // SAFETY: the address of a local; C checks the handle.
    unsafe { c::PMPI_Cartdim_get(comm, &mut dimensions) };
    dimensions
}
