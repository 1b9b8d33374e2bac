// SPDX-License-Identifier: BSD-3-Clause
//! Reductions on devices: which ones, and how the vector is cut.
//!
//! Invariant: whether ranks try follows from what all members know alike; whether they do, from what each
//! says in an exchange.
//! Read next: `request/on_device.rs`.

use super::start::next_members;
use crate::process::Guard;
use crate::request::{OnDevice, Planned, Share, Work};
use crate::staging::{self, Memory};
use coll::{Call, Part};
use datatype::Buffer;
use device::kernel::Reduction;
use error::Result;
use schedule::algorithm::Collective;
use schedule::order;
use sys::Span;

impl Guard {
    /// Starts a reduction on devices, if one is on, the call is long, and all members are on this host.
    ///
    /// Errors: those of starting a collective.
    pub(crate) fn on_device(&mut self, planned: &Planned) -> Result<Option<Work>> {
        let settings = settings::get();
        let Some(reduction) = reduction(&planned.call) else { return Ok(None) };
        let comm = self.objects.comm(planned.comm)?;
        let (rank, size) = (comm.rank as usize, comm.size());
        let everybody = comm.remote.is_none() && !planned.as_one && planned.imaged.is_none();
        let is_long = planned.call.bytes(size) >= settings.device_bytes_min as u64;
        let is_on = settings.device != settings::Device::Off && settings.check == 0;
        // Among more ranks schedules combine in another order.
        let is_in_ranks = (2..=order::IN_RANKS_MAX).contains(&size);
        if !is_in_ranks || !everybody || !is_long || !is_on || !self.are_here(&comm.everybody.clone()) {
            return Ok(None);
        }
        let share = share(&planned.call, reduction, rank, size as usize)
            .filter(|share| on_device(share.input) && on_device(share.sum) && share.is_ready())
            .and_then(with_aside);
        let (objects, job) = self.parts();
        let comm = objects.comms.get_mut(planned.comm)?;
        let members = std::array::from_fn(|_| next_members(comm, false));
        let usual = (planned.call.clone(), staging::take());
        let mut begun = OnDevice::start(planned.comm, share, members, usual, &mut job.coll)?;
        begun.operation = self.begun(|| planned.told());
        Ok(Some(Work::OnDevice(Box::new(begun))))
    }

    fn are_here(&mut self, peers: &[u32]) -> bool {
        let segment = self.job().membership.segment;
        peers.iter().all(|peer| segment.local(*peer).is_some())
    }
}

/// What kernels would reduce; nothing if it is no reduction for them.
fn reduction(call: &Call) -> Option<Reduction> {
    use Collective::*;
    let is_reduction = matches!(call.collective, Allreduce | Reduce | ReduceScatter | ReduceScatterBlock);
    let Some(executor::Reduction::Predefined { op, basic, .. }) = call.reduction else { return None };
    let reduction = Reduction { op, basic, count: 0, stride: basic.size() };
    (is_reduction && reduction.kernel().is_some()).then_some(reduction)
}

/// This rank's share; nothing if its buffers do not suit.
fn share(call: &Call, reduction: Reduction, rank: usize, size: usize) -> Option<Share> {
    use Collective::*;
    let output = call.output.buffers().first().map(user).unwrap_or(Some(Span::EMPTY))?;
    let input = call.input.buffers().first().map(user).unwrap_or(Some(output))?;
    let cut =
        |at: &dyn Fn(usize) -> usize| (0..size).map(|rank| (at(rank), at(rank + 1) - at(rank))).collect();
    let elements = input.bytes() / reduction.stride;
    let pieces: Vec<(usize, usize)> = match &call.input {
        // The root reduces all.
        _ if call.collective == Reduce => {
            cut(&|rank| if rank > call.root as usize { input.bytes() } else { 0 })
        }
        Part::CutAt { at, .. } => cut(&|rank| at[rank] as usize),
        _ => cut(&|rank| rank * elements / size * reduction.stride),
    };
    let (offset, bytes) = pieces[rank];
    let (sum, whole) = match call.collective {
        Allreduce => (output.slice(offset, bytes), Some(output)),
        // The result would lie over what others read.
        ReduceScatter | ReduceScatterBlock if call.in_place => return None,
        _ => (output.slice(0, bytes), None),
    };
    Some(Share { reduction, rank, pieces, input, sum, whole, aside: None })
}

/// The share with what it needs in place; nothing if the device has no memory for it.
fn with_aside(share: Share) -> Option<Share> {
    let (offset, bytes) = share.pieces[share.rank];
    let is_in_place = bytes > 0 && share.input.slice(offset, bytes).address() == share.sum.address();
    if share.rank == 0 || !is_in_place {
        return Some(share);
    }
    let aside = Some(Memory::new(bytes, true).ok()?);
    Some(Share { aside, ..share })
}

/// The program's memory, if it has no gaps.
fn user(buffer: &Buffer) -> Option<Span> {
    staging::user_of(buffer).contiguous()
}

/// Whether it is device memory, or nothing.
fn on_device(span: Span) -> bool {
    span.bytes() == 0 || device::holds(span.address(), span.bytes()).unwrap_or(false)
}
