// SPDX-License-Identifier: BSD-3-Clause
//! Cancelling (MPI 5.0, section 3.8.4): an operation that has not matched ends without a message; any other
//! completes.
//!
//! A receive is taken back at once, and so is a send whose packet has not left. An offer is recalled: the
//! peer returns it, or it was matched there and the send goes on. A send whose bytes left eagerly is complete
//! already.

use crate::lane::{Lane, Outgoing};
use crate::message::Message;
use crate::outcome::Ticket;
use crate::request::{SendProgress, Stage};
use crate::state::{Matcher, P2p, known};
use error::{Class, Result, fail};

impl P2p {
    /// Cancels an operation if it has not matched. `Outcome::cancelled` tells whether it was in time, for a
    /// send perhaps later. No executor may wait for its message any more (`depending`, `withdrawn`).
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
                    // The receiver counts it, so it leaves; what is eager is not asked back.
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
    /// RECALL: the peer wants its offer back. It gets it unless the offer was matched.
    pub(crate) fn recalled(&mut self, lane: &mut Lane, theirs: u64) {
        let peer = lane.number;
        let is_it = |message: &Message| matches!(message, Message::Offer(offer) if offer.theirs == theirs);
        if self.unexpected.take_named(|envelope, message| envelope.source == peer && is_it(message)).is_some()
        {
            lane.push(Outgoing::Returned { theirs });
        }
    }

    /// RETURNED: our send has ended, and its message was not received.
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

    /// Takes back a send to ourselves that was not received.
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
