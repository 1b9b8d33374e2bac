//! The machine: spans of memory, clocks, futexes, shared mappings, other processes. Nothing here knows MPI.
//!
//! Read next: `span.rs`, the one way in which the library touches user memory.

pub mod span;
pub use span::Span;
