// SPDX-License-Identifier: BSD-3-Clause
//! Cancelling (MPI 5.0, section 3.8.4): an operation that has not matched ends without a message; any other
//! completes.
//!
//! A posted receive, and a send whose first packet has not left, are cancelled at once. For a send that was
//! offered, the sender recalls the offer: the receiver sends RETURNED if no receive has matched the offer;
//! otherwise the send continues. An eager send whose bytes have left is already complete.

use crate::lane::{Lane, OutgoingPacket};
use crate::message::UnexpectedMessage;
use crate::outcome::Ticket;
use crate::request::{RequestStage, SendProgress};
use crate::state::{Matcher, P2p, connection};
use error::{Class, Result, fail};

impl P2p {
    /// Cancels an operation that has not matched; one that has matched goes on. `Outcome::cancelled` says
    /// later which was the case. The caller has withdrawn every executor that waits for the message
    /// (`receives_depending_on`, `withdraw_executor`).
    pub fn cancel(&mut self, ticket: Ticket) {
        self.post_deferred();
        let Some(ticket) = self.request_ticket(ticket) else { return };
        let Some(request) = self.matcher.requests.get(ticket) else { return };
        match &request.stage {
            RequestStage::Posted(entry) => {
                self.matcher.posted.remove(*entry);
                self.matcher.end_cancelled(ticket);
            }
            RequestStage::Send(send) if send.peer == self.rank => self.matcher.cancel_loopback(ticket),
            RequestStage::Send(send) => {
                let (number, progress, counted) = (send.peer, send.progress, send.counted);
                let lane = &mut connection(&mut self.peers, number).lane;
                match progress {
                    // The receiver counts this message, so the message must leave; an eager message cannot be
                    // recalled.
                    SendProgress::Queued if counted => (),
                    SendProgress::Queued => {
                        lane.drop_message(ticket);
                        self.matcher.end_cancelled(ticket);
                    }
                    SendProgress::Offered | SendProgress::Offloaded { .. } => {
                        lane.push(OutgoingPacket::Recall { ours: ticket });
                        self.flush(number);
                    }
                    SendProgress::InPieces { .. } | SendProgress::Streaming { .. } => (),
                }
            }
            _ => (),
        }
    }
}

impl Matcher {
    /// Handles a RECALL, by which the peer takes back the offer of its send `theirs`: drops the offer and
    /// sends RETURNED, unless a receive has matched the offer.
    pub(crate) fn consume_recall(&mut self, lane: &mut Lane, theirs: u64) {
        let peer = lane.number;
        let is_it = |message: &UnexpectedMessage| match message {
            UnexpectedMessage::Offer(offer) => offer.theirs == theirs,
            _ => false,
        };
        if self.unexpected.take_where(|envelope, message| envelope.source == peer && is_it(message)).is_some()
        {
            lane.push(OutgoingPacket::Returned { theirs });
        }
    }

    /// Handles a RETURNED for this process's send `ours`: the peer has dropped the offer, so the send ends as
    /// cancelled.
    pub(crate) fn consume_returned(&mut self, lane: &mut Lane, ours: u64) -> Result<()> {
        if self.is_announced(ours, lane.number) {
            self.abandon(ours);
            return Ok(());
        }
        let offered = self.offered(ours, lane.number);
        if offered.is_none_or(|request| request.sending().progress != SendProgress::Offered) {
            let peer = lane.number;
            fail!(Class::Intern, "peer {peer} returned a message that we did not offer (ticket {ours:#x})")
        }
        self.end_cancelled(ours);
        Ok(())
    }

    /// Cancels this process's send `ours` to itself, if no receive has taken its message.
    fn cancel_loopback(&mut self, ours: u64) {
        let is_it = |message: &UnexpectedMessage| match message {
            UnexpectedMessage::Loopback { ours: other } => *other == ours,
            _ => false,
        };
        if self.unexpected.take_where(|_, message| is_it(message)).is_some() {
            self.end_cancelled(ours);
        }
    }

    fn end_cancelled(&mut self, ticket: u64) {
        self.requests.get_mut(ticket).expect("it was just found").outcome.cancelled = true;
        self.complete(ticket);
    }
}
