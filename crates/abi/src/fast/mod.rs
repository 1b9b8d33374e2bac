// SPDX-License-Identifier: BSD-3-Clause
//! Fast paths: they lead from the arguments of a call to the ring (a peer's queue of packets) or the slots
//! (shared memory of a comm), with all values in registers.
//!
//! Invariants: a fast path either makes the call, or does nothing and leaves the call to the general path.
//! Wrong arguments always go to the general path. Read next: `message.rs` (sends and receives),
//! `allreduce.rs`.

pub(crate) mod allreduce;
pub(crate) mod message;
