// SPDX-License-Identifier: BSD-3-Clause
//! Rendezvous: the sender offers {length, ticket, address}, and the bytes move once the receive is known.
//!
//! - *Read*: the receiver copies from the sender's memory, a part per poll. TAKEN ends the send.
//! - *Stream*: the receiver sends ASK; the sender sends DATA, which ends the send. Faster while both are in
//!   MPI.
//! - *Pull* (`pull.rs`): the receiver's network reads the memory that the offer exposes. TAKEN ends the send.
//! - *Device*: like *Read*, from device memory that the sender has exported (`device/src/export.rs`).
//! - *Read fallback*: like *Stream*; the receiver reads the rest if no DATA comes for `patience_polls`.
//!
//! A receiver whose read fails asks for the rest, and DATA of an earlier ASK may come late. So an ASK and its
//! DATA have the number of the attempt, and DATA with a lower number are dropped. From attempt 1 on the
//! receiver may read until it sends TAKEN; with attempt 0 (`FINAL_ATTEMPT`) it promises not to read.

use crate::config::LargeProtocol;
use crate::data::MessageData;
use crate::lane::{Lane, OutgoingPacket};
use crate::message::{Offer, UnexpectedMessage};
use crate::packet;
use crate::protocol::FetchMethod;
use crate::request::{FINAL_ATTEMPT, Pulling, ReadFallback, Request, RequestStage, SendProgress};
use crate::state::{Matcher, P2p, connection};
use datatype::Buffer;
use error::{Class, Result, fail};
use matching::Envelope;
use sys::{Block, Span};
use telemetry::{Counter, Event};
use transport::owned::Memory;
use transport::route::{Header, RemoteRange, Route};
use tuning::Method;

/// The most bytes that are read at a time from a peer's memory if the receive's buffer has gaps. They are
/// first copied to a block, and stay in the cache until they are copied to the buffer
/// (docs/measured/choices.md).
const BOUNCE_BYTES: usize = 256 << 10;

impl Matcher {
    /// Handles an OFFER packet: a message whose bytes are still in the sender's memory.
    pub(crate) fn consume_offer(&mut self, lane: &mut Lane, envelope: Envelope, payload: Span) -> Result<()> {
        let Some(offer) = offer_of(payload) else {
            fail!(Class::Intern, "peer {} sent an offer of {} bytes", lane.number, payload.bytes())
        };
        self.take_offer(lane, envelope, offer);
        Ok(())
    }

    /// Gives a message that was offered or announced to the posted receive that it matches. Without such a
    /// receive, stores the offer in the unexpected queue.
    pub(crate) fn take_offer(&mut self, lane: &mut Lane, envelope: Envelope, offer: Offer) {
        match self.posted.take(&envelope) {
            Some(ours) => self.accept(lane, ours, envelope, offer),
            None => {
                self.counters.count(Counter::UnexpectedMessages, 1);
                self.unexpected.push(envelope, UnexpectedMessage::Offer(offer));
            }
        }
    }

    /// Matches the receive `ours` with a message that was offered or announced, and starts to fetch the
    /// message.
    pub(crate) fn accept(&mut self, lane: &mut Lane, ours: u64, envelope: Envelope, offer: Offer) {
        if let Some(key) = offer.key {
            return self.offload(ours, envelope, offer.bytes, key);
        }
        let Offer { theirs, address, .. } = offer;
        let (what, peer, bytes) = ("accept", lane.number, offer.bytes);
        telemetry::event(Event::Rendezvous { what, peer, ticket: theirs, bytes });
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let end = request.match_message(envelope, offer.bytes) as u64;
        self.counters.count(Counter::RendezvousMessagesReceived, 1);
        self.counters.count(Counter::RendezvousBytesReceived, end);
        if end == 0 {
            lane.push(OutgoingPacket::Taken { theirs });
            return self.complete(ours);
        }
        let (peer, next) = (lane.number, 0);
        let (stage, attempt) = match self.choose_fetch(lane, end, &offer, ours) {
            FetchMethod::Pull => {
                self.pulling.push_back(ours);
                self.pulls_open += 1;
                let far = offer.far.expect("what is pulled was exposed");
                (RequestStage::Pulling(Box::new(Pulling::new(peer, theirs, far, end))), None)
            }
            FetchMethod::Read => {
                self.reading.push_back(ours);
                (RequestStage::Reading { peer, theirs, address, attempt: FINAL_ATTEMPT, next, end }, None)
            }
            FetchMethod::CellsOrRead => {
                let polls_left = self.patience_polls;
                self.fallbacks.push(ReadFallback { ours, address, seen: next, polls_left });
                (RequestStage::Filling { peer, theirs, attempt: 1, next, end }, Some(1))
            }
            FetchMethod::Cells => (
                RequestStage::Filling { peer, theirs, attempt: FINAL_ATTEMPT, next, end },
                Some(FINAL_ATTEMPT),
            ),
        };
        self.requests.get_mut(ours).expect("as above").stage = stage;
        if let Some(attempt) = attempt {
            lane.push(OutgoingPacket::Ask { theirs, ours, attempt, next, end });
        }
    }

