// SPDX-License-Identifier: BSD-3-Clause
//! What every request to the page needs: the parts of the monitor, the page's files, and the session.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, header};

use super::limits::{Exports, RequestLimits};
use crate::alerts::{Delivered, Links};
use crate::config::Notify;
use crate::control::Control;
use crate::directory::Directory;
use crate::issuer::Issuer;
use crate::live::Live;
use crate::people::People;
use crate::store::{Store, Writer};

pub struct Web {
    pub live: Arc<Live>,
    pub store: Arc<Store>,
    pub writer: Writer,
    pub people: Arc<People>,
    pub directory: Option<Directory>,
    pub issuer: Option<Issuer>,
    pub files: Files,
    pub control: Arc<Control>,
    pub links: Arc<Mutex<Links>>,
    pub channels: Vec<Notify>,
    pub delivered: Arc<Mutex<Delivered>>,
    /// The secret from which the keys of hosts are made. Hosts sign their reports with these keys.
    pub agent_secret: String,
    pub limits: RequestLimits,
    /// The people to whom an export is being sent.
    pub exports: Exports,
    pub proxies: Vec<IpAddr>,
    pub base_path: String,
    /// Whether a user sees only the hosts on which a job runs that the user may see.
    pub private_hosts: bool,
}

/// The page's own files. For each path in the URL: the file's media type and content.
pub struct Files(pub HashMap<&'static str, (&'static str, Vec<u8>)>);

pub const FILES: [(&str, &str, &str); 5] = [
    ("/", "index.html", "text/html; charset=utf-8"),
    ("/app.js", "app.js", "text/javascript; charset=utf-8"),
    ("/app.css", "app.css", "text/css; charset=utf-8"),
    ("/grafana.json", "grafana.json", "application/json"),
    ("/uplot.css", "uplot.css", "text/css; charset=utf-8"),
];

impl Files {
    pub fn read(folder: &Path) -> Result<Files, String> {
        let read = |(path, file, kind)| match std::fs::read(folder.join(file)) {
            Ok(bytes) => Ok((path, (kind, bytes))),
            Err(error) => Err(format!(
                "the page is not here: {}: {error} (make build makes it where npm is)",
                folder.join(file).display()
            )),
        };
        FILES.into_iter().map(read).collect::<Result<_, _>>().map(Files)
    }
}

pub const COOKIE: &str = "outboard";

/// Returns the token (of an account) that a program sends in the headers, or None if there is none.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// Returns the id of the browser's session from a cookie in the headers, or None if there is none.
pub fn session(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, COOKIE)
}

/// Returns the value of the cookie `name` of a request, or None if the request does not have it.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies
        .flat_map(|value| value.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix(name)?.strip_prefix('='))
}
