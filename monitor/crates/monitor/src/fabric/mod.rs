// SPDX-License-Identifier: BSD-3-Clause
//! The fabric: who is there, how they are linked, and what their counters say.
//!
//! Everything is asked by MADs from this host's port, in one thread; many requests are under way at once.
//! Read next: `mad.rs` (bytes), `exchange.rs` (requests and their time), `discover.rs`, `counters.rs`,
//! `topology.rs` (what the page draws), `ways.rs` (which links a job uses), `names.rs` (the site's map file).

pub mod counters;
pub mod discover;
pub mod exchange;
pub mod mad;
pub mod names;
pub mod topology;
pub mod ways;

#[cfg(test)]
mod simulated;