    /// Decides how to fetch a message that was offered for the receive `ours`. Called once per offer.
    fn choose_fetch(&mut self, lane: &mut Lane, bytes: u64, offer: &Offer, ours: u64) -> FetchMethod {
        let is_pullable = offer.far.is_some() && !lane.unreadable;
        let readable = offer.address != 0 && !lane.unreadable;
        let into = self.requests.get(ours).expect("a posted receive is known").data.stretch();
        if is_pullable && into.is_some() && self.large_protocol != LargeProtocol::Cells {
            self.chooser.start_fetch(lane.distance(&self.chooser), self.sends_open > 0, bytes, false);
            return FetchMethod::Pull;
        }
        let on_device = offer.address & packet::ON_DEVICE != 0;
        let way =
            self.chooser.start_fetch(lane.distance(&self.chooser), self.sends_open > 0, bytes, readable);
        match self.large_protocol {
            _ if !readable => FetchMethod::Cells,
            LargeProtocol::Cells => FetchMethod::Cells,
            LargeProtocol::Cma => FetchMethod::Read,
            LargeProtocol::Auto if on_device => FetchMethod::Read,
            LargeProtocol::Auto if way == Method::Read => FetchMethod::Read,
            LargeProtocol::Auto => FetchMethod::CellsOrRead,
        }
    }

    /// Lets receives read the sender's memory if the sender has sent them nothing for `patience_polls` polls.
    #[cold]
    pub(crate) fn fall_back_to_reading(&mut self) {
        let Matcher { fallbacks, requests, reading, patience_polls, .. } = self;
        fallbacks.retain_mut(|fallback| {
            let Some(request) = requests.get_mut(fallback.ours) else { return false };
            let RequestStage::Filling { peer, theirs, attempt, next, end } = request.stage else {
                return false;
            };
            fallback.polls_left -= 1;
            if fallback.polls_left > 0 {
                return true;
            }
            if next > fallback.seen {
                (fallback.seen, fallback.polls_left) = (next, *patience_polls);
                return true;
            }
            let ReadFallback { ours, address, .. } = *fallback;
            request.stage = RequestStage::Reading { peer, theirs, address, attempt, next, end };
            reading.push_back(ours);
            false
        });
    }

    /// Handles a DATA packet: the next bytes of a message for which a receive has asked.
    pub(crate) fn consume_data(&mut self, lane: &mut Lane, header: &Header, payload: Span) -> Result<()> {
        let ours = header.context;
        let bytes = payload.bytes() as u64;
        if let Some(request) = self.requests.get_mut(ours)
            && let RequestStage::Filling { peer, theirs, attempt, next, end } = request.stage
            && (peer, attempt) == (lane.number, header.tag)
            && (1..=end - next).contains(&bytes)
        {
            request.buffer().unpack(next as usize, payload);
            request.stage = RequestStage::Filling { peer, theirs, attempt, next: next + bytes, end };
            if next + bytes == end {
                if attempt != FINAL_ATTEMPT {
                    lane.push(OutgoingPacket::Taken { theirs });
                }
                self.chooser.end_fetch();
                self.complete(ours);
            }
            return Ok(());
        }
        if header.tag != FINAL_ATTEMPT && self.may_be_late(ours, header.tag, lane.number) {
            return Ok(());
        }
        fail!(
            Class::Intern,
            "peer {} sent {bytes} bytes that no receive asked for (ticket {ours:#x})",
            lane.number
        )
    }

