// SPDX-License-Identifier: BSD-3-Clause
//! A schedule, which takes every call. Whether its edges between hosts are fetched, all members decide alike;
//! who executes it, each for itself.

use super::{Asked, Facts, Policy, Way, Why};
use executor::Offload;
use schedule::algorithm::Collective::*;

#[inline(always)]
pub(super) fn takes(_: &Asked, _: &Facts) -> Option<Why> {
    Some(Why::Scheduled)
}

/// Whether edges between hosts are fetched by proxies; else they are messages of the ranks, and no proxy
/// takes part. `asked` is only looked at where there are such edges.
pub fn is_fetched(policy: &Policy, way: Way, has_nodes: bool, asked: impl FnOnce() -> Asked) -> bool {
    let is_short = || common_bytes(&asked()).is_some_and(|bytes| bytes < policy.offload_bytes_min);
    policy.offload == Offload::On || way != Way::Blocking && !(has_nodes && is_short())
}

/// Who is to execute a schedule. A rank that only waits does so itself, unless OUTBOARD_OFFLOAD=on.
pub fn offload(policy: &Policy, way: Way) -> Offload {
    if way == Way::Blocking && policy.offload != Offload::On { Offload::Off } else { Offload::Auto }
}

/// The bytes that a rank sends and receives, about, if all ranks know them alike: not in v- and
/// w-collectives, nor among neighbours or on an intercommunicator.
fn common_bytes(asked: &Asked) -> Option<u64> {
    let blocks = match asked.collective {
        collective if !asked.everybody || collective.has_counts() => return None,
        Gather | Scatter | Allgather | Alltoall => u64::from(asked.members),
        _ => 1,
    };
    Some(asked.bytes.saturating_mul(2 * blocks))
}
