//! Collective communication (MPI 5.0, chapter 6): the blocking and the nonblocking form of each collective.
//!
//! `crate::collective` checks a call and plans it, for both forms. A short call needs no plan: it goes over
//! flat slots.

use crate::args::{Address, Counts, Handle, In, Out};
use crate::collective::{Reduced, Typed, TypedEach, Weighted};
use crate::fast::flat::{self, Prepared};
use crate::process::operation;
use crate::process::{Guard, Process};
use crate::request::Planned;
use error::Result;
use schedule::algorithm::Collective;

/// MPI_Barrier
pub fn barrier(guard: &mut Guard, comm: Handle) -> Result<()> {
    let prepared = flat::barrier(guard, comm);
    blocking(guard, prepared, |process| process.plan_barrier(comm))
}

/// MPI_Ibarrier
pub fn ibarrier(guard: &mut Guard, comm: Handle, request: Out<Handle>) -> Result<()> {
    nonblocking(
        guard,
        comm,
        request,
        |process| flat::barrier(process, comm),
        |process| process.plan_barrier(comm),
    )
}

/// MPI_Bcast
#[rustfmt::skip]
pub fn bcast(
    guard: &mut Guard, buffer: Address, count: i64, datatype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let prepared = flat::bcast(guard, comm, root, Typed(buffer, count, datatype));
    blocking(guard, prepared, |process| process.plan_bcast(comm, root, Typed(buffer, count, datatype)))
}

/// MPI_Ibcast
#[rustfmt::skip]
pub fn ibcast(
    guard: &mut Guard, buffer: Address, count: i64, datatype: Handle, root: i32, comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    let data = Typed(buffer, count, datatype);
    nonblocking(
        guard, comm, request,
        |process| flat::bcast(process, comm, root, data),
        |process| process.plan_bcast(comm, root, data),
    )
}

/// MPI_Gather
#[rustfmt::skip]
pub fn gather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let prepared = flat::between_root_and_all(guard, Collective::Gather, comm, root, send, recv);
    blocking(guard, prepared, |process| process.plan_gather(comm, root, send, recv))
}

/// MPI_Igather
#[rustfmt::skip]
pub fn igather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    nonblocking(
        guard, comm, request,
        |process| flat::between_root_and_all(process, Collective::Gather, comm, root, send, recv),
        |process| process.plan_gather(comm, root, send, recv),
    )
}

/// MPI_Gatherv
#[rustfmt::skip]
pub fn gatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_gatherv(comm, root, send, recv)?;
    run(guard, planned)
}

/// MPI_Igatherv
#[rustfmt::skip]
pub fn igatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_gatherv(comm, root, send, recv)?;
    launch(guard, planned, request)
}

/// MPI_Scatter
#[rustfmt::skip]
pub fn scatter(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let prepared = flat::between_root_and_all(guard, Collective::Scatter, comm, root, recv, send);
    blocking(guard, prepared, |process| process.plan_scatter(comm, root, send, recv))
}

/// MPI_Iscatter
#[rustfmt::skip]
pub fn iscatter(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    nonblocking(
        guard, comm, request,
        |process| flat::between_root_and_all(process, Collective::Scatter, comm, root, recv, send),
        |process| process.plan_scatter(comm, root, send, recv),
    )
}

/// MPI_Scatterv
#[rustfmt::skip]
pub fn scatterv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, displs: Counts, sendtype: Handle,
    recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Weighted(sendbuf, sendcounts, displs, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_scatterv(comm, root, send, recv)?;
    run(guard, planned)
}

/// MPI_Iscatterv
#[rustfmt::skip]
pub fn iscatterv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, displs: Counts, sendtype: Handle,
    recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Weighted(sendbuf, sendcounts, displs, sendtype), Typed(recvbuf, recvcount, recvtype));
    let planned = guard.plan_scatterv(comm, root, send, recv)?;
    launch(guard, planned, request)
}

