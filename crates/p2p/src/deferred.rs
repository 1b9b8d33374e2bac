//! Receives that are not posted yet. While nothing else is posted and no message waits unexpected, a receive of one peer's message is only
//! noted here. Whoever then waits for one of them takes what has come for the first, and for those after it, straight into their buffers:
//! nothing is matched, and no request is made.
//!
//! Invariants: as long as a receive waits here, none is posted, and no message of its peer is in the unexpected queue. So whatever
//! posts a receive or takes packets posts these first (`P2p::settle`), in their order.

use crate::receive::{self, Arrived, Awaiting, Direct};
use crate::request::Request;
use crate::{Matcher, Outcome, P2p, Ticket};
use matching::{Envelope, Pattern};
use sys::Span;
use transport::route::Take;

/// So many are noted at most, with those that have been posted meanwhile and not taken.
pub const DEFERRED_MAX: usize = 128;
/// The lower half of a ticket from here. No other ticket has it but `Ticket::DONE`, whose upper half is none of `NUMBERS`.
const MARK: u64 = u32::MAX as u64;
/// So many numbers are told apart by tickets: the upper half is the receive's number modulo this.
pub const NUMBERS: u64 = 1 << 21;

/// The receives, by number.
pub(crate) struct Deferred {
    entries: Box<[DeferredReceive; DEFERRED_MAX]>,
    /// Before the first all are forgotten. The first that waits; the one to come.
    first: u64,
    waiting: u64,
    next: u64,
}

#[derive(Clone, Copy)]
struct DeferredReceive {
    context: u64,
    source: u32,
    tag: Option<i32>,
    span: Span,
    direct: Direct,
}

/// The receives that wait, as the next messages of a peer find them: in their order.
struct First<'a> {
    entries: &'a mut [DeferredReceive; DEFERRED_MAX],
    at: u64,
    end: u64,
}

impl First<'_> {
    /// The first, if it takes this message.
    #[inline(always)]
    fn fitting(&mut self, envelope: &Envelope) -> Option<&mut DeferredReceive> {
        let receive = &mut self.entries[self.at as usize % DEFERRED_MAX];
        let is_it = self.at < self.end
            && receive.source == envelope.source
            && receive::fits(receive.context, receive.tag, envelope);
        is_it.then_some(receive)
    }
}

impl Awaiting for First<'_> {
    const KEEPS: bool = false;

    #[inline(always)]
    fn land(&mut self, _: &mut Matcher, envelope: &Envelope, message: Span) -> Take {
        let Some(receive) = self.fitting(envelope) else { return Take::Not };
        let taken = message.bytes().min(receive.span.bytes());
        message.slice(0, taken).copy_to(receive.span.slice(0, taken));
        receive.direct = Direct::Arrived(Arrived::new(message.bytes(), envelope.tag));
        self.at += 1;
        if self.at < self.end { Take::More } else { Take::Last }
    }

    fn claim(&mut self, matcher: &mut Matcher, envelope: &Envelope) -> Option<u64> {
        let receive = self.fitting(envelope)?;
        let ours = matcher.requests.insert(Request::receive(receive.span.into()));
        receive.direct = Direct::Started(ours);
        self.at += 1;
        Some(ours)
    }

    fn is_done(&self) -> bool {
        self.at == self.end
    }
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
    fn has_room(&mut self) -> bool {
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
    fn push(&mut self, context: u64, source: u32, tag: Option<i32>, span: Span) -> u64 {
        let number = self.next;
        self.next += 1;
        *self.entry(number) = DeferredReceive { context, source, tag, span, direct: Direct::Waiting };
        number
    }

    #[inline(always)]
    fn entry(&mut self, number: u64) -> &mut DeferredReceive {
        &mut self.entries[number as usize % DEFERRED_MAX]
    }

    /// The number that a ticket names, if it is one from here that has not been taken.
    #[inline(always)]
    fn number(&self, ticket: Ticket) -> Option<u64> {
        let number = self.first + ((ticket.0 >> 32).wrapping_sub(self.first) % NUMBERS);
        (ticket.is_deferred() && number < self.next).then_some(number)
    }

    /// The ticket under which it was posted, if it was.
    fn posted(&self, ticket: Ticket) -> Option<u64> {
        let entry = &self.entries[self.number(ticket)? as usize % DEFERRED_MAX];
        if let Direct::Started(posted) = entry.direct { Some(posted) } else { None }
    }

    /// How it ended, if its message was taken here.
    pub(crate) fn arrived(&self, ticket: Ticket) -> Option<Outcome> {
        self.entries[self.number(ticket)? as usize % DEFERRED_MAX].outcome()
    }

    /// Nobody will ask for it any more; it does not wait.
    #[inline(always)]
    fn forget(&mut self, number: u64) {
        self.entry(number).direct = Direct::Forgotten;
    }

    /// What waits, with the bytes that the buffer holds.
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
    fn outcome(&self) -> Option<Outcome> {
        let Direct::Arrived(arrived) = self.direct else { return None };
        Some(arrived.outcome(self.source, self.span.bytes()))
    }
}

