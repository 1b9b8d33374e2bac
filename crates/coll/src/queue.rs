//! Calls on slots (`flat.rs`) that the program lets be under way, one after the other.
//!
//! A slots takes one call at a time, so calls that all members make in the same order form a queue: a comm's nonblocking collectives, the starts of a
//! persistent one, the steps of a file's collective accesses. Each begins once the one before is over here, at the latest when
//! the program waits for anything. Its slots is attached when the queue is opened, by an allgather that nobody waits for; until then the calls wait.
//! What slots do not take is carried out by schedules beside the queue.
//!
//! Invariants: all members make the same calls in the same order, and come to the same answer which of them go by a schedule.

use crate::call::{Call, Members};
use crate::flat::{Attached, Bounds, FlatSets, Rounds, Slots, Turn, unused};
use crate::pull::Pull;
use crate::round::Round;
use crate::short::Short;
use crate::vector::Vector;
use error::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use sys::Block;
use transport::shm::Segment;

/// Asks how a schedule ended, once it has.
type Ended<'a> = &'a mut dyn FnMut(executor::Ticket) -> Option<Result<()>>;

/// A call in a queue, until `Coll::outcome` has said how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Ticket(usize);

/// A call as schedules would carry it out.
#[derive(Debug)]
pub(crate) struct Whole {
    pub call: Call,
    /// Its members, with a number that is only its own.
    pub members: Members,
}

/// Calls of some members, one after the other.
pub(crate) struct Queue {
    pub(crate) state: State,
    calls: VecDeque<usize>,
    /// No more calls are made here.
    freed: bool,
}

pub(crate) enum State {
    /// The members tell each other where their slots lie.
    Attaching(Box<Attaching>),
    Attached(Attached),
    /// Some member has no room for slots, or has a proxy: all goes by schedules.
    Refused,
    /// What was told made no sense.
    Broken(Error),
}

/// What members tell each other of their slots.
pub(crate) struct Attaching {
    pub exchange: executor::Ticket,
    /// This member's slots, as `FlatSets::new_slots` has told.
    pub room: u64,
    /// The same, for the schedule.
    pub _mine: Block,
    pub all: Block,
    pub rank: usize,
    pub peers: Arc<[u32]>,
}

/// A call in a queue.
pub(crate) struct Queued {
    turn: Option<Turn>,
    on: On,
    /// How its rounds ended.
    pub(crate) outcome: Option<Result<()>>,
    /// Schedules of what they left.
    pub(crate) left: Vec<executor::Ticket>,
}

/// What a call is on slots that takes it.
pub(crate) enum Found {
    /// With its second round, if it takes two.
    Short(Short, Option<Box<Short>>),
    Pulled(Box<Pull>),
    Vector(Vector),
}

/// How far a call is.
enum On {
    /// With the round after this one, if there is one.
    Short(Short, Option<Box<Short>>),
    /// With its second round once that has begun.
    Pulled(Box<Pull>, Option<Short>),
    Vector(Box<(Vector, Whole)>),
    /// It was made before the slots attached.
    Unsure(Box<Whole>),
    /// Its rounds are over.
    Over,
}

/// What of a call is to be carried out by schedules.
pub(crate) struct Leaving {
    pub call: usize,
    /// What it was on its slots, and the number of its round; nothing if it went over none.
    pub tried: Option<(Vector, u64)>,
    pub whole: Whole,
}

impl Queued {
    /// A call that is made before the slots are attached.
    pub(crate) fn unsure(whole: Whole) -> Queued {
        Queued::new(On::Unsure(Box::new(whole)))
    }

    /// A call that was found to be one for the slots.
    #[inline(always)]
    pub(crate) fn sure(found: Found, whole: impl FnOnce() -> Whole) -> Queued {
        Queued::new(On::of(found, whole))
    }

    #[inline(always)]
    fn new(on: On) -> Queued {
        Queued { turn: None, on, outcome: None, left: Vec::new() }
    }

