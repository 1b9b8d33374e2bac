// SPDX-License-Identifier: BSD-3-Clause
//! The network engine: libfabric's reliable datagram endpoints (FI_EP_RDM), with messages and RMA.
//!
//! libfabric is loaded at run time, so one binary serves machines with and without it. `Libfabric` is the
//! loaded library, `Provider` a provider with an interface of this host, `Endpoint` an open endpoint of this
//! process. An endpoint sends packets to the addresses of other endpoints, receives into a few long buffers,
//! and reads and writes memory that peers registered.
//!
//! Invariants: no function blocks; memory does not grow with the number of packets under way; values from the
//! provider (lengths, contexts, addresses) are checked before use. Code that parses a packet checks it.
//!
//! Read next: `found.rs` (which libfabric), `provider.rs` (which provider and interface), `domain.rs`,
//! `endpoint.rs`, `region.rs`, `ffi.rs` (libfabric's records).

mod domain;
mod endpoint;
mod ffi;
mod found;
mod library;
mod provider;
mod region;
mod sizes;

pub use endpoint::{Address, Config, Endpoint, Event, Packet, Sent};
pub use library::Libfabric;
pub use provider::{Provider, ProviderChoice, RULE, choose, is_carried_by_kernel, offers};
pub use region::{Region, RemoteMemory};
pub use sizes::{SIZES, set_sizes};
