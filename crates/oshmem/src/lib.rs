// SPDX-License-Identifier: BSD-3-Clause
//! OpenSHMEM 1.6 as a C library, `liboshmem.so` with `include/shmem.h`.
//!
//! It calls the public functions of `libmpi_abi.so.1` by their names, and nothing else of Outboard. It uses a
//! session of its own, so MPI may be initialised before, after or never. The symmetric heap is a window of
//! shared memory: loads, stores and atomic instructions reach PEs of this host; MPI's windows reach all other
//! memory (statics, other hosts).
//!
//! Contract of all unsafe code here: what the program passes is what OpenSHMEM says.
//!
//! Read next: `process.rs` (what this PE knows), `rma.rs`, then `tables/shmem.json`, from which `faces.rs` is
//! generated.

mod amo;
mod bell;
#[allow(dead_code)] // All functions of MPI; few are needed here.
#[rustfmt::skip]
#[path = "../../fortran/src/c.rs"]
mod c;
mod coll;
mod context;
#[allow(dead_code)]
#[path = "../../fortran/src/dialect.rs"]
mod dialect;
mod element;
mod faces;
mod fault;
mod heap;
mod lock;
mod long_double;
mod memory;
#[rustfmt::skip]
#[path = "../../fortran/src/numbers.rs"]
mod numbers;
mod order;
mod process;
mod progress;
mod rma;
mod seen;
mod setting;
mod setup;
#[allow(dead_code)] // The MPI library needs the list of calls, too.
#[path = "../../telemetry/src/shmem.rs"]
mod shmem;
mod signal;
mod team;
mod wait;
