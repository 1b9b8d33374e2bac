// SPDX-License-Identifier: BSD-3-Clause
//! Neighborhood collectives (MPI 5.0, sections 8.6 to 8.8). `coll.rs` has the collectives of all ranks; here
//! the buffers have a block for each neighbour, not one for each rank.

use super::coll::forms;
use crate::args::{Address, Counts, Handle, In, Out};
use crate::collective::{Typed, TypedEach, Weighted};
use crate::process::Guard;
use error::Result;
use schedule::algorithm::Collective;

forms! {
    /// MPI_Neighbor_allgather, MPI_Ineighbor_allgather, MPI_Neighbor_allgather_init
    pub fn neighbor_allgather, ineighbor_allgather, neighbor_allgather_init(
        sendbuf: Address, sendcount: i64, sendtype: Handle,
        recvbuf: Address, recvcount: i64, recvtype: Handle, comm: Handle,
    ) = Allgather by plan_neighbor_allgather(
        comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)
    );

    /// MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, MPI_Neighbor_allgatherv_init
    pub fn neighbor_allgatherv, ineighbor_allgatherv, neighbor_allgatherv_init(
        sendbuf: Address, sendcount: i64, sendtype: Handle,
        recvbuf: Address, recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle,
    ) = Allgatherv by plan_neighbor_allgatherv(
        comm, Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype)
    );

    /// MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, MPI_Neighbor_alltoall_init
    pub fn neighbor_alltoall, ineighbor_alltoall, neighbor_alltoall_init(
        sendbuf: Address, sendcount: i64, sendtype: Handle,
        recvbuf: Address, recvcount: i64, recvtype: Handle, comm: Handle,
    ) = Alltoall by plan_neighbor_alltoall(
        comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)
    );

    /// MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, MPI_Neighbor_alltoallv_init
    pub fn neighbor_alltoallv, ineighbor_alltoallv, neighbor_alltoallv_init(
        sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtype: Handle,
        recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtype: Handle, comm: Handle,
    ) = Alltoallv by plan_neighbor_alltoallv(
        comm,
        Weighted(sendbuf, sendcounts, sdispls, sendtype),
        Weighted(recvbuf, recvcounts, rdispls, recvtype)
    );

    /// MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init
    pub fn neighbor_alltoallw, ineighbor_alltoallw, neighbor_alltoallw_init(
        sendbuf: Address, sendcounts: Counts, sdispls: In<i64>, sendtypes: In<Handle>,
        recvbuf: Address, recvcounts: Counts, rdispls: In<i64>, recvtypes: In<Handle>, comm: Handle,
    ) = Alltoallw by plan_neighbor_alltoallw(
        comm,
        TypedEach(sendbuf, sendcounts, Counts::Longs(sdispls), sendtypes),
        TypedEach(recvbuf, recvcounts, Counts::Longs(rdispls), recvtypes)
    );
}
