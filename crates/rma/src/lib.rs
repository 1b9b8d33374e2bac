// SPDX-License-Identifier: BSD-3-Clause
//! Windows: one-sided communication (MPI 5.0, chapter 12), carried out by the origin alone on one host.
//!
//! Invariants: on one host an operation has moved its bytes when it returns, and the target takes no part.
//! One element of 4 or 8 bytes in mapped memory is updated by an atomic instruction; all others hold the
//! latch of the target's record.
//!
//! Memory in an arena (MPI_Win_allocate, MPI_Win_allocate_shared, MPI_Alloc_mem) is reached by loads and
//! stores, other memory by cross-memory attach, or, where that is refused, through a thread of its owner. A
//! target on another host carries requests out itself, in its calls of MPI: messages, which abi carries.
//!
//! Read next: `window.rs` (members and epochs), `target.rs` (one member), `record.rs` (what members share),
//! `access.rs` (operations), `serve.rs` (the thread), `remote.rs` and `answer.rs` (other hosts).
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

pub use far::Ended;
pub use message::{Incoming, MESSAGE_BYTES_MAX};
pub use process::Rma;
pub use record::Lock;
pub use serve::Way;
pub use target::TargetRange;
pub use update::{Swap, Update};
pub use window::{Exposure, Flavor, Window};
