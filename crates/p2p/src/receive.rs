//! Starting a receive, and `Matcher::consume`: the one place where a packet meets a receive.
//!
//! Which receive a message is for is said by an `Awaiting`: the posted queue, or receives that nothing else can match
//! and that are not posted, so that a message in one packet needs no request (`One` here, those of `deferred.rs`).
//!
//! Read next: `deferred.rs`, `pieces.rs`, `rendezvous.rs`.

use crate::lane::{Lane, cost};
use crate::pieces::LOOKS;
use crate::rendezvous::Offer;
use crate::request::{Data, Request, Stage};
use crate::spares::Spares;
use crate::{Connection, Matcher, Outcome, P2p, Ticket, known, packet};
use datatype::Buffer;
use error::{Class, Error, Result, fail};
use matching::{Envelope, Pattern};
use std::mem::MaybeUninit;
use sys::Span;
use telemetry::Counter;
use transport::owned::Memory;
use transport::route::{Header, INLINE_BYTES, Route, Take};

/// A message whose receive is not yet known.
pub(crate) enum Message {
    /// As short as most are: kept without another allocation.
    Short { bytes: u8, data: [MaybeUninit<u8>; INLINE_BYTES] },
    /// A copy: the first `bytes` of this memory.
    Long { bytes: usize, memory: Memory },
    /// Some of its pieces have come, perhaps all (`Matcher::early`).
    Pieces(u64),
    /// The bytes are still with the sender.
    Offer(Offer),
    /// A message to ourselves whose bytes are still in the sender's buffer.
    Loopback { ours: u64 },
}

impl Message {
    /// A message of so many bytes, which `fill` writes.
    pub(crate) fn filled(
        bytes: usize,
        spares: &mut Spares,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Message {
        if bytes <= INLINE_BYTES {
            let mut data = [MaybeUninit::uninit(); INLINE_BYTES];
            fill(&mut data[..bytes]);
            return Message::Short { bytes: bytes as u8, data };
        }
        let mut memory = spares.take(bytes);
        fill(&mut memory[..bytes]);
        Message::Long { bytes, memory }
    }
}

/// Who says which receive takes a message.
pub(crate) trait Awaiting {
    /// A message that no receive takes is kept as an unexpected one. Otherwise it stays where it is.
    const KEEPS: bool;

    /// Gives a message that is here whole to its receive: `Take::Not` if there is none.
    fn land(&mut self, matcher: &mut Matcher, envelope: &Envelope, message: Span) -> Take;

    /// The ticket of the receive for a message whose bytes come later.
    fn claim(&mut self, matcher: &mut Matcher, envelope: &Envelope) -> Option<u64>;

    /// Whether all receives have their messages.
    fn is_done(&self) -> bool;
}

/// The receives in the posted queue.
pub(crate) struct Queue;

impl Awaiting for Queue {
    const KEEPS: bool = true;

    #[inline(always)]
    fn land(&mut self, matcher: &mut Matcher, envelope: &Envelope, message: Span) -> Take {
        let Some(ours) = matcher.posted.take(envelope) else { return Take::Not };
        matcher.land(ours, *envelope, message);
        Take::More
    }

    fn claim(&mut self, matcher: &mut Matcher, envelope: &Envelope) -> Option<u64> {
        matcher.posted.take(envelope)
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// What has become of a receive that is not in the posted queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direct {
    /// It waits for its message.
    Waiting,
    /// Its message came.
    Arrived(Arrived),
    /// It has this ticket.
    Started(u64),
    /// Nobody will ask for it any more.
    Forgotten,
}

/// One receive from the peer whose packets are looked at.
struct One<'a> {
    context: u64,
    tag: Option<i32>,
    buffer: &'a Buffer,
    direct: Direct,
}

impl Awaiting for One<'_> {
    const KEEPS: bool = false;

    #[inline(always)]
    fn land(&mut self, _: &mut Matcher, envelope: &Envelope, message: Span) -> Take {
        if !fits(self.context, self.tag, envelope) || self.direct != Direct::Waiting {
            return Take::Not;
        }
        self.buffer.unpack(0, message.slice(0, message.bytes().min(self.buffer.bytes())));
        self.direct = Direct::Arrived(Arrived::new(message.bytes(), envelope.tag));
        Take::Last
    }