/// MPI_Allgather
#[rustfmt::skip]
pub fn allgather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let prepared = flat::allgather(guard, comm, send, recv);
    blocking(guard, prepared, |process| process.plan_allgather(comm, send, recv))
}

/// MPI_Iallgather
#[rustfmt::skip]
pub fn iallgather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    nonblocking(
        guard, comm, request,
        |process| flat::allgather(process, comm, send, recv),
        |process| process.plan_allgather(comm, send, recv),
    )
}

/// MPI_Allgatherv
#[rustfmt::skip]
pub fn allgatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_allgatherv(comm, send, recv)?;
    run(guard, planned)
}

/// MPI_Iallgatherv
#[rustfmt::skip]
pub fn iallgatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address,
    recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype));
    let planned = guard.plan_allgatherv(comm, send, recv)?;
    launch(guard, planned, request)
}

/// MPI_Alltoall
#[rustfmt::skip]
pub fn alltoall(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    let prepared = flat::alltoall(guard, comm, send, recv);
    blocking(guard, prepared, |process| process.plan_alltoall(comm, send, recv))
}

/// MPI_Ialltoall
#[rustfmt::skip]
pub fn ialltoall(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64,
    recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let (send, recv) = (Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    nonblocking(
        guard, comm, request,
        |process| flat::alltoall(process, comm, send, recv),
        |process| process.plan_alltoall(comm, send, recv),
    )
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
    run(guard, planned)
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
    launch(guard, planned, request)
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
    run(guard, planned)
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
    launch(guard, planned, request)
}

/// MPI_Reduce
#[rustfmt::skip]
pub fn reduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    root: i32, comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let prepared = flat::reduction(guard, Collective::Reduce, comm, root, count, &data);
    blocking(guard, prepared, |process| process.plan_reduce(comm, root, count, data))
}

/// MPI_Ireduce
#[rustfmt::skip]
pub fn ireduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    nonblocking(
        guard, comm, request,
        |process| flat::reduction(process, Collective::Reduce, comm, root, count, &data),
        |process| process.plan_reduce(comm, root, count, data),
    )
}

/// MPI_Allreduce
#[rustfmt::skip]
pub fn allreduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    if let Some(ended) = flat::allreduce(guard, comm, count, &data) {
        return ended;
    }
    let prepared = flat::reduction(guard, Collective::Allreduce, comm, 0, count, &data);
    blocking(guard, prepared, |process| process.plan_allreduce(comm, count, data))
}

/// MPI_Iallreduce
#[rustfmt::skip]
pub fn iallreduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    nonblocking(
        guard, comm, request,
        |process| flat::reduction(process, Collective::Allreduce, comm, 0, count, &data),
        |process| process.plan_allreduce(comm, count, data),
    )
}

/// MPI_Reduce_scatter_block
#[rustfmt::skip]
pub fn reduce_scatter_block(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcount: i64, datatype: Handle, op: Handle,
    comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let prepared = flat::reduction(guard, Collective::ReduceScatterBlock, comm, 0, recvcount, &data);
    blocking(guard, prepared, |process| process.plan_reduce_scatter_block(comm, recvcount, data))
}

/// MPI_Ireduce_scatter_block
#[rustfmt::skip]
pub fn ireduce_scatter_block(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcount: i64, datatype: Handle, op: Handle,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    nonblocking(
        guard, comm, request,
        |process| flat::reduction(process, Collective::ReduceScatterBlock, comm, 0, recvcount, &data),
        |process| process.plan_reduce_scatter_block(comm, recvcount, data),
    )
}

/// MPI_Reduce_scatter
#[rustfmt::skip]
pub fn reduce_scatter(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcounts: Counts, datatype: Handle, op: Handle,
    comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let prepared = flat::reduce_scatter(guard, comm, &recvcounts, &data);
    blocking(guard, prepared, |process| process.plan_reduce_scatter(comm, recvcounts, data))
}

