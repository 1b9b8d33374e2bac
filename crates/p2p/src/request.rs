//! One operation under way.

use crate::Outcome;
use crate::buffered::Kept;
use crate::protocol::Protocol;
use datatype::Buffer;
use matching::{Entry, Envelope};
use sys::Span;
use transport::owned::Memory;

/// An operation: what it moves, how far it is, and how it ended.
pub(crate) struct Request {
    pub(crate) stage: Stage,
    /// What it reads or writes; given up when it ends.
    pub(crate) data: Data,
    /// Nobody will ask for the outcome.
    pub(crate) detached: bool,
    pub(crate) outcome: Outcome,
}

/// How far an operation is. Tickets named `theirs` are the peer's.
pub(crate) enum Stage {
    /// It has ended.
    Done,
    /// Send: its packet waits, or its offer is out.
    Send(SendStage),
    /// Receive: in the posted queue.
    Posted(Entry),
    /// Receive: reads the peer's memory, `[next, end)` is left.
    Reading { peer: u32, theirs: u64, address: u64, attempt: i32, next: u64, end: u64 },
    /// Receive: takes packets from the peer, `[next, end)` is left.
    Filling { peer: u32, theirs: u64, attempt: i32, next: u64, end: u64 },
    /// Receive: takes the pieces that the peer sends unasked, `[next, end)` is left.
    Gathering { peer: u32, next: u64, end: u64 },
}

pub(crate) struct SendStage {
    pub(crate) peer: u32,
    /// The envelope as the receiver sees it.
    pub(crate) envelope: Envelope,
    /// How it leaves, unless the credit is used up: then by `Protocol::Offer`, as a synchronous send always does.
    pub(crate) protocol: Protocol,
    pub(crate) progress: SendProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// Its first packet waits for room.
    Queued,
    /// It leaves eagerly in pieces; the bytes from `next` on wait for room.
    Begun { next: usize },
    /// The peer knows of it and must speak next.
    Offered,
    /// The peer asked for `[next, end)`; `attempt` as in `rendezvous.rs`.
    Streaming { theirs: u64, attempt: i32, next: u64, end: u64 },
}

/// The bytes of an operation.
pub(crate) enum Data {
    /// The operation has given its buffer up.
    None,
    /// The user's buffer.
    User(Buffer),
    /// A copy in the buffer that the user attached.
    Attached(Span, Kept),
    /// A copy of our own.
    Owned(Memory, Kept),
}

impl Data {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Data::None => 0,
            Data::User(buffer) => buffer.bytes(),
            Data::Attached(copy, _) => copy.bytes(),
            Data::Owned(memory, _) => memory.len(),
        }
    }

    /// Copies packed bytes from `offset` on to `to`.
    #[inline]
    pub(crate) fn pack(&mut self, offset: usize, to: Span) {
        match self {
            Data::None => assert_eq!(to.bytes(), 0, "the operation has given its buffer up"),
            Data::User(buffer) => buffer.pack_away(offset, to),
            Data::Attached(copy, _) => copy.slice(offset, to.bytes()).copy_to(to),
            Data::Owned(memory, _) => to.restore(&memory[offset..offset + to.bytes()]),
        }
    }

    /// Copies the first `bytes` packed bytes to the same place of a receive buffer.
    pub(crate) fn copy_to(&mut self, bytes: usize, to: &Buffer) {
        match self {
            Data::None => assert_eq!(bytes, 0, "the operation has given its buffer up"),
            Data::User(buffer) => to.slice(0, bytes).copy_from(&buffer.slice(0, bytes)),
            Data::Attached(copy, _) => to.unpack(0, copy.slice(0, bytes)),
            Data::Owned(memory, _) => to.restore(0, &memory[..bytes]),
        }
    }

    /// Where the bytes lie, if in one stretch that a peer could read; otherwise 0.
    pub(crate) fn address(&mut self) -> u64 {
        let address = match self {
            Data::None => 0,
            Data::User(buffer) => buffer.contiguous().map_or(0, Span::address),
            Data::Attached(copy, _) => copy.address(),
            Data::Owned(memory, _) => memory.as_ptr().expose_provenance(),
        };
        address as u64
    }
}

impl Request {
    pub(crate) fn send(stage: SendStage, data: Data, detached: bool) -> Request {
        Request { stage: Stage::Send(stage), data, detached, outcome: Outcome::default() }
    }

    /// A receive that has not matched; the caller sets its stage at once.
    pub(crate) fn receive(buffer: Buffer) -> Request {
        Request { stage: Stage::Done, data: Data::User(buffer), detached: false, outcome: Outcome::default() }
    }

    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    pub(crate) fn is_send(&self) -> bool {
        matches!(self.stage, Stage::Send(_))
    }

    /// The send's stage; panics for a receive.
    pub(crate) fn sending(&mut self) -> &mut SendStage {
        match &mut self.stage {
            Stage::Send(stage) => stage,
            _ => unreachable!("only sends wait to leave"),
        }
    }

    /// The user's buffer; panics where there is none.
    #[inline]
    pub(crate) fn buffer(&self) -> &Buffer {
        match &self.data {
            Data::User(buffer) => buffer,
            _ => unreachable!("a receive that has not ended has the user's buffer"),
        }
    }

    /// Marks it done; returns what it held.
    #[inline]
    pub(crate) fn end(&mut self) -> Data {
        self.stage = Stage::Done;
        std::mem::replace(&mut self.data, Data::None)
    }
}
