// SPDX-License-Identifier: BSD-3-Clause
//! What the monitor needs to send HTTP requests to other programs: checks of URLs, and the certificates that
//! it trusts.

use std::path::Path;

use ureq::tls::{PemItem, RootCerts, parse_pem};

/// Checks that the text is a URL for HTTP. An error says what is wrong with the text.
pub fn is_url(text: &str) -> Result<(), String> {
    let uri = text.parse::<axum::http::Uri>().map_err(|why| format!("{text:?} is no address: {why}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(()),
        _ => Err(format!("{text:?} is no address as http://head.site:8123")),
    }
}

/// Returns the certificates in a PEM file. With None returns the certificates that browsers trust.
pub fn trusted(file: Option<&Path>) -> Result<RootCerts, String> {
    let Some(file) = file else { return Ok(RootCerts::WebPki) };
    let named = |why: String| format!("{}: {why}", file.display());
    let text = std::fs::read(file).map_err(|error| named(error.to_string()))?;
    let all: Result<Vec<_>, _> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
            Ok(_) => None,
            Err(error) => Some(Err(named(error.to_string()))),
        })
        .collect();
    let all = all?;
    if all.is_empty() {
        return Err(named("it holds no certificate".into()));
    }
    Ok(RootCerts::new_with_certs(&all))
}
