// SPDX-License-Identifier: BSD-3-Clause
//! The state of one send or receive until its ticket is freed.

use crate::channel::{ExpectingReceive, HandoffKey};
use crate::data::MessageData;
use crate::outcome::{Outcome, received};
use crate::protocol::Protocol;
use datatype::Buffer;
use matching::{Envelope, QueueEntry};
use transport::route::{Exposed, RemoteRange};

/// A send or receive: what memory it uses, how far it has come, and how it has ended.
pub(crate) struct Request {
    pub(crate) stage: RequestStage,
    /// The memory that the operation reads or writes; `MessageData::None` once it has ended.
    pub(crate) data: MessageData,
    /// Whether the operation's ticket has been freed. If so, the request is removed when the operation ends.
    pub(crate) detached: bool,
    pub(crate) outcome: Outcome,
}

/// How far an operation has come. Tickets named `theirs` are the peer's, tickets named `ours` are this
/// process's.
pub(crate) enum RequestStage {
    /// The operation has ended.
    Done,
    /// It is a send that has not ended. `SendStage::progress` says how far it has come.
    Send(SendStage),
    /// It is a receive in the posted queue, which waits for a message that matches.
    Posted(QueueEntry),
    /// It is a receive in the posted queue, and an executor already waits for its message.
    Expecting(Box<ExpectingReceive>),
    /// It is a receive that has matched an announced message. An executor, which knows the message by this
    /// key, moves its bytes.
    Offloaded(HandoffKey),
    /// It is a receive that copies its message from the peer's memory at `address`. The bytes `[next, end)`
    /// are left to be copied.
    Reading { peer: u32, theirs: u64, address: u64, attempt: i32, next: u64, end: u64 },
    /// It is a receive for which the network reads the message in the peer's memory.
    Pulling(Box<Pulling>),
    /// It is a receive that has asked for its message, and takes the bytes from DATA packets. The bytes
    /// `[next, end)` have not come yet.
    Filling { peer: u32, theirs: u64, attempt: i32, next: u64, end: u64 },
    /// It is a receive that takes the pieces of an eager message as they come. The bytes `[next, end)` have
    /// not come yet.
    Gathering { next: u64, end: u64 },
}

pub(crate) struct SendStage {
    pub(crate) peer: u32,
    /// The message's context and tag, and this process as its source: what the receiver matches.
    pub(crate) envelope: Envelope,
    /// How the message leaves while there is credit; without credit it is offered. In the synchronous mode
    /// this is always `Protocol::Offer`.
    pub(crate) protocol: Protocol,
    pub(crate) progress: SendProgress,
    /// Whether the message has a number in its channel (the messages of its context and tag), although no
    /// executor moves it.
    pub(crate) counted: bool,
    /// The registration of the send's memory, by which the peer's network can read it; None if it is not
    /// exposed.
    pub(crate) exposed: Option<Box<Exposed>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// The send's first packet waits for room in the peer's ring.
    Queued,
    /// The message leaves eagerly in pieces. Its bytes from `next` on wait for room in the ring.
    InPieces { next: usize },
    /// An executor moves the message. `has_left`: the announcement has left. `is_over`: the executor has
    /// ended, perhaps before the announcement has left.
    Offloaded { key: HandoffKey, has_left: bool, is_over: bool },
    /// The peer has got the offer, and is to answer it.
    Offered,
    /// The peer's receive `theirs` has asked for the message, and its bytes `[next, end)` are left to be
    /// sent. `attempt` is the number in the ASK packet (`rendezvous.rs`).
    Streaming { theirs: u64, attempt: i32, next: u64, end: u64 },
}

/// The most network reads that may be under way for one receive.
pub(crate) const PIECES_MAX: u32 = 2;

/// A receive for which the network reads the message in the sender's memory, part after part.
pub(crate) struct Pulling {
    pub(crate) peer: u32,
    /// The ticket of the send in the peer's process.
    pub(crate) theirs: u64,
    pub(crate) far: RemoteRange,
    /// The registration of the receive's buffer, into which the network reads; None until the first read.
    pub(crate) own: Option<Exposed>,
    /// The offset in the message of the first byte for which no read has started.
    pub(crate) next: u64,
    /// How many bytes of the message the receive takes: the message's length, or the buffer's if that is
    /// shorter.
    pub(crate) end: u64,
    pub(crate) under_way: u32,
    pub(crate) has_failed: bool,
}

impl Pulling {
    pub(crate) fn new(peer: u32, theirs: u64, far: RemoteRange, end: u64) -> Pulling {
        Pulling { peer, theirs, far, own: None, next: 0, end, under_way: 0, has_failed: false }
    }

    /// Returns how many bytes are left for which no read has started.
    pub(crate) fn left(&self) -> u64 {
        self.end - self.next
    }

    /// Whether another network read may start now: bytes are left, fewer than `PIECES_MAX` reads are under
    /// way, and no read has failed.
    pub(crate) fn wants_more(&self) -> bool {
        !self.has_failed && self.next < self.end && self.under_way < PIECES_MAX
    }
}

impl Request {
    pub(crate) fn send(stage: SendStage, data: MessageData, detached: bool) -> Request {
        Request { stage: RequestStage::Send(stage), data, detached, outcome: Outcome::default() }
    }

    /// Makes the request of a receive into `buffer` that has not matched a message. The caller sets its stage
    /// next.
    pub(crate) fn receive(buffer: Buffer) -> Request {
        Request {
            stage: RequestStage::Done,
            data: MessageData::User(buffer),
            detached: false,
            outcome: Outcome::default(),
        }
    }

    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, RequestStage::Done)
    }

    pub(crate) fn is_send(&self) -> bool {
        matches!(self.stage, RequestStage::Send(_))
    }

    /// Returns the state of a send that has not ended. Panics if this request is anything else.
    pub(crate) fn sending(&mut self) -> &mut SendStage {
        match &mut self.stage {
            RequestStage::Send(stage) => stage,
            _ => unreachable!("only sends wait to leave"),
        }
    }

    /// Returns the user's buffer of a receive that has not ended. Panics if this request is anything else.
    #[inline]
    pub(crate) fn buffer(&self) -> &Buffer {
        match &self.data {
            MessageData::User(buffer) => buffer,
            _ => unreachable!("a receive that has not ended has the user's buffer"),
        }
    }

    /// Marks the operation as ended. Returns the memory that it has used.
    #[inline]
    pub(crate) fn end(&mut self) -> MessageData {
        self.stage = RequestStage::Done;
        std::mem::replace(&mut self.data, MessageData::None)
    }

    /// Records which message the receive has matched. Returns how many of the message's `bytes` bytes fit
    /// into the receive's buffer.
    #[inline]
    pub(crate) fn match_message(&mut self, envelope: Envelope, bytes: u64) -> usize {
        let (taken, outcome) = received(envelope.source, envelope.tag, bytes, self.data.bytes());
        self.outcome = outcome;
        taken
    }
}

/// The attempt number in an ASK packet by which the receiver promises not to read the sender's memory
/// (`rendezvous.rs`).
pub(crate) const FINAL_ATTEMPT: i32 = 0;

/// A receive that waits for DATA packets. If none comes for too long, it reads the sender's memory instead.
#[derive(Debug)]
pub(crate) struct ReadFallback {
    pub(crate) ours: u64,
    pub(crate) address: u64,
    /// How many bytes of the message had come when `polls_left` was last set to `patience_polls`.
    pub(crate) seen: u64,
    pub(crate) polls_left: u32,
}
