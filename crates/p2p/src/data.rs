// SPDX-License-Identifier: BSD-3-Clause
//! The bytes of an operation: the user's buffer, or a copy of a buffered send.

use datatype::Buffer;
use sys::Span;
use transport::owned::Memory;

/// The bytes of an operation.
pub(crate) enum MessageData {
    /// The operation has ended and has given its buffer up.
    None,
    /// The user's buffer.
    User(Buffer),
    /// A copy of a buffered send's message, in the buffer that the program attached.
    Attached(Span, BufferedCopy),
    /// A copy of a buffered send's message, in memory that this library allocated (MPI_BUFFER_AUTOMATIC).
    Owned(Memory, BufferedCopy),
}

impl MessageData {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            MessageData::None => 0,
            MessageData::User(buffer) => buffer.bytes(),
            MessageData::Attached(copy, _) => copy.bytes(),
            MessageData::Owned(memory, _) => memory.len(),
        }
    }

    /// Copies packed bytes, from `offset` on, to `to`.
    #[inline]
    pub(crate) fn pack(&mut self, offset: usize, to: Span) {
        match self {
            MessageData::None => assert_eq!(to.bytes(), 0, "the operation has given its buffer up"),
            MessageData::User(buffer) => buffer.pack_away(offset, to),
            MessageData::Attached(copy, _) => copy.slice(offset, to.bytes()).copy_to(to),
            MessageData::Owned(memory, _) => to.restore(&memory[offset..offset + to.bytes()]),
        }
    }

    /// Copies the first `bytes` packed bytes to the beginning of a receive buffer.
    pub(crate) fn copy_to(&mut self, bytes: usize, to: &Buffer) {
        match self {
            MessageData::None => assert_eq!(bytes, 0, "the operation has given its buffer up"),
            MessageData::User(buffer) => to.slice(0, bytes).copy_from(&buffer.slice(0, bytes)),
            MessageData::Attached(copy, _) => to.unpack(0, copy.slice(0, bytes)),
            MessageData::Owned(memory, _) => to.restore(0, &memory[..bytes]),
        }
    }

    /// Returns the bytes as one span that the network may read or write; None if they have gaps, or are a
    /// copy of our own.
    pub(crate) fn stretch(&self) -> Option<Span> {
        match self {
            MessageData::User(buffer) => buffer.contiguous(),
            MessageData::Attached(copy, _) => Some(*copy),
            MessageData::None | MessageData::Owned(..) => None,
        }
    }

    /// Returns the address from which a peer could read the bytes as one span, or 0 if they have gaps.
    pub(crate) fn address(&mut self) -> u64 {
        let address = match self {
            MessageData::None => 0,
            MessageData::User(buffer) => buffer.contiguous().map_or(0, Span::address),
            MessageData::Attached(copy, _) => copy.address(),
            MessageData::Owned(memory, _) => memory.as_ptr().expose_provenance(),
        };
        address as u64
    }
}

/// The object to which the program has attached a buffer for buffered sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferOwner {
    /// The buffer is the process's (MPI_Buffer_attach).
    Process,
    /// The buffer belongs to the session with this number, which the caller of this crate chose.
    Session(u64),
    /// The buffer belongs to the comm with this context.
    Comm(u64),
}

/// Names the copy of a buffered send's message: the owner of the buffer that it is in, and its number
/// (`BufferPart`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferedCopy {
    pub(crate) owner: BufferOwner,
    pub(crate) number: u64,
}

impl std::fmt::Display for BufferOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BufferOwner::Process => "the process",
            BufferOwner::Session(_) => "the session",
            BufferOwner::Comm(_) => "the communicator",
        })
    }
}
