// SPDX-License-Identifier: BSD-3-Clause
//! Lists the operations of a process that have not ended and the messages that wait, for the report of what a
//! program has left unfinished.

use crate::probe::Probe;
use crate::request::{RequestStage, SendProgress};
use crate::state::P2p;
use matching::{Envelope, Pattern};

/// An operation that has not ended, or a message that no receive has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingOperation {
    /// A receive that no message has matched. Such receives are listed in the order of posting.
    Receive {
        /// Which messages the receive takes: their context, source and tag.
        pattern: Pattern,
        /// The length of the receive's buffer in bytes.
        capacity: usize,
    },
    /// A message that has come and that no receive has matched. Such messages are listed in the order of
    /// arrival.
    Message {
        /// The context of the comm to which the message belongs.
        context: u64,
        /// The message's sender, tag and length.
        probe: Probe,
    },
    /// A send that has not ended.
    Send {
        /// The peer to which the message is sent.
        dest_peer: u32,
        /// The context and tag of the message, and its source, which is this process.
        envelope: Envelope,
        /// The message's length in bytes.
        bytes: usize,
        /// Whether a receive of the peer has matched the message, as far as this process knows.
        matched: bool,
    },
    /// A receive that has matched a message whose bytes are under way.
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
    /// Lists what has not ended: first receives in the order of posting, then unexpected messages in the
    /// order of arrival, then sends and matched receives in no order.
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
