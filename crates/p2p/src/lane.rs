// SPDX-License-Identifier: BSD-3-Clause
//! A lane: what one peer is to get from this process. It has the packets that wait to leave, the credit for
//! eager messages, and the protocol of each message.
//!
//! Credit bounds how many of this process's unmatched eager messages the peer holds. `charged` is the cost of
//! all that were sent. `consumed` is the cost of those that the peer has taken, and for which this process
//! has its credit back. Both wrap.
//!
//! Read next: `protocol.rs`, `flush.rs`.

use crate::channel::Channels;
use crate::choice::Chooser;
use crate::config::Config;
use crate::message::IncomingPieces;
use crate::outcome::Mode;
use crate::protocol::{Limits, Protocol};
use std::collections::VecDeque;
use transport::route::Route;
use tuning::Distance;

/// The packets that wait to be sent to a peer, and what is known of this peer.
pub(crate) struct Lane {
    /// The peer's number in the job.
    pub(crate) number: u32,
    /// The lengths up to which messages to this peer go in one packet, and in pieces.
    limits: Limits,
    /// Whether `limits` may still become lower, since messages are being timed.
    is_learning: bool,
    /// The longest eager message that `limits` can ever allow, in bytes.
    eager_most: usize,
    /// The longest message in one packet that `limits` can ever allow, in bytes.
    packet_most: usize,
    /// The longest message, in bytes, that leaves eagerly in the mode `Overlapped`; 0 if the kernel does not
    /// carry the packets.
    overlapped_most: usize,
    credit_bytes: u64,
    /// The cost of all eager messages sent to the peer so far, as `cost` counts it; wraps.
    charged: u64,
    /// The cost of the eager messages that the peer has taken, as this process last read it from the peer.
    /// `has_credit` reads it again only when the credit seems used up.
    consumed: u64,
    /// The number of the peer's world, by which the peer differs from earlier processes with the same process
    /// number.
    pub(crate) generation: u32,
    /// The packets that wait, in the order in which they must leave. While there are any, no other packet
    /// with an envelope leaves.
    pub(crate) queue: VecDeque<OutgoingPacket>,
    /// The number of packets in `queue`, plus 1 if messages to this peer may have numbers (channels). At 0 an
    /// eager message leaves at once.
    obstacles: usize,
    /// The channels (numbered messages of one context and tag) to the peer; None until an executor is to move
    /// a message.
    pub(crate) outgoing: Option<Box<Channels>>,
    /// The channels (numbered messages of one context and tag) from the peer; None until the peer has
    /// announced a message.
    pub(crate) arriving: Option<Box<Channels>>,
    /// The tickets of sends whose bytes the peer has asked for. While `queue` is empty, each of them sends
    /// one packet in turn.
    pub(crate) streams: VecDeque<u64>,
    /// Whether the peer is in `P2p::blocked`, the list of the peers for which packets wait.
    pub(crate) blocked: bool,
    /// The cost of the peer's messages in pieces that receives have taken and for which this process has not
    /// given the credit back.
    pub(crate) to_return: u64,
    /// Whether the kernel or the network has failed to read the peer's memory. After that, this process tries
    /// no further read.
    pub(crate) unreadable: bool,
    /// The message in pieces of which the peer has sent a first part and not the last; None if there is none.
    pub(crate) incoming: Option<IncomingPieces>,
    /// How far the peer's core is from this rank's core, by the caches that they share; None until it is
    /// first needed.
    distance: Option<Distance>,
}

/// A packet that waits to be sent to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutgoingPacket {
    /// The first packet of this process's send `ours`: the whole message, its first piece, its offer or its
    /// announcement.
    Message { ours: u64 },
    /// An ASK, by which this process's receive `ours` asks for bytes `[next, end)` of the peer's send
    /// `theirs`.
    Ask { theirs: u64, ours: u64, attempt: i32, next: u64, end: u64 },
    /// A TAKEN, which says that this process needs no more bytes of the peer's send `theirs`.
    Taken { theirs: u64 },
    /// A RECALL, which asks the peer to drop the offer of this process's send `ours`, which is being
    /// cancelled.
    Recall { ours: u64 },
    /// A RETURNED, which says that this process has dropped the offer of the peer's send `theirs`, as a
    /// RECALL has asked.
    Returned { theirs: u64 },
}

/// How much credit a message uses beside its bytes: the memory of its entry in the unexpected queue, whose
/// tables also have room to grow (tests/programs/net_flood.c measures it).
const MESSAGE_COST: u64 = 256;

/// Returns how much of the credit at the peer an eager message of `bytes` bytes uses.
#[inline]
pub(crate) fn cost(bytes: usize) -> u64 {
    cost_of(1, bytes as u64)
}

/// Returns how much of the credit at the peer `messages` eager messages, with `bytes` bytes together, use.
#[inline]
pub(crate) fn cost_of(messages: u64, bytes: u64) -> u64 {
    bytes + messages * MESSAGE_COST
}

