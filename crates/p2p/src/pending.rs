// SPDX-License-Identifier: BSD-3-Clause
//! Operations and messages of a process that have not ended, for the report of what a program left
//! unfinished.

use crate::probe::Probe;
use crate::request::{RequestStage, SendProgress};
use crate::state::P2p;
use matching::{Envelope, Pattern};

/// An operation that has not ended, or a message that no receive has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingOperation {
    /// A receive that no message has matched, in the order posted.
    Receive {
        /// Context, source and tag of the messages that the receive takes.
        pattern: Pattern,
        /// The length of the receive's buffer in bytes.
        capacity: usize,
    },
    /// A message that no receive has matched, in the order of arrival.
    Message {
        /// The context of the comm in which the message was sent.
        context: u64,
        /// The message's sender, tag and length.
        probe: Probe,
    },
    /// A send that has not ended.
    Send {
        /// The peer to which the message is sent.
        dest_peer: u32,
        /// The message's context and tag; its source is this process.
        envelope: Envelope,
        /// The message's length in bytes.
        bytes: usize,
        /// Whether a receive at the peer has matched the message.
        matched: bool,
    },
    /// A receive that has matched and whose bytes are on their way.
    Transfer {
        /// The peer that sends the message.
        source_peer: u32,
        /// The message's tag.
        tag: i32,
        /// The number of the message's bytes that have not come yet.
        left: u64,
    },
}

impl P2p {
    /// Lists what has not ended: receives in the order posted, unexpected messages in the order of arrival,
    /// then sends and matched receives in no order.
    pub fn pending(&self) -> Vec<PendingOperation> {
        let matcher = &self.matcher;
        let posted = self
            .waiting_receives()
            .map(|(_, pattern, capacity)| PendingOperation::Receive { pattern, capacity });
        let unexpected = matcher.unexpected.iter().map(|(envelope, message)| PendingOperation::Message {
            context: envelope.context,
            probe: matcher.describe(envelope, message),
        });
        let moving = matcher.requests.values().filter_map(|request| match &request.stage {
            RequestStage::Send(send) => Some(PendingOperation::Send {
                dest_peer: send.peer,
                envelope: send.envelope,
                bytes: request.data.bytes(),
                matched: matches!(send.progress, SendProgress::Streaming { .. }),
            }),
            RequestStage::Pulling(pulling) => Some(PendingOperation::Transfer {
                source_peer: request.outcome.source_peer,
                tag: request.outcome.tag,
                left: pulling.left(),
            }),
            RequestStage::Reading { next, end, .. }
            | RequestStage::Filling { next, end, .. }
            | RequestStage::Gathering { next, end, .. } => Some(PendingOperation::Transfer {
                source_peer: request.outcome.source_peer,
                tag: request.outcome.tag,
                left: end - next,
            }),
            RequestStage::Offloaded(_) => Some(PendingOperation::Transfer {
                source_peer: request.outcome.source_peer,
                tag: request.outcome.tag,
                left: request.outcome.bytes as u64,
            }),
            RequestStage::Done | RequestStage::Posted(_) | RequestStage::Expecting(_) => None,
        });
        posted.chain(unexpected).chain(moving).collect()
    }
}
