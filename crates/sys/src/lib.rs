// SPDX-License-Identifier: BSD-3-Clause
//! The machine: spans of memory, clocks, futexes, shared maps, other processes. This crate knows nothing of
//! MPI.
//!
//! Functions fail with `std::io::Error`; the layers above write the sentence that says what failed.
//! Read next: `span/mod.rs`, the only way in which the library touches user memory; `memory.rs`; `remote.rs`.

pub mod child;
pub mod clock;
pub mod cpu;
pub mod debugger;
pub mod fence;
pub mod file;
pub mod futex;
pub mod host;
pub mod limits;
pub mod memory;
pub mod pool;
pub mod ppoll;
pub mod process;
pub mod remote;
pub mod signal;
pub mod socket;
mod span;
pub mod topology;
pub mod tree;
pub use span::{Block, Span, copy};
