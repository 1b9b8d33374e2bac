// SPDX-License-Identifier: BSD-3-Clause
//! Ways to reach a peer: `Loopback` (this process), `shm` (the node), `fabric` (other nodes), `sim` (a seeded
//! model, for tests).
//!
//! The job's shared memory is one sealed memfd. `mpirun` makes it, or a program that runs alone; every rank
//! and proxy inherits it; it is gone with the last of them. It has no name, so nothing is left behind. It is
//! sparse: a ring or an arena costs memory only once it is touched.
//!
//! Read next: `route.rs`, `shm/segment.rs` (the map of that memory), `shm/ring.rs`, `shm/arena.rs`.

pub mod lend;
mod net;
pub mod owned;
mod packet;
pub mod route;
pub mod route_fabric;
pub mod route_shm;
mod sequence;
pub mod shm;
mod silence;
pub mod sim;
mod sleeper;
mod wire;
