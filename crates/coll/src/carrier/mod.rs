// SPDX-License-Identifier: BSD-3-Clause
//! Decides what carries a collective out. Calls of programs, `outboard plan` and `outboard explain` all use
//! this code.
//!
//! There are two decisions. First `choose` names the carrier. It depends only on what all members know alike,
//! so all members come to the same answer. If the carrier is a schedule, each rank then decides for itself
//! whether it or its proxy executes the schedule (`execute`), because each can work with the other members'
//! executors. Whether proxies fetch the bytes that the schedule moves between hosts is decided alike on all
//! members.
//!
//! Each carrier is a file here, whose `takes` says why it takes a call, if it does. The carriers are asked in
//! the order of the rows of `carriers!`. `abi/collective/start.rs` starts each.

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
    /// The program waits inside the call until the collective has ended at this rank.
    Blocking,
    /// The call only starts the collective, and the program waits for its end later.
    Nonblocking,
    /// The call makes a persistent request, which MPI_Start starts any number of times.
    Persistent,
}

/// The facts about a call on which its carrier depends. All members of the comm have the same facts.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts {
    /// Which collective is called.
    pub collective: Collective,
    /// The length by which algorithms are chosen, in bytes, as `Call::bytes` returns it.
    pub bytes: u64,
    /// The number of ranks in the comm, in both groups of an intercommunicator.
    pub members: u32,
    /// How the program makes the call.
    pub mode: CallMode,
    /// Whether every rank exchanges with every other rank of one group. This is false in neighborhood
    /// collectives and on intercommunicators.
    pub all_of_one_group: bool,
    /// Whether the call is a reduction on packed copies of elements with gaps, or by an operator of the
    /// program.
    pub on_images: bool,
}

impl CallFacts {
    /// Collects the facts of a call on `members` ranks. `one_group` says whether the comm is an
    /// intracommunicator.
    #[inline(always)]
    pub fn of(call: &Call, members: u32, one_group: bool, mode: CallMode, on_images: bool) -> CallFacts {
        let all_of_one_group = one_group && call.neighbors.is_none();
        CallFacts {
            collective: call.collective,
            bytes: call.bytes(members),
            members,
            mode,
            all_of_one_group,
            on_images,
        }
    }

    /// Returns how bytes move if slots with this space carry the call, or None if the call does not fit them.
    #[inline(always)]
    pub fn moves(&self, space: Space) -> Option<Moved> {
        space.moves(self.collective, self.bytes, self.members as usize)
    }
}

/// The facts, apart from `CallFacts`, on which the carrier of a call depends: settings, and what members have
/// found out or exchanged.
#[derive(Clone, Copy, Debug)]
pub struct CarrierFacts<'a> {
    /// The settings that restrict which carriers may take the call.
    pub policy: &'a Policy,
    /// What the loaded collective library (NCCL or its like) can do; None if none is loaded.
    pub library: Option<LibraryFacts>,
    /// Whether all members are on one host with devices whose kernels have the operator.
    pub on_devices: bool,
    /// The state of the slots that the call would use: the comm's slots if the call blocks, otherwise the
    /// slots of the comm's queue.
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
            /// All carriers, in the order in which `choose` asks whether they take a call.
            pub const ALL: &[Carrier] = &[$(Carrier::$carrier),*];

            /// Returns the name of the carrier in words, for messages to the user.
            pub fn name(self) -> &'static str {
                match self {
                    $(Carrier::$carrier => $name,)*
                }
            }
        }

        /// Returns the first carrier that takes a call, and why it takes the call.
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
    /// The ranks, inside MPI calls, over the slots of the comm's queue: one nonblocking call after the other.
    Queue by queue, "the ranks, inside MPI calls, over slots in the comm's queue";
    /// A rank or its proxy (`execute`), by a schedule: the plan of the collective as data.
    Schedule by schedule, "a schedule";
}

#[cfg(test)]
mod tests;
