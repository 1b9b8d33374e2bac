// SPDX-License-Identifier: BSD-3-Clause
//! Starts a receive, and gives it a message that came before.
//!
//! Read next: `consume.rs`, `deferred.rs`.

use crate::consume::{AwaitingReceives, fits};
use crate::deferred::UnpostedState;
use crate::lane::cost;
use crate::message::UnexpectedMessage;
use crate::outcome::{Arrived, Outcome, Ticket};
use crate::request::{Request, RequestStage};
use crate::state::{Matcher, P2p, connection};
use datatype::Buffer;
use matching::{Envelope, Pattern};
use sys::Span;
use transport::route::{Route, Taken};

/// The buffer of a receive that is not in the posted queue: a span, which stays in registers, or a buffer
/// with gaps.
trait LandingBuffer {
    /// Returns how many bytes of a message fit into the buffer.
    fn bytes(&self) -> usize;
    /// Copies `message`, which fits, to the beginning of the buffer.
    fn take(&self, message: Span);
    /// Returns the same buffer in the form in which a request stores it.
    fn buffer(&self) -> Buffer;
}

impl LandingBuffer for Span {
    #[inline(always)]
    fn bytes(&self) -> usize {
        Span::bytes(*self)
    }
    #[inline(always)]
    fn take(&self, message: Span) {
        message.copy_to(self.slice(0, message.bytes()));
    }
    fn buffer(&self) -> Buffer {
        (*self).into()
    }
}

impl LandingBuffer for &Buffer {
    fn bytes(&self) -> usize {
        Buffer::bytes(self)
    }
    fn take(&self, message: Span) {
        self.unpack(0, message);
    }
    fn buffer(&self) -> Buffer {
        (*self).clone()
    }
}

/// A blocking receive without a request. It exists during one call, which takes packets of the peer.
struct OneReceive<L> {
    context: u64,
    tag: Option<i32>,
    landing: L,
    state: UnpostedState,
}

impl<L: LandingBuffer> AwaitingReceives for OneReceive<L> {
    const KEEPS_UNEXPECTED: bool = false;

    #[inline(always)]
    fn land(&mut self, _: &mut Matcher, envelope: &Envelope, message: Span) -> Taken {
        if !fits(self.context, self.tag, envelope) {
            return Taken::No;
        }
        self.landing.take(message.slice(0, message.bytes().min(self.landing.bytes())));
        self.state = UnpostedState::Arrived(Arrived::new(message.bytes(), envelope.tag));
        Taken::Last
    }

    fn claim(&mut self, matcher: &mut Matcher, envelope: &Envelope) -> Option<u64> {
        if !fits(self.context, self.tag, envelope) {
            return None;
        }
        let ours = matcher.requests.insert(Request::receive(self.landing.buffer()));
        self.state = UnpostedState::Started(ours);
        Some(ours)
    }

    #[inline(always)]
    fn is_done(&self) -> bool {
        self.state != UnpostedState::Waiting
    }
}

impl P2p {
    /// Starts a receive, and returns its ticket. A source or tag of None matches any.
    #[inline(always)] // For the reason given at `isend`.
    pub fn irecv(&mut self, context: u64, source: Option<u32>, tag: Option<i32>, buffer: Buffer) -> Ticket {
        let known = source.zip(buffer.contiguous());
        match known.and_then(|(source, span)| self.defer(context, source, tag, span)) {
            Some(number) => Ticket::deferred(number),
            None => self.irecv_posted(context, source, tag, buffer),
        }
    }

    /// Starts a receive for which `defer` has returned None: gives it an unexpected message, or posts it.
    /// Returns the receive's ticket.
    #[inline(never)]
    pub fn irecv_posted(
        &mut self,
        context: u64,
        source: Option<u32>,
        tag: Option<i32>,
        buffer: Buffer,
    ) -> Ticket {
        self.post_deferred();
        self.post(Pattern { context, source, tag }, buffer)
    }

    #[inline(always)]
    pub(crate) fn post(&mut self, pattern: Pattern, buffer: Buffer) -> Ticket {
        let (ours, request) = self.matcher.requests.enter(Request::receive(buffer));
        if let Some((envelope, message)) = self.matcher.unexpected.take(&pattern) {
            self.deliver(ours, envelope, message);
        } else {
            request.stage = RequestStage::Posted(self.matcher.posted.push(pattern, ours));
        }
        Ticket(ours)
    }

