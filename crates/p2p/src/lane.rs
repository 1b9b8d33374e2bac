//! The outgoing side of one peer: the packets that wait, the credit of its eager messages, and the protocol of each message.
//!
//! Credit bounds what a peer may hold of our unmatched eager messages: `charged` is what ours have cost, `consumed` what
//! the peer has given back. Both wrap.
//!
//! Read next: `protocol.rs`, `send.rs`, `pieces.rs`.

use crate::choice::Chooser;
use crate::packet;
use crate::pieces::{Incoming, send_pieces};
use crate::protocol::{Limits, Protocol};
use crate::rendezvous::FINAL;
use crate::request::{SendProgress, SendStage};
use crate::{Config, Connection, Matcher};
use std::collections::VecDeque;
use telemetry::Counter;
use transport::route::{Route, Sent};
use tuning::Distance;

/// What waits to go to a peer, and what is known of it.
pub(crate) struct Lane {
    /// The peer.
    pub(crate) number: u32,
    /// Which protocol takes which length.
    limits: Limits,
    /// `limits` may shrink with what messages show.
    is_learning: bool,
    /// The longest eager message that they may ever allow.
    eager_most: usize,
    /// The longest message in one packet that they may ever allow.
    packet_most: usize,
    credit_bytes: u64,
    /// What all eager messages have cost so far.
    charged: u64,
    /// The peer's consumed word as last read: a send reads only our own memory while the credit lasts.
    consumed: u64,
    /// Which of the processes that have the peer's place, one after the other, we know.
    pub(crate) generation: u32,
    /// Packets in the order in which they must leave. Nothing with an envelope leaves while this holds anything.
    queue: VecDeque<Outgoing>,
    /// Sends whose bytes were asked for, by ticket. When the queue is empty, each sends one packet in turn.
    streams: VecDeque<u64>,
    /// In `P2p::blocked`.
    pub(crate) blocked: bool,
    /// Credit to give back for messages of this peer.
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

/// What a message without bytes costs: its record in the unexpected queue.
const MESSAGE_COST: u64 = 64;
/// Packets of streams in one flush: then the next peer has its turn, however fast this one takes packets.
const STREAM_PACKETS_PER_FLUSH: usize = 16;

/// What an eager message costs of the credit.
#[inline]
pub(crate) fn cost(bytes: usize) -> u64 {
    bytes as u64 + MESSAGE_COST
}

impl Lane {
    pub(crate) fn new(number: u32, config: &Config, packet_most: usize) -> Lane {
        Lane {
            number,
            limits: Limits::new(config.eager_bytes_max, packet_most),
            is_learning: false,
            eager_most: config.eager_bytes_max,
            packet_most,
            credit_bytes: config.credit_bytes as u64,
            charged: 0,
            consumed: 0,
            generation: 0,
            queue: VecDeque::new(),
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
        if self.is_learning && bytes > self.limits.packet_bytes_max {
            self.learn(chooser);
        }
        self.limits.of(bytes)
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

    /// Begins with the peer's consumed word as it is: an earlier process in our place, or in the peer's, may have left one.
    pub(crate) fn begin_anew(&mut self, generation: u32, consumed: u64) {
        (self.charged, self.consumed) = (consumed, consumed);
        (self.generation, self.unreadable, self.incoming) = (generation, false, None);
    }

    /// Whether a message may leave at once without overtaking another.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether anything waits.
    pub(crate) fn has_work(&self) -> bool {
        !(self.queue.is_empty() && self.streams.is_empty())
    }

    pub(crate) fn push(&mut self, packet: Outgoing) {
        self.queue.push_back(packet);
    }

    pub(crate) fn push_stream(&mut self, ours: u64) {
        self.streams.push_back(ours);
    }

    /// Takes a send back whose first packet has not left.
    pub(crate) fn drop_message(&mut self, ours: u64) {
        self.queue.retain(|packet| !matches!(packet, Outgoing::Message { ours: other } if *other == ours));
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
        // A corrupt peer may have "consumed" more than we sent. So may a peer that received messages of an earlier process
        // in our place late. The difference is then huge, and we offer instead.
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

    /// Sends the queue's packets, then packets of streams in turn. Returns how many left.
    fn send_waiting(&mut self, route: &mut Route, matcher: &mut Matcher) -> usize {
        let mut sent = 0;
        while let Some(&packet) = self.queue.front() {
            let answer = match packet {
                Outgoing::Message { ours } => self.send_message(route, matcher, ours),
                Outgoing::Ask { theirs, ours, attempt, next, end } => {
                    let fill = |to| packet::write([ours, next, end], to);
                    route.send(&packet::about(packet::ASK, theirs, attempt), packet::WORDS_BYTES, fill)
                }
                Outgoing::Taken { theirs } => bare(route, packet::TAKEN, theirs),
                Outgoing::Recall { ours } => bare(route, packet::RECALL, ours),
                Outgoing::Returned { theirs } => bare(route, packet::RETURNED, theirs),
            };
            if answer == Sent::Full {
                matcher.counters.count(Counter::RingFull, 1);
                return sent;
            }
            sent += 1;
            self.queue.pop_front();
        }
        for _ in 0..STREAM_PACKETS_PER_FLUSH {
            if !self.send_chunk(route, matcher) {
                break;
            }
            sent += 1;
        }
        sent
    }

    /// The first packet of a send: by its protocol while the credit lasts, otherwise an offer.
    fn send_message(&mut self, route: &mut Route, matcher: &mut Matcher, ours: u64) -> Sent {
        let request = matcher.requests.get_mut(ours).expect("a send that waits is known");
        let bytes = request.data.bytes();
        let SendStage { envelope, protocol, progress, .. } = *request.sending();
        let mut begun = if let SendProgress::Begun { next } = progress { Some(next) } else { None };
        let may_go = begun.is_some() || protocol != Protocol::Offer && self.has_credit(bytes, route);
        let answer = match if may_go { protocol } else { Protocol::Offer } {
            Protocol::Inline | Protocol::Cell => {
                let header = packet::addressed(packet::EAGER, envelope.context, envelope.tag);
                route.send(&header, bytes, |to| request.data.pack(0, to))
            }
            Protocol::Pieces => {
                let (address, chunk) = (request.data.address(), route.chunk_for(bytes));
                let fill = |at, to| request.data.pack(at, to);
                let answer = send_pieces(route, &envelope, (bytes, address, chunk), &mut begun, fill);
                if let (Sent::Full, Some(next)) = (answer, begun) {
                    request.sending().progress = SendProgress::Begun { next };
                }
                answer
            }
            Protocol::Offer => {
                let address = request.data.address();
                let header = packet::addressed(packet::OFFER, envelope.context, envelope.tag);
                let fill = |to| packet::write([bytes as u64, ours, address], to);
                let answer = route.send(&header, packet::WORDS_BYTES, fill);
                if answer == Sent::Done {
                    request.sending().progress = SendProgress::Offered;
                    matcher.count(Counter::RendezvousMessagesSent, Counter::RendezvousBytesSent, bytes);
                }
                return answer;
            }
        };
        if answer == Sent::Done {
            self.charge(bytes);
            matcher.count(Counter::EagerMessagesSent, Counter::EagerBytesSent, bytes);
            matcher.complete(ours);
        }
        answer
    }

    /// The next bytes of the stream whose turn it is. False if there is none, or no room.
    fn send_chunk(&mut self, route: &mut Route, matcher: &mut Matcher) -> bool {
        let Some(&ours) = self.streams.front() else { return false };
        let request = matcher.requests.get_mut(ours).expect("a send that streams is known");
        let SendProgress::Streaming { theirs, attempt, next, end } = request.sending().progress else {
            unreachable!("only sends that were asked for stream");
        };
        let bytes = (end - next).min(route.chunk_for(request.data.bytes()) as u64);
        let header = packet::about(packet::DATA, theirs, attempt);
        if route.send(&header, bytes as usize, |to| request.data.pack(next as usize, to)) == Sent::Full {
            return false;
        }
        self.streams.pop_front();
        if next + bytes < end {
            let next = next + bytes;
            request.sending().progress = SendProgress::Streaming { theirs, attempt, next, end };
            self.streams.push_back(ours);
        } else if attempt == FINAL {
            matcher.complete(ours);
        } else {
            request.sending().progress = SendProgress::Offered;
        }
        true
    }
}

/// A packet that only names an operation.
fn bare(route: &mut Route, kind: u8, ticket: u64) -> Sent {
    route.send(&packet::about(kind, ticket, 0), 0, |_| ())
}

impl Connection {
    /// Sends what waits, as far as there is room. Returns whether anything left.
    pub(crate) fn flush(&mut self, matcher: &mut Matcher) -> bool {
        self.lane.send_waiting(&mut self.route, matcher) > 0
    }
}
