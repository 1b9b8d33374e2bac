// SPDX-License-Identifier: BSD-3-Clause
//! What `mpirun` and its agents say to each other, and how they reach each other.
//!
//! Read next: `frame.rs`, `way.rs`, `launch.rs`, `link.rs`, `relay.rs`.

pub mod clock;
pub mod frame;
pub mod launch;
pub mod link;
pub mod relay;
pub mod statistics;
pub mod trace;
pub mod way;
