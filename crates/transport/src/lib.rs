// SPDX-License-Identifier: BSD-3-Clause
//! Routes to a peer: `Loopback` (this process), `shm` (the same host), `fabric` (other hosts), `sim` (a
//! seeded model for tests).
//!
//! The job's shared memory is one sealed memfd. `mpirun` makes it, or a program that runs alone. Every rank
//! and proxy inherits it, and it disappears with the last of them. It has no name, so it leaves no file. It
//! is sparse: a ring or an arena takes memory only once it is touched.
//!
//! Read next: `route.rs`, `shm/segment.rs` (the layout of that memory), `shm/ring.rs`, `shm/arena.rs`.

pub mod export;
pub mod import;
mod net;
pub mod owned;
mod packet;
pub mod pending_read;
pub mod route;
pub mod route_fabric;
pub mod route_shm;
mod sequence;
pub mod shm;
mod silence;
pub mod sim;
mod sleeper;
mod wire;
