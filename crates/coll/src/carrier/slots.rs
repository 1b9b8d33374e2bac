// SPDX-License-Identifier: BSD-3-Clause
//! Slots in shared memory, which carry blocking calls inside the calls (`flat.rs`).
//!
//! A comm attaches its slots after some calls, which go by schedules. So do calls with counts that turn out
//! to be too long for slots.

use super::{CallFacts, CallMode, CarrierFacts, Why};
use crate::short::{BYTES_MAX, MEMBERS_MAX, PULLED_MAX, contribution, is_pullable};
use schedule::algorithm::Collective::{self, *};

/// The state of a comm's slots.
#[derive(Clone, Copy, Debug)]
pub enum Slots {
    /// Some member has no memory for slots, or has a proxy for the queue.
    Refused,
    /// The members have not attached the slots yet.
    Unattached,
    /// The slots are attached, and carry the call in this way; None: the call is too long.
    Attached(Option<Moved>),
}

/// The space of a set's slots, as the members have exchanged it.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// The longest contribution.
    pub(crate) bytes_max: u64,
    /// The longest block that is not pulled.
    pub(crate) inline_bytes_max: u64,
}

impl Space {
    /// Slots of full length, where no member can read the others' memory.
    pub const FULL: Space = Space { bytes_max: BYTES_MAX, inline_bytes_max: u64::MAX };
}

/// How slots carry a call with equal blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The bytes go through the slots.
    Inline,
    /// Members read each other's memory (`pull.rs`).
    Pulled,
}

#[inline(always)]
pub(super) fn takes(call: &CallFacts, facts: &CarrierFacts) -> Option<Why> {
    let is_short = match facts.slots {
        Slots::Attached(moved) => moved.is_some(),
        _ => fits(call.collective, call.bytes, call.members as usize),
    };
    let has_counts = || call.collective.has_counts() && is_size(call.members as usize);
    let takes = call.mode == CallMode::Blocking && may(call, facts) && (is_short || has_counts());
    takes.then_some(Why::Slots)
}

/// Whether slots or a queue may take a call, whatever its length and the number of members.
#[inline(always)]
pub(super) fn may(call: &CallFacts, facts: &CarrierFacts) -> bool {
    facts.policy.may_use_slots(call.collective)
        && call.everybody
        && !call.imaged
        && !matches!(facts.slots, Slots::Refused)
}

/// Whether a comm of `members` members has slots.
#[inline(always)]
pub(super) fn is_size(members: usize) -> bool {
    (2..=MEMBERS_MAX).contains(&members)
}

/// Whether a call of `bytes` bytes (of the vector, or of a member's block) fits the longest slots of
/// `members` members.
#[inline(always)]
pub(crate) fn fits(collective: Collective, bytes: u64, members: usize) -> bool {
    let (times, most) = match collective {
        Bcast | Allreduce | ReduceScatter | ReduceScatterBlock => (1, BYTES_MAX),
        // Calls above `BYTES_MAX` fit only if they are pulled.
        Alltoall | Allgather => (members as u64, PULLED_MAX),
        _ => (members as u64, BYTES_MAX),
    };
    is_size(members) && bytes <= BYTES_MAX && bytes * times <= most
}

impl Space {
    /// How these slots carry a call, or None if they lack the space.
    #[inline(always)]
    pub fn moves(self, collective: Collective, bytes: u64, members: usize) -> Option<Moved> {
        if !fits(collective, bytes, members) {
            return None;
        }
        if is_pullable(collective) {
            if bytes > self.inline_bytes_max {
                return Some(Moved::Pulled);
            }
            if bytes * members as u64 > BYTES_MAX {
                return None;
            }
        }
        let has_space =
            self.bytes_max == BYTES_MAX || contribution(collective, bytes, members) <= self.bytes_max;
        has_space.then_some(Moved::Inline)
    }
}
