//! Starting a receive, and what becomes of a message that has arrived.

use crate::lane::{Lane, cost};
use crate::pieces::Gathered;
use crate::rendezvous::Offer;
use crate::request::{Data, Request, Stage};
use crate::spares::Spares;
use crate::{Outcome, P2p, State, Ticket, known, packet};
use datatype::Buffer;
use error::{Class, Error, Result, fail};
use matching::{Envelope, Pattern};
use sys::Span;
use telemetry::Counter;
use transport::owned::{self, Memory};
use transport::route::{Header, INLINE_BYTES, Route, Take};

/// A message whose receive is not yet known.
pub(crate) enum Message {
    /// As short as most are: kept without another allocation.
    Short { bytes: u8, data: [u8; INLINE_BYTES] },
    /// A copy: the first `bytes` of this memory.
    Long { bytes: usize, memory: Memory },
    /// Some of its pieces have come, perhaps all (`State::early`).
    Pieces(u64),
    /// The bytes are still with the sender.
    Offer(Offer),
    /// A message to ourselves whose bytes are still in the sender's buffer.
    Loopback { ours: u64 },
}

impl Message {
    /// A message of so many bytes, which `fill` writes.
    pub(crate) fn filled(bytes: usize, spares: &mut Spares, fill: impl FnOnce(Span)) -> Message {
        if bytes <= INLINE_BYTES {
            let mut data = [0; INLINE_BYTES];
            owned::lend(&mut data[..bytes], fill);
            return Message::Short { bytes: bytes as u8, data };
        }
        let mut memory = spares.take(bytes);
        memory.lend(|all| fill(all.slice(0, bytes)));
        Message::Long { bytes, memory }
    }
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

