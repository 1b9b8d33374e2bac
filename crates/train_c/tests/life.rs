// SPDX-License-Identifier: BSD-3-Clause
//! The tests of `src/life.rs`, which stand at its foot. The library itself cannot be linked into a test: it
//! finds MPI when a program starts.

#[allow(dead_code)]
#[path = "../src/life.rs"]
mod life;
