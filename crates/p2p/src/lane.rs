// SPDX-License-Identifier: BSD-3-Clause
//! The outgoing side of one peer: the packets that wait, the credit of its eager messages, the protocol of
//! each message.
//!
//! Credit bounds what the peer holds of our unmatched eager messages. `charged` is what ours have cost,
//! `consumed` what the peer has given back. Both wrap.
//!
//! Read next: `protocol.rs`, `flush.rs`.

use crate::channel::Channels;
use crate::choice::Chooser;
use crate::config::Config;
use crate::message::Incoming;
use crate::outcome::Mode;
use crate::protocol::{Limits, Protocol};
use std::collections::VecDeque;
use transport::route::Route;
use tuning::Distance;

/// What waits to go to a peer, and what is known of it.
pub(crate) struct Lane {
    /// The peer.
    pub(crate) number: u32,
    /// Which protocol takes which length.
    limits: Limits,
    /// `limits` may shrink as messages show more.
    is_learning: bool,
    /// The longest eager message that they may ever allow.
    eager_most: usize,
    /// The longest message in one packet that they may ever allow.
    packet_most: usize,
    /// The longest eager message in the mode `Overlapped`.
    overlapped_most: usize,
    credit_bytes: u64,
    /// What all eager messages have cost so far.
    charged: u64,
    /// The peer's consumed word as last read: a send does not read it while the credit lasts.
    consumed: u64,
    /// Which of the processes that have had the peer's place it is.
    pub(crate) generation: u32,
    /// Packets in the order in which they must leave. While it holds any, no other packet with an envelope
    /// leaves.
    pub(crate) queue: VecDeque<Outgoing>,
    /// The packets in `queue`, and one if the peer gets numbered messages: with none, an eager message leaves
    /// at once.
    hurdles: usize,
    /// The channels to and from the peer, once there are any.
    pub(crate) outgoing: Option<Box<Channels>>,
    pub(crate) arriving: Option<Box<Channels>>,
    /// Sends whose bytes were asked for, by ticket. When the queue is empty, each sends one packet in turn.
    pub(crate) streams: VecDeque<u64>,
    /// In `P2p::blocked`.
    pub(crate) blocked: bool,
    /// Credit to give back for messages in pieces of this peer.
    pub(crate) returned: u64,
    /// A read of the peer's memory failed, so none is tried again.
    pub(crate) unreadable: bool,
    /// What the peer has begun to send in pieces.
    pub(crate) incoming: Option<Incoming>,
    /// How far the peer's core is, once it was asked.
    distance: Option<Distance>,
}

/// A packet that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outgoing {
    /// The first packet of our send: the message or the offer.
    Message { ours: u64 },
    /// We want bytes `[next, end)` of their send.
    Ask { theirs: u64, ours: u64, attempt: i32, next: u64, end: u64 },
    /// We need no more of their send.
    Taken { theirs: u64 },
    /// We want our offer back.
    Recall { ours: u64 },
    /// Their offer is theirs again.
    Returned { theirs: u64 },
}

/// What a message without bytes costs: its record in the unexpected queue, with the room by which the queue's
/// tables grow (tests/programs/net_flood.c measures it).
const MESSAGE_COST: u64 = 256;

/// What an eager message costs of the credit.
#[inline]
pub(crate) fn cost(bytes: usize) -> u64 {
    cost_of(1, bytes as u64)
}

/// The same of several messages of so many bytes in all.
#[inline]
pub(crate) fn cost_of(messages: u64, bytes: u64) -> u64 {
    bytes + messages * MESSAGE_COST
}

impl Lane {
    /// `overlapped_most`: the longest message in the mode `Overlapped` that leaves eagerly.
    pub(crate) fn new(number: u32, config: &Config, packet_most: usize, overlapped_most: usize) -> Lane {
        Lane {
            number,
            limits: Limits::new(config.eager_bytes_max, packet_most),
            is_learning: false,
            eager_most: config.eager_bytes_max,
            packet_most,
            overlapped_most,
            credit_bytes: config.credit_bytes as u64,
            charged: 0,
            consumed: 0,
            generation: 0,
            queue: VecDeque::new(),
            hurdles: 0,
            outgoing: None,
            arriving: None,
            streams: VecDeque::new(),
            blocked: false,
            returned: 0,
            unreadable: false,
            incoming: None,
            distance: None,
        }
    }

    /// Takes over what a tuning table says of eager messages to this peer.
    pub(crate) fn choose(&mut self, chooser: &Chooser) {
        self.is_learning = chooser.is_learning;
        if chooser.offers_short(self.number, self.eager_most) {
            self.learn(chooser);
        }
    }

