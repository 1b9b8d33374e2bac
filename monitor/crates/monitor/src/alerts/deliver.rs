// SPDX-License-Identifier: BSD-3-Clause
//! Delivery of alerts: by mail, a webhook, or a command. A message waits in `control.db` until its channel
//! has accepted it. After a failure it is sent again, with growing pauses. A message that is given up is
//! counted and reported.
//!
//! Channels are defined in the configuration, not in the web page, so its visitors can start no program.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lettre::message::header::ContentType;
use lettre::{Message, SendmailTransport, SmtpTransport, Transport};
use rusqlite::params;
use serde::Serialize;
use serde_json::{Value, json};

use crate::command::output_of;
use crate::config::{MailConfig, Notify};
use crate::control::Control;
use crate::time::now_ms;

/// The most alerts that one message names. If there are more, the message gives only their number.
const EVENTS_MAX: usize = 50;
const TRIES_MAX: u32 = 8;
/// The pause after the first failed delivery of a message, in milliseconds. Each further pause is twice as
/// long as the one before.
const PAUSE_MS: i64 = 15_000;

/// How many messages about alerts were delivered, failed or were given up since the monitor's start, and how
/// many wait.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Delivered {
    pub sent: u64,
    pub failed_tries: u64,
    pub given_up: u64,
    pub waiting: u64,
    /// Why a delivery failed the last time; empty if every delivery has succeeded.
    pub error: String,
}

pub struct Deliver {
    pub control: Arc<Control>,
    pub channels: Vec<Notify>,
    pub mail: MailConfig,
    pub delivered: Arc<Mutex<Delivered>>,
}

/// Stores a message for a channel, to be sent later. The message has the alerts `events` (raised or cleared).
/// `at` is now, in milliseconds since 1970.
pub fn enqueue(
    db: &rusqlite::Connection,
    channel: &str,
    events: &[Value],
    at: i64,
) -> rusqlite::Result<usize> {
    let more = events.len().saturating_sub(EVENTS_MAX);
    let body = json!({"alerts": &events[..events.len() - more], "more": more}).to_string();
    let sql = "INSERT INTO messages (channel, body, tries, due, error) VALUES (?, ?, 0, ?, '')";
    db.execute(sql, params![channel, body, at])
}

