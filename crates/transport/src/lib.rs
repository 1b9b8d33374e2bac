//! Ways to reach a peer: `own` (this process), `shm` (the node), `sim` (a seeded model, for tests).
//!
//! The job's shared memory is one sealed memfd, made by `mpirun` (or by a program that runs alone), inherited by every
//! rank and every proxy, and gone with the last of them: nothing is ever named, so nothing can be left behind. It is
//! sparse: a ring or an arena costs memory when it is first touched, never before.
//!
//! Read next: `shm/segment.rs` (the map of that memory), `shm/ring.rs`, `shm/arena.rs`.

pub mod owned;
mod packet;
pub mod route;
pub mod route_shm;
pub mod shm;
pub mod sim;