    /// Takes its rounds as far as they go; whether they moved.
    fn drive(&mut self, attached: &mut Attached) -> bool {
        let (slots, turn) = (&mut attached.slots, &mut self.turn);
        let (outcome, moved) = match &mut self.on {
            On::Short(short, then) => match (advance(turn, slots, short), then.take()) {
                ((Some(Ok(())), _), Some(second)) => {
                    *short = *second;
                    self.drive(attached);
                    return true;
                }
                ((None, moved), second) => {
                    *then = second;
                    (None, moved)
                }
                (ended, _) => ended,
            },
            On::Pulled(pull, Some(closing)) => {
                let (closed, moved) = advance(turn, slots, closing);
                (closed.map(|closed| closed.and(pull.outcome())), moved)
            }
            On::Pulled(pull, closing) => match advance(turn, slots, &**pull) {
                (Some(Ok(())), _) => {
                    *closing = Some(pull.closing());
                    self.drive(attached);
                    return true;
                }
                ended => ended,
            },
            On::Vector(call) => {
                if turn.is_none() && attached.skipping.skips() {
                    call.0.schedule();
                    (Some(Ok(())), true)
                } else {
                    let (outcome, moved) = advance(turn, slots, &call.0);
                    if outcome.is_some() && call.0.is_scheduled() {
                        attached.skipping.begin();
                    }
                    (outcome, moved)
                }
            }
            On::Unsure(_) | On::Over => (Some(Ok(())), true),
        };
        self.outcome = outcome;
        moved
    }
}

impl Found {
    /// What a call is on slots that is attached; nothing if it is none for it. All members come to the same answer.
    pub(crate) fn on(attached: &Attached, call: &Call) -> Option<Found> {
        let (rank, members) = (attached.slots.rank(), attached.slots.size());
        if let Some(vector) = Vector::new(call, attached.bytes_max) {
            return Some(Found::Vector(vector));
        }
        Found::short(attached, Short::of(call, rank, members).filter(|short| short.fits(members))?)
    }

    /// The same of a short call that fits slots.
    #[inline(always)]
    pub(crate) fn short(attached: &Attached, short: Short) -> Option<Found> {
        attached.has_room(&short).then(|| match attached.rounds(&short) {
            Rounds::One => Found::Short(short, None),
            Rounds::Two(first, second) => Found::Short(first, Some(second)),
            Rounds::Pulled(pull) => Found::Pulled(pull),
        })
    }
}

impl On {
    #[inline(always)]
    fn of(found: Found, whole: impl FnOnce() -> Whole) -> On {
        match found {
            Found::Vector(vector) => On::Vector(Box::new((vector, whole()))),
            Found::Short(short, then) => {
                crate::count(short.name);
                On::Short(short, then)
            }
            Found::Pulled(pull) => {
                crate::count(pull.name());
                On::Pulled(pull, None)
            }
        }
    }
}

/// Takes a round as far as it goes: how it ended, once it has, and whether it moved.
fn advance(turn: &mut Option<Turn>, slots: &mut Slots, call: &impl Round) -> (Option<Result<()>>, bool) {
    let mut now = turn.take().unwrap_or_else(|| slots.begin(call));
    let posted = now.posted;
    let outcome = slots.advance(&mut now, call);
    let moved = outcome.is_some() || now.posted != posted;
    if outcome.is_none() {
        *turn = Some(now);
    }
    (outcome, moved)
}

impl Queue {
    pub(crate) fn new(state: State) -> Queue {
        Queue { state, calls: VecDeque::new(), freed: false }
    }

    /// The slots, once it is attached.
    pub(crate) fn slots(&self) -> Option<&Slots> {
        if let State::Attached(attached) = &self.state { Some(&attached.slots) } else { None }
    }
}

impl Attaching {
    /// The state that follows, once all have told.
    fn poll(&self, segment: &Segment, bounds: Bounds, ended: Ended) -> Option<State> {
        let told = ended(self.exchange)?;
        let found = told.and_then(|()| {
            let word = |bytes: &[u8]| i64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            let rooms: Vec<i64> = self.all.to_vec().chunks_exact(8).map(word).collect();
            Attached::find(segment, self.rank, &self.peers, &rooms, bounds)
        });
        Some(match found {
            Ok(Some(attached)) if !attached.served => State::Attached(attached),
            Ok(_) => State::Refused,
            Err(error) => State::Broken(error),
        })
    }
}

