// SPDX-License-Identifier: BSD-3-Clause
//! The bodies of the MPI functions, grouped like the chapters of the standard. A body does what the MPI
//! function is defined to do; generated C functions call it.
//!
//! `MPI_Xyz` has a body if a file here has a `pub fn xyz(`, or `pub fn uvw, xyz(` in a row of a macro's
//! table. `cargo run -p outboard-xtask -- gen` connects the two. `MPI_Xyz_c` has the same body unless there
//! is a `pub fn xyz_c(`. A `pub fn xyz(` in `fast_path.rs` is tried first, and returns `None` if it has done
//! nothing. Helpers are `pub(crate)`.
//!
//! Invariants: a body checks everything before it changes anything. Its error goes to the error handler of
//! the first comm, window, file or session among the parameters, or of the object that `guard.blame(..)`
//! names. Read next: the table below, then `p2p.rs`.

#![allow(clippy::too_many_arguments)] // As many as the standard gives them.

// The parameters of a body: `&mut Guard` (the process with its lock held: `guard.objects`, `guard.job()`,
// `guard.parts()`, `guard.wait(..)`, `guard.unlocked(..)`), then those of the C binding in order, by kind:
//
// | C | Rust |
// |---|---|
// | MPI_Comm and every other handle by value | `Handle` |
// | `int` count, index, rank, flag, ... | `i32` |
// | `int` that is MPI_Count in the `_c` form; MPI_Aint, MPI_Offset, MPI_Count | `i64` |
// | `int *`, `MPI_Comm *`, `MPI_Aint *`: a value out, or in and out | `Out<i32>`, `Out<Handle>`, `Out<i64>` |
// | the same where the `_c` form is wider | `OutCount` |
// | array in; out, or in and out | `In<T>`; `Array<T>` |
// | the same where the `_c` form is wider | `Counts` |
// | buffer, `void *`, `char ***`; function pointer | `Address`; `Callback` |
// | `const char *`; `char *` | `Text`; `TextOut` |
// | `const MPI_Status *`; `MPI_Status *`; array_of_statuses | `StatusIn`; `StatusOut`; `Statuses` |
//
// A body returns `Result<()>`. Functions without an error code take no guard and return their value.

pub mod attribute;
pub mod buffers;
pub mod coll;
pub mod comm;
pub mod completion;
pub mod convert;
pub mod datatype;
pub mod dynamic;
pub mod environment;
pub mod epoch;
pub mod errhandler;
pub mod exchange;
pub mod fast_path;
pub mod file;
pub mod file_access;
pub mod generalized;
pub mod group;
pub mod info;
pub mod intercomm;
pub mod neighbor;
pub mod onesided;
pub mod op;
pub mod p2p;
pub mod pack;
pub mod partitioned;
pub mod probe;
pub mod request;
pub mod session;
pub mod status;
pub mod tool;
pub mod tool_categories;
pub mod tool_pvars;
pub mod topology;
pub mod window;
