//! Collective communication (MPI 5.0, chapter 6). Each collective is prepared once, in `crate::collective`; here stand its blocking
//! and its nonblocking form, which wait for it or hand it out.

use crate::args::{Address, Counts, Handle, In, Out};
use crate::collective::{Planned, Reduced, Typed, TypedEach, Weighted};
use crate::operation;
use crate::process::{Guard, Process};
use crate::short::{self, Prepared};
use error::Result;
use schedule::algorithm::Collective;

/// MPI_Barrier.
pub fn barrier(guard: &mut Guard, comm: Handle) -> Result<()> {
    let short = short::barrier(guard, comm);
    blocking(guard, short, |process| process.plan_barrier(comm))
}

/// MPI_Ibarrier.
pub fn ibarrier(guard: &mut Guard, comm: Handle, request: Out<Handle>) -> Result<()> {
    let short = |process: &mut Process| short::barrier(process, comm);
    nonblocking(guard, comm, short, |process| process.plan_barrier(comm), request)
}

/// MPI_Bcast.
#[rustfmt::skip]
pub fn bcast(
    guard: &mut Guard, buffer: Address, count: i64, datatype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let short = short::bcast(guard, comm, root, Typed(buffer, count, datatype));
    blocking(guard, short, |process| process.plan_bcast(comm, root, Typed(buffer, count, datatype)))
}

/// MPI_Ibcast.
#[rustfmt::skip]
pub fn ibcast(
    guard: &mut Guard, buffer: Address, count: i64, datatype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::bcast(process, comm, root, Typed(buffer, count, datatype));
    nonblocking(guard, comm, short, |process| process.plan_bcast(comm, root, Typed(buffer, count, datatype)), request)
}

/// MPI_Gather.
#[rustfmt::skip]
pub fn gather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let short = short::between_root_and_all(guard, Collective::Gather, comm, root, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    blocking(guard, short, |process| process.plan_gather(comm, root, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)))
}

/// MPI_Igather.
#[rustfmt::skip]
pub fn igather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::between_root_and_all(process, Collective::Gather, comm, root, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    nonblocking(guard, comm, short, |process| process.plan_gather(comm, root, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)), request)
}

/// MPI_Gatherv.
#[rustfmt::skip]
pub fn gatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcounts: Counts, displs: Counts, recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let planned = guard.plan_gatherv(comm, root, Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype))?;
    run(guard, planned)
}

/// MPI_Igatherv.
#[rustfmt::skip]
pub fn igatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcounts: Counts, displs: Counts, recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_gatherv(comm, root, Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype))?;
    launch(guard, planned, request)
}

/// MPI_Scatter.
#[rustfmt::skip]
pub fn scatter(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let short = short::between_root_and_all(guard, Collective::Scatter, comm, root, Typed(recvbuf, recvcount, recvtype), Typed(sendbuf, sendcount, sendtype));
    blocking(guard, short, |process| process.plan_scatter(comm, root, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)))
}

/// MPI_Iscatter.
#[rustfmt::skip]
pub fn iscatter(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::between_root_and_all(process, Collective::Scatter, comm, root, Typed(recvbuf, recvcount, recvtype), Typed(sendbuf, sendcount, sendtype));
    nonblocking(guard, comm, short, |process| process.plan_scatter(comm, root, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)), request)
}

/// MPI_Scatterv.
#[rustfmt::skip]
pub fn scatterv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, displs: Counts, sendtype: Handle, recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let planned = guard.plan_scatterv(comm, root, Weighted(sendbuf, sendcounts, displs, sendtype), Typed(recvbuf, recvcount, recvtype))?;
    run(guard, planned)
}

/// MPI_Iscatterv.
#[rustfmt::skip]
pub fn iscatterv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, displs: Counts, sendtype: Handle, recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_scatterv(comm, root, Weighted(sendbuf, sendcounts, displs, sendtype), Typed(recvbuf, recvcount, recvtype))?;
    launch(guard, planned, request)
}

/// MPI_Allgather.
#[rustfmt::skip]
pub fn allgather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64, recvtype: Handle, comm: Handle,
) -> Result<()> {
    let short = short::allgather(guard, comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    blocking(guard, short, |process| process.plan_allgather(comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)))
}

/// MPI_Iallgather.
#[rustfmt::skip]
pub fn iallgather(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64, recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::allgather(process, comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    nonblocking(guard, comm, short, |process| process.plan_allgather(comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)), request)
}

/// MPI_Allgatherv.
#[rustfmt::skip]
pub fn allgatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle,
) -> Result<()> {
    let planned = guard.plan_allgatherv(comm, Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype))?;
    run(guard, planned)
}

