// SPDX-License-Identifier: BSD-3-Clause
//! The table of deferred receives: receives that have started and are not in the posted queue yet.
//!
//! While no receive is posted and no message is unexpected, a receive from one peer is only entered here.
//! When the process asks whether this receive has ended, the peer's packets go straight into the buffers of
//! this receive and the receives after it (`defer.rs`): without matching, and without a request.
//!
//! Invariant: while a receive waits here, no receive is posted and no message of its peer is unexpected. So
//! `P2p::post_deferred` posts all that wait, in order, before another receive is posted or packets are
//! polled.

use crate::outcome::{Arrived, Outcome, Ticket};
use matching::Pattern;
use sys::Span;

/// The number of entries in the table. A receive keeps its entry until its ticket is freed, even if it has
/// been posted since.
pub const DEFERRED_MAX: usize = 128;
/// The lower half of a ticket that names a deferred receive. `Ticket::DONE` has the same lower half, but an
/// upper half that is not below `NUMBERS`.
const MARK: u64 = u32::MAX as u64;
/// The upper half of a deferred receive's ticket is the receive's number modulo this.
pub const NUMBERS: u64 = 1 << 21;

/// The table of deferred receives, numbered in the order of their start. Receive number `n` has the entry `n
/// % DEFERRED_MAX`.
pub(crate) struct DeferredReceives {
    pub(crate) entries: Box<[DeferredReceive; DEFERRED_MAX]>,
    /// The number of the oldest receive that still has an entry. The tickets of all receives before it are
    /// freed.
    pub(crate) first: u64,
    /// The number of the oldest receive that waits for its message; `next` if none waits.
    pub(crate) waiting: u64,
    /// The number that the next receive in this table gets.
    pub(crate) next: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct DeferredReceive {
    pub(crate) context: u64,
    pub(crate) source: u32,
    pub(crate) tag: Option<i32>,
    pub(crate) span: Span,
    pub(crate) state: UnpostedState,
}

/// How far a receive in this table has come. The head of `defer.rs` says who changes that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnpostedState {
    /// The receive waits for its message, and is not posted.
    Waiting,
    /// The whole message has come and lies in the buffer, so the receive has ended.
    Arrived(Arrived),
    /// The receive was posted, or a first piece of its message has come. Since then it has a request, with
    /// this ticket.
    Started(u64),
    /// The receive's ticket has been freed, so the entry may be used again.
    Forgotten,
}

impl DeferredReceives {
    pub(crate) fn new() -> DeferredReceives {
        let entry = DeferredReceive {
            context: 0,
            source: 0,
            tag: None,
            span: Span::EMPTY,
            state: UnpostedState::Forgotten,
        };
        DeferredReceives { entries: Box::new([entry; DEFERRED_MAX]), first: 0, waiting: 0, next: 0 }
    }

    /// Whether a receive in this table waits for its message.
    #[inline(always)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting != self.next
    }

    #[inline(always)]
    pub(crate) fn has_room(&mut self) -> bool {
        self.next - self.first < DEFERRED_MAX as u64 || self.make_room()
    }

    #[cold]
    fn make_room(&mut self) -> bool {
        while self.first < self.waiting && self.entry(self.first).state == UnpostedState::Forgotten {
            self.first += 1;
        }
        self.next - self.first < DEFERRED_MAX as u64
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, context: u64, source: u32, tag: Option<i32>, span: Span) -> u64 {
        let number = self.next;
        self.next += 1;
        *self.entry(number) = DeferredReceive { context, source, tag, span, state: UnpostedState::Waiting };
        number
    }

    #[inline(always)]
    pub(crate) fn entry(&mut self, number: u64) -> &mut DeferredReceive {
        &mut self.entries[number as usize % DEFERRED_MAX]
    }

    /// Returns the number of the deferred receive with this ticket; None if the ticket is not a deferred
    /// receive's, or was freed long ago.
    #[inline(always)]
    pub(crate) fn number(&self, ticket: Ticket) -> Option<u64> {
        let number = self.first + ((ticket.0 >> 32).wrapping_sub(self.first) % NUMBERS);
        (ticket.is_deferred() && number < self.next).then_some(number)
    }

    /// Returns the ticket of the request that a deferred receive has, if it was posted or has matched a
    /// message in pieces; None if it has no request.
    pub(crate) fn request_ticket(&self, ticket: Ticket) -> Option<u64> {
        let entry = &self.entries[self.number(ticket)? as usize % DEFERRED_MAX];
        if let UnpostedState::Started(posted) = entry.state { Some(posted) } else { None }
    }

    /// Returns how a deferred receive has ended, if its whole message came before it was posted; None
    /// otherwise.
    pub(crate) fn arrived(&self, ticket: Ticket) -> Option<Outcome> {
        self.entries[self.number(ticket)? as usize % DEFERRED_MAX].outcome()
    }

    /// Frees the ticket of a deferred receive that no longer waits: it has ended, or a request stands for it.
    #[inline(always)]
    pub(crate) fn free_entry(&mut self, number: u64) {
        self.entry(number).state = UnpostedState::Forgotten;
    }

    /// Lists the receives that wait here: the ticket of each, which messages it takes, and the length of its
    /// buffer.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (Ticket, Pattern, usize)> {
        (self.waiting..self.next).map(|number| {
            let DeferredReceive { context, source, tag, span, .. } =
                self.entries[number as usize % DEFERRED_MAX];
            let pattern = Pattern { context, source: Some(source), tag };
            (Ticket::deferred(number), pattern, span.bytes())
        })
    }
}

impl DeferredReceive {
    #[inline(always)]
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let UnpostedState::Arrived(arrived) = self.state else { return None };
        Some(arrived.outcome(self.source, self.span.bytes()))
    }
}

impl Ticket {
    /// Makes the ticket of deferred receive `number`. The ticket holds the number modulo `NUMBERS`. No two
    /// receives whose tickets are in use share an entry of the table.
    #[inline(always)]
    pub fn deferred(number: u64) -> Ticket {
        Ticket((number % NUMBERS) << 32 | MARK)
    }

    #[inline(always)]
    pub(crate) fn is_deferred(self) -> bool {
        self.0 & MARK == MARK && self != Ticket::DONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a ticket that holds only a part of a receive's number still names that receive, until its
    /// outcome was taken.
    #[test]
    fn numbers_go_on_where_tickets_begin_anew() {
        let mut deferred = DeferredReceives::new();
        let before = NUMBERS - 50;
        (deferred.first, deferred.waiting, deferred.next) = (before, before, before);
        let mut taken = Vec::new();
        for at in 0..3 * DEFERRED_MAX as u64 {
            assert!(deferred.has_room());
            let number = deferred.push(0, 0, None, Span::EMPTY);
            assert_eq!(number, before + at);
            let ticket = Ticket::deferred(number % NUMBERS);
            assert_eq!((ticket, deferred.number(ticket)), (Ticket::deferred(number), Some(number)));
            // All but the newest have ended.
            if let Some(over) = at.checked_sub(DEFERRED_MAX as u64 - 1) {
                deferred.waiting = deferred.next;
                deferred.free_entry(before + over);
                taken.push(before + over);
            }
        }
        deferred.make_room();
        assert!(taken.into_iter().all(|number| deferred.number(Ticket::deferred(number)).is_none()));
    }
}
