// SPDX-License-Identifier: BSD-3-Clause
//! Where the bytes of a send or receive are: in the user's buffer, or in the copy that a buffered send has
//! made.

use datatype::Buffer;
use sys::Span;
use transport::owned::Memory;

/// Where the bytes of a send or receive are.
pub(crate) enum MessageData {
    /// Nowhere: the operation has ended and no longer has its buffer.
    None,
    /// In the user's buffer, which the operation uses until it ends.
    User(Buffer),
    /// In the buffer that the program attached, to which a buffered send has copied its message.
    Attached(Span, BufferedCopy),
    /// In memory that this library allocated (MPI_BUFFER_AUTOMATIC), to which a buffered send has copied its
    /// message.
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

    /// Copies packed bytes of the message (without gaps), from packed offset `offset` on, as many as fit into
    /// `to`.
    #[inline]
    pub(crate) fn pack(&mut self, offset: usize, to: Span) {
        match self {
            MessageData::None => assert_eq!(to.bytes(), 0, "the operation has given its buffer up"),
            MessageData::User(buffer) => buffer.pack_away(offset, to),
            MessageData::Attached(copy, _) => copy.slice(offset, to.bytes()).copy_to(to),
            MessageData::Owned(memory, _) => to.restore(&memory[offset..offset + to.bytes()]),
        }
    }

    /// Copies the first `bytes` bytes of the message, packed without gaps, to the beginning of a receive
    /// buffer.
    pub(crate) fn copy_to(&mut self, bytes: usize, to: &Buffer) {
        match self {
            MessageData::None => assert_eq!(bytes, 0, "the operation has given its buffer up"),
            MessageData::User(buffer) => to.slice(0, bytes).copy_from(&buffer.slice(0, bytes)),
            MessageData::Attached(copy, _) => to.unpack(0, copy.slice(0, bytes)),
            MessageData::Owned(memory, _) => to.restore(0, &memory[..bytes]),
        }
    }

    /// Returns the bytes as one span for the network to read or write. Returns None if they have gaps, lie in
    /// memory of this library (`Owned`), or are no longer there.
    pub(crate) fn stretch(&self) -> Option<Span> {
        match self {
            MessageData::User(buffer) => buffer.contiguous(),
            MessageData::Attached(copy, _) => Some(*copy),
            MessageData::None | MessageData::Owned(..) => None,
        }
    }

    /// Returns the address at which a peer could read the bytes as one span; 0 if they have gaps.
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
    /// The buffer belongs to the process (MPI_Buffer_attach).
    Process,
    /// The buffer belongs to the session with this number, which the caller of this crate chose.
    Session(u64),
    /// The buffer belongs to the comm with this context.
    Comm(u64),
}

/// Names the copy that a buffered send has made: the owner of the buffer with the copy, and the number of the
/// message (`BufferPart`).
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
