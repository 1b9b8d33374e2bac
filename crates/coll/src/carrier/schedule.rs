// SPDX-License-Identifier: BSD-3-Clause
//! A schedule, which takes every call. All members decide alike whether its edges between hosts are fetched;
//! each decides for itself what executes it.

use super::{CallFacts, CallMode, CarrierFacts, Policy, Why};
use executor::Offload;
use schedule::algorithm::Collective::*;

#[inline(always)]
pub(super) fn takes(_: &CallFacts, _: &CarrierFacts) -> Option<Why> {
    Some(Why::Scheduled)
}

/// The shortest edge of an exchange that is fetched where the kernel moves messages. Shorter edges are
/// messages of the ranks, which the kernel has taken before the program computes (docs/measured/hosts.md).
pub(super) const EXCHANGED_BYTES_MIN: u64 = 512 << 10;

/// Returns the length from which on proxies fetch the bytes of edges between hosts; ranks send shorter ones
/// as messages. It calls `call` for the facts only where some edge leads to another host.
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

/// Whether every edge of the call's schedule leads from a program's input to a program's output, so that no
/// edge waits for another.
fn is_exchange(call: &CallFacts) -> bool {
    matches!(call.collective, Alltoall | Alltoallv | Alltoallw)
}

/// Returns what the start of a schedule asks for. In a blocking call the rank only waits, and so executes the
/// schedule itself, unless OUTBOARD_OFFLOAD=on.
pub fn offload(policy: &Policy, mode: CallMode) -> Offload {
    if mode == CallMode::Blocking && policy.offload != Offload::On { Offload::Off } else { Offload::Auto }
}

/// Returns about how many bytes a rank sends and receives. None if the ranks do not know that number alike:
/// in v- and w-collectives, among neighbours, and on an intercommunicator.
fn common_bytes(call: &CallFacts) -> Option<u64> {
    let blocks = match call.collective {
        collective if !call.everybody || collective.has_counts() => return None,
        Gather | Scatter | Allgather | Alltoall => u64::from(call.members),
        _ => 1,
    };
    Some(call.bytes.saturating_mul(2 * blocks))
}
