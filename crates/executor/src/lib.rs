// SPDX-License-Identifier: BSD-3-Clause
//! Runs schedules, in the rank itself (the caller) or in another process (a proxy), by one engine.
//!
//! A started schedule is an *instance*: a record in the rank's arena with words of progress for every step.
//! The driver of an instance reads the records of the peers. It writes its own record, and the `done` words
//! of the sends from which it has received.
//!
//! Invariants: the bytes of a step may be overwritten only after its record says that the step is finished,
//! and every step can be run again. So a rank that has only the record can take over from a proxy that died
//! between any two stores.
//!
//! Read next: `start.rs` (what an operation is), `record.rs` (what lies in shared memory), `engine.rs` (how
//! an instance is driven), `caller.rs` (what the rank does), `proxy.rs` (the proxy's loop).
#![forbid(unsafe_code)]

mod block;
mod buffers;
mod caller;
mod checked;
mod choice;
mod config;
mod delayed;
mod engine;
mod fault;
mod habit;
mod imported;
mod memory;
mod note;
mod parameters;
mod peer;
pub mod proxy;
mod record;
mod remote_edges;
mod server;
#[cfg(test)]
mod simulation;
mod staging;
mod start;
mod unasked;
mod watch;

pub use caller::{Counters, Executor};
pub use checked::CheckedSchedule;
pub use choice::{OffloadTerms, execute};
pub use config::Config;
pub use habit::MeasuredStart;
pub use imported::{Export, Import};
pub use note::EdgePort;
pub use start::{
    Binding, Cut, EdgeMessage, EdgeOutcome, InstanceTicket, Offload, PendingOperation, Poll, Reduction,
    Start, UserCall,
};