    fn claim(&mut self, matcher: &mut Matcher, envelope: &Envelope) -> Option<u64> {
        if !fits(self.context, self.tag, envelope) || self.direct != Direct::Waiting {
            return None;
        }
        let ours = matcher.requests.insert(Request::receive(self.buffer.clone()));
        self.direct = Direct::Started(ours);
        Some(ours)
    }

    fn is_done(&self) -> bool {
        self.direct != Direct::Waiting
    }
}

/// Whether a message of the right peer is for a receive.
#[inline(always)]
pub(crate) fn fits(context: u64, tag: Option<i32>, envelope: &Envelope) -> bool {
    envelope.context == context && tag.is_none_or(|tag| tag == envelope.tag)
}

impl P2p {
    /// Starts a receive; `None` takes any source, any tag.
    #[inline(always)] // As `isend`.
    pub fn irecv(&mut self, context: u64, source: Option<u32>, tag: Option<i32>, buffer: Buffer) -> Ticket {
        let known = source.zip(buffer.contiguous());
        match known.and_then(|(source, span)| self.defer(context, source, tag, span)) {
            Some(number) => Ticket::deferred(number),
            None => self.irecv_posted(context, source, tag, buffer),
        }
    }

    /// As `irecv`, where `defer` refused.
    #[inline(never)]
    pub fn irecv_posted(
        &mut self,
        context: u64,
        source: Option<u32>,
        tag: Option<i32>,
        buffer: Buffer,
    ) -> Ticket {
        self.settle();
        self.post(Pattern { context, source, tag }, buffer)
    }

    #[inline(always)]
    pub(crate) fn post(&mut self, pattern: Pattern, buffer: Buffer) -> Ticket {
        let (ours, request) = self.matcher.requests.enter(Request::receive(buffer));
        if let Some((envelope, message)) = self.matcher.unexpected.take(&pattern) {
            self.deliver(ours, envelope, message);
        } else {
            request.stage = Stage::Posted(self.matcher.posted.push(pattern, ours));
        }
        Ticket(ours)
    }

    /// Receives the peer's next message, if it has come, is for this receive, and nothing else is under way. Then there is
    /// nothing to match, and a message in one packet needs no request. The error says that a request is needed.
    #[inline(always)] // As `isend`.
    pub fn recv_next(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        buffer: &Buffer,
    ) -> std::result::Result<Option<Outcome>, Indirect> {
        match buffer.contiguous() {
            Some(span) => self.recv_now(context, source, tag, span),
            None if !self.is_calm() => Err(Indirect::Unstarted),
            None => self.take_one_with_gaps(context, source, tag, buffer),
        }
    }

