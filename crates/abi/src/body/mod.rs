//! The bodies of the MPI functions, grouped as the chapters of the standard.
//!
//! # How a body is written
//! `MPI_Xyz` has a body if a file here has a `pub fn xyz(`, and then `cargo run -p outboard-xtask -- gen`
//! connects it. Its first parameter is `&mut Guard` (the process with its lock held: `guard.objects`,
//! `guard.job()`, `guard.parts()`, `guard.wait(..)`, `guard.unlocked(..)`), then those of the standard's C
//! binding, in order, converted by kind; it returns `Result<()>`:
//!
//! | C | Rust |
//! |---|---|
//! | handle | `Handle` |
//! | `int`; `int` that is MPI_Count in the `_c` form; MPI_Aint, MPI_Count, MPI_Offset | `i32`; `i64`; `i64` |
//! | buffer, any `void *`, `char **`, `char ***`; function | `Address`; `Callback` |
//! | `int *`, `MPI_Aint *`, `MPI_Count *`, handle `*` out or in-out | `Out<i32>`, `Out<i64>`, `Out<i64>`, `Out<Handle>` |
//! | the same where the `_c` form is wider | `OutCount` |
//! | `const int x[]`, `const MPI_Aint x[]`, `const` handle `x[]` | `In<i32>`, `In<i64>`, `In<Handle>` |
//! | the same where the `_c` form is wider | `Counts` |
//! | arrays without `const` | `Array<i32>`, `Array<i64>`, `Array<Handle>` |
//! | `const char *`; `char *` | `Text`; `TextOut` |
//! | `const MPI_Status *`; `MPI_Status *`; array_of_statuses | `StatusIn`; `StatusOut`; `Statuses` |
//!
//! A `pub fn xyz(` in `plain.rs` is a fast path to the body: it is tried first, with the process instead of a
//! guard, and answers nothing where it has done nothing.
//!
//! `MPI_Xyz_c` shares the body of `MPI_Xyz` unless there is a `pub fn xyz_c(`. Functions that return no error
//! code take no guard and return their value. Helpers are `pub(crate)`, because every `pub fn` must be an MPI
//! function. An error is returned, never raised here; it goes to the handler of the first comm (window, file,
//! session) among the parameters, or to the object named by `guard.blame(..)`. A body checks everything
//! before it changes anything.

#![allow(clippy::too_many_arguments)] // As many as the standard gives them.

pub mod attribute;
pub mod buffers;
pub mod coll;
pub mod comm;
pub mod convert;
pub mod datatype;
pub mod dynamic;
pub mod environment;
pub mod errhandler;
pub mod file;
pub mod file_access;
pub mod gather;
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
pub mod persistent;
pub mod plain;
pub mod request;
pub mod session;
pub mod status;
pub mod tool;
pub mod topology;
pub mod window;
