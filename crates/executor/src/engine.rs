// SPDX-License-Identifier: BSD-3-Clause
//! Drives one instance (one started schedule), step by step, in the rank's process or in its proxy's.
//!
//! Invariants, which let another driver go on when this one has died (`Execution::resume`): a receive first
//! stores its own `done`, then the sender's; bytes are copied before any `done` counts them; `published`
//! counts only bytes that do not change any more. What `done` counts is finished, and all else can be done
//! again.
//!
//! Read next: `engine/receive.rs` (receives from a peer on this host), `engine/local.rs` (steps without a
//! peer), `engine/remote.rs` and `engine/fetch.rs` (steps with a peer on another host), `engine/share.rs`
//! (two drivers).

mod fetch;
mod local;
mod receive;
mod remote;
mod send;
mod share;

pub(crate) use remote::WantedMessage;

use crate::Reduction;
use crate::buffers::Buffers;
use crate::checked::CheckedSchedule;
use crate::fault::Fault;
use crate::memory::{Driver, Reach, Region, Stop};
use crate::peer::Peer;
use crate::record::{self, BYTES, COMPLETE, Field, GIVEN_UP, Head, IN_ARENA, InstanceRecord, LOCAL, Lookup};
use schedule::Action;
use share::StepRole;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use telemetry::{Counter, Event};
use transport::shm::LocalRank;

/// The most times in a row that reading a peer's directory may give `Lookup::Unclear`. After one more, the
/// directory counts as corrupt.
const UNCLEAR_MAX: u32 = 10_000;

/// An instance (a started schedule), with what its driver remembers about it.
pub struct Execution {
    /// The checked schedule that the operation carries out.
    pub plan: Arc<CheckedSchedule>,
    /// The rank whose operation it is. The driver is this rank or its proxy.
    pub rank: LocalRank,
    /// The operation's record in shared memory, which counts the progress of its steps.
    pub record: InstanceRecord,
    /// The context of the comm. Peers find the operation by this and `sequence`.
    pub context: u64,
    /// The operation's number in its context. Peers find the operation by this and `context`.
    pub sequence: u32,
    /// For each rank of the schedule, which process it is and whether it is on this host.
    pub peers: Arc<[Peer]>,
    /// Where the bytes of the operation's buffers lie, as this process sees them.
    pub buffers: Buffers,
    /// The version number of the parameters from which a proxy has made `buffers` and `peers`.
    pub version: u64,
    states: Vec<StepState>,
    /// For each step that receives, where the driver found the matching send at the last start: the
    /// identifier of the sender's stored schedule (`Head::Program`), and the index of the sender's step.
    hints: Vec<(u64, u32)>,
    active: Vec<u32>,
    unfinished: usize,
    /// The number of steps that still use the user's buffers. At 0 the operation is locally complete: it has
    /// ended for the user.
    open: usize,
    /// Whether the operation's record in shared memory already says that the user's buffers are free.
    reported_local: bool,
    /// Whether a fault has spoiled bytes that this rank would pass on, so that all its further sends fail.
    is_void: bool,
    /// The processor time in nanoseconds that the driver's thread had used when it started the operation. It
    /// is set only while operations are timed.
    taken_cpu: u64,
    /// The sends and receives, to and from other hosts, that are carried as messages. None if there are none.
    remote: Option<Box<remote::Remote>>,
    /// The state of the operation's fetched sends and receives, to and from other hosts: the receive's driver
    /// asks for the bytes. None if there are none.
    fetches: Option<Box<fetch::Fetches>>,
    /// The steps that this driver drives, where the rank and its proxy on another computer divide the
    /// operation. None if one driver drives all steps.
    share: Option<Box<share::Share>>,
}

/// What a driver remembers of one step of an operation.
#[derive(Clone, Debug, Default)]
struct StepState {
    /// The number of unfinished steps that must finish before this step may start. At 0 the driver begins to
    /// drive it.
    waits: u32,
    /// The number of bytes of the step that are done. A send's bytes are done once its receiver has them.
    done: u64,
    /// The number of bytes of a send that its receiver may already take.
    published: u64,
    /// Whether all bytes are there: a send has published all its bytes, or a fetched receive has received
    /// them all.
    is_complete: bool,
    /// Whether the step has finished.
    finished: bool,
    /// Whether the steps that wait for this one may start. True if this step has finished, or is a send whose
    /// receiver reads a copy of the bytes.
    is_free: bool,
    /// Whether the step no longer needs the user's buffers. True if the steps that wait for it may start, or
    /// if it sends from a scratch buffer.
    is_local: bool,
    /// Whether the step is a receive that has all its bytes, but stays active because the sender may not know
    /// that yet.
    settling: bool,
    /// Whether the user's reduction function is being called for the step.
    calling: bool,
    /// The number of times in a row that reading the peer's directory has given `Lookup::Unclear`.
    unclear: u32,
    /// The send that belongs to this receive. None until it is found, and for other steps.
    source: Option<SendSource>,
}

