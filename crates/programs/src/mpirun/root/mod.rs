//! The root of a job on several hosts: it decides what happens where, and hears how it went.
//!
//! Read next: `nodes.rs`, `worlds.rs` (spawned processes), `agents.rs`.

mod agents;
mod dpus;
pub mod nodes;
mod world;
mod worlds;
