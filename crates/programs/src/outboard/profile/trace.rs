// SPDX-License-Identifier: BSD-3-Clause
//! The events of a trace as Rust values, as far as a profile needs them. `telemetry::chrome` writes them. As
//! `serde_json::Value` a million events would take gigabytes.

use std::borrow::Cow;

use serde::Deserialize;

/// A whole trace file: its events, and facts about the job.
#[derive(Deserialize)]
pub struct Trace<'a> {
    #[serde(rename = "traceEvents", borrow)]
    pub events: Vec<TraceEvent<'a>>,
    #[serde(rename = "otherData", default)]
    pub about: TraceFacts,
}

/// What a trace file says about the job: its command line, its hosts, and the version of Outboard.
#[derive(Default, Deserialize)]
pub struct TraceFacts {
    pub command: Option<String>,
    pub version: Option<String>,
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// An event of a trace; the fields have the names of Chrome's format. A field that this kind of event does
/// not have is empty or 0.
#[derive(Deserialize)]
pub struct TraceEvent<'a> {
    #[serde(borrow)]
    pub ph: Cow<'a, str>,
    #[serde(borrow, default)]
    pub cat: Cow<'a, str>,
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    #[serde(default)]
    pub pid: u64,
    #[serde(default)]
    pub tid: u64,
    #[serde(default)]
    pub ts: f64,
    #[serde(default)]
    pub dur: f64,
    #[serde(borrow, default)]
    pub id2: Id<'a>,
    #[serde(borrow, default)]
    pub args: EventArguments<'a>,
}

/// The id of an operation, which its two events (begin and end) have in common.
#[derive(Default, Deserialize)]
pub struct Id<'a> {
    #[serde(borrow, default)]
    pub local: Cow<'a, str>,
}

/// The arguments of an event: of a call, a collective, a send or receive, an epoch of a window, or a step.
#[derive(Default, Deserialize)]
pub struct EventArguments<'a> {
    #[serde(borrow, default)]
    pub site: Cow<'a, str>,
    #[serde(borrow, default)]
    pub context: Cow<'a, str>,
    #[serde(borrow, default)]
    pub direction: Cow<'a, str>,
    #[serde(default)]
    pub bytes: u64,
    pub peer: Option<u64>,
    /// The root of a collective, by its number in MPI_COMM_WORLD. None if the collective has no root.
    pub root: Option<u64>,
    /// For an event of a scan (MPI_Scan, MPI_Exscan): the rank of its process in the comm. None for any other
    /// event.
    pub place: Option<u64>,
    /// The ranks from which this rank receives in a neighborhood collective, else empty.
    #[serde(default)]
    pub sources: Box<[u64]>,
    #[serde(borrow, default)]
    pub lock: Cow<'a, str>,
    #[serde(default)]
    pub tag: i64,
    #[serde(default)]
    pub number: u64,
}

/// The latest time in us that is accepted. A later one is an error: no monotonic clock has run for 30 years.
const TIME_MAX: f64 = 1e15;

/// Returns the trace that `text` holds. An error is a sentence that says why `text` is no trace.
pub fn parse(text: &str) -> Result<Trace<'_>, String> {
    let trace: Trace = serde_json::from_str(text).map_err(|error| match error.is_eof() {
        true => format!("the file is cut off: {error}"),
        false => format!("no trace that OUTBOARD_TRACE made: {error}"),
    })?;
    let is_time = |time: f64| (0.0..TIME_MAX).contains(&time);
    match trace.events.iter().find(|event| !is_time(event.ts) || !is_time(event.dur)) {
        Some(event) => {
            Err(format!("no trace that OUTBOARD_TRACE made: {} has no time that can be", event.name))
        }
        None => Ok(trace),
    }
}