impl FlatSets {
    /// Makes a call after all calls of its queue before.
    #[inline(always)]
    pub(crate) fn queue(&mut self, queue: usize, queued: Queued, ended: Ended) -> Ticket {
        let call = self.queued.insert(queued);
        let calls = &mut self.queues[queue].calls;
        calls.push_back(call);
        if calls.len() == 1 && !self.busy.contains(&queue) {
            self.drive(queue, ended);
            if !self.queues[queue].calls.is_empty() {
                self.busy.push(queue);
            }
        }
        Ticket(call)
    }

    /// The last schedule of what a call left.
    pub(crate) fn left_by(&self, ticket: Ticket) -> Option<executor::Ticket> {
        self.queued.get(ticket.0)?.left.last().copied()
    }

    /// How a call ended, once it has, and the schedules of what it left; the ticket is then spent.
    pub(crate) fn outcome(&mut self, ticket: Ticket, ended: Ended) -> Option<Result<()>> {
        let queued = &mut self.queued[ticket.0];
        let outcome = queued.outcome.as_mut()?;
        while let Some(last) = queued.left.last() {
            let last = ended(*last)?;
            queued.left.pop();
            *outcome = std::mem::replace(outcome, Ok(())).and(last);
        }
        self.queued.remove(ticket.0).outcome
    }

    /// Takes all calls as far as they go; whether any moved.
    #[inline]
    pub(crate) fn poll(&mut self, ended: Ended) -> bool {
        !self.busy.is_empty() && self.drive_all(ended)
    }

    fn drive_all(&mut self, ended: Ended) -> bool {
        let mut busy = std::mem::take(&mut self.busy);
        let mut moved = false;
        busy.retain(|queue| {
            moved |= self.drive(*queue, ended);
            let Queue { state, calls, freed } = &self.queues[*queue];
            let over = calls.is_empty() && !matches!(state, State::Attaching(_));
            if over && *freed {
                self.close(*queue);
            }
            !over
        });
        self.busy = busy;
        moved
    }

    /// Takes the calls of one queue as far as they go; whether any moved.
    fn drive(&mut self, number: usize, ended: Ended) -> bool {
        let FlatSets { segment, queues, queued, leaving, left, bounds, .. } = self;
        let Queue { state, calls, .. } = &mut queues[number];
        let mut moved = false;
        if let State::Attaching(attaching) = state {
            let Some(next) = attaching.poll(segment, *bounds, ended) else { return false };
            if matches!(next, State::Refused) {
                left.extend(unused(attaching.room));
            }
            (*state, moved) = (next, true);
        }
        while let Some(&number) = calls.front() {
            let call = &mut queued[number];
            match state {
                State::Attached(attached) => {
                    if let On::Unsure(whole) = &call.on
                        && let Some(found) = Found::on(attached, &whole.call)
                        && let On::Unsure(whole) = std::mem::replace(&mut call.on, On::Over)
                    {
                        call.on = On::of(found, || *whole);
                    }
                    moved |= call.drive(attached);
                }
                State::Broken(error) => (call.on, call.outcome) = (On::Over, Some(Err(error.clone()))),
                State::Refused | State::Attaching(_) => call.outcome = Some(Ok(())),
            }
            if call.outcome.is_none() {
                break;
            }
            let left = match (std::mem::replace(&mut call.on, On::Over), &state) {
                (On::Unsure(whole), _) => Some((None, *whole)),
                (On::Vector(parts), State::Attached(attached)) => {
                    Some((Some((parts.0, attached.slots.round())), parts.1))
                }
                _ => None,
            };
            leaving.extend(left.map(|(tried, whole)| Leaving { call: number, tried, whole }));
            calls.pop_front();
            moved = true;
        }
        moved
    }

    /// No more calls are made in a queue here, but some may be under way.
    pub(crate) fn close(&mut self, number: usize) {
        let queue = &mut self.queues[number];
        if !queue.calls.is_empty() || matches!(queue.state, State::Attaching(_)) {
            queue.freed = true;
            return;
        }
        if let State::Attached(attached) = self.queues.remove(number).state {
            self.detach(attached);
        }
    }
}
