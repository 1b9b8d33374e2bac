// SPDX-License-Identifier: BSD-3-Clause
//! Queues of nonblocking calls over slots.
//!
//! A set of slots carries one call at a time. So calls that all members make in the same order form a queue:
//! a comm's nonblocking collectives, the starts of a persistent collective, the steps of a file's collective
//! accesses. At each member a call starts once the call before has ended there, at the latest in a wait of
//! the program. Members exchange the locations of a queue's slots by an allgather; the queue's calls start
//! after it, but no member blocks for it. Schedules carry out the calls that slots do not take, beside the
//! queue.
//!
//! Invariants: members make the same calls in the same order, and agree on which of them go by a schedule.

use crate::attach::{AttachedSet, FlatCall, Location, SlotMemory};
use crate::call::{Call, Members};
use crate::count::count;
use crate::pull::Pull;
use crate::set::{ActiveRound, FlatSet, Round};
use crate::short::Short;
use crate::with_counts::CallWithCounts;
use error::{Error, Result};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use sys::Block;

/// A function that returns the outcome of a schedule, or None before the schedule has ended.
pub(crate) type ScheduleOutcome<'a> = &'a mut dyn FnMut(executor::InstanceTicket) -> Option<Result<()>>;

/// Names a call in a queue until `Coll::outcome` has returned its outcome.
#[derive(Clone, Copy, Debug)]
pub struct QueueTicket(usize);

/// A call of a queue that a schedule carries out, or may yet have to carry out, instead of slots.
#[derive(Debug)]
pub(crate) struct ScheduleCall {
    pub call: Call,
    /// The members of the call. Their sequence number belongs to no other call.
    pub members: Members,
}

/// The nonblocking calls of a comm, a file or a persistent collective. They go over one set of slots, one
/// after the other.
pub(crate) struct CallQueue {
    pub(crate) state: QueueState,
    calls: VecDeque<usize>,
    /// Whether the program will make no more calls in this queue. The queue is removed after its last call.
    closed: bool,
}

pub(crate) enum QueueState {
    /// The members still exchange the locations of their slots.
    Attaching(Box<Attaching>),
    Attached(AttachedSet),
    /// Some member has no memory for slots, or a proxy carries out some member's calls. So schedules carry
    /// out all calls of this queue.
    Refused,
    /// The locations that members stated are invalid, so all calls of this queue fail.
    Broken(Error),
}

/// The allgather by which the members of a queue exchange the locations of their slots.
pub(crate) struct Attaching {
    pub exchange: executor::InstanceTicket,
    pub location: Location,
    /// The memory from which the allgather sends this rank's location of slots, a copy of `location`. It must
    /// live until the allgather's schedule has ended.
    pub _input: Block,
    pub output: Block,
    pub rank: usize,
    pub peers: Arc<[u32]>,
}

/// A call in a queue: its form, its present round, and the schedules that carry out a part of it.
pub(crate) struct QueuedCall {
    active: Option<ActiveRound>,
    form: CallForm,
    /// The outcome of the call's rounds over slots. None before these rounds are over.
    pub(crate) outcome: Option<Result<()>>,
    /// The schedules that carry out the parts of the call that slots did not take.
    pub(crate) schedules: Vec<executor::InstanceTicket>,
}

/// The form in which slots carry out a queued call. It may not be decided yet.
enum CallForm {
    Short(Short),
    Pulled(Box<Pull>),
    WithCounts(Box<(CallWithCounts, ScheduleCall)>),
    /// The call was made before the queue's slots were attached, so its form is not decided.
    Undecided(Box<ScheduleCall>),
    /// The call's rounds over slots are over.
    Over,
}

/// The part of a queued call that slots did not take, for which `Coll` starts schedules.
pub(crate) struct Remainder {
    pub queued: usize,
    /// The call with counts as it is after its round over slots, and the number of that round. None if no
    /// round was tried, so that a schedule carries out the whole call.
    pub tried: Option<(CallWithCounts, u64)>,
    pub whole: ScheduleCall,
}

/// All queues of a process.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) queues: Slab<CallQueue>,
    /// The calls of all queues whose outcome the program has not asked for yet.
    pub(crate) calls: Slab<QueuedCall>,
    /// The indices of the queues that the next poll advances, because something is under way in them.
    pub(crate) busy: Vec<usize>,
    /// The parts of queued calls that slots did not take, for which `Coll` must start schedules.
    pub(crate) remainders: Vec<Remainder>,
}

impl QueuedCall {
    /// Makes a call whose form is decided once the slots of its queue are attached.
    pub(crate) fn undecided(whole: ScheduleCall) -> QueuedCall {
        QueuedCall::new(CallForm::Undecided(Box::new(whole)))
    }