    /// Receives the next message of the peer `source` without a request. Returns None if no packet has come
    /// yet. The error says that the receive needs a request: another operation is under way, or what has come
    /// is no whole message for this receive.
    #[inline(always)] // For the reason given at `isend`.
    pub fn recv_next(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        buffer: &Buffer,
    ) -> std::result::Result<Option<Outcome>, NeedsRequest> {
        match buffer.contiguous() {
            Some(span) => self.recv_now(context, source, tag, span),
            None if !self.is_calm() => Err(NeedsRequest::Unstarted),
            None => self.take_one_with_gaps(context, source, tag, buffer),
        }
    }

    /// Receives like `recv_next`, into a buffer without gaps.
    #[inline(always)] // The outcome then stays in registers.
    pub fn recv_now(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        span: Span,
    ) -> std::result::Result<Option<Outcome>, NeedsRequest> {
        if !self.is_calm() {
            return Err(NeedsRequest::Unstarted);
        }
        let arrived = self.take_one_span(context, source, tag, span)?;
        Ok(arrived.map(|arrived| arrived.outcome(source, span.bytes())))
    }

    #[inline(never)]
    fn take_one_with_gaps(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        buffer: &Buffer,
    ) -> std::result::Result<Option<Outcome>, NeedsRequest> {
        let arrived = self.take_one(context, source, tag, buffer)?;
        Ok(arrived.map(|arrived| arrived.outcome(source, buffer.bytes())))
    }

    #[inline(never)]
    fn take_one_span(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        span: Span,
    ) -> std::result::Result<Option<Arrived>, NeedsRequest> {
        self.take_one(context, source, tag, span)
    }

    /// Takes the next message of the peer `source`, if it matches this receive. Returns None if no packet has
    /// come yet. Errors: the receive needs a request. The caller knows that no other receive waits for the
    /// message.
    #[inline(always)]
    fn take_one(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        landing: impl LandingBuffer,
    ) -> std::result::Result<Option<Arrived>, NeedsRequest> {
        let Some(Some(peer)) = self.peers.get_mut(source as usize) else {
            return Err(NeedsRequest::Unstarted);
        };
        let one = OneReceive { context, tag, landing, state: UnpostedState::Waiting };
        let (one, stays) = peer.take_for_unposted(&mut self.matcher, one);
        match one.state {
            UnpostedState::Arrived(arrived) => Ok(Some(arrived)),
            UnpostedState::Started(ours) => Err(NeedsRequest::Started(Ticket(ours))),
            _ if stays => Err(NeedsRequest::Unstarted),
            _ => {
                // Asks for the next packet's cache lines. A packet that has just come is taken at the next
                // call.
                peer.route.ready();
                Ok(None)
            }
        }
    }

    /// Gives the receive `ours` a message that was in the unexpected queue, or that a matched probe had
    /// taken.
    pub(crate) fn deliver(&mut self, ours: u64, envelope: Envelope, message: UnexpectedMessage) {
        match message {
            UnexpectedMessage::Short { bytes, data } => {
                let bytes = usize::from(bytes);
                let copy = |buffer: &Buffer, taken| buffer.restore(0, &data[..taken]);
                self.matcher.land_with(ours, envelope, bytes, copy);
                self.give_credit_back(envelope.source, bytes);
            }
            UnexpectedMessage::Long { bytes, memory } => {
                let copy = |buffer: &Buffer, taken| buffer.restore(0, &memory[..taken]);
                self.matcher.land_with(ours, envelope, bytes, copy);
                self.matcher.spares.give(memory);
                self.give_credit_back(envelope.source, bytes);
            }
            UnexpectedMessage::Pieces(early) => {
                let lane = &mut connection(&mut self.peers, envelope.source).lane;
                let bytes = self.matcher.take_early(lane, ours, envelope, early);
                self.give_credit_back(envelope.source, bytes);
            }
            UnexpectedMessage::Offer(offer) => {
                let lane = &mut connection(&mut self.peers, envelope.source).lane;
                self.matcher.accept(lane, ours, envelope, offer);
                self.flush(envelope.source);
            }
            UnexpectedMessage::Loopback { ours: send } => self.matcher.copy_loopback(send, ours, envelope),
        }
    }

    fn give_credit_back(&mut self, source: u32, bytes: usize) {
        let peer = connection(&mut self.peers, source);
        match &mut peer.route {
            Route::Loopback => peer.lane.consumed_loopback(bytes),
            route => route.consume(cost(bytes)),
        }
    }
}

/// Why `P2p::recv_next` has not received a message. The receive needs a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsRequest {
    /// The receive has no request yet. The caller starts the receive by `irecv`.
    Unstarted,
    /// The first piece of a message has come for the receive, which now has a request with this ticket.
    Started(Ticket),
}