/// A send in a peer's record, as the driver of the matching receive sees it.
#[derive(Clone, Debug)]
struct SendSource {
    record: InstanceRecord,
    step: u32,
    region: Region,
    /// The length of the send, in bytes.
    bytes: u64,
    /// Whether this process could not read the bytes at `region`, and so has asked the sender to copy them to
    /// its arena.
    asked: bool,
}

/// What one call of `Execution::poll` has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No step could go on.
    Idle,
    /// Some step has gone on, and the operation is not finished.
    Moved,
    /// The operation has become locally complete: the user's buffers are free. Its record says so.
    Local,
    /// All steps that this driver drives are finished. The operation's record says so, unless another driver
    /// still has steps of the operation to finish.
    Finished,
    /// The receiver of the send `step` cannot read its bytes. The rank must allocate a copy in its arena
    /// (`Execution::stage`).
    Stage { step: u32 },
    /// The user's reduction function must combine the bytes at `left` into those at `into`, for the blocks of
    /// `step`, whose numbers are `blocks`. `Execution::called` ends the call.
    Call { step: u32, left: Span, into: Span, blocks: Range<u64> },
}

/// What driving one step once has done.
enum StepProgress {
    Idle,
    Moved,
    Finished,
    Stage,
    Call { left: Span, into: Span, blocks: Range<u64> },
}

impl Execution {
    /// Makes the execution of an operation that has not started. `restart` must come before the first `poll`.
    pub fn new(
        plan: Arc<CheckedSchedule>,
        rank: LocalRank,
        record: InstanceRecord,
        peers: Arc<[Peer]>,
        buffers: Buffers,
    ) -> Execution {
        let steps = plan.schedule.steps.len();
        Execution {
            rank,
            record,
            context: 0,
            sequence: 0,
            peers,
            buffers,
            version: 0,
            states: vec![StepState::default(); steps],
            hints: vec![(0, 0); steps],
            active: Vec::with_capacity(steps),
            unfinished: 0,
            open: 0,
            reported_local: false,
            is_void: false,
            taken_cpu: 0,
            remote: None,
            fetches: None,
            share: None,
            plan,
        }
    }

    /// Prepares to drive the operation with the key (`context`, `sequence`) from its beginning.
    pub fn restart(&mut self, context: u64, sequence: u32) {
        (self.context, self.sequence) = (context, sequence);
        if telemetry::timed() {
            self.taken_cpu = sys::clock::thread_cpu();
        }
        self.drive_alone();
        self.active.clear();
        self.fetches.iter_mut().for_each(|fetches| fetches.restart());
        self.unfinished = self.states.len();
        (self.open, self.reported_local, self.is_void) = (self.states.len(), false, false);
        for (index, state) in self.states.iter_mut().enumerate() {
            *state = StepState { waits: self.plan.waits[index], ..StepState::default() };
            if state.waits == 0 {
                self.active.push(index as u32);
            }
        }
    }

    /// Prepares to continue the operation from the words of its record, after another driver has certainly
    /// died or stopped.
    pub fn resume(&mut self, context: u64, sequence: u32) {
        self.restart(context, sequence);
        self.fetches.iter_mut().for_each(|fetches| fetches.ask_again());
        self.is_void = self.record.fault().is_some_and(Fault::voids);
        self.active.clear();
        for index in 0..self.states.len() {
            let step = index as u32;
            let total = self.buffers.spots[index].bytes;
            let word = |field| self.record.step(step, field).load(Ordering::Acquire);
            let (done, published) = (word(Field::Done), word(Field::Published));
            let schedule = &self.plan.schedule;
            let after = schedule.after_of(&schedule.steps[index]);
            let waits = after.iter().filter(|a| !a.streaming && !self.states[a.step as usize].is_free);
            let state = StepState {
                waits: waits.count() as u32,
                done: (done & BYTES).min(total),
                published: (published & BYTES).min(total),
                is_complete: published & COMPLETE != 0,
                finished: done & COMPLETE != 0 || published & GIVEN_UP != 0,
                ..StepState::default()
            };
            let (is_free, is_local) = match (state.finished, state.is_complete) {
                (true, _) => (true, true),
                (_, true) => self.is_sent(step, false),
                _ => (false, false),
            };
            self.states[index] = StepState { is_free, is_local, ..state };
            self.open -= usize::from(is_local);
            let received = matches!(self.plan.schedule.steps[index].action, Action::Recv { .. });
            let state = &mut self.states[index];
            if !state.finished {
                if state.waits == 0 {
                    self.active.push(step);
                }
            } else if received {
                state.settling = true;
                self.active.push(step);
            } else {
                self.unfinished -= 1;
            }
        }
    }