/// MPI_Iallgatherv.
#[rustfmt::skip]
pub fn iallgatherv(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_allgatherv(comm, Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype))?;
    launch(guard, planned, request)
}

/// MPI_Alltoall.
#[rustfmt::skip]
pub fn alltoall(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64, recvtype: Handle, comm: Handle,
) -> Result<()> {
    let short = short::alltoall(guard, comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    blocking(guard, short, |process| process.plan_alltoall(comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)))
}

/// MPI_Ialltoall.
#[rustfmt::skip]
pub fn ialltoall(
    guard: &mut Guard, sendbuf: Address, sendcount: i64, sendtype: Handle, recvbuf: Address, recvcount: i64, recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::alltoall(process, comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype));
    nonblocking(guard, comm, short, |process| process.plan_alltoall(comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)), request)
}

/// MPI_Alltoallv.
#[rustfmt::skip]
pub fn alltoallv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtype: Handle, recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtype: Handle, comm: Handle,
) -> Result<()> {
    let planned = guard.plan_alltoallv(comm, Weighted(sendbuf, sendcounts, sdispls, sendtype), Weighted(recvbuf, recvcounts, rdispls, recvtype))?;
    run(guard, planned)
}

/// MPI_Ialltoallv.
#[rustfmt::skip]
pub fn ialltoallv(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtype: Handle, recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtype: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_alltoallv(comm, Weighted(sendbuf, sendcounts, sdispls, sendtype), Weighted(recvbuf, recvcounts, rdispls, recvtype))?;
    launch(guard, planned, request)
}

/// MPI_Alltoallw.
#[rustfmt::skip]
pub fn alltoallw(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtypes: In<Handle>, recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtypes: In<Handle>, comm: Handle,
) -> Result<()> {
    let planned = guard.plan_alltoallw(comm, TypedEach(sendbuf, sendcounts, sdispls, sendtypes), TypedEach(recvbuf, recvcounts, rdispls, recvtypes))?;
    run(guard, planned)
}

/// MPI_Ialltoallw.
#[rustfmt::skip]
pub fn ialltoallw(
    guard: &mut Guard, sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtypes: In<Handle>, recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtypes: In<Handle>, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let planned = guard.plan_alltoallw(comm, TypedEach(sendbuf, sendcounts, sdispls, sendtypes), TypedEach(recvbuf, recvcounts, rdispls, recvtypes))?;
    launch(guard, planned, request)
}

/// MPI_Reduce.
#[rustfmt::skip]
pub fn reduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, root: i32, comm: Handle,
) -> Result<()> {
    let short = short::reduction(guard, Collective::Reduce, comm, root, count, &Reduced { sendbuf, recvbuf, datatype, op });
    blocking(guard, short, |process| process.plan_reduce(comm, root, count, Reduced { sendbuf, recvbuf, datatype, op }))
}

/// MPI_Ireduce.
#[rustfmt::skip]
pub fn ireduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, root: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::reduction(process, Collective::Reduce, comm, root, count, &Reduced { sendbuf, recvbuf, datatype, op });
    nonblocking(guard, comm, short, |process| process.plan_reduce(comm, root, count, Reduced { sendbuf, recvbuf, datatype, op }), request)
}

/// MPI_Allreduce.
#[rustfmt::skip]
pub fn allreduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, comm: Handle,
) -> Result<()> {
    let data = Reduced { sendbuf, recvbuf, datatype, op };
    if let Some(ended) = short::flat(guard, comm, count, &data) {
        return ended;
    }
    let short = short::reduction(guard, Collective::Allreduce, comm, 0, count, &data);
    blocking(guard, short, |process| process.plan_allreduce(comm, count, data))
}

/// MPI_Iallreduce.
#[rustfmt::skip]
pub fn iallreduce(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::reduction(process, Collective::Allreduce, comm, 0, count, &Reduced { sendbuf, recvbuf, datatype, op });
    nonblocking(guard, comm, short, |process| process.plan_allreduce(comm, count, Reduced { sendbuf, recvbuf, datatype, op }), request)
}

/// MPI_Reduce_scatter_block.
#[rustfmt::skip]
pub fn reduce_scatter_block(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcount: i64, datatype: Handle, op: Handle, comm: Handle,
) -> Result<()> {
    let short = short::reduction(guard, Collective::ReduceScatterBlock, comm, 0, recvcount, &Reduced { sendbuf, recvbuf, datatype, op });
    blocking(guard, short, |process| process.plan_reduce_scatter_block(comm, recvcount, Reduced { sendbuf, recvbuf, datatype, op }))
}

