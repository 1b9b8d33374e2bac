//! Nonblocking calls on boards (`board.rs`), for as long as the program lets them be under way.
//!
//! A board takes one call at a time, so those of a comm form a queue: each begins once the one before is over here, at the latest when the
//! program waits for anything.
//!
//! Always true here: only calls in which every member needs to hear of every other go this way. In the others somebody could be done
//! without the members that compute, and a schedule lets him.

use crate::board::{Boards, Hung, Turn};
use crate::short::Short;
use error::Result;
use schedule::algorithm::Collective;

/// A nonblocking call on boards, until `Boards::outcome` has said how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Ticket(usize);

/// Such a call.
pub(crate) struct Queued {
    turn: Option<Turn>,
    short: Short,
    /// The second round, if it takes two.
    then: Option<Short>,
    outcome: Option<Result<()>>,
}

impl Short {
    /// Whether a nonblocking call of this kind may go over boards.
    #[inline]
    pub fn is_mutual(&self) -> bool {
        use Collective::*;
        matches!(self.name, Barrier | Allgather | Alltoall | Allreduce | ReduceScatter | ReduceScatterBlock)
    }
}

impl Boards {
    /// Whether proxies carry out nonblocking calls of some member.
    #[inline]
    pub(crate) fn is_served(&self, board: usize) -> bool {
        self.hung[board].served
    }

    /// Makes a call that fits these boards, with its second round if it takes two, after all calls before.
    pub(crate) fn queue(&mut self, board: usize, short: Short, then: Option<Short>) -> Ticket {
        let call = self.queued.insert(Queued { turn: None, short, then, outcome: None });
        let queue = &mut self.hung[board].queue;
        queue.push_back(call);
        if queue.len() == 1 {
            self.drive(board);
            if !self.hung[board].queue.is_empty() {
                self.busy.push(board);
            }
        }
        Ticket(call)
    }

    /// How a call ended, once it has; the ticket is then spent.
    pub(crate) fn outcome(&mut self, ticket: Ticket) -> Option<Result<()>> {
        self.queued[ticket.0].outcome.as_ref()?;
        self.queued.remove(ticket.0).outcome
    }

    /// Takes all calls as far as they go; whether any moved.
    #[inline]
    pub(crate) fn poll(&mut self) -> bool {
        !self.busy.is_empty() && self.drive_all()
    }

    fn drive_all(&mut self) -> bool {
        let mut busy = std::mem::take(&mut self.busy);
        let mut moved = false;
        busy.retain(|board| {
            moved |= self.drive(*board);
            let Hung { queue, freed, .. } = &self.hung[*board];
            let over = queue.is_empty();
            if over && *freed {
                self.leave(*board);
            }
            !over
        });
        self.busy = busy;
        moved
    }

    /// Takes the calls on one board as far as they go; whether any moved.
    fn drive(&mut self, number: usize) -> bool {
        let Boards { segment, hung, queued, .. } = self;
        let Hung { nonblocking: board, queue, .. } = &mut hung[number];
        let mut moved = false;
        while let Some(call) = queue.front() {
            let call = &mut queued[*call];
            let mut turn = call.turn.take().unwrap_or_else(|| board.begin(&call.short));
            let posted = turn.posted;
            let outcome = board.advance(&mut turn, &call.short, segment);
            moved |= turn.posted != posted;
            match (outcome, call.then.take()) {
                (None, then) => {
                    (call.turn, call.then) = (Some(turn), then);
                    break;
                }
                (Some(Ok(())), Some(then)) => call.short = then,
                (outcome, _) => {
                    call.outcome = outcome;
                    queue.pop_front();
                }
            }
            moved = true;
        }
        moved
    }
}
