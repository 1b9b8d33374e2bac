// SPDX-License-Identifier: BSD-3-Clause
//! Messages whose bytes executors move (`coll/message.rs`), so that both ranks may compute meanwhile.
//!
//! Sender and receiver each start an instance with the same key: the message's number in its channel
//! (`channel.rs`). The sender also puts an ANNOUNCE packet into its ring to the receiver, like an offer, and
//! the receiver's matcher decides as always. A receive with an exact source and tag, and no wildcard before
//! it, knows its message in advance: the next after those that have come and those for which earlier such
//! receives wait. So the receiver starts its side when it posts the receive. If no executor moves the message
//! with that number, the receiver withdraws its instance.
//!
//! Invariants: once a channel has a number, sender and receiver count every message of its tag, in the order
//! of the ring (`packet::COUNTED`). A channel that a sender has forgotten is never named again.

use crate::channel::{CHANNEL_BITS, Channel, ExpectingReceive, Handoff, HandoffKey};
use crate::data::MessageData;
use crate::lane::{Lane, OutgoingPacket};
use crate::message::Offer;
use crate::outcome::{Mode, Ticket};
use crate::packet;
use crate::protocol::Protocol;
use crate::request::{Request, RequestStage, SendProgress, SendStage};
use crate::state::{Matcher, P2p, connection};
use datatype::Buffer;
use error::{Class, Error, Result, fail};
use matching::{Envelope, Pattern};
use sys::Span;
use telemetry::{Carried, Counter};
use transport::route::PACKET_BYTES_MAX;

impl P2p {
    /// Whether the bytes of a message of `bytes` bytes move only once its receive is known, so that an
    /// executor could move them.
    pub fn is_long(&mut self, peer: u32, bytes: usize) -> Result<bool> {
        if peer == self.rank {
            return Ok(false);
        }
        self.connect(peer)?;
        let lane = &mut connection(&mut self.peers, peer).lane;
        Ok(lane.protocol(bytes, &self.matcher.chooser) == Protocol::Offer)
    }

    /// Returns the length of the shortest message for which the caller needs to ask `is_long`. Shorter ones
    /// leave eagerly in one packet, unless reading was measured to be faster even for these.
    pub fn long_bytes_min(&self) -> u64 {
        self.config.eager_bytes_max.min(PACKET_BYTES_MAX) as u64 + 1
    }

    /// Takes the packets that a peer has sent, so that a receive posted afterwards finds their messages.
    pub fn take_packets_of(&mut self, peer: u32) -> Result<()> {
        self.post_deferred();
        self.note_writers()?;
        self.connect(peer)?;
        self.take_packets(peer).map(|_| ())
    }

    /// Starts a send to another process, in any mode but the buffered one. `start` starts the executor's
    /// instance for the message. Returns the send's ticket, and what `start` returned with the message's key.
    /// If `start` fails, returns None for these, and the message goes like any other.
    pub fn isend_offloaded<T>(
        &mut self,
        mode: Mode,
        (context, dest, tag): (u64, u32, i32),
        buffer: Buffer,
        start: impl FnOnce(HandoffKey, &Buffer) -> Result<T>,
    ) -> Result<(Ticket, Option<(HandoffKey, T)>)> {
        self.connect(dest)?;
        let envelope = Envelope { context, source: self.rank, tag };
        let lane = &mut connection(&mut self.peers, dest).lane;
        // An earlier process with this number started at another channel.
        let first = self.reach.generation(self.rank) << 24;
        let channels = &mut self.matcher.channels;
        let channel = lane.outgoing_channels().next(context, tag, || {
            *channels = channels.wrapping_add(1);
            first.wrapping_add(*channels) % (1 << CHANNEL_BITS)
        });
        let key = HandoffKey::new(self.rank, channel.name, channel.count);
        let started = start(key, &buffer).ok();
        let progress = match started {
            Some(_) => SendProgress::Offloaded { key, has_left: false, is_over: false },
            None => SendProgress::Queued,
        };
        let (protocol, counted) = (Protocol::Offer, started.is_none());
        let stage = SendStage { peer: dest, envelope, protocol, progress, counted, exposed: None };
        let (data, detached) = self.send_data(mode, context, buffer)?;
        let ours = self.matcher.open_send(Request::send(stage, data, detached));
        connection(&mut self.peers, dest).lane.push(OutgoingPacket::Message { ours });
        self.flush(dest);
        Ok((Ticket(ours), started.map(|started| (key, started))))
    }