    /// The protocol for a message that may leave eagerly. Asked once per message.
    #[inline(always)]
    pub(crate) fn protocol(&mut self, bytes: usize, chooser: &Chooser) -> Protocol {
        if bytes > self.limits.packet_bytes_max && self.is_learning {
            self.learn(chooser);
        }
        self.limits.of(bytes)
    }

    /// The same in this mode.
    pub(crate) fn protocol_in(&mut self, mode: Mode, bytes: usize, chooser: &Chooser) -> Protocol {
        match (mode, self.protocol(bytes, chooser)) {
            (Mode::Synchronous, _) => Protocol::Offer,
            (Mode::Overlapped, Protocol::Offer) if bytes <= self.overlapped_most => Protocol::Pieces,
            (_, protocol) => protocol,
        }
    }

    /// How far the peer's core is.
    #[inline]
    pub(crate) fn distance(&mut self, chooser: &Chooser) -> Distance {
        *self.distance.get_or_insert_with(|| chooser.distance(self.number))
    }

    /// Whether messages of this peer still show which protocol is fast.
    pub(crate) fn is_learning(&self) -> bool {
        self.is_learning
    }

    /// Takes over what messages have shown.
    #[cold]
    fn learn(&mut self, chooser: &Chooser) {
        let distance = self.distance(chooser);
        let (eager_bytes_max, is_learning) = chooser.eager_bytes_max(distance, self.eager_most);
        self.limits = Limits::new(eager_bytes_max, self.packet_most);
        self.is_learning = is_learning;
    }

    /// Begins with the peer's consumed word as it is: an earlier process in either place may have left one.
    pub(crate) fn begin_anew(&mut self, generation: u32, consumed: u64) {
        (self.charged, self.consumed) = (consumed, consumed);
        (self.generation, self.unreadable, self.incoming) = (generation, false, None);
        (self.outgoing, self.arriving) = (None, None);
        self.hurdles = self.queue.len();
    }

    /// Whether a message may leave at once without overtaking another, and needs no number.
    #[inline]
    pub(crate) fn is_clear(&self, context: u64, tag: i32) -> bool {
        self.hurdles == 0 || self.passes(context, tag)
    }

    #[cold]
    fn passes(&self, context: u64, tag: i32) -> bool {
        let is_numbered = |channels: &Channels| channels.has(context, tag);
        self.queue.is_empty() && !self.outgoing.as_deref().is_some_and(is_numbered)
    }

    /// The channels to the peer, which then must be asked before a message leaves.
    pub(crate) fn number(&mut self) -> &mut Channels {
        if self.outgoing.is_none() {
            self.hurdles += 1;
        }
        self.outgoing.get_or_insert_default()
    }

    /// Whether anything waits.
    pub(crate) fn has_work(&self) -> bool {
        !(self.queue.is_empty() && self.streams.is_empty())
    }

    pub(crate) fn push(&mut self, packet: Outgoing) {
        self.hurdles += 1;
        self.queue.push_back(packet);
    }

    /// The first packet of the queue has left.
    pub(crate) fn pop(&mut self) {
        self.hurdles -= usize::from(self.queue.pop_front().is_some());
    }

    pub(crate) fn push_stream(&mut self, ours: u64) {
        self.streams.push_back(ours);
    }

    /// Takes a send back whose first packet has not left.
    pub(crate) fn drop_message(&mut self, ours: u64) {
        let before = self.queue.len();
        self.queue.retain(|packet| !matches!(packet, Outgoing::Message { ours: other } if *other == ours));
        self.hurdles -= before - self.queue.len();
    }

    /// The peer needs no more of a send that streams.
    pub(crate) fn drop_stream(&mut self, ours: u64) {
        self.streams.retain(|&other| other != ours);
    }

    /// Whether the credit lasts for one more eager message.
    #[inline]
    pub(crate) fn has_credit(&mut self, bytes: usize, route: &Route) -> bool {
        let wanted = cost(bytes);
        if self.charged.wrapping_sub(self.consumed).saturating_add(wanted) <= self.credit_bytes {
            return true;
        }
        if !matches!(route, Route::Loopback) {
            self.consumed = route.consumed();
        }
        // A corrupt peer, or one that received an earlier process's messages late, may have "consumed" more
        // than we sent. The difference is then huge, and we offer instead.
        self.charged.wrapping_sub(self.consumed).saturating_add(wanted) <= self.credit_bytes
    }

    #[inline]
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.charged = self.charged.wrapping_add(cost(bytes));
    }

    /// Our own message to ourselves was consumed.
    pub(crate) fn consumed_loopback(&mut self, bytes: usize) {
        self.consumed = self.consumed.wrapping_add(cost(bytes));
    }
}
