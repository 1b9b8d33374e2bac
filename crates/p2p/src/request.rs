// SPDX-License-Identifier: BSD-3-Clause
//! One operation under way.

use crate::channel::{ExpectingReceive, HandoffKey};
use crate::data::MessageData;
use crate::outcome::{Outcome, received};
use crate::protocol::Protocol;
use datatype::Buffer;
use matching::{Envelope, QueueEntry};
use transport::route::{Exposed, RemoteRange};

/// An operation: what it moves, how far it is, and how it ended.
pub(crate) struct Request {
    pub(crate) stage: RequestStage,
    /// The memory that the operation reads or writes; `MessageData::None` once the operation has ended.
    pub(crate) data: MessageData,
    /// Whether the operation's ticket has been freed. Then the request is removed when the operation ends.
    pub(crate) detached: bool,
    pub(crate) outcome: Outcome,
}

/// How far an operation is. Tickets named `theirs` are the peer's, `ours` are this process's.
pub(crate) enum RequestStage {
    /// The operation has ended.
    Done,
    /// Send: not ended; `SendStage::progress` says how far it is.
    Send(SendStage),
    /// Receive: waits in the posted queue for a message that matches.
    Posted(QueueEntry),
    /// Receive: in the posted queue, while an executor already waits for its message.
    Expecting(Box<ExpectingReceive>),
    /// Receive: has matched an announced message, which an executor knows by this key and moves.
    Offloaded(HandoffKey),
    /// Receive: copies bytes `[next, end)` of its message, which are left, from the peer's memory at
    /// `address`.
    Reading { peer: u32, theirs: u64, address: u64, attempt: i32, next: u64, end: u64 },
    /// Receive: lets the network read the message in the peer's memory.
    Pulling(Box<Pulling>),
    /// Receive: has asked for its message, and takes bytes `[next, end)`, which are left, from DATA packets.
    Filling { peer: u32, theirs: u64, attempt: i32, next: u64, end: u64 },
    /// Receive: takes the pieces of an eager message as they come; bytes `[next, end)` are left.
    Gathering { next: u64, end: u64 },
}

pub(crate) struct SendStage {
    pub(crate) peer: u32,
    /// The message's context and tag, with this process as its source, as the receiver matches it.
    pub(crate) envelope: Envelope,
    /// How the message leaves while the credit lasts; without credit it is offered. In the synchronous mode
    /// always `Protocol::Offer`.
    pub(crate) protocol: Protocol,
    pub(crate) progress: SendProgress,
    /// Whether the message has a number in its channel, although no executor moves it.
    pub(crate) counted: bool,
    /// The send's memory, exposed to the network so that the peer can pull it; None if it is not exposed.
    pub(crate) exposed: Option<Box<Exposed>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// The send's first packet waits for room in the peer's ring.
    Queued,
    /// The message leaves eagerly in pieces; the bytes from `next` on wait for room.
    InPieces { next: usize },
    /// An executor moves the message. The announcement may still wait for room, and the executor may end
    /// before the announcement has left.
    Offloaded { key: HandoffKey, has_left: bool, is_over: bool },
    /// The peer has the offer and must answer next.
    Offered,
    /// The peer's receive `theirs` has asked for the message, of which bytes `[next, end)` are left to be
    /// sent. `attempt` is the number of its ASK (`rendezvous.rs`).
    Streaming { theirs: u64, attempt: i32, next: u64, end: u64 },
}

/// The most reads that the network carries out at the same time for one receive that pulls.
pub(crate) const PIECES_MAX: u32 = 2;

/// A receive whose network reads the message in the sender's memory, a piece at a time.
pub(crate) struct Pulling {
    pub(crate) peer: u32,
    /// The ticket of the peer's send.
    pub(crate) theirs: u64,
    pub(crate) far: RemoteRange,
    /// The receive's buffer, exposed to this process's network; None until its first read.
    pub(crate) own: Option<Exposed>,
    /// The offset in the message of the first byte for which no read has started.
    pub(crate) next: u64,
    /// The number of bytes of the message that the receive takes.
    pub(crate) end: u64,
    pub(crate) under_way: u32,
    pub(crate) has_failed: bool,
}

impl Pulling {
    pub(crate) fn new(peer: u32, theirs: u64, far: RemoteRange, end: u64) -> Pulling {
        Pulling { peer, theirs, far, own: None, next: 0, end, under_way: 0, has_failed: false }
    }

    /// Returns the number of bytes for which no read has started.
    pub(crate) fn left(&self) -> u64 {
        self.end - self.next
    }

    /// Whether another read for this receive is needed and may start now.
    pub(crate) fn wants_more(&self) -> bool {
        !self.has_failed && self.next < self.end && self.under_way < PIECES_MAX
    }
}

impl Request {
    pub(crate) fn send(stage: SendStage, data: MessageData, detached: bool) -> Request {
        Request { stage: RequestStage::Send(stage), data, detached, outcome: Outcome::default() }
    }

    /// Makes the request of a receive into `buffer` that has not matched. The caller sets its stage at once.
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

    /// Returns the stage of a send; panics for a receive.
    pub(crate) fn sending(&mut self) -> &mut SendStage {
        match &mut self.stage {
            RequestStage::Send(stage) => stage,
            _ => unreachable!("only sends wait to leave"),
        }
    }

    /// Returns the user's buffer of a receive that has not ended; panics if the operation has no such buffer.
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

    /// Notes the message that a receive has matched. Returns how many of its bytes the buffer takes.
    #[inline]
    pub(crate) fn match_message(&mut self, envelope: Envelope, bytes: u64) -> usize {
        let (taken, outcome) = received(envelope.source, envelope.tag, bytes, self.data.bytes());
        self.outcome = outcome;
        taken
    }
}

/// The attempt number of an ASK whose receiver promises not to read the sender's memory (`rendezvous.rs`).
pub(crate) const FINAL_ATTEMPT: i32 = 0;

/// A receive that waits for DATA packets, and will read the sender's memory instead if none comes for too
/// long.
#[derive(Debug)]
pub(crate) struct ReadFallback {
    pub(crate) ours: u64,
    pub(crate) address: u64,
    /// How many bytes of the message had come when `polls_left` was last set anew.
    pub(crate) seen: u64,
    pub(crate) polls_left: u32,
}
