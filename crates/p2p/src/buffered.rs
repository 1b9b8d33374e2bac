// SPDX-License-Identifier: BSD-3-Clause
//! The buffers of buffered sends (MPI 5.0, section 3.6), and which parts of them hold messages that have not
//! left.
//!
//! A buffer may be attached to the process, to each session and to each comm. A message goes into the comm's
//! buffer, else into the session's, else into the process's: there it lies in the first gap that is long
//! enough. It occupies its packed bytes and nothing more: MPI_BSEND_OVERHEAD is only the upper bound that
//! programs add for each message. Messages are numbered, so that a flush does not wait for later ones.

use crate::data::{BufferOwner, BufferedCopy, MessageData};
use datatype::Buffer;
use error::{Class, Result, fail};
use sys::Span;
use transport::owned::Memory;

/// The memory to which buffered sends copy messages that cannot leave at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachedBuffer {
    /// Memory that the program has given to MPI_Buffer_attach or a similar function.
    User(Span),
    /// Memory that this library allocates for each message (MPI_BUFFER_AUTOMATIC).
    Automatic,
}

/// The buffers for buffered sends that the program has attached in this process.
pub(crate) struct BufferedSends {
    /// One entry for each attached buffer, in no order, since there are few.
    pub(crate) pools: Vec<BufferPool>,
    /// How many messages have been copied to any buffer so far. This is the number of the next message.
    pub(crate) copied: u64,
}

pub(crate) struct BufferPool {
    pub(crate) owner: BufferOwner,
    pub(crate) attached: AttachedBuffer,
    /// The parts of the buffer with messages that have not left, sorted by offset. In an automatic buffer,
    /// which has no fixed memory, all parts have offset 0.
    pub(crate) used: Vec<BufferPart>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferPart {
    at: usize,
    bytes: usize,
    pub(crate) number: u64,
}

impl BufferedSends {
    pub(crate) fn new() -> BufferedSends {
        BufferedSends { pools: Vec::new(), copied: 0 }
    }

    /// Returns the attached buffer that messages of this comm and session use: the comm's, else the
    /// session's, else the process's. Returns None if none of these is attached.
    fn pool(&mut self, context: u64, session: u64) -> Option<&mut BufferPool> {
        let rank = |pool: &BufferPool| match pool.owner {
            BufferOwner::Comm(of) => (of == context).then_some(0),
            BufferOwner::Session(of) => (of == session).then_some(1),
            BufferOwner::Process => Some(2),
        };
        let ranked = self.pools.iter_mut().filter_map(|pool| rank(pool).map(|rank| (rank, pool)));
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, pool)| pool)
    }

    /// Whether `copy_of` would find room for a message of `bytes` bytes. True also if no buffer is attached:
    /// `copy_of` then reports the error.
    pub(crate) fn has_room(&mut self, context: u64, session: u64, bytes: usize) -> bool {
        match self.pool(context, session) {
            Some(BufferPool { attached: AttachedBuffer::User(all), used, .. }) => {
                find(used, bytes, all.bytes()).is_some()
            }
            _ => true,
        }
    }

    /// Copies a message of this comm and session into the buffer that `pool` chooses. Returns the copy.
    /// Errors: no buffer is attached, or it has no room.
    pub(crate) fn copy_of(&mut self, context: u64, session: u64, message: &Buffer) -> Result<MessageData> {
        let (bytes, number) = (message.bytes(), self.copied);
        let Some(BufferPool { owner, attached, used }) = self.pool(context, session) else {
            fail!(Class::Buffer, "buffered send of {bytes} bytes, but no buffer is attached");
        };
        let kept = BufferedCopy { owner: *owner, number };
        let data = match attached {
            AttachedBuffer::Automatic => {
                let mut memory = Memory::new(bytes);
                message.save(0, &mut memory);
                used.push(BufferPart { at: 0, bytes: 0, number });
                MessageData::Owned(memory, kept)
            }
            AttachedBuffer::User(all) => {
                let Some(at) = take(used, bytes, all.bytes(), number) else {
                    fail!(
                        Class::Buffer,
                        "buffered send of {bytes} bytes does not fit: the buffer attached to {owner} has {} \
                         bytes, of which {} messages that have not left use {}",
                        all.bytes(),
                        used.len(),
                        used.iter().map(|part| part.bytes).sum::<usize>()
                    )
                };
                let span = all.slice(at, bytes);
                message.pack(0, span);
                MessageData::Attached(span, kept)
            }
        };
        self.copied += 1;
        Ok(data)
    }

    /// Frees the part of a buffer that the message `kept` occupied. The message has left.
    pub(crate) fn give_back(&mut self, kept: BufferedCopy) {
        if let Some(pool) = self.pools.iter_mut().find(|pool| pool.owner == kept.owner) {
            pool.used.retain(|part| part.number != kept.number);
        }
    }
}

/// Occupies the first gap of at least `bytes` bytes in a buffer of `capacity` bytes, for message `number`.
/// Returns the gap's offset; None if there is no such gap.
fn take(used: &mut Vec<BufferPart>, bytes: usize, capacity: usize, number: u64) -> Option<usize> {
    let (index, at) = find(used, bytes, capacity)?;
    used.insert(index, BufferPart { at, bytes, number });
    Some(at)
}

/// Finds the first gap of at least `bytes` bytes between the occupied parts `used` of a buffer. Returns the
/// index in `used` at which the caller must insert the gap's new part, and the gap's offset; None if there is
/// no such gap.
fn find(used: &[BufferPart], bytes: usize, capacity: usize) -> Option<(usize, usize)> {
    let mut at = 0;
    let mut index = 0;
    for part in used {
        if part.at - at >= bytes {
            break;
        }
        at = part.at + part.bytes;
        index += 1;
    }
    (capacity - at >= bytes).then_some((index, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_never_overlap_and_gaps_are_used_again() {
        let mut used = Vec::new();
        let mut take = |bytes, gone: &dyn Fn(&BufferPart) -> bool| {
            used.retain(|part| !gone(part));
            super::take(&mut used, bytes, 300, 0)
        };
        let none = |_: &BufferPart| false;
        assert_eq!(take(100, &none), Some(0));
        assert_eq!(take(100, &none), Some(100));
        assert_eq!(take(101, &none), None, "only 100 are left");
        assert_eq!(take(100, &none), Some(200));
        assert_eq!(take(1, &none), None, "full");
        assert_eq!(take(60, &|part| part.at == 100), Some(100));
        assert_eq!(take(40, &none), Some(160));
        assert_eq!(take(1, &none), None, "full again");
        assert_eq!(take(301, &|_| true), None);
        assert_eq!(take(300, &none), Some(0));
    }
}
