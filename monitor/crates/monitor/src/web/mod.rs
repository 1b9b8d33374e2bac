// SPDX-License-Identifier: BSD-3-Clause
//! The monitor's web page, and the requests to it. Every request needs a session, except requests for the
//! page's own files. `api.rs`, where the data is read, decides what a session may see.

mod api;
mod desk;
mod export;
mod hosts;
mod limits;
mod links;
mod login;
mod metrics;
mod pages;
mod parquet;
mod proxy;
mod serve;
mod state;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use proxy::Asker;
use serve::CountedConnection;
pub use serve::{ConnectionLimits, serve};
use state::{FILES, bearer, session};
pub use state::{Files, Web};

use crate::people::Who;

/// The longest time for an answer. After it the request fails: its body has not arrived, or the store hangs.
const ANSWER_TIME: Duration = Duration::from_secs(120);
/// The most bytes in the body of a POST request, which has only a few fields.
const BODY_BYTES_MAX: usize = 64 << 10;
/// How often the session or token of a page that gets frames (messages with the links' use) is checked.
const STILL_EVERY: Duration = Duration::from_secs(10);

/// Returns all routes of the page. Each request passes the checks of session and origin first.
pub fn router(web: Arc<Web>) -> Router {
    let inside = Router::new()
        .route("/api/me", get(login::me))
        .route("/api/logout", post(login::log_out))
        .route("/api/password", post(login::password))
        .route("/api/accounts", get(desk::accounts).post(desk::set_account))
        .route("/api/accounts/remove", post(desk::remove_account))
        .route("/api/topology", get(api::topology))
        .route("/api/port", get(api::port))
        .route("/api/port/jobs", get(links::of_port))
        .route("/api/history", get(api::history))
        .route("/api/errors", get(api::errors))
        .route("/api/jobs", get(api::jobs))
        .route("/api/jobs/at", get(export::jobs_at))
        .route("/api/job", get(api::job))
        .route("/api/job/links", get(links::of_job))
        .route("/api/job/trace", get(export::trace))
        .route("/api/picture", get(export::picture))
        .route("/api/export", get(tables::export))
        .route("/api/openapi.json", get(openapi))
        .route("/api/hosts", get(hosts::hosts))
        .route("/api/host", get(hosts::host))
        .route("/api/host/history", get(hosts::history))
        .route("/api/status", get(api::status))
        .route("/api/alerts", get(desk::alerts))
        .route("/api/alerts/acknowledge", post(desk::acknowledge))
        .route("/api/criteria", get(desk::criteria).post(desk::set_criterion))
        .route("/api/criteria/remove", post(desk::remove_criterion))
        .route("/api/links/forget", post(desk::forget_link))
        .route("/api/tokens", get(desk::tokens).post(desk::add_token))
        .route("/api/tokens/remove", post(desk::remove_token))
        .route("/api/audit", get(desk::audit))
        .route("/api/live", get(live))
        .route("/metrics", get(metrics::metrics))
        .layer(from_fn_with_state(web.clone(), admit));
    let mut router = Router::new()
        .route("/api/login", get(login::ways).post(login::log_in))
        .route("/api/oidc", get(login::to_issuer))
        .route("/api/oidc/back", get(login::from_issuer))
        .route("/api/health", get(api::health))
        .route("/api/report", post(hosts::report))
        .merge(inside);
    for (path, ..) in FILES {
        router = router.route(path, get(file));
    }
    let protect = from_fn_with_state(web.clone(), protect);
    router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).layer(protect).with_state(web)
}

/// Answers with the description of all routes (OpenAPI), from which client programs can be generated.
async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

const OPENAPI: &str = include_str!("openapi.json");

