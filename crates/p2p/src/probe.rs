// SPDX-License-Identifier: BSD-3-Clause
//! Probes: they look at a message before it is received. A matched probe also takes it out of the queue (MPI
//! 5.0, section 3.8).

use crate::message::UnexpectedMessage;
use crate::outcome::Ticket;
use crate::request::Request;
use crate::state::{Matcher, P2p};
use datatype::Buffer;
use matching::{Envelope, Pattern};

/// What a probe tells about a message that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The peer that sent the message.
    pub source_peer: u32,
    /// The message's tag.
    pub tag: i32,
    /// The message's length in bytes.
    pub bytes: u64,
}

/// Names a message that a matched probe has taken, until `imrecv` receives it (an MPI_Message).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageTicket(u64);

impl P2p {
    /// Returns what is known of the message that a receive with these arguments would take now. Returns None
    /// if there is no such message. A source or tag of None matches any.
    pub fn iprobe(&self, context: u64, source: Option<u32>, tag: Option<i32>) -> Option<Probe> {
        let pattern = Pattern { context, source, tag };
        self.matcher
            .unexpected
            .peek(&pattern)
            .map(|(envelope, message)| self.matcher.describe(envelope, message))
    }

    /// Removes from the unexpected queue the message that a receive with these arguments would take
    /// (MPI_Improbe). Only `imrecv` with the returned ticket receives the message. Returns None if there is
    /// no such message.
    pub fn improbe(
        &mut self,
        context: u64,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Option<(MessageTicket, Probe)> {
        let (envelope, message) = self.matcher.unexpected.take(&Pattern { context, source, tag })?;
        let probe = self.matcher.describe(&envelope, &message);
        Some((MessageTicket(self.matcher.messages.insert((envelope, message))), probe))
    }

    /// Drops every unexpected message whose context `drops` accepts. Returns each message's context and what
    /// a probe tells about it. Bytes of it that come later are received and dropped. This process must start
    /// no receive in these contexts any more.
    pub fn drain(&mut self, drops: impl Fn(u64) -> bool) -> Vec<(u64, Probe)> {
        let mut drained = Vec::new();
        while !self.matcher.unexpected.is_empty()
            && let Some((envelope, message)) =
                self.matcher.unexpected.take_where(|envelope, _| drops(envelope.context))
        {
            drained.push((envelope.context, self.matcher.describe(&envelope, &message)));
            let ours = self.matcher.requests.insert(Request::receive(Buffer::EMPTY));
            self.deliver(ours, envelope, message);
            self.free(Ticket(ours));
        }
        drained
    }

    /// Starts the receive of a message that `improbe` has taken. Returns None if the message was received
    /// before.
    pub fn imrecv(&mut self, message: MessageTicket, buffer: Buffer) -> Option<Ticket> {
        let (envelope, message) = self.matcher.messages.remove(message.0)?;
        let ours = self.matcher.requests.insert(Request::receive(buffer));
        self.deliver(ours, envelope, message);
        Some(Ticket(ours))
    }
}

impl Matcher {
    pub(crate) fn describe(&self, envelope: &Envelope, message: &UnexpectedMessage) -> Probe {
        let bytes = match message {
            UnexpectedMessage::Short { bytes, .. } => u64::from(*bytes),
            UnexpectedMessage::Long { bytes, .. } => *bytes as u64,
            UnexpectedMessage::Pieces(early) => self.early.get(*early).map_or(0, |early| early.bytes as u64),
            UnexpectedMessage::Offer(offer) => offer.bytes,
            UnexpectedMessage::Loopback { ours } => {
                self.requests.get(*ours).map_or(0, |send| send.data.bytes() as u64)
            }
        };
        Probe { source_peer: envelope.source, tag: envelope.tag, bytes }
    }
}
