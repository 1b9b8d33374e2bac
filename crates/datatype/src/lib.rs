//! Datatypes compiled to flat runs, packing, and the predefined reductions.
//!
//! Always true here: a `Layout` never changes once made; offsets are bytes from the buffer's address (and may be negative);
//! the packed form of a buffer is its bytes in typemap order without gaps.

mod basic;
mod buffer;
mod layout;

pub use basic::{Basic, PredefinedOp};
pub use buffer::Buffer;
pub use layout::{Layout, Loop, RUNS_MAX, Run};

use error::Result;
use sys::Span;

/// Whether MPI allows `op` on `basic` (MPI 5.0, section 6.9.2); the error says which it does allow.
pub fn check_op(_op: PredefinedOp, _basic: Basic) -> Result<()> {
    todo!()
}

/// `into[i] = left[i] op right[i]` for all elements of the spans, which are equally long; `into` may be `left` or `right`.
pub fn reduce(_op: PredefinedOp, _basic: Basic, _left: Span, _right: Span, _into: Span) {
    todo!()
}
