// SPDX-License-Identifier: BSD-3-Clause
//! One operation under way.

use crate::channel::{Expecting, HandoffKey};
use crate::data::Data;
use crate::outcome::{Outcome, received};
use crate::protocol::Protocol;
use datatype::Buffer;
use matching::{Entry, Envelope};
use transport::route::{Exposed, Far};

/// An operation: what it moves, how far it is, and how it ended.
pub(crate) struct Request {
    pub(crate) stage: Stage,
    /// The memory that it reads or writes; given up when it ends.
    pub(crate) data: Data,
    /// Its ticket is not used any more.
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
    /// Receive: in the posted queue, and an executor already waits for its message.
    Expecting(Box<Expecting>),
    /// Receive: an executor moves the message of this key.
    Handed(HandoffKey),
    /// Receive: reads the peer's memory, `[next, end)` is left.
    Reading { peer: u32, theirs: u64, address: u64, attempt: i32, next: u64, end: u64 },
    /// Receive: its network reads the peer's memory.
    Pulling(Box<Pulling>),
    /// Receive: takes packets from the peer, `[next, end)` is left.
    Filling { peer: u32, theirs: u64, attempt: i32, next: u64, end: u64 },
    /// Receive: takes the pieces that the peer sends unasked, `[next, end)` is left.
    Gathering { next: u64, end: u64 },
}

pub(crate) struct SendStage {
    pub(crate) peer: u32,
    /// The envelope as the receiver sees it.
    pub(crate) envelope: Envelope,
    /// How it leaves while the credit lasts. Without credit, and if synchronous, by `Protocol::Offer`.
    pub(crate) protocol: Protocol,
    pub(crate) progress: SendProgress,
    /// It has a number in its channel, although no executor moves it.
    pub(crate) counted: bool,
    /// Its memory, while the peer may pull it.
    pub(crate) exposed: Option<Box<Exposed>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// Its first packet waits for room.
    Queued,
    /// It leaves eagerly in pieces; the bytes from `next` on wait for room.
    Begun { next: usize },
    /// An executor moves it. Its announcement may wait for room, and it may be over before that has left.
    Handed { key: HandoffKey, has_left: bool, is_over: bool },
    /// The peer knows of it and must speak next.
    Offered,
    /// The peer asked for `[next, end)`; `attempt` as in `rendezvous.rs`.
    Streaming { theirs: u64, attempt: i32, next: u64, end: u64 },
}

/// Reads under way for one receive that pulls.
pub(crate) const PIECES_MAX: u32 = 2;

/// A receive that pulls.
pub(crate) struct Pulling {
    pub(crate) peer: u32,
    /// The sender's ticket.
    pub(crate) theirs: u64,
    pub(crate) far: Far,
    /// Our own memory, once it is exposed.
    pub(crate) own: Option<Exposed>,
    /// The next byte for which no read has started, and the end.
    pub(crate) next: u64,
    pub(crate) end: u64,
    pub(crate) under_way: u32,
    pub(crate) has_failed: bool,
}

impl Pulling {
    pub(crate) fn new(peer: u32, theirs: u64, far: Far, end: u64) -> Pulling {
        Pulling { peer, theirs, far, own: None, next: 0, end, under_way: 0, has_failed: false }
    }

    /// Bytes for which no read has started.
    pub(crate) fn left(&self) -> u64 {
        self.end - self.next
    }

    /// Whether another read may start.
    pub(crate) fn wants_more(&self) -> bool {
        !self.has_failed && self.next < self.end && self.under_way < PIECES_MAX
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

    /// Marks it done. Returns what it held.
    #[inline]
    pub(crate) fn end(&mut self) -> Data {
        self.stage = Stage::Done;
        std::mem::replace(&mut self.data, Data::None)
    }

    /// Notes what a receive was matched with. Returns how many bytes of it the buffer takes.
    #[inline]
    pub(crate) fn begin(&mut self, envelope: Envelope, bytes: u64) -> usize {
        let (taken, outcome) = received(envelope.source, envelope.tag, bytes, self.data.bytes());
        self.outcome = outcome;
        taken
    }
}

/// The number of a request that is never taken back.
pub(crate) const FINAL: i32 = 0;

/// A receive that waits for DATA and could read instead.
#[derive(Debug)]
pub(crate) struct ReadFallback {
    pub(crate) ours: u64,
    pub(crate) address: u64,
    /// How far it was when it last lost patience.
    pub(crate) seen: u64,
    pub(crate) polls_left: u32,
}
