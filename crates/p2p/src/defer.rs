// SPDX-License-Identifier: BSD-3-Clause
//! Deferred receives, which have started and are not in the posted queue yet: starting them, taking their
//! messages, posting them. `deferred.rs` has the table.
//!
//! | state (`UnpostedState`) | who moves a receive there |
//! |---|---|
//! | `Waiting` | `defer` enters the receive; its number makes its ticket |
//! | `Arrived` | `take_packets_for_deferred` copies a whole message into the buffer (`FirstDeferred::land`) |
//! | `Started` | `post_deferred` posts all that wait, or a first piece comes (`FirstDeferred::claim`); |
//! | | then a request has the state, and `request_ticket` gives the request's ticket |
//! | `Forgotten` | `take_arrived` (fast path, only from `Arrived`) or `take_deferred` returns the |
//! | | outcome; or `detach_ticket` (MPI_Request_free) detaches the operation |

use crate::consume::{AwaitingReceives, fits};
use crate::deferred::{DEFERRED_MAX, DeferredReceive, DeferredReceives, UnpostedState};
use crate::outcome::{Arrived, Outcome, Ticket};
use crate::request::Request;
use crate::state::{Matcher, P2p};
use matching::{Envelope, Pattern};
use sys::Span;
use transport::route::Taken;

/// The deferred receives numbered from `at` to before `end`, which all wait for messages. A peer's next
/// messages go to them in this order.
struct FirstDeferred<'a> {
    entries: &'a mut [DeferredReceive; DEFERRED_MAX],
    at: u64,
    end: u64,
}

impl FirstDeferred<'_> {
    /// Returns the deferred receive with the number `at`, which waits longest, if it takes a message with
    /// this envelope; None if it does not.
    #[inline(always)]
    fn fitting(&mut self, envelope: &Envelope) -> Option<&mut DeferredReceive> {
        let receive = &mut self.entries[self.at as usize % DEFERRED_MAX];
        let is_it = receive.source == envelope.source && fits(receive.context, receive.tag, envelope);
        is_it.then_some(receive)
    }
}

impl AwaitingReceives for FirstDeferred<'_> {
    const KEEPS_UNEXPECTED: bool = false;

    #[inline(always)]
    fn land(&mut self, _: &mut Matcher, envelope: &Envelope, message: Span) -> Taken {
        let Some(receive) = self.fitting(envelope) else { return Taken::No };
        let taken = message.bytes().min(receive.span.bytes());
        message.slice(0, taken).copy_to(receive.span.slice(0, taken));
        receive.state = UnpostedState::Arrived(Arrived::new(message.bytes(), envelope.tag));
        self.at += 1;
        if self.at < self.end { Taken::More } else { Taken::Last }
    }

    fn claim(&mut self, matcher: &mut Matcher, envelope: &Envelope) -> Option<u64> {
        let receive = self.fitting(envelope)?;
        let ours = matcher.requests.insert(Request::receive(receive.span.into()));
        receive.state = UnpostedState::Started(ours);
        self.at += 1;
        Some(ours)
    }

    fn is_done(&self) -> bool {
        self.at == self.end
    }
}

impl P2p {
    /// Enters a receive into the table of deferred receives. Returns its number, from which
    /// `Ticket::deferred` makes its ticket. Returns None if the receive must be posted instead.
    #[inline(always)]
    pub fn defer(&mut self, context: u64, source: u32, tag: Option<i32>, span: Span) -> Option<u64> {
        let unheard = || self.matcher.posted.is_empty() && self.matcher.unexpected.is_empty();
        let may = self.deferred.is_waiting() || unheard();
        // A message of this process to itself never becomes a packet.
        (may && self.deferred.has_room() && source != self.rank)
            .then(|| self.deferred.push(context, source, tag, span))
    }

    /// Posts all deferred receives that wait, in order. Every function that posts a receive or polls packets
    /// calls this first.
    #[inline(always)]
    pub(crate) fn post_deferred(&mut self) {
        if self.deferred.is_waiting() {
            self.post_all_deferred();
        }
    }

    #[cold]
    fn post_all_deferred(&mut self) {
        for number in self.deferred.waiting..self.deferred.next {
            let DeferredReceive { context, source, tag, span, .. } = *self.deferred.entry(number);
            let Ticket(posted) = self.post(Pattern { context, source: Some(source), tag }, span.into());
            self.deferred.entry(number).state = UnpostedState::Started(posted);
        }
        self.deferred.waiting = self.deferred.next;
    }

    /// Returns the tag and the length of the message if it has come whole for this deferred receive and fits
    /// its buffer, and frees the ticket. Returns None in every other case: the caller then calls `take`.
    #[inline(always)]
    pub fn take_arrived(&mut self, ticket: Ticket) -> Option<(i32, u64)> {
        let number = self.deferred.number(ticket)?;
        let entry = self.deferred.entry(number);
        let UnpostedState::Arrived(arrived) = entry.state else { return None };
        if arrived.bytes() > entry.span.bytes() {
            return None;
        }
        self.deferred.free_entry(number);
        Some((arrived.tag(), arrived.bytes() as u64))
    }

    /// Returns how a deferred receive has ended, and frees its ticket; None if it has not ended. If the
    /// receive still waits, first takes packets for it.
    #[inline(always)] // So that the outcome is not copied.
    pub(crate) fn take_deferred(&mut self, ticket: Ticket) -> Option<Outcome> {
        let number = self.deferred.number(ticket)?;
        if number >= self.deferred.waiting {
            self.take_packets_for_deferred();
        }
        let entry = self.deferred.entry(number);
        let outcome = match entry.state {
            UnpostedState::Started(posted) => self.take_posted(posted)?,
            _ => entry.outcome()?,
        };
        self.deferred.free_entry(number);
        Some(outcome)
    }

    /// Takes packets from the peer of the longest waiting deferred receive, for this receive and the receives
    /// after it.
    #[inline(never)]
    fn take_packets_for_deferred(&mut self) {
        let DeferredReceives { entries, waiting, next, .. } = &mut self.deferred;
        let source = entries[*waiting as usize % DEFERRED_MAX].source;
        let Some(Some(peer)) = self.peers.get_mut(source as usize) else { return };
        let first = FirstDeferred { entries, at: *waiting, end: *next };
        let (first, _) = peer.take_for_unposted(&mut self.matcher, first);
        *waiting = first.at;
    }

    /// Returns the ticket of an operation's request. Deferred receives get a request late, with a ticket of
    /// its own; other operations have one from the start, with the ticket `ticket`. Returns None if a
    /// deferred receive has no request.
    #[inline(always)]
    pub(crate) fn request_ticket(&self, ticket: Ticket) -> Option<u64> {
        if ticket.is_deferred() { self.deferred.request_ticket(ticket) } else { Some(ticket.0) }
    }

    /// Detaches an operation from its ticket, for MPI_Request_free. Returns the ticket of its request; None
    /// if the operation has no request.
    pub(crate) fn detach_ticket(&mut self, ticket: Ticket) -> Option<u64> {
        self.post_deferred();
        let posted = self.request_ticket(ticket);
        if let Some(number) = self.deferred.number(ticket) {
            self.deferred.free_entry(number);
        }
        posted
    }
}
