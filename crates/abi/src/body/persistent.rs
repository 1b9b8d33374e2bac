// SPDX-License-Identifier: BSD-3-Clause
//! Persistent collectives (MPI 5.0, section 6.13): planned once, as in `coll.rs`, and started by MPI_Start.
//!
//! The arguments are checked at initialization, which needs no traffic. Hints in the info change nothing.

use super::request::enter_persistent;
use crate::args::{Address, Counts, Handle, In, Out};
use crate::collective::{Reduced, Typed, TypedEach, Weighted};
use crate::process::Guard;
use crate::request::{Planned, Recipe};
use error::Result;

/// MPI_Barrier_init
pub fn barrier_init(guard: &mut Guard, comm: Handle, info: Handle, request: Out<Handle>) -> Result<()> {
    let planned = guard.plan_barrier(comm)?;
    persist(guard, planned, info, request)
}

/// MPI_Bcast_init
#[rustfmt::skip]
pub fn bcast_init(
    guard: &mut Guard, buffer: Address, count: i64, datatype: Handle, root: i32, comm: Handle, info: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_bcast(comm, root, Typed(buffer, count, datatype))?;
    persist(guard, planned, info, request)
}

/// MPI_Gather_init
#[rustfmt::skip]
pub fn gather_init(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, root: i32, comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_gather(comm, root, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Gatherv_init
#[rustfmt::skip]
pub fn gatherv_init(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, root: i32, comm: Handle, info: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_gatherv(comm, root, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Scatter_init
#[rustfmt::skip]
pub fn scatter_init(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, root: i32, comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_scatter(comm, root, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Scatterv_init
#[rustfmt::skip]
pub fn scatterv_init(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, displs: Counts, sendtype: Handle,
    recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle, info: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Weighted(sendbuf, sendcounts, displs, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_scatterv(comm, root, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Allgather_init
#[rustfmt::skip]
pub fn allgather_init(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_allgather(comm, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Allgatherv_init
#[rustfmt::skip]
pub fn allgatherv_init(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_allgatherv(comm, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Alltoall_init
#[rustfmt::skip]
pub fn alltoall_init(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_alltoall(comm, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Alltoallv_init
#[rustfmt::skip]
pub fn alltoallv_init(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtype: Handle,
    recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtype: Handle, comm: Handle, info: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let send = Weighted(sendbuf, sendcounts, sdispls, sendtype);
    let recv = Weighted(recvbuf, recvcounts, rdispls, recvtype);
    let planned = guard.plan_alltoallv(comm, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Alltoallw_init
#[rustfmt::skip]
pub fn alltoallw_init(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtypes: In<Handle>,
    recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtypes: In<Handle>, comm: Handle, info: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let send = TypedEach(sendbuf, sendcounts, sdispls, sendtypes);
    let recv = TypedEach(recvbuf, recvcounts, rdispls, recvtypes);
    let planned = guard.plan_alltoallw(comm, send, recv)?;
    persist(guard, planned, info, request)
}

/// MPI_Reduce_init
#[rustfmt::skip]
pub fn reduce_init(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    root: i32, comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_reduce(comm, root, count, Reduced { sendbuf, recvbuf, datatype, op })?;
    persist(guard, planned, info, request)
}

/// MPI_Allreduce_init
#[rustfmt::skip]
pub fn allreduce_init(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_allreduce(comm, count, Reduced { sendbuf, recvbuf, datatype, op })?;
    persist(guard, planned, info, request)
}

/// MPI_Reduce_scatter_block_init
#[rustfmt::skip]
pub fn reduce_scatter_block_init(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcount: i64, datatype: Handle, op: Handle,
    comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let planned = guard.plan_reduce_scatter_block(comm, recvcount, data)?;
    persist(guard, planned, info, request)
}

/// MPI_Reduce_scatter_init
#[rustfmt::skip]
pub fn reduce_scatter_init(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcounts: Counts, datatype: Handle, op: Handle,
    comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_reduce_scatter(comm, recvcounts, Reduced { sendbuf, recvbuf, datatype, op })?;
    persist(guard, planned, info, request)
}

/// MPI_Scan_init
#[rustfmt::skip]
pub fn scan_init(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_scan(comm, count, Reduced { sendbuf, recvbuf, datatype, op })?;
    persist(guard, planned, info, request)
}

/// MPI_Exscan_init
#[rustfmt::skip]
pub fn exscan_init(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle, info: Handle, request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_exscan(comm, count, Reduced { sendbuf, recvbuf, datatype, op })?;
    persist(guard, planned, info, request)
}

/// Keeps a plan in a persistent request.
pub(crate) fn persist(guard: &mut Guard, planned: Planned, info: Handle, request: Out<Handle>) -> Result<()> {
    planned.check()?;
    request.check()?;
    guard.objects.info_or_empty(info)?;
    let (comm, mut recipe) = planned.made_by(guard.doing.0).persist(guard)?;
    if device::on()
        && let Recipe::Coll { planned, members, library, .. } = &mut recipe
    {
        *library = guard.persist_by_library(planned, members.context)?;
    }
    enter_persistent(guard, comm, recipe, request)
}
