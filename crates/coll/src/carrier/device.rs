// SPDX-License-Identifier: BSD-3-Clause
//! The carrier of reductions by devices (GPUs): their kernels reduce data in the devices' memory. Members
//! tell each other whether their buffers are in device memory. If some rank's buffers are not, all members
//! use a schedule.

use super::{CallFacts, CallMode, CarrierFacts, Why};
use schedule::algorithm::Collective::*;
use schedule::order;

pub(super) fn takes(call: &CallFacts, facts: &CarrierFacts) -> Option<Why> {
    let policy = facts.policy;
    let is_on = facts.on_devices && policy.has_devices && !policy.is_checked;
    if !is_on || call.mode == CallMode::Persistent || !call.all_of_one_group || call.on_images {
        return None;
    }
    let reduces = matches!(call.collective, Allreduce | Reduce | ReduceScatter | ReduceScatterBlock);
    // Among more ranks schedules combine in another order.
    let is_in_ranks = (2..=order::IN_RANKS_MAX).contains(&call.members);
    (reduces && is_in_ranks && call.bytes >= policy.device_bytes_min).then_some(Why::Device)
}
