// SPDX-License-Identifier: BSD-3-Clause
//! What carries a collective out: one decision for calls of programs, `outboard plan` and `outboard explain`.
//!
//! There are two decisions. `choose` names the carrier. All members come to the same answer, since it depends
//! only on what all know alike; so does whether a schedule's edges between hosts are fetched. If a schedule
//! is the carrier, each rank then decides for itself whether it or its proxy executes the schedule
//! (`execute`), since all drivers work together.
//!
//! Each carrier is a file here, whose `takes` says why it takes a call, if it does. The rows of `carriers!`
//! have the order in which the carriers are asked. `abi/collective/start.rs` starts each.

mod device;
mod library;
mod policy;
mod queue;
pub mod schedule;
pub(crate) mod slots;

pub use executor::{OffloadTerms, execute};
pub use library::LibraryFacts;
pub use policy::Policy;
pub use slots::{Moved, Slots, Space};
pub use telemetry::Choice as Why;

use crate::call::Call;
use ::schedule::algorithm::Collective;

/// How a program makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMode {
    /// The program waits in the call.
    Blocking,
    /// The program waits later.
    Nonblocking,
    /// MPI_Start starts it, any number of times.
    Persistent,
}

/// A call as far as its carrier depends on it. All members know this alike.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts {
    /// The collective.
    pub collective: Collective,
    /// The bytes of `Call::bytes`.
    pub bytes: u64,
    /// The ranks of the comm.
    pub members: u32,
    /// How the program makes the call.
    pub mode: CallMode,
    /// Whether all ranks of one group take part with each other, rather than neighbours or two groups.
    pub everybody: bool,
    /// Whether the call reduces packed images of elements with gaps, or by an operator of the program.
    pub imaged: bool,
}

impl CallFacts {
    /// The facts of a call on `members` ranks. `one_group`: whether they are one group.
    #[inline(always)]
    pub fn of(call: &Call, members: u32, one_group: bool, mode: CallMode, imaged: bool) -> CallFacts {
        let everybody = one_group && call.neighbors.is_none();
        CallFacts {
            collective: call.collective,
            bytes: call.bytes(members),
            members,
            mode,
            everybody,
            imaged,
        }
    }

    /// How slots of this space carry the call, or None if they do not.
    #[inline(always)]
    pub fn moves(&self, space: Space) -> Option<Moved> {
        space.moves(self.collective, self.bytes, self.members as usize)
    }
}

/// The other facts that decide: settings, and what members have found or exchanged.
#[derive(Clone, Copy, Debug)]
pub struct CarrierFacts<'a> {
    /// The settings.
    pub policy: &'a Policy,
    /// The collective library, if one is loaded.
    pub library: Option<LibraryFacts>,
    /// Whether all members are on one host with devices whose kernels have the operator.
    pub on_devices: bool,
    /// The slots of the comm's blocking calls, or of its queue.
    pub slots: Slots,
}

/// Makes the type of carriers, and the choice among them, from one row each: the variant, its file, its name.
macro_rules! carriers {
    ($($(#[$doc:meta])* $carrier:ident by $file:ident, $name:literal;)*) => {
        /// Who carries a collective out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Carrier {
            $($(#[$doc])* $carrier,)*
        }

        impl Carrier {
            /// All carriers, in the order in which they are asked.
            pub const ALL: &[Carrier] = &[$(Carrier::$carrier),*];

            /// The carrier in words.
            pub fn name(self) -> &'static str {
                match self {
                    $(Carrier::$carrier => $name,)*
                }
            }
        }

        /// The carrier of a call, and why it is that one: the first that takes it.
        #[inline(always)]
        pub fn choose(call: &CallFacts, facts: &CarrierFacts) -> (Carrier, Why) {
            $(if let Some(why) = $file::takes(call, facts) {
                return (Carrier::$carrier, why);
            })*
            unreachable!("a schedule takes every call")
        }
    };
}

carriers! {
    /// A collective library, NCCL or its like.
    Library by library, "the collective library";
    /// The kernels of devices that hold the buffers.
    Device by device, "the devices";
    /// The ranks, inside the call, over the slots that they share.
    Slots by slots, "the ranks, over slots";
    /// The ranks, over slots, one call of the comm after the other.
    Queue by queue, "the ranks, inside MPI calls, over slots in the comm's queue";
    /// A rank or its proxy (`execute`), by a schedule.
    Schedule by schedule, "a schedule";
}

#[cfg(test)]
mod tests;
