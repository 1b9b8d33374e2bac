//! Eager messages longer than a piece. They leave unasked, a BEGIN and then PIECEs, and the receiver copies one piece while the sender
//! copies the next.
//!
//! A peer ends the message that it has begun before it sends anything else with an envelope, so a piece need not say whose it is. Where the
//! receive is known, pieces land in its buffer; otherwise in memory of ours, until the receive comes, perhaps between two pieces.

use crate::lane::{Lane, cost};
use crate::receive::{Arrived, Message, begin};
use crate::request::{Request, Stage};
use crate::{EAGER_MOST, Peer, State, packet};
use error::{Class, Result, fail};
use matching::Envelope;
use sys::Span;
use telemetry::Counter;
use transport::owned::Memory;
use transport::route::{Header, Route, Sent, Take};
use tuning::{Distance, Way};

/// Looks for the next piece of a message, which its sender copies at that time.
const LOOKS: usize = 500;

/// The message of a peer of which pieces are to come.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    to: Destination,
    left: u64,
}

/// Where pieces land.
#[derive(Clone, Copy)]
enum Destination {
    /// In the buffer of this receive, as far as it reaches.
    Receive(u64),
    /// In the memory of this early message.
    Early(u64),
}

/// A message in pieces whose receive is not yet known.
pub(crate) struct Early {
    memory: Memory,
    bytes: usize,
    filled: usize,
}

impl Early {
    /// The length of the whole message.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Sends an eager message of so many bytes that lies there, in pieces of so many: what is left from `next` on if it has begun. Where the room ends, `next` says how far it
/// came.
pub(crate) fn send_pieces(
    route: &mut Route,
    envelope: &Envelope,
    (bytes, address, piece): (usize, u64, usize),
    next: &mut Option<usize>,
    mut fill: impl FnMut(usize, Span),
) -> Sent {
    if next.is_none() {
        let header = packet::addressed(packet::BEGIN, envelope.context, envelope.tag);
        let fill = |to| packet::write([bytes as u64, address], to);
        if route.send(&header, packet::BEGIN_BYTES, fill) == Sent::Full {
            return Sent::Full;
        }
    }
    let mut at = next.unwrap_or(0);
    while at < bytes {
        let piece = (bytes - at).min(piece);
        if route.send(&packet::about(packet::PIECE, 0, 0), piece, |to| fill(at, to)) == Sent::Full {
            *next = Some(at);
            return Sent::Full;
        }
        at += piece;
    }
    Sent::Done
}

impl Peer {
    /// Sends a message in pieces, if all of it can leave at once.
    #[inline(never)] // The way of short messages has no place for it.
    pub(crate) fn send_pieces_now(&mut self, state: &State, envelope: &Envelope, message: Span) -> bool {
        let Peer { route, lane } = self;
        let bytes = message.bytes();
        if lane.is_learning {
            lane.learn(&state.chooser);
        }
        if matches!(route, Route::Loopback) || !lane.is_clear() || !lane.affords(bytes, route) {
            return false;
        }
        let piece = lane.piece_bytes(bytes, route);
        if !route.has_room(bytes, piece) {
            return false;
        }
        let fill = |at, to: Span| message.slice(at, to.bytes()).copy_to(to);
        let address = message.address() as u64;
        let answer = send_pieces(route, envelope, (bytes, address, piece), &mut None, fill);
        assert_eq!(answer, Sent::Done, "there was room");
        lane.charge(bytes);
        state.count(Counter::EagerMessagesSent, Counter::EagerBytesSent, bytes);
        true
    }
}

/// What has become of a message whose pieces were taken as they came.
pub(crate) enum Gathered {
    /// It is all here.
    Whole(Arrived),
    /// This receive takes the pieces to come.
    Part(u64),
}

impl State {
    /// Takes the message that the peer begins next, if it is for a receive like this one and nothing else waits for it, and its pieces as
    /// long as they come soon. What makes no sense stays, and whoever polls next says so.
    #[inline(never)] // As `send_pieces_now`.
    pub(crate) fn gather_now(
        &mut self,
        peer: &mut Peer,
        context: u64,
        tag: Option<i32>,
        span: Span,
    ) -> Option<Gathered> {
        let Peer { route, lane } = peer;
        let mut begun = None;
        let begin = |header: &Header, payload: Span| {
            let fits = header.context == context && tag.is_none_or(|tag| tag == header.tag);
            if fits && header.kind == packet::BEGIN {
                begun = length(payload).map(|begun| (begun, header.tag));
            }
            if begun.is_some() { Take::Last } else { Take::Not }
        };
        if lane.incoming.is_some() || route.poll_while(begin).is_err() {
            return None;
        }
        let ((bytes, address), tag) = begun?;
        self.count(Counter::EagerMessagesReceived, Counter::EagerBytesReceived, bytes);
        route.consume(cost(bytes));
        let end = bytes.min(span.bytes());
        let timed = match lane.is_learning && bytes == end {
            true => self.try_eager(route, lane.distance(&self.chooser), address, span.slice(0, bytes)),
            false => None,
        };
        let mut next = 0;
        while next < bytes && (0..LOOKS).any(|_| route.ready()) {
            let before = next;
            let polled = route.poll_while(|header, payload| {
                if header.kind != packet::PIECE || !(1..=bytes - next).contains(&payload.bytes()) {
                    return Take::Not;
                }
                let (from, to) = (next.min(end), (next + payload.bytes()).min(end));
                payload.slice(0, to - from).copy_to(span.slice(from, to - from));
                next += payload.bytes();
                if next < bytes { Take::More } else { Take::Last }
            });
            if polled.is_err() || next == before {
                break;
            }
        }
        let arrived = Arrived::new(bytes, tag);
        if next == bytes {
            if let Some((distance, began)) = timed {
                self.chooser.tried_eager(distance, bytes as u64, Way::Cells, began);
            }
            return Some(Gathered::Whole(arrived));
        }
        let mut request = Request::receive(span.into());
        request.outcome = arrived.outcome(lane.number, span.bytes());
        request.stage = Stage::Gathering { peer: lane.number, next: next.min(end) as u64, end: end as u64 };
        let ours = self.requests.insert(request);
        lane.incoming = Some(Incoming { to: Destination::Receive(ours), left: (bytes - next) as u64 });
        Some(Gathered::Part(ours))
    }
}

impl State {
    /// Sees how long a message in pieces would take that was read in its sender's memory, or notes when its pieces begin to come; the latter only where
    /// they were waited for. What is read is overwritten by the pieces: the sender's buffer may be another message's by now.
    #[cold]
    fn try_eager(
        &mut self,
        route: &Route,
        distance: Distance,
        address: u64,
        into: Span,
    ) -> Option<(Distance, u64)> {
        let bytes = into.bytes() as u64;
        match self.chooser.try_eager(distance, bytes)? {
            Way::Cells => (!route.ready()).then(|| (distance, sys::clock::now())),
            Way::Read if address == 0 => None,
            Way::Read => {
                let began = sys::clock::now();
                // Where it was refused, it took for ever.
                let began = if route.read(address as usize, into) { began } else { 0 };
                self.chooser.tried_eager(distance, bytes, Way::Read, began);
                None
            }
        }
    }
}

/// The length of a message that begins, if it is one that a peer may send, and where it lies.
fn length(begin: Span) -> Option<(usize, u64)> {
    let [bytes, address] = packet::read(begin)?;
    (1..=EAGER_MOST).contains(&bytes).then_some((bytes as usize, address))
}

impl State {
    /// BEGIN: a message whose pieces come next.
    pub(crate) fn began(&mut self, lane: &mut Lane, envelope: Envelope, payload: Span) -> Result<()> {
        let peer = lane.number;
        let Some((bytes, _)) = length(payload) else {
            fail!(Class::Intern, "peer {peer} began a message in pieces, but not with its length")
        };
        if let Some(Incoming { left, .. }) = lane.incoming {
            fail!(Class::Intern, "peer {peer} began a message before {left} bytes of the last had come")
        }
        self.count(Counter::EagerMessagesReceived, Counter::EagerBytesReceived, bytes);
        let to = match self.posted.take(&envelope) {
            Some(ours) => {
                self.gather(ours, envelope, bytes);
                lane.returned += cost(bytes);
                Destination::Receive(ours)
            }
            None => {
                self.count(Counter::UnexpectedMessages, Counter::UnexpectedBytes, bytes);
                let early = Early { memory: self.spares.take(bytes), bytes, filled: 0 };
                let number = self.early.insert(early);
                self.unexpected.push(envelope, Message::Pieces(number));
                Destination::Early(number)
            }
        };
        lane.incoming = Some(Incoming { to, left: bytes as u64 });
        Ok(())
    }

