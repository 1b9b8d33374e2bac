// SPDX-License-Identifier: BSD-3-Clause
//! Eager messages that are longer than a packet. They go as a BEGIN packet and then PIECE packets, so that
//! the receiver copies one piece while the sender copies the next.
//!
//! Invariant: after a BEGIN, a peer sends all pieces of the message before any other packet with an envelope,
//! so a piece need not name its message. Pieces go into the receive's buffer, or into memory of this library
//! until the receive is known.

use crate::config::EAGER_MOST;
use crate::consume::AwaitingReceives;
use crate::lane::{Lane, cost};
use crate::message::{EarlyPieces, IncomingPieces, PieceDestination, PieceTiming, UnexpectedMessage};
use crate::packet;
use crate::request::RequestStage;
use crate::state::{Connection, Matcher};
use datatype::Buffer;
use error::{Class, Result, fail};
use matching::Envelope;
use sys::Span;
use telemetry::Counter;
use transport::route::{Route, Sent, Taken};
use tuning::Method;

/// Sends an eager message of `bytes` bytes at `address` in pieces of `chunk` bytes: a BEGIN first if `next`
/// is None, else from offset `next` on. If the ring becomes full, stores in `next` the offset of the next
/// piece, and returns `Sent::Full`. `mark` is `packet::COUNTED` or 0.
pub(crate) fn send_pieces(
    route: &mut Route,
    (envelope, mark): (&Envelope, u8),
    (bytes, address, chunk): (usize, u64, usize),
    next: &mut Option<usize>,
    mut fill: impl FnMut(usize, Span),
) -> Sent {
    if next.is_none() {
        let header = packet::addressed(packet::BEGIN | mark, envelope.context, envelope.tag);
        let fill = |to| packet::write([bytes as u64, address], to);
        if route.send(&header, packet::BEGIN_BYTES, fill) == Sent::Full {
            return Sent::Full;
        }
    }
    let mut at = next.unwrap_or(0);
    while at < bytes {
        let piece = (bytes - at).min(chunk);
        if route.send(&packet::about(packet::PIECE, 0, 0), piece, |to| fill(at, to)) == Sent::Full {
            *next = Some(at);
            return Sent::Full;
        }
        at += piece;
    }
    Sent::Done
}

impl Connection {
    /// Sends a message in pieces, if credit, order and room allow that all of it leaves at once. Returns
    /// whether it has left.
    #[inline(never)] // Keeps the path of short messages short.
    pub(crate) fn send_pieces_now(&mut self, matcher: &Matcher, envelope: &Envelope, message: Span) -> bool {
        let Connection { route, lane } = self;
        let bytes = message.bytes();
        if matches!(route, Route::Loopback)
            || !lane.may_leave_at_once(envelope.context, envelope.tag)
            || !lane.has_credit(bytes, route)
        {
            return false;
        }
        let chunk = route.chunk_for(bytes);
        if !route.has_room(bytes, chunk) {
            return false;
        }
        let fill = |at, to: Span| message.slice(at, to.bytes()).copy_to(to);
        let address = message.address() as u64;
        let answer = send_pieces(route, (envelope, 0), (bytes, address, chunk), &mut None, fill);
        assert_eq!(answer, Sent::Done, "there was room");
        lane.charge(bytes);
        matcher.count(Counter::EagerMessagesSent, Counter::EagerBytesSent, bytes);
        true
    }
}

impl Matcher {
    /// Starts to time a message whose BEGIN has just come and whose receive waits. Returns None if there is
    /// nothing to learn, or if this call has read the message in the sender's memory and timed that. The
    /// pieces then overwrite the bytes read, since the sender may have changed them meanwhile.
    #[inline(never)]
    pub(crate) fn try_eager(&mut self, route: &Route, lane: &mut Lane) -> Option<PieceTiming> {
        if !lane.is_learning() {
            return None;
        }
        let IncomingPieces { to: PieceDestination::Receive(ours), left: bytes, address, .. } =
            lane.incoming?
        else {
            return None;
        };
        let buffer = self.requests.get(ours)?.buffer().contiguous()?;
        if buffer.bytes() < bytes as usize {
            return None;
        }
        let distance = lane.distance(&self.chooser);
        match self.chooser.try_eager(distance, bytes)? {
            Method::Cells => {
                let timed = PieceTiming { distance, bytes, started: sys::clock::now() };
                (!route.ready()).then_some(timed)
            }
            Method::Read if address == 0 => None,
            Method::Read => {
                let started = sys::clock::now();
                let done = route.read(address as usize, buffer.slice(0, bytes as usize));
                // A refusal counts as a read that took extremely long.
                self.chooser.record_eager(distance, bytes, Method::Read, if done { started } else { 0 });
                None
            }
        }
    }

