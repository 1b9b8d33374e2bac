// SPDX-License-Identifier: BSD-3-Clause
//! What pages show, for other programs: CSV and Parquet of any view, the picture of the fabric at a time of
//! the past, and a job's course as a trace for Perfetto. Whose job it is is asked in SQL, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use axum::body::Bytes;
use axum::extract::{Extension, Json, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{OfJob, OfWeb, blocking, errors_sum, guid, known_job, span, table_of, wrong};
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

#[derive(Deserialize)]
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

pub async fn export(
    State(web): OfWeb,
    Extension(who): Extension<Who>,
    Query(asked): Query<Asked>,
) -> Result<Response, Refusal> {
    if matches!(asked.view, View::Job) {
        let (source, id) = (asked.source.clone().unwrap_or_default(), asked.id.clone().unwrap_or_default());
        known_job(&web, &who, source, id).await?;
    }
    let (sql, parameters) = query(&asked, &who)?;
    let (written, kind, ending) = match asked.format {
        Format::Csv => ("CSVWithNames", "text/csv; charset=utf-8", "csv"),
        Format::Parquet => ("Parquet", "application/vnd.apache.parquet", "parquet"),
    };
    let bytes = blocking(move || web.store.export(&sql, &parameters, written)).await?;
    let name = format!("attachment; filename=\"{:?}.{ending}\"", asked.view).to_lowercase();
    Ok(([(header::CONTENT_TYPE, kind.to_string()), (header::CONTENT_DISPOSITION, name)], Bytes::from(bytes))
        .into_response())
}

/// The SELECT of a view, with its parameters.
fn query(asked: &Asked, who: &Who) -> Result<(String, Parameters), Refusal> {
    const IN_TIME: &str = "ts >= toDateTime64({from:Float64}, 3) AND ts < toDateTime64({to:Float64}, 3)";
    const NAMES: &str = "(SELECT guid, argMax(name, seen) AS name FROM nodes GROUP BY guid)";
    let (from, to, _) = span(asked.from, asked.to, 1)?;
    let mut parameters = vec![("from", seconds(from)), ("to", seconds(to))];
    let table = table_of(to - from).0;
    let mut of_port = String::new();
    if let Some(node) = &asked.node {
        of_port += " AND node = {node:UInt64}";
        parameters.push(("node", guid(node)?.to_string()));
    }
    if let Some(port) = asked.port {
        of_port += " AND port = {port:UInt8}";
        parameters.push(("port", port.to_string()));
    }
    let sql = match asked.view {
        View::Ports => {
            let counters: Vec<_> = COUNTERS.iter().map(|counter| counter.name).collect();
            format!(
                "SELECT ts, leftPad(lower(hex(node)), 16, '0') AS guid, n.name AS name, port, seconds, flags, sent, received, {} \
                 FROM {table} AS s LEFT JOIN {NAMES} AS n ON n.guid = s.node WHERE {IN_TIME}{of_port} ORDER BY ts, node, port",
                counters.join(", ")
            )
        }
        View::Errors => {
            let errors: Vec<_> = COUNTERS.iter().filter(|counter| counter.is_error).collect();
            let sums: Vec<_> =
                errors.iter().map(|counter| format!("sum({0}) AS {0}_sum", counter.name)).collect();
            format!(
                "SELECT leftPad(lower(hex(node)), 16, '0') AS guid, any(n.name) AS name, port, sum({}) AS errors, {} \
                 FROM {table} AS s LEFT JOIN {NAMES} AS n ON n.guid = s.node WHERE {IN_TIME}{of_port} \
                 GROUP BY node, port HAVING errors > 0 ORDER BY errors DESC",
                errors_sum(),
                sums.join(", ")
            )
        }
        View::Hosts => {
            let of_host = if asked.host.is_some() { " AND host = {host:String}" } else { "" };
            parameters.extend(asked.host.clone().map(|host| ("host", host)));
            match table {
                "port_samples" => format!(
                    "SELECT ts, host, name, value FROM host_samples ARRAY JOIN mapKeys(numbers) AS name, \
                     mapValues(numbers) AS value WHERE {IN_TIME}{of_host} ORDER BY ts, host, name"
                ),
                _ => format!(
                    "SELECT ts, host, name, sum(sums[name]) / sum(counts[name]) AS value FROM host_minutes \
                     ARRAY JOIN mapKeys(counts) AS name WHERE {IN_TIME}{of_host} GROUP BY ts, host, name \
                     ORDER BY ts, host, name"
                ),
            }
        }
        View::Jobs => {
            parameters.extend(sight(who));
            format!(
                "SELECT source, id, user, project, name, nodes, ranks, state, start, end FROM jobs FINAL \
                 WHERE start < toDateTime64({{to:Float64}}, 3) AND (end IS NULL OR end >= toDateTime64({{from:Float64}}, 3)) \
                 AND {SEEN} ORDER BY start"
            )
        }
        View::Job => {
            let (source, id) =
                (asked.source.as_deref().unwrap_or_default(), asked.id.as_deref().unwrap_or_default());
            parameters.push(("job", key(source, id)));
            format!(
                "SELECT ts, rank, host, pid, name, value FROM job_samples ARRAY JOIN mapKeys(counters) AS name, \
                 mapValues(counters) AS value WHERE job = {{job:String}} AND {IN_TIME} ORDER BY rank, host, pid, name, ts"
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
    let rows = blocking(move || web.store.select(&sql, &parameters)).await?;
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
    let rows = blocking(move || web.store.select(&sql, &parameters)).await?;
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
    let rows = blocking(move || web.store.select(sql, &parameters)).await?;
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
        assert!(query(&asked, &who(Role::User)).unwrap().0.contains(SEEN));
        let odd = Asked { node: Some("'; DROP".into()), view: View::Ports, ..asked };
        assert!(query(&odd, &who(Role::User)).is_err());
    }
}
