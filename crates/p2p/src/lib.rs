// SPDX-License-Identifier: BSD-3-Clause
//! Point-to-point messages: every send mode, receives, probes and cancelling, by eager and rendezvous
//! protocols (MPI 5.0, chapter 3).
//!
//! No function here blocks: the caller starts an operation, `poll` makes progress, and `outcome` returns the
//! result. A short message leaves at once, as one packet or in pieces, while the peer's credit lasts; a
//! longer one, or one without credit, is offered first.
//!
//! Invariants: packets with an envelope leave in the order in which their sends were started. Numbers from a
//! peer are checked before use. A peer holds at most `credit_bytes` of our unmatched messages.
//!
//! Read next: `protocol.rs`, `state.rs`, `send.rs`, `consume.rs`, `packet.rs`, `tests/sim.rs`.
#![forbid(unsafe_code)]

mod attach;
mod buffered;
mod cancel;
mod channel;
mod choice;
mod config;
mod consume;
mod data;
mod defer;
mod deferred;
mod describe;
mod flush;
mod handoff;
mod lane;
mod loopback;
mod message;
mod outcome;
mod packet;
mod pending;
mod pieces;
mod poll;
mod probe;
mod protocol;
mod pull;
mod receive;
mod rendezvous;
mod request;
mod send;
mod spares;
mod state;
mod tickets;

pub use buffered::AttachedBuffer;
pub use channel::{Handoff, HandoffKey};
pub use config::{Config, LargeProtocol};
pub use data::BufferOwner;
pub use deferred::{DEFERRED_MAX, NUMBERS};
pub use describe::{OperationReport, OperationState};
pub use outcome::{Mode, Outcome, Ticket};
pub use pending::PendingOperation;
pub use probe::{MessageTicket, Probe};
pub use protocol::{Protocol, ProtocolRow, table as protocols};
pub use receive::NeedsRequest;
pub use send::SendAttempt;
pub use state::P2p;
