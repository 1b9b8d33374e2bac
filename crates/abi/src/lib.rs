//! One function per MPI call: finds the objects, calls the crate that does it, waits.
//!
//! Invariants: no module imports one that imports it (`make tidy`). Each may import those below it in this list; nobody imports `body`.
//!
//! Read next: `body/mod.rs` (how a body is written), `process/mod.rs` (the one lock, the one wait).

pub mod body;
pub mod foreign;

mod attribute;
mod connect;
mod fast;
mod file;
mod leaks;

mod collective;

pub mod process;

mod request;

pub mod args;
mod hardware;
mod lenient;
pub mod shim;
mod stdio;

/// Which functions have a body: a line for each, its name and 1 or 0. Generated.
pub const FUNCTIONS: &str = include_str!("generated/functions.txt");
