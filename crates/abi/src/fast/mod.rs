//! Fast paths: from checked arguments to the ring or the slots, without a structure in memory on the way.
//!
//! A fast path leaves a call of which it is not sure, one with wrong arguments too, to the general path, having done nothing.
//! Read next: `message.rs` (sends and receives), `allreduce.rs`.

pub(crate) mod allreduce;
pub(crate) mod message;
