//! Windows: one-sided communication (MPI 5.0, chapter 12), carried out by the origin alone.
//!
//! Invariants: an operation has moved its bytes when it returns, and the target process takes no part. One
//! element of 4 or 8 bytes in mapped memory is updated by an atomic instruction; all other updates hold the
//! latch of the target's record.
//!
//! Memory in an arena (MPI_Win_allocate, MPI_Win_allocate_shared, MPI_Alloc_mem) is reached by loads and
//! stores, other memory by cross-memory attach, or, where that is refused, through a thread of its owner.
//!
//! Read next: `window.rs` (members and epochs), `target.rs` (one member), `record.rs` (what members share),
//! `access.rs` (operations), `serve.rs` (the thread).
#![forbid(unsafe_code)]

mod access;
mod dynamic;
mod pieces;
mod process;
mod record;
mod serve;
mod target;
mod window;

pub use access::{Swap, Update};
pub use process::Rma;
pub use record::Lock;
pub use serve::Way;
pub use target::TargetRange;
pub use window::{Exposure, Flavor, Window};