    /// Handles a BEGIN packet: a message comes in pieces from now on. Finds the message's receive, or else
    /// memory for its bytes. Returns `Taken::No` if the packet stays in the ring.
    pub(crate) fn consume_begin<A: AwaitingReceives>(
        &mut self,
        lane: &mut Lane,
        envelope: Envelope,
        payload: Span,
        awaiting: &mut A,
    ) -> Result<Taken> {
        let peer = lane.number;
        let Some((bytes, address)) = length(payload) else {
            fail!(Class::Intern, "peer {peer} began a message in pieces, but not with its length")
        };
        if let Some(IncomingPieces { left, .. }) = lane.incoming {
            fail!(Class::Intern, "peer {peer} began a message before {left} bytes of the last had come")
        }
        let to = match awaiting.claim(self, &envelope) {
            Some(ours) => {
                self.gather(ours, envelope, bytes);
                lane.to_return += cost(bytes);
                PieceDestination::Receive(ours)
            }
            None if !A::KEEPS_UNEXPECTED => return Ok(Taken::No),
            None => {
                self.count(Counter::UnexpectedMessages, Counter::UnexpectedBytes, bytes);
                let early = EarlyPieces { memory: self.spares.take(bytes), bytes, filled: 0 };
                let number = self.early.insert(early);
                self.unexpected.push(envelope, UnexpectedMessage::Pieces(number));
                PieceDestination::Early(number)
            }
        };
        self.count(Counter::EagerMessagesReceived, Counter::EagerBytesReceived, bytes);
        lane.incoming = Some(IncomingPieces { to, left: bytes as u64, address, timed: None });
        Ok(Taken::Last)
    }

    /// Handles a PIECE packet: stores the next bytes of the message for which the peer last sent a BEGIN.
    pub(crate) fn consume_piece(&mut self, lane: &mut Lane, payload: Span) -> Result<()> {
        let bytes = payload.bytes() as u64;
        let Some(incoming) = lane.incoming.filter(|last| (1..=last.left).contains(&bytes)) else {
            let left = lane.incoming.map_or(0, |last| last.left);
            fail!(Class::Intern, "peer {} sent a piece of {bytes} bytes where {left} were left", lane.number)
        };
        let left = incoming.left - bytes;
        lane.incoming = (left > 0).then_some(IncomingPieces { left, ..incoming });
        match incoming.to {
            PieceDestination::Receive(ours) => {
                let copy = |buffer: &Buffer, at, taken| buffer.unpack(at, payload.slice(0, taken));
                self.take_piece(ours, payload.bytes(), copy);
                if left == 0 {
                    self.complete(ours);
                    if let Some(PieceTiming { distance, bytes, started }) = incoming.timed {
                        self.chooser.record_eager(distance, bytes, Method::Cells, started);
                    }
                }
            }
            PieceDestination::Early(number) => {
                let early =
                    self.early.get_mut(number).expect("a receive that takes it takes the pieces, too");
                let at = early.filled;
                payload.save(&mut early.memory[at..at + payload.bytes()]);
                early.filled += payload.bytes();
            }
        }
        Ok(())
    }

    /// Gives the receive `ours` the bytes that have come of the early message `number`, and lets later pieces
    /// go to it. Returns the message's length.
    pub(crate) fn take_early(
        &mut self,
        lane: &mut Lane,
        ours: u64,
        envelope: Envelope,
        number: u64,
    ) -> usize {
        let EarlyPieces { memory, bytes, filled } =
            self.early.remove(number).expect("an early message waits for its receive");
        self.gather(ours, envelope, bytes);
        let copy = |buffer: &Buffer, at, taken| buffer.restore(at, &memory[..taken]);
        self.take_piece(ours, filled, copy);
        self.spares.give(memory);
        if filled == bytes {
            self.complete(ours);
        } else {
            let incoming = lane.incoming.as_mut().expect("a message that is not all here is the peer's last");
            incoming.to = PieceDestination::Receive(ours);
        }
        bytes
    }

    /// Records that the receive `ours` takes the pieces of a message of `bytes` bytes, from the first on.
    fn gather(&mut self, ours: u64, envelope: Envelope, bytes: usize) {
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let end = request.match_message(envelope, bytes as u64) as u64;
        request.stage = RequestStage::Gathering { next: 0, end };
    }

    /// Adds the next `bytes` bytes of the message to the receive `ours`. `copy` gets the receive's buffer,
    /// the offset in it, and how many bytes to copy. Bytes beyond the buffer's end are dropped.
    fn take_piece(&mut self, ours: u64, bytes: usize, copy: impl FnOnce(&Buffer, usize, usize)) {
        let request = self.requests.get_mut(ours).expect("a receive ends with the last piece");
        let RequestStage::Gathering { next, end, .. } = &mut request.stage else {
            unreachable!("a receive takes pieces until the last")
        };
        let (at, taken) = (*next as usize, (bytes as u64).min(*end - *next));
        *next += taken;
        copy(request.buffer(), at, taken as usize);
    }
}

/// Reads the message's length and address from the payload of a BEGIN. Returns None if the payload is
/// invalid, or no message of this length may come in pieces.
fn length(begin: Span) -> Option<(usize, u64)> {
    let [bytes, address] = packet::read(begin)?;
    (1..=EAGER_MOST).contains(&bytes).then_some((bytes as usize, address))
}