    /// As `recv_next`, of a buffer without gaps.
    #[inline(always)] // The outcome then stays in registers.
    pub fn recv_now(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        span: Span,
    ) -> std::result::Result<Option<Outcome>, Indirect> {
        if !self.is_calm() {
            return Err(Indirect::Unstarted);
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
    ) -> std::result::Result<Option<Outcome>, Indirect> {
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
    ) -> std::result::Result<Option<Arrived>, Indirect> {
        self.take_one(context, source, tag, &span.into())
    }

    /// Takes the peer's next message, if it is for this receive. No other receive may wait for it.
    #[inline(always)]
    fn take_one(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        buffer: &Buffer,
    ) -> std::result::Result<Option<Arrived>, Indirect> {
        let Some(Some(peer)) = self.peers.get_mut(source as usize) else {
            return Err(Indirect::Unstarted);
        };
        if !peer.route.ready() {
            return Ok(None);
        }
        let mut one = One { context, tag, buffer, direct: Direct::Waiting };
        peer.take_for(&mut self.matcher, &mut one);
        match one.direct {
            Direct::Arrived(arrived) => Ok(Some(arrived)),
            Direct::Started(ours) => Err(Indirect::Started(Ticket(ours))),
            Direct::Waiting | Direct::Forgotten => Err(Indirect::Unstarted),
        }
    }

    /// Gives a receive the message that waited for it.
    pub(crate) fn deliver(&mut self, ours: u64, envelope: Envelope, message: Message) {
        match message {
            Message::Short { bytes, data } => {
                let bytes = usize::from(bytes);
                let copy = |buffer: &Buffer, taken| buffer.restore(0, &data[..taken]);
                self.matcher.land_by(ours, envelope, bytes, copy);
                self.give_credit_back(envelope.source, bytes);
            }
            Message::Long { bytes, memory } => {
                let copy = |buffer: &Buffer, taken| buffer.restore(0, &memory[..taken]);
                self.matcher.land_by(ours, envelope, bytes, copy);
                self.matcher.spares.give(memory);
                self.give_credit_back(envelope.source, bytes);
            }
            Message::Pieces(early) => {
                let lane = &mut known(&mut self.peers, envelope.source).lane;
                let bytes = self.matcher.take_early(lane, ours, envelope, early);
                self.give_credit_back(envelope.source, bytes);
            }
            Message::Offer(offer) => {
                let lane = &mut known(&mut self.peers, envelope.source).lane;
                self.matcher.accept(lane, ours, envelope, offer);
                self.flush(envelope.source);
            }
            Message::Loopback { ours: send } => self.matcher.copy_loopback(send, ours, envelope),
        }
    }

    fn give_credit_back(&mut self, source: u32, bytes: usize) {
        let peer = known(&mut self.peers, source);
        match &mut peer.route {
            Route::Loopback => peer.lane.consumed_loopback(bytes),
            route => route.consume(cost(bytes)),
        }
    }
}

impl Connection {
    /// Takes the peer's packets as long as they are for these receives, which are not posted. Of a message in pieces it
    /// stays for those that come soon. A packet that makes no sense stays, and the next `poll` reports it.
    #[inline(always)]
    pub(crate) fn take_for<A: Awaiting>(&mut self, matcher: &mut Matcher, awaiting: &mut A) {
        let Connection { route, lane } = self;
        let mut timed = None;
        loop {
            let (mut begins, mut moved) = (false, false);
            let _ = route.poll_while(|header, payload| {
                let taken = matcher.consume(lane, header, payload, awaiting).unwrap_or(Take::Not);
                moved = taken != Take::Not;
                begins |= moved && header.kind == packet::BEGIN;
                taken
            });
            if lane.returned > 0 {
                route.consume(std::mem::take(&mut lane.returned));
            }
            if lane.incoming.is_none() {
                break;
            }
            if begins {
                timed = matcher.try_eager(route, lane);
            }
            if !moved || !(0..LOOKS).any(|_| route.ready()) {
                return;
            }
        }
        if let Some(began) = timed {
            matcher.tried_eager(began);
        }
    }
}

impl Matcher {
    /// Takes a packet from a peer. Errors: it is not what a peer of ours may send now.
    #[inline(always)]
    pub(crate) fn consume<A: Awaiting>(
        &mut self,
        lane: &mut Lane,
        header: &Header,
        payload: Span,
        awaiting: &mut A,
    ) -> Result<Take> {
        let envelope = Envelope { context: header.context, source: lane.number, tag: header.tag };
        if header.kind != packet::EAGER {
            return self.consume_other(lane, header, payload, awaiting);
        }
        let mut taken = awaiting.land(self, &envelope, payload);
        let bytes = payload.bytes();
        if taken != Take::Not {
            lane.returned += cost(bytes);
        } else if A::KEEPS {
            let message = Message::filled(bytes, &mut self.spares, |to| payload.save(to));
            self.count(Counter::UnexpectedMessages, Counter::UnexpectedBytes, bytes);
            self.unexpected.push(envelope, message);
            taken = Take::More;
        } else {
            return Ok(Take::Not);
        }
        self.count(Counter::EagerMessagesReceived, Counter::EagerBytesReceived, bytes);
        Ok(taken)
    }

