//! One function per MPI call: finds the objects, calls the crate that does it, waits.
//!
//! Read next: `body/mod.rs` (how a body is written), `process.rs` (the one lock, the one wait), `args.rs` (C arguments),
//! `request.rs` (operations under way), `raise.rs` (what becomes of an error), `callback.rs` (the program's functions), `shim.rs` (other binary interfaces).

mod agreement;
pub mod args;
pub mod body;
mod buffer;
pub mod callback;
mod collective;
mod connect;
mod deadlock;
mod deferred;
mod file;
pub mod foreign;
mod hardware;
mod image;
mod launcher;
mod leaks;
mod lenient;
mod neighborhood;
mod operation;
pub mod process;
pub mod raise;
mod request;
pub mod shim;
mod short;
mod stdio;
mod window;

/// Which functions have a body: a line for each, its name and 1 or 0. Generated.
pub const FUNCTIONS: &str = include_str!("generated/functions.txt");
