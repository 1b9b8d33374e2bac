// SPDX-License-Identifier: BSD-3-Clause
//! `Matcher::consume`: the one place where a packet meets a receive. An `AwaitingReceives` says which
//! receives may take a message. A message in one packet then needs no request, except in the posted queue.
//!
//! | called by | `AwaitingReceives`: receives | a message that none of them takes |
//! |---|---|---|
//! | `P2p::take_packets` | `PostedQueue`: the posted queue | goes to the unexpected queue |
//! | `P2p::recv_now` | `OneReceive` (`receive.rs`): a blocking receive | stays in the ring until `poll` |
//! | `P2p::take_deferred` | `FirstDeferred` (`defer.rs`): deferred ones | stays in the ring until `poll` |
//!
//! A whole message ends its receive (`land`). A message in pieces gets a request (`claim`), and its last
//! piece ends the receive. Offers and packets about requests (DATA, ASK, ...) are for `poll` only. Read next:
//! `receive.rs`, `defer.rs`.

use crate::data::MessageData;
use crate::lane::{Lane, cost_of};
use crate::message::UnexpectedMessage;
use crate::packet;
use crate::state::{Connection, Matcher};
use datatype::Buffer;
use error::{Class, Result, fail};
use matching::Envelope;
use sys::Span;
use telemetry::Counter;
use transport::route::{Header, PacketSink, Route, Taken};

/// How many times a receiver looks for the next piece of a message, while the sender copies it, before it
/// does other work.
pub(crate) const PIECE_LOOKS: usize = 500;

/// The receives that may take the next messages of a peer: posted ones, a blocking one, or deferred ones.
pub(crate) trait AwaitingReceives {
    /// Whether a message that no receive takes goes to the unexpected queue. Otherwise it stays in the ring.
    const KEEPS_UNEXPECTED: bool;

    /// Copies a whole message into the buffer of the receive that it matches, and ends that receive. Returns
    /// `Taken::No` if it matches none. The caller knows that at least one receive waits.
    fn land(&mut self, matcher: &mut Matcher, envelope: &Envelope, message: Span) -> Taken;

    /// Returns the ticket of the receive that takes a message whose bytes come in later packets; None if no
    /// receive takes it.
    fn claim(&mut self, matcher: &mut Matcher, envelope: &Envelope) -> Option<u64>;

    /// Whether every one of these receives has its message, so that no further packet is wanted.
    fn is_done(&self) -> bool;
}

/// Stands for all receives in the posted queue, for which `P2p::poll` takes packets.
pub(crate) struct PostedQueue;

impl AwaitingReceives for PostedQueue {
    const KEEPS_UNEXPECTED: bool = true;

    #[inline(always)]
    fn land(&mut self, matcher: &mut Matcher, envelope: &Envelope, message: Span) -> Taken {
        let Some(ours) = matcher.posted.take(envelope) else { return Taken::No };
        matcher.land(ours, *envelope, message);
        Taken::More
    }

    fn claim(&mut self, matcher: &mut Matcher, envelope: &Envelope) -> Option<u64> {
        matcher.posted.take(envelope)
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Whether a message with this envelope has this context and this tag (None: any tag). The caller has
/// compared the source.
#[inline(always)]
pub(crate) fn fits(context: u64, tag: Option<i32>, envelope: &Envelope) -> bool {
    envelope.context == context && tag.is_none_or(|tag| tag == envelope.tag)
}

/// Counts the whole messages that receives have taken from one peer while its ring was read, so that the
/// counters and the credit are updated only once.
#[derive(Default)]
pub(crate) struct Tally {
    messages: u64,
    bytes: u64,
}

impl Tally {
    /// Adds the tallied messages to the counters, and gives the peer of `route` back the credit for them.
    #[inline(always)]
    pub(crate) fn count_and_return_credit(self, matcher: &Matcher, route: &mut Route) {
        if self.messages > 0 {
            matcher.counters.count(Counter::EagerMessagesReceived, self.messages);
            matcher.counters.count(Counter::EagerBytesReceived, self.bytes);
            route.consume(cost_of(self.messages, self.bytes));
        }
    }
}

/// Takes whole messages of a peer for receives that are not in the posted queue, and stops at any other
/// packet.
struct WholeMessages<'a, A> {
    matcher: &'a mut Matcher,
    awaiting: &'a mut A,
    peer: u32,
    tally: Tally,
    /// The kind of the packet that was not taken, and so stays in the ring; None if every packet was taken.
    stays: Option<u8>,
}

impl<A: AwaitingReceives> PacketSink for WholeMessages<'_, A> {
    #[inline(always)]
    fn packet(&mut self, header: &Header, payload: Span) -> Taken {
        let take = match header.kind {
            packet::EAGER => {
                self.matcher.consume_message(self.peer, header, payload, self.awaiting, &mut self.tally)
            }
            _ => Taken::No,
        };
        if take == Taken::No {
            self.stays = Some(header.kind);
        }
        take
    }
}

