// SPDX-License-Identifier: BSD-3-Clause
//! Collectives: makes a `Planned` call from the program's arguments, and starts it.
//!
//! A plan holds a collective call with checked arguments as buffers, blocks and an operator. It is made once,
//! and may be started any number of times, whether the call blocks or not.
//!
//! Read next: `start.rs` (starts a call by its carrier, what carries a call out), `library.rs`,
//! `on_device.rs` and `flat.rs` (three of the carriers), `reduction.rs`, `neighborhood.rs`, `agreement.rs`.

mod agreement;
mod flat;
mod library;
mod neighborhood;
mod on_device;
mod reduction;
mod start;

use crate::args::{Address, Counts, Handle, In};
use crate::process::Process;
use crate::request::Planned;
use coll::{Call, CollBuffer};
use datatype::Buffer;
use error::{Class, Result, fail};
pub(crate) use flat::detach;
use objects::{Comm, constants};
use schedule::algorithm::Collective;
pub(crate) use start::queue_when_due;
use std::sync::Arc;

/// The program's arguments for a buffer: address, count and datatype.
#[derive(Clone, Copy)]
pub(crate) struct Typed(pub Address, pub i64, pub Handle);

/// The program's arguments for a buffer with a block for each rank: address, counts, displacements in
/// elements, and the datatype of all blocks.
pub(crate) struct Weighted(pub Address, pub Counts, pub Counts, pub Handle);

/// The program's arguments for a buffer with a block for each rank: address, counts, displacements in bytes,
/// and a datatype for each block.
pub(crate) struct TypedEach(pub Address, pub Counts, pub Counts, pub In<Handle>);

/// The program's arguments that all reductions have: both buffers, the datatype and the operator.
#[derive(Clone, Copy)]
pub(crate) struct Reduced {
    pub sendbuf: Address,
    pub recvbuf: Address,
    pub datatype: Handle,
    pub op: Handle,
}

/// This rank's place in a comm: its rank, the number of ranks in its own group, and the number of ranks in
/// the group with which it exchanges data (the remote group of an intercommunicator, else its own).
#[derive(Clone, Copy)]
struct Position {
    rank: usize,
    size: usize,
    partners: usize,
    is_inter: bool,
}

/// What a rank does in a collective with a root (MPI 5.0, section 6.2.3).
struct RootRole {
    /// The index of the root in `Members::peers`, the list of all processes of the comm.
    root: u32,
    is_root: bool,
    /// Whether this rank exchanges data with the root. On an intracommunicator this holds for all ranks, also
    /// the root.
    serves: bool,
    at: Position,
}

impl Position {
    #[inline]
    fn of(comm: &Comm) -> Position {
        let (size, partners) = (comm.size() as usize, comm.partners().size() as usize);
        Position { rank: comm.rank as usize, size, partners, is_inter: comm.remote.is_some() }
    }
}

impl RootRole {
    /// Whether this rank is in the root's group on an intercommunicator, but is not the root. Then only the
    /// arguments `comm` and `root` count.
    fn is_idle(&self) -> bool {
        !self.is_root && !self.serves
    }
}

// These functions are inlined, so that a call is made where it is used: a move takes long compared to a short
// call.
impl Process {
    #[inline(always)]
    pub(crate) fn plan_barrier(&mut self, comm: Handle) -> Result<Planned> {
        self.position(comm)?;
        Ok(Planned::new(comm, Call::new(Collective::Barrier, CollBuffer::None, CollBuffer::None)))
    }

    #[inline(always)]
    pub(crate) fn plan_bcast(&mut self, comm: Handle, root: i32, data: Typed) -> Result<Planned> {
        let role = self.role(comm, root)?;
        let output = if role.is_idle() { CollBuffer::None } else { CollBuffer::bytes(self.typed(data)?) };
        Ok(Planned::new(
            comm,
            Call { root: role.root, ..Call::new(Collective::Bcast, CollBuffer::None, output) },
        ))
    }

    #[inline(always)]
    pub(crate) fn plan_gather(
        &mut self,
        comm: Handle,
        root: i32,
        send: Typed,
        recv: Typed,
    ) -> Result<Planned> {
        let output =
            |process: &mut Process, partners| process.per_rank(recv, partners).map(CollBuffer::PerRank);
        self.gathering(Collective::Gather, comm, root, send, output)
    }

    pub(crate) fn plan_gatherv(
        &mut self,
        comm: Handle,
        root: i32,
        send: Typed,
        recv: Weighted,
    ) -> Result<Planned> {
        self.gathering(Collective::Gatherv, comm, root, send, |process, partners| {
            process.weighted(recv, partners)
        })
    }

    #[inline(always)]
    pub(crate) fn plan_scatter(
        &mut self,
        comm: Handle,
        root: i32,
        send: Typed,
        recv: Typed,
    ) -> Result<Planned> {
        let input =
            |process: &mut Process, partners| process.per_rank(send, partners).map(CollBuffer::PerRank);
        self.scattering(Collective::Scatter, comm, root, input, recv)
    }

