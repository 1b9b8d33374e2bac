// SPDX-License-Identifier: BSD-3-Clause
//! What pages show, for other programs: CSV and Parquet of any view, the picture of the fabric at a time of
//! the past, and a job's course as a trace for Perfetto. Whose job it is is asked in SQL, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Json, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{OfJob, OfWeb, asking, errors_sum, guid, known_job, span, table_of, wrong};
use super::hosts::{no_host, sees};
use super::limits::Underway;
use super::state::Web;
use crate::fabric::counters::{COUNTERS, Sample};
use crate::jobs::key;
use crate::live::frame;
use crate::people::{Role, Who};
use crate::time::{now_ms, seconds};

type Refusal = (StatusCode, String);

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Csv,
    Parquet,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum View {
    /// Samples of ports, or of one.
    Ports,
    /// Errors of ports, summed.
    Errors,
    /// Numbers of hosts, or of one.
    Hosts,
    Jobs,
    /// Counters of one job's ranks.
    Job,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    view: View,
    #[serde(default)]
    format: Format,
    from: Option<u64>,
    to: Option<u64>,
    /// A port's node by its GUID, and its number.
    node: Option<String>,
    port: Option<u8>,
    /// A host.
    host: Option<String>,
    /// A job.
    source: Option<String>,
    id: Option<String>,
}