/// MPI_Ireduce_scatter_block.
#[rustfmt::skip]
pub fn ireduce_scatter_block(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcount: i64, datatype: Handle, op: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::reduction(process, Collective::ReduceScatterBlock, comm, 0, recvcount, &Reduced { sendbuf, recvbuf, datatype, op });
    nonblocking(guard, comm, short, |process| process.plan_reduce_scatter_block(comm, recvcount, Reduced { sendbuf, recvbuf, datatype, op }), request)
}

/// MPI_Reduce_scatter.
#[rustfmt::skip]
pub fn reduce_scatter(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcounts: Counts, datatype: Handle, op: Handle, comm: Handle,
) -> Result<()> {
    let short = short::reduce_scatter(guard, comm, &recvcounts, &Reduced { sendbuf, recvbuf, datatype, op });
    blocking(guard, short, |process| process.plan_reduce_scatter(comm, recvcounts, Reduced { sendbuf, recvbuf, datatype, op }))
}

/// MPI_Ireduce_scatter.
#[rustfmt::skip]
pub fn ireduce_scatter(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, recvcounts: Counts, datatype: Handle, op: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::reduce_scatter(process, comm, &recvcounts, &Reduced { sendbuf, recvbuf, datatype, op });
    nonblocking(guard, comm, short, |process| process.plan_reduce_scatter(comm, recvcounts, Reduced { sendbuf, recvbuf, datatype, op }), request)
}

/// MPI_Scan.
#[rustfmt::skip]
pub fn scan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, comm: Handle,
) -> Result<()> {
    let short = short::reduction(guard, Collective::Scan, comm, 0, count, &Reduced { sendbuf, recvbuf, datatype, op });
    blocking(guard, short, |process| process.plan_scan(comm, count, Reduced { sendbuf, recvbuf, datatype, op }))
}

/// MPI_Iscan.
#[rustfmt::skip]
pub fn iscan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::reduction(process, Collective::Scan, comm, 0, count, &Reduced { sendbuf, recvbuf, datatype, op });
    nonblocking(guard, comm, short, |process| process.plan_scan(comm, count, Reduced { sendbuf, recvbuf, datatype, op }), request)
}

/// MPI_Exscan.
#[rustfmt::skip]
pub fn exscan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, comm: Handle,
) -> Result<()> {
    let short = short::reduction(guard, Collective::Exscan, comm, 0, count, &Reduced { sendbuf, recvbuf, datatype, op });
    blocking(guard, short, |process| process.plan_exscan(comm, count, Reduced { sendbuf, recvbuf, datatype, op }))
}

/// MPI_Iexscan.
#[rustfmt::skip]
pub fn iexscan(
    guard: &mut Guard, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    let short = |process: &mut Process| short::reduction(process, Collective::Exscan, comm, 0, count, &Reduced { sendbuf, recvbuf, datatype, op });
    nonblocking(guard, comm, short, |process| process.plan_exscan(comm, count, Reduced { sendbuf, recvbuf, datatype, op }), request)
}

/// Makes a call over slots, or by a schedule where it is none for them.
#[inline(always)]
fn blocking(
    guard: &mut Guard,
    short: Option<Prepared>,
    plan: impl FnOnce(&mut Process) -> Result<Planned>,
) -> Result<()> {
    let mut operation = None;
    if let Some(short) = short {
        operation = guard.begun(short.0.comm, short::told(&short.1));
        if guard.round(&short)? {
            operation::over(operation);
            return Ok(());
        }
    }
    let planned = plan(guard)?;
    follow(guard, planned, operation)
}

/// Makes a call in the comm's queue, or by a schedule where it is none for that.
#[inline(always)]
fn nonblocking(
    guard: &mut Guard,
    comm: Handle,
    short: impl FnOnce(&mut Process) -> Option<Prepared>,
    plan: impl FnOnce(&mut Process) -> Result<Planned>,
    request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    if let Some(work) = guard.enqueue(comm, short) {
        return request.set(guard.request(comm, work)?);
    }
    let planned = plan(guard)?;
    launch(guard, planned, request)
}

pub(crate) fn run(guard: &mut Guard, planned: Planned) -> Result<()> {
    follow(guard, planned, None)
}

/// The same of a call that may be timed already.
fn follow(guard: &mut Guard, planned: Planned, operation: Option<Box<telemetry::Operation>>) -> Result<()> {
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

pub(crate) fn launch(guard: &mut Guard, planned: Planned, request: Out<Handle>) -> Result<()> {
    request.check()?;
    let bytes = planned.told().1;
    let (comm, mut work) = planned.start(guard)?;
    let operation = guard.begun(comm, bytes);
    work.follow(operation, &guard.job().coll);
    request.set(guard.request(comm, work)?)
}
