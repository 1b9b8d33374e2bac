// SPDX-License-Identifier: BSD-3-Clause
//! A schedule, which takes every call. All members decide alike whether its edges between hosts are fetched;
//! each decides for itself what executes it.

use super::{Asked, Facts, Policy, Way, Why};
use executor::Offload;
use schedule::algorithm::Collective::*;

#[inline(always)]
pub(super) fn takes(_: &Asked, _: &Facts) -> Option<Why> {
    Some(Why::Scheduled)
}

/// The shortest edge of an exchange that is fetched where the kernel moves messages. Shorter edges are
/// messages of the ranks, which the kernel has taken before the program computes (docs/measured/hosts.md).
pub(super) const EXCHANGED_BYTES_MIN: u64 = 512 << 10;

/// The bytes from which on edges between hosts are fetched by proxies; shorter edges are messages of the
/// ranks. `asked` is called only if there are such edges.
pub fn fetched_bytes_min(policy: &Policy, way: Way, has_nodes: bool, asked: impl FnOnce() -> Asked) -> u64 {
    if policy.offload == Offload::On {
        return 0;
    }
    if way == Way::Blocking {
        return u64::MAX;
    }
    if !has_nodes {
        return 0;
    }
    let asked = asked();
    match common_bytes(&asked) {
        Some(bytes) if bytes < policy.offload_bytes_min => u64::MAX,
        _ if policy.is_carried_by_kernel && is_exchange(&asked) => EXCHANGED_BYTES_MIN,
        _ => 0,
    }
}

/// Whether edges lead from the program's input to its output, so that none waits for another.
fn is_exchange(asked: &Asked) -> bool {
    matches!(asked.collective, Alltoall | Alltoallv | Alltoallw)
}

/// What is to execute a schedule. A rank that only waits executes it itself, unless OUTBOARD_OFFLOAD=on.
pub fn offload(policy: &Policy, way: Way) -> Offload {
    if way == Way::Blocking && policy.offload != Offload::On { Offload::Off } else { Offload::Auto }
}

/// The bytes that a rank sends and receives, approximately. None if the ranks do not know them alike: in v-
/// and w-collectives, among neighbours, and on an intercommunicator.
fn common_bytes(asked: &Asked) -> Option<u64> {
    let blocks = match asked.collective {
        collective if !asked.everybody || collective.has_counts() => return None,
        Gather | Scatter | Allgather | Alltoall => u64::from(asked.members),
        _ => 1,
    };
    Some(asked.bytes.saturating_mul(2 * blocks))
}
