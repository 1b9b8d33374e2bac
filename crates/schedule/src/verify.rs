// SPDX-License-Identifier: BSD-3-Clause
//! Checks whether a set of schedules, one for each rank, carries out its collective.
//!
//! `structure` looks at the steps alone: blocks are in bounds, steps wait only for earlier steps, every send
//! has its receive, no step overwrites what another step may still read or read again, no reduction writes an
//! operand. `run` carries the operation out on symbols in a random legal order, a few elements at a time,
//! with executors that die in the middle of a step. It compares the result with the definition in the
//! standard (MPI 5.0, chapter 6).
//!
//! A symbol stands for the list of contributions to an element (where order matters) or for their multiset: a
//! random word for each, combined by a polynomial hash or a sum. Two different lists are taken for equal with
//! a chance of about 2^-60.
mod operation;
mod run;
mod structure;

use crate::Schedule;
pub use operation::CollectiveCase;

/// Checks a set of schedules: first their structure, then one run for each seed. Errors say what is wrong.
pub fn verify(
    operation: &CollectiveCase,
    schedules: &[Schedule],
    seeds: impl IntoIterator<Item = u64>,
) -> Result<(), String> {
    structure(operation, schedules)?;
    seeds.into_iter().try_for_each(|seed| run(operation, schedules, seed))
}

/// Checks the steps of schedules alone, without the lengths of blocks: bounds, waits, and that each send has
/// its receive. Errors say what is wrong.
pub fn structure(operation: &CollectiveCase, schedules: &[Schedule]) -> Result<(), String> {
    structure::check(operation, schedules)
}

/// Carries the operation out in an order that depends on `seed`, and compares the results with the
/// definition. `structure` must have accepted the schedules.
pub fn run(operation: &CollectiveCase, schedules: &[Schedule], seed: u64) -> Result<(), String> {
    run::run(operation, schedules, seed)
}
