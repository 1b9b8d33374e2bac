// SPDX-License-Identifier: BSD-3-Clause
//! What the caller sees of an operation: its mode, its ticket, how it ended.

use error::{Class, Error};

/// What the sender is told, and when (MPI 5.0, section 3.4). The ready mode is `Standard`: it is no faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Complete once the buffer may be used again.
    Standard,
    /// The same, of a process that computes before it waits: long ones leave at once where the kernel
    /// carries them, since the answer to an offer would find nobody in MPI.
    Overlapped,
    /// Complete once the receive has started, too.
    Synchronous,
    /// Complete at once: what cannot leave is copied to an attached buffer, perhaps the session's (0: of
    /// none).
    Buffered { session: u64 },
}

/// Names an operation from its start until it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// An operation that was complete and successful when it started: most short sends, and a send to
    /// MPI_PROC_NULL. It need not be freed.
    pub const DONE: Ticket = Ticket(u64::MAX);
}

/// How an operation ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For a receive: the peer that sent the message.
    pub source_peer: u32,
    /// For a receive: the message's tag.
    pub tag: i32,
    /// For a receive: data bytes now in the buffer.
    pub bytes: usize,
    /// What went wrong.
    pub error: Option<Error>,
    /// Whether it was cancelled before it matched.
    pub cancelled: bool,
}

/// How many bytes of a message a buffer of this capacity takes, and the outcome of the receive.
#[inline]
pub(crate) fn received(source_peer: u32, tag: i32, bytes: u64, capacity: usize) -> (usize, Outcome) {
    let taken = bytes.min(capacity as u64) as usize;
    let error =
        if bytes > capacity as u64 { Some(truncated(source_peer, tag, bytes, capacity)) } else { None };
    (taken, Outcome { source_peer, tag, bytes: taken, error, cancelled: false })
}

/// A message that has come: length and tag in one word, because a wide load of two fresh narrow stores would
/// stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived(u64);

impl Arrived {
    #[inline(always)]
    pub(crate) fn new(bytes: usize, tag: i32) -> Arrived {
        Arrived((bytes as u64) << 32 | u64::from(tag as u32))
    }

    /// Of the whole message.
    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[inline(always)]
    pub(crate) fn tag(self) -> i32 {
        self.0 as i32
    }

    /// The outcome of its receive.
    #[inline(always)]
    pub(crate) fn outcome(self, source: u32, capacity: usize) -> Outcome {
        received(source, self.tag(), self.bytes() as u64, capacity).1
    }
}

/// MPI 5.0, section 3.2.4: a message longer than the buffer is the receiver's error, not the sender's.
#[cold]
fn truncated(source: u32, tag: i32, bytes: u64, capacity: usize) -> Error {
    let sentence =
        format!("message of {bytes} bytes from rank {source}, tag {tag}, but the buffer holds {capacity}");
    Error::new(Class::Truncate, sentence)
}
