// SPDX-License-Identifier: BSD-3-Clause
//! The carrier of blocking calls over slots in shared memory: the ranks carry a call out while they are in it
//! (`flat.rs`).
//!
//! A comm attaches its slots after some calls, which schedules carry out. Schedules also carry out calls with
//! counts that turn out to be too long for slots.

use super::{CallFacts, CallMode, CarrierFacts, Why};
use crate::short::{BYTES_MAX, MEMBERS_MAX, PULLED_MAX, contribution, is_pullable};
use schedule::algorithm::Collective::{self, *};

/// The state of a comm's slots in shared memory.
#[derive(Clone, Copy, Debug)]
pub enum Slots {
    /// The comm has no slots: some member has no memory for them, or a proxy carries out some member's
    /// nonblocking collectives.
    Refused,
    /// The members have not exchanged yet where their slots lie, so calls cannot use the slots.
    Unattached,
    /// The members have attached the slots. The value says how bytes move over the slots in this call; it is
    /// None if the call is too long for them.
    Attached(Option<Moved>),
}

/// The longest contributions and blocks for which the slots of a comm or queue have space. All members have
/// exchanged these lengths.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// The longest contribution of a member, in bytes, that fits its slot.
    pub(crate) bytes_max: u64,
    /// The longest block, in bytes, that goes through the slots. The receiver reads longer blocks from the
    /// sender's memory.
    pub(crate) inline_bytes_max: u64,
}

impl Space {
    /// The space of slots of full length where no member can read the others' memory, so that all blocks go
    /// through the slots.
    pub const FULL: Space = Space { bytes_max: BYTES_MAX, inline_bytes_max: u64::MAX };
}

/// The way in which bytes move in a call whose blocks all have one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The bytes go through the slots: the sender writes them, and the receiver reads them there.
    Inline,
    /// The bytes do not go through the slots: members read each other's memory (`pull.rs`).
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
        && call.all_of_one_group
        && !call.on_images
        && !matches!(facts.slots, Slots::Refused)
}

/// Whether a comm of this many members can have slots at all.
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
    /// Returns how the bytes of a call move over slots with this space, or None if the slots have too little
    /// space for the call.
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
