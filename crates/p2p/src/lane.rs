// SPDX-License-Identifier: BSD-3-Clause
//! The outgoing side of one peer: the packets that wait, the credit for eager messages, the protocol of each
//! message.
//!
//! Credit bounds how many of our unmatched eager messages the peer holds. `charged` is the cost of all that
//! we have sent, `consumed` the cost that the peer has given back. Both wrap.
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

/// The packets that wait for a peer, and what is known of this peer.
pub(crate) struct Lane {
    /// The peer's number in the job.
    pub(crate) number: u32,
    /// The longest message of each protocol to this peer.
    limits: Limits,
    /// Whether `limits` may still shrink, as messages are measured.
    is_learning: bool,
    /// The longest eager message that `limits` may ever allow.
    eager_most: usize,
    /// The longest message in one packet that `limits` may ever allow.
    packet_most: usize,
    /// The longest message that leaves eagerly in the mode `Overlapped`; 0 where the kernel does not carry
    /// the packets.
    overlapped_most: usize,
    credit_bytes: u64,
    /// The cost of all eager messages to the peer so far, as `cost` counts it; wraps.
    charged: u64,
    /// The cost of those eager messages that the peer has taken, as of the last look at its consumed word. A
    /// send does not look while the credit lasts.
    consumed: u64,
    /// The number of the peer's world, which tells the peer from earlier processes with the same number.
    pub(crate) generation: u32,
    /// Packets in the order in which they must leave. While the queue is not empty, no other packet with an
    /// envelope leaves.
    pub(crate) queue: VecDeque<OutgoingPacket>,
    /// The number of packets in `queue`, plus 1 if messages to this peer may be numbered. At 0 an eager
    /// message leaves at once.
    obstacles: usize,
    /// The channels of messages to the peer; None until an executor is to move one.
    pub(crate) outgoing: Option<Box<Channels>>,
    /// The channels of messages from the peer; None until the peer has announced one.
    pub(crate) arriving: Option<Box<Channels>>,
    /// The tickets of sends whose bytes the peer asked for. When the queue is empty, each sends one packet in
    /// turn.
    pub(crate) streams: VecDeque<u64>,
    /// Whether the peer is in the list `P2p::blocked` of peers for which packets wait.
    pub(crate) blocked: bool,
    /// The cost of the peer's messages in pieces that receives have taken, and that must still be given back
    /// as credit.
    pub(crate) returned: u64,
    /// Whether a read of the peer's memory has failed, by the kernel or the network. Then no other is tried.
    pub(crate) unreadable: bool,
    /// The message in pieces that the peer has begun and not finished; None if there is none.
    pub(crate) incoming: Option<IncomingPieces>,
    /// How far the peer's core is from this rank's; None until it is first needed.
    distance: Option<Distance>,
}

/// A packet that waits to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutgoingPacket {
    /// The first packet of a send: the message, its beginning, its offer or its announcement.
    Message { ours: u64 },
    /// An ASK for bytes `[next, end)` of the message of the peer's send `theirs`, for our receive `ours`.
    Ask { theirs: u64, ours: u64, attempt: i32, next: u64, end: u64 },
    /// A TAKEN: our receive needs no more of the peer's send `theirs`.
    Taken { theirs: u64 },
    /// A RECALL: the offer of our send `ours` is to be dropped, because the send is cancelled.
    Recall { ours: u64 },
    /// A RETURNED: we have dropped the offer of the peer's send `theirs`, as its RECALL asked.
    Returned { theirs: u64 },
}

/// The cost of a message beside its bytes: what its record in the unexpected queue takes, with the room by
/// which the queue's tables grow (tests/programs/net_flood.c measures it).
const MESSAGE_COST: u64 = 256;

/// Returns how many bytes of the credit an eager message of `bytes` bytes uses up.
#[inline]
pub(crate) fn cost(bytes: usize) -> u64 {
    cost_of(1, bytes as u64)
}

/// Returns how many bytes of the credit `messages` eager messages use up that have `bytes` bytes in all.
#[inline]
pub(crate) fn cost_of(messages: u64, bytes: u64) -> u64 {
    bytes + messages * MESSAGE_COST
}

