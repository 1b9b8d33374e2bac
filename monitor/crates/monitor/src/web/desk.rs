// SPDX-License-Identifier: BSD-3-Clause
//! Requests by which people change something in the page: alerts and criteria, tokens and accounts. Also
//! shows the log of who did what.

use std::sync::PoisonError;

use axum::extract::{Extension, Json, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::api::{Answer, WebState, blocking, wrong};
use super::login::no_token;
use crate::alerts::{self, Criterion, METRICS};
use crate::people::{Role, Who};

fn at_least(who: &Who, role: Role) -> Result<(), (StatusCode, String)> {
    let words = if role == Role::Admin { "administrators" } else { "support and administrators" };
    if who.role >= role { Ok(()) } else { Err((StatusCode::FORBIDDEN, format!("{words} do this"))) }
}

/// Returns the answer to a change. It is an empty object if the change was made. Otherwise it is the error
/// `what`, because the thing to change does not exist.
fn done(is_done: bool, what: &str) -> Answer {
    if is_done { Ok(Json(json!({}))) } else { Err((StatusCode::NOT_FOUND, what.into())) }
}

pub async fn alerts(State(web): WebState, Extension(who): Extension<Who>) -> Answer {
    let found = blocking(move || alerts::alerts(&web.control, &who, &web.live.now())).await?;
    Ok(Json(json!({"alerts": found})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertQuery {
    id: i64,
}

pub async fn acknowledge(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Json(of): Json<AlertQuery>,
) -> Answer {
    at_least(&who, Role::Support)?;
    let is_done = blocking(move || alerts::acknowledge(&web.control, of.id, &who.name)).await?;
    done(is_done, "no such alert is open")
}

/// Answers with the criteria for alerts, and with the metrics and channels that a criterion can name.
pub async fn criteria(State(web): WebState, Extension(who): Extension<Who>) -> Answer {
    at_least(&who, Role::Support)?;
    let channels: Vec<String> = web.channels.iter().map(|channel| channel.name.clone()).collect();
    let criteria = blocking(move || alerts::criteria(&web.control)).await?;
    Ok(Json(json!({"criteria": criteria, "metrics": METRICS, "channels": channels})))
}

pub async fn set_criterion(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Json(of): Json<Criterion>,
) -> Answer {
    at_least(&who, Role::Admin)?;
    let set =
        blocking(move || Ok(alerts::add_criterion(&web.control, &of, &web.channels, &who.name))).await?;
    set.map(|()| Json(json!({}))).map_err(|why| wrong(&why))
}

pub async fn remove_criterion(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Json(of): Json<AlertQuery>,
) -> Answer {
    at_least(&who, Role::Admin)?;
    let is_done = blocking(move || alerts::remove_criterion(&web.control, of.id, &who.name)).await?;
    done(is_done, "there is no such criterion")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkQuery {
    key: String,
}

/// Forgets a link that an administrator has removed on purpose, so that it no longer counts as lost.
pub async fn forget_link(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Json(of): Json<LinkQuery>,
) -> Answer {
    at_least(&who, Role::Admin)?;
    let is_done = blocking(move || {
        let is_known = web.links.lock().unwrap_or_else(PoisonError::into_inner).forget(&of.key);
        if is_known {
            web.control.audit(&who.name, &format!("forgets the {}", of.key));
        }
        Ok(is_known)
    });
    done(is_done.await?, "no such link is known")
}

pub async fn tokens(State(web): WebState, Extension(who): Extension<Who>) -> Answer {
    let tokens = blocking(move || web.people.tokens(&who.name)).await?;
    Ok(Json(json!({"tokens": tokens})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    name: String,
    days: u64,
}

pub async fn add_token(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Json(of): Json<NewToken>,
) -> Answer {
    let added = blocking(move || {
        let added = web.people.add_token(&who, &of.name, of.days);
        if added.is_ok() {
            web.control.audit(&who.name, &format!("makes a token {:?} for {} days", of.name, of.days));
        }
        Ok(added)
    });
    added.await?.map(|token| Json(json!({"token": token}))).map_err(|why| wrong(&why))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenQuery {
    id: String,
}

pub async fn remove_token(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Json(of): Json<TokenQuery>,
) -> Answer {
    let is_done = blocking(move || {
        let is_done = web.people.remove_token(&who.name, &of.id)?;
        if is_done {
            web.control.audit(&who.name, &format!("removes the token {}", of.id));
        }
        Ok(is_done)
    });
    done(is_done.await?, "there is no such token")
}

pub async fn accounts(State(web): WebState, Extension(who): Extension<Who>) -> Answer {
    at_least(&who, Role::Admin)?;
    let accounts = blocking(move || web.people.list()).await?;
    Ok(Json(json!({"accounts": accounts})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    name: String,
    role: Role,
    #[serde(default)]
    projects: Vec<String>,
    /// The account's password. With None an existing account keeps its present password.
    password: Option<String>,
}

pub async fn set_account(
    State(web): WebState,
    Extension(who): Extension<Who>,
    headers: HeaderMap,
    Json(of): Json<NewAccount>,
) -> Answer {
    at_least(&who, Role::Admin)?;
    no_token(&headers)?;
    let NewAccount { name, role, projects, password } = of;
    let whose = Who { name, role, projects };
    let set = blocking(move || Ok(web.people.add(&who.name, &whose, password.as_deref())));
    set.await?.map(|()| Json(json!({}))).map_err(|why| wrong(&why))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountQuery {
    name: String,
}

pub async fn remove_account(
    State(web): WebState,
    Extension(who): Extension<Who>,
    headers: HeaderMap,
    Json(of): Json<AccountQuery>,
) -> Answer {
    at_least(&who, Role::Admin)?;
    no_token(&headers)?;
    let removed = blocking(move || Ok(web.people.remove(&who.name, &of.name)));
    removed.await?.map(|()| Json(json!({}))).map_err(|why| (StatusCode::NOT_FOUND, why))
}

pub async fn audit(State(web): WebState, Extension(who): Extension<Who>) -> Answer {
    at_least(&who, Role::Admin)?;
    let log = blocking(move || web.control.log()).await?;
    Ok(Json(json!({"log": log})))
}
