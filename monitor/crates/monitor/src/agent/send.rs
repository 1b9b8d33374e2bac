// SPDX-License-Identifier: BSD-3-Clause
//! `outboard monitor agent`: sends this host's reports to the collector.
//!
//! Each report is signed (HMAC-SHA-256) with a key of this host, which is made from a secret of the collector
//! and the host's name. So the collector keeps no list of keys, the key never travels, and an attacker who
//! has taken one host cannot report for another.

use std::fmt::Write;
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use sha2::Sha256;

use ureq::tls::TlsConfig;

use super::{Report, Sources, own_name};
use crate::config::AgentConfig;
use crate::http::trusted;

pub struct Agent {
    to: String,
    key: String,
    host: String,
    config: AgentConfig,
    http: ureq::Agent,
}

impl Agent {
    pub fn of(config: &AgentConfig) -> Result<Agent, String> {
        let host = config.host.clone().unwrap_or_else(own_name);
        let to =
            config.to.as_ref().ok_or("[agent] to: the collector's address is needed, as http://head:8270")?;
        let file = config.key_file.as_ref().ok_or(format!(
            "[agent] key_file: a file with this host's key is needed (`outboard monitor agent-key {host}` on the \
             collector's host prints it)"
        ))?;
        let key = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let http = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(10)))
            .http_status_as_error(false)
            .tls_config(TlsConfig::builder().root_certs(trusted(config.trusted.as_deref())?).build())
            .build()
            .new_agent();
        let to = format!("{}/api/report", to.trim_end_matches('/'));
        Ok(Agent { to, key: key.trim().into(), host, config: config.clone(), http })
    }

    /// Makes a report of this host and sends it to the collector, again and again, for as long as the program
    /// runs. A failure is printed once, and the next report is sent when it is due.
    pub fn run(self) -> ! {
        let mut sources = Sources::start(&self.config.skip);
        let mut said = String::new();
        let interval = Duration::from_secs(self.config.interval_s);
        loop {
            let started = Instant::now();
            let report = sources.report(&self.host, self.config.interval_s);
            let why = self.send(&report).err().unwrap_or_default();
            if why != said {
                let words = if why.is_empty() { "the collector takes reports again" } else { &why };
                eprintln!("outboard monitor agent: {words}");
            }
            said = why;
            std::thread::sleep(interval.saturating_sub(started.elapsed()));
        }
    }

    fn send(&self, report: &Report) -> Result<(), String> {
        let body = serde_json::to_vec(report).map_err(|error| error.to_string())?;
        let mut answer = self
            .http
            .post(&self.to)
            .header("content-type", "application/json")
            .header(HOST, &self.host)
            .header(BEGIN, format!("{} {}", report.at, begin(&self.key, report.at, body.len())))
            .header(SIGNATURE, signature(&self.key, &body))
            .send(&body)
            .map_err(|error| format!("{}: {error}", self.to))?;
        if answer.status().is_success() {
            return Ok(());
        }
        let words = answer.body_mut().with_config().limit(4096).read_to_string().unwrap_or_default();
        Err(format!("{} refuses the report ({}): {words}", self.to, answer.status()))
    }
}

/// Makes one report of this host, and returns it as JSON with line breaks, for people to read.
pub fn print(config: &AgentConfig) -> Result<String, String> {
    let mut sources = Sources::start(&config.skip);
    let host = config.host.clone().unwrap_or_else(own_name);
    // Most sources count from some start, so the figures are the difference between two reports.
    let report = sources.report(&host, config.interval_s);
    serde_json::to_string_pretty(&report).map_err(|error| error.to_string())
}

/// The HTTP header with the name of the host that reports.
pub const HOST: &str = "outboard-host";
/// The HTTP header with the time of the report, and with a signature of this time and of the body's length.
/// The collector checks this header first, and does not read the body if the signature is wrong.
pub const BEGIN: &str = "outboard-begin";
/// The HTTP header with the signature of the report's body.
pub const SIGNATURE: &str = "outboard-signature";

/// Returns the key with which `host` signs its reports. It is made from the collector's secret and the host's
/// name.
pub fn host_key(secret: &str, host: &str) -> String {
    signature(secret, format!("outboard-monitor host {host}").as_bytes())
}

/// Returns the signature of the report's time `at` and of the body's length. It goes into the header `BEGIN`.
pub fn begin(key: &str, at: u64, length: usize) -> String {
    signature(key, format!("{at} {length}").as_bytes())
}

pub fn signature(key: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(body);
    mac.finalize().into_bytes().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_of_one_host_and_a_signature_of_one_body() {
        // RFC 4231, test case 2.
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signature("Jefe", b"what do ya want for nothing?"), expected);
        assert_ne!(host_key("s", "n1"), host_key("s", "n2"));
        assert_ne!(host_key("s", "n1"), host_key("t", "n1"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let why = |config: &AgentConfig| Agent::of(config).err().unwrap();
        let mut config = AgentConfig::default();
        assert!(why(&config).contains("[agent] to"));
        config.to = Some("http://head:8270".into());
        assert!(why(&config).contains("agent-key"));
        config.key_file = Some("/nowhere/key".into());
        assert!(why(&config).contains("/nowhere/key"));
    }
}
