//! Starting a send.

use crate::lane::Outgoing;
use crate::request::{Data, Request, SendProgress, SendStage};
use crate::{Mode, P2p, Peer, State, Ticket, known, packet};
use datatype::Buffer;
use error::Result;
use matching::Envelope;
use sys::Span;
use telemetry::Counter;
use transport::route::{Route, Sent};

impl P2p {
    /// Starts a send (MPI 5.0, sections 3.4 and 3.7.2).
    ///
    /// Errors: `dest` is no process of the job; a buffered send finds no room in the attached buffer.
    #[inline(always)] // The buffer of most is an address and a length, which then stay in registers.
    pub fn isend(&mut self, mode: Mode, context: u64, dest: u32, tag: i32, buffer: Buffer) -> Result<Ticket> {
        if mode != Mode::Synchronous
            && let Some(span) = buffer.contiguous()
            && self.send_now(context, dest, tag, span)
        {
            return Ok(Ticket::DONE);
        }
        self.isend_any(mode, context, dest, tag, buffer)
    }

    /// Sends a message in the standard mode if it can leave at once; whether it did.
    #[inline(never)]
    pub fn send_now(&mut self, context: u64, dest: u32, tag: i32, span: Span) -> bool {
        match self.peers.get_mut(dest as usize) {
            Some(Some(peer)) if span.bytes() <= peer.lane.short_bytes_max => {
                peer.send_now(&self.state, context, tag, span.bytes(), move |to| span.copy_to(to))
            }
            Some(Some(peer)) => {
                peer.send_pieces_now(&self.state, &Envelope { context, source: self.rank, tag }, span)
            }
            None | Some(None) => false,
        }
    }

    /// Any other send.
    #[inline(never)]
    fn isend_any(&mut self, mode: Mode, context: u64, dest: u32, tag: i32, buffer: Buffer) -> Result<Ticket> {
        self.connect(dest)?;
        let peer = known(&mut self.peers, dest);
        if let Route::Loopback = peer.route {
            let ticket = self.isend_own(mode, context, tag, buffer);
            // Another thread of this process may sleep in its wait for the message, and no peer rings.
            self.reach.ring_own();
            return ticket;
        }
        let fill = |to| buffer.pack_away(0, to);
        let is_short = buffer.bytes() <= peer.lane.short_bytes_max;
        if is_short
            && mode != Mode::Synchronous
            && peer.send_now(&self.state, context, tag, buffer.bytes(), fill)
        {
            return Ok(Ticket::DONE);
        }
        self.isend_later(mode, context, dest, tag, buffer)
    }

    /// A send that must wait for room, or begin with an offer.
    #[cold]
    fn isend_later(
        &mut self,
        mode: Mode,
        context: u64,
        dest: u32,
        tag: i32,
        buffer: Buffer,
    ) -> Result<Ticket> {
        let envelope = Envelope { context, source: self.rank, tag };
        let (data, detached) = self.keep(mode, context, buffer)?;
        let stage = SendStage {
            peer: dest,
            envelope,
            synchronous: mode == Mode::Synchronous,
            progress: SendProgress::Queued,
        };
        let ours = self.state.open_send(Request::send(stage, data, detached));
        known(&mut self.peers, dest).lane.push(Outgoing::Message { ours });
        self.flush(dest);
        Ok(if detached { Ticket::DONE } else { Ticket(ours) })
    }

    /// What a send that does not end at once reads from: for the buffered mode a copy, and then nobody waits for its end.
    /// Where the attached buffer seems full, messages that could leave by now get the chance to.
    pub(crate) fn keep(&mut self, mode: Mode, context: u64, buffer: Buffer) -> Result<(Data, bool)> {
        match mode {
            Mode::Standard | Mode::Synchronous => Ok((Data::User(buffer), false)),
            Mode::Buffered { session } => {
                if !self.state.buffered.has_room(context, session, buffer.bytes()) {
                    self.poll()?;
                }
                Ok((self.state.buffered.copy_of(context, session, &buffer)?, true))
            }
        }
    }

    /// Sends what waits for a peer, and remembers it if something still does.
    pub(crate) fn flush(&mut self, number: u32) -> bool {
        let peer = known(&mut self.peers, number);
        let sent = peer.flush(&mut self.state);
        if peer.lane.has_work() && !std::mem::replace(&mut peer.lane.blocked, true) {
            self.blocked.push(number);
        }
        sent
    }
}

impl Peer {
    /// Sends a message that fits in one packet, if it can leave at once.
    #[inline(always)]
    fn send_now(
        &mut self,
        state: &State,
        context: u64,
        tag: i32,
        bytes: usize,
        fill: impl FnOnce(Span),
    ) -> bool {
        let Peer { route, lane } = self;
        if matches!(route, Route::Loopback) || !lane.is_clear() || !lane.has_credit(bytes, route) {
            return false;
        }
        let header = packet::addressed(packet::EAGER, context, tag);
        if route.send(&header, bytes, fill) == Sent::Full {
            return false;
        }
        lane.charge(bytes);
        state.count(Counter::EagerMessagesSent, Counter::EagerBytesSent, bytes);
        true
    }
}

impl State {
    pub(crate) fn open_send(&mut self, request: Request) -> u64 {
        self.sends_open += 1;
        self.requests.insert(request)
    }
}
