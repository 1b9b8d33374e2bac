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
    /// The memory that the operation reads or writes; given up when the operation ends.
    pub(crate) data: MessageData,
    /// Whether the ticket has been freed: the request goes when the operation ends.
    pub(crate) detached: bool,
    pub(crate) outcome: Outcome,
}

/// How far an operation is. Tickets named `theirs` are the peer's, `ours` are this process's.
pub(crate) enum RequestStage {
    /// The operation has ended.
    Done,
    /// Send: the first packet waits, or the message is offered.
    Send(SendStage),
    /// Receive: in the posted queue.
    Posted(QueueEntry),
    /// Receive: in the posted queue, while an executor already waits for its message.
    Expecting(Box<ExpectingReceive>),
    /// Receive: an executor moves the message of this key.
    Offloaded(HandoffKey),
    /// Receive: reads the peer's memory; `[next, end)` is left.
    Reading { peer: u32, theirs: u64, address: u64, attempt: i32, next: u64, end: u64 },
    /// Receive: its network reads the peer's memory.
    Pulling(Box<Pulling>),
    /// Receive: takes DATA that it asked for; `[next, end)` is left.
    Filling { peer: u32, theirs: u64, attempt: i32, next: u64, end: u64 },
    /// Receive: takes the pieces of an eager message; `[next, end)` is left.
    Gathering { next: u64, end: u64 },
}

pub(crate) struct SendStage {
    pub(crate) peer: u32,
    /// The envelope as the receiver sees it.
    pub(crate) envelope: Envelope,
    /// How the message leaves while the credit lasts. Without credit, and in the synchronous mode:
    /// `Protocol::Offer`.
    pub(crate) protocol: Protocol,
    pub(crate) progress: SendProgress,
    /// Whether the message has a number in its channel, although no executor moves it.
    pub(crate) counted: bool,
    /// The send's memory, while the peer may pull it.
    pub(crate) exposed: Option<Box<Exposed>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// The first packet waits for room.
    Queued,
    /// The message leaves eagerly in pieces; the bytes from `next` on wait for room.
    InPieces { next: usize },
    /// An executor moves the message. The announcement may still wait for room, and the executor may end
    /// before the announcement has left.
    Offloaded { key: HandoffKey, has_left: bool, is_over: bool },
    /// The peer has the offer and must answer next.
    Offered,
    /// The peer asked for `[next, end)`; `attempt` as in `rendezvous.rs`.
    Streaming { theirs: u64, attempt: i32, next: u64, end: u64 },
}

/// The most reads under way for one receive that pulls.
pub(crate) const PIECES_MAX: u32 = 2;

/// A receive that pulls.
pub(crate) struct Pulling {
    pub(crate) peer: u32,
    /// The sender's ticket.
    pub(crate) theirs: u64,
    pub(crate) far: RemoteRange,
    /// The receive's own memory, once it is exposed.
    pub(crate) own: Option<Exposed>,
    /// The next byte for which no read has started, and the end.
    pub(crate) next: u64,
    pub(crate) end: u64,
    pub(crate) under_way: u32,
    pub(crate) has_failed: bool,
}

impl Pulling {
    pub(crate) fn new(peer: u32, theirs: u64, far: RemoteRange, end: u64) -> Pulling {
        Pulling { peer, theirs, far, own: None, next: 0, end, under_way: 0, has_failed: false }
    }

    /// The bytes for which no read has started.
    pub(crate) fn left(&self) -> u64 {
        self.end - self.next
    }

    /// Whether another read may start.
    pub(crate) fn wants_more(&self) -> bool {
        !self.has_failed && self.next < self.end && self.under_way < PIECES_MAX
    }
}

impl Request {
    pub(crate) fn send(stage: SendStage, data: MessageData, detached: bool) -> Request {
        Request { stage: RequestStage::Send(stage), data, detached, outcome: Outcome::default() }
    }

    /// A receive that has not matched. The caller sets its stage at once.
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

    /// The send's stage; panics for a receive.
    pub(crate) fn sending(&mut self) -> &mut SendStage {
        match &mut self.stage {
            RequestStage::Send(stage) => stage,
            _ => unreachable!("only sends wait to leave"),
        }
    }

    /// The user's buffer; panics where there is none.
    #[inline]
    pub(crate) fn buffer(&self) -> &Buffer {
        match &self.data {
            MessageData::User(buffer) => buffer,
            _ => unreachable!("a receive that has not ended has the user's buffer"),
        }
    }

    /// Marks the operation as ended. Returns its buffer.
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

/// The attempt of an ASK whose receiver will not read (`rendezvous.rs`).
pub(crate) const FINAL_ATTEMPT: i32 = 0;

/// A receive that waits for DATA and could read instead.
#[derive(Debug)]
pub(crate) struct ReadFallback {
    pub(crate) ours: u64,
    pub(crate) address: u64,
    /// How far the receive was when its polls last ran out.
    pub(crate) seen: u64,
    pub(crate) polls_left: u32,
}