    /// Drives every step that can go on, at most a chunk of bytes each. A fault is stored in the operation's
    /// record, and the other steps go on, so that no peer hangs. Errors: this driver cannot go on, so another
    /// driver must.
    pub fn poll(&mut self, reach: &Reach) -> Result<Progress, Stop> {
        let mut moved = false;
        let mut index = 0;
        while let Some(&step) = self.active.get(index) {
            let started = telemetry::start_time();
            let did = self.drive(step, reach);
            let is_own = self.role(step) == StepRole::Own;
            if started != 0 && is_own && matches!(did, Ok(StepProgress::Moved | StepProgress::Finished)) {
                self.trace(step, started);
            }
            match did {
                Ok(StepProgress::Idle) => index += 1,
                Ok(StepProgress::Moved) => {
                    moved = true;
                    index += 1;
                }
                Ok(StepProgress::Finished) => {
                    reach.count(Counter::Steps, is_own.into());
                    moved = true;
                    self.active.swap_remove(index);
                    self.finish(step);
                }
                Ok(StepProgress::Stage) => return Ok(Progress::Stage { step }),
                Ok(StepProgress::Call { left, into, blocks }) => {
                    return Ok(Progress::Call { step, left, into, blocks });
                }
                Err(Stop::Fault(fault)) => {
                    // The rank may reach what a proxy is refused, so the operation does not fail.
                    if fault.is_of_driver() && matches!(reach.driver, Driver::Proxy(_)) {
                        return Err(Stop::Fault(fault));
                    }
                    self.fail(step, fault, reach)?;
                    moved = true;
                }
                #[cfg(test)]
                Err(died) => return Err(died),
            }
        }
        let is_host_share = self.is_host_share();
        if self.unfinished == 0 && is_host_share {
            return Ok(Progress::Finished);
        }
        if self.unfinished == 0 {
            reach.fault_point()?;
            if telemetry::timed() {
                self.account(reach);
            }
            self.record.head(Head::State).store(COMPLETE, Ordering::Release);
            return Ok(Progress::Finished);
        }
        // The rank relies on this report, and a fault may come until all steps are finished.
        let may_report = !self.reported_local && self.fetches.is_some() && !is_host_share;
        if self.open == 0 && may_report && self.record.fault().is_none() {
            reach.fault_point()?;
            self.reported_local = true;
            if telemetry::timed() {
                self.account(reach);
            }
            self.record.head(Head::State).store(LOCAL, Ordering::Release);
            return Ok(Progress::Local);
        }
        Ok(if moved { Progress::Moved } else { Progress::Idle })
    }

    /// Stores in the operation's record the time at which the operation ended, and the processor time that
    /// its driver took: since the driver started this operation, or since it last ended another one, if that
    /// is later.
    #[cold]
    fn account(&self, reach: &Reach) {
        let cpu = sys::clock::thread_cpu();
        let since = self.taken_cpu.max(reach.ended_cpu.replace(cpu));
        self.record.head(Head::CpuNs).store(cpu.saturating_sub(since), Ordering::Relaxed);
        self.record.head(Head::Completed).store(sys::clock::now(), Ordering::Relaxed);
    }

