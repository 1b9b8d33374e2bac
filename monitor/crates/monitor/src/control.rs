// SPDX-License-Identifier: BSD-3-Clause
//! What people have decided and what is to be sent to them, in SQLite (`control.db` of the data folder, which
//! only the monitor's user may read): accounts, tokens, criteria, alerts, messages that wait for delivery,
//! and a log of who did what.
//!
//! There are two connections, each behind a lock, because all of this is small. One changes rows. Another
//! process (`add-account`) may do so at the same time, and SQLite then waits for it, at most 10 s. The other
//! connection only reads, and never waits for a writer, because every request to the web page reads here
//! whose session it belongs to.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::time::now_ms;

/// The SQL statements that change `control.db` from each version of its tables to the next. The file keeps
/// its version as `user_version`.
const VERSIONS: [&str; 1] = ["
    CREATE TABLE accounts (name TEXT PRIMARY KEY, role TEXT NOT NULL, projects TEXT NOT NULL, hash TEXT NOT NULL);
    CREATE TABLE tokens (hash TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, account TEXT NOT NULL, name TEXT NOT NULL,
        made INTEGER NOT NULL, ends INTEGER NOT NULL);
    CREATE TABLE audit (at INTEGER NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL);
    CREATE INDEX audit_at ON audit (at);
    CREATE TABLE criteria (id INTEGER PRIMARY KEY, name TEXT NOT NULL, words TEXT NOT NULL);
    CREATE TABLE alerts (id INTEGER PRIMARY KEY, criterion INTEGER NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL,
        subject TEXT NOT NULL, text TEXT NOT NULL, source TEXT NOT NULL, job TEXT NOT NULL, raised INTEGER NOT NULL,
        acknowledged INTEGER, acknowledged_by TEXT, cleared INTEGER);
    CREATE INDEX alerts_cleared ON alerts (cleared, raised);
    CREATE TABLE links (key TEXT PRIMARY KEY, words TEXT NOT NULL);
    CREATE TABLE messages (id INTEGER PRIMARY KEY, channel TEXT NOT NULL, body TEXT NOT NULL, tries INTEGER NOT NULL,
        due INTEGER NOT NULL, error TEXT NOT NULL);
"];

/// The most entries that the table `audit` keeps.
const AUDIT_MAX: i64 = 1_000_000;

pub struct Control {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
}

impl Control {
    pub fn open(data: &Path) -> Result<Control, String> {
        let path = data.join("control.db");
        let named = |why: String| format!("{}: {why}", path.display());
        // SQLite would let others read the file.
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.open(&path).map_err(|error| named(error.to_string()))?;
        let mut connection = Connection::open(&path).map_err(|error| named(error.to_string()))?;
        migrate(&mut connection).map_err(named)?;
        let reader = Connection::open(&path).and_then(|reader| {
            reader.pragma_update(None, "query_only", true)?;
            Ok(reader)
        });
        let reader = reader.map_err(|error| named(error.to_string()))?;
        Ok(Control { writer: Mutex::new(connection), reader: Mutex::new(reader) })
    }

    /// Calls `work` with a connection to the database that can only read, and returns what `work` returns.
    /// Never waits for a disk or for a writer.
    pub fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, String> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        work(&reader).map_err(|error| format!("control.db: {error}"))
    }

    /// Calls `work` within one transaction, and returns what `work` returns. Either all of its changes are
    /// made, or none.
    pub fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, String> {
        let mut connection = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = || {
            let transaction =
                connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        (whole)().map_err(|error: rusqlite::Error| format!("control.db: {error}"))
    }

    /// Adds an entry to the table `audit`: who did what. If the disk refuses the entry, it is printed on
    /// standard error.
    pub fn audit(&self, who: &str, what: &str) {
        let noted = self.with(|db| {
            db.execute("INSERT INTO audit VALUES (?, ?, ?)", params![now_ms() as i64, who, what])?;
            let last = db.last_insert_rowid();
            db.execute("DELETE FROM audit WHERE rowid <= ?", [last - AUDIT_MAX])
        });
        if let Err(why) = noted {
            eprintln!("outboard monitor: {why}; not in the log: {who} {what}");
        }
    }

    /// Returns the newest entries of the table `audit`, at most 1000.
    pub fn log(&self) -> Result<Vec<Value>, String> {
        self.read(|db| {
            let mut found = db.prepare("SELECT at, who, what FROM audit ORDER BY rowid DESC LIMIT 1000")?;
            let rows = found.query_map([], |row| {
                let (at, who, what): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(json!({"at": at, "who": who, "what": what}))
            })?;
            rows.collect()
        })
    }
}

fn migrate(connection: &mut Connection) -> Result<(), String> {
    let words = |error: rusqlite::Error| error.to_string();
    connection.busy_timeout(Duration::from_secs(10)).map_err(words)?;
    // With a write-ahead log a reader does not wait for a writer.
    connection.pragma_update(None, "journal_mode", "WAL").map_err(words)?;
    let steps =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(words)?;
    let have: usize =
        steps.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0)).map_err(words)? as usize;
    if have > VERSIONS.len() {
        return Err(format!("it has version {have}, this program knows {} only", VERSIONS.len()));
    }
    for step in &VERSIONS[have..] {
        steps.execute_batch(step).map_err(words)?;
    }
    steps.pragma_update(None, "user_version", VERSIONS.len() as u32).map_err(words)?;
    steps.commit().map_err(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn who_reads_does_not_wait_for_who_writes() {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::open(folder.path()).unwrap();
        control.audit("ann", "logs in");
        let other = Connection::open(folder.path().join("control.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE; INSERT INTO audit VALUES (1, 'bob', 'half')").unwrap();
        assert_eq!(control.log().unwrap().len(), 1, "the other's work is not done yet");
        other.execute_batch("COMMIT").unwrap();
        assert_eq!(control.log().unwrap().len(), 2);
        assert!(control.read(|db| db.execute("DELETE FROM audit", [])).is_err(), "who reads changes nothing");
    }

    #[test]
    fn it_is_private_whole_or_not_at_all_and_not_of_a_newer_program() {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::open(folder.path()).unwrap();
        control.audit("ann", "logs in");
        let failed = control.with(|db| {
            db.execute("INSERT INTO audit VALUES (1, 'bob', 'half')", [])?;
            db.execute("INSERT INTO nowhere VALUES (1)", [])
        });
        assert!(failed.unwrap_err().contains("nowhere"));
        let log = control.log().unwrap();
        assert_eq!((log.len(), &log[0]["who"], &log[0]["what"]), (1, &json!("ann"), &json!("logs in")));
        drop(control);
        assert_eq!(Control::open(folder.path()).unwrap().log().unwrap().len(), 1);
        let mode = std::fs::metadata(folder.path().join("control.db")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
        let control = Control::open(folder.path()).unwrap();
        control.with(|db| db.pragma_update(None, "user_version", 99)).unwrap();
        drop(control);
        assert!(Control::open(folder.path()).err().unwrap().contains("version 99"));
    }
}
