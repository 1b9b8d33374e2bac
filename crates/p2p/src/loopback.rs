// SPDX-License-Identifier: BSD-3-Clause
//! Messages of a process to itself. They are matched like others, but without packets. A long message is
//! copied once, from buffer to buffer.

use crate::data::MessageData;
use crate::message::UnexpectedMessage;
use crate::outcome::{Mode, Ticket};
use crate::protocol::Protocol;
use crate::request::{Request, SendProgress, SendStage};
use crate::state::{Matcher, P2p, connection};
use datatype::Buffer;
use error::Result;
use matching::Envelope;
use telemetry::Counter;

impl P2p {
    /// Starts a send from this process to itself, and returns its ticket. The send ends at once if its
    /// receive is posted, or if the message is short enough to be copied into the unexpected queue.
    #[cold]
    pub(crate) fn isend_loopback(
        &mut self,
        mode: Mode,
        protocol: Protocol,
        context: u64,
        tag: i32,
        buffer: Buffer,
    ) -> Result<Ticket> {
        let (envelope, bytes) = (Envelope { context, source: self.rank, tag }, buffer.bytes());
        self.matcher.count(Counter::OwnMessages, Counter::OwnBytes, bytes);
        if let Some(receive) = self.matcher.posted.take(&envelope) {
            self.matcher.land_loopback(receive, envelope, &mut MessageData::User(buffer));
            return Ok(Ticket::DONE);
        }
        let peer = connection(&mut self.peers, self.rank);
        if protocol != Protocol::Offer && peer.lane.has_credit(bytes, &peer.route) {
            peer.lane.charge(bytes);
            let message = UnexpectedMessage::filled(bytes, &mut self.matcher.spares, |to| buffer.save(0, to));
            self.matcher.unexpected.push(envelope, message);
            return Ok(Ticket::DONE);
        }
        let (data, detached) = self.send_data(mode, context, buffer)?;
        let stage = SendStage {
            peer: self.rank,
            envelope,
            protocol,
            progress: SendProgress::Offered,
            counted: false,
            exposed: None,
        };
        let ours = self.matcher.open_send(Request::send(stage, data, detached));
        self.matcher.unexpected.push(envelope, UnexpectedMessage::Loopback { ours });
        Ok(if detached { Ticket::DONE } else { Ticket(ours) })
    }
}

impl Matcher {
    /// Copies a message from this process's send `send` to its receive `receive`, and ends both.
    pub(crate) fn copy_loopback(&mut self, send: u64, receive: u64, envelope: Envelope) {
        let waiting = self.requests.get_mut(send).expect("a send to ourselves waits until it is received");
        let mut data = std::mem::replace(&mut waiting.data, MessageData::None);
        self.land_loopback(receive, envelope, &mut data);
        self.requests.get_mut(send).expect("nothing ended it meanwhile").data = data;
        self.complete(send);
    }
}
