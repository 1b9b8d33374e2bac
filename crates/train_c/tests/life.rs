// SPDX-License-Identifier: BSD-3-Clause
//! Runs the tests in `src/life.rs` and `src/turn.rs`. The library itself cannot be linked into a test,
//! because it needs an MPI library when a program starts.

#[allow(dead_code)]
#[path = "../src/life.rs"]
mod life;
#[allow(dead_code)]
#[path = "../src/turn.rs"]
mod turn;
