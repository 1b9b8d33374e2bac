// SPDX-License-Identifier: BSD-3-Clause
//! `outboard-monitor`, which `outboard monitor` starts: collectors, store, and web page of the monitor.
//!
//! It stands beside the library: nothing of it is in a rank. The fabric's collector (`collect.rs` over
//! `fabric/`) asks by MADs; hosts tell of themselves and of their jobs' ranks (`agent/`, taken by
//! `hosts.rs`); `jobs/` joins these with what Slurm says. All write into the store (`store/`: ClickHouse's
//! SQL over HTTP) and into what is known now (`live.rs`), which the page (`web/`) shows to people
//! (`people.rs`). `alerts/` watches it and tells them; what they decide is in `control.rs`.
//!
//! Invariant: MADs, map files, JSON and requests are strangers' words: read within bounds, and refused by a
//! sentence. Read next: `run.rs` (who starts what), `config.rs`, `fabric/mod.rs`.
#![forbid(unsafe_code)]

mod acme;
mod agent;
mod alerts;
mod collect;
mod command;
mod config;
mod control;
mod directory;
mod fabric;
mod hosts;
mod http;
mod issuer;
mod job;
mod jobs;
mod live;
mod people;
mod run;
mod secret;
mod store;
mod time;
mod tls;
mod web;

pub use run::run;
