//! What waits to go to one peer, and the credit that its eager messages may use.

use crate::choice::Chooser;
use crate::packet;
use crate::pieces::{Incoming, send_pieces};
use crate::rendezvous::FINAL;
use crate::request::{SendProgress, SendStage};
use crate::{Config, Peer, State};
use std::collections::VecDeque;
use telemetry::Counter;
use transport::route::{Route, Sent};
use tuning::Distance;

/// The outgoing side of a peer.
pub(crate) struct Lane {
    /// The peer.
    pub(crate) number: u32,
    eager_bytes_max: usize,
    payload_bytes_max: usize,
    /// The longest eager message in one packet.
    pub(crate) short_bytes_max: usize,
    credit_bytes: u64,
    /// What all eager messages have cost so far.
    charged: u64,
    /// The peer's consumed word as last read, so that a send reads only our own memory while the credit lasts.
    consumed: u64,
    /// Which of the processes that one after the other have the peer's place we know.
    pub(crate) generation: u32,
    /// Packets in the order in which they must leave. Nothing with an envelope leaves while this holds anything.
    queue: VecDeque<Outgoing>,
    /// Sends whose bytes were asked for, by ticket; one packet each in turn, when the queue is empty.
    streams: VecDeque<u64>,
    /// In `P2p::blocked`.
    pub(crate) blocked: bool,
    /// Credit to give back for messages of this peer.
    pub(crate) returned: u64,
    /// A read of the peer's memory failed, so none is tried again.
    pub(crate) unreadable: bool,
    /// What the peer has begun to send in pieces.
    pub(crate) incoming: Option<Incoming>,
    /// How far the peer's core is, once somebody wanted to know.
    distance: Option<Distance>,
    /// The longest eager message may change with what messages show.
    pub(crate) is_learning: bool,
    /// What it may be at most.
    eager_most: usize,
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

/// The longest eager message in one packet, and the least that each packet of a longer message carries but the last. Bare loops took for 64 KiB
/// from one core to another, in pieces of 4, 8, 16 and 32 KiB, 1.4, 1.07, 1.09 and 1.17 us on an AMD EPYC, 2.8, 2.43, 2.38 and 2.43 where cores are
/// far apart; on an Intel Xeon 6.9 in those of 8 and 7.3 in those of 32.
const PIECE_BYTES_MIN: usize = 16 << 10;
/// A longer message takes no recycled buffers: there are too few, and they would only touch more of the caches.
const RECYCLED_BYTES_MAX: usize = 512 << 10;
/// Packets of streams that one flush sends: whoever is polled next gets his turn, however fast the peer takes them.
const STREAM_PACKETS_PER_FLUSH: usize = 16;

/// What an eager message of so many bytes costs of the credit.
#[inline]
pub(crate) fn cost(bytes: usize) -> u64 {
    cost_of(1, bytes as u64)
}

/// The same of several messages that have so many bytes in all.
#[inline]
pub(crate) fn cost_of(messages: u64, bytes: u64) -> u64 {
    bytes + messages * MESSAGE_COST
}

impl Lane {
    pub(crate) fn new(number: u32, config: &Config, payload_bytes_max: usize) -> Lane {
        Lane {
            number,
            eager_bytes_max: config.eager_bytes_max,
            payload_bytes_max,
            short_bytes_max: config.eager_bytes_max.min(PIECE_BYTES_MIN).min(payload_bytes_max),
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
            is_learning: false,
            eager_most: config.eager_bytes_max,
        }
    }

    /// Finds out which of its messages leave unasked.
    pub(crate) fn choose(&mut self, chooser: &Chooser) {
        self.is_learning = chooser.is_learning;
        if chooser.offers_short(self.number, self.eager_most) {
            self.learn(chooser);
        }
    }

    /// How far the peer's core is.
    #[inline]
    pub(crate) fn distance(&mut self, chooser: &Chooser) -> Distance {
        *self.distance.get_or_insert_with(|| chooser.distance(self.number))
    }

