// SPDX-License-Identifier: BSD-3-Clause
//! Neighborhood collectives (MPI 5.0, sections 8.6 to 8.8): the blocking, the nonblocking and the persistent
//! form of each. `Process::plan_neighbor_*` checks a call and plans it, for all three.

use super::persistent::persist;
use crate::args::{Address, Counts, Handle, In, Out};
use crate::collective::{Typed, TypedEach, Weighted};
use crate::process::Guard;
use error::Result;

/// MPI_Neighbor_allgather
#[rustfmt::skip]
pub fn neighbor_allgather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_neighbor_allgather(comm, send, recv)?;
    guard.run(planned)
}

/// MPI_Ineighbor_allgather
#[rustfmt::skip]
pub fn ineighbor_allgather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_neighbor_allgather(comm, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Neighbor_allgather_init
#[rustfmt::skip]
pub fn neighbor_allgather_init(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_neighbor_allgather(comm, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Neighbor_allgatherv
#[rustfmt::skip]
pub fn neighbor_allgatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_neighbor_allgatherv(comm, send, recv)?;
    guard.run(planned)
}

/// MPI_Ineighbor_allgatherv
#[rustfmt::skip]
pub fn ineighbor_allgatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_neighbor_allgatherv(comm, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Neighbor_allgatherv_init
#[rustfmt::skip]
pub fn neighbor_allgatherv_init(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_neighbor_allgatherv(comm, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Neighbor_alltoall
#[rustfmt::skip]
pub fn neighbor_alltoall(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_neighbor_alltoall(comm, send, recv)?;
    guard.run(planned)
}

/// MPI_Ineighbor_alltoall
#[rustfmt::skip]
pub fn ineighbor_alltoall(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_neighbor_alltoall(comm, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Neighbor_alltoall_init
#[rustfmt::skip]
pub fn neighbor_alltoall_init(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_neighbor_alltoall(comm, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Neighbor_alltoallv
#[rustfmt::skip]
pub fn neighbor_alltoallv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtype: Handle,
    recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtype: Handle, comm: Handle,
) -> Result<()> {
    let send = Weighted(sendbuf, sendcounts, sdispls, sendtype);
    let recv = Weighted(recvbuf, recvcounts, rdispls, recvtype);
    let planned = guard.plan_neighbor_alltoallv(comm, send, recv)?;
    guard.run(planned)
}

/// MPI_Ineighbor_alltoallv
#[rustfmt::skip]
pub fn ineighbor_alltoallv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtype: Handle,
    recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtype: Handle, comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let send = Weighted(sendbuf, sendcounts, sdispls, sendtype);
    let recv = Weighted(recvbuf, recvcounts, rdispls, recvtype);
    let planned = guard.plan_neighbor_alltoallv(comm, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Neighbor_alltoallv_init
#[rustfmt::skip]
pub fn neighbor_alltoallv_init(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtype: Handle,
    recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtype: Handle, comm: Handle, info: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let send = Weighted(sendbuf, sendcounts, sdispls, sendtype);
    let recv = Weighted(recvbuf, recvcounts, rdispls, recvtype);
    let planned = guard.plan_neighbor_alltoallv(comm, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Neighbor_alltoallw
#[rustfmt::skip]
pub fn neighbor_alltoallw(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: In<i64>, sendtypes: In<Handle>,
    recvbuf: Address, recvcounts: Counts, rdispls: In<i64>, recvtypes: In<Handle>, comm: Handle,
) -> Result<()> {
    let send = TypedEach(sendbuf, sendcounts, Counts::Longs(sdispls), sendtypes);
    let recv = TypedEach(recvbuf, recvcounts, Counts::Longs(rdispls), recvtypes);
    let planned = guard.plan_neighbor_alltoallw(comm, send, recv)?;
    guard.run(planned)
}

/// MPI_Ineighbor_alltoallw
#[rustfmt::skip]
pub fn ineighbor_alltoallw(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: In<i64>, sendtypes: In<Handle>,
    recvbuf: Address, recvcounts: Counts, rdispls: In<i64>, recvtypes: In<Handle>, comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let send = TypedEach(sendbuf, sendcounts, Counts::Longs(sdispls), sendtypes);
    let recv = TypedEach(recvbuf, recvcounts, Counts::Longs(rdispls), recvtypes);
    let planned = guard.plan_neighbor_alltoallw(comm, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Neighbor_alltoallw_init
#[rustfmt::skip]
pub fn neighbor_alltoallw_init(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: In<i64>, sendtypes: In<Handle>,
    recvbuf: Address, recvcounts: Counts, rdispls: In<i64>, recvtypes: In<Handle>, comm: Handle, info: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let send = TypedEach(sendbuf, sendcounts, Counts::Longs(sdispls), sendtypes);
    let recv = TypedEach(recvbuf, recvcounts, Counts::Longs(rdispls), recvtypes);
    let planned = guard.plan_neighbor_alltoallw(comm, send, recv)?;
    persist(guard, planned, info, request)
}
