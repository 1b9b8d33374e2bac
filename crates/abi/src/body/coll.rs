// SPDX-License-Identifier: BSD-3-Clause
//! Collective communication (MPI 5.0, chapter 6): the blocking and the nonblocking form of each collective.
//!
//! `crate::collective` checks a call and plans it, for both forms (`Guard::run`, `Guard::launch`).

use crate::args::{Address, Counts, Handle, In, Out};
use crate::collective::{Reduced, Typed, TypedEach, Weighted};
use crate::process::Guard;
use error::Result;

/// MPI_Barrier
pub fn barrier(guard: &mut Guard, comm: Handle) -> Result<()> {
    let planned = guard.plan_barrier(comm)?;
    guard.run(planned)
}

/// MPI_Ibarrier
pub fn ibarrier(guard: &mut Guard, comm: Handle, request: Out<Handle>) -> Result<()> {
    let planned = guard.plan_barrier(comm)?;
    guard.launch(planned, request)
}

/// MPI_Bcast
#[rustfmt::skip]
pub fn bcast(
    guard: &mut Guard, buffer: Address, count: i64, datatype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let planned = guard.plan_bcast(comm, root, Typed(buffer, count, datatype))?;
    guard.run(planned)
}

/// MPI_Ibcast
#[rustfmt::skip]
pub fn ibcast(
    guard: &mut Guard, buffer: Address, count: i64, datatype: Handle, root: i32, comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let data = Typed(buffer, count, datatype);
    let planned = guard.plan_bcast(comm, root, data)?;
    guard.launch(planned, request)
}

/// MPI_Gather
#[rustfmt::skip]
pub fn gather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_gather(comm, root, send, recv)?;
    guard.run(planned)
}

/// MPI_Igather
#[rustfmt::skip]
pub fn igather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_gather(comm, root, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Gatherv
#[rustfmt::skip]
pub fn gatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_gatherv(comm, root, send, recv)?;
    guard.run(planned)
}

/// MPI_Igatherv
#[rustfmt::skip]
pub fn igatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_gatherv(comm, root, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Scatter
#[rustfmt::skip]
pub fn scatter(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_scatter(comm, root, send, recv)?;
    guard.run(planned)
}

/// MPI_Iscatter
#[rustfmt::skip]
pub fn iscatter(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_scatter(comm, root, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Scatterv
#[rustfmt::skip]
pub fn scatterv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, displs: Counts, sendtype: Handle,
    recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Weighted(sendbuf, sendcounts, displs, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_scatterv(comm, root, send, recv)?;
    guard.run(planned)
}

/// MPI_Iscatterv
#[rustfmt::skip]
pub fn iscatterv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, displs: Counts, sendtype: Handle,
    recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Weighted(sendbuf, sendcounts, displs, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_scatterv(comm, root, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Allgather
#[rustfmt::skip]
pub fn allgather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_allgather(comm, send, recv)?;
    guard.run(planned)
}

/// MPI_Iallgather
#[rustfmt::skip]
pub fn iallgather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_allgather(comm, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Allgatherv
#[rustfmt::skip]
pub fn allgatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_allgatherv(comm, send, recv)?;
    guard.run(planned)
}

/// MPI_Iallgatherv
#[rustfmt::skip]
pub fn iallgatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_allgatherv(comm, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Alltoall
#[rustfmt::skip]
pub fn alltoall(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_alltoall(comm, send, recv)?;
    guard.run(planned)
}

/// MPI_Ialltoall
#[rustfmt::skip]
pub fn ialltoall(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_alltoall(comm, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Alltoallv
#[rustfmt::skip]
pub fn alltoallv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtype: Handle,
    recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtype: Handle, comm: Handle,
) -> Result<()> {
    let send = Weighted(sendbuf, sendcounts, sdispls, sendtype);
    let recv = Weighted(recvbuf, recvcounts, rdispls, recvtype);
    let planned = guard.plan_alltoallv(comm, send, recv)?;
    guard.run(planned)
}

/// MPI_Ialltoallv
#[rustfmt::skip]
pub fn ialltoallv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtype: Handle,
    recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtype: Handle, comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let send = Weighted(sendbuf, sendcounts, sdispls, sendtype);
    let recv = Weighted(recvbuf, recvcounts, rdispls, recvtype);
    let planned = guard.plan_alltoallv(comm, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Alltoallw
#[rustfmt::skip]
pub fn alltoallw(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtypes: In<Handle>,
    recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtypes: In<Handle>, comm: Handle,
) -> Result<()> {
    let send = TypedEach(sendbuf, sendcounts, sdispls, sendtypes);
    let recv = TypedEach(recvbuf, recvcounts, rdispls, recvtypes);
    let planned = guard.plan_alltoallw(comm, send, recv)?;
    guard.run(planned)
}

/// MPI_Ialltoallw
#[rustfmt::skip]
pub fn ialltoallw(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtypes: In<Handle>,
    recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtypes: In<Handle>, comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let send = TypedEach(sendbuf, sendcounts, sdispls, sendtypes);
    let recv = TypedEach(recvbuf, recvcounts, rdispls, recvtypes);
    let planned = guard.plan_alltoallw(comm, send, recv)?;
    guard.launch(planned, request)
}

/// MPI_Reduce
#[rustfmt::skip]
pub fn reduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    root: i32, comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_reduce(comm, root, count, data)?;
    guard.run(planned)
}

/// MPI_Ireduce
#[rustfmt::skip]
pub fn ireduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_reduce(comm, root, count, data)?;
    guard.launch(planned, request)
}

/// MPI_Allreduce
#[rustfmt::skip]
pub fn allreduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_allreduce(comm, count, data)?;
    guard.run(planned)
}

/// MPI_Iallreduce
#[rustfmt::skip]
pub fn iallreduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_allreduce(comm, count, data)?;
    guard.launch(planned, request)
}

/// MPI_Reduce_scatter_block
#[rustfmt::skip]
pub fn reduce_scatter_block(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcount: i64, datatype: Handle, op: Handle,
    comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_reduce_scatter_block(comm, recvcount, data)?;
    guard.run(planned)
}

/// MPI_Ireduce_scatter_block
#[rustfmt::skip]
pub fn ireduce_scatter_block(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcount: i64, datatype: Handle, op: Handle,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_reduce_scatter_block(comm, recvcount, data)?;
    guard.launch(planned, request)
}

/// MPI_Reduce_scatter
#[rustfmt::skip]
pub fn reduce_scatter(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcounts: Counts, datatype: Handle, op: Handle,
    comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_reduce_scatter(comm, recvcounts, data)?;
    guard.run(planned)
}

/// MPI_Ireduce_scatter
#[rustfmt::skip]
pub fn ireduce_scatter(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcounts: Counts, datatype: Handle, op: Handle,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_reduce_scatter(comm, recvcounts, data)?;
    guard.launch(planned, request)
}

/// MPI_Scan
#[rustfmt::skip]
pub fn scan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_scan(comm, count, data)?;
    guard.run(planned)
}

/// MPI_Iscan
#[rustfmt::skip]
pub fn iscan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_scan(comm, count, data)?;
    guard.launch(planned, request)
}

/// MPI_Exscan
#[rustfmt::skip]
pub fn exscan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_exscan(comm, count, data)?;
    guard.run(planned)
}

/// MPI_Iexscan
#[rustfmt::skip]
pub fn iexscan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_exscan(comm, count, data)?;
    guard.launch(planned, request)
}
