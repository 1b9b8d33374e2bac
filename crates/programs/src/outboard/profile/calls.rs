// SPDX-License-Identifier: BSD-3-Clause
//! The MPI calls in a trace, by thread, and the operations that may last longer than a call.

use std::collections::HashMap;
use std::ops::Range;

use telemetry::Unit;
use telemetry::chrome::FIRST_PROXY_PID;
use telemetry::summary::spaced;

use super::trace::{Trace, TraceEvent};

/// A thread in a trace: the number of its rank, and its own number in the rank's process.
pub type Thread = (u64, u64);

/// An MPI call of a rank. Calls that the library makes inside another call do not count.
pub struct MpiCall<'a> {
    pub thread: Thread,
    pub from: f64,
    pub until: f64,
    pub name: &'a str,
    pub site: &'a str,
    /// How many us of the call the rank waited for another rank that had not started its part yet.
    pub waited: f64,
}

/// An operation that may last longer than the call that starts it: a collective, a send, a receive, or an
/// epoch of a window.
pub struct Span<'a> {
    pub event: &'a TraceEvent<'a>,
    /// When the operation completed, in us. None if it never did.
    pub until: Option<f64>,
}

/// The events of a trace, sorted for making a profile. Times are in us.
pub struct TraceParts<'a> {
    /// The MPI calls of all ranks, sorted by thread, then by their start.
    pub calls: Vec<MpiCall<'a>>,
    /// For each thread, the range of its calls in `calls`.
    pub threads: HashMap<Thread, Range<usize>>,
    pub spans: Vec<Span<'a>>,
    /// The events by which one rank tells another the state of a partitioned message or of a window.
    pub signals: Vec<&'a TraceEvent<'a>>,
    /// The events for steps of schedules that proxies carried out.
    pub steps: Vec<&'a TraceEvent<'a>>,
    /// The period in us from the start of the trace's first event to the end of its last event.
    pub period: Range<f64>,
}

impl<'a> TraceParts<'a> {
    /// Sorts the events of a trace into its parts. Fails if the trace has no MPI call.
    pub fn of(trace: &'a Trace<'a>) -> Result<TraceParts<'a>, String> {
        let (mut start, mut end) = (f64::INFINITY, 0.0_f64);
        for event in trace.events.iter().filter(|event| !matches!(&*event.ph, "M" | "C")) {
            (start, end) = (start.min(event.ts), end.max(event.ts + event.dur));
        }
        let is_of_rank = |event: &&TraceEvent| event.pid < FIRST_PROXY_PID;
        let mut calls: Vec<MpiCall> = trace
            .events
            .iter()
            .filter(|it| it.cat == "call")
            .filter(is_of_rank)
            .map(|it| call(it, end))
            .collect();
        if calls.is_empty() {
            return Err("the trace has no MPI call".into());
        }
        calls.sort_by(|a, b| (a.thread.cmp(&b.thread)).then(a.from.total_cmp(&b.from)));
        let mut last = ((u64::MAX, 0), 0.0);
        calls.retain(|call| {
            let is_inside = call.thread == last.0 && call.until <= last.1;
            if !is_inside {
                last = (call.thread, call.until);
            }
            !is_inside
        });
        let mut threads: HashMap<Thread, Range<usize>> = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            threads.entry(call.thread).or_insert(at..at).end = at + 1;
        }
        let ends: HashMap<&str, f64> =
            trace.events.iter().filter(|it| it.ph == "e").map(|it| (&*it.id2.local, it.ts)).collect();
        let spans = trace.events.iter().filter(|it| it.ph == "b").filter(is_of_rank);
        let spans = spans.map(|event| Span { event, until: ends.get(&*event.id2.local).copied() });
        let steps = trace.events.iter().filter(|it| it.pid >= FIRST_PROXY_PID && it.cat == "step");
        let signals = trace.events.iter().filter(|it| matches!(&*it.cat, "partition" | "window"));
        let (spans, steps) = (spans.collect(), steps.collect());
        Ok(TraceParts { calls, threads, spans, signals: signals.collect(), steps, period: start..end })
    }

    /// Returns the index in `calls` of the call in which a thread was at `time`. None if the thread was
    /// outside MPI then.
    pub fn around(&self, thread: Thread, time: f64) -> Option<usize> {
        let range = self.threads.get(&thread)?.clone();
        let before = self.calls[range.clone()].partition_point(|call| call.from <= time);
        let at = range.start + before.checked_sub(1)?;
        (time <= self.calls[at].until).then_some(at)
    }
}