    /// Lets an executor wait for the message of a receive that has just been posted, if the message's key is
    /// known in advance.
    pub fn expect_message(&mut self, ticket: Ticket, context: u64, source: u32, tag: i32) {
        let Matcher { requests, posted, handoffs, .. } = &mut self.matcher;
        let Some(Request { stage, data, .. }) = requests.get_mut(ticket.0) else { return };
        let RequestStage::Posted(entry) = *stage else { return };
        let Some(Some(peer)) = self.peers.get(source as usize) else { return };
        let Some(channels) = &peer.lane.arriving else { return };
        let Some(Channel { name, count }) = channels.get(context, tag) else { return };
        let Some(waiting) = posted.exact(&Envelope { context, source, tag }) else { return };
        let MessageData::User(buffer) = data else { return };
        // `waiting` counts this receive, too.
        let key = HandoffKey::new(source, name, count.wrapping_add(waiting as u32));
        let buffer = buffer.clone();
        *stage = RequestStage::Expecting(Box::new(ExpectingReceive { entry, key, over: None }));
        handoffs.push_back(Handoff::Receive { ticket, key, peer: source, context, buffer });
    }

    /// Whether `next_handoff` would return something that an executor is to do.
    #[inline]
    pub fn has_handoffs(&self) -> bool {
        !self.matcher.handoffs.is_empty()
    }

    /// Takes the oldest task for an executor: to receive a message, or to end a send. Returns None if there
    /// is no task.
    pub fn next_handoff(&mut self) -> Option<Handoff> {
        self.matcher.handoffs.pop_front()
    }

    /// Whether the operation with this ticket still waits until an executor has moved the message with this
    /// key.
    pub fn awaits(&self, ticket: Ticket, key: HandoffKey) -> bool {
        match self.matcher.requests.get(ticket.0).map(|request| &request.stage) {
            Some(RequestStage::Expecting(expecting)) => expecting.key == key,
            Some(RequestStage::Offloaded(offloaded)) => *offloaded == key,
            Some(RequestStage::Send(_)) => true,
            _ => false,
        }
    }

    /// Returns the receives for whose messages executors wait, and which would get other messages if the
    /// receive `ticket` were cancelled; `ticket` may be among them. Before the caller cancels, it withdraws
    /// these executors (`withdraw_executor`).
    pub fn receives_depending_on(&self, ticket: Ticket) -> Vec<Ticket> {
        let Some(Ticket(ours)) = self.request_ticket(ticket).map(Ticket) else { return Vec::new() };
        let Matcher { posted, requests, .. } = &self.matcher;
        let mut waiting = posted.iter().skip_while(|(_, other)| **other != ours);
        let Some((cancelled, _)) = waiting.next() else { return Vec::new() };
        let takes = |&(pattern, other): &(&Pattern, &u64)| {
            let (Some(source), Some(tag)) = (pattern.source, pattern.tag) else { return false };
            let is_expecting =
                requests.get(*other).is_some_and(|it| matches!(it.stage, RequestStage::Expecting(_)));
            is_expecting && cancelled.fits(&Envelope { context: pattern.context, source, tag })
        };
        let itself = std::iter::once((cancelled, &ours));
        itself.chain(waiting).filter(takes).map(|(_, other)| Ticket(*other)).collect()
    }

    /// Records that no executor waits for the message of the receive `ticket` any more. Returns false if none
    /// has waited, or if the executor's instance has already ended.
    pub fn withdraw_executor(&mut self, ticket: Ticket) -> bool {
        if let Some(Request { stage, .. }) = self.matcher.requests.get_mut(ticket.0)
            && let RequestStage::Expecting(expecting) = stage
            && expecting.over.is_none()
        {
            *stage = RequestStage::Posted(expecting.entry);
            return true;
        }
        false
    }

