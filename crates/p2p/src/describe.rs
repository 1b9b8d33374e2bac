// SPDX-License-Identifier: BSD-3-Clause
//! Descriptions of operations that have not ended, for people: in a deadlock report, and before a program
//! ends while operations are left.

use crate::outcome::Ticket;
use crate::request::{Request, RequestStage, SendProgress};
use crate::state::P2p;
use matching::Pattern;

/// What people are told about one operation that has not ended, or about one message that no receive has
/// matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationReport {
    /// How far the operation has come.
    pub what: OperationState,
    /// The context of the operation's comm; None for a receive that has matched a message, since its context
    /// is no longer stored.
    pub context: Option<u64>,
    /// The peer from which the operation receives or to which it sends, by its number in the job; None for
    /// MPI_ANY_SOURCE.
    pub peer: Option<u32>,
    /// The tag of the message or receive; None for MPI_ANY_TAG.
    pub tag: Option<i32>,
    /// The length of the message in bytes. For a receive that no message has matched, the length of its
    /// buffer.
    pub bytes: u64,
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationState {
    /// It is a receive that no message has matched.
    Posted,
    /// It is a receive whose message has matched and whose bytes are under way.
    Receiving,
    /// It is a send that waits for room in the ring.
    Queued,
    /// It is a send that was offered to the receiver, where no receive has matched it.
    Offered,
    /// It is a send whose bytes are under way.
    Sending,
    /// It is a message that has come and that no receive has matched.
    Unexpected,
}

impl P2p {
    /// Describes the operation with this ticket; None if it has ended.
    pub fn describe(&self, ticket: Ticket) -> Option<OperationReport> {
        let ticket = self.request_ticket(ticket).map_or(ticket, Ticket);
        match self.matcher.requests.get(ticket.0) {
            Some(request)
                if !matches!(request.stage, RequestStage::Posted(_) | RequestStage::Expecting(_)) =>
            {
                under_way(request)
            }
            _ => self.posted().find(|(other, _)| *other == ticket).map(|(_, posted)| posted),
        }
    }

    /// Describes all receives and sends that have not ended, and then all messages that have come and that no
    /// receive has matched.
    pub fn operations(&self) -> Vec<OperationReport> {
        let moving = self.matcher.requests.values().filter_map(under_way);
        let unexpected = self.matcher.unexpected.iter().map(|(envelope, message)| OperationReport {
            what: OperationState::Unexpected,
            context: Some(envelope.context),
            peer: Some(envelope.source),
            tag: Some(envelope.tag),
            bytes: self.matcher.describe(envelope, message).bytes,
        });
        self.posted().map(|(_, posted)| posted).chain(moving).chain(unexpected).collect()
    }

    fn posted(&self) -> impl Iterator<Item = (Ticket, OperationReport)> {
        self.waiting_receives().map(|(ticket, pattern, bytes)| {
            let Pattern { context, source: peer, tag } = pattern;
            let operation = OperationReport {
                what: OperationState::Posted,
                context: Some(context),
                peer,
                tag,
                bytes: bytes as u64,
            };
            (ticket, operation)
        })
    }

    /// Lists the receives that no message has matched, in the order of their posting: the ticket of each,
    /// which messages it takes, and the length of its buffer.
    pub(crate) fn waiting_receives(&self) -> impl Iterator<Item = (Ticket, Pattern, usize)> {
        let capacity =
            |ticket: u64| self.matcher.requests.get(ticket).map_or(0, |request| request.data.bytes());
        let posted = self.matcher.posted.iter();
        posted
            .map(move |(pattern, &ticket)| (Ticket(ticket), *pattern, capacity(ticket)))
            .chain(self.deferred.waiting())
    }
}

/// Describes a send, or a receive that has matched a message. Returns None if the operation has ended, or is
/// a receive that waits for a message.
fn under_way(request: &Request) -> Option<OperationReport> {
    match &request.stage {
        RequestStage::Done | RequestStage::Posted(_) | RequestStage::Expecting(_) => None,
        RequestStage::Send(send) => Some(OperationReport {
            what: match send.progress {
                SendProgress::Queued | SendProgress::Offloaded { has_left: false, .. } => {
                    OperationState::Queued
                }
                SendProgress::Offloaded { .. } | SendProgress::Offered => OperationState::Offered,
                SendProgress::InPieces { .. } | SendProgress::Streaming { .. } => OperationState::Sending,
            },
            context: Some(send.envelope.context),
            peer: Some(send.peer),
            tag: Some(send.envelope.tag),
            bytes: request.data.bytes() as u64,
        }),
        RequestStage::Offloaded(_)
        | RequestStage::Reading { .. }
        | RequestStage::Filling { .. }
        | RequestStage::Gathering { .. }
        | RequestStage::Pulling(_) => Some(OperationReport {
            what: OperationState::Receiving,
            context: None,
            peer: Some(request.outcome.source_peer),
            tag: Some(request.outcome.tag),
            bytes: request.outcome.bytes as u64,
        }),
    }
}
