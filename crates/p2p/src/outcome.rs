// SPDX-License-Identifier: BSD-3-Clause
//! What the caller of this crate sees of a send or receive: its mode, its ticket and its outcome.

use error::{Class, Error};

/// When a send completes (MPI 5.0, section 3.4). The ready mode of MPI is treated as `Standard`: it would be
/// no faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The send completes once its buffer may be used again.
    Standard,
    /// The send completes as in `Standard`, but the process computes before it waits. A long message leaves
    /// at once if the kernel carries the packets, since the answer to an offer would find this process
    /// outside MPI.
    Overlapped,
    /// The send completes once its buffer may be used again and the matching receive has started.
    Synchronous,
    /// The send completes at once. If the message cannot leave yet, it is copied to an attached buffer: that
    /// of the comm, of this session (0: none), or of the process.
    Buffered { session: u64 },
}

/// Names an operation from its start until `P2p::take` or `P2p::free` frees the ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// The ticket of every operation that had already succeeded when it started: most short sends, and a send
    /// to MPI_PROC_NULL. It need not be freed.
    pub const DONE: Ticket = Ticket(u64::MAX);
}

/// How a send or receive has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The peer that sent the message; used for receives only.
    pub source_peer: u32,
    /// The tag of the message; used for receives only.
    pub tag: i32,
    /// How many bytes of the message the receive's buffer now holds; used for receives only.
    pub bytes: usize,
    /// The error with which the operation has failed; None if it has succeeded.
    pub error: Option<Error>,
    /// Whether the operation was cancelled before it matched.
    pub cancelled: bool,
}

/// Returns how many of a message's `bytes` bytes fit into a buffer of `capacity` bytes, and the outcome of
/// the receive with that buffer.
#[inline]
pub(crate) fn received(source_peer: u32, tag: i32, bytes: u64, capacity: usize) -> (usize, Outcome) {
    let taken = bytes.min(capacity as u64) as usize;
    let error =
        if bytes > capacity as u64 { Some(truncated(source_peer, tag, bytes, capacity)) } else { None };
    (taken, Outcome { source_peer, tag, bytes: taken, error, cancelled: false })
}

/// The length and the tag of a message that has come, packed into one word: a wide load after two narrow
/// stores would stall.
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

    /// Makes the outcome of the receive of this message from the peer `source`, into a buffer of `capacity`
    /// bytes.
    #[inline(always)]
    pub(crate) fn outcome(self, source: u32, capacity: usize) -> Outcome {
        received(source, self.tag(), self.bytes() as u64, capacity).1
    }
}

/// Makes the error of a receive whose buffer has fewer bytes than its message. The sender gets no error (MPI
/// 5.0, section 3.2.4).
#[cold]
fn truncated(source: u32, tag: i32, bytes: u64, capacity: usize) -> Error {
    let sentence =
        format!("message of {bytes} bytes from rank {source}, tag {tag}, but the buffer holds {capacity}");
    Error::new(Class::Truncate, sentence)
}
