// SPDX-License-Identifier: BSD-3-Clause
//! `outboard-monitor`, which `outboard monitor` starts: collectors, store, and web page of the monitor.
//!
//! The monitor is separate from the MPI library: no rank contains any of it. The fabric's collector
//! (`collect.rs` over `fabric/`) asks the network by MADs (management datagrams). Hosts report themselves and
//! the ranks of their jobs (`agent/`, received by `hosts.rs`), and `jobs/` joins these with Slurm's data. All
//! of them write into the store (`store/`: ClickHouse's SQL over HTTP) and into the present state
//! (`live.rs`), which the page (`web/`) shows to people (`people.rs`). `alerts/` watches the state and
//! notifies people; `control.rs` has their decisions.
//!
//! Invariant: MADs, map files, JSON and requests are not trusted: they are read within bounds, and refused
//! with a sentence. Read next: `run.rs` (what is started in which order), `config.rs`, `fabric/mod.rs`.
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
