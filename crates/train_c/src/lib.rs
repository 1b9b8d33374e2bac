// SPDX-License-Identifier: BSD-3-Clause
//! Collectives for training as a C library, `liboutboard_dl.so.1` with `include/outboard_dl.h`. Operations on
//! groups of ranks progress and end without further calls of the program.
//!
//! The library calls the public functions of `libmpi_abi.so.1` by their names, and nothing else of Outboard.
//! So a process has one MPI, which the program may use, too, and proxies carry out the collectives as they do
//! for any program.
//!
//! Contract of all unsafe code here: what the caller passes is what `outboard_dl.h` says, and buffers stay
//! valid until their operation has ended.
//!
//! Read next: `engine.rs` (progress), `life.rs` (which thread has a request), `work.rs` (an operation), then
//! `start.rs` (the C functions).

#[allow(dead_code)] // All functions of MPI; few are needed here.
#[rustfmt::skip]
#[path = "../../fortran/src/c.rs"]
mod c;
#[allow(dead_code)]
#[path = "../../fortran/src/dialect.rs"]
mod dialect;
mod engine;
mod fault;
mod group;
mod kind;
mod life;
#[rustfmt::skip]
#[path = "../../fortran/src/numbers.rs"]
mod numbers;
mod process;
mod start;
mod turn;
mod work;
