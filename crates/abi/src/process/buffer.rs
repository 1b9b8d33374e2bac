// SPDX-License-Identifier: BSD-3-Clause
//! Makes a `Buffer` (`count` elements of a datatype at an address) from the arguments that a program passes.

use super::Process;
use crate::args::{ADDRESSABLE_BYTES, Address, claim_buffer};
use crate::lenient::{self, Accepted};
use crate::staging::Fill;
use datatype::Buffer;
use error::{Class, Error, Result, fail};
use objects::{Handle, constants};

impl Process {
    /// Makes the buffer of a communication from the program's arguments. Fails if `claim_buffer` refuses the
    /// address, if the count is negative, or if the elements are more bytes than memory has.
    #[inline(always)]
    pub(crate) fn buffer(&self, address: Address, count: i64, datatype: Handle) -> Result<Buffer> {
        self.buffer_filled(address, count, datatype, Fill::Now)
    }

    /// Makes the buffer of a collective from the program's arguments. For device memory this is a block of
    /// host memory, into which the data is copied when the collective starts.
    #[inline(always)]
    pub(crate) fn collective_buffer(&self, address: Address, count: i64, datatype: Handle) -> Result<Buffer> {
        self.buffer_filled(address, count, datatype, Fill::Later)
    }

    #[inline(always)]
    fn buffer_filled(&self, address: Address, count: i64, datatype: Handle, fill: Fill) -> Result<Buffer> {
        let layout = match self.objects.committed(datatype) {
            Ok(datatype) => datatype.layout(),
            Err(error) => return self.no_buffer(count, datatype, error),
        };
        let elements = crate::args::count(count, "count")?;
        let Some(bytes) = Buffer::bytes_of(elements, layout).filter(|&bytes| bytes <= ADDRESSABLE_BYTES)
        else {
            fail!(Class::Count, "{count} elements of {datatype} are more bytes than a process can have");
        };
        Ok(claim_buffer(address, elements, bytes, layout, fill)?.buffer())
    }

    /// Makes the buffer of a message from the program's arguments. If `rank` is MPI_PROC_NULL, no byte moves,
    /// so the datatype may be null. For device memory this is a block of host memory, into which nothing is
    /// copied yet.
    #[inline(always)]
    pub(crate) fn message_buffer(
        &self,
        address: Address,
        count: i64,
        datatype: Handle,
        rank: i32,
    ) -> Result<Buffer> {
        let count =
            if datatype == constants::DATATYPE_NULL && rank == constants::PROC_NULL { 0 } else { count };
        self.buffer_filled(address, count, datatype, Fill::Later)
    }

    /// Returns an empty buffer if the count is 0 and the datatype MPI_DATATYPE_NULL, and otherwise `error`.
    /// Called if the datatype cannot be used.
    #[cold]
    fn no_buffer(&self, count: i64, datatype: Handle, error: Error) -> Result<Buffer> {
        if count != 0 || datatype != constants::DATATYPE_NULL {
            return Err(error);
        }
        lenient::accept(Accepted::NullDatatype);
        Ok(Buffer::EMPTY)
    }
}
