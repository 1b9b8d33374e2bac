// SPDX-License-Identifier: BSD-3-Clause
//! What the user asks for: the command line of `mpirun`, and what the environment adds to it.
//!
//! Read next: `arguments.rs`.

pub mod allocation;
pub mod arguments;
pub mod found;
mod mvapich;
pub mod others;
pub mod rsh;
pub mod say;
mod values;
pub mod variables;
mod words;