    /// Takes over what messages have shown.
    #[cold]
    pub(crate) fn learn(&mut self, chooser: &Chooser) {
        let (distance, payload_bytes_max) = (self.distance(chooser), self.payload_bytes_max);
        (self.eager_bytes_max, self.is_learning) = chooser.eager_bytes_max(distance, self.eager_most);
        self.short_bytes_max = self.eager_bytes_max.min(PIECE_BYTES_MIN).min(payload_bytes_max);
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

    /// Whether a message may go eagerly, as far as its length and the credit tell.
    #[inline]
    pub(crate) fn affords(&mut self, bytes: usize, route: &Route) -> bool {
        bytes <= self.eager_bytes_max && self.has_credit(bytes, route)
    }

    /// The same of what is known to be no longer than an eager message may be.
    #[inline]
    pub(crate) fn has_credit(&mut self, bytes: usize, route: &Route) -> bool {
        let wanted = cost(bytes);
        if self.charged.wrapping_sub(self.consumed).saturating_add(wanted) <= self.credit_bytes {
            return true;
        }
        if !matches!(route, Route::Loopback) {
            self.consumed = route.consumed();
        }
        // A corrupt peer may have "consumed" more than was sent; the difference is then huge, and we offer instead. So we do where
        // messages of an earlier process in our place were received late, until ours have made up for them.
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

    /// The queue's packets, then packets of streams in turn. Returns how many left.
    fn send_waiting(&mut self, route: &mut Route, state: &mut State) -> usize {
        let mut sent = 0;
        while let Some(&packet) = self.queue.front() {
            let answer = match packet {
                Outgoing::Message { ours } => self.send_message(route, state, ours),
                Outgoing::Ask { theirs, ours, attempt, next, end } => {
                    let fill = |to| packet::write([ours, next, end], to);
                    route.send(&packet::about(packet::ASK, theirs, attempt), packet::WORDS_BYTES, fill)
                }
                Outgoing::Taken { theirs } => bare(route, packet::TAKEN, theirs),
                Outgoing::Recall { ours } => bare(route, packet::RECALL, ours),
                Outgoing::Returned { theirs } => bare(route, packet::RETURNED, theirs),
            };
            if answer == Sent::Full {
                state.counters.count(Counter::RingFull, 1);
                return sent;
            }
            sent += 1;
            self.queue.pop_front();
        }
        for _ in 0..STREAM_PACKETS_PER_FLUSH {
            if !self.send_piece(route, state) {
                break;
            }
            sent += 1;
        }
        sent
    }

    /// The first packet of a send: the message itself while the credit lasts, otherwise an offer.
    fn send_message(&mut self, route: &mut Route, state: &mut State, ours: u64) -> Sent {
        let request = state.requests.get_mut(ours).expect("a send that waits is known");
        let bytes = request.data.bytes();
        let SendStage { envelope, synchronous, progress, .. } = *request.sending();
        let has_begun = matches!(progress, SendProgress::Begun { .. });
        if has_begun || !synchronous && self.affords(bytes, route) {
            let answer = if bytes <= self.short_bytes_max {
                let header = packet::addressed(packet::EAGER, envelope.context, envelope.tag);
                route.send(&header, bytes, |to| request.data.pack(0, to))
            } else {
                let mut next = if let SendProgress::Begun { next } = progress { Some(next) } else { None };
                let address = request.data.address();
                let fill = |at, to| request.data.pack(at, to);
                let piece = self.piece_bytes(bytes, route);
                let answer = send_pieces(route, &envelope, (bytes, address, piece), &mut next, fill);
                if let (Sent::Full, Some(next)) = (answer, next) {
                    request.sending().progress = SendProgress::Begun { next };
                }
                answer
            };
            if answer == Sent::Done {
                self.charge(bytes);
                state.count(Counter::EagerMessagesSent, Counter::EagerBytesSent, bytes);
                state.complete(ours);
            }
            return answer;
        }
        let address = request.data.address();
        let header = packet::addressed(packet::OFFER, envelope.context, envelope.tag);
        let fill = |to| packet::write([bytes as u64, ours, address], to);
        let answer = route.send(&header, packet::WORDS_BYTES, fill);
        if answer == Sent::Done {
            request.sending().progress = SendProgress::Offered;
            state.count(Counter::RendezvousMessagesSent, Counter::RendezvousBytesSent, bytes);
        }
        answer
    }

    /// Bytes of the packets of a longer message. The receiver copies one piece while we copy the next: where messages go to and fro, which recycled buffers
    /// show, it has four or more. Who only sends need not wait, and the fewer they are, the better.
    pub(crate) fn piece_bytes(&self, message_bytes: usize, route: &Route) -> usize {
        let takes_recycled = message_bytes <= RECYCLED_BYTES_MAX;
        let most = if takes_recycled { route.piece_bytes_max() } else { self.payload_bytes_max };
        let pieces = if most < self.payload_bytes_max { 4 } else { 2 };
        (message_bytes / pieces).max(PIECE_BYTES_MIN).min(most)
    }

    /// The next bytes of the stream whose turn it is; false if there is none or no room.
    fn send_piece(&mut self, route: &mut Route, state: &mut State) -> bool {
        let Some(&ours) = self.streams.front() else { return false };
        let request = state.requests.get_mut(ours).expect("a send that streams is known");
        let SendProgress::Streaming { theirs, attempt, next, end } = request.sending().progress else {
            unreachable!("only sends that were asked for stream");
        };
        let bytes = (end - next).min(self.piece_bytes(request.data.bytes(), route) as u64);
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
            state.complete(ours);
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

impl Peer {
    /// Sends what waits, as far as there is room; returns whether anything left.
    pub(crate) fn flush(&mut self, state: &mut State) -> bool {
        self.lane.send_waiting(&mut self.route, state) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::route::Reach;
    use transport::route_shm::Port;
    use transport::shm::{Segment, Shape};

    #[test]
    fn pieces_are_longer_where_nothing_comes_back() {
        let segment = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap().0;
        let mut route = Reach::Shm(Port::new(segment, 0)).route(1).unwrap();
        let lane = Lane::new(1, &Config::default(), route.payload_bytes_max());
        let pieces = |route: &Route| {
            [100, 16 << 10, 40 << 10, 64 << 10, 1 << 20].map(|bytes| lane.piece_bytes(bytes, route) >> 10)
        };
        assert_eq!(pieces(&route), [16, 16, 16, 16, 32], "while there are recycled buffers");
        for _ in 0..100 {
            assert_eq!(route.send(&packet::about(packet::PIECE, 0, 0), 300, |_| ()), Sent::Done);
        }
        assert_eq!(pieces(&route), [16, 16, 20, 32, 32]);
    }
}