impl Ticket {
    /// That of the receive to which `P2p::defer` gave this number; modulo `NUMBERS` is enough. All that have not been taken have numbers of
    /// their own, even modulo `DEFERRED_MAX`.
    #[inline(always)]
    pub fn deferred(number: u64) -> Ticket {
        Ticket((number % NUMBERS) << 32 | MARK)
    }

    #[inline(always)]
    pub(crate) fn is_deferred(self) -> bool {
        self.0 & MARK == MARK && self != Ticket::DONE
    }
}

impl P2p {
    /// Notes a receive, if it need not be posted now. Its number, of which `Ticket::deferred` makes its ticket.
    #[inline(always)]
    pub fn defer(&mut self, context: u64, source: u32, tag: Option<i32>, span: Span) -> Option<u64> {
        let unheard = || self.matcher.posted.is_empty() && self.matcher.unexpected.is_empty();
        let may = self.deferred.is_waiting() || unheard();
        // What we send to ourselves is no packet.
        (may && self.deferred.has_room() && source != self.rank)
            .then(|| self.deferred.push(context, source, tag, span))
    }

    /// Posts what waits.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        if self.deferred.is_waiting() {
            self.post_deferred();
        }
    }

    #[cold]
    fn post_deferred(&mut self) {
        for number in self.deferred.waiting..self.deferred.next {
            let DeferredReceive { context, source, tag, span, .. } = *self.deferred.entry(number);
            let Ticket(posted) = self.post(Pattern { context, source: Some(source), tag }, span.into());
            self.deferred.entry(number).direct = Direct::Started(posted);
        }
        self.deferred.waiting = self.deferred.next;
    }

    /// As `take`, of a receive whose whole message was taken before it was posted: its tag and bytes. Nothing if that is not so.
    #[inline(always)]
    pub fn take_arrived(&mut self, ticket: Ticket) -> Option<(i32, u64)> {
        let number = self.deferred.number(ticket)?;
        let entry = self.deferred.entry(number);
        let Direct::Arrived(arrived) = entry.direct else { return None };
        if arrived.bytes() > entry.span.bytes() {
            return None;
        }
        self.deferred.forget(number);
        Some((arrived.tag(), arrived.bytes() as u64))
    }

    /// How a receive ended, once it has; it is then forgotten.
    #[inline(always)] // So that the outcome is not copied.
    pub(crate) fn take_deferred(&mut self, ticket: Ticket) -> Option<Outcome> {
        let number = self.deferred.number(ticket)?;
        if number >= self.deferred.waiting {
            self.take_arrivals();
        }
        let entry = self.deferred.entry(number);
        let outcome = match entry.direct {
            Direct::Started(posted) => self.take_posted(posted)?,
            _ => entry.outcome()?,
        };
        self.deferred.forget(number);
        Some(outcome)
    }

    /// Takes what the peer of the first receive that waits has sent, for that one and those after it.
    #[inline(never)]
    fn take_arrivals(&mut self) {
        let Deferred { entries, waiting, next, .. } = &mut self.deferred;
        let source = entries[*waiting as usize % DEFERRED_MAX].source;
        let Some(Some(peer)) = self.peers.get_mut(source as usize) else { return };
        let mut first = First { entries, at: *waiting, end: *next };
        peer.take_for(&mut self.matcher, &mut first);
        *waiting = first.at;
    }

    /// The ticket under which an operation is in the tables, where it is.
    #[inline(always)]
    pub(crate) fn posted_ticket(&self, ticket: Ticket) -> Option<u64> {
        if ticket.is_deferred() { self.deferred.posted(ticket) } else { Some(ticket.0) }
    }

    /// As `posted_ticket`, of an operation for which nobody will ask under its own ticket any more.
    pub(crate) fn give_up_ticket(&mut self, ticket: Ticket) -> Option<u64> {
        self.settle();
        let posted = self.posted_ticket(ticket);
        if let Some(number) = self.deferred.number(ticket) {
            self.deferred.forget(number);
        }
        posted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a ticket names its receive although it holds only part of the number, and nothing once that is taken.
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
            // All of the window but the newest are over.
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
