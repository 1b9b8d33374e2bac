// SPDX-License-Identifier: BSD-3-Clause
//! Collective communication (MPI 5.0, chapter 6). One row of `forms!` makes the blocking, the nonblocking and
//! the persistent form of a collective.
//!
//! The module `crate::collective` checks the arguments of each call and makes a plan of them. A persistent
//! collective is planned once, by its initialization, which needs no traffic.

use crate::args::{Address, Counts, Handle, In, Out};
use crate::collective::{Reduced, Typed, TypedEach, Weighted};
use crate::process::Guard;
use error::Result;
use schedule::algorithm::Collective;

/// Makes the three functions of each collective. A row has their names and common parameters, the collective,
/// and the function that plans a call. The nonblocking function also takes a request, and the persistent
/// function takes an info and a request.
macro_rules! forms {
    ($($(#[$doc:meta])* pub fn $blocking:ident, $nonblocking:ident, $persistent:ident(
        $($parameter:ident: $type:ty),* $(,)?
    ) = $collective:ident by $plan:ident($($argument:expr),*);)*) => {
        $(
            $(#[$doc])*
            pub fn $blocking(guard: &mut Guard, $($parameter: $type),*) -> Result<()> {
                let mut planned = guard.$plan($($argument),*)?;
                planned.call.collective = Collective::$collective;
                guard.run(planned)
            }

            $(#[$doc])*
            pub fn $nonblocking(
                guard: &mut Guard, $($parameter: $type,)* request: Out<Handle>,
            ) -> Result<()> {
                let mut planned = guard.$plan($($argument),*)?;
                planned.call.collective = Collective::$collective;
                guard.start_nonblocking(planned, request)
            }

            $(#[$doc])*
            pub fn $persistent(
                guard: &mut Guard, $($parameter: $type,)* info: Handle, request: Out<Handle>,
            ) -> Result<()> {
                let mut planned = guard.$plan($($argument),*)?;
                planned.call.collective = Collective::$collective;
                guard.persist(planned, info, request)
            }
        )*
    };
}
pub(super) use forms;

forms! {
    /// MPI_Barrier, MPI_Ibarrier, MPI_Barrier_init
    pub fn barrier, ibarrier, barrier_init(comm: Handle) = Barrier by plan_barrier(comm);

    /// MPI_Bcast, MPI_Ibcast, MPI_Bcast_init
    pub fn bcast, ibcast, bcast_init(
        buffer: Address, count: i64, datatype: Handle, root: i32, comm: Handle,
    ) = Bcast by plan_bcast(comm, root, Typed(buffer, count, datatype));

    /// MPI_Gather, MPI_Igather, MPI_Gather_init
    pub fn gather, igather, gather_init(
        sendbuf: Address, sendcount: i64, sendtype: Handle,
        recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle,
    ) = Gather by plan_gather(
        comm, root, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)
    );

    /// MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init
    pub fn gatherv, igatherv, gatherv_init(
        sendbuf: Address, sendcount: i64, sendtype: Handle,
        recvbuf: Address, recvcounts: Counts, displs: Counts, recvtype: Handle, root: i32, comm: Handle,
    ) = Gatherv by plan_gatherv(
        comm, root, Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype)
    );

    /// MPI_Scatter, MPI_Iscatter, MPI_Scatter_init
    pub fn scatter, iscatter, scatter_init(
        sendbuf: Address, sendcount: i64, sendtype: Handle,
        recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle,
    ) = Scatter by plan_scatter(
        comm, root, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)
    );

    /// MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init
    pub fn scatterv, iscatterv, scatterv_init(
        sendbuf: Address, sendcounts: Counts, displs: Counts, sendtype: Handle,
        recvbuf: Address, recvcount: i64, recvtype: Handle, root: i32, comm: Handle,
    ) = Scatterv by plan_scatterv(
        comm, root, Weighted(sendbuf, sendcounts, displs, sendtype), Typed(recvbuf, recvcount, recvtype)
    );

    /// MPI_Allgather, MPI_Iallgather, MPI_Allgather_init
    pub fn allgather, iallgather, allgather_init(
        sendbuf: Address, sendcount: i64, sendtype: Handle,
        recvbuf: Address, recvcount: i64, recvtype: Handle, comm: Handle,
    ) = Allgather by plan_allgather(
        comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)
    );

    /// MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init
    pub fn allgatherv, iallgatherv, allgatherv_init(
        sendbuf: Address, sendcount: i64, sendtype: Handle,
        recvbuf: Address, recvcounts: Counts, displs: Counts, recvtype: Handle, comm: Handle,
    ) = Allgatherv by plan_allgatherv(
        comm, Typed(sendbuf, sendcount, sendtype), Weighted(recvbuf, recvcounts, displs, recvtype)
    );

    /// MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init
    pub fn alltoall, ialltoall, alltoall_init(
        sendbuf: Address, sendcount: i64, sendtype: Handle,
        recvbuf: Address, recvcount: i64, recvtype: Handle, comm: Handle,
    ) = Alltoall by plan_alltoall(
        comm, Typed(sendbuf, sendcount, sendtype), Typed(recvbuf, recvcount, recvtype)
    );

    /// MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init
    pub fn alltoallv, ialltoallv, alltoallv_init(
        sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtype: Handle,
        recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtype: Handle, comm: Handle,
    ) = Alltoallv by plan_alltoallv(
        comm,
        Weighted(sendbuf, sendcounts, sdispls, sendtype),
        Weighted(recvbuf, recvcounts, rdispls, recvtype)
    );

    /// MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init
    pub fn alltoallw, ialltoallw, alltoallw_init(
        sendbuf: Address, sendcounts: Counts, sdispls: Counts, sendtypes: In<Handle>,
        recvbuf: Address, recvcounts: Counts, rdispls: Counts, recvtypes: In<Handle>, comm: Handle,
    ) = Alltoallw by plan_alltoallw(
        comm,
        TypedEach(sendbuf, sendcounts, sdispls, sendtypes),
        TypedEach(recvbuf, recvcounts, rdispls, recvtypes)
    );

    /// MPI_Reduce, MPI_Ireduce, MPI_Reduce_init
    pub fn reduce, ireduce, reduce_init(
        sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, root: i32, comm: Handle,
    ) = Reduce by plan_reduce(comm, root, count, Reduced { sendbuf, recvbuf, datatype, op });

    /// MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init
    pub fn allreduce, iallreduce, allreduce_init(
        sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, comm: Handle,
    ) = Allreduce by plan_allreduce(comm, count, Reduced { sendbuf, recvbuf, datatype, op });

    /// MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init
    pub fn reduce_scatter_block, ireduce_scatter_block, reduce_scatter_block_init(
        sendbuf: Address, recvbuf: Address, recvcount: i64, datatype: Handle, op: Handle, comm: Handle,
    ) = ReduceScatterBlock by plan_reduce_scatter_block(
        comm, recvcount, Reduced { sendbuf, recvbuf, datatype, op }
    );

    /// MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init
    pub fn reduce_scatter, ireduce_scatter, reduce_scatter_init(
        sendbuf: Address, recvbuf: Address, recvcounts: Counts, datatype: Handle, op: Handle, comm: Handle,
    ) = ReduceScatter by plan_reduce_scatter(comm, recvcounts, Reduced { sendbuf, recvbuf, datatype, op });

    /// MPI_Scan, MPI_Iscan, MPI_Scan_init
    pub fn scan, iscan, scan_init(
        sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, comm: Handle,
    ) = Scan by plan_scan(comm, count, Reduced { sendbuf, recvbuf, datatype, op });

    /// MPI_Exscan, MPI_Iexscan, MPI_Exscan_init
    pub fn exscan, iexscan, exscan_init(
        sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle, comm: Handle,
    ) = Exscan by plan_exscan(comm, count, Reduced { sendbuf, recvbuf, datatype, op });
}
