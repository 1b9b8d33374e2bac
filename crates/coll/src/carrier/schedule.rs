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

/// The bytes from which on edges between hosts are fetched by proxies; shorter edges are messages of the
/// ranks. `call` is called only if there are such edges.
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

/// Whether edges lead from the program's input to its output, so that none waits for another.
fn is_exchange(call: &CallFacts) -> bool {
    matches!(call.collective, Alltoall | Alltoallv | Alltoallw)
}

/// What is to execute a schedule. A rank that only waits executes it itself, unless OUTBOARD_OFFLOAD=on.
pub fn offload(policy: &Policy, mode: CallMode) -> Offload {
    if mode == CallMode::Blocking && policy.offload != Offload::On { Offload::Off } else { Offload::Auto }
}

/// The bytes that a rank sends and receives, approximately. None if the ranks do not know them alike: in v-
/// and w-collectives, among neighbours, and on an intercommunicator.
fn common_bytes(call: &CallFacts) -> Option<u64> {
    let blocks = match call.collective {
        collective if !call.everybody || collective.has_counts() => return None,
        Gather | Scatter | Allgather | Alltoall => u64::from(call.members),
        _ => 1,
    };
    Some(call.bytes.saturating_mul(2 * blocks))
}
