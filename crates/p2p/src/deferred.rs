// SPDX-License-Identifier: BSD-3-Clause
//! Receives that are not posted yet.
//!
//! While no receive is posted and no message is unexpected, a receive from one peer is only noted here. A
//! process that then asks for one of them takes what has come for the first and those after it, straight into
//! their buffers (`defer.rs`): nothing is matched, and no request is made.
//!
//! Invariant: while a receive waits here, none is posted, and no message of its peer is unexpected. So these
//! are posted, in their order (`P2p::settle`), before another receive is posted or packets are polled.

use crate::outcome::{Arrived, Outcome, Ticket};
use matching::Pattern;
use sys::Span;

/// The most that are noted, with those that were posted meanwhile and not taken.
pub const DEFERRED_MAX: usize = 128;
/// The lower half of a ticket from here. Only `Ticket::DONE` has it, too, and its upper half is none of
/// `NUMBERS`.
const MARK: u64 = u32::MAX as u64;
/// The upper half of a ticket is the receive's number modulo this.
pub const NUMBERS: u64 = 1 << 21;

/// The receives, by number.
pub(crate) struct Deferred {
    pub(crate) entries: Box<[DeferredReceive; DEFERRED_MAX]>,
    /// All before `first` are forgotten. `waiting` is the first that waits, `next` the one to come.
    pub(crate) first: u64,
    pub(crate) waiting: u64,
    pub(crate) next: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct DeferredReceive {
    pub(crate) context: u64,
    pub(crate) source: u32,
    pub(crate) tag: Option<i32>,
    pub(crate) span: Span,
    pub(crate) direct: Direct,
}

/// What has become of a receive that is not in the posted queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direct {
    /// It waits for its message.
    Waiting,
    /// Its message came.
    Arrived(Arrived),
    /// It has this ticket.
    Started(u64),
    /// Its ticket is not used any more.
    Forgotten,
}

impl Deferred {
    pub(crate) fn new() -> Deferred {
        let entry = DeferredReceive {
            context: 0,
            source: 0,
            tag: None,
            span: Span::EMPTY,
            direct: Direct::Forgotten,
        };
        Deferred { entries: Box::new([entry; DEFERRED_MAX]), first: 0, waiting: 0, next: 0 }
    }

    /// Whether a receive waits here.
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
        while self.first < self.waiting && self.entry(self.first).direct == Direct::Forgotten {
            self.first += 1;
        }
        self.next - self.first < DEFERRED_MAX as u64
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, context: u64, source: u32, tag: Option<i32>, span: Span) -> u64 {
        let number = self.next;
        self.next += 1;
        *self.entry(number) = DeferredReceive { context, source, tag, span, direct: Direct::Waiting };
        number
    }

    #[inline(always)]
    pub(crate) fn entry(&mut self, number: u64) -> &mut DeferredReceive {
        &mut self.entries[number as usize % DEFERRED_MAX]
    }

    /// The number that a ticket names, if the ticket is from here and was not taken.
    #[inline(always)]
    pub(crate) fn number(&self, ticket: Ticket) -> Option<u64> {
        let number = self.first + ((ticket.0 >> 32).wrapping_sub(self.first) % NUMBERS);
        (ticket.is_deferred() && number < self.next).then_some(number)
    }

    /// The ticket under which it was posted, if it was.
    pub(crate) fn posted(&self, ticket: Ticket) -> Option<u64> {
        let entry = &self.entries[self.number(ticket)? as usize % DEFERRED_MAX];
        if let Direct::Started(posted) = entry.direct { Some(posted) } else { None }
    }

    /// How it ended, if its message was taken here.
    pub(crate) fn arrived(&self, ticket: Ticket) -> Option<Outcome> {
        self.entries[self.number(ticket)? as usize % DEFERRED_MAX].outcome()
    }

    /// Its ticket is not used any more, and it does not wait.
    #[inline(always)]
    pub(crate) fn forget(&mut self, number: u64) {
        self.entry(number).direct = Direct::Forgotten;
    }

    /// The receives that wait, with the bytes that their buffers hold.
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
        let Direct::Arrived(arrived) = self.direct else { return None };
        Some(arrived.outcome(self.source, self.span.bytes()))
    }
}

impl Ticket {
    /// The ticket of the receive that has this number, modulo `NUMBERS`. Receives that have not been taken
    /// differ even modulo `DEFERRED_MAX`.
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

    /// Goal: a ticket names its receive although it holds only part of the number, and nothing once that was
    /// taken.
    #[test]
    fn numbers_go_on_where_tickets_begin_anew() {
        let mut deferred = Deferred::new();
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
                deferred.forget(before + over);
                taken.push(before + over);
            }
        }
        deferred.make_room();
        assert!(taken.into_iter().all(|number| deferred.number(Ticket::deferred(number)).is_none()));
    }
}