    /// Records that the instance that moved the message `key` of the operation `ticket` has ended, with its
    /// error if it failed. `carried` says how the bytes were moved; None unless `telemetry::timed`.
    pub fn offload_ended(
        &mut self,
        ticket: Ticket,
        key: HandoffKey,
        carried: Option<Carried>,
        error: Option<Error>,
    ) {
        self.carried.extend(carried.map(|carried| (ticket, carried)));
        let Some(request) = self.matcher.requests.get_mut(ticket.0) else { return };
        match &mut request.stage {
            RequestStage::Expecting(expecting) if expecting.key == key => expecting.over = Some(error),
            RequestStage::Offloaded(offloaded) if *offloaded == key => {
                self.matcher.end_offloaded(ticket.0, error)
            }
            RequestStage::Send(send) => {
                let SendProgress::Offloaded { has_left, .. } = send.progress else { return };
                request.outcome.error = error;
                send.progress = SendProgress::Offloaded { key, has_left, is_over: true };
                if has_left {
                    self.matcher.complete(ticket.0);
                }
            }
            _ => (),
        }
    }

    /// Takes what `offload_ended` recorded about how the bytes of an operation's message were moved; None if
    /// it recorded nothing.
    pub fn carried(&mut self, ticket: Ticket) -> Option<Carried> {
        self.carried.remove(&ticket)
    }
}

impl Matcher {
    /// Handles an ANNOUNCE: the peer's executor moves the bytes of a message, and this process's executor
    /// must do its part.
    pub(crate) fn consume_announce(
        &mut self,
        lane: &mut Lane,
        envelope: Envelope,
        payload: Span,
    ) -> Result<()> {
        let Some([bytes, theirs, word]) = packet::read(payload) else {
            fail!(Class::Intern, "peer {} announced a message by {} bytes", lane.number, payload.bytes())
        };
        let (name, count) = ((word >> 32) as u32 % (1 << CHANNEL_BITS), word as u32);
        let channels = lane.arriving.get_or_insert_default();
        channels.set(envelope.context, envelope.tag, Channel { name, count });
        let key = Some(HandoffKey::new(lane.number, name, count));
        self.take_offer(lane, envelope, Offer { bytes, theirs, address: 0, far: None, key });
        Ok(())
    }

    /// Matches the receive `ours` with an announced message of `bytes` bytes. Asks for an executor to receive
    /// it, unless one already waits for the message with this key.
    pub(crate) fn offload(&mut self, ours: u64, envelope: Envelope, bytes: u64, key: HandoffKey) {
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let taken = request.match_message(envelope, bytes) as u64;
        self.counters.count(Counter::RendezvousMessagesReceived, 1);
        self.counters.count(Counter::RendezvousBytesReceived, taken);
        match std::mem::replace(&mut request.stage, RequestStage::Offloaded(key)) {
            RequestStage::Expecting(expecting) if expecting.key == key => {
                if let Some(error) = expecting.over {
                    self.end_offloaded(ours, error);
                }
            }
            _ => {
                let (ticket, peer, buffer) = (Ticket(ours), envelope.source, request.buffer().clone());
                let context = envelope.context;
                self.handoffs.push_back(Handoff::Receive { ticket, key, peer, context, buffer });
            }
        }
    }

    /// Ends the receive `ours` after its executor has ended with `error`. Drops a truncation error: the
    /// receive got its own truncation error when it matched the announced message.
    fn end_offloaded(&mut self, ours: u64, error: Option<Error>) {
        let request = self.requests.get_mut(ours).expect("it was just found");
        let error = error.filter(|error| error.class != Class::Truncate);
        request.outcome.error = error.or(request.outcome.error.take());
        self.complete(ours);
    }

    /// Whether the send `ours` goes to this peer, and its announcement (that an executor moves the bytes) has
    /// left.
    pub(crate) fn is_announced(&mut self, ours: u64, peer: u32) -> bool {
        let stage = self.requests.get(ours).map(|request| &request.stage);
        matches!(stage, Some(RequestStage::Send(send)) if send.peer == peer
            && matches!(send.progress, SendProgress::Offloaded { has_left: true, .. }))
    }

    /// Records that the announced send `ours` was cancelled in time, and asks for its executor to stop. The
    /// send ends when the executor has ended.
    pub(crate) fn abandon(&mut self, ours: u64) {
        self.requests.get_mut(ours).expect("it was just found").outcome.cancelled = true;
        self.handoffs.push_back(Handoff::Abandon(Ticket(ours)));
    }
}
