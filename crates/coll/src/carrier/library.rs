// SPDX-License-Identifier: BSD-3-Clause
//! The collective library that OUTBOARD_CCL names.

use super::{CallFacts, CarrierFacts, Why};
use schedule::algorithm::Collective::*;

/// The least bytes for a library that was not measured.
const BYTES_MIN: u64 = 64 << 10;

/// A loaded library, as far as a call depends on it.
#[derive(Clone, Copy, Debug)]
pub struct LibraryFacts {
    /// The length from which on the library is faster, if that was measured.
    pub measured: Option<u64>,
    /// Whether the library has the type and the operator of a reduction.
    pub has_operator: bool,
    /// Whether the members have its communicator, or can make it now.
    pub may_join: bool,
}

pub(super) fn takes(call: &CallFacts, facts: &CarrierFacts) -> Option<Why> {
    let library = facts.library?;
    if !call.everybody || call.imaged || call.members < 2 || facts.policy.is_checked || !library.may_join {
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