    /// As `irecv`, where `defer` could not just note it.
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
        let (ours, request) = self.state.requests.enter(Request::receive(buffer));
        if let Some((envelope, message)) = self.state.unexpected.take(&pattern) {
            self.deliver(ours, envelope, message);
        } else {
            request.stage = Stage::Posted(self.state.posted.push(pattern, ours));
        }
        Ticket(ours)
    }

    /// Receives the peer's next packet, if that is the whole message for this receive and nothing else is under way: then there is
    /// nothing to match, and no request is made. The error says that one is needed.
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
            None => self.next_any(context, source, tag, buffer),
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
        match self.take_next_span(context, source, tag, span) {
            Ok(arrived) => Ok(arrived.map(|arrived| arrived.outcome(source, span.bytes()))),
            Err(_) => match self.peers.get_mut(source as usize) {
                Some(Some(peer)) => match self.state.gather_now(peer, context, tag, span) {
                    Some(Gathered::Whole(arrived)) => Ok(Some(arrived.outcome(source, span.bytes()))),
                    Some(Gathered::Part(ours)) => Err(Indirect::Started(Ticket(ours))),
                    None => Err(Indirect::Unstarted),
                },
                _ => Err(Indirect::Unstarted),
            },
        }
    }

    #[inline(never)]
    fn next_any(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        buffer: &Buffer,
    ) -> std::result::Result<Option<Outcome>, Indirect> {
        if !self.is_calm() {
            return Err(Indirect::Unstarted);
        }
        let unpack = |payload: Span| buffer.unpack(0, payload);
        let arrived = self.take_next(context, source, tag, buffer.bytes(), unpack)?;
        Ok(arrived.map(|arrived| arrived.outcome(source, buffer.bytes())))
    }

    /// Takes the peer's next packet, if it is the whole message for this receive. No other receive may wait for it.
    #[inline(never)]
    pub(crate) fn take_next_span(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        span: Span,
    ) -> std::result::Result<Option<Arrived>, Indirect> {
        let copy = move |payload: Span| payload.copy_to(span.slice(0, payload.bytes()));
        self.take_next(context, source, tag, span.bytes(), copy)
    }

    #[inline(always)]
    fn take_next(
        &mut self,
        context: u64,
        source: u32,
        tag: Option<i32>,
        capacity: usize,
        unpack: impl FnOnce(Span),
    ) -> std::result::Result<Option<Arrived>, Indirect> {
        let Some(Some(peer)) = self.peers.get_mut(source as usize) else {
            return Err(Indirect::Unstarted);
        };
        if !peer.route.ready() {
            return Ok(None);
        }
        let (mut unpack, mut arrived) = (Some(unpack), None);
        let polled = peer.route.poll_while(|header, payload| {
            let unpack = unpack.take().expect("one packet is looked at");
            arrived = take(header, payload, context, tag, capacity, unpack);
            if arrived.is_some() { Take::Last } else { Take::Not }
        });
        let (Ok(()), Some(arrived)) = (polled, arrived) else { return Err(Indirect::Unstarted) };
        self.state.count(Counter::EagerMessagesReceived, Counter::EagerBytesReceived, arrived.bytes());
        peer.route.consume(cost(arrived.bytes()));
        Ok(Some(arrived))
    }

    /// Gives a receive the message that waited for it.
    pub(crate) fn deliver(&mut self, ours: u64, envelope: Envelope, message: Message) {
        match message {
            Message::Short { bytes, mut data } => {
                owned::lend(&mut data[..usize::from(bytes)], |span| self.state.land(ours, envelope, span));
                self.give_credit_back(envelope.source, usize::from(bytes));
            }
            Message::Long { bytes, mut memory } => {
                memory.lend(|all| self.state.land(ours, envelope, all.slice(0, bytes)));
                self.state.spares.give(memory);
                self.give_credit_back(envelope.source, bytes);
            }
            Message::Pieces(early) => {
                let lane = &mut known(&mut self.peers, envelope.source).lane;
                let bytes = self.state.take_early(lane, ours, envelope, early);
                self.give_credit_back(envelope.source, bytes);
            }
            Message::Offer(offer) => {
                let lane = &mut known(&mut self.peers, envelope.source).lane;
                self.state.accept(lane, ours, envelope, offer);
                self.flush(envelope.source);
            }
            Message::Loopback { ours: send } => self.state.copy_loopback(send, ours, envelope),
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

impl State {
    /// Takes a packet from a peer. Errors: it is not what any peer of ours may send now; it is dropped.
    #[inline]
    pub(crate) fn arrive(&mut self, lane: &mut Lane, header: &Header, payload: Span) -> Result<()> {
        let envelope = Envelope { context: header.context, source: lane.number, tag: header.tag };
        match header.kind {
            packet::EAGER => {
                self.count(Counter::EagerMessagesReceived, Counter::EagerBytesReceived, payload.bytes());
                match self.posted.take(&envelope) {
                    Some(ours) => {
                        self.land(ours, envelope, payload);
                        lane.returned += cost(payload.bytes());
                    }
                    None => {
                        let bytes = payload.bytes();
                        let message = Message::filled(bytes, &mut self.spares, |to| payload.copy_to(to));
                        self.count(Counter::UnexpectedMessages, Counter::UnexpectedBytes, payload.bytes());
                        self.unexpected.push(envelope, message);
                    }
                }
            }
            packet::OFFER => {
                let Some([bytes, theirs, address]) = packet::read(payload) else {
                    fail!(Class::Intern, "peer {} sent an offer of {} bytes", lane.number, payload.bytes())
                };
                let offer = Offer { bytes, theirs, address };
                match self.posted.take(&envelope) {
                    Some(ours) => self.accept(lane, ours, envelope, offer),
                    None => {
                        self.counters.count(Counter::UnexpectedMessages, 1);
                        self.unexpected.push(envelope, Message::Offer(offer));
                    }
                }
            }
            packet::BEGIN => return self.began(lane, envelope, payload),
            packet::PIECE => return self.piece(lane, payload),
            packet::DATA => return self.fill(lane, header, payload),
            packet::ASK => return self.asked(lane, header, payload),
            packet::TAKEN => return self.taken(lane, header.context),
            packet::RECALL => self.recalled(lane, header.context),
            packet::RETURNED => return self.returned(lane, header.context),
            kind => fail!(Class::Intern, "peer {} sent a packet of unknown kind {kind}", lane.number),
        }
        Ok(())
    }

    /// Ends a receive with a message that is here in one piece.
    #[inline]
    pub(crate) fn land(&mut self, ours: u64, envelope: Envelope, message: Span) {
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let bytes = begin(request, envelope, message.bytes() as u64);
        request.buffer().unpack(0, message.slice(0, bytes));
        let detached = request.detached;
        if let Data::User(buffer) = request.end() {
            drop(buffer); // As every receive's: nothing else need be looked for.
        }
        if detached {
            self.requests.remove(ours);
        }
    }

    /// Ends a receive with a message of our own, from send buffer to receive buffer.
    pub(crate) fn land_own(&mut self, ours: u64, envelope: Envelope, message: &mut Data) {
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let bytes = begin(request, envelope, message.bytes() as u64);
        message.copy_to(bytes, request.buffer());
        self.complete(ours);
    }
}

/// Notes what a receive was matched with; returns how many bytes of it the buffer takes.
#[inline]
pub(crate) fn begin(request: &mut Request, envelope: Envelope, bytes: u64) -> usize {
    let (taken, outcome) = received(envelope.source, envelope.tag, bytes, request.data.bytes());
    request.outcome = outcome;
    taken
}

/// What becomes of a message in a buffer of so many bytes: how many it takes, and what is told.
#[inline]
fn received(source_peer: u32, tag: i32, bytes: u64, capacity: usize) -> (usize, Outcome) {
    let taken = bytes.min(capacity as u64) as usize;
    let error =
        if bytes > capacity as u64 { Some(truncated(source_peer, tag, bytes, capacity)) } else { None };
    (taken, Outcome { source_peer, tag, bytes: taken, error, cancelled: false })
}

/// A message that has come: its length and its tag, in one word, since two that are written one after the other and read as
/// one would be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived(u64);

/// Takes a packet, if it is the whole message for a receive from its peer: `unpack` gets the bytes for which there is room.
#[inline(always)]
pub(crate) fn take(
    header: &Header,
    payload: Span,
    context: u64,
    tag: Option<i32>,
    capacity: usize,
    unpack: impl FnOnce(Span),
) -> Option<Arrived> {
    let fits = header.context == context && tag.is_none_or(|tag| tag == header.tag);
    if !fits || header.kind != packet::EAGER {
        return None;
    }
    unpack(payload.slice(0, payload.bytes().min(capacity)));
    Some(Arrived::new(payload.bytes(), header.tag))
}

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

    /// What its receive has to tell.
    #[inline(always)]
    pub(crate) fn outcome(self, source: u32, capacity: usize) -> Outcome {
        received(source, self.tag(), self.bytes() as u64, capacity).1
    }
}

/// The answer of `P2p::recv_next` where a receive is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indirect {
    /// It must be started.
    Unstarted,
    /// It was, with the first pieces of its message.
    Started(Ticket),
}

/// MPI 5.0, section 3.2.4: a message longer than the buffer is the receiver's error, not the sender's.
#[cold]
fn truncated(source: u32, tag: i32, bytes: u64, capacity: usize) -> Error {
    let sentence =
        format!("message of {bytes} bytes from rank {source}, tag {tag}, but the buffer holds {capacity}");
    Error::new(Class::Truncate, sentence)
}
