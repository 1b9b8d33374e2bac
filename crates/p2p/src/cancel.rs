// SPDX-License-Identifier: BSD-3-Clause
//! Cancelling (MPI 5.0, section 3.8.4): an operation that has not matched ends without a message; any other
//! completes.
//!
//! A posted receive, and a send whose first packet has not left, are cancelled at once. An offer is recalled:
//! the receiver returns the offer, unless it has matched; then the send continues. An eager send whose bytes
//! have left is already complete.

use crate::lane::{Lane, Outgoing};
use crate::message::Message;
use crate::outcome::Ticket;
use crate::request::{SendProgress, Stage};
use crate::state::{Matcher, P2p, known};
use error::{Class, Result, fail};

impl P2p {
    /// Cancels an operation if it has not matched. `Outcome::cancelled` says later whether it was in time.
    /// The caller first makes sure that no executor waits for the operation's message (`depending`,
    /// `withdrawn`).
    pub fn cancel(&mut self, ticket: Ticket) {
        self.settle();
        let Some(ticket) = self.posted_ticket(ticket) else { return };
        let Some(request) = self.matcher.requests.get(ticket) else { return };
        match &request.stage {
            Stage::Posted(entry) => {
                self.matcher.posted.remove(*entry);
                self.matcher.end_cancelled(ticket);
            }
            Stage::Send(send) if send.peer == self.rank => self.matcher.withdraw_own(ticket),
            Stage::Send(send) => {
                let (number, progress, counted) = (send.peer, send.progress, send.counted);
                let lane = &mut known(&mut self.peers, number).lane;
                match progress {
                    // The receiver counts this message, so the message must leave; an eager message cannot be
                    // recalled.
                    SendProgress::Queued if counted => (),
                    SendProgress::Queued => {
                        lane.drop_message(ticket);
                        self.matcher.end_cancelled(ticket);
                    }
                    SendProgress::Offered | SendProgress::Handed { .. } => {
                        lane.push(Outgoing::Recall { ours: ticket });
                        self.flush(number);
                    }
                    SendProgress::Begun { .. } | SendProgress::Streaming { .. } => (),
                }
            }
            _ => (),
        }
    }
}

impl Matcher {
    /// Takes a RECALL: returns the peer's offer, unless the offer has matched.
    pub(crate) fn recalled(&mut self, lane: &mut Lane, theirs: u64) {
        let peer = lane.number;
        let is_it = |message: &Message| matches!(message, Message::Offer(offer) if offer.theirs == theirs);
        if self.unexpected.take_named(|envelope, message| envelope.source == peer && is_it(message)).is_some()
        {
            lane.push(Outgoing::Returned { theirs });
        }
    }

    /// Takes a RETURNED: our send ends as cancelled, and its message was not received.
    pub(crate) fn returned(&mut self, lane: &mut Lane, ours: u64) -> Result<()> {
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

    /// Cancels a send of this process to itself, if no receive has taken the message.
    fn withdraw_own(&mut self, ours: u64) {
        let is_it =
            |message: &Message| matches!(message, Message::Loopback { ours: other } if *other == ours);
        if self.unexpected.take_named(|_, message| is_it(message)).is_some() {
            self.end_cancelled(ours);
        }
    }

    fn end_cancelled(&mut self, ticket: u64) {
        self.requests.get_mut(ticket).expect("it was just found").outcome.cancelled = true;
        self.complete(ticket);
    }
}