async fn file(State(web): State<Arc<Web>>, request: Request) -> Response {
    match web.files.0.get(request.uri().path()) {
        Some((kind, bytes)) => {
            ([(header::CONTENT_TYPE, *kind)], Bytes::copy_from_slice(bytes)).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Admits a request that has a session or a token. Attaches to the request the person (`Who`) to whom the
/// session or token belongs.
async fn admit(State(web): State<Arc<Web>>, mut request: Request, next: Next) -> Response {
    match who(&web, request.headers()) {
        Some(who) => {
            request.extensions_mut().insert(who);
            next.run(request).await
        }
        None => (StatusCode::UNAUTHORIZED, "log in first").into_response(),
    }
}

/// Returns the person whose session or token is in the headers of a request, or None if they have no valid
/// one.
fn who(web: &Web, headers: &HeaderMap) -> Option<Who> {
    match bearer(headers) {
        Some(token) => web.people.bearer(token),
        None => session(headers).and_then(|id| web.people.session(id)),
    }
}

/// Refuses requests from pages of other sites. Adds the headers that forbid other sites to embed this page.
async fn protect(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response {
    let asker = request.extensions().get::<Asker>().cloned();
    let host = asker.map(|asker| asker.host).unwrap_or_default();
    let origin = request.headers().get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let is_other = |origin: &&str| origin.split_once("://").is_none_or(|(_, from)| from != host);
    if let Some(origin) = origin.filter(is_other) {
        let why =
            if web.proxies.is_empty() { "; a proxy before it has to be named in `proxies`" } else { "" };
        let why = format!("a page of {origin:?} asks, and this is {host:?}{why}");
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let answered = tokio::time::timeout(ANSWER_TIME, next.run(request)).await;
    let mut response =
        answered.unwrap_or_else(|_| (StatusCode::GATEWAY_TIMEOUT, "it takes too long").into_response());
    let added = [
        (header::CONTENT_SECURITY_POLICY, "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in added {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Sends frames (binary messages with the use of all links), one whenever all counters have been read, as
/// long as the session or token lasts.
async fn live(
    State(web): State<Arc<Web>>,
    Extension(counted): Extension<Arc<CountedConnection>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.max_message_size(1024).on_upgrade(move |socket| async move {
        feed(web, headers, socket).await;
        drop(counted);
    })
}

async fn feed(web: Arc<Web>, headers: HeaderMap, mut socket: WebSocket) {
    let (mut frames, mut log_outs) = (web.live.frames(), web.people.log_outs());
    loop {
        let frame = frames.borrow_and_update().clone();
        if !frame.is_empty() && socket.send(Message::Binary(Bytes::copy_from_slice(&frame))).await.is_err() {
            return;
        }
        // A page sends nothing. Only its end arrives here, or a ping, which the library answers.
        loop {
            tokio::select! {
                change = frames.changed() => if change.is_err() { return } else { break },
                message = socket.recv() => if !matches!(message, Some(Ok(_))) { return },
                _ = log_outs.changed() => {},
                () = tokio::time::sleep(STILL_EVERY) => {},
            }
            if who(&web, &headers).is_none() {
                return;
            }
        }
        if who(&web, &headers).is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the path and the method of each route that this file defines.
    fn routes() -> Vec<(String, &'static str)> {
        let source = include_str!("mod.rs");
        let mut found = Vec::new();
        for part in source.split(".route(\"").skip(1) {
            let (path, rest) = part.split_once('"').unwrap();
            let call = rest.split(".route(").next().unwrap().split('\n').next().unwrap();
            for (word, method) in [("get(", "get"), ("post(", "post")] {
                if call.contains(word) {
                    found.push((path.to_string(), method));
                }
            }
        }
        found.retain(|(path, _)| path.starts_with("/api/") || path == "/metrics");
        found.sort();
        found
    }

    #[test]
    fn the_description_has_every_route_and_no_other() {
        let description: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let mut told: Vec<(String, &str)> = Vec::new();
        for (path, methods) in description["paths"].as_object().unwrap() {
            let names = ["get", "post"].into_iter().filter(|method| !methods[method].is_null());
            told.extend(names.map(|method| (path.clone(), method)));
        }
        told.sort();
        assert_eq!(routes(), told);
        assert!(told.len() > 30);
    }
}
