// SPDX-License-Identifier: BSD-3-Clause
//! What the caller sees of an operation: its mode, its ticket and its outcome.

use error::{Class, Error};

/// When a send completes (MPI 5.0, section 3.4). The ready mode is `Standard`: it would be no faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The send completes once its buffer may be used again.
    Standard,
    /// Like `Standard`, for a process that computes before it waits. A long message leaves at once where the
    /// kernel carries the packets, since the answer to an offer would find this process outside MPI.
    Overlapped,
    /// The send completes once the receive has started, too.
    Synchronous,
    /// The send completes at once. If the message cannot leave, it is copied to an attached buffer, perhaps
    /// the session's (0: no session).
    Buffered { session: u64 },
}

/// Names an operation from its start until `P2p::take` or `P2p::free` frees the ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// The ticket of an operation that was complete and successful when it started: most short sends, and a
    /// send to MPI_PROC_NULL. It need not be freed.
    pub const DONE: Ticket = Ticket(u64::MAX);
}

/// How an operation ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For a receive: the peer that sent the message.
    pub source_peer: u32,
    /// For a receive: the message's tag.
    pub tag: i32,
    /// For a receive: how many bytes of the message are now in its buffer.
    pub bytes: usize,
    /// The error with which the operation has failed; None if it has not.
    pub error: Option<Error>,
    /// Whether the operation was cancelled before it matched.
    pub cancelled: bool,
}

/// Returns how many of a message's `bytes` bytes a buffer of this capacity takes, and the outcome of the
/// receive.
#[inline]
pub(crate) fn received(source_peer: u32, tag: i32, bytes: u64, capacity: usize) -> (usize, Outcome) {
    let taken = bytes.min(capacity as u64) as usize;
    let error =
        if bytes > capacity as u64 { Some(truncated(source_peer, tag, bytes, capacity)) } else { None };
    (taken, Outcome { source_peer, tag, bytes: taken, error, cancelled: false })
}

/// The length and tag of a message that has come, in one word: a wide load after two narrow stores would
/// stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived(u64);

impl Arrived {
    #[inline(always)]
    pub(crate) fn new(bytes: usize, tag: i32) -> Arrived {
        Arrived((bytes as u64) << 32 | u64::from(tag as u32))
    }

    /// Returns the length of the whole message, even if the receive's buffer is shorter.
    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[inline(always)]
    pub(crate) fn tag(self) -> i32 {
        self.0 as i32
    }

    /// Makes the outcome of the receive, whose buffer has this capacity, from the peer `source`.
    #[inline(always)]
    pub(crate) fn outcome(self, source: u32, capacity: usize) -> Outcome {
        received(source, self.tag(), self.bytes() as u64, capacity).1
    }
}

/// Makes the error of a receive whose buffer is shorter than its message. The sender gets no error (MPI 5.0,
/// section 3.2.4).
#[cold]
fn truncated(source: u32, tag: i32, bytes: u64, capacity: usize) -> Error {
    let sentence =
        format!("message of {bytes} bytes from rank {source}, tag {tag}, but the buffer holds {capacity}");
    Error::new(Class::Truncate, sentence)
}