type Parameters = Vec<(&'static str, String)>;

/// A table of any length: short questions over slices of time, between which the store takes rows.
pub async fn export(
    State(web): OfWeb,
    Extension(who): Extension<Who>,
    Query(asked): Query<Asked>,
) -> Result<Response, Refusal> {
    if matches!(asked.view, View::Job) {
        let (source, id) = (asked.source.clone().unwrap_or_default(), asked.id.clone().unwrap_or_default());
        known_job(&web, &who, source, id).await?;
    }
    if matches!(asked.view, View::Hosts) && web.private_hosts && who.role < Role::Support {
        let host = asked.host.as_deref().unwrap_or_default();
        if !sees(&web, &web.live.now(), &who, host) {
            return Err(no_host());
        }
    }
    let (kind, ending) = match asked.format {
        Format::Csv => ("text/csv; charset=utf-8", "csv"),
        Format::Parquet => ("application/vnd.apache.parquet", "parquet"),
    };
    let slices = Slices::of(&asked, &who)?;
    let underway = web.exports.begin(&who.name)?;
    let name = format!("attachment; filename=\"{:?}.{ending}\"", asked.view).to_lowercase();
    let body = match asked.format {
        // One file has one end, where it says what is in it.
        Format::Parquet => {
            slices.count(&web).await?;
            let Slices { sql, mut parameters, from, to, .. } = slices;
            parameters.extend([("from", seconds(from)), ("to", seconds(to))]);
            Body::from(asking(&web, move |store| store.export(&sql, &parameters, "Parquet")).await?)
        }
        Format::Csv => slices.streamed(web, underway).await?,
    };
    Ok(([(header::CONTENT_TYPE, kind.to_string()), (header::CONTENT_DISPOSITION, name)], body)
        .into_response())
}

/// A slice is to take the store about so long.
const SLICE_TIME: Duration = Duration::from_millis(300);
/// The first is so long that the largest fabric has a moderate number of rows in it.
const SLICE_FIRST_MS: u64 = 30_000;
/// Rows that a file of Parquet may have; it is made in the store's memory.
const PARQUET_ROWS_MAX: u64 = 10_000_000;

/// A SELECT over a time that is asked for in parts; `from` and `to` are its parameters.
struct Slices {
    sql: String,
    parameters: Parameters,
    from: u64,
    to: u64,
    /// Rows of a time follow those of the time before; else there is one slice.
    are_many: bool,
    step: u64,
}

impl Slices {
    fn of(asked: &Asked, who: &Who) -> Result<Slices, Refusal> {
        let (from, to, _) = span(asked.from, asked.to, 1)?;
        let (sql, parameters) = query(asked, who, from, to)?;
        let are_many = matches!(asked.view, View::Ports | View::Hosts | View::Job);
        // Rows of rollups stand at the beginning of their minutes: each is in one slice.
        let step = if are_many { SLICE_FIRST_MS } else { to - from };
        Ok(Slices { sql, parameters, from, to, are_many, step })
    }

    /// Refuses what is too long for one file.
    async fn count(&self, web: &Arc<Web>) -> Result<(), Refusal> {
        let sql = format!("SELECT count() FROM ({})", self.sql);
        let mut parameters = self.parameters.clone();
        parameters.extend([("from", seconds(self.from)), ("to", seconds(self.to))]);
        let rows = asking(web, move |store| store.select(&sql, &parameters)).await?;
        let rows = rows[0][0].as_u64().unwrap_or(0);
        if rows <= PARQUET_ROWS_MAX {
            return Ok(());
        }
        let why = format!(
            "{rows} rows are more than a file of Parquet may have here ({PARQUET_ROWS_MAX}): ask for less time, or for CSV"
        );
        Err((StatusCode::PAYLOAD_TOO_LARGE, why))
    }

    /// The next slice as CSV; the first has the names. Nothing: that was all.
    async fn next(&mut self, web: &Arc<Web>, is_first: bool) -> Option<Result<Vec<u8>, Refusal>> {
        if self.from >= self.to {
            return None;
        }
        let end = (self.from + self.step).min(self.to);
        let (sql, mut parameters) = (self.sql.clone(), self.parameters.clone());
        parameters.extend([("from", seconds(self.from)), ("to", seconds(end))]);
        let format = if is_first { "CSVWithNames" } else { "CSV" };
        let begun = Instant::now();
        let found = asking(web, move |store| store.export(&sql, &parameters, format)).await;
        let took = begun.elapsed();
        self.from = end;
        if self.are_many {
            self.step = if took < SLICE_TIME / 2 { self.step * 2 } else { self.step };
            self.step = if took > SLICE_TIME * 2 { (self.step / 2).max(1000) } else { self.step };
        }
        Some(found)
    }

    /// All slices, each asked for when the one before is on its way. An error after the first ends the answer
    /// before its end, which clients see.
    async fn streamed(mut self, web: Arc<Web>, underway: Underway) -> Result<Body, Refusal> {
        let first = self.next(&web, true).await.unwrap_or(Ok(Vec::new()))?;
        let rest = stream::unfold((self, web, underway), |(mut slices, web, underway)| async move {
            let next = slices.next(&web, false).await?.map(Bytes::from).map_err(|(_, why)| {
                slices.from = slices.to;
                std::io::Error::other(why)
            });
            Some((next, (slices, web, underway)))
        });
        Ok(Body::from_stream(stream::once(async { Ok(Bytes::from(first)) }).chain(rest)))
    }
}

/// A text as a cell of CSV that no program of tables takes for a formula.
fn plain(format: Format, column: &str) -> String {
    match format {
        Format::Csv => {
            format!("if(match({column}, '^[=+@\\\\-\\\\t\\\\r]'), concat('\\'', {column}), {column})")
        }
        Format::Parquet => column.into(),
    }
}

/// The condition that asks for one port, if it is asked for.
fn of_port(asked: &Asked, parameters: &mut Parameters) -> Result<String, Refusal> {
    let mut of_port = String::new();
    if let Some(node) = &asked.node {
        of_port += " AND node = {node:UInt64}";
        parameters.push(("node", guid(node)?.to_string()));
    }
    if let Some(port) = asked.port {
        of_port += " AND port = {port:UInt8}";
        parameters.push(("port", port.to_string()));
    }
    Ok(of_port)
}

/// The SELECT of a view over a time, with its parameters but that time.
fn query(asked: &Asked, who: &Who, from: u64, to: u64) -> Result<(String, Parameters), Refusal> {
    const IN_TIME: &str = "ts >= toDateTime64({from:Float64}, 3) AND ts < toDateTime64({to:Float64}, 3)";
    const NAMES: &str = "(SELECT guid, argMax(name, seen) AS name FROM nodes GROUP BY guid)";
    let mut parameters = Parameters::new();
    let text = |column: &str| plain(asked.format, column);
    let table = table_of(to - from).0;
    let of_port = of_port(asked, &mut parameters)?;
    let sql = match asked.view {
        View::Ports => {
            let counters: Vec<_> = COUNTERS.iter().map(|counter| counter.name).collect();
            format!(
                "SELECT ts, leftPad(lower(hex(node)), 16, '0') AS guid, {} AS name, port, seconds, flags, sent, received, {} \
                 FROM {table} AS s LEFT JOIN {NAMES} AS n ON n.guid = s.node WHERE {IN_TIME}{of_port} ORDER BY ts, node, port",
                text("n.name"),
                counters.join(", ")
            )
        }
        View::Errors => {
            let errors: Vec<_> = COUNTERS.iter().filter(|counter| counter.is_error).collect();
            let sums: Vec<_> =
                errors.iter().map(|counter| format!("sum({0}) AS {0}_sum", counter.name)).collect();
            format!(
                "SELECT leftPad(lower(hex(node)), 16, '0') AS guid, {} AS name, port, sum({}) AS errors, {} \
                 FROM {table} AS s LEFT JOIN {NAMES} AS n ON n.guid = s.node WHERE {IN_TIME}{of_port} \
                 GROUP BY node, port HAVING errors > 0 ORDER BY errors DESC",
                text("any(n.name)"),
                errors_sum(),
                sums.join(", ")
            )
        }
        View::Hosts => {
            let of_host = if asked.host.is_some() { " AND host = {host:String}" } else { "" };
            parameters.extend(asked.host.clone().map(|host| ("host", host)));
            let (host, name) = (text("host"), text("name"));
            match table {
                "port_samples" => format!(
                    "SELECT ts, {host} AS host, {name} AS name, value FROM host_samples ARRAY JOIN mapKeys(numbers) AS name, \
                     mapValues(numbers) AS value WHERE {IN_TIME}{of_host} ORDER BY ts, host, name"
                ),
                _ => format!(
                    "SELECT ts, {host} AS host, {name} AS name, sum(sums[name]) / sum(counts[name]) AS value FROM host_minutes \
                     ARRAY JOIN mapKeys(counts) AS name WHERE {IN_TIME}{of_host} GROUP BY ts, host, name \
                     ORDER BY ts, host, name"
                ),
            }
        }
        View::Jobs => {
            parameters.extend(sight(who));
            let [id, user, project, name, state] = ["id", "user", "project", "name", "state"].map(text);
            format!(
                "SELECT source, {id} AS id, {user} AS user, {project} AS project, {name} AS name, nodes, ranks, {state} AS state, start, end FROM jobs FINAL \
                 WHERE start < toDateTime64({{to:Float64}}, 3) AND (end IS NULL OR end >= toDateTime64({{from:Float64}}, 3)) \
                 AND {SEEN} ORDER BY start"
            )
        }
        View::Job => {
            let (source, id) =
                (asked.source.as_deref().unwrap_or_default(), asked.id.as_deref().unwrap_or_default());
            parameters.push(("job", key(source, id)));
            let (host, name) = (text("host"), text("name"));
            format!(
                "SELECT ts, rank, {host} AS host, pid, {name} AS name, value FROM job_samples ARRAY JOIN mapKeys(counters) AS name, \
                 mapValues(counters) AS value WHERE job = {{job:String}} AND {IN_TIME} ORDER BY ts, rank, host, pid, name"
            )
        }
    };
    Ok((sql, parameters))
}

/// Which rows of `jobs` a person may see, as `Who::sees` says; with the parameters of `sight`.
const SEEN: &str =
    "({all:UInt8} OR user = {user:String} OR has(JSONExtract({projects:String}, 'Array(String)'), project))";

fn sight(who: &Who) -> Parameters {
    let projects: &[String] = if who.role == Role::Manager { &who.projects } else { &[] };
    vec![
        ("all", u8::from(who.role >= Role::Support).to_string()),
        ("user", who.name.clone()),
        ("projects", json!(projects).to_string()),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    at: u64,
}

/// What all links did at a time of the past, in the form of the live frames, drawn on the topology of now.
pub async fn picture(State(web): OfWeb, Query(At { at }): Query<At>) -> Result<Response, Refusal> {
    // A sweep may take so long at most to be found: of older times there are minutes, or tens of them.
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

/// A sample of the past; which errors they were is not asked.
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

/// Jobs that ran at a time of the past.
pub async fn jobs_at(
    State(web): OfWeb,
    Extension(who): Extension<Who>,
    Query(At { at }): Query<At>,
) -> super::api::Answer {
    let sql = format!(
        "SELECT source, id, user, name, nodes, ranks, toUnixTimestamp64Milli(start), toUnixTimestamp64Milli(end) FROM jobs FINAL \
         WHERE start <= toDateTime64({{at:Float64}}, 3) AND (end IS NULL OR end > toDateTime64({{at:Float64}}, 3)) AND {SEEN} \
         ORDER BY start LIMIT 1000"
    );
    let mut parameters = sight(&who);
    parameters.push(("at", seconds(at.min(253_402_300_800_000))));
    let rows = asking(&web, move |store| store.select(&sql, &parameters)).await?;
    Ok(Json(json!({"jobs": rows})))
}

/// A job's course in Chrome's trace format, which ui.perfetto.dev opens: for each rank what it does in a
/// second.
pub async fn trace(
    State(web): OfWeb,
    Extension(who): Extension<Who>,
    Query(asked): Query<OfJob>,
) -> Result<Response, Refusal> {
    known_job(&web, &who, asked.source.clone(), asked.id.clone()).await?;
    let sql = "SELECT toUnixTimestamp64Micro(ts), rank, host, pid, counters FROM job_samples WHERE job = {job:String} \
               ORDER BY host, rank, pid, ts LIMIT 1000000";
    let parameters = vec![("job", key(&asked.source, &asked.id))];
    let rows = asking(&web, move |store| store.select(sql, &parameters)).await?;
    let text =
        json!({"displayTimeUnit": "ms", "traceEvents": events(rows.as_array().map_or(&[], Vec::as_slice))})
            .to_string();
    let name = "attachment; filename=\"job.json\"";
    Ok(([(header::CONTENT_TYPE, "application/json"), (header::CONTENT_DISPOSITION, name)], text)
        .into_response())
}

/// A sum of counters that a trace shows as a rate.
struct Track {
    name: &'static str,
    is_meant: fn(&str) -> bool,
    /// What a rate is divided by.
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

/// By the library's own counters, and by those of the watch library.
fn is_sent(name: &str) -> bool {
    name.ends_with("_bytes_sent")
        || name.ends_with("send_bytes")
        || (name.starts_with("sendrecv") && name.ends_with("_bytes"))
}

/// Events of samples that stand in the order of host, rank and process: a process for each host, and
/// counters for each rank.
fn events(rows: &[Value]) -> Vec<Value> {
    let mut events = Vec::new();
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut last: Option<(&Value, [f64; TRACKS.len()])> = None;
    for row in rows {
        let (Some(host), Some(at), Some(rank)) = (row[2].as_str(), row[0].as_f64(), row[1].as_u64()) else {
            continue;
        };
        let next = hosts.len() + 1;
        let pid = *hosts.entry(host).or_insert_with(|| {
            events.push(json!({"ph": "M", "name": "process_name", "pid": next, "args": {"name": host}}));
            next
        });
        let counters = row[4].as_object().into_iter().flatten();
        let mut sums = [0.0; TRACKS.len()];
        for (name, value) in counters {
            for (sum, track) in sums.iter_mut().zip(TRACKS) {
                if (track.is_meant)(name) {
                    *sum += value.as_f64().unwrap_or(0.0) / track.unit;
                }
            }
        }
        if let Some((before, then)) = last
            && (&before[1], &before[2], &before[3]) == (&row[1], &row[2], &row[3])
        {
            let begun = before[0].as_f64().unwrap_or(at);
            let seconds = ((at - begun) / 1e6).max(1e-6);
            for (Track { name, .. }, (now, then)) in TRACKS.iter().zip(sums.iter().zip(then)) {
                let rate = (now - then).max(0.0) / seconds;
                let (name, args) = (format!("rank {rank}: {name}"), json!({"value": rate}));
                events.push(json!({"ph": "C", "pid": pid, "ts": begun, "name": name, "args": args}));
            }
        }
        last = Some((row, sums));
    }
    events
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
        let events = events(&rows);
        let value = |name: &str| {
            let found: Vec<_> = events.iter().filter(|event| event["name"] == name).collect();
            (found.len(), found[0]["args"]["value"].as_f64().unwrap(), found[0]["ts"].as_f64().unwrap())
        };
        assert_eq!(value("rank 0: sent B/s"), (1, 200.0, 1e6));
        assert_eq!(value("rank 0: waiting"), (1, 0.5, 1e6));
        assert_eq!(value("rank 1: sent B/s"), (1, 7.0, 1e6), "another rank begins anew");
        assert_eq!(events.iter().filter(|event| event["ph"] == "M").count(), 1);
    }

    #[test]
    fn a_user_is_given_his_jobs_only() {
        let who = |role| Who { name: "eva".into(), role, projects: vec!["c'fd".into()] };
        let words = |role| sight(&who(role)).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        assert_eq!(words(Role::User), ["0", "eva", "[]"]);
        assert_eq!(words(Role::Manager), ["0", "eva", "[\"c'fd\"]"]);
        assert_eq!(words(Role::Support)[0], "1");
        let asked = Asked {
            view: View::Jobs,
            format: Format::Csv,
            from: None,
            to: None,
            node: None,
            port: None,
            host: None,
            source: None,
            id: None,
        };
        assert!(query(&asked, &who(Role::User), 1, 2).unwrap().0.contains(SEEN));
        let odd = Asked { node: Some("'; DROP".into()), view: View::Ports, ..asked };
        assert!(query(&odd, &who(Role::User), 1, 2).is_err());
    }
}
