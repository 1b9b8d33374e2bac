// SPDX-License-Identifier: BSD-3-Clause
//! The comm's queue, which carries nonblocking calls over slots of its own, one after the other (`queue.rs`).
//!
//! A call that is made before the slots are attached waits for that. Then a schedule may still carry it out.

use super::{Asked, Facts, Slots, Way, Why, slots};

#[inline(always)]
pub(super) fn takes(asked: &Asked, facts: &Facts) -> Option<Why> {
    let takes = asked.way != Way::Blocking
        && slots::may(asked, facts)
        && slots::is_size(asked.members as usize)
        && match facts.slots {
            Slots::Attached(moved) => moved.is_some() || asked.collective.has_counts(),
            _ => true,
        };
    takes.then_some(Why::Slots)
}
