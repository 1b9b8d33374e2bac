// SPDX-License-Identifier: BSD-3-Clause
//! Probes: looking at a message before receiving it, and taking it out of the queue (MPI 5.0, section 3.8).

use crate::message::Message;
use crate::outcome::Ticket;
use crate::request::Request;
use crate::state::{Matcher, P2p};
use datatype::Buffer;
use matching::{Envelope, Pattern};

/// A message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The peer that sent it.
    pub source_peer: u32,
    /// Its tag.
    pub tag: i32,
    /// Its length.
    pub bytes: u64,
}

/// Names a message that a matched probe has taken (an MPI_Message).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageTicket(u64);

impl P2p {
    /// The message that a receive would take now.
    pub fn iprobe(&self, context: u64, source: Option<u32>, tag: Option<i32>) -> Option<Probe> {
        let pattern = Pattern { context, source, tag };
        self.matcher
            .unexpected
            .peek(&pattern)
            .map(|(envelope, message)| self.matcher.describe(envelope, message))
    }

    /// Takes that message out of the queue: only `imrecv` with this ticket can receive it.
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

    /// Takes every message of the contexts that `drops` names out of the queue and drops it: this process
    /// will start no receive any more. Returns the messages with their contexts. What is still to come of a
    /// message is received without keeping a byte.
    pub fn drain(&mut self, drops: impl Fn(u64) -> bool) -> Vec<(u64, Probe)> {
        let mut drained = Vec::new();
        while !self.matcher.unexpected.is_empty()
            && let Some((envelope, message)) =
                self.matcher.unexpected.take_named(|envelope, _| drops(envelope.context))
        {
            drained.push((envelope.context, self.matcher.describe(&envelope, &message)));
            let ours = self.matcher.requests.insert(Request::receive(Buffer::EMPTY));
            self.deliver(ours, envelope, message);
            self.free(Ticket(ours));
        }
        drained
    }

    /// Starts the receive of a message that `improbe` took; `None` if it was received already.
    pub fn imrecv(&mut self, message: MessageTicket, buffer: Buffer) -> Option<Ticket> {
        let (envelope, message) = self.matcher.messages.remove(message.0)?;
        let ours = self.matcher.requests.insert(Request::receive(buffer));
        self.deliver(ours, envelope, message);
        Some(Ticket(ours))
    }
}

impl Matcher {
    pub(crate) fn describe(&self, envelope: &Envelope, message: &Message) -> Probe {
        let bytes = match message {
            Message::Short { bytes, .. } => u64::from(*bytes),
            Message::Long { bytes, .. } => *bytes as u64,
            Message::Pieces(early) => self.early.get(*early).map_or(0, |early| early.bytes as u64),
            Message::Offer(offer) => offer.bytes,
            Message::Loopback { ours } => self.requests.get(*ours).map_or(0, |send| send.data.bytes() as u64),
        };
        Probe { source_peer: envelope.source, tag: envelope.tag, bytes }
    }
}
