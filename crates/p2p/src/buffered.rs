// SPDX-License-Identifier: BSD-3-Clause
//! The buffers of buffered sends (MPI 5.0, section 3.6), and which parts of them hold messages that have not
//! left.
//!
//! The process and each comm and session may have a buffer. A message goes into the most specific one, where
//! the first gap fits. It occupies its packed bytes and MPI_BSEND_OVERHEAD; the overhead stays unused, but is
//! counted as the standard says. Messages are numbered, so that a flush does not wait for later ones.

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

/// The attached buffers of a process.
pub(crate) struct BufferedSends {
    /// One entry for each attached buffer, unsorted: there are few.
    pub(crate) pools: Vec<BufferPool>,
    /// The number of messages copied into any buffer so far, which numbers the next.
    pub(crate) copied: u64,
    /// How many bytes a message occupies beside its own (MPI_BSEND_OVERHEAD).
    overhead: usize,
}

pub(crate) struct BufferPool {
    pub(crate) owner: BufferOwner,
    pub(crate) attached: AttachedBuffer,
    /// The parts with messages that have not left, sorted by offset. The parts of an automatic buffer all
    /// have offset 0.
    pub(crate) used: Vec<BufferPart>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferPart {
    at: usize,
    bytes: usize,
    pub(crate) number: u64,
}

impl BufferedSends {
    pub(crate) fn new(overhead: usize) -> BufferedSends {
        BufferedSends { pools: Vec::new(), copied: 0, overhead }
    }

    /// Returns the buffer for messages of this comm and session: the comm's, otherwise the session's,
    /// otherwise the process's; None if none of these is attached.
    fn pool(&mut self, context: u64, session: u64) -> Option<&mut BufferPool> {
        let rank = |pool: &BufferPool| match pool.owner {
            BufferOwner::Comm(of) => (of == context).then_some(0),
            BufferOwner::Session(of) => (of == session).then_some(1),
            BufferOwner::Process => Some(2),
        };
        let ranked = self.pools.iter_mut().filter_map(|pool| rank(pool).map(|rank| (rank, pool)));
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, pool)| pool)
    }

    /// Whether `copy_of` would find room for a message of `bytes` bytes; true also if no buffer is attached.
    pub(crate) fn has_room(&mut self, context: u64, session: u64, bytes: usize) -> bool {
        let whole = bytes.saturating_add(self.overhead);
        match self.pool(context, session) {
            Some(BufferPool { attached: AttachedBuffer::User(all), used, .. }) => {
                find(used, whole, all.bytes()).is_some()
            }
            _ => true,
        }
    }

    /// Copies a message of this comm and session into the buffer that `pool` chooses. Returns the copy.
    /// Errors: no buffer is attached, or it has no room.
    pub(crate) fn copy_of(&mut self, context: u64, session: u64, message: &Buffer) -> Result<MessageData> {
        let (bytes, number, overhead) = (message.bytes(), self.copied, self.overhead);
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
                let Some(at) = take(used, bytes.saturating_add(overhead), all.bytes(), number) else {
                    fail!(
                        Class::Buffer,
                        "buffered send of {bytes} bytes (and {overhead} of overhead) does not fit: the \
                         buffer attached to {owner} has {} bytes, of which {} messages that have not left use {}",
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

    /// Frees the part of a buffer that the message `kept` has occupied and that has left.
    pub(crate) fn give_back(&mut self, kept: BufferedCopy) {
        if let Some(pool) = self.pools.iter_mut().find(|pool| pool.owner == kept.owner) {
            pool.used.retain(|part| part.number != kept.number);
        }
    }
}

/// Occupies the first gap of `bytes` bytes for message `number` in a buffer of `capacity` bytes. Returns the
/// gap's offset; None if there is no such gap.
fn take(used: &mut Vec<BufferPart>, bytes: usize, capacity: usize, number: u64) -> Option<usize> {
    let (index, at) = find(used, bytes, capacity)?;
    used.insert(index, BufferPart { at, bytes, number });
    Some(at)
}

/// Finds the first gap of at least `bytes` bytes between the parts `used` of a buffer. Returns the index in
/// `used` before which it is, and its offset.
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
