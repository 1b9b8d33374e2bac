//! The programs: `mpirun` (also installed as `mpiexec`), `outboard-proxy`, and `outboard` for looking at things.
//!
//! Each `src/bin/*.rs` is one call into here, so that tests and the generator of the man pages reach everything.
//! Read next: `mpirun/mod.rs`.
#![forbid(unsafe_code)]

pub mod mpirun;
pub mod outboard;
pub mod proxy;
mod tables;
