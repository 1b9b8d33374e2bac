// SPDX-License-Identifier: BSD-3-Clause
//! Answers to the page's requests for data, as JSON. Each function knows who asks, and shows nobody the jobs
//! of others.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use axum::extract::{Extension, Json, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::state::Web;
use crate::fabric::counters::COUNTERS;
use crate::job::Job;
use crate::jobs::{find, ranks_of};
use crate::live::Now;
use crate::people::{Role, Who};
use crate::store::Store;
use crate::time::{now_ms, seconds};

pub type Answer = Result<Json<Value>, (StatusCode, String)>;
pub type WebState = State<Arc<Web>>;

/// Answers whether the monitor runs and has lost no rows lately, and nothing else. A watching program may ask
/// this without an account.
pub async fn health(State(web): WebState) -> (StatusCode, Json<Value>) {
    match web.writer.written().dropped_lately {
        0 => (StatusCode::OK, Json(json!({"status": "ok"}))),
        _ => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "rows are lost"}))),
    }
}

pub async fn topology(State(web): WebState) -> Json<Value> {
    let (topology, error) = {
        let now = web.live.now();
        (now.topology.clone(), now.fabric.error.clone())
    };
    // `error` is why there is no fabric, or why there is none any more.
    Json(
        json!({"version": topology.version, "nodes": topology.nodes, "links": topology.links, "error": error}),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortQuery {
    node: String,
    pub port: u8,
    from: Option<u64>,
    to: Option<u64>,
}

impl PortQuery {
    pub fn guid(&self) -> Result<u64, (StatusCode, String)> {
        guid(&self.node)
    }
}

pub async fn port(State(web): WebState, Query(asked): Query<PortQuery>) -> Answer {
    let found = web.live.now().port(asked.guid()?, asked.port);
    Ok(Json(json!(found)))
}

pub fn guid(node: &str) -> Result<u64, (StatusCode, String)> {
    u64::from_str_radix(node, 16).map_err(|_| wrong("node: no GUID in hexadecimal"))
}

/// The most points that the page draws of a value over time.
const POINTS_MAX: u64 = 1000;
const HOUR_MS: u64 = 3_600_000;

/// Answers with a port's past, step by step: the highest use in the step, the mean rates, and the sums of
/// waits and errors.
pub async fn history(State(web): WebState, Query(asked): Query<PortQuery>) -> Answer {
    let guid = asked.guid()?;
    let (from, to, _) = span(asked.from, asked.to, 1)?;
    let (table, time, least) = table_of(to - from);
    let step = ((to - from) / POINTS_MAX).max(least);
    let sql = format!(
        "SELECT intDiv({time}, {{step:Int64}}) * {{step:Int64}} AS t, max(sent), max(received), \
         sum(xmit_bytes) / sum(seconds), sum(rcv_bytes) / sum(seconds), sum(xmit_wait), sum({}), groupBitOr(flags) \
         FROM {table} WHERE node = {{node:UInt64}} AND port = {{port:UInt8}} \
         AND ts >= toDateTime64({{from:Float64}}, 3) AND ts < toDateTime64({{to:Float64}}, 3) GROUP BY t ORDER BY t",
        errors_sum()
    );
    let parameters = vec![
        ("step", step.to_string()),
        ("node", guid.to_string()),
        ("port", asked.port.to_string()),
        ("from", seconds(from)),
        ("to", seconds(to)),
    ];
    let rows = asking(&web, move |store| store.select(&sql, &parameters)).await?;
    Ok(Json(json!({"step": step, "rows": rows})))
}

/// Chooses the table to read for a span of `span_ms` milliseconds. Returns the table's name, the SQL for the
/// time of a row in milliseconds, and the least distance between its rows in milliseconds.
pub fn table_of(span_ms: u64) -> (&'static str, &'static str, u64) {
    match span_ms {
        span if span <= 6 * HOUR_MS => ("port_samples", "toUnixTimestamp64Milli(ts)", 1000),
        span if span <= 14 * 24 * HOUR_MS => ("port_minutes", "toInt64(toUnixTimestamp(ts)) * 1000", 60_000),
        _ => ("port_tens", "toInt64(toUnixTimestamp(ts)) * 1000", 600_000),
    }
}

/// Returns the beginning and the end of a span of time (by default the last hour), and the length of a step
/// in it, which is at least `least`. All are in milliseconds.
pub fn span(from: Option<u64>, to: Option<u64>, least: u64) -> Result<(u64, u64, u64), (StatusCode, String)> {
    let to = to.unwrap_or_else(now_ms);
    let from = from.unwrap_or_else(|| to.saturating_sub(HOUR_MS));
    if from >= to || to > 253_402_300_800_000 {
        return Err(wrong("from, to: two times in milliseconds since 1970, the first before the second"));
    }
    Ok((from, to, ((to - from) / POINTS_MAX).max(least)))
}

pub fn errors_sum() -> String {
    let errors = COUNTERS.iter().filter(|counter| counter.is_error).map(|counter| counter.name);
    errors.collect::<Vec<_>>().join(" + ")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Since {
    #[serde(default = "an_hour")]
    minutes: u32,
}

fn an_hour() -> u32 {
    60
}

/// Answers with the ports that had the most errors in the last minutes. `since` has the number of minutes.
pub async fn errors(State(web): WebState, Query(since): Query<Since>) -> Answer {
    let each: Vec<_> = COUNTERS
        .iter()
        .filter(|counter| counter.is_error)
        .map(|counter| format!("sum({0}) AS {0}_", counter.name))
        .collect();
    let sql = format!(
        "SELECT leftPad(lower(hex(node)), 16, '0'), port, sum({}) AS every, {} FROM port_minutes \
         WHERE ts >= now() - 60 * {{minutes:UInt32}} GROUP BY node, port HAVING every > 0 ORDER BY every DESC LIMIT 50",
        errors_sum(),
        each.join(", ")
    );
    let rows =
        asking(&web, move |store| store.select(&sql, &[("minutes", since.minutes.to_string())])).await?;
    let names: Vec<_> =
        COUNTERS.iter().filter(|counter| counter.is_error).map(|counter| counter.name).collect();
    Ok(Json(json!({"names": names, "rows": rows})))
}

pub async fn jobs(State(web): WebState, Extension(who): Extension<Who>) -> Json<Value> {
    let now = web.live.now();
    let jobs: Vec<Value> = now
        .jobs
        .iter()
        .filter(|job| who.sees(job))
        .map(|job| {
            json!({"id": job.id, "source": job.source, "user": job.user, "name": job.name, "nodes": job.nodes,
                "ranks": job.ranks_count, "state": job.state, "start": job.start, "end": job.end})
        })
        .collect();
    Json(json!({"jobs": jobs, "errors": now.job_errors}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobQuery {
    pub source: String,
    pub id: String,
}

/// Returns a job that runs or ran lately, or a job from the store. A job that the person may not see is
/// answered like a job that does not exist.
pub async fn known_job(
    web: &Arc<Web>,
    who: &Who,
    source: String,
    id: String,
) -> Result<Job, (StatusCode, String)> {
    let is_it = |job: &&Job| job.id == id && job.source == source;
    let now = web.live.now().jobs.iter().find(is_it).cloned();
    let found = match now {
        Some(job) => Some(job),
        None => asking(web, move |store| find(store, &source, &id)).await?,
    };
    let seen = found.filter(|job| who.sees(job));
    seen.ok_or((StatusCode::NOT_FOUND, "there is no such job".to_string()))
}

/// Answers with a job: its ranks, sentences about what is striking in their counters, and what file servers
/// did for the job.
pub async fn job(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Query(asked): Query<JobQuery>,
) -> Answer {
    let mut job = known_job(&web, &who, asked.source.clone(), asked.id.clone()).await?;
    let storage = storage_of(&web.live.now(), &job);
    if job.ranks.is_empty() {
        job.ranks = asking(&web, move |store| ranks_of(store, &asked.source, &asked.id)).await?;
    }
    Ok(Json(json!({"job": job, "verdicts": job.verdicts(now_ms()), "storage": storage})))
}

/// Returns what the servers of the file system did for a job, summed over the servers. The servers know
/// Slurm's jobs by number.
fn storage_of(now: &Now, job: &Job) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let reported = now.hosts.values().filter_map(|host| host.report.part.storage.get(&job.id));
    for (name, value) in reported.filter(|_| job.source == "slurm").flatten() {
        let sum = sums.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*value);
    }
    sums
}

/// Answers with the state of the monitor itself: collectors, delays, lost rows, and the size of the store.
pub async fn status(State(web): WebState, Extension(who): Extension<Who>) -> Answer {
    if who.role < Role::Support {
        return Err((StatusCode::FORBIDDEN, "support and administrators see this".into()));
    }
    let (fabric, jobs) = {
        let now = web.live.now();
        (now.fabric.clone(), now.job_errors.clone())
    };
    let written = web.writer.written();
    let delivered = web.delivered.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (sizes, sizes_error) = web.store.sizes();
    Ok(Json(
        json!({"fabric": fabric, "jobs": jobs, "store": written, "sizes": sizes, "sizes_error": sizes_error,
        "notifications": delivered}),
    ))
}

pub fn wrong(why: &str) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, why.into())
}

/// Calls `work` with the store in a thread of its own, once fewer than `QUESTIONS` other requests use the
/// store. Returns what `work` returns.
pub async fn asking<T: Send + 'static>(
    web: &Arc<Web>,
    work: impl FnOnce(&Store) -> Result<T, String> + Send + 'static,
) -> Result<T, (StatusCode, String)> {
    let place = web.limits.question().await?;
    let store = web.store.clone();
    blocking(move || {
        let _place = place;
        work(&store)
    })
    .await
}

/// Calls `work`, which may block, in a thread of its own. Returns what `work` returns, or an answer that
/// reports its failure.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, (StatusCode, String)> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|why| (StatusCode::BAD_GATEWAY, why)),
        Err(_) => {
            Err((StatusCode::INTERNAL_SERVER_ERROR, "this request ended in a defect of the monitor".into()))
        }
    }
}