    /// Whether a word that some step waits for has changed since the last `poll`. If so, the driver must not
    /// sleep.
    pub fn has_events(&self, reach: &Reach) -> bool {
        self.active.iter().any(|&step| {
            let state = &self.states[step as usize];
            match self.role(step) {
                StepRole::Own => {}
                StepRole::Watched => return self.has_advanced(step),
                StepRole::Announced | StepRole::Ignored => return false,
            }
            if self.has_ended(step) || self.fetches.as_ref().is_some_and(|it| it.has_answer(step)) {
                return true;
            }
            match (self.plan.schedule.steps[step as usize].action, &state.source) {
                (Action::Send { to, .. }, _) => {
                    let done = self.record.step(step, Field::Done).load(Ordering::Acquire);
                    done & COMPLETE != 0 || done & BYTES != state.done || self.must_stage(step, done) || {
                        let to = self.peers[to as usize].local();
                        reach.unmapped_by(self.rank, to).is_some()
                    }
                }
                (Action::Recv { .. }, Some(source)) if source.asked => {
                    let word = |field| source.record.step(source.step, field).load(Ordering::Acquire);
                    word(Field::Address) & IN_ARENA != 0 || word(Field::Published) & GIVEN_UP != 0
                }
                (Action::Recv { .. }, Some(source)) => {
                    let published = source.record.step(source.step, Field::Published).load(Ordering::Acquire);
                    published & BYTES != state.done || published & COMPLETE != 0
                }
                (Action::Recv { .. }, None) if self.record.is_withdrawn() && !state.settling => true,
                (Action::Recv { from, .. }, None) => {
                    let Peer::Local(peer) = self.peers[from as usize] else { return false };
                    let directory = &reach.segment.rank(peer).directory[..];
                    let arena = reach.arena(peer);
                    let find =
                        |arena| record::find(directory, arena, reach.me(), self.context, self.sequence);
                    state.settling || !matches!(arena.map(find), Ok(Ok(Lookup::Absent)))
                }
                _ => false,
            }
        })
    }

    /// Ends the step `step`, for which the user's reduction function has been called.
    pub fn called(&mut self, step: u32) {
        let index = self.active.iter().position(|&active| active == step);
        if let Some(index) = index.filter(|_| self.states[step as usize].calling) {
            self.active.swap_remove(index);
            self.record.step(step, Field::Done).store(COMPLETE, Ordering::Release);
            self.finish(step);
        }
    }

    /// Returns how many steps the schedule has.
    pub fn steps(&self) -> usize {
        self.states.len()
    }

    #[cold]
    fn trace(&self, step: u32, started: u64) {
        let (kind, peer) = match self.plan.schedule.steps[step as usize].action {
            Action::Send { to, .. } => ("send", self.peers[to as usize]),
            Action::Recv { from, .. } => ("recv", self.peers[from as usize]),
            Action::Copy { .. } => ("copy", Peer::Local(self.rank)),
            Action::Reduce { .. } => ("reduce", Peer::Local(self.rank)),
        };
        let bytes = self.states[step as usize].done;
        let (rank, context, sequence) = (Peer::Local(self.rank).number(), self.context, self.sequence);
        telemetry::end(started, Event::Step { kind, rank, peer: peer.number(), context, sequence, bytes });
    }

    fn drive(&mut self, step: u32, reach: &Reach) -> Result<StepProgress, Stop> {
        match self.role(step) {
            StepRole::Own => {}
            StepRole::Announced => return self.announce(step, reach),
            StepRole::Watched | StepRole::Ignored => return Ok(self.watch(step)),
        }
        match self.plan.schedule.steps[step as usize].action {
            Action::Send { to, from, edge } => match self.peers[to as usize] {
                Peer::Local(peer) => self.send(step, Some(peer), from, reach),
                Peer::Remote(peer) if self.is_message(step) => {
                    self.drive_message(step, peer, edge, from, true, reach)
                }
                Peer::Remote(_) => self.send(step, None, from, reach),
            },
            Action::Recv { from, edge, into } => match self.peers[from as usize] {
                Peer::Local(peer) if self.states[step as usize].settling => {
                    self.settle(step, peer, edge, reach)
                }
                Peer::Local(peer) => self.recv(step, peer, edge, into, reach),
                Peer::Remote(peer) if self.is_message(step) => {
                    self.drive_message(step, peer, edge, into, false, reach)
                }
                Peer::Remote(peer) => self.fetch(step, peer, edge, reach),
            },
            Action::Copy { from, into } => self.copy(step, from, into, reach),
            Action::Reduce { left, right, into } => match self.buffers.reduction {
                Some(Reduction::User { .. }) => self.prepare_call(step, [left, right, into], reach),
                _ => self.reduce(step, [left, right, into], reach),
            },
        }
    }

    /// Returns how many bytes `step` may have processed by now, and whether all steps that it follows byte by
    /// byte have finished. Until then `step` must not process more bytes than these steps.
    fn limit(&self, step: u32) -> (u64, bool) {
        let total = self.buffers.spots[step as usize].bytes;
        let mut limit = (total, true);
        for &earlier in self.plan.streams(step) {
            let state = &self.states[earlier as usize];
            if !state.is_free {
                limit = (limit.0.min(state.done), false);
            }
        }
        limit
    }

