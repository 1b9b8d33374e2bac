// SPDX-License-Identifier: BSD-3-Clause
//! Starts a send.
//!
//! A message that can leave at once needs no request (`send_now`). Every other send waits in its peer's lane,
//! behind the sends that were started before it (`flush.rs`). Its protocol is decided once in both cases.

use crate::data::MessageData;
use crate::lane::OutgoingPacket;
use crate::outcome::{Mode, Ticket};
use crate::packet;
use crate::protocol::Protocol;
use crate::request::{Request, SendProgress, SendStage};
use crate::state::{Connection, Matcher, P2p, connection};
use datatype::Buffer;
use error::Result;
use matching::Envelope;
use sys::Span;
use telemetry::Counter;
use transport::route::Sent;

/// The answer of `P2p::send_now`: whether the message has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendAttempt {
    /// The message has left.
    Left,
    /// The message must wait for room, or be offered. The caller passes it to `P2p::isend_later`, with this
    /// protocol.
    MustWait(Protocol),
    /// The message has not left, since there is no connection to its destination yet.
    NotConnected,
}

impl P2p {
    /// Starts a send (MPI 5.0, sections 3.4 and 3.7.2), and returns its ticket.
    ///
    /// Errors: `dest` is no process of the job; a buffered send finds no room in the attached buffer.
    #[inline(always)] // A buffer without gaps is an address and a length, which then stay in registers.
    pub fn isend(&mut self, mode: Mode, context: u64, dest: u32, tag: i32, buffer: Buffer) -> Result<Ticket> {
        if !matches!(mode, Mode::Synchronous | Mode::Overlapped)
            && let Some(span) = buffer.contiguous()
        {
            return match self.send_now(context, dest, tag, span) {
                SendAttempt::Left => Ok(Ticket::DONE),
                SendAttempt::MustWait(protocol) => {
                    self.isend_later(mode, protocol, (context, dest, tag), buffer)
                }
                SendAttempt::NotConnected => self.isend_any(mode, context, dest, tag, buffer),
            };
        }
        self.isend_any(mode, context, dest, tag, buffer)
    }

    /// Sends a message in the standard mode if it can leave at once. Returns whether it has left, and
    /// otherwise why not.
    #[inline(never)]
    pub fn send_now(&mut self, context: u64, dest: u32, tag: i32, span: Span) -> SendAttempt {
        let Some(Some(peer)) = self.peers.get_mut(dest as usize) else { return SendAttempt::NotConnected };
        let protocol = peer.lane.protocol(span.bytes(), &self.matcher.chooser);
        let left = match protocol {
            Protocol::Inline | Protocol::Cell => {
                peer.send_packet(&self.matcher, context, tag, span.bytes(), move |to| span.copy_to(to))
            }
            Protocol::Pieces => {
                peer.send_pieces_now(&self.matcher, &Envelope { context, source: self.rank, tag }, span)
            }
            Protocol::Offer => false,
        };
        if left { SendAttempt::Left } else { SendAttempt::MustWait(protocol) }
    }

    /// Starts a send that `send_now` cannot do: to a peer without a connection, from a buffer with gaps, or
    /// in the synchronous or overlapped mode. Returns the send's ticket.
    #[inline(never)]
    fn isend_any(&mut self, mode: Mode, context: u64, dest: u32, tag: i32, buffer: Buffer) -> Result<Ticket> {
        self.connect(dest)?;
        let peer = connection(&mut self.peers, dest);
        let bytes = buffer.bytes();
        let protocol = peer.lane.protocol_in(mode, bytes, &self.matcher.chooser);
        let fill = |to| buffer.pack_away(0, to);
        if let Protocol::Inline | Protocol::Cell = protocol
            && peer.send_packet(&self.matcher, context, tag, bytes, fill)
        {
            return Ok(Ticket::DONE);
        }
        self.isend_later(mode, protocol, (context, dest, tag), buffer)
    }

    /// Starts a send whose message `send_now` did not send, and returns its ticket. The message waits for
    /// room, is offered, or goes to this process itself. Errors: a buffered send finds no room in the
    /// attached buffer.
    #[cold]
    pub fn isend_later(
        &mut self,
        mode: Mode,
        protocol: Protocol,
        (context, dest, tag): (u64, u32, i32),
        buffer: Buffer,
    ) -> Result<Ticket> {
        if dest == self.rank {
            let ticket = self.isend_loopback(mode, protocol, context, tag, buffer);
            // Another thread of this process may sleep while it waits for this message, and no peer rings.
            self.reach.ring_own();
            return ticket;
        }
        let envelope = Envelope { context, source: self.rank, tag };
        let (data, detached) = self.send_data(mode, context, buffer)?;
        let lane = &mut connection(&mut self.peers, dest).lane;
        let counted = lane.outgoing.as_mut().is_some_and(|channels| channels.count(context, tag));
        let progress = SendProgress::Queued;
        let stage = SendStage { peer: dest, envelope, protocol, progress, counted, exposed: None };
        let ours = self.matcher.open_send(Request::send(stage, data, detached));
        lane.push(OutgoingPacket::Message { ours });
        self.flush(dest);
        Ok(if detached { Ticket::DONE } else { Ticket(ours) })
    }

    /// Returns where the bytes of a send that does not end at once are, and whether the send's ticket counts
    /// as freed from the start: so it is in the buffered mode, which copies the message. If the attached
    /// buffer has no room, it polls once before.
    pub(crate) fn send_data(
        &mut self,
        mode: Mode,
        context: u64,
        buffer: Buffer,
    ) -> Result<(MessageData, bool)> {
        match mode {
            Mode::Standard | Mode::Synchronous | Mode::Overlapped => Ok((MessageData::User(buffer), false)),
            Mode::Buffered { session } => {
                if !self.matcher.buffered.has_room(context, session, buffer.bytes()) {
                    self.poll()?;
                }
                Ok((self.matcher.buffered.copy_of(context, session, &buffer)?, true))
            }
        }
    }

    /// Sends the packets that wait for peer `number`, as far as there is room. If some still wait, enters the
    /// peer into `blocked`. Returns whether any packet has left.
    pub(crate) fn flush(&mut self, number: u32) -> bool {
        let peer = connection(&mut self.peers, number);
        let sent = peer.flush(&mut self.matcher);
        if peer.lane.has_work() && !std::mem::replace(&mut peer.lane.blocked, true) {
            self.blocked.push(number);
        }
        sent
    }
}

impl Connection {
    /// Sends a message in one packet, if it can leave at once. Returns whether it has left.
    #[inline(always)]
    fn send_packet(
        &mut self,
        matcher: &Matcher,
        context: u64,
        tag: i32,
        bytes: usize,
        fill: impl FnOnce(Span),
    ) -> bool {
        let Connection { route, lane } = self;
        if !lane.may_leave_at_once(context, tag) || !lane.has_credit(bytes, route) {
            return false;
        }
        let header = packet::addressed(packet::EAGER, context, tag);
        if route.send(&header, bytes, fill) == Sent::Full {
            return false;
        }
        lane.charge(bytes);
        matcher.count(Counter::EagerMessagesSent, Counter::EagerBytesSent, bytes);
        true
    }
}

impl Matcher {
    pub(crate) fn open_send(&mut self, request: Request) -> u64 {
        self.sends_open += 1;
        self.requests.insert(request)
    }
}
