// SPDX-License-Identifier: BSD-3-Clause
//! The store: ClickHouse's SQL over its HTTP interface; a server, or chDB behind an adapter that speaks the
//! same.
//!
//! `Store` asks and writes, and blocks: threads of their own call it. `Writer` is the one way in for rows:
//! what the store does not take now waits on disk, within a bound (`spool.rs`).

mod chdb;
mod schema;
mod spool;

use std::time::Duration;

use serde_json::Value;

pub use spool::{Writer, Written};

use crate::config::Config;

/// How much of an answer is read.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

pub struct Store {
    agent: ureq::Agent,
    url: String,
    user: String,
    key: String,
    /// Runs as long as the store is in use.
    _chdb: Option<chdb::Chdb>,
}

impl Store {
    /// Opens the store, starts chDB if no server is named, and brings the tables up to date.
    pub fn open(config: &Config) -> Result<Store, String> {
        let (url, key, chdb) = match &config.store.url {
            Some(url) => {
                let key = match &config.store.key_file {
                    Some(file) => std::fs::read_to_string(file)
                        .map_err(|error| format!("{}: {error}", file.display()))?
                        .trim()
                        .to_string(),
                    None => String::new(),
                };
                (url.clone(), key, None)
            }
            None => {
                let venv = config.store.venv.clone().unwrap_or_else(|| config.data.join("venv"));
                let chdb = chdb::Chdb::start(&venv, &config.data.join("chdb"))?;
                (chdb.url.clone(), chdb.key.clone(), Some(chdb))
            }
        };
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(60)))
            .http_status_as_error(false)
            .build()
            .new_agent();
        let user = config.store.user.clone().unwrap_or_else(|| "default".into());
        let store = Store { agent, url, user, key, _chdb: chdb };
        store.migrate()?;
        Ok(store)
    }

    fn migrate(&self) -> Result<(), String> {
        let table = "CREATE TABLE IF NOT EXISTS schema (version UInt32, at DateTime DEFAULT now()) \
                     ENGINE = MergeTree ORDER BY version";
        self.post(&[], table)?;
        let have = self.select("SELECT max(version) FROM schema", &[])?;
        let have = have[0][0].as_u64().unwrap_or(0) as usize;
        let versions = schema::versions();
        if have > versions.len() {
            return Err(format!(
                "the store has version {have}, and this program knows {} only: it is older than the store",
                versions.len()
            ));
        }
        for (at, statements) in versions.iter().enumerate().skip(have) {
            for statement in statements {
                self.post(&[], statement)?;
            }
            self.insert("schema (version)", &format!("{}\n", at + 1))?;
        }
        Ok(())
    }

    /// The rows of a SELECT, each an array. `{name:Type}` in it stands for a parameter, so no value becomes
    /// SQL.
    pub fn select(&self, sql: &str, parameters: &[(&str, String)]) -> Result<Value, String> {
        let named: Vec<_> =
            parameters.iter().map(|(name, value)| (format!("param_{name}"), value.clone())).collect();
        let pairs: Vec<_> = named.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let settings = "SETTINGS output_format_json_quote_64bit_integers = 0";
        let text = self.post(&pairs, &format!("{sql} FORMAT JSONCompact {settings}"))?;
        let mut answer: Value = serde_json::from_slice(&text)
            .map_err(|error| format!("the store's answer is no JSON: {error}"))?;
        Ok(answer["data"].take())
    }

    /// What a SELECT finds, as ClickHouse writes it in a format (`CSVWithNames`, `Parquet`).
    pub fn export(&self, sql: &str, parameters: &[(&str, String)], format: &str) -> Result<Vec<u8>, String> {
        let named: Vec<_> =
            parameters.iter().map(|(name, value)| (format!("param_{name}"), value.as_str())).collect();
        let pairs: Vec<_> = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        self.post(&pairs, &format!("{sql} FORMAT {format}"))
    }

    /// Adds rows in CSV.
    pub fn insert(&self, table: &str, csv: &str) -> Result<(), String> {
        self.post(&[("query", &format!("INSERT INTO {table} FORMAT CSV"))], csv).map(|_| ())
    }

    fn post(&self, pairs: &[(&str, &str)], body: &str) -> Result<Vec<u8>, String> {
        let mut request = self.agent.post(&self.url);
        for (name, value) in pairs {
            request = request.query(name, value);
        }
        let mut response = request
            .header("X-ClickHouse-User", &self.user)
            .header("X-ClickHouse-Key", &self.key)
            .send(body)
            .map_err(|error| format!("the store at {} does not answer: {error}", self.url))?;
        let code = response.status();
        let text = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .map_err(|error| format!("the store's answer cannot be read: {error}"))?;
        let first = || {
            let words = String::from_utf8_lossy(&text);
            words.lines().next().unwrap_or_default().chars().take(500).collect::<String>()
        };
        if code.is_success() { Ok(text) } else { Err(format!("the store refuses ({code}): {}", first())) }
    }
}

/// A text as a literal inside an array or a map.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A text as a field of CSV.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