/// Takes the packets of a peer for receives that are not in the posted queue: whole messages, messages in
/// pieces, and their pieces.
struct AnyPackets<'a, A> {
    matcher: &'a mut Matcher,
    lane: &'a mut Lane,
    awaiting: &'a mut A,
    tally: Tally,
    /// The kind of the last packet from the ring; None if that packet was not taken.
    taken: Option<u8>,
}

impl<A: AwaitingReceives> PacketSink for AnyPackets<'_, A> {
    fn packet(&mut self, header: &Header, payload: Span) -> Taken {
        let AnyPackets { matcher, lane, awaiting, tally, .. } = self;
        if awaiting.is_done() && header.kind != packet::PIECE {
            return Taken::No;
        }
        let take = matcher.consume(lane, header, payload, *awaiting, tally).unwrap_or(Taken::No);
        self.taken = if take == Taken::No { None } else { Some(header.kind) };
        take
    }
}

impl Connection {
    /// Takes the peer's packets for receives that are not in the posted queue; at least one of the receives
    /// has no message yet. Continues while pieces of a message come soon. An invalid packet stays in the ring
    /// for the next `poll` to report.
    ///
    /// Returns `awaiting`, and true if a packet stays in the ring or was no whole message. `awaiting` is
    /// passed by value both ways, so that its fields stay in registers as long as only whole messages come.
    #[inline(always)]
    pub(crate) fn take_for_unposted<A: AwaitingReceives>(
        &mut self,
        matcher: &mut Matcher,
        mut awaiting: A,
    ) -> (A, bool) {
        let (peer, tally) = (self.lane.number, Tally::default());
        let mut messages = WholeMessages { matcher, awaiting: &mut awaiting, peer, tally, stays: None };
        let polled = self.route.poll_while(&mut messages);
        let WholeMessages { tally, stays, .. } = messages;
        tally.count_and_return_credit(matcher, &mut self.route);
        match stays {
            None => (awaiting, polled.is_err()),
            Some(packet::EAGER) => (awaiting, true),
            Some(_) => {
                let mut rest = awaiting;
                self.take_every_kind_for(matcher, &mut rest);
                (rest, true)
            }
        }
    }

    #[inline(never)] // Keeps the path of short messages short.
    fn take_every_kind_for<A: AwaitingReceives>(&mut self, matcher: &mut Matcher, awaiting: &mut A) {
        loop {
            let Connection { route, lane } = self;
            let mut packets = AnyPackets { matcher, lane, awaiting, tally: Tally::default(), taken: None };
            let _ = route.poll_while(&mut packets);
            let AnyPackets { tally, taken, .. } = packets;
            tally.count_and_return_credit(matcher, &mut self.route);
            self.give_credit_back();
            if self.lane.incoming.is_none() || !self.awaits_piece(matcher, taken) {
                return;
            }
        }
    }

    /// Waits a moment for the next piece of a message. Returns whether it has come. `taken` is the kind of
    /// the packet that was taken last; None if the last packet was not taken.
    fn awaits_piece(&mut self, matcher: &mut Matcher, taken: Option<u8>) -> bool {
        let Connection { route, lane } = self;
        let timed = match taken {
            Some(packet::BEGIN) => matcher.try_eager(route, lane),
            _ => lane.incoming.and_then(|incoming| incoming.timed),
        };
        let comes = taken.is_some() && (0..PIECE_LOOKS).any(|_| route.ready());
        if let Some(incoming) = &mut lane.incoming {
            incoming.timed = timed.filter(|_| comes);
        }
        comes
    }

    /// Gives the peer back its credit for every message in pieces that a receive has taken
    /// (`Lane::returned`).
    #[inline]
    pub(crate) fn give_credit_back(&mut self) {
        if self.lane.to_return > 0 {
            self.route.consume(std::mem::take(&mut self.lane.to_return));
        }
    }
}

impl Matcher {
    /// Handles a packet from a peer, and counts a whole message in `tally`. Returns whether the packet was
    /// taken. Errors: the peer may not send this packet now.
    #[inline]
    pub(crate) fn consume<A: AwaitingReceives>(
        &mut self,
        lane: &mut Lane,
        header: &Header,
        payload: Span,
        awaiting: &mut A,
        tally: &mut Tally,
    ) -> Result<Taken> {
        match header.kind {
            packet::EAGER => Ok(self.consume_message(lane.number, header, payload, awaiting, tally)),
            _ => self.consume_other(lane, header, payload, awaiting, tally),
        }
    }