impl Lane {
    /// Makes the lane to peer `number`. `packet_most` is the most bytes that one packet to it carries,
    /// `overlapped_most` the longest message that leaves eagerly in the mode `Overlapped`.
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
            obstacles: 0,
            outgoing: None,
            arriving: None,
            streams: VecDeque::new(),
            blocked: false,
            to_return: 0,
            unreadable: false,
            incoming: None,
            distance: None,
        }
    }

    /// Sets the lengths at which the protocol changes (`limits`) by the tuning table. If there is no table,
    /// sets `is_learning`, so that messages are timed.
    pub(crate) fn limit_by_table(&mut self, chooser: &Chooser) {
        self.is_learning = chooser.is_learning;
        if chooser.offers_short(self.number, self.eager_most) {
            self.update_limits(chooser);
        }
    }

    /// Decides the protocol of a message of `bytes` bytes whose mode allows that it leaves eagerly. Called
    /// once per message.
    #[inline(always)]
    pub(crate) fn protocol(&mut self, bytes: usize, chooser: &Chooser) -> Protocol {
        if bytes > self.limits.packet_bytes_max && self.is_learning {
            self.update_limits(chooser);
        }
        self.limits.of(bytes)
    }

    /// Decides the protocol of a message of `bytes` bytes in this mode. Called once per message.
    pub(crate) fn protocol_in(&mut self, mode: Mode, bytes: usize, chooser: &Chooser) -> Protocol {
        match (mode, self.protocol(bytes, chooser)) {
            (Mode::Synchronous, _) => Protocol::Offer,
            (Mode::Overlapped, Protocol::Offer) if bytes <= self.overlapped_most => Protocol::Pieces,
            (_, protocol) => protocol,
        }
    }

    /// Returns how far the peer's core is from this rank's core. The first call finds it out.
    #[inline]
    pub(crate) fn distance(&mut self, chooser: &Chooser) -> Distance {
        *self.distance.get_or_insert_with(|| chooser.distance(self.number))
    }

    /// Whether messages between this process and the peer are still timed, which may change `limits`.
    pub(crate) fn is_learning(&self) -> bool {
        self.is_learning
    }

    /// Sets `limits` by the table or by what the job has measured for the peer's distance. Also sets
    /// `is_learning`.
    #[cold]
    fn update_limits(&mut self, chooser: &Chooser) {
        let distance = self.distance(chooser);
        let (eager_bytes_max, is_learning) = chooser.eager_bytes_max(distance, self.eager_most);
        self.limits = Limits::new(eager_bytes_max, self.packet_most);
        self.is_learning = is_learning;
    }

    /// Forgets what concerns an earlier process with this peer's number. `consumed` is the peer's present
    /// count of taken messages, by their cost; the credit of this process is counted from there.
    pub(crate) fn start_anew(&mut self, generation: u32, consumed: u64) {
        (self.charged, self.consumed) = (consumed, consumed);
        (self.generation, self.unreadable, self.incoming) = (generation, false, None);
        (self.outgoing, self.arriving) = (None, None);
        self.obstacles = self.queue.len();
    }

    /// Whether a message with this context and tag may leave at once: it overtakes no other message, and
    /// needs no number in a channel.
    #[inline]
    pub(crate) fn may_leave_at_once(&self, context: u64, tag: i32) -> bool {
        self.obstacles == 0 || self.is_unobstructed(context, tag)
    }

    #[cold]
    fn is_unobstructed(&self, context: u64, tag: i32) -> bool {
        let is_numbered = |channels: &Channels| channels.has(context, tag);
        self.queue.is_empty() && !self.outgoing.as_deref().is_some_and(is_numbered)
    }

    /// Returns the channels (numbered messages of one context and tag) to the peer, which the first call
    /// makes. From then on every message to the peer looks for its channel before it leaves.
    pub(crate) fn outgoing_channels(&mut self) -> &mut Channels {
        if self.outgoing.is_none() {
            self.obstacles += 1;
        }
        self.outgoing.get_or_insert_default()
    }

    /// Whether something is to be sent to the peer: a packet waits, or a send has bytes that the peer has
    /// asked for.
    pub(crate) fn has_work(&self) -> bool {
        !(self.queue.is_empty() && self.streams.is_empty())
    }

    pub(crate) fn push(&mut self, packet: OutgoingPacket) {
        self.obstacles += 1;
        self.queue.push_back(packet);
    }

    /// Removes the first packet from `queue`, since it has left.
    pub(crate) fn pop(&mut self) {
        self.obstacles -= usize::from(self.queue.pop_front().is_some());
    }

    pub(crate) fn push_stream(&mut self, ours: u64) {
        self.streams.push_back(ours);
    }

    /// Removes the first packet of the send `ours` from `queue`.
    pub(crate) fn drop_message(&mut self, ours: u64) {
        let before = self.queue.len();
        self.queue
            .retain(|packet| !matches!(packet, OutgoingPacket::Message { ours: other } if *other == ours));
        self.obstacles -= before - self.queue.len();
    }

    /// Removes the send `ours` from `streams`, since the peer needs no more of its bytes.
    pub(crate) fn drop_stream(&mut self, ours: u64) {
        self.streams.retain(|&other| other != ours);
    }

    /// Whether this process has credit left at the peer for one more eager message of `bytes` bytes.
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
        // than we sent. The difference is then huge, and the message is offered instead.
        self.charged.wrapping_sub(self.consumed).saturating_add(wanted) <= self.credit_bytes
    }

    #[inline]
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.charged = self.charged.wrapping_add(cost(bytes));
    }

    /// Gives back the credit for a message of `bytes` bytes that this process has sent to itself and
    /// received.
    pub(crate) fn consumed_loopback(&mut self, bytes: usize) {
        self.consumed = self.consumed.wrapping_add(cost(bytes));
    }
}
