// SPDX-License-Identifier: BSD-3-Clause
//! A schedule (the plan of a collective as data), which takes every call. All members decide alike whether
//! proxies fetch the bytes of its edges between hosts; an edge is a send and its receive. Each member decides
//! for itself whether it or its proxy executes the schedule.

use super::{CallFacts, CallMode, CarrierFacts, Policy, Why};
use executor::Offload;
use schedule::algorithm::Collective::*;

#[inline(always)]
pub(super) fn takes(_: &CallFacts, _: &CarrierFacts) -> Option<Why> {
    Some(Why::Scheduled)
}

/// The shortest edge (a send and its receive), in bytes, that a proxy fetches in an all-to-all where the
/// kernel moves messages. Ranks send shorter edges as messages: the kernel has then copied the bytes before
/// the program starts to compute (docs/measured/hosts.md).
pub(super) const EXCHANGED_BYTES_MIN: u64 = 512 << 10;

/// Returns the length in bytes from which on proxies fetch an edge (a send and its receive) between hosts.
/// Ranks send shorter edges as messages. `call` returns the facts of the call; this function calls it only
/// where some edge may lead to another host.
pub fn fetched_bytes_min(
    policy: &Policy,
    mode: CallMode,
    has_nodes: bool,
    call: impl FnOnce() -> CallFacts,
) -> u64 {
    if policy.offload == Offload::On {
        return 0;
    }
    if mode == CallMode::Blocking {
        return u64::MAX;
    }
    if !has_nodes {
        return 0;
    }
    let call = call();
    match common_bytes(&call) {
        Some(bytes) if bytes < policy.offload_bytes_min => u64::MAX,
        _ if policy.is_carried_by_kernel && is_exchange(&call) => EXCHANGED_BYTES_MIN,
        _ => 0,
    }
}

/// Whether each edge of the call's schedule moves a block of one rank's input into another rank's output, so
/// that no edge waits for another.
fn is_exchange(call: &CallFacts) -> bool {
    matches!(call.collective, Alltoall | Alltoallv | Alltoallw)
}

/// Returns whether a schedule is started for a proxy or for the rank itself. In a blocking call the rank only
/// waits, and so executes the schedule itself, unless OUTBOARD_OFFLOAD=on.
pub fn offload(policy: &Policy, mode: CallMode) -> Offload {
    if mode == CallMode::Blocking && policy.offload != Offload::On { Offload::Off } else { Offload::Auto }
}

/// Returns the approximate number of bytes that a rank sends and receives. Returns None where that number may
/// differ among ranks: in v- and w-collectives, among neighbours, and on an intercommunicator.
fn common_bytes(call: &CallFacts) -> Option<u64> {
    let blocks = match call.collective {
        collective if !call.all_of_one_group || collective.has_counts() => return None,
        Gather | Scatter | Allgather | Alltoall => u64::from(call.members),
        _ => 1,
    };
    Some(call.bytes.saturating_mul(2 * blocks))
}
