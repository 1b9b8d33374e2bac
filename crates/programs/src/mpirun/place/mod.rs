// SPDX-License-Identifier: BSD-3-Clause
//! Where processes run: on which host, on which core, and with which process number in the job's memory.
//!
//! Read next: `hosts.rs`, `cpus.rs`, `places.rs`.

pub mod binding;
pub mod claims;
pub mod cpus;
pub mod hosts;
pub mod places;