    /// Copies a whole message into the receive that it matches. A message that matches no receive goes to the
    /// unexpected queue, or stays in the ring, as `awaiting` says. Returns `Taken::No` if it stays in the
    /// ring.
    #[inline(always)]
    fn consume_message<A: AwaitingReceives>(
        &mut self,
        peer: u32,
        header: &Header,
        payload: Span,
        awaiting: &mut A,
        tally: &mut Tally,
    ) -> Taken {
        let envelope = Envelope { context: header.context, source: peer, tag: header.tag };
        let taken = awaiting.land(self, &envelope, payload);
        if taken != Taken::No {
            tally.messages += 1;
            tally.bytes += payload.bytes() as u64;
        } else if A::KEEPS_UNEXPECTED {
            self.store_unexpected(envelope, payload);
            return Taken::More;
        }
        taken
    }

    /// Copies a whole message into the unexpected queue, since no receive has matched it.
    fn store_unexpected(&mut self, envelope: Envelope, payload: Span) {
        let bytes = payload.bytes();
        let message = UnexpectedMessage::filled(bytes, &mut self.spares, |to| payload.save(to));
        self.count(Counter::UnexpectedMessages, Counter::UnexpectedBytes, bytes);
        self.count(Counter::EagerMessagesReceived, Counter::EagerBytesReceived, bytes);
        self.unexpected.push(envelope, message);
    }

    /// Handles a packet of any kind except a whole message. Returns `Taken::No` if the packet stays in the
    /// ring.
    #[inline(never)]
    fn consume_other<A: AwaitingReceives>(
        &mut self,
        lane: &mut Lane,
        header: &Header,
        payload: Span,
        awaiting: &mut A,
        tally: &mut Tally,
    ) -> Result<Taken> {
        if header.kind & packet::COUNTED != 0 {
            let message = Header { kind: header.kind & !packet::COUNTED, ..*header };
            let take = self.consume(lane, &message, payload, awaiting, tally)?;
            if take != Taken::No
                && let Some(channels) = &mut lane.arriving
            {
                channels.count(header.context, header.tag);
            }
            return Ok(take);
        }
        let envelope = Envelope { context: header.context, source: lane.number, tag: header.tag };
        match header.kind {
            packet::BEGIN => return self.consume_begin(lane, envelope, payload, awaiting),
            packet::PIECE => self.consume_piece(lane, payload)?,
            // The other packets are for `P2p::poll`, which also sends the answers.
            _ if !A::KEEPS_UNEXPECTED => return Ok(Taken::No),
            packet::OFFER => self.consume_offer(lane, envelope, payload)?,
            packet::ANNOUNCE => self.consume_announce(lane, envelope, payload)?,
            packet::DATA => self.consume_data(lane, header, payload)?,
            packet::ASK => self.consume_ask(lane, header, payload)?,
            packet::TAKEN => self.consume_taken(lane, header.context)?,
            packet::RECALL => self.consume_recall(lane, header.context),
            packet::RETURNED => self.consume_returned(lane, header.context)?,
            kind => fail!(Class::Intern, "peer {} sent a packet of unknown kind {kind}", lane.number),
        }
        Ok(if lane.incoming.is_none() && awaiting.is_done() { Taken::Last } else { Taken::More })
    }

    /// Copies a whole message into the buffer of the posted receive `ours`, and ends the receive.
    #[inline]
    pub(crate) fn land(&mut self, ours: u64, envelope: Envelope, message: Span) {
        let copy = |buffer: &Buffer, taken| buffer.unpack(0, message.slice(0, taken));
        self.land_with(ours, envelope, message.bytes(), copy);
    }

    /// Ends the posted receive `ours` by a whole message of `bytes` bytes. `copy` gets the receive's buffer,
    /// and how many bytes of the message fit there.
    #[inline(always)]
    pub(crate) fn land_with(
        &mut self,
        ours: u64,
        envelope: Envelope,
        bytes: usize,
        copy: impl FnOnce(&Buffer, usize),
    ) {
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let taken = request.match_message(envelope, bytes as u64);
        copy(request.buffer(), taken);
        let detached = request.detached;
        if let MessageData::User(buffer) = request.end() {
            drop(buffer); // Every receive has the user's buffer, so there is no other case.
        }
        if detached {
            self.requests.remove(ours);
        }
    }

    /// Copies a message that this process has sent to itself into the buffer of the receive `ours`, and ends
    /// the receive.
    pub(crate) fn land_loopback(&mut self, ours: u64, envelope: Envelope, message: &mut MessageData) {
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let bytes = request.match_message(envelope, message.bytes() as u64);
        message.copy_to(bytes, request.buffer());
        self.complete(ours);
    }
}
