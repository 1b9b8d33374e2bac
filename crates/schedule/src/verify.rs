// SPDX-License-Identifier: BSD-3-Clause
//! Checks whether a set of schedules, one per rank, carries out its operation.
//!
//! `structure` looks at the steps alone: blocks are in bounds, steps wait only for earlier ones, every send
//! has its receive, no step overwrites what another may still read or read again, no reduction writes an
//! operand. `run` carries the operation out on symbols in a random legal order, streaming a few elements at a
//! time, with executors that die in the middle of a step, and compares with the definition in the standard
//! (MPI 5.0, chapter 6).
//!
//! A symbol stands for the list (where order matters) or the multiset of contributions to an element: a
//! random word each, combined by a polynomial hash or a sum. Two different lists collide with a chance of
//! about 2^-60.
mod operation;
mod run;
mod structure;

use crate::Schedule;
pub use operation::CollectiveCase;

/// Checks a set of schedules: their structure, then one run for each seed.
pub fn verify(
    operation: &CollectiveCase,
    schedules: &[Schedule],
    seeds: impl IntoIterator<Item = u64>,
) -> Result<(), String> {
    structure(operation, schedules)?;
    seeds.into_iter().try_for_each(|seed| run(operation, schedules, seed))
}

/// Checks the parts of schedules that do not depend on lengths.
pub fn structure(operation: &CollectiveCase, schedules: &[Schedule]) -> Result<(), String> {
    structure::check(operation, schedules)
}

/// Carries the operation out in an order that depends on `seed`, and compares with the definition. The
/// schedules have passed `structure`.
pub fn run(operation: &CollectiveCase, schedules: &[Schedule], seed: u64) -> Result<(), String> {
    run::run(operation, schedules, seed)
}
