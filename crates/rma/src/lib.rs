//! Windows: one-sided communication (MPI 5.0, chapter 12), carried out by the origin alone.
//!
//! Invariants: an operation has moved its bytes when it returns; the passive target never acts; all processes update one element of
//! memory by an atomic instruction where it is mapped and has 4 or 8 bytes, and else, or several at once, in the latch of the target's record.
//! Memory in an arena (MPI_Win_allocate, MPI_Win_allocate_shared, MPI_Alloc_mem) is reached by loads and stores, other memory by cross-memory attach, and where
//! that is refused through a thread at its owner.
//!
//! Read next: `window.rs` (members and epochs), `record.rs` (what members show each other), `access.rs` (operations), `serve.rs` (the thread).
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