/// Returns the call that an event describes. A call that never ended lasts until `end`, the end of the trace.
fn call<'a>(event: &'a TraceEvent<'a>, end: f64) -> MpiCall<'a> {
    let until = if event.ph == "B" { end } else { event.ts + event.dur };
    let thread = (event.pid, event.tid);
    MpiCall { thread, from: event.ts, until, name: &event.name, site: &event.args.site, waited: 0.0 }
}

/// Returns a time in us as text with a suitable unit.
pub fn time(us: f64) -> String {
    spaced((1000.0 * us).round() as u64, Unit::Nanoseconds)
}

/// What an MPI function is for, which decides its colour in the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    Message,
    Completion,
    Collective,
    Window,
    File,
    Other,
}

impl FunctionKind {
    pub const ALL: [(FunctionKind, &'static str); 6] = [
        (FunctionKind::Message, "sends, receives, probes"),
        (FunctionKind::Completion, "waits and tests"),
        (FunctionKind::Collective, "collectives"),
        (FunctionKind::Window, "windows"),
        (FunctionKind::File, "files"),
        (FunctionKind::Other, "other calls"),
    ];

    /// Returns what the function of this name is for.
    pub fn of(function: &str) -> FunctionKind {
        let base = base(function);
        let begins = |words: &[&str]| words.iter().any(|word| base.starts_with(word));
        match () {
            () if begins(&[
                "win_",
                "put",
                "rput",
                "raccumulate",
                "rget",
                "accumulate",
                "fetch_",
                "compare_",
                "get_accumulate",
            ]) || base == "get" =>
            {
                FunctionKind::Window
            }
            () if begins(&["file_"]) => FunctionKind::File,
            () if begins(&["wait", "test"]) => FunctionKind::Completion,
            () if begins(COLLECTIVE) => FunctionKind::Collective,
            () if begins(MESSAGE) => FunctionKind::Message,
            () => FunctionKind::Other,
        }
    }
}

/// Returns an MPI function's name in small letters, without `MPI_` and without the I of a nonblocking
/// function.
pub fn base(function: &str) -> String {
    let name = function.strip_prefix("MPI_").unwrap_or(function);
    match name.as_bytes() {
        [b'I', second, ..] if second.is_ascii_lowercase() => name[1..].to_ascii_lowercase(),
        _ => name.to_ascii_lowercase(),
    }
}

const COLLECTIVE: &[&str] = &[
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "bcast",
    "exscan",
    "gather",
    "neighbor_",
    "reduce",
    "scan",
    "scatter",
];
const MESSAGE: &[&str] = &[
    "send", "recv", "ssend", "bsend", "rsend", "probe", "mprobe", "mrecv", "start", "psend", "precv",
    "pready", "parrived",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_kinds() {
        for (name, kind) in [
            ("MPI_Isend", FunctionKind::Message),
            ("MPI_Improbe", FunctionKind::Message),
            ("MPI_Sendrecv", FunctionKind::Message),
            ("MPI_Waitall", FunctionKind::Completion),
            ("MPI_Ialltoallw", FunctionKind::Collective),
            ("MPI_Barrier", FunctionKind::Collective),
            ("MPI_Get", FunctionKind::Window),
            ("MPI_Get_count", FunctionKind::Other),
            ("MPI_Init", FunctionKind::Other),
            ("MPI_Info_get", FunctionKind::Other),
            ("MPI_Win_fence", FunctionKind::Window),
            ("MPI_File_iread", FunctionKind::File),
        ] {
            assert_eq!(FunctionKind::of(name), kind, "{name}");
        }
    }
}
