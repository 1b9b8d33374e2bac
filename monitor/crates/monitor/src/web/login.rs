// SPDX-License-Identifier: BSD-3-Clause
//! Requests that begin and end sessions: by a password, by the administrator's key, or through an OpenID
//! issuer.

use std::time::Duration;

use axum::extract::{Extension, Json, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{WebState, blocking};
use super::proxy::Asker;
use super::state::{COOKIE, Web, bearer, cookie, session};
use crate::issuer::Attempt;
use crate::people::{Elsewhere, Who, is_name};

/// The name of the cookie that keeps an attempt to log in through the issuer. The browser comes back from the
/// issuer's site, so this cookie is less strict than a session's.
const ATTEMPT: &str = "outboard_oidc";
const ATTEMPT_S: u32 = 600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogIn {
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    key: String,
}

/// Returns the HTTP header that gives a browser the cookie of its session.
fn set_session(web: &Web, asker: &Asker, id: &str) -> [(header::HeaderName, String); 1] {
    let secure = if asker.is_encrypted { "; Secure" } else { "" };
    let path = format!("{}/", web.base_path);
    [(header::SET_COOKIE, format!("{COOKIE}={id}; Path={path}; HttpOnly; SameSite=Strict{secure}"))]
}

pub async fn log_in(
    State(web): WebState,
    Extension(asker): Extension<Asker>,
    Json(given): Json<LogIn>,
) -> Response {
    // A key is compared at no cost and cannot be guessed, so it needs no permission.
    let place = match given.key.is_empty() {
        true => match web.limits.trial(asker.address, Some(&given.name)).await {
            Ok(place) => Some(place),
            Err(refusal) => return refusal.into_response(),
        },
        false => None,
    };
    let web_ = web.clone();
    let checked = blocking(move || {
        let _place = place;
        let name: String =
            if given.key.is_empty() { given.name.chars().take(64).collect() } else { "(key)".into() };
        let is_kept_here = || web_.people.is_not_of(Elsewhere::Directory, &given.name);
        let found = if !given.key.is_empty() {
            web_.people.log_in_by_key(&given.key)
        } else if let Some(directory) = web_.directory.as_ref().filter(|_| !is_kept_here()) {
            let who =
                if is_name(&given.name) { directory.log_in(&given.name, &given.password)? } else { None };
            who.map(|who| web_.people.log_in_checked(Elsewhere::Directory, who)).transpose()?
        } else {
            web_.people.log_in(&given.name, &given.password)
        };
        web_.control.audit(
            &name,
            if found.is_some() { "logs in" } else { "is refused: wrong name, password or key" },
        );
        Ok(found)
    })
    .await;
    match checked {
        Ok(Some((id, who))) => (set_session(&web, &asker, &id), Json(who)).into_response(),
        Ok(None) => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            (StatusCode::UNAUTHORIZED, "the name or the password is wrong").into_response()
        }
        Err(error) => error.into_response(),
    }
}

pub async fn log_out(State(web): WebState, headers: HeaderMap) -> StatusCode {
    if let Some(id) = session(&headers) {
        web.people.log_out(id);
    }
    StatusCode::NO_CONTENT
}

pub async fn me(Extension(who): Extension<Who>) -> Json<Who> {
    Json(who)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    old: String,
    new: String,
}

/// Changes the password of the account that sends the request. Ends all sessions of the account, and begins a
/// new one.
pub async fn password(
    State(web): WebState,
    Extension(asker): Extension<Asker>,
    Extension(who): Extension<Who>,
    headers: HeaderMap,
    Json(given): Json<NewPassword>,
) -> Result<Response, (StatusCode, String)> {
    no_token(&headers)?;
    let place = web.limits.trial(asker.address, Some(&who.name)).await?;
    let web_ = web.clone();
    let changed = blocking(move || {
        let _place = place;
        let changed = web_.people.change_password(&who.name, &given.old, &given.new);
        web_.control.audit(
            &who.name,
            if changed.is_ok() { "has another password" } else { "is refused another password" },
        );
        Ok(changed)
    });
    let (id, who) = changed.await?.map_err(|why| (StatusCode::FORBIDDEN, why))?;
    Ok((set_session(&web, &asker, &id), Json(who)).into_response())
}

