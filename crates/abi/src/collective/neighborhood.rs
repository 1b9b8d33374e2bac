// SPDX-License-Identifier: BSD-3-Clause
//! Plans neighborhood collectives (MPI 5.0, section 8.6). Their buffers have a block for each neighbour,
//! where other collectives have a block for each rank. They do not accept MPI_IN_PLACE.

use super::{Typed, TypedEach, Weighted};
use crate::args::Handle;
use crate::process::Process;
use crate::request::Planned;
use coll::{Call, CollBuffer};
use error::{Class, Result, fail};
use objects::Topology;
use schedule::algorithm::{Collective, Neighbors};
use std::sync::Arc;

impl Process {
    pub(crate) fn plan_neighbor_allgather(
        &mut self,
        comm: Handle,
        send: Typed,
        recv: Typed,
    ) -> Result<Planned> {
        let neighbors = self.neighbors(comm)?;
        let input = CollBuffer::bytes(self.typed(send)?);
        let output = CollBuffer::PerRank(self.per_rank(recv, neighbors.from.len())?);
        Ok(among(comm, neighbors, Collective::Allgather, input, output))
    }

    pub(crate) fn plan_neighbor_allgatherv(
        &mut self,
        comm: Handle,
        send: Typed,
        recv: Weighted,
    ) -> Result<Planned> {
        let neighbors = self.neighbors(comm)?;
        let input = CollBuffer::bytes(self.typed(send)?);
        let output = self.weighted(recv, neighbors.from.len())?;
        Ok(among(comm, neighbors, Collective::Allgatherv, input, output))
    }

    pub(crate) fn plan_neighbor_alltoall(
        &mut self,
        comm: Handle,
        send: Typed,
        recv: Typed,
    ) -> Result<Planned> {
        let neighbors = self.neighbors(comm)?;
        let input = CollBuffer::PerRank(self.per_rank(send, neighbors.to.len())?);
        let output = CollBuffer::PerRank(self.per_rank(recv, neighbors.from.len())?);
        Ok(among(comm, neighbors, Collective::Alltoall, input, output))
    }

    pub(crate) fn plan_neighbor_alltoallv(
        &mut self,
        comm: Handle,
        send: Weighted,
        recv: Weighted,
    ) -> Result<Planned> {
        let neighbors = self.neighbors(comm)?;
        let input = self.weighted(send, neighbors.to.len())?;
        let output = self.weighted(recv, neighbors.from.len())?;
        Ok(among(comm, neighbors, Collective::Alltoallv, input, output))
    }

    pub(crate) fn plan_neighbor_alltoallw(
        &mut self,
        comm: Handle,
        send: TypedEach,
        recv: TypedEach,
    ) -> Result<Planned> {
        let neighbors = self.neighbors(comm)?;
        let input = self.typed_each(send, neighbors.to.len())?;
        let output = self.typed_each(recv, neighbors.from.len())?;
        Ok(among(comm, neighbors, Collective::Alltoallw, input, output))
    }

    fn neighbors(&self, handle: Handle) -> Result<Arc<Neighbors>> {
        let comm = self.objects.comm(handle)?;
        let Some(topology) = comm.topology.as_deref() else {
            fail!(Class::Topology, "{handle} has no topology, so its processes have no neighbours");
        };
        let (to, from) = topology.neighbors(comm.rank);
        let loops = |list: &[Option<u32>]| list.iter().filter(|other| **other == Some(comm.rank)).count();
        if loops(&to) != loops(&from) {
            fail!(
                Class::Topology,
                "rank {} is among its own destinations and sources unequally often",
                comm.rank
            );
        }
        let paired = matches!(topology, Topology::Cart(_));
        Ok(Arc::new(Neighbors { rank: comm.rank, size: comm.size(), to, from, paired }))
    }
}

fn among(
    comm: Handle,
    neighbors: Arc<Neighbors>,
    collective: Collective,
    input: CollBuffer,
    output: CollBuffer,
) -> Planned {
    Planned::new(comm, Call { neighbors: Some(neighbors), ..Call::new(collective, input, output) })
}