    /// Makes a call that slots take. `whole` returns the call for a schedule, and is called only if a
    /// schedule may have to carry out a part.
    #[inline(always)]
    pub(crate) fn flat(call: FlatCall, whole: impl FnOnce() -> ScheduleCall) -> QueuedCall {
        QueuedCall::new(CallForm::of(call, whole))
    }

    #[inline(always)]
    fn new(form: CallForm) -> QueuedCall {
        QueuedCall { active: None, form, outcome: None, schedules: Vec::new() }
    }

    /// Advances the call's rounds over slots as far as possible. Returns whether any round advanced.
    fn drive(&mut self, attached: &mut AttachedSet) -> bool {
        let (set, active) = (&mut attached.set, &mut self.active);
        let (outcome, moved) = match &mut self.form {
            CallForm::Short(short) => advance(active, set, short),
            CallForm::Pulled(pull) => advance(active, set, &mut **pull),
            CallForm::WithCounts(call) => {
                if active.is_none() && attached.backoff.skips() {
                    call.0.schedule();
                    (Some(Ok(())), true)
                } else {
                    let (outcome, moved) = advance(active, set, &mut call.0);
                    if outcome.is_some() && call.0.is_scheduled() {
                        attached.backoff.start();
                    }
                    (outcome, moved)
                }
            }
            CallForm::Undecided(_) | CallForm::Over => (Some(Ok(())), true),
        };
        self.outcome = outcome;
        moved
    }

    /// Returns the part of a call that slots did not carry out, or None if they carried out all. The call's
    /// rounds must be over. `queued` is the call's index; `round` is its last round, None if it went over no
    /// slots.
    fn remainder(&mut self, queued: usize, round: Option<u64>) -> Option<Remainder> {
        match (std::mem::replace(&mut self.form, CallForm::Over), round) {
            (CallForm::Undecided(whole), _) => Some(Remainder { queued, tried: None, whole: *whole }),
            (CallForm::WithCounts(parts), Some(round)) => {
                Some(Remainder { queued, tried: Some((parts.0, round)), whole: parts.1 })
            }
            _ => None,
        }
    }
}

impl CallForm {
    #[inline(always)]
    fn of(call: FlatCall, whole: impl FnOnce() -> ScheduleCall) -> CallForm {
        match call {
            FlatCall::WithCounts(with_counts) => CallForm::WithCounts(Box::new((with_counts, whole()))),
            FlatCall::Short(short) => {
                count(short.collective);
                CallForm::Short(short)
            }
            FlatCall::Pulled(pull) => {
                count(pull.collective());
                CallForm::Pulled(pull)
            }
        }
    }
}

/// Advances the rounds of a call as far as possible. Returns the call's outcome, or None before all its
/// rounds have ended, and whether any round advanced.
fn advance(
    active: &mut Option<ActiveRound>,
    set: &mut FlatSet,
    call: &mut impl Round,
) -> (Option<Result<()>>, bool) {
    let mut moved = false;
    loop {
        let mut now = active.take().unwrap_or_else(|| set.start_round(call));
        let posted = now.posted;
        let outcome = set.advance(&mut now, call);
        moved |= outcome.is_some() || now.posted != posted;
        match outcome {
            Some(Ok(())) if call.next_phase() => (),
            Some(outcome) => return (Some(outcome), moved),
            None => {
                *active = Some(now);
                return (None, moved);
            }
        }
    }
}

impl CallQueue {
    pub(crate) fn new(state: QueueState) -> CallQueue {
        CallQueue { state, calls: VecDeque::new(), closed: false }
    }

    /// Returns the set of slots of this queue, or None before the members have attached their slots.
    pub(crate) fn set(&self) -> Option<&FlatSet> {
        if let QueueState::Attached(attached) = &self.state { Some(&attached.set) } else { None }
    }

    /// Whether the next poll may advance this queue.
    fn is_busy(&self) -> bool {
        !self.calls.is_empty() || matches!(self.state, QueueState::Attaching(_))
    }
}

impl Attaching {
    /// Looks whether the allgather of the locations of slots has ended, and attaches the slots then. Returns
    /// the queue's next state, or None before the allgather has ended.
    fn poll(&self, memory: &mut SlotMemory, ended: ScheduleOutcome) -> Option<QueueState> {
        let exchanged = ended(self.exchange)?;
        let attached = exchanged.and_then(|()| {
            let word = |bytes: &[u8]| i64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            let locations: Vec<i64> = self.output.to_vec().chunks_exact(8).map(word).collect();
            memory.attach(self.rank, &self.peers, &locations)
        });
        Some(match attached {
            Ok(Some(attached)) if !attached.served => QueueState::Attached(attached),
            Ok(_) => {
                memory.free_unattached(self.location);
                QueueState::Refused
            }
            Err(error) => QueueState::Broken(error),
        })
    }
}

