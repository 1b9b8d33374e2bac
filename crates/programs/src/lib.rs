// SPDX-License-Identifier: BSD-3-Clause
//! The library of the programs `mpirun` (also installed as `mpiexec`), `outboard-proxy` and `outboard`.
//!
//! Each `src/bin/*.rs` only calls this library, so that tests and the generator of the man pages can call all
//! code. Read next: `mpirun/mod.rs`.
#![forbid(unsafe_code)]

pub mod mpirun;
#[cfg(feature = "outboard")]
pub mod outboard;
pub mod proxy;
pub mod tables;
