// SPDX-License-Identifier: BSD-3-Clause
//! The operators of reductions: predefined ones, and those that the program makes.

use crate::constants;
use datatype::PredefinedOp;

/// An operator. Operations under way have copies of it, so MPI_Op_free need not wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// An operator that the standard defines, such as MPI_SUM.
    Predefined(PredefinedOp),
    /// An operator that the program has made by MPI_Op_create or MPI_Op_create_c.
    User {
        /// The address of the program's function that combines elements.
        function: usize,
        /// Whether the function is an MPI_User_function_c, whose count is an MPI_Count.
        large: bool,
        commutative: bool,
    },
}

impl Op {
    pub fn is_commutative(self) -> bool {
        match self {
            Op::Predefined(op) => !matches!(op, PredefinedOp::Replace | PredefinedOp::NoOp),
            Op::User { commutative, .. } => commutative,
        }
    }
}

pub(crate) const PREDEFINED: [(crate::Handle, PredefinedOp); 14] = [
    (constants::MAX, PredefinedOp::Max),
    (constants::MIN, PredefinedOp::Min),
    (constants::SUM, PredefinedOp::Sum),
    (constants::PROD, PredefinedOp::Prod),
    (constants::LAND, PredefinedOp::Land),
    (constants::BAND, PredefinedOp::Band),
    (constants::LOR, PredefinedOp::Lor),
    (constants::BOR, PredefinedOp::Bor),
    (constants::LXOR, PredefinedOp::Lxor),
    (constants::BXOR, PredefinedOp::Bxor),
    (constants::MAXLOC, PredefinedOp::Maxloc),
    (constants::MINLOC, PredefinedOp::Minloc),
    (constants::REPLACE, PredefinedOp::Replace),
    (constants::NO_OP, PredefinedOp::NoOp),
];