    /// Any packet but a whole message.
    #[inline(never)]
    fn consume_other<A: Awaiting>(
        &mut self,
        lane: &mut Lane,
        header: &Header,
        payload: Span,
        awaiting: &mut A,
    ) -> Result<Take> {
        let envelope = Envelope { context: header.context, source: lane.number, tag: header.tag };
        match header.kind {
            packet::BEGIN => return self.began(lane, envelope, payload, awaiting),
            packet::PIECE => self.piece(lane, payload)?,
            // The rest is for `P2p::poll`, which also sends what follows from it.
            _ if !A::KEEPS => return Ok(Take::Not),
            packet::OFFER => self.offer_came(lane, envelope, payload)?,
            packet::DATA => self.fill(lane, header, payload)?,
            packet::ASK => self.asked(lane, header, payload)?,
            packet::TAKEN => self.taken(lane, header.context)?,
            packet::RECALL => self.recalled(lane, header.context),
            packet::RETURNED => self.returned(lane, header.context)?,
            kind => fail!(Class::Intern, "peer {} sent a packet of unknown kind {kind}", lane.number),
        }
        Ok(if lane.incoming.is_none() && awaiting.is_done() { Take::Last } else { Take::More })
    }

    /// Ends a receive with a message that is here in one piece.
    #[inline]
    pub(crate) fn land(&mut self, ours: u64, envelope: Envelope, message: Span) {
        let copy = |buffer: &Buffer, taken| buffer.unpack(0, message.slice(0, taken));
        self.land_by(ours, envelope, message.bytes(), copy);
    }

    /// As `land`: `copy` writes as many bytes to the buffer as it is told.
    #[inline(always)]
    fn land_by(&mut self, ours: u64, envelope: Envelope, bytes: usize, copy: impl FnOnce(&Buffer, usize)) {
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let taken = begin(request, envelope, bytes as u64);
        copy(request.buffer(), taken);
        let detached = request.detached;
        if let Data::User(buffer) = request.end() {
            drop(buffer); // Every receive has the user's buffer: nothing else need be looked for.
        }
        if detached {
            self.requests.remove(ours);
        }
    }

    /// Ends a receive with a message of our own, from send buffer to receive buffer.
    pub(crate) fn land_loopback(&mut self, ours: u64, envelope: Envelope, message: &mut Data) {
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let bytes = begin(request, envelope, message.bytes() as u64);
        message.copy_to(bytes, request.buffer());
        self.complete(ours);
    }
}

/// Notes what a receive was matched with. Returns how many bytes of it the buffer takes.
#[inline]
pub(crate) fn begin(request: &mut Request, envelope: Envelope, bytes: u64) -> usize {
    let (taken, outcome) = received(envelope.source, envelope.tag, bytes, request.data.bytes());
    request.outcome = outcome;
    taken
}

/// How many bytes of a message a buffer of this capacity takes, and the outcome.
#[inline]
fn received(source_peer: u32, tag: i32, bytes: u64, capacity: usize) -> (usize, Outcome) {
    let taken = bytes.min(capacity as u64) as usize;
    let error =
        if bytes > capacity as u64 { Some(truncated(source_peer, tag, bytes, capacity)) } else { None };
    (taken, Outcome { source_peer, tag, bytes: taken, error, cancelled: false })
}

/// A message that has come: its length and its tag. They share a word, because a wide load of two fresh narrow stores
/// would wait for them to leave the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived(u64);

impl Arrived {
    #[inline(always)]
    pub(crate) fn new(bytes: usize, tag: i32) -> Arrived {
        Arrived((bytes as u64) << 32 | u64::from(tag as u32))
    }

    /// Of the whole message.
    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[inline(always)]
    pub(crate) fn tag(self) -> i32 {
        self.0 as i32
    }

    /// The outcome of its receive.
    #[inline(always)]
    pub(crate) fn outcome(self, source: u32, capacity: usize) -> Outcome {
        received(source, self.tag(), self.bytes() as u64, capacity).1
    }
}

/// The answer of `P2p::recv_next` where a request is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indirect {
    /// The receive must be started.
    Unstarted,
    /// It was started, with the first pieces of its message.
    Started(Ticket),
}

/// MPI 5.0, section 3.2.4: a message longer than the buffer is the receiver's error, not the sender's.
#[cold]
fn truncated(source: u32, tag: i32, bytes: u64, capacity: usize) -> Error {
    let sentence =
        format!("message of {bytes} bytes from rank {source}, tag {tag}, but the buffer holds {capacity}");
    Error::new(Class::Truncate, sentence)
}
