// SPDX-License-Identifier: BSD-3-Clause
//! Requests about hosts: receives the reports that hosts send, and answers pages that ask what hosts do.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Json, Query, Request, State};
use axum::http::{StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Answer, WebState, asking, blocking, span, table_of, wrong};
use super::state::Web;
use crate::agent::{self, BEGIN, HOST, SIGNATURE};
use crate::hosts::{REPORT_BYTES_MAX, Summary, are_near, checked, take};
use crate::job::Job;
use crate::live::Now;
use crate::people::{Role, Who};
use crate::secret;
use crate::time::{now_ms, seconds};

/// Takes a report that a host sends (by `outboard monitor agent`). The report's signature, not a session,
/// says which host sent it. If the signature is wrong, only the head of the request is read.
pub async fn report(State(web): WebState, request: Request) -> Result<StatusCode, Refusal> {
    let (head, body) = request.into_parts();
    let text = |name: &str| {
        let value = head.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_string()
    };
    let (host, begin, signature) = (text(HOST), text(BEGIN), text(SIGNATURE));
    let length = text(header::CONTENT_LENGTH.as_str()).parse::<usize>().unwrap_or(usize::MAX);
    if length > REPORT_BYTES_MAX {
        return Err((
            StatusCode::PAYLOAD_TOO_LARGE,
            "a report has a Content-Length of at most 16 MiB".into(),
        ));
    }
    admitted(&web.agent_secret, &host, &begin, length, now_ms())?;
    let room = web.limits.report(length).await?;
    let body = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, length));
    let body =
        body.await.map_err(|_| (StatusCode::REQUEST_TIMEOUT, "the report does not come".to_string()))?;
    let body = body.map_err(|error| wrong(&format!("the report cannot be read: {error}")))?;
    blocking(move || {
        let _room = room;
        Ok(received(&web, &host, &signature, &body))
    })
    .await?
}

type Refusal = (StatusCode, String);

/// The longest time that the body of a report may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Checks that the head of a report is signed by the host `host` and was made now.
fn admitted(secret: &str, host: &str, begin: &str, length: usize, at: u64) -> Result<(), Refusal> {
    let forbidden = |why: String| (StatusCode::FORBIDDEN, why);
    let Some((time, signature)) = begin.split_once(' ') else {
        return Err(forbidden(format!("no {BEGIN}: the agent is of another version")));
    };
    let Ok(time) = time.parse::<u64>() else { return Err(forbidden(format!("{BEGIN} begins with no time"))) };
    if !secret::same(&agent::begin(&agent::host_key(secret, host), time, length), signature) {
        return Err(forbidden(format!("the signature is not that of {host:?}")));
    }
    are_near(time, at).map_err(|why| (StatusCode::CONFLICT, why))
}

fn received(web: &Arc<Web>, host: &str, signature: &str, body: &[u8]) -> Result<StatusCode, Refusal> {
    let report =
        checked(&web.agent_secret, host, signature, body).map_err(|why| (StatusCode::FORBIDDEN, why))?;
    take(&mut web.live.now().hosts, &web.writer, report, now_ms())
        .map_err(|why| (StatusCode::CONFLICT, why))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whether the person `who` may see a host. If the configuration has `private_hosts`, a user sees only hosts
/// on which a job runs that the user may see.
pub fn sees(web: &Web, now: &Now, who: &Who, host: &str) -> bool {
    let runs_there =
        |job: &Job| job.end.is_none() && who.sees(job) && job.nodes.iter().any(|node| node == host);
    !web.private_hosts || who.role >= Role::Support || now.jobs.iter().any(runs_there)
}

pub async fn hosts(State(web): WebState, Extension(who): Extension<Who>) -> Json<Value> {
    let at = now_ms();
    let now = web.live.now();
    let seen = now.hosts.iter().filter(|(name, _)| sees(&web, &now, &who, name));
    let hosts: Vec<Summary> = seen.map(|(_, host)| host.summary(at)).collect();
    Json(json!({"hosts": hosts}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostQuery {
    name: String,
}

/// Answers with the last report of a host. The report has only jobs that the person who asks may see.
pub async fn host(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Query(asked): Query<HostQuery>,
) -> Answer {
    let now = web.live.now();
    let host = now.hosts.get(&asked.name).filter(|_| sees(&web, &now, &who, &asked.name));
    let host = host.ok_or_else(no_host)?;
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
pub struct PastQuery {
    name: String,
    metric: String,
    from: Option<u64>,
    to: Option<u64>,
}

pub fn no_host() -> Refusal {
    (StatusCode::NOT_FOUND, "no such host tells".into())
}

/// Answers with one number of a host over time: its mean and maximum in each step.
pub async fn history(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Query(asked): Query<PastQuery>,
) -> Answer {
    if !sees(&web, &web.live.now(), &who, &asked.name) {
        return Err(no_host());
    }
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
        // A sum of 0 is missing in the map of sums.
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
    let rows = asking(&web, move |store| store.select(&sql, &parameters)).await?;
    Ok(Json(json!({"step": step, "rows": rows})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_body_is_not_asked_for() {
        let key = agent::host_key("secret", "n1");
        let begin = |key: &str, at: u64, length| format!("{at} {}", agent::begin(key, at, length));
        let told = |host: &str, begin: &str, length| {
            admitted("secret", host, begin, length, 1_000_000).map_err(|(code, _)| code.as_u16())
        };
        assert_eq!(told("n1", &begin(&key, 1_000_007, 99), 99), Ok(()));
        assert_eq!(told("n2", &begin(&key, 1_000_007, 99), 99), Err(403), "another host's");
        assert_eq!(told("n1", &begin(&key, 1_000_007, 99), 100), Err(403), "longer than was signed");
        assert_eq!(told("n1", &begin(&key, 9_000_007, 99), 99), Err(409), "of another time");
        assert_eq!(told("n1", "", 99), Err(403));
        assert_eq!(told("n1", "x y", 99), Err(403));
    }
}
