//! Messages of a process to itself: the same matching, no packets. A long one is copied once, from buffer to buffer.

use crate::receive::Message;
use crate::request::{Data, Request, SendProgress, SendStage};
use crate::{Mode, P2p, State, Ticket, known};
use datatype::Buffer;
use error::Result;
use matching::Envelope;
use telemetry::Counter;

impl P2p {
    /// Starts a send to this process itself.
    #[cold]
    pub(crate) fn isend_own(&mut self, mode: Mode, context: u64, tag: i32, buffer: Buffer) -> Result<Ticket> {
        let envelope = Envelope { context, source: self.rank, tag };
        self.state.count(Counter::OwnMessages, Counter::OwnBytes, buffer.bytes());
        if let Some(receive) = self.state.posted.take(&envelope) {
            self.state.land_own(receive, envelope, &mut Data::User(buffer));
            return Ok(Ticket::DONE);
        }
        let peer = known(&mut self.peers, self.rank);
        let bytes = buffer.bytes();
        if mode != Mode::Synchronous && peer.lane.affords(bytes, &peer.route) {
            peer.lane.charge(bytes);
            self.state
                .unexpected
                .push(envelope, Message::filled(bytes, &mut self.state.spares, |to| buffer.pack(0, to)));
            return Ok(Ticket::DONE);
        }
        let (data, detached) = self.keep(mode, context, buffer)?;
        let stage = SendStage {
            peer: self.rank,
            envelope,
            synchronous: mode == Mode::Synchronous,
            progress: SendProgress::Offered,
        };
        let ours = self.state.open_send(Request::send(stage, data, detached));
        self.state.unexpected.push(envelope, Message::Loopback { ours });
        Ok(if detached { Ticket::DONE } else { Ticket(ours) })
    }
}

impl State {
    /// Gives a receive the bytes of a send of ours that waited for it, and ends both.
    pub(crate) fn copy_loopback(&mut self, send: u64, receive: u64, envelope: Envelope) {
        let waiting = self.requests.get_mut(send).expect("a send to ourselves waits until it is received");
        let mut data = std::mem::replace(&mut waiting.data, Data::None);
        self.land_own(receive, envelope, &mut data);
        self.requests.get_mut(send).expect("nothing ended it meanwhile").data = data;
        self.complete(send);
    }
}
