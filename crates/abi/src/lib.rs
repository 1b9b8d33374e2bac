// SPDX-License-Identifier: BSD-3-Clause
//! The MPI functions of C: each finds the objects that its arguments name, calls the crate that does the
//! work, and waits.
//!
//! Invariants: a module imports only modules that are declared below it in this file (`make tidy`). No module
//! imports `body`.
//!
//! Read next: `body/mod.rs` (how a body is written), `process/mod.rs` (the one lock, the one wait).

pub mod body;
mod extension;
pub mod mpich_bindings;

mod attribute;
mod connect;
mod fast;
mod file;
mod forked;
mod leaks;

mod collective;

pub mod process;

mod request;

pub mod args;
mod hardware;
mod lenient;
mod load;
mod malloc;
pub mod shim;
mod shmem;
mod staging;
mod stdio;
pub mod stream;

/// All MPI functions, a line for each: its name, and 1 if this library has a body for it, else 0. The file is
/// generated.
pub const FUNCTIONS: &str = include_str!("generated/functions.txt");