    /// Whether a DATA packet with the attempt number `sent_for` may answer an ASK that no longer counts: the
    /// receive `ours` now reads the memory, has asked again, or has ended.
    fn may_be_late(&self, ours: u64, sent_for: i32, sender: u32) -> bool {
        match self.requests.get(ours) {
            Some(request) => match request.stage {
                RequestStage::Filling { peer, attempt, .. } => peer == sender && sent_for < attempt,
                RequestStage::Reading { peer, attempt, .. } => peer == sender && sent_for <= attempt,
                RequestStage::Done => request.outcome.source_peer == sender,
                RequestStage::Send(_)
                | RequestStage::Posted(_)
                | RequestStage::Expecting(_)
                | RequestStage::Offloaded(_)
                | RequestStage::Gathering { .. }
                | RequestStage::Pulling(_) => false,
            },
            None => self.requests.existed(ours),
        }
    }

    /// Handles an ASK packet: the peer wants some or all bytes of a message that this process has offered.
    /// From now on DATA packets carry them.
    pub(crate) fn consume_ask(&mut self, lane: &mut Lane, header: &Header, payload: Span) -> Result<()> {
        let (ours, attempt) = (header.context, header.tag);
        let Some([theirs, next, end]) = packet::read(payload) else {
            fail!(Class::Intern, "peer {} sent a request of {} bytes", lane.number, payload.bytes())
        };
        if let Some(request) = self.offered(ours, lane.number)
            && next < end
            && end <= request.data.bytes() as u64
        {
            if device::on() {
                device::fill_exported(request.data.address() as usize)?;
            }
            let progress = &mut request.sending().progress;
            if *progress == SendProgress::Offered {
                let (what, peer, bytes) = ("asked", lane.number, end - next);
                telemetry::event(Event::Rendezvous { what, peer, ticket: ours, bytes });
                lane.push_stream(ours);
            }
            *progress = SendProgress::Streaming { theirs, attempt, next, end };
            return Ok(());
        }
        let peer = lane.number;
        fail!(
            Class::Intern,
            "peer {peer} asked for bytes {next} to {end} of no send of ours (ticket {ours:#x})"
        )
    }

    /// Handles a TAKEN packet: the peer needs no more bytes of the message of this process's send `ours`, so
    /// the send ends.
    pub(crate) fn consume_taken(&mut self, lane: &mut Lane, ours: u64) -> Result<()> {
        let Some(request) = self.offered(ours, lane.number) else {
            fail!(
                Class::Intern,
                "peer {} took a message that we did not offer (ticket {ours:#x})",
                lane.number
            )
        };
        if request.sending().progress != SendProgress::Offered {
            lane.drop_stream(ours);
        }
        let (what, peer, bytes) = ("taken", lane.number, request.data.bytes() as u64);
        telemetry::event(Event::Rendezvous { what, peer, ticket: ours, bytes });
        self.complete(ours);
        Ok(())
    }

    /// Returns the send with the ticket `ours`, which a packet of `peer` has named. Returns None unless this
    /// send was offered to that peer and has not ended.
    pub(crate) fn offered(&mut self, ours: u64, peer: u32) -> Option<&mut Request> {
        let request = self.requests.get_mut(ours)?;
        match &request.stage {
            RequestStage::Send(send) if send.peer == peer => match send.progress {
                SendProgress::Queued | SendProgress::InPieces { .. } | SendProgress::Offloaded { .. } => None,
                SendProgress::Offered | SendProgress::Streaming { .. } => Some(request),
            },
            _ => None,
        }
    }

