// SPDX-License-Identifier: BSD-3-Clause
//! Wrappers of C arguments. A wrapper holds a pointer that the program passes, and the parameter's name. It
//! checks for null before it reads or writes. No wrapper keeps a reference.
//!
//! The program guarantees (MPI 5.0, section 2.5): a pointer that is not null points to as many values of its
//! type as the description of the MPI function says.

mod element;
mod memory;
mod status;
mod text;

pub use element::{Array, Counts, In, Out, OutCount, ShimForm};
use error::{Class, Result, fail};
pub(crate) use memory::{ADDRESSABLE_BYTES, claim_buffer};
pub use objects::Handle;
use objects::constants;
pub(crate) use status::convert;
pub use status::{Status, StatusIn, StatusOut, Statuses};
pub use text::{Text, TextOut};

/// The end of the addresses at which Linux maps nothing (vm.mmap_min_addr). An address below is null, or a
/// constant such as MPI_IN_PLACE.
const NULL_PAGE_END: usize = 1 << 16;

/// The address of a buffer of the program, or a pointer parameter without a wrapper of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub usize);

impl Address {
    /// Whether the address is MPI_IN_PLACE.
    pub fn is_in_place(self) -> bool {
        self.0 == constants::IN_PLACE
    }
    /// Whether the address is null, which is also MPI_BOTTOM.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
}

/// The address of a function of the program, or a small number that the standard defines in place of a
/// function, such as MPI_COMM_DUP_FN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callback(pub usize);

/// Returns the value of the count parameter `name`, or MPI_ERR_COUNT if it is negative.
#[inline]
pub fn count(value: i64, name: &str) -> Result<usize> {
    match usize::try_from(value) {
        Ok(count) => Ok(count),
        Err(_) => fail!(Class::Count, "{name} is {value}, which is negative"),
    }
}

/// Returns the value of the parameter `name`, the length of an array, or MPI_ERR_ARG if it is negative.
#[inline]
pub fn length(value: impl Into<i64>, name: &str) -> Result<usize> {
    let value = value.into();
    match usize::try_from(value) {
        Ok(length) => Ok(length),
        Err(_) => fail!(Class::Arg, "{name} is {value}, which is negative"),
    }
}

#[cold]
fn null<T>(name: &str) -> Result<T> {
    fail!(Class::Arg, "{name} is a null pointer")
}
