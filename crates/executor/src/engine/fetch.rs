//! Edges to ranks on other hosts that are fetched: the receiver's side. `far.rs` has the whole.
//!
//! Invariants: bytes are stored in their order, before `done` counts them; an instance does not end before
//! all servers know what was received.

use super::{Did, Execution};
use crate::fault::Fault;
use crate::memory::{Reach, Stop};
use crate::note::{Kind, Note};
use crate::record::{COMPLETE, Field};
use crate::server;
use schedule::{Action, Blocks};
use std::sync::atomic::Ordering;
use sys::Span;
use telemetry::Counter;

/// What a driver remembers of its fetches.
pub(super) struct Fetches {
    /// By step.
    fetches: Vec<Fetch>,
    /// Notes to leave, with where they go.
    pub(super) notes: Vec<(u32, Note)>,
    attempts: u32,
}

/// The fetch of one step.
#[derive(Clone, Default)]
struct Fetch {
    /// The server that was asked or told, and the number of that note.
    asked: Option<(u32, u32)>,
    /// The server knows that all has been received.
    is_known: bool,
    /// The sending rank answers itself, not its server.
    is_elsewhere: bool,
    fault: Option<Fault>,
}

impl Fetches {
    pub(super) fn new(steps: usize) -> Fetches {
        Fetches { fetches: vec![Fetch::default(); steps], notes: Vec::new(), attempts: 0 }
    }

    /// Forgets all but the number of the last note, so that no earlier answer passes for a later one.
    pub(super) fn restart(&mut self) {
        self.fetches.fill(Fetch::default());
        self.notes.clear();
    }

    /// Whether an answer has come that the step has not seen.
    pub(super) fn has_news(&self, step: u32) -> bool {
        let fetch = &self.fetches[step as usize];
        fetch.is_known || fetch.fault.is_some() || fetch.is_elsewhere && fetch.asked.is_none()
    }
}

impl Execution {
    /// Whether edges to other hosts are fetched.
    pub fn fetches(&self) -> bool {
        self.fetches.is_some()
    }

    /// The next note to leave, and where it goes.
    pub(crate) fn next_note(&mut self) -> Option<(u32, Note)> {
        self.fetches.as_mut()?.notes.pop()
    }

    /// Whether a note is about this instance.
    pub(crate) fn is_of(&self, note: &Note) -> bool {
        (note.receiver, note.context, note.sequence) == (self.rank.peer(), self.context, self.sequence)
    }

    /// Takes a server's answer. One to an earlier question means nothing any more.
    pub(crate) fn take_note(
        &mut self,
        from: u32,
        note: &Note,
        data: Span,
        reach: &Reach,
    ) -> Result<(), Stop> {
        let step = note.step;
        let Some(fetches) = &mut self.fetches else { return Ok(()) };
        let Some(fetch) = fetches.fetches.get_mut(step as usize) else { return Ok(()) };
        if fetch.asked != Some((from, note.attempt)) {
            return Ok(());
        }
        let state = &self.states[step as usize];
        if note.kind == Kind::Data && !state.settling && !self.record.begin() {
            return Ok(());
        }
        match (note.kind, state.settling) {
            (Kind::Known, true) => fetch.is_known = true,
            (Kind::Elsewhere, _) => (fetch.is_elsewhere, fetch.asked) = (true, None),
            (Kind::Failed, false) => fetch.fault = Some(server::failed(note.sender, data)),
            (Kind::Data, false) => {
                let begun = state.done;
                let end = begun + data.bytes() as u64;
                let capacity = self.buffers.spots[step as usize].bytes;
                let total = note.total.min(capacity);
                let Action::Recv { into, .. } = self.plan.schedule.steps[step as usize].action else {
                    return Ok(());
                };
                if note.offset != begun || end > total {
                    return Ok(());
                }
                if let Err(fault) = self.store(step, into, begun, data, reach) {
                    if let Some(fetches) = &mut self.fetches {
                        fetches.fetches[step as usize].fault = Some(fault);
                    }
                    return Ok(());
                }
                reach.count(Counter::FetchedBytes, data.bytes() as u64);
                reach.fault_point()?;
                if end == total && note.total > capacity {
                    let (sent, expected) = (note.total, capacity);
                    self.record.set_fault(Fault::Truncated { peer: note.sender, sent, expected });
                }
                let word = end | if end == total { COMPLETE } else { 0 };
                self.record.step(step, Field::Done).store(word, Ordering::Release);
                reach.tell(self.rank, &self.record, step);
                reach.fault_point()?;
                self.states[step as usize].done = end;
                self.states[step as usize].said_all = end == total;
            }
            _ => {}
        }
        Ok(())
    }

    /// Copies bytes to where a step receives them.
    fn store(&self, step: u32, into: Blocks, begun: u64, data: Span, reach: &Reach) -> Result<(), Fault> {
        let spot = self.buffers.spots[step as usize];
        let mut at = 0;
        while at < data.bytes() {
            let (region, offset, here) = self.buffers.region(into.buffer, spot.at[0] + begun + at as u64)?;
            let bytes = here.min((data.bytes() - at) as u64) as usize;
            reach.put(region, offset, data.slice(at, bytes))?;
            at += bytes;
        }
        Ok(())
    }

    /// Drives a receive from another host.
    pub(super) fn fetch(&mut self, step: u32, peer: u32, edge: u32, reach: &Reach) -> Result<Did, Stop> {
        let may_begin = self.limit(step).1;
        let bytes = self.buffers.spots[step as usize].bytes;
        let state = &self.states[step as usize];
        let (done, is_settling) = (state.done, state.settling);
        let Some(fetches) = &mut self.fetches else { return Ok(Did::Nothing) };
        let fetch = &mut fetches.fetches[step as usize];
        if let Some(fault) = fetch.fault.take() {
            fetch.asked = None;
            return Err(fault.into());
        }
        if state.said_all && !is_settling {
            fetch.asked = None;
            return Ok(Did::All);
        }
        if fetch.is_known {
            return Ok(Did::All);
        }
        let is_withdrawn = self.record.is_withdrawn();
        if is_withdrawn && !is_settling {
            fetch.asked = None;
            return self.leave(step, reach);
        }
        if !may_begin && !is_settling {
            return Ok(Did::Nothing);
        }
        let server = if fetch.is_elsewhere { peer } else { reach.segment.server_of(peer) };
        if fetch.asked.is_some_and(|(asked, _)| asked == server) {
            return Ok(Did::Nothing);
        }
        fetches.attempts += 1;
        fetch.asked = Some((server, fetches.attempts));
        let note = Note {
            kind: match is_settling {
                false => Kind::Fetch,
                true if is_withdrawn => Kind::Leave,
                true => Kind::Done,
            },
            context: self.context,
            sequence: self.sequence,
            sender: peer,
            receiver: self.rank.peer(),
            to: self.plan.schedule.rank,
            edge,
            step,
            attempt: fetches.attempts,
            offset: done,
            total: bytes,
        };
        fetches.notes.push((server, note));
        Ok(Did::Something)
    }
}
