// SPDX-License-Identifier: BSD-3-Clause
//! Turns addresses that the program passes into claims: a `Buffer` or a `Span`, an address and a length that
//! the library may read and write. No other file does so.
//!
//! The program guarantees (MPI 5.0, sections 2.2 and 3.2): a buffer holds as many elements of the datatype as
//! the call says, and stays mapped until the operation has ended.

use super::{Address, NULL_PAGE_END, Out};
use crate::staging::{self, Fill};
use datatype::{BufferClaim, Layout};
use error::{Class, Result, fail};
use objects::constants;
use p2p::AttachedBuffer;
use std::sync::Arc;
use sys::Span;

/// A limit on sizes: no process has so many bytes. Addresses have at most 57 bits, and the upper half is the
/// kernel's.
pub(crate) const ADDRESSABLE_BYTES: usize = 1 << 56;

/// Returns the claim of the program's buffer at `address`: `elements` elements of `layout`, which contain
/// `bytes` bytes of data. Unless `bytes` is 0, the address MPI_IN_PLACE fails with MPI_ERR_BUFFER. So does
/// null, except as MPI_BOTTOM, with a layout whose own offsets are addresses.
#[inline(always)]
pub(crate) fn claim_buffer(
    address: Address,
    elements: usize,
    bytes: usize,
    layout: &Arc<Layout>,
    fill: Fill,
) -> Result<BufferClaim<'_>> {
    if address.0 < NULL_PAGE_END && bytes > 0 {
        if address.is_in_place() {
            fail!(Class::Buffer, "MPI_IN_PLACE is given where a buffer is needed");
        }
        if address.0 as i64 + layout.true_lb < NULL_PAGE_END as i64 {
            fail!(Class::Buffer, "the buffer is a null pointer, but count is {elements}");
        }
    }
    // The values are words, so that a `BufferClaim` stays in registers where no device is on.
    let (address, elements, layout) = if device::on() && bytes > 0 {
        staging::stand_in(address.0, elements, bytes, layout, fill)?
    } else {
        (address.0, elements, layout)
    };
    // SAFETY: the program passed it as a buffer of so many elements (contract of this file), or `staging`
    // made it.
    Ok(unsafe { BufferClaim::claim(address, elements, bytes, layout) })
}

impl Address {
    /// Returns the `bytes` bytes at this address as a span, or None if no memory of a program can lie there.
    #[inline]
    pub(crate) fn contiguous(self, bytes: usize) -> Option<Span> {
        if bytes == 0 {
            return Some(Span::EMPTY);
        }
        if self.0 < NULL_PAGE_END || bytes > ADDRESSABLE_BYTES {
            return None;
        }
        // SAFETY: the program passed it as a buffer of so many bytes (contract of this file).
        Some(unsafe { Span::claim(self.0, bytes) })
    }

    /// Returns the address `bytes` bytes behind this address, where a block of `count` elements begins. Fails
    /// if the block has elements, and this address is MPI_IN_PLACE or the result is 2^63 or more.
    pub(crate) fn displaced(self, bytes: i64, count: i64) -> Result<Address> {
        let there = Address(self.0.wrapping_add_signed(bytes as isize));
        if count > 0 && self.is_in_place() {
            fail!(Class::Buffer, "MPI_IN_PLACE is given where a buffer is needed");
        }
        if count > 0 && (there.0 as i64) < 0 {
            fail!(Class::Buffer, "the displacement of {bytes} bytes leads below address 0");
        }
        Ok(there)
    }

    /// Returns the `bytes` bytes at this address, which the program attaches as a buffer for sends in
    /// buffered mode. For the address MPI_BUFFER_AUTOMATIC, returns `AttachedBuffer::Automatic`.
    pub(crate) fn attached(self, bytes: usize) -> Result<AttachedBuffer> {
        if self.0 == constants::BUFFER_AUTOMATIC {
            return Ok(AttachedBuffer::Automatic);
        }
        if self.is_null() && bytes > 0 {
            fail!(Class::Buffer, "the buffer is a null pointer, but size is {bytes}");
        }
        staging::host_only(self.0, bytes, "a buffer for buffered sends")?;
        // SAFETY: the program passed it as a buffer of so many bytes, which is the library's until it is
        // detached (contract of this file).
        Ok(AttachedBuffer::User(unsafe { Span::claim(self.0, bytes) }))
    }

    /// Stores the value `address` in a pointer variable of the program, which lies at `self`. A few MPI
    /// functions, such as MPI_Win_allocate, declare the parameter that points to the variable as `void *`.
    pub(crate) fn store(self, address: usize) -> Result<()> {
        Out::<usize>::new(self.0, "buffer_addr").set(address)
    }
}

impl Address {
    /// Returns the `bytes` bytes at this address as a span. The program exposes them in an RMA window.
    pub(crate) fn exposed(self, bytes: u64) -> Span {
        // SAFETY: the program passed it as so many bytes, which stay mapped until it frees the window or
        // detaches them (contract of this file; MPI 5.0, sections 12.2.1 and 12.2.4).
        unsafe { Span::claim(self.0, bytes as usize) }
    }
}
