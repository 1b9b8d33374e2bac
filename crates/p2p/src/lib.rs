//! Point-to-point: every send mode, receives, probes and cancelling, over eager and rendezvous (MPI 5.0, chapter 3).
//!
//! `P2p` is all state of one process. Nothing here waits: an operation is started, `poll` moves everything on that can move,
//! and `outcome` says how an operation ended. The process itself owns its two match queues.
//!
//! How a message travels. Up to `eager_bytes_max` it goes at once, as one packet or in pieces (`pieces.rs`), as long as the peer's credit
//! lasts: what it has not yet matched is bounded by `credit_bytes`, whatever we send. Otherwise only an offer goes (`rendezvous.rs`); once
//! the receive is known, its process reads our memory, or asks for the bytes, which then stream in packets.
//!
//! Invariants: packets to a peer that carry an envelope leave in the order in which their sends were started, so a
//! short message never overtakes a long or a waiting one; a number that a peer sent is checked before it is used.
//!
//! Read next: `send.rs`, `receive.rs`, `deferred.rs`, `pieces.rs`, `rendezvous.rs`; `packet.rs` for what goes over the wire; `tests/sim.rs`.
#![forbid(unsafe_code)]

mod attach;
mod buffered;
mod cancel;
mod choice;
mod config;
mod consume;
mod data;
mod defer;
mod deferred;
mod describe;
mod flush;
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
mod receive;
mod rendezvous;
mod request;
mod send;
mod spares;
mod state;
mod tickets;

pub use buffered::AttachedBuffer;
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
