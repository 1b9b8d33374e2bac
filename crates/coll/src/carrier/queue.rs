// SPDX-License-Identifier: BSD-3-Clause
//! The comm's queue, which carries nonblocking calls over slots of its own, one after the other (`queue.rs`).
//!
//! A call that is made before the slots are attached waits until they are. If the slots then do not take the
//! call, a schedule carries it out.

use super::{CallFacts, CallMode, CarrierFacts, Slots, Why, slots};

#[inline(always)]
pub(super) fn takes(call: &CallFacts, facts: &CarrierFacts) -> Option<Why> {
    let takes = call.mode != CallMode::Blocking
        && slots::may(call, facts)
        && slots::is_size(call.members as usize)
        && match facts.slots {
            Slots::Attached(moved) => moved.is_some() || call.collective.has_counts(),
            _ => true,
        };
    takes.then_some(Why::Slots)
}
