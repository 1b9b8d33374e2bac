// SPDX-License-Identifier: BSD-3-Clause
//! Sends the packets that wait for a peer: first the queue in order, then one packet of each send that
//! streams, in turn.

use crate::lane::{Lane, OutgoingPacket};
use crate::packet;
use crate::pieces::send_pieces;
use crate::protocol::Protocol;
use crate::request::{FINAL_ATTEMPT, SendProgress, SendStage};
use crate::state::{Connection, Matcher};
use telemetry::{Counter, Event};
use transport::route::{Route, Sent};

/// The most packets that sends with long messages get to send to one peer in one flush, however fast the peer
/// takes them. Then the next peer gets its turn.
const STREAM_PACKETS_PER_FLUSH: usize = 16;

impl Connection {
    /// Sends the packets that wait for this peer, as far as its ring has room. Returns whether any packet
    /// left.
    pub(crate) fn flush(&mut self, matcher: &mut Matcher) -> bool {
        self.lane.send_waiting(&mut self.route, matcher) > 0
    }
}

impl Lane {
    /// Sends the packets in `queue`, then one packet of each send in `streams` in turn. Returns how many
    /// packets have left.
    fn send_waiting(&mut self, route: &mut Route, matcher: &mut Matcher) -> usize {
        let mut sent = 0;
        while let Some(&packet) = self.queue.front() {
            let answer = match packet {
                OutgoingPacket::Message { ours } => self.send_message(route, matcher, ours),
                OutgoingPacket::Ask { theirs, ours, attempt, next, end } => {
                    let fill = |to| packet::write([ours, next, end], to);
                    route.send(&packet::about(packet::ASK, theirs, attempt), packet::WORDS_BYTES, fill)
                }
                OutgoingPacket::Taken { theirs } => bare(route, packet::TAKEN, theirs),
                OutgoingPacket::Recall { ours } => bare(route, packet::RECALL, ours),
                OutgoingPacket::Returned { theirs } => bare(route, packet::RETURNED, theirs),
            };
            if answer == Sent::Full {
                matcher.counters.count(Counter::RingFull, 1);
                return sent;
            }
            sent += 1;
            self.pop();
        }
        for _ in 0..STREAM_PACKETS_PER_FLUSH {
            if !self.send_chunk(route, matcher) {
                break;
            }
            sent += 1;
        }
        sent
    }

    /// Sends the first packet of the send `ours`, as its protocol says. If an eager message exceeds the
    /// peer's credit, sends an offer instead. Returns `Sent::Full` if the ring has no room.
    fn send_message(&mut self, route: &mut Route, matcher: &mut Matcher, ours: u64) -> Sent {
        let request = matcher.requests.get_mut(ours).expect("a send that waits is known");
        let bytes = request.data.bytes();
        let SendStage { envelope, protocol, progress, counted, .. } = *request.sending();
        if let SendProgress::Offloaded { key, is_over, .. } = progress {
            let header = packet::addressed(packet::ANNOUNCE, envelope.context, envelope.tag);
            let fill = |to| packet::write([bytes as u64, ours, key.word()], to);
            let answer = route.send(&header, packet::WORDS_BYTES, fill);
            if answer == Sent::Done {
                request.sending().progress = SendProgress::Offloaded { key, is_over, has_left: true };
                matcher.count(Counter::RendezvousMessagesSent, Counter::RendezvousBytesSent, bytes);
                if is_over {
                    matcher.complete(ours);
                }
            }
            return answer;
        }
        let mark = if counted { packet::COUNTED } else { 0 };
        let mut next_byte = if let SendProgress::InPieces { next } = progress { Some(next) } else { None };
        let may_go = next_byte.is_some() || protocol != Protocol::Offer && self.has_credit(bytes, route);
        let answer = match if may_go { protocol } else { Protocol::Offer } {
            Protocol::Inline | Protocol::Cell => {
                let header = packet::addressed(packet::EAGER | mark, envelope.context, envelope.tag);
                route.send(&header, bytes, |to| request.data.pack(0, to))
            }
            Protocol::Pieces => {
                let (address, chunk) = (request.data.address(), route.chunk_for(bytes));
                let fill = |at, to| request.data.pack(at, to);
                let answer =
                    send_pieces(route, (&envelope, mark), (bytes, address, chunk), &mut next_byte, fill);
                if let (Sent::Full, Some(next)) = (answer, next_byte) {
                    request.sending().progress = SendProgress::InPieces { next };
                }
                answer
            }
            Protocol::Offer => {
                // The clock is read before the packet leaves: the peer may answer before this function
                // continues.
                let started = telemetry::start_time();
                let mut address = if route.is_readable() { request.data.address() } else { 0 };
                if device::on() && device::export::is_exported(address as usize) {
                    address |= packet::ON_DEVICE;
                }
                let header = packet::addressed(packet::OFFER | mark, envelope.context, envelope.tag);
                let answer = match request.expose(route, matcher.pull_bytes_min) {
                    None => {
                        let fill = |to| packet::write([bytes as u64, ours, address], to);
                        route.send(&header, packet::WORDS_BYTES, fill)
                    }
                    Some(far) => {
                        let fill = |to| packet::write([bytes as u64, ours, address, far.base, far.key], to);
                        route.send(&header, packet::PULL_BYTES, fill)
                    }
                };
                if answer == Sent::Done {
                    request.sending().progress = SendProgress::Offered;
                    matcher.count(Counter::RendezvousMessagesSent, Counter::RendezvousBytesSent, bytes);
                    let (what, peer, bytes) = ("offer", self.number, bytes as u64);
                    telemetry::end(started, Event::Rendezvous { what, peer, ticket: ours, bytes });
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

    /// Sends the next bytes of the send in `streams` whose turn it is, as one packet. Returns false if there
    /// is no such send, or the ring has no room.
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
        } else if attempt == FINAL_ATTEMPT {
            matcher.complete(ours);
        } else {
            request.sending().progress = SendProgress::Offered;
        }
        true
    }
}

/// Sends a packet of this kind without payload, about the operation with this ticket. Returns `Sent::Full` if
/// the ring has no room.
fn bare(route: &mut Route, kind: u8, ticket: u64) -> Sent {
    route.send(&packet::about(kind, ticket, 0), 0, |_| ())
}