impl Lane {
    /// Makes the lane to the peer with this number. `packet_most`: the most bytes that one packet carries to
    /// it. `overlapped_most`: the longest message in the mode `Overlapped` that leaves eagerly.
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
            returned: 0,
            unreadable: false,
            incoming: None,
            distance: None,
        }
    }

    /// Sets `limits` by the tuning table, if there is one; otherwise `is_learning` says that messages are
    /// measured.
    pub(crate) fn limit_by_table(&mut self, chooser: &Chooser) {
        self.is_learning = chooser.is_learning;
        if chooser.offers_short(self.number, self.eager_most) {
            self.update_limits(chooser);
        }
    }

    /// Decides the protocol of a message that may leave eagerly. Called once per message.
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

    /// Returns how far the peer's core is from this rank's; finds it out at the first call.
    #[inline]
    pub(crate) fn distance(&mut self, chooser: &Chooser) -> Distance {
        *self.distance.get_or_insert_with(|| chooser.distance(self.number))
    }

    /// Whether messages between this process and the peer are still timed, which may change `limits`.
    pub(crate) fn is_learning(&self) -> bool {
        self.is_learning
    }

    /// Sets `limits` by the table or by what the job has measured for the peer's distance, and `is_learning`.
    #[cold]
    fn update_limits(&mut self, chooser: &Chooser) {
        let distance = self.distance(chooser);
        let (eager_bytes_max, is_learning) = chooser.eager_bytes_max(distance, self.eager_most);
        self.limits = Limits::new(eager_bytes_max, self.packet_most);
        self.is_learning = is_learning;
    }

    /// Forgets what concerns an earlier process with this peer's number. Credit is counted from the peer's
    /// consumed word `consumed` on, which earlier processes with either number may have changed.
    pub(crate) fn start_anew(&mut self, generation: u32, consumed: u64) {
        (self.charged, self.consumed) = (consumed, consumed);
        (self.generation, self.unreadable, self.incoming) = (generation, false, None);
        (self.outgoing, self.arriving) = (None, None);
        self.obstacles = self.queue.len();
    }

    /// Whether a message may leave at once without overtaking another, and needs no number.
    #[inline]
    pub(crate) fn may_leave_at_once(&self, context: u64, tag: i32) -> bool {
        self.obstacles == 0 || self.is_unobstructed(context, tag)
    }

    #[cold]
    fn is_unobstructed(&self, context: u64, tag: i32) -> bool {
        let is_numbered = |channels: &Channels| channels.has(context, tag);
        self.queue.is_empty() && !self.outgoing.as_deref().is_some_and(is_numbered)
    }

    /// Returns the channels of messages to the peer, and makes them at the first call. From then on every
    /// message to the peer looks for its channel before it leaves.
    pub(crate) fn outgoing_channels(&mut self) -> &mut Channels {
        if self.outgoing.is_none() {
            self.obstacles += 1;
        }
        self.outgoing.get_or_insert_default()
    }

    /// Whether the lane has something to send: a packet waits, or a send streams.
    pub(crate) fn has_work(&self) -> bool {
        !(self.queue.is_empty() && self.streams.is_empty())
    }

    pub(crate) fn push(&mut self, packet: OutgoingPacket) {
        self.obstacles += 1;
        self.queue.push_back(packet);
    }

    /// Removes the first packet from `queue`, after it has left.
    pub(crate) fn pop(&mut self) {
        self.obstacles -= usize::from(self.queue.pop_front().is_some());
    }

    pub(crate) fn push_stream(&mut self, ours: u64) {
        self.streams.push_back(ours);
    }

    /// Removes the first packet of the send `ours` from the queue.
    pub(crate) fn drop_message(&mut self, ours: u64) {
        let before = self.queue.len();
        self.queue
            .retain(|packet| !matches!(packet, OutgoingPacket::Message { ours: other } if *other == ours));
        self.obstacles -= before - self.queue.len();
    }

    /// Removes the send `ours` from the sends that stream: the peer needs no more of its bytes.
    pub(crate) fn drop_stream(&mut self, ours: u64) {
        self.streams.retain(|&other| other != ours);
    }

    /// Whether the peer's credit lasts for one more eager message of `bytes` bytes.
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

    /// Gives back the credit for a message of `bytes` bytes of this process to itself.
    pub(crate) fn consumed_loopback(&mut self, bytes: usize) {
        self.consumed = self.consumed.wrapping_add(cost(bytes));
    }
}
