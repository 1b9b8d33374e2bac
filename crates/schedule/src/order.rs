// SPDX-License-Identifier: BSD-3-Clause
//! The order in which a reduction combines what the ranks contribute: its definition, for all crates.
//!
//! MPI recommends the same result for the same arguments (MPI 5.0, section 6.9.1), and a rounded sum depends
//! on the order of its additions. So the order is a property of the operation, its count, its type and the
//! ranks, and not of who carries the call out:
//!
//! - Among up to `IN_RANKS_MAX` ranks of one host it is `CombineOrder::InRanks`. Slots (`coll`), schedules by
//!   ranks or proxies, and kernels of devices may carry a call out there.
//! - Elsewhere only schedules do. The order is that of the algorithm, which `coll/choose.rs` picks by
//!   collective, bytes, ranks, and by the placement on hosts if OUTBOARD_REPRODUCIBLE allows that.

/// The most ranks of one host among which every carrier combines in the order of ranks.
pub const IN_RANKS_MAX: u32 = 16;

/// The order in which an algorithm combines the contributions of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CombineOrder {
    /// Contributions are combined from left to right in the order of ranks: `((0 op 1) op 2) op 3`.
    InRanks,
    /// Contributions are combined in the order of ranks, but not strictly from left to right: for instance
    /// `(0 op 1) op (2 op 3)`.
    Kept,
    /// Contributions are combined in the order of ranks if the ranks of each node are consecutive
    /// (`NodeMap::is_in_order`), else in another order.
    KeptInOrder,
    /// Contributions are combined in an order other than that of ranks. The operator must be commutative.
    Lost,
}