    pub(crate) fn plan_scatterv(
        &mut self,
        comm: Handle,
        root: i32,
        send: Weighted,
        recv: Typed,
    ) -> Result<Planned> {
        let input = |process: &mut Process, partners| process.weighted(send, partners);
        self.scattering(Collective::Scatterv, comm, root, input, recv)
    }

    #[inline(always)]
    pub(crate) fn plan_allgather(&mut self, comm: Handle, send: Typed, recv: Typed) -> Result<Planned> {
        let position = self.position(comm)?;
        let in_place = self.in_place(comm, send.0)?;
        let input = if in_place { CollBuffer::None } else { CollBuffer::bytes(self.typed(send)?) };
        let output = CollBuffer::PerRank(self.per_rank(recv, position.partners)?);
        Ok(Planned::new(comm, Call { in_place, ..Call::new(Collective::Allgather, input, output) }))
    }

    pub(crate) fn plan_allgatherv(&mut self, comm: Handle, send: Typed, recv: Weighted) -> Result<Planned> {
        let position = self.position(comm)?;
        let in_place = self.in_place(comm, send.0)?;
        let input = if in_place { CollBuffer::None } else { CollBuffer::bytes(self.typed(send)?) };
        let output = self.weighted(recv, position.partners)?;
        Ok(Planned::new(comm, Call { in_place, ..Call::new(Collective::Allgatherv, input, output) }))
    }

    #[inline(always)]
    pub(crate) fn plan_alltoall(&mut self, comm: Handle, send: Typed, recv: Typed) -> Result<Planned> {
        let position = self.position(comm)?;
        let in_place = self.in_place(comm, send.0)?;
        let input = if in_place {
            CollBuffer::None
        } else {
            CollBuffer::PerRank(self.per_rank(send, position.partners)?)
        };
        let output = CollBuffer::PerRank(self.per_rank(recv, position.partners)?);
        Ok(Planned::new(comm, Call { in_place, ..Call::new(Collective::Alltoall, input, output) }))
    }

    pub(crate) fn plan_alltoallv(&mut self, comm: Handle, send: Weighted, recv: Weighted) -> Result<Planned> {
        let position = self.position(comm)?;
        let in_place = self.in_place(comm, send.0)?;
        let input = if in_place { CollBuffer::None } else { self.weighted(send, position.partners)? };
        let output = self.weighted(recv, position.partners)?;
        Ok(Planned::new(comm, Call { in_place, ..Call::new(Collective::Alltoallv, input, output) }))
    }

    pub(crate) fn plan_alltoallw(
        &mut self,
        comm: Handle,
        send: TypedEach,
        recv: TypedEach,
    ) -> Result<Planned> {
        let position = self.position(comm)?;
        let in_place = self.in_place(comm, send.0)?;
        let input = if in_place { CollBuffer::None } else { self.typed_each(send, position.partners)? };
        let output = self.typed_each(recv, position.partners)?;
        Ok(Planned::new(comm, Call { in_place, ..Call::new(Collective::Alltoallw, input, output) }))
    }
}

impl Process {
    /// Plans a gather or gatherv. Calls `output`, which makes the receive buffer, only on the root, where the
    /// arguments for it count.
    #[inline(always)]
    fn gathering(
        &mut self,
        collective: Collective,
        comm: Handle,
        root: i32,
        send: Typed,
        output: impl FnOnce(&mut Process, usize) -> Result<CollBuffer>,
    ) -> Result<Planned> {
        let role = self.role(comm, root)?;
        let in_place = role.serves && self.in_place(comm, send.0)?;
        if in_place && !role.is_root {
            fail!(Class::Buffer, "MPI_IN_PLACE is given as sendbuf, but only the root, rank {root}, may");
        }
        let input =
            if role.serves && !in_place { CollBuffer::bytes(self.typed(send)?) } else { CollBuffer::None };
        let output = if role.is_root { output(self, role.at.partners)? } else { CollBuffer::None };
        Ok(Planned::new(comm, Call { root: role.root, in_place, ..Call::new(collective, input, output) }))
    }

    /// Plans a scatter or scatterv. Calls `input`, which makes the send buffer, only on the root, where the
    /// arguments for it count.
    #[inline(always)]
    fn scattering(
        &mut self,
        collective: Collective,
        comm: Handle,
        root: i32,
        input: impl FnOnce(&mut Process, usize) -> Result<CollBuffer>,
        recv: Typed,
    ) -> Result<Planned> {
        let role = self.role(comm, root)?;
        let in_place = role.serves && self.in_place(comm, recv.0)?;
        if in_place && !role.is_root {
            fail!(Class::Buffer, "MPI_IN_PLACE is given as recvbuf, but only the root, rank {root}, may");
        }
        let output =
            if role.serves && !in_place { CollBuffer::bytes(self.typed(recv)?) } else { CollBuffer::None };
        let input = if role.is_root { input(self, role.at.partners)? } else { CollBuffer::None };
        Ok(Planned::new(comm, Call { root: role.root, in_place, ..Call::new(collective, input, output) }))
    }