impl Deliver {
    /// Sends the stored messages to their channels, for as long as the monitor runs.
    pub fn run(self) {
        loop {
            if let Err(why) = self.round() {
                eprintln!("outboard monitor: notifications: {why}");
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn round(&self) -> Result<(), String> {
        let due = self.control.read(|db| {
            let sql = "SELECT id, channel, body, tries FROM messages WHERE due <= ? ORDER BY id LIMIT 20";
            let mut found = db.prepare(sql)?;
            let rows = found.query_map([now_ms() as i64], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<(i64, String, String, u32)>>>()
        })?;
        for (id, channel, body, tries) in due {
            let error = match self.channels.iter().find(|one| one.name == channel) {
                Some(one) => self.send(one, &body).err(),
                None => Some(format!("the configuration no longer has [[notify]] {channel:?}")),
            };
            self.settle(id, tries + 1, error)?;
        }
        let waiting =
            self.control.read(|db| db.query_row("SELECT count(*) FROM messages", [], |row| row.get(0)))?;
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner).waiting = waiting;
        Ok(())
    }

    fn settle(&self, id: i64, tries: u32, error: Option<String>) -> Result<(), String> {
        let is_over = error.is_none() || tries >= TRIES_MAX;
        let words = error.clone().unwrap_or_default();
        self.control.with(|db| {
            if is_over {
                return db.execute("DELETE FROM messages WHERE id = ?", [id]);
            }
            let due = now_ms() as i64 + (PAUSE_MS << (tries - 1));
            let sql = "UPDATE messages SET tries = ?, due = ?, error = ? WHERE id = ?";
            db.execute(sql, params![tries, due, words, id])
        })?;
        let mut delivered = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            None => delivered.sent += 1,
            Some(why) => {
                eprintln!("outboard monitor: a notification failed at try {tries} of {TRIES_MAX}: {why}");
                delivered.failed_tries += 1;
                delivered.given_up += u64::from(is_over);
                delivered.error = why;
            }
        }
        Ok(())
    }

    /// Sends a message to the webhook, to the program and to the mail addresses of a channel. If one of the
    /// three fails, all three get the message again later: twice is better than never.
    fn send(&self, channel: &Notify, body: &str) -> Result<(), String> {
        if let Some(url) = &channel.webhook {
            post(url, body)?;
        }
        if let Some((program, words)) = channel.command.split_first() {
            match output_of(Command::new(program).args(words), body.as_bytes()) {
                Some(done) => done.map(|_| ())?,
                None => return Err(format!("{program} is not installed")),
            }
        }
        if channel.mail.is_empty() { Ok(()) } else { self.mail(&channel.mail, body) }
    }

    fn mail(&self, to: &[String], body: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
        let lines: Vec<String> = value["alerts"].as_array().into_iter().flatten().map(line).collect();
        let more = value["more"].as_u64().filter(|more| *more > 0).map(|more| format!("and {more} more"));
        let subject = match &lines[..] {
            [one] => format!("outboard monitor: {one}"),
            all => {
                format!("outboard monitor: {} alerts", all.len() as u64 + value["more"].as_u64().unwrap_or(0))
            }
        };
        let mut message = Message::builder().subject(subject).header(ContentType::TEXT_PLAIN);
        let address =
            |text: &str| text.parse().map_err(|error| format!("{text:?} is no mail address: {error}"));
        message = message.from(address(&self.mail.from)?);
        for one in to {
            message = message.to(address(one)?);
        }
        let text = lines.into_iter().chain(more).collect::<Vec<_>>().join("\n") + "\n";
        let message = message.body(text).map_err(|error| format!("the mail cannot be made: {error}"))?;
        match &self.mail.smtp {
            Some(url) => {
                let transport =
                    SmtpTransport::from_url(url).map_err(|error| format!("mail.smtp: {error}"))?;
                let transport = transport.timeout(Some(Duration::from_secs(20))).build();
                transport.send(&message).map(|_| ()).map_err(|error| format!("mail: {error}"))
            }
            None => {
                let transport = SendmailTransport::new_with_command(&self.mail.sendmail);
                let sent = transport.send(&message);
                sent.map_err(|error| format!("mail by {}: {error}", self.mail.sendmail.display()))
            }
        }
    }
}

/// Returns an alert as one line of text, for a mail.
fn line(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    format!("{}: {}: {}", text("state"), text("subject"), text("text"))
}

fn post(url: &str, body: &str) -> Result<(), String> {
    let agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(20))).build().new_agent();
    let answer = agent.post(url).header("content-type", "application/json").send(body);
    answer.map(|_| ()).map_err(|error| format!("webhook {url}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_again_later_and_given_up_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let control = Arc::new(Control::open(folder.path()).unwrap());
        let ops = Notify { name: "ops".into(), command: vec!["/bin/false".into()], ..Notify::default() };
        let (channels, delivered) = (vec![ops], Arc::default());
        let deliver = Deliver { control: control.clone(), channels, mail: MailConfig::default(), delivered };
        control.with(|db| enqueue(db, "ops", &vec![json!({}); EVENTS_MAX + 3], now_ms() as i64)).unwrap();
        let state = || {
            let sql = "SELECT tries, due, body FROM messages";
            let row = |row: &rusqlite::Row| {
                Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
            };
            control.with(|db| db.query_row(sql, [], row))
        };
        let mut pause = 0;
        for tries in 1..TRIES_MAX {
            deliver.round().unwrap();
            let (done, due, body) = state().unwrap();
            let next = due - now_ms() as i64;
            assert!(done == tries && next > pause, "try {tries}: {next} ms after {pause} ms");
            assert!(body.contains("\"more\":3"), "{body}");
            deliver.round().unwrap();
            assert_eq!(state().unwrap().0, tries, "it is not due");
            control.with(|db| db.execute("UPDATE messages SET due = 0", [])).unwrap();
            pause = next;
        }
        deliver.round().unwrap();
        assert!(state().is_err(), "it is given up");
        let delivered = deliver.delivered.lock().unwrap().clone();
        let counts = (delivered.sent, delivered.failed_tries, delivered.given_up, delivered.waiting);
        assert_eq!(counts, (0, TRIES_MAX.into(), 1, 0));
    }
}