    /// PIECE: the next bytes of the message begun last.
    pub(crate) fn piece(&mut self, lane: &mut Lane, payload: Span) -> Result<()> {
        let bytes = payload.bytes() as u64;
        let Some(Incoming { to, left }) = lane.incoming.filter(|last| (1..=last.left).contains(&bytes))
        else {
            let left = lane.incoming.map_or(0, |last| last.left);
            fail!(Class::Intern, "peer {} sent a piece of {bytes} bytes where {left} were left", lane.number)
        };
        let left = left - bytes;
        lane.incoming = (left > 0).then_some(Incoming { to, left });
        match to {
            Destination::Receive(ours) => {
                self.take_piece(ours, payload);
                if left == 0 {
                    self.complete(ours);
                }
            }
            Destination::Early(number) => {
                let early =
                    self.early.get_mut(number).expect("a receive that takes it takes the pieces, too");
                let at = early.filled;
                early.memory.lend(|all| payload.copy_to(all.slice(at, payload.bytes())));
                early.filled += payload.bytes();
            }
        }
        Ok(())
    }

    /// Gives a receive what has come of an early message, and the pieces to come. Returns the message's length.
    pub(crate) fn take_early(
        &mut self,
        lane: &mut Lane,
        ours: u64,
        envelope: Envelope,
        number: u64,
    ) -> usize {
        let Early { mut memory, bytes, filled } =
            self.early.remove(number).expect("an early message waits for its receive");
        self.gather(ours, envelope, bytes);
        memory.lend(|all| self.take_piece(ours, all.slice(0, filled)));
        self.spares.give(memory);
        if filled == bytes {
            self.complete(ours);
        } else {
            let incoming = lane.incoming.as_mut().expect("a message that is not all here is the peer's last");
            incoming.to = Destination::Receive(ours);
        }
        bytes
    }

    /// Notes that a receive takes the pieces of a message.
    fn gather(&mut self, ours: u64, envelope: Envelope, bytes: usize) {
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let end = begin(request, envelope, bytes as u64) as u64;
        request.stage = Stage::Gathering { peer: envelope.source, next: 0, end };
    }

    /// The next bytes of such a receive; it has no room for those behind its end.
    fn take_piece(&mut self, ours: u64, piece: Span) {
        let request = self.requests.get_mut(ours).expect("a receive ends with the last piece");
        let Stage::Gathering { next, end, .. } = &mut request.stage else {
            unreachable!("a receive takes pieces until the last")
        };
        let (at, taken) = (*next as usize, (piece.bytes() as u64).min(*end - *next));
        *next += taken;
        request.buffer().unpack(at, piece.slice(0, taken as usize));
    }
}
