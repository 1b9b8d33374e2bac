//! The buffer for buffered sends (MPI 5.0, section 3.6): which parts of it hold messages that have not left.
//!
//! A message takes its packed bytes and MPI_BSEND_OVERHEAD, first fit. We write nothing but the bytes themselves, so the
//! overhead is air; it is counted so that a program that fits here fits wherever the standard's sum fits.

use crate::P2p;
use crate::request::Data;
use datatype::Buffer;
use error::{Class, Result, fail};
use sys::Span;
use transport::own::Memory;

/// MPI_BSEND_OVERHEAD of the standard ABI.
pub const BSEND_OVERHEAD_BYTES: usize = 512;

/// What buffered sends copy to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachedBuffer {
    /// Memory of the user.
    User(Span),
    /// As much as is needed (MPI_BUFFER_AUTOMATIC).
    Automatic,
}

/// A part of the attached buffer that holds a message.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) span: Span,
}

pub(crate) struct Buffered {
    attached: Option<AttachedBuffer>,
    /// Parts in use, as (first byte, bytes), sorted.
    used: Vec<(usize, usize)>,
    /// Messages in memory of our own.
    automatic: usize,
}

impl P2p {
    /// Gives buffered sends memory, which must stay mapped until it is detached. Errors: there is one already.
    pub fn attach_buffer(&mut self, buffer: AttachedBuffer) -> Result<()> {
        if self.state.buffered.attached.is_some() {
            fail!(Class::Buffer, "a buffer for buffered sends is already attached");
        }
        self.state.buffered.attached = Some(buffer);
        Ok(())
    }

    /// Takes the memory back, once all messages have left it; `None` before: poll, and ask again.
    /// Errors: none is attached.
    pub fn detach_buffer(&mut self) -> Result<Option<AttachedBuffer>> {
        if self.state.buffered.attached.is_none() {
            fail!(Class::Buffer, "no buffer for buffered sends is attached");
        }
        Ok(if self.is_buffer_flushed() { self.state.buffered.attached.take() } else { None })
    }

    /// Whether all buffered messages have left (MPI_Buffer_flush).
    pub fn is_buffer_flushed(&self) -> bool {
        self.state.buffered.used.is_empty() && self.state.buffered.automatic == 0
    }
}

impl Buffered {
    pub(crate) fn new() -> Buffered {
        Buffered { attached: None, used: Vec::new(), automatic: 0 }
    }

    /// Whether `copy_of` of a message of so many bytes would find room.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        match self.attached {
            Some(AttachedBuffer::User(all)) => {
                self.find(bytes.saturating_add(BSEND_OVERHEAD_BYTES), all.bytes()).is_some()
            }
            _ => true,
        }
    }

    /// Copies a message. Errors: no room.
    pub(crate) fn copy_of(&mut self, message: &Buffer) -> Result<Data> {
        let bytes = message.bytes();
        match self.attached {
            Some(AttachedBuffer::Automatic) => {
                let mut memory = Memory::new(bytes);
                memory.lend(|to| message.pack(0, to));
                self.automatic += 1;
                Ok(Data::Own(memory))
            }
            Some(AttachedBuffer::User(all)) => {
                let Some(at) = self.take(bytes.saturating_add(BSEND_OVERHEAD_BYTES), all.bytes()) else {
                    let (messages, used) =
                        (self.used.len(), self.used.iter().map(|part| part.1).sum::<usize>());
                    fail!(
                        Class::Buffer,
                        "buffered send of {bytes} bytes (and {BSEND_OVERHEAD_BYTES} of overhead) does not fit: the \
                         attached buffer has {} bytes, of which {messages} messages that have not left use {used}",
                        all.bytes()
                    )
                };
                let span = all.slice(at, bytes);
                message.pack(0, span);
                Ok(Data::Attached(Place { span }))
            }
            None => fail!(Class::Buffer, "buffered send of {bytes} bytes, but no buffer is attached"),
        }
    }

    /// The message has left.
    pub(crate) fn give_back(&mut self, place: Place) {
        let Some(AttachedBuffer::User(all)) = self.attached else { return };
        let at = place.span.address() - all.address();
        self.used.retain(|part| part.0 != at);
    }

    /// A message in memory of our own has left.
    pub(crate) fn give_back_automatic(&mut self) {
        self.automatic -= 1;
    }

    /// Takes the first gap that is wide enough; returns its first byte.
    fn take(&mut self, bytes: usize, capacity: usize) -> Option<usize> {
        let (index, at) = self.find(bytes, capacity)?;
        self.used.insert(index, (at, bytes));
        Some(at)
    }

    /// The first gap: its place in `used`, and its first byte.
    fn find(&self, bytes: usize, capacity: usize) -> Option<(usize, usize)> {
        let mut at = 0;
        let mut index = 0;
        for &(first, length) in &self.used {
            if first - at >= bytes {
                break;
            }
            at = first + length;
            index += 1;
        }
        (capacity - at >= bytes).then_some((index, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_never_overlap_and_gaps_are_used_again() {
        let mut buffered = Buffered::new();
        assert_eq!(buffered.take(100, 300), Some(0));
        assert_eq!(buffered.take(100, 300), Some(100));
        assert_eq!(buffered.take(101, 300), None, "only 100 are left");
        assert_eq!(buffered.take(100, 300), Some(200));
        assert_eq!(buffered.take(1, 300), None, "full");
        buffered.used.remove(1);
        assert_eq!(buffered.take(60, 300), Some(100));
        assert_eq!(buffered.take(40, 300), Some(160));
        assert_eq!(buffered.take(1, 300), None, "full again");
        buffered.used.clear();
        assert_eq!(buffered.take(301, 300), None);
        assert_eq!(buffered.take(300, 300), Some(0));
    }
}
