// SPDX-License-Identifier: BSD-3-Clause
//! Fast paths: from the arguments to the ring or the slots, with all values in registers.
//!
//! Invariants: a fast path either makes the call, or does nothing and leaves it to the general path. Wrong
//! arguments always go to the general path. Read next: `message.rs` (sends and receives), `allreduce.rs`.

pub(crate) mod allreduce;
pub(crate) mod message;
