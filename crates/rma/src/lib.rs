// SPDX-License-Identifier: BSD-3-Clause
//! Windows: one-sided communication (MPI 5.0, chapter 12). On one host the origin alone carries out an
//! operation.
//!
//! Invariants: on one host an operation has moved its bytes when it returns, and the target takes no part.
//! One element of 4 or 8 bytes in mapped memory is updated atomically; other updates hold the target's latch,
//! a lock for updates of its memory.
//!
//! Memory in an arena is reached by loads and stores, other memory by cross-memory attach or, where that is
//! refused, through a thread of its owner. A target on another host carries out requests in its own MPI
//! calls; the crate `abi` brings them as messages.
//!
//! Read next: `window.rs`, `target.rs`, `record.rs`, `access.rs` (operations), `serve.rs`, `remote.rs`.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod dynamic;
mod far;
mod message;
mod outbox;
mod pieces;
mod process;
mod record;
mod remote;
mod serve;
mod target;
mod update;
mod window;

pub use far::Completion;
pub use message::{IncomingMessage, MESSAGE_BYTES_MAX};
pub use process::Rma;
pub use record::Lock;
pub use serve::Direction;
pub use target::TargetRange;
pub use update::{Swap, Update};
pub use window::{Exposure, Flavor, Window};
