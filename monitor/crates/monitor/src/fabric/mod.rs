// SPDX-License-Identifier: BSD-3-Clause
//! The fabric: its nodes, their links, and their counters.
//!
//! One thread reads all of it by MADs (management datagrams) from this host's port, with many requests under
//! way at once. Read next: `mad.rs` (bytes), `exchange.rs` (requests and their time), `discover.rs`,
//! `counters.rs`, `topology.rs` (what the web page draws), `routes.rs` (which links a job uses), `names.rs`
//! (the site's map file).

pub mod counters;
pub mod discover;
pub mod exchange;
pub mod mad;
pub mod names;
pub mod routes;
pub mod topology;

#[cfg(test)]
mod simulated;
