// SPDX-License-Identifier: BSD-3-Clause
//! Where processes run: which host, which core, which place of the job's memory.
//!
//! Read next: `hosts.rs`, `cpus.rs`, `places.rs`.

pub mod binding;
pub mod claims;
pub mod cpus;
pub mod hosts;
pub mod places;
