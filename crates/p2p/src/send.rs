//! Starting a send.

use crate::lane::Outgoing;
use crate::request::{Data, Request, SendProgress, SendStage};
use crate::{Mode, P2p, Peer, State, Ticket, known, packet};
use datatype::Buffer;
use error::Result;
use matching::Envelope;
use telemetry::Counter;
use transport::route::{Route, Sent};

impl P2p {
    /// Starts a send (MPI 5.0, sections 3.4 and 3.7.2).
    ///
    /// Errors: `dest` is no process of the job; a buffered send finds no room in the attached buffer.
    pub fn isend(&mut self, mode: Mode, context: u64, dest: u32, tag: i32, buffer: Buffer) -> Result<Ticket> {
        self.connect(dest)?;
        let Peer { route, lane } = known(&mut self.peers, dest);
        if let Route::Own = route {
            return self.isend_own(mode, context, tag, buffer);
        }
        let bytes = buffer.bytes();
        if mode != Mode::Synchronous && lane.is_clear() && lane.affords(bytes, route) {
            let header = packet::addressed(packet::EAGER, context, tag);
            if route.send(&header, bytes, |to| buffer.pack_away(0, to)) == Sent::Done {
                lane.charge(bytes);
                self.state.count(Counter::EagerMessagesSent, Counter::EagerBytesSent, bytes);
                return Ok(Ticket::DONE);
            }
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

impl State {
    pub(crate) fn open_send(&mut self, request: Request) -> u64 {
        self.sends_open += 1;
        self.requests.insert(request)
    }
}
