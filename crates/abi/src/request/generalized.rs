// SPDX-License-Identifier: BSD-3-Clause
//! Generalized requests: operations of the program itself (MPI 5.0, section 13.2).

/// The program's functions for one request, and their argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generalized {
    pub(crate) query: usize,
    pub(crate) free: usize,
    pub(crate) cancel: usize,
    pub(crate) extra_state: usize,
    /// Whether the functions have the Fortran form.
    pub(crate) is_fortran: bool,
}