/// MPI_Ireduce_scatter
#[rustfmt::skip]
pub fn ireduce_scatter(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcounts: Counts, datatype: Handle, op: Handle,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    nonblocking(
        guard, comm, request,
        |process| flat::reduce_scatter(process, comm, &recvcounts, &data),
        |process| process.plan_reduce_scatter(comm, recvcounts, data),
    )
}

/// MPI_Scan
#[rustfmt::skip]
pub fn scan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let prepared = flat::reduction(guard, Collective::Scan, comm, 0, count, &data);
    blocking(guard, prepared, |process| process.plan_scan(comm, count, data))
}

/// MPI_Iscan
#[rustfmt::skip]
pub fn iscan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    nonblocking(
        guard, comm, request,
        |process| flat::reduction(process, Collective::Scan, comm, 0, count, &data),
        |process| process.plan_scan(comm, count, data),
    )
}

/// MPI_Exscan
#[rustfmt::skip]
pub fn exscan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    let prepared = flat::reduction(guard, Collective::Exscan, comm, 0, count, &data);
    blocking(guard, prepared, |process| process.plan_exscan(comm, count, data))
}

/// MPI_Iexscan
#[rustfmt::skip]
pub fn iexscan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    nonblocking(
        guard, comm, request,
        |process| flat::reduction(process, Collective::Exscan, comm, 0, count, &data),
        |process| process.plan_exscan(comm, count, data),
    )
}

/// Makes a call over flat slots if it is prepared for them, else by the schedule that `plan` makes.
#[inline(always)]
fn blocking(
    guard: &mut Guard,
    prepared: Option<Prepared>,
    plan: impl FnOnce(&mut Process) -> Result<Planned>,
) -> Result<()> {
    let mut operation = None;
    if let Some(mut prepared) = prepared {
        operation = guard.begun(prepared.0.comm, flat::told(&prepared.1));
        if guard.round(&mut prepared)? {
            operation::over(operation);
            return Ok(());
        }
    }
    let planned = plan(guard)?;
    run_timed(guard, planned, operation)
}

/// Enters a call into the comm's queue if `prepare` has one for it, else starts the schedule that `plan`
/// makes.
#[inline(always)]
fn nonblocking(
    guard: &mut Guard,
    comm: Handle,
    request: Out<Handle>,
    prepare: impl FnOnce(&mut Process) -> Option<Prepared>,
    plan: impl FnOnce(&mut Process) -> Result<Planned>,
) -> Result<()> {
    request.check()?;
    if let Some(work) = guard.enqueue(comm, prepare) {
        return request.set(guard.request(comm, work)?);
    }
    let planned = plan(guard)?;
    launch(guard, planned, request)
}

/// Runs a schedule and waits for it.
pub(crate) fn run(guard: &mut Guard, planned: Planned) -> Result<()> {
    run_timed(guard, planned, None)
}

/// As `run`. `operation` is the call's timing, if it has begun already.
fn run_timed(
    guard: &mut Guard,
    planned: Planned,
    operation: Option<Box<telemetry::Operation>>,
) -> Result<()> {
    let (comm, bytes) = planned.told();
    let operation = operation.or_else(|| guard.begun(comm, bytes));
    if guard.vector(&planned)? {
        operation::over(operation);
        return Ok(());
    }
    let mut work = planned.blocking().start(guard)?.1;
    work.follow(operation, &guard.job().coll);
    guard.finish(work).error.map_or(Ok(()), Err)
}

/// Starts a schedule and hands its request to the program.
pub(crate) fn launch(guard: &mut Guard, planned: Planned, request: Out<Handle>) -> Result<()> {
    request.check()?;
    let bytes = planned.told().1;
    let (comm, mut work) = planned.start(guard)?;
    let operation = guard.begun(comm, bytes);
    work.follow(operation, &guard.job().coll);
    request.set(guard.request(comm, work)?)
}
