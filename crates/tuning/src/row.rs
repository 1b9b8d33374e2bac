// SPDX-License-Identifier: BSD-3-Clause
//! Describes the rows of the table of values: the name, type, default and meaning of each measured value.

/// The type of a row's value in the table of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// The value is a set of message lengths (`Sizes`).
    Sizes,
    /// The value is a number of bytes; `u64::MAX` stands for no bound.
    Bytes,
    /// The value is yes (1) or no (0).
    Flag,
    /// The value has a message length, in bytes, for each class of numbers of ranks, such as 4 to 7 ranks
    /// (`ByRanks`).
    ByRanks,
    /// The value says for each class of message lengths which method is faster, as earlier jobs found
    /// (`Facts`).
    Facts,
}

/// A row of the table of values: the name, type, default and meaning of one value.
#[derive(Clone, Copy, Debug)]
pub struct ValueRow {
    /// The name of the value in the table's file and in `outboard info --tuning`.
    pub name: &'static str,
    /// The type of the row's value, such as a number of bytes.
    pub kind: ValueKind,
    /// The value that holds if nothing was measured or set.
    pub default: u64,
    /// A line that tells the user what the value means.
    pub doc: &'static str,
}