/// Refuses a request that has a token in place of a session. Somebody who has found a token must not make
/// accounts with it.
pub fn no_token(headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    match bearer(headers) {
        None => Ok(()),
        Some(_) => Err((StatusCode::FORBIDDEN, "people do this in a session, and no token does".into())),
    }
}

/// Answers with the ways to log in that the configuration allows.
pub async fn ways(State(web): WebState) -> Json<Value> {
    Json(json!({"password": true, "oidc": web.issuer.is_some()}))
}

fn no_issuer() -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, "the configuration has no [oidc]".into())
}

/// Begins an attempt to log in through the OpenID issuer, and sends the browser to the issuer.
pub async fn to_issuer(
    State(web): WebState,
    Extension(asker): Extension<Asker>,
) -> Result<Response, (StatusCode, String)> {
    let issuer = web.issuer.clone().ok_or_else(no_issuer)?;
    let place = web.limits.trial(asker.address, None).await?;
    let started = blocking(move || {
        let _place = place;
        issuer.begin()
    });
    let (url, attempt) = started.await?;
    let kept = set_attempt(&web, &asker, &attempt.text(), ATTEMPT_S);
    Ok((kept, Redirect::to(&url)).into_response())
}

fn set_attempt(web: &Web, asker: &Asker, text: &str, seconds: u32) -> [(header::HeaderName, String); 1] {
    let secure = if asker.is_encrypted { "; Secure" } else { "" };
    let path = format!("{}/api/oidc", web.base_path);
    let words = format!("{ATTEMPT}={text}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    [(header::SET_COOKIE, words)]
}

/// The parameters that an issuer adds to the URL when it sends the browser back. Other parameters are
/// ignored.
#[derive(Deserialize)]
pub struct Back {
    #[serde(default)]
    code: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

/// Ends an attempt to log in through the OpenID issuer, when the browser comes back from there.
pub async fn from_issuer(
    State(web): WebState,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    Query(back): Query<Back>,
) -> Result<Response, (StatusCode, String)> {
    let issuer = web.issuer.clone().ok_or_else(no_issuer)?;
    let place = web.limits.trial(asker.address, None).await?;
    let attempt = cookie(&headers, ATTEMPT).and_then(Attempt::read).filter(|it| it.is_of(&back.state));
    let attempt = attempt.ok_or_else(|| {
        let why =
            "this is no answer to an attempt to log in of this browser within ten minutes: log in again";
        (StatusCode::FORBIDDEN, why.to_string())
    })?;
    let web_ = web.clone();
    let checked = blocking(move || {
        let _place = place;
        let identity = match back.error.is_empty() {
            true => issuer.end(&back.code, attempt),
            false => Err(format!("the issuer says {:?}: {:?}", back.error, back.error_description)),
        };
        let checked = identity.and_then(|who| web_.people.log_in_checked(Elsewhere::Issuer, who));
        match &checked {
            Ok((_, who)) => web_.control.audit(&who.name, "logs in by the issuer"),
            Err(why) => web_.control.audit("(issuer)", &format!("refused: {why}")),
        }
        Ok(checked)
    });
    let gone = set_attempt(&web, &asker, "", 0);
    Ok(match checked.await? {
        Ok((id, _)) => {
            let page = Redirect::to(&format!("{}/", web.base_path));
            let mut response = (gone, page).into_response();
            for (name, value) in set_session(&web, &asker, &id) {
                response.headers_mut().append(name, value.parse().expect("it is plain text"));
            }
            response
        }
        Err(why) => (StatusCode::FORBIDDEN, gone, why).into_response(),
    })
}
