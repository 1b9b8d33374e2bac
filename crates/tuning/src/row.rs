// SPDX-License-Identifier: BSD-3-Clause
//! The rows of the table of values.

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Lengths of messages.
    Sizes,
    /// A number of bytes; `u64::MAX` stands for no bound.
    Bytes,
    /// Yes or no.
    Flag,
    /// Numbers of bytes by numbers of ranks.
    ByRanks,
}

/// A value's name, type and default.
#[derive(Clone, Copy, Debug)]
pub struct ValueRow {
    /// The name in the table and in `outboard info --tuning`.
    pub name: &'static str,
    /// The type.
    pub kind: ValueKind,
    /// The value without a measurement.
    pub default: u64,
    /// A line for the user.
    pub doc: &'static str,
}