    /// Reads the next part of the message of the receive `ours` from the peer's memory. Returns false if that
    /// memory cannot be read.
    fn read_piece(&mut self, route: &Route, ours: u64) -> bool {
        let request = self.requests.get_mut(ours).expect("a receive that reads is known");
        let RequestStage::Reading { address, next, end, .. } = &mut request.stage else {
            unreachable!("only receives that read are in the list of readers")
        };
        let left = (*end - *next).min(self.read_piece_bytes as u64) as usize;
        let from = address.wrapping_add(*next) as usize;
        let at = *next as usize;
        let MessageData::User(buffer) = &request.data else {
            unreachable!("a receive has the user's buffer until it ends")
        };
        if *address & packet::ON_DEVICE != 0 {
            let done = read_device(route, *address, buffer, (at, left));
            if done {
                *next += left as u64;
                self.counters.count(Counter::DeviceBytes, left as u64);
            }
            return done;
        }
        let (bytes, done) = match buffer.contiguous() {
            Some(all) => (left, route.read(from, all.slice(at, left))),
            None => {
                let bytes = left.min(BOUNCE_BYTES);
                let bounce = self.bounce.get_or_insert_with(|| Memory::new(BOUNCE_BYTES));
                let done = route.read_into(from, &mut bounce[..bytes]);
                if done {
                    buffer.restore(at, &bounce[..bytes]);
                }
                (bytes, done)
            }
        };
        if done {
            *next += bytes as u64;
            self.counters.count(Counter::CmaBytes, bytes as u64);
        }
        done
    }
}

/// Copies `bytes` bytes of a message in device memory, from offset `at` on, into `buffer`. The peer has
/// exported this memory. Words at `address` in the peer's host memory say where it is. Returns false if the
/// copy fails.
fn read_device(route: &Route, address: u64, buffer: &Buffer, (at, bytes): (usize, usize)) -> bool {
    let words = Block::new(device::export::DESCRIPTION_WORDS * 8);
    if !route.read((address & !packet::ON_DEVICE) as usize, words.span()) {
        return false;
    }
    let description = packet::read(words.span()).expect("it has as many words");
    let (mut next, mut done) = (at, true);
    buffer.pieces(at, bytes, |piece| {
        done = done && device::copy_exported(&description, next, piece).is_ok();
        next += piece.bytes();
    });
    done
}

/// Reads the payload of an OFFER packet. Returns None if its length is wrong.
fn offer_of(payload: Span) -> Option<Offer> {
    if let Some([bytes, theirs, address]) = packet::read(payload) {
        return Some(Offer { bytes, theirs, address, far: None, key: None });
    }
    let [bytes, theirs, address, base, key] = packet::read(payload)?;
    Some(Offer { bytes, theirs, address, far: Some(RemoteRange { base, key, bytes }), key: None })
}

impl P2p {
    /// Reads the next part of a message from a peer's memory, for the receive in `reading` whose turn it is.
    /// Returns whether there was such a receive.
    #[inline]
    pub(crate) fn advance_read(&mut self) -> bool {
        match self.matcher.reading.pop_front() {
            Some(ours) => self.advance_read_of(ours),
            None => false,
        }
    }

    fn advance_read_of(&mut self, ours: u64) -> bool {
        let Some(&Request { stage: RequestStage::Reading { peer: number, .. }, .. }) =
            self.matcher.requests.get(ours)
        else {
            unreachable!("only receives that read are in the list of readers")
        };
        let peer = connection(&mut self.peers, number);
        let done = self.matcher.read_piece(&peer.route, ours);
        let request = self.matcher.requests.get_mut(ours).expect("it was just found");
        let RequestStage::Reading { theirs, address, attempt, next, end, .. } = request.stage else {
            unreachable!("as above")
        };
        if !done {
            if address & packet::ON_DEVICE == 0 {
                peer.lane.unreadable = true;
                self.matcher.chooser.note_refusal();
            }
            let attempt = if attempt == FINAL_ATTEMPT { FINAL_ATTEMPT } else { attempt + 1 };
            request.stage = RequestStage::Filling { peer: number, theirs, attempt, next, end };
            peer.lane.push(OutgoingPacket::Ask { theirs, ours, attempt, next, end });
        } else if next == end {
            peer.lane.push(OutgoingPacket::Taken { theirs });
            self.matcher.chooser.end_fetch();
            self.matcher.complete(ours);
        } else {
            self.matcher.reading.push_back(ours);
            return true;
        }
        self.flush(number);
        true
    }
}
