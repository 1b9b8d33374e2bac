// SPDX-License-Identifier: BSD-3-Clause
//! Starts reductions that kernels of the ranks' devices compute, and divides the vector among the ranks.
//!
//! Invariants: whether the ranks try such a reduction (`coll/carrier/device.rs`) follows from what all
//! members know. Whether they carry it out follows from what each member reports in an exchange. If not, a
//! schedule does. Read next: `request/on_device.rs`.

use super::start::next_members;
use crate::process::Guard;
use crate::request::{DeviceShare, OnDevice, Planned, Work};
use crate::staging::{self, StandInMemory};
use coll::{Call, CollBuffer};
use datatype::Buffer;
use device::kernel::KernelReduction;
use error::Result;
use schedule::algorithm::Collective;
use sys::Span;

impl Guard {
    /// Whether all members of the comm are on this host, and there is a device kernel for the call's
    /// reduction.
    pub(super) fn are_on_devices(&mut self, planned: &Planned) -> Result<bool> {
        let peers = self.objects.comm(planned.comm)?.all_peers.clone();
        Ok(reduction(&planned.call).is_some() && self.are_here(&peers))
    }

    /// Starts a reduction by device kernels.
    ///
    /// Errors: the members first exchange what each can do, and the collective that does this cannot start.
    pub(super) fn on_device(&mut self, planned: &Planned) -> Result<Work> {
        let reduction = reduction(&planned.call).expect("the choice has found one");
        let comm = self.objects.comm(planned.comm)?;
        let (rank, size) = (comm.rank as usize, comm.size());
        let share = share(&planned.call, reduction, rank, size as usize)
            .filter(|share| on_device(share.input) && on_device(share.sum) && share.is_ready())
            .and_then(with_aside);
        let (objects, job) = self.parts();
        let comm = objects.comms.get_mut(planned.comm)?;
        let members = std::array::from_fn(|_| next_members(comm, false));
        let usual = (planned.call.clone(), staging::take());
        let mut started = OnDevice::start(planned.comm, share, members, usual, &mut job.coll)?;
        started.operation = self.record_collective(|| planned.traced());
        Ok(Work::OnDevice(Box::new(started)))
    }

    fn are_here(&mut self, peers: &[u32]) -> bool {
        let segment = self.job().membership.segment;
        peers.iter().all(|peer| segment.local(*peer).is_some())
    }
}

/// Returns the reduction that a device kernel would compute for a call, or None if there is no kernel for it.
fn reduction(call: &Call) -> Option<KernelReduction> {
    use Collective::*;
    let is_reduction = matches!(call.collective, Allreduce | Reduce | ReduceScatter | ReduceScatterBlock);
    let Some(executor::Reduction::Predefined { op, basic, .. }) = call.reduction else { return None };
    let reduction = KernelReduction { op, basic, count: 0, stride: basic.size() };
    (is_reduction && reduction.kernel().is_some()).then_some(reduction)
}

/// Returns this rank's part in a reduction by device kernels. Returns None if its buffers have gaps, or if
/// its result would overwrite bytes that other ranks read.
fn share(call: &Call, reduction: KernelReduction, rank: usize, size: usize) -> Option<DeviceShare> {
    use Collective::*;
    let output = call.output.buffers().first().map(program_memory).unwrap_or(Some(Span::EMPTY))?;
    let input = call.input.buffers().first().map(program_memory).unwrap_or(Some(output))?;
    let cut =
        |at: &dyn Fn(usize) -> usize| (0..size).map(|rank| (at(rank), at(rank + 1) - at(rank))).collect();
    let elements = input.bytes() / reduction.stride;
    let pieces: Vec<(usize, usize)> = match &call.input {
        // The root reduces the whole vector.
        _ if call.collective == Reduce => {
            cut(&|rank| if rank > call.root as usize { input.bytes() } else { 0 })
        }
        CollBuffer::CutAt { at, .. } => cut(&|rank| at[rank] as usize),
        _ => cut(&|rank| rank * elements / size * reduction.stride),
    };
    let (offset, bytes) = pieces[rank];
    let (sum, whole) = match call.collective {
        Allreduce => (output.slice(offset, bytes), Some(output)),
        // The result would overwrite what other ranks read.
        ReduceScatter | ReduceScatterBlock if call.in_place => return None,
        _ => (output.slice(0, bytes), None),
    };
    Some(DeviceShare { reduction, rank, pieces, input, sum, whole, aside: None })
}

/// Adds device memory to `share` for a copy of this rank's operand, if the reduction is in place. Returns
/// None if the device has no memory for it.
fn with_aside(share: DeviceShare) -> Option<DeviceShare> {
    let (offset, bytes) = share.pieces[share.rank];
    let is_in_place = bytes > 0 && share.input.slice(offset, bytes).address() == share.sum.address();
    if share.rank == 0 || !is_in_place {
        return Some(share);
    }
    let aside = Some(StandInMemory::new(bytes, true).ok()?);
    Some(DeviceShare { aside, ..share })
}

/// Returns the program's memory of a buffer, on a device or not, or None if that memory has gaps.
fn program_memory(buffer: &Buffer) -> Option<Span> {
    staging::user_of(buffer).contiguous()
}

/// Whether `span` is device memory, or empty.
fn on_device(span: Span) -> bool {
    span.bytes() == 0 || device::holds(span.address(), span.bytes()).unwrap_or(false)
}
