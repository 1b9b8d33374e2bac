// SPDX-License-Identifier: BSD-3-Clause
//! Records of collectives for OUTBOARD_STATS and OUTBOARD_TRACE, by function, comm, and the call's number.
//! `message.rs` has the records of messages.

use super::{Guard, Process};
use crate::request::TracedCollective;
use objects::Comm;
use std::collections::{BTreeSet, HashMap};
use telemetry::{Carried, Choice, Event, Needs, TimedOperation};

/// The most pairs of function and comm whose calls are counted.
const COUNTED_MAX: usize = 10_000;

/// The counts of calls, by the comm's context id and the function's name.
#[derive(Default)]
pub struct CallCounts {
    calls: HashMap<(u64, &'static str), CountedCalls>,
    /// How many lists of neighbours this process has written into the trace, as `Event::Source` events.
    lists: u32,
}

/// The calls of one function on one comm: how many there were (`number`), their name in the trace (`name`),
/// and the index of their row in the statistics (`row`).
pub struct CountedCalls {
    pub(super) name: String,
    pub(super) row: usize,
    number: u32,
    /// The number of the list in the trace that names the neighbours from which this rank needs data. 0 if
    /// the trace has no such list.
    sources: u32,
}

impl CallCounts {
    /// Returns the counts of a function on the comm with the context id `context`. Returns None if there are
    /// too many pairs of function and comm. `comm` returns the comm's name, and is called for a new pair
    /// only.
    pub(super) fn calls(
        &mut self,
        context: u64,
        function: &'static str,
        comm: impl FnOnce() -> String,
    ) -> Option<&mut CountedCalls> {
        let key = (context, function);
        if self.calls.len() >= COUNTED_MAX && !self.calls.contains_key(&key) {
            return None;
        }
        Some(self.calls.entry(key).or_insert_with(|| {
            let name = format!("{function} on {}", comm());
            CountedCalls { row: telemetry::operations().enter(&name), name, number: 0, sources: 0 }
        }))
    }
}

/// Writes into the trace, under the number `list`, the neighbours in the comm from which this rank needs
/// data.
fn trace_sources(list: u32, comm: &Comm) {
    let sources = comm.topology.as_deref().map(|topology| topology.neighbors(comm.rank).1);
    let peers = sources.iter().flatten().flatten().filter_map(|rank| comm.group.peers.get(*rank as usize));
    for peer in peers.collect::<BTreeSet<_>>() {
        telemetry::event(Event::Source { list, peer: *peer });
    }
}

impl Process {
    /// Starts the record of a collective for statistics and trace. Returns None if operations are not timed.
    #[inline]
    pub(crate) fn operation(
        &mut self,
        function: &'static str,
        traced: impl FnOnce() -> TracedCollective,
    ) -> Option<Box<TimedOperation>> {
        if telemetry::timed() { self.timed_operation(function, traced()) } else { None }
    }

    #[cold]
    fn timed_operation(
        &mut self,
        function: &'static str,
        traced: TracedCollective,
    ) -> Option<Box<TimedOperation>> {
        let (objects, job) = self.parts();
        let comm = objects.comm(traced.comm).ok()?;
        let list = job.operations.lists + 1;
        let calls = job.operations.calls(comm.context, function, || comm.name_or(traced.comm))?;
        calls.number = calls.number.wrapping_add(1);
        let is_new = traced.has_neighbors && calls.sources == 0;
        if is_new {
            calls.sources = list;
            trace_sources(list, comm);
        }
        let needs = if traced.has_neighbors { Needs::Sources(calls.sources) } else { traced.needs(comm) };
        let (context, number) = traced.started.unwrap_or((comm.context, calls.number));
        let operation = TimedOperation::start(calls.row, (&calls.name, context, number), traced.bytes, needs);
        job.operations.lists += u32::from(is_new);
        Some(Box::new(operation))
    }
}

impl Guard {
    /// Starts the record of a collective for statistics and trace, under the name of the running MPI
    /// function. Returns None if operations are not timed.
    #[inline]
    pub(crate) fn record_collective(
        &mut self,
        traced: impl FnOnce() -> TracedCollective,
    ) -> Option<Box<TimedOperation>> {
        let function = self.doing.0;
        self.operation(function, traced)
    }
}

/// Ends the record (for statistics and trace) of a collective that is complete when its call returns.
#[inline]
pub(crate) fn end(operation: Option<Box<TimedOperation>>, choice: Choice) {
    if let Some(mut operation) = operation {
        operation.note_carried(Some(Carried { choice, ..Carried::default() }));
        operation.end();
    }
}
