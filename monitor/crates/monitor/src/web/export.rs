// SPDX-License-Identifier: BSD-3-Clause
//! Answers about the past: a picture of the fabric at a past time, the jobs of that time, and what a job did
//! as a trace for Perfetto.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, Json, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{JobQuery, WebState, asking, errors_sum, known_job, wrong};
use super::limits::Underway;
use super::pages::{AnswerParts, Pages, Refusal, STORED_MAX, body};
use super::state::Web;
use super::tables::{SEEN, sight};
use crate::fabric::counters::{COUNTERS, Sample};
use crate::jobs::key;
use crate::live::frame;
use crate::people::Who;
use crate::time::{now_ms, seconds};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    at: u64,
}

/// Answers with the use of all links at a past time, in the binary format in which open pages get the present
/// use (`live.rs`). The links are those of the present topology.
pub async fn picture(State(web): WebState, Query(At { at }): Query<At>) -> Result<Response, Refusal> {
    // The longest distance from that time to the sweep that is shown. For older times the store has only
    // minutes or tens of minutes.
    let (table, window_ms) = match now_ms().saturating_sub(at) {
        age if age < 29 * 86_400_000 => ("port_samples", 120_000),
        age if age < 360 * 86_400_000 => ("port_minutes", 120_000),
        _ => ("port_tens", 1_200_000),
    };
    if at > 253_402_300_800_000 {
        return Err(wrong("at: a time in milliseconds since 1970"));
    }
    let sql = format!(
        "SELECT node, port, argMax(sent, ts), argMax(received, ts), argMax(flags, ts), argMax({}, ts) FROM {table} \
         WHERE ts > toDateTime64({{from:Float64}}, 3) AND ts <= toDateTime64({{at:Float64}}, 3) GROUP BY node, port",
        errors_sum()
    );
    let parameters = vec![("from", seconds(at.saturating_sub(window_ms))), ("at", seconds(at))];
    let topology = web.live.now().topology.clone();
    let rows = asking(&web, move |store| store.select(&sql, &parameters)).await?;
    let ports: HashMap<(u64, u8), Sample> = rows
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(sample)
        .map(|sample| ((sample.node, sample.port), sample))
        .collect();
    let bytes = frame(&topology, &ports, &BTreeSet::new(), at);
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

/// Makes a port's sample of a past time from a row of the store, or None if a value in the row is missing.
/// The row has only the sum of all kinds of errors, which is put into the first kind.
fn sample(row: &Value) -> Option<Sample> {
    let mut since = [0; COUNTERS.len()];
    since[COUNTERS.iter().position(|counter| counter.is_error)?] = row[5].as_u64()?;
    Some(Sample {
        node: row[0].as_u64()?,
        port: row[1].as_u64()?.try_into().ok()?,
        seconds: 0.0,
        flags: row[4].as_u64()?.try_into().ok()?,
        since,
        sent: row[2].as_f64().map(|share| share as f32),
        received: row[3].as_f64().map(|share| share as f32),
    })
}

/// Answers with the jobs that ran at a time of the past.
pub async fn jobs_at(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Query(At { at }): Query<At>,
) -> super::api::Answer {
    let sql = format!(
        "SELECT source, id, user, name, nodes, ranks, toUnixTimestamp64Milli(start), toUnixTimestamp64Milli(end) FROM jobs AS s FINAL \
         WHERE start <= toDateTime64({{at:Float64}}, 3) AND (end IS NULL OR end > toDateTime64({{at:Float64}}, 3)) AND {SEEN} \
         ORDER BY start LIMIT 1000"
    );
    let mut parameters = sight(&who);
    parameters.push(("at", seconds(at.min(253_402_300_800_000))));
    let rows = asking(&web, move |store| store.select(&sql, &parameters)).await?;
    Ok(Json(json!({"jobs": rows})))
}

/// Answers with what a job did, in Chrome's trace format, which ui.perfetto.dev opens: the rates of each
/// rank's counters, second by second.
pub async fn trace(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Query(asked): Query<JobQuery>,
) -> Result<Response, Refusal> {
    known_job(&web, &who, asked.source.clone(), asked.id.clone()).await?;
    let pages = Pages {
        table: "job_samples AS s".into(),
        key: vec![("rank", "UInt32"), ("ts", "DateTime64(3, 'UTC')")],
        stored_max: STORED_MAX,
        cells: Some("counters"),
        select: "SELECT toUnixTimestamp64Micro(s.ts), s.rank, s.host, s.pid, s.counters".into(),
        condition: "s.job = {job:String}".into(),
        rest: "ORDER BY s.rank, s.ts".into(),
        parameters: vec![("job", key(&asked.source, &asked.id))],
        ..Pages::default()
    };
    let underway = web.exports.begin(&who.name)?;
    let trace =
        Trace { web, pages, progress: TraceProgress::default(), is_whole: false, _underway: underway };
    let name = "attachment; filename=\"job.json\"";
    let head = [(header::CONTENT_TYPE, "application/json"), (header::CONTENT_DISPOSITION, name)];
    Ok((head, body(trace).await?).into_response())
}

/// A job's trace (a file for ui.perfetto.dev). It is made page by page of the job's samples while it is sent.
struct Trace {
    web: Arc<Web>,
    pages: Pages,
    progress: TraceProgress,
    is_whole: bool,
    _underway: Underway,
}

impl AnswerParts for Trace {
    async fn part(&mut self) -> Option<Result<Bytes, Refusal>> {
        let is_over = std::mem::replace(&mut self.is_whole, true);
        if is_over { None } else { Some(self.next().await) }
    }
}

impl Trace {
    /// Returns the trace's events for the next page of samples. After the last page returns the end of the
    /// file.
    async fn next(&mut self) -> Result<Bytes, Refusal> {
        if !self.pages.turn(&self.web).await? {
            return Ok(self.progress.end().into());
        }
        let (sql, parameters) = self.pages.question();
        let rows = asking(&self.web, move |store| store.select(&sql, &parameters)).await?;
        self.is_whole = false;
        Ok(self.progress.text(rows.as_array().map_or(&[], Vec::as_slice)).into())
    }
}

/// A track of the trace: a sum of some of a rank's counters, whose growth is shown as a rate.
struct Track {
    name: &'static str,
    is_meant: fn(&str) -> bool,
    /// The number by which the track's sum is divided, such as 1e9 to turn nanoseconds into seconds.
    unit: f64,
}

const fn track(name: &'static str, is_meant: fn(&str) -> bool, unit: f64) -> Track {
    Track { name, is_meant, unit }
}

const TRACKS: [Track; 5] = [
    track("sent B/s", is_sent, 1.0),
    track("received B/s", |name| name.ends_with("_bytes_received"), 1.0),
    track("calls/s", |name| name.ends_with("_calls"), 1.0),
    track("waiting", |name| name == "wait_ns", 1e9),
    track("CPU", |name| name == "cpu_ns", 1e9),
];

/// Whether `name` is a counter of sent bytes, from Outboard's library or from the watch library.
fn is_sent(name: &str) -> bool {
    name.ends_with("_bytes_sent")
        || name.ends_with("send_bytes")
        || (name.starts_with("sendrecv") && name.ends_with("_bytes"))
}

/// What the writing of a trace remembers from one page of samples to the next. In the trace each host is a
/// process that has counters for each rank.
#[derive(Default)]
struct TraceProgress {
    hosts: BTreeMap<String, usize>,
    /// The rank to which the samples that are read now belong.
    rank: u64,
    /// For each process of the present rank, by host and pid: the time of the last sample that was read, and
    /// the sums of the process's counters in it.
    last: HashMap<(String, u64), (f64, [f64; TRACKS.len()])>,
    has_started: bool,
}

impl TraceProgress {
    /// Returns the next part of the trace's text: the events that `rows` of samples give.
    fn text(&mut self, rows: &[Value]) -> String {
        let mut text = String::new();
        for event in self.events(rows) {
            let before = if self.has_started { "," } else { BEGIN };
            self.has_started = true;
            text += before;
            text += &event.to_string();
        }
        text
    }

    fn end(&self) -> String {
        format!("{}]}}", if self.has_started { "" } else { BEGIN })
    }

    /// Returns the events that the next rows of samples give. Rows are ordered by rank and time.
    fn events(&mut self, rows: &[Value]) -> Vec<Value> {
        let mut events = Vec::new();
        for row in rows {
            let (Some(at), Some(rank), Some(host)) = (row[0].as_f64(), row[1].as_u64(), row[2].as_str())
            else {
                continue;
            };
            if self.rank != rank {
                self.rank = rank;
                self.last.clear();
            }
            let next = self.hosts.len() + 1;
            let pid = *self.hosts.entry(host.into()).or_insert_with(|| {
                events.push(json!({"ph": "M", "name": "process_name", "pid": next, "args": {"name": host}}));
                next
            });
            let sums = sums(&row[4]);
            let process = (host.to_string(), row[3].as_u64().unwrap_or(0));
            if let Some((started, then)) = self.last.insert(process, (at, sums)) {
                let seconds = ((at - started) / 1e6).max(1e-6);
                for (Track { name, .. }, (now, then)) in TRACKS.iter().zip(sums.iter().zip(then)) {
                    let rate = (now - then).max(0.0) / seconds;
                    let (name, args) = (format!("rank {rank}: {name}"), json!({"value": rate}));
                    events.push(json!({"ph": "C", "pid": pid, "ts": started, "name": name, "args": args}));
                }
            }
        }
        events
    }
}

/// The text with which a trace file begins.
const BEGIN: &str = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

/// Returns the sums of a sample's counters, one sum for each of `TRACKS`.
fn sums(counters: &Value) -> [f64; TRACKS.len()] {
    let mut sums = [0.0; TRACKS.len()];
    for (name, value) in counters.as_object().into_iter().flatten() {
        for (sum, track) in sums.iter_mut().zip(TRACKS) {
            if (track.is_meant)(name) {
                *sum += value.as_f64().unwrap_or(0.0) / track.unit;
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_rates_of_each_rank() {
        let row = |at: u64, rank: u32, sent: u64, wait: u64| json!([at, rank, "n1", 7 + rank, {"eager_bytes_sent": sent, "send_calls": 2, "wait_ns": wait}]);
        let rows = [
            row(1_000_000, 0, 100, 0),
            row(3_000_000, 0, 500, 1_000_000_000),
            row(1_000_000, 1, 0, 0),
            row(2_000_000, 1, 7, 0),
        ];
        let text = |parts: &[&[Value]]| {
            let mut progress = TraceProgress::default();
            let mut text: String = parts.iter().map(|rows| progress.text(rows)).collect();
            text += &progress.end();
            serde_json::from_str::<Value>(&text).unwrap()["traceEvents"].as_array().unwrap().clone()
        };
        let events = text(&[&rows]);
        assert_eq!(text(&[&rows[..1], &[], &rows[1..3], &rows[3..]]), events, "however the pages lie");
        assert!(text(&[]).is_empty());
        let value = |name: &str| {
            let found: Vec<_> = events.iter().filter(|event| event["name"] == name).collect();
            (found.len(), found[0]["args"]["value"].as_f64().unwrap(), found[0]["ts"].as_f64().unwrap())
        };
        assert_eq!(value("rank 0: sent B/s"), (1, 200.0, 1e6));
        assert_eq!(value("rank 0: waiting"), (1, 0.5, 1e6));
        assert_eq!(value("rank 1: sent B/s"), (1, 7.0, 1e6), "another rank begins anew");
        assert_eq!(events.iter().filter(|event| event["ph"] == "M").count(), 1);
    }
}
