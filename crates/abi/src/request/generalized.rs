// SPDX-License-Identifier: BSD-3-Clause
//! Generalized requests: the program itself carries out their operations (MPI 5.0, section 13.2).

/// The program's functions for one generalized request, and the argument that they get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generalized {
    pub(crate) query: usize,
    pub(crate) free: usize,
    pub(crate) cancel: usize,
    pub(crate) extra_state: usize,
    /// Whether the program's functions have the Fortran form, which MPICH's Fortran binding uses.
    pub(crate) is_fortran: bool,
}
