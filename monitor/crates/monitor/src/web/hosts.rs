// SPDX-License-Identifier: BSD-3-Clause
//! Hosts: the reports of agents come in, and pages ask what hosts do.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, Json, Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Answer, OfWeb, blocking, span, table_of, wrong};
use super::state::Web;
use crate::agent::{HOST, SIGNATURE};
use crate::hosts::{Summary, checked, take};
use crate::people::Who;
use crate::time::{now_ms, seconds};

/// A report of an agent. Its signature, not a session, says whose it is.
pub async fn report(
    State(web): OfWeb,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, (StatusCode, String)> {
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_string();
    let (host, signature) = (text(HOST), text(SIGNATURE));
    blocking(move || Ok(received(&web, &host, &signature, &body))).await?
}

fn received(
    web: &Arc<Web>,
    host: &str,
    signature: &str,
    body: &[u8],
) -> Result<StatusCode, (StatusCode, String)> {
    let report =
        checked(&web.agent_secret, host, signature, body).map_err(|why| (StatusCode::FORBIDDEN, why))?;
    take(&mut web.live.now().hosts, &web.writer, report, now_ms())
        .map_err(|why| (StatusCode::CONFLICT, why))?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn hosts(State(web): OfWeb) -> Json<Value> {
    let at = now_ms();
    let hosts: Vec<Summary> = web.live.now().hosts.values().map(|host| host.summary(at)).collect();
    Json(json!({"hosts": hosts}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfHost {
    name: String,
}

/// All that a host tells but its jobs: of them only those that this person may see.
pub async fn host(State(web): OfWeb, Extension(who): Extension<Who>, Query(asked): Query<OfHost>) -> Answer {
    let now = web.live.now();
    let host = now.hosts.get(&asked.name).ok_or((StatusCode::NOT_FOUND, "no such host tells".to_string()))?;
    let runs =
        now.jobs.iter().filter(|job| job.end.is_none() && job.nodes.contains(&asked.name) && who.sees(job));
    let jobs: Vec<Value> = runs
        .map(|job| json!({"id": job.id, "source": job.source, "name": job.name, "user": job.user}))
        .collect();
    let part = &host.report.part;
    Ok(Json(json!({"summary": host.summary(now_ms()), "gauges": part.gauges, "counters": part.counters,
        "rates": host.rates, "facts": part.facts, "jobs": jobs, "interval_s": host.report.interval_s})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfPast {
    name: String,
    metric: String,
    from: Option<u64>,
    to: Option<u64>,
}

/// A host's number over time: mean and highest of each step.
pub async fn history(State(web): OfWeb, Query(asked): Query<OfPast>) -> Answer {
    let (from, to, step) = span(asked.from, asked.to, 1000)?;
    if asked.metric.len() > 512 {
        return Err(wrong("metric: no number of a host has so long a name"));
    }
    let (table, time, least) = match table_of(to - from) {
        ("port_samples", time, least) => ("host_samples", time, least),
        _ => ("host_minutes", "toInt64(toUnixTimestamp(ts)) * 1000", 60_000),
    };
    let (map, mean, highest) = match table {
        "host_samples" => ("numbers", "avg(numbers[{metric:String}])", "numbers[{metric:String}]"),
        // A sum of 0 is not in the map of sums.
        _ => (
            "counts",
            "sum(sums[{metric:String}]) / sum(counts[{metric:String}])",
            "highest[{metric:String}]",
        ),
    };
    let step = step.max(least);
    let sql = format!(
        "SELECT intDiv({time}, {{step:Int64}}) * {{step:Int64}} AS t, {mean}, max({highest}) FROM {table} \
         WHERE host = {{host:String}} AND mapContains({map}, {{metric:String}}) \
         AND ts >= toDateTime64({{from:Float64}}, 3) AND ts < toDateTime64({{to:Float64}}, 3) GROUP BY t ORDER BY t"
    );
    let parameters = vec![
        ("step", step.to_string()),
        ("metric", asked.metric),
        ("host", asked.name),
        ("from", seconds(from)),
        ("to", seconds(to)),
    ];
    let rows = blocking(move || web.store.select(&sql, &parameters)).await?;
    Ok(Json(json!({"step": step, "rows": rows})))
}
