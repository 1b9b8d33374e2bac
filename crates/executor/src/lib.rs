// SPDX-License-Identifier: BSD-3-Clause
//! Runs schedules: in the rank itself (the caller) or in another process (a proxy), by one engine.
//!
//! A started schedule is an *instance*: a record in the rank's arena with a word of progress for every step.
//! Its driver reads the peers' records, and writes its own and the `done` words of sends that it has
//! received.
//!
//! Invariants: a step is finished for its owner before its bytes may be overwritten, and every step can be
//! run again. So a rank can take over from a proxy that died between any two stores, with nothing but the
//! record.
//!
//! Read next: `start.rs` (what an operation is), `record.rs` (what lies in shared memory), `engine.rs` (how
//! it is driven), `caller.rs` (the rank's side), `proxy.rs` (the proxy's loop).
#![forbid(unsafe_code)]

mod block;
mod buffers;
mod caller;
mod checked;
mod choice;
mod config;
mod engine;
mod far;
mod fault;
mod habit;
mod imported;
mod later;
mod memory;
mod note;
mod parameters;
mod peer;
pub mod proxy;
mod record;
mod server;
#[cfg(test)]
mod simulation;
mod staging;
mod start;
mod unasked;
mod watch;

pub use caller::{Counters, Executor};
pub use checked::CheckedSchedule;
pub use choice::{Terms, execute};
pub use config::Config;
pub use habit::Begun;
pub use imported::{Export, Import};
pub use note::EdgePort;
pub use start::{
    Binding, Cut, Edge, EdgeOutcome, InstanceTicket, Offload, Pending, Poll, Reduction, Start, UserCall,
};