    #[inline]
    fn position(&self, comm: Handle) -> Result<Position> {
        Ok(Position::of(self.objects.comm(comm)?))
    }

    #[inline(always)]
    fn role(&self, handle: Handle, root: i32) -> Result<RootRole> {
        let comm = self.objects.comm(handle)?;
        let at = Position::of(comm);
        match u32::try_from(root) {
            _ if at.is_inter => role_between(comm, root),
            Ok(root) if root < comm.size() => {
                Ok(RootRole { root, is_root: root == comm.rank, serves: true, at })
            }
            _ => fail!(Class::Root, "root {root} is not in this comm of {} processes", comm.size()),
        }
    }

    /// Whether `buffer` is MPI_IN_PLACE. Fails if it is, and `comm` is an intercommunicator (MPI 5.0, section
    /// 6.2.3).
    #[inline]
    fn in_place(&self, comm: Handle, buffer: Address) -> Result<bool> {
        if buffer.is_in_place() && self.objects.comm(comm)?.remote.is_some() {
            fail!(Class::Buffer, "MPI_IN_PLACE is given, but {comm} is an intercommunicator");
        }
        Ok(buffer.is_in_place())
    }

    pub(crate) fn typed(&mut self, Typed(address, count, datatype): Typed) -> Result<Buffer> {
        self.collective_buffer(address, count, datatype)
    }

    /// Returns a buffer with room for `count` elements for each of `blocks` ranks or neighbours.
    pub(crate) fn per_rank(
        &mut self,
        Typed(address, count, datatype): Typed,
        blocks: usize,
    ) -> Result<Buffer> {
        if count < 0 {
            fail!(Class::Count, "the count, {count}, is negative");
        }
        let Some(all) = count.checked_mul(blocks as i64) else {
            fail!(Class::Count, "{count} elements for each of {} processes are more than 2^63", blocks);
        };
        self.collective_buffer(address, all, datatype)
    }

    pub(crate) fn weighted(
        &mut self,
        Weighted(address, counts, displs, datatype): Weighted,
        blocks: usize,
    ) -> Result<CollBuffer> {
        let (counts, displs) = (counts.read(blocks)?, displs.read(blocks)?);
        let extent = self.objects.datatype(datatype)?.extent();
        let block = |process: &mut Process, at: usize| {
            let address = address.displaced(displs[at].wrapping_mul(extent), counts[at])?;
            process.collective_buffer(address, counts[at], datatype)
        };
        let buffers: Result<Vec<_>> = (0..blocks).map(|at| block(self, at)).collect();
        Ok(CollBuffer::Each(Arc::from(buffers?)))
    }

    pub(crate) fn typed_each(
        &mut self,
        TypedEach(address, counts, displs, types): TypedEach,
        blocks: usize,
    ) -> Result<CollBuffer> {
        let (counts, displs, types) = (counts.read(blocks)?, displs.read(blocks)?, types.read(blocks)?);
        let buffers: Result<Vec<_>> = (0..blocks)
            .map(|at| {
                self.collective_buffer(address.displaced(displs[at], counts[at])?, counts[at], types[at])
            })
            .collect();
        Ok(CollBuffer::Each(Arc::from(buffers?)))
    }
}

/// Returns what this rank does in a collective with a root on an intercommunicator, by its argument `root`.
#[cold]
fn role_between(comm: &Comm, root: i32) -> Result<RootRole> {
    let (local, partners) = comm.index_ranges();
    let (place, at) = (comm.own_index(), Position::of(comm));
    match u32::try_from(root) {
        Ok(rank) if (rank as usize) < partners.len() => {
            Ok(RootRole { root: partners.start as u32 + rank, is_root: false, serves: true, at })
        }
        _ if root == constants::ROOT => Ok(RootRole { root: place, is_root: true, serves: false, at }),
        // Only the root and the other group know the root. For the other ranks of this group any other rank
        // stands for it.
        _ if root == constants::PROC_NULL => {
            match local.map(|rank| rank as u32).find(|rank| *rank != place) {
                Some(other) => Ok(RootRole { root: other, is_root: false, serves: false, at }),
                None => {
                    fail!(Class::Root, "root is MPI_PROC_NULL, but nobody else of this group can be the root")
                }
            }
        }
        _ => fail!(
            Class::Root,
            "root {root} is neither in the remote group of {} processes nor MPI_ROOT or MPI_PROC_NULL",
            partners.len()
        ),
    }
}