    /// Marks that a step no longer needs the user's buffers. With `is_free`, also lets the steps that wait
    /// for it start.
    fn close(&mut self, step: u32, is_free: bool) {
        let state = &mut self.states[step as usize];
        if !std::mem::replace(&mut state.is_local, true) {
            self.open -= 1;
        }
        if is_free && !std::mem::replace(&mut state.is_free, true) {
            for &follower in self.plan.followers(step) {
                // A driver that died may have ended the follower: it may have died before it stored what it
                // had published.
                let is_driven = matches!(self.role(follower), StepRole::Own | StepRole::Announced);
                if !is_driven || self.states[follower as usize].finished {
                    continue;
                }
                let waits = &mut self.states[follower as usize].waits;
                *waits -= 1;
                if *waits == 0 {
                    self.active.push(follower);
                }
            }
        }
    }

    fn finish(&mut self, step: u32) {
        self.close(step, true);
        let state = &mut self.states[step as usize];
        self.unfinished -= 1;
        if state.settling {
            state.settling = false;
            return;
        }
        state.finished = true;
        state.done = self.buffers.spots[step as usize].bytes;
        state.source = None;
        self.add_ended(step);
        self.settle_later(step);
    }

    /// Keeps a finished fetched receive active until the sender's server knows of its end. The operation
    /// cannot end before that.
    fn settle_later(&mut self, step: u32) {
        if self.fetches.is_some()
            && let Action::Recv { from, .. } = self.plan.schedule.steps[step as usize].action
            && self.peers[from as usize].local().is_none()
            && !self.is_message(step)
            && self.role(step) == StepRole::Own
        {
            self.states[step as usize].settling = true;
            self.unfinished += 1;
            self.active.push(step);
        }
    }

    /// Ends a step that has failed, and stores its fault in the operation's record.
    fn fail(&mut self, step: u32, fault: Fault, reach: &Reach) -> Result<(), Stop> {
        self.record.set_fault(fault);
        self.is_void |= fault.voids();
        self.give_up(step, fault, reach)?;
        self.active.retain(|&active| active != step);
        self.finish(step);
        Ok(())
    }

    /// Stores, in the word that the peer reads, that a failed step has ended, so that the peer does not wait
    /// for the step.
    fn give_up(&mut self, step: u32, fault: Fault, reach: &Reach) -> Result<(), Stop> {
        let action = self.plan.schedule.steps[step as usize].action;
        if let Action::Send { to, .. } = action {
            let to = self.peers[to as usize].local();
            if to.is_none() && self.is_message(step) {
                // The receiver gets a message, and looks at no word.
                self.record.step(step, Field::Done).store(COMPLETE, Ordering::Release);
            }
            self.record.step(step, Field::Published).store(COMPLETE | GIVEN_UP, Ordering::Release);
            self.wake(to, reach);
            return Ok(());
        }
        self.record.step(step, Field::Done).store(COMPLETE, Ordering::Release);
        reach.write_done(self.rank, &self.record, step);
        reach.fault_point()?;
        if let (Action::Recv { from, .. }, Some(source)) = (action, &self.states[step as usize].source) {
            source.record.step(source.step, Field::Done).store(COMPLETE, Ordering::Release);
            reach.fault_point()?;
            self.peers[from as usize].local().into_iter().for_each(|peer| reach.wake(peer));
        } else if let Action::Recv { from, .. } = action {
            self.peers[from as usize]
                .local()
                .into_iter()
                .for_each(|peer| reach.report_unmapped(self.rank, peer, fault));
        }
        Ok(())
    }

    /// Wakes the processes that wait for a send: the receiver `to` and that rank's proxy or, without `to`,
    /// this rank's server.
    fn wake(&self, to: Option<LocalRank>, reach: &Reach) {
        match to {
            Some(peer) => reach.wake(peer),
            None => reach.wake_server(self.rank),
        }
    }

    /// Stores in the operation's record that `done` bytes of a step are done, and with `complete` that all
    /// are. Returns `Finished` with `complete`, else `Moved`.
    fn advance(&mut self, step: u32, done: u64, complete: bool, reach: &Reach) -> Result<StepProgress, Stop> {
        let word = done | if complete { COMPLETE } else { 0 };
        self.record.step(step, Field::Done).store(word, Ordering::Release);
        reach.write_done(self.rank, &self.record, step);
        reach.fault_point()?;
        self.states[step as usize].done = done;
        Ok(if complete { StepProgress::Finished } else { StepProgress::Moved })
    }
}

#[cfg(test)]
mod fixture;
