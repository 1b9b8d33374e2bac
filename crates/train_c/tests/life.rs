// SPDX-License-Identifier: BSD-3-Clause
//! The tests of `src/life.rs` and `src/turn.rs`, which stand at their feet. The library itself cannot be
//! linked into a test: it finds MPI when a program starts.

#[allow(dead_code)]
#[path = "../src/life.rs"]
mod life;
#[allow(dead_code)]
#[path = "../src/turn.rs"]
mod turn;
