// SPDX-License-Identifier: BSD-3-Clause
//! Datatypes compiled to flat runs, packing, and the predefined reductions.
//!
//! Invariants: a `Layout` and a `Datatype` never change once made. Offsets are bytes from the buffer's
//! address, and may be negative. The packed form of a buffer is its bytes in typemap order without gaps.
//!
//! Read next: `layout.rs`, `buffer.rs`, `datatype.rs`, `construct.rs`, `reduce.rs`, in this order.

mod arrays;
mod atomic;
mod basic;
mod buffer;
mod combiner;
pub mod construct;
mod datatype;
mod external32;
mod facts;
mod float16;
mod fortran;
mod layout;
mod predefined;
mod reduce;
mod represented;
mod strip;

pub use arrays::{
    DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC, DISTRIBUTE_DEFAULT, DISTRIBUTE_NONE, Distribution, ORDER_C,
    ORDER_FORTRAN, darray, subarray,
};
pub use atomic::{accumulate, compare_and_swap, is_atomic};
pub use basic::{Basic, PredefinedOp};
pub use buffer::{Buffer, BufferClaim};
pub use combiner::{Combiner, Width};
pub use construct::{
    contiguous, dup, hindexed, hindexed_block, hvector, indexed, indexed_block, resized, structure, vector,
};
pub use datatype::{Datatype, OldTypes, Recipe};
pub use external32::{external32_size, pack_external32, unpack_external32};
pub use fortran::{f90_complex, f90_integer, f90_real};
pub use layout::{Layout, LayoutLoop, LayoutRun, RUNS_MAX};
pub use predefined::{
    NULL, match_size, predefined, predefined_handle, predefined_handles, predefined_name, value_index,
};
pub use reduce::{check_op, reduce, reduce_buffers};
pub use represented::represented;
