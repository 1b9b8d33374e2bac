// SPDX-License-Identifier: BSD-3-Clause
//! Decides whether the collective library that OUTBOARD_CCL names (NCCL or its like) carries a collective
//! out.

use super::{CallFacts, CarrierFacts, Why};
use schedule::algorithm::Collective::*;

/// The fewest bytes of a call that a collective library takes, where nobody has measured how fast the library
/// is.
const BYTES_MIN: u64 = 64 << 10;

/// The facts about a loaded collective library on which the choice of a carrier depends.
#[derive(Clone, Copy, Debug)]
pub struct LibraryFacts {
    /// The length, in bytes, from which on the collective library was measured to be faster than Outboard's
    /// algorithms. None if nobody has measured that.
    pub measured: Option<u64>,
    /// Whether the library has the element type and the operator of the call. Only reductions depend on this.
    pub has_operator: bool,
    /// Whether the members have made the library's communicator for this comm, or can make it in this call.
    pub may_join: bool,
}

pub(super) fn takes(call: &CallFacts, facts: &CarrierFacts) -> Option<Why> {
    let library = facts.library?;
    if !call.all_of_one_group
        || call.on_images
        || call.members < 2
        || facts.policy.is_checked
        || !library.may_join
    {
        return None;
    }
    match call.collective {
        Barrier | Scan | Exscan => return None,
        Gatherv | Scatterv | Alltoallv | Alltoallw => return Some(Why::LibraryUnequal),
        Reduce | Allreduce | ReduceScatter | ReduceScatterBlock if !library.has_operator => return None,
        _ => {}
    }
    let (bytes_min, why) = match (facts.policy.ccl_bytes_min, library.measured) {
        (0, Some(bytes)) => (bytes, Why::LibraryFaster),
        (0, None) => (BYTES_MIN, Why::LibraryLong),
        (bytes, _) => (bytes, Why::LibraryLong),
    };
    (call.bytes > 0 && call.bytes >= bytes_min).then_some(why)
}
