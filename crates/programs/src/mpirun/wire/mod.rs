// SPDX-License-Identifier: BSD-3-Clause
//! The frames (messages) between the root (the `mpirun` process that decides) and its agents (one on each
//! host), and the commands and pipes that carry them.
//!
//! Read next: `frame.rs`, `uplink.rs`, `launch.rs`, `link.rs`, `relay.rs`.

pub mod clock;
pub mod frame;
pub mod launch;
pub mod link;
pub mod relay;
pub mod statistics;
pub mod trace;
pub mod uplink;
