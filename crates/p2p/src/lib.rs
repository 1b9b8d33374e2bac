// SPDX-License-Identifier: BSD-3-Clause
//! Point-to-point: every send mode, receives, probes and cancelling, over eager and rendezvous (MPI 5.0,
//! chapter 3).
//!
//! Nothing here waits: an operation is started, `poll` moves on what can move, and `outcome` says how it
//! ended. A short message leaves at once, as one packet or in pieces, while the peer's credit lasts;
//! otherwise an offer goes.
//!
//! Invariants: packets with an envelope leave in the order in which their sends were started. A number that a
//! peer sent is checked before it is used. A peer holds at most `credit_bytes` of our unmatched messages.
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
pub use data::Owner;
pub use deferred::{DEFERRED_MAX, NUMBERS};
pub use describe::{Operation, What};
pub use outcome::{Mode, Outcome, Ticket};
pub use pending::Pending;
pub use probe::{MessageTicket, Probe};
pub use protocol::{Protocol, Record, table as protocols};
pub use receive::Indirect;
pub use send::Leaves;
pub use state::P2p;
