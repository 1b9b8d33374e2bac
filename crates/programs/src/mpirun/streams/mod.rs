// SPDX-License-Identifier: BSD-3-Clause
//! The standard input, output and error of ranks, as `mpirun` passes them on.

pub mod input;
pub mod output;