impl Queues {
    /// Adds a queue whose members still exchange the locations of their slots. Returns the queue's index.
    pub(crate) fn open(&mut self, attaching: Attaching) -> usize {
        let queue = self.queues.insert(CallQueue::new(QueueState::Attaching(Box::new(attaching))));
        self.busy.push(queue);
        queue
    }

    /// Adds a call to its queue, behind all calls made before. Returns the call's ticket.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        queue: usize,
        call: QueuedCall,
        memory: &mut SlotMemory,
        ended: ScheduleOutcome,
    ) -> QueueTicket {
        let number = self.calls.insert(call);
        let calls = &mut self.queues[queue].calls;
        calls.push_back(number);
        if calls.len() == 1 && !self.busy.contains(&queue) {
            self.drive(queue, memory, ended);
            if !self.queues[queue].calls.is_empty() {
                self.busy.push(queue);
            }
        }
        QueueTicket(number)
    }

    /// Returns the schedule that was started last for a part of this call, or None if none was started.
    pub(crate) fn schedule_of(&self, ticket: QueueTicket) -> Option<executor::InstanceTicket> {
        self.calls.get(ticket.0)?.schedules.last().copied()
    }

    /// Returns the outcome of a call: an error if the call or one of its schedules failed, None before all
    /// have ended. Once the outcome is returned the ticket is not valid.
    pub(crate) fn outcome(&mut self, ticket: QueueTicket, ended: ScheduleOutcome) -> Option<Result<()>> {
        let call = &mut self.calls[ticket.0];
        let outcome = call.outcome.as_mut()?;
        while let Some(last) = call.schedules.last() {
            let last = ended(*last)?;
            call.schedules.pop();
            *outcome = std::mem::replace(outcome, Ok(())).and(last);
        }
        self.calls.remove(ticket.0).outcome
    }

    /// Advances the calls of all queues as far as possible. Returns whether any call advanced.
    #[inline]
    pub(crate) fn poll(&mut self, memory: &mut SlotMemory, ended: ScheduleOutcome) -> bool {
        !self.busy.is_empty() && self.drive_all(memory, ended)
    }

    fn drive_all(&mut self, memory: &mut SlotMemory, ended: ScheduleOutcome) -> bool {
        let mut busy = std::mem::take(&mut self.busy);
        let mut moved = false;
        busy.retain(|queue| {
            moved |= self.drive(*queue, memory, ended);
            let queue_is_busy = self.queues[*queue].is_busy();
            if !queue_is_busy && self.queues[*queue].closed {
                self.close(*queue, memory);
            }
            queue_is_busy
        });
        self.busy = busy;
        moved
    }

    /// Advances the calls of one queue as far as possible. Returns whether any call advanced.
    fn drive(&mut self, number: usize, memory: &mut SlotMemory, ended: ScheduleOutcome) -> bool {
        let CallQueue { state, calls, .. } = &mut self.queues[number];
        let mut moved = false;
        if let QueueState::Attaching(attaching) = state {
            let Some(next) = attaching.poll(memory, ended) else { return false };
            (*state, moved) = (next, true);
        }
        while let Some(&number) = calls.front() {
            let call = &mut self.calls[number];
            let mut round = None;
            match state {
                QueueState::Attached(attached) => {
                    if let CallForm::Undecided(whole) = &call.form
                        && let Some(flat) = attached.flat_call(&whole.call)
                        && let CallForm::Undecided(whole) = std::mem::replace(&mut call.form, CallForm::Over)
                    {
                        call.form = CallForm::of(flat, || *whole);
                    }
                    moved |= call.drive(attached);
                    round = Some(attached.set.round());
                }
                QueueState::Broken(error) => {
                    (call.form, call.outcome) = (CallForm::Over, Some(Err(error.clone())));
                }
                QueueState::Refused | QueueState::Attaching(_) => call.outcome = Some(Ok(())),
            }
            if call.outcome.is_none() {
                break;
            }
            self.remainders.extend(call.remainder(number, round));
            calls.pop_front();
            moved = true;
        }
        moved
    }

    /// Closes the queue with this number, since its comm or persistent request is freed. Calls that are
    /// already in it still end; then the queue is removed.
    pub(crate) fn close(&mut self, number: usize, memory: &mut SlotMemory) {
        let queue = &mut self.queues[number];
        if queue.is_busy() {
            queue.closed = true;
        } else if let QueueState::Attached(attached) = self.queues.remove(number).state {
            memory.detach(attached);
        }
    }

    /// Returns the attached queues in which calls wait: for each, its index and its set of slots.
    #[inline]
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (usize, &FlatSet)> {
        self.busy.iter().filter_map(|queue| Some((*queue, self.queues[*queue].set()?)))
    }
}
