// SPDX-License-Identifier: BSD-3-Clause
//! What an atomic operation does to the target's elements (MPI 5.0, section 12.3.4).

use datatype::{Basic, PredefinedOp};
use sys::Span;

/// How an accumulate combines elements: the operator, and the machine type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    pub op: PredefinedOp,
    pub basic: Basic,
}

/// The arguments of MPI_Compare_and_swap: the element to compare with, the element to put, and where the
/// target's old element is stored.
#[derive(Clone, Copy, Debug)]
pub struct Swap {
    pub basic: Basic,
    pub compare: Span,
    pub origin: Span,
    /// Where the element that the target held before is stored.
    pub result: Span,
}
