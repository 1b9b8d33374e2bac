// SPDX-License-Identifier: BSD-3-Clause
//! The store: ClickHouse's SQL over its HTTP interface, from a server or from chDB behind an adapter.
//!
//! Functions of `Store` block while they wait for the answer, so only threads that may block call them. All
//! rows go in through `Writer` (`writer.rs`): rows that the store does not accept now wait on disk, within a
//! bound (`spool.rs`).

mod chdb;
mod schema;
mod spool;
mod writer;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

pub use chdb::WHEELS;
pub use writer::{Writer, Written};

use crate::config::MonitorConfig;

/// The oldest version of ClickHouse with which the monitor was tried (as chDB).
const OLDEST: (u32, u32) = (24, 8);
/// The most bytes that are read of one answer of the store.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

pub struct Store {
    agent: ureq::Agent,
    place: StoreAddress,
    user: String,
    /// What `measure` found last: the sizes of the tables, and why the latest measurement failed (empty if it
    /// did not).
    sizes: Mutex<(Value, String)>,
}

/// Where the store is: a server with its URL and key, or a process of chDB.
enum StoreAddress {
    Server {
        url: String,
        key: String,
    },
    /// A process on this host in which chDB runs. It may end and be started again; then it has another
    /// address.
    Chdb(Arc<chdb::Chdb>),
}

/// The reason why the store did not take rows.
#[derive(Debug)]
pub struct InsertRefusal {
    /// Whether a value in the rows is wrong, so that the store will never take these rows.
    pub is_of_rows: bool,
    pub why: String,
}

/// ClickHouse's error codes for wrong rows: a value cannot be read as the column's type. After any other
/// error (a full disk, too little memory, too many parts, no such table) another try may succeed.
const OF_ROWS: [u32; 18] = [6, 26, 27, 33, 38, 41, 53, 69, 70, 72, 117, 128, 130, 131, 321, 349, 563, 676];

impl Store {
    /// Opens the store, and brings its tables up to date. Starts chDB if the configuration names no server.
    pub fn open(config: &MonitorConfig) -> Result<Store, String> {
        let place = match &config.store.url {
            Some(url) => {
                let key = match &config.store.key_file {
                    Some(file) => std::fs::read_to_string(file)
                        .map_err(|error| format!("{}: {error}", file.display()))?
                        .trim()
                        .to_string(),
                    None => String::new(),
                };
                StoreAddress::Server { url: url.clone(), key }
            }
            None => {
                let venv = config.store.venv.clone().unwrap_or_else(|| config.data.join("venv"));
                StoreAddress::Chdb(chdb::Chdb::start(&venv, &config.data.join("chdb"))?)
            }
        };
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(config.store.answer_s)))
            .http_status_as_error(false)
            .build()
            .new_agent();
        let user = config.store.user.clone().unwrap_or_else(|| "default".into());
        let store =
            Store { agent, place, user, sizes: Mutex::new((Value::Array(Vec::new()), String::new())) };
        store.check_version()?;
        store.migrate()?;
        for statement in schema::kept(&config.store.keep, &store.definitions()?) {
            store.post(&[], &statement).map_err(|refusal| refusal.why)?;
        }
        Ok(store)
    }

    /// Refuses a ClickHouse that is older than `OLDEST`, because it would store repeated rows twice.
    fn check_version(&self) -> Result<(), String> {
        let found = self.select("SELECT version()", &[])?;
        let version = found[0][0].as_str().unwrap_or_default();
        let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST {
            let (major, minor) = OLDEST;
            return Err(format!("the store is ClickHouse {version}; {major}.{minor} or newer is needed"));
        }
        Ok(())
    }

    /// Returns the names of the store's tables, each with the SQL statement that made it.
    fn definitions(&self) -> Result<Vec<(String, String)>, String> {
        let sql = "SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase()";
        let rows = self.select(sql, &[])?;
        let text = |value: &Value| value.as_str().map(String::from);
        Ok(rows
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|row| Some((text(&row[0])?, text(&row[1])?)))
            .collect())
    }

    /// Asks the store for the sizes of its tables, and keeps the answer for calls of `sizes`.
    pub fn measure(&self) {
        // Parts that a merge has replaced stay for some minutes; their rows do not count.
        let sql = "SELECT table, sumIf(rows, active), sumIf(bytes_on_disk, active), sumIf(bytes_on_disk, NOT active) \
                   FROM system.parts WHERE database = currentDatabase() GROUP BY table ORDER BY table";
        let found = self.select(sql, &[]);
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(rows) => *sizes = (rows, String::new()),
            Err(why) => sizes.1 = why,
        }
    }

    /// Returns what `measure` found last: for each table its rows, its bytes and the bytes of merged parts;
    /// and why the last measurement failed (empty if it did not). Never waits for the store.
    pub fn sizes(&self) -> (Value, String) {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn migrate(&self) -> Result<(), String> {
        let table = "CREATE TABLE IF NOT EXISTS schema (version UInt32, at DateTime DEFAULT now()) \
                     ENGINE = MergeTree ORDER BY version";
        let plain = |refusal: InsertRefusal| refusal.why;
        self.post(&[], table).map_err(plain)?;
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
                self.post(&[], statement).map_err(plain)?;
            }
            let version = format!("{}", at + 1);
            self.insert("schema (version)", &format!("schema{version}"), &version).map_err(plain)?;
        }
        Ok(())
    }

    /// Returns the rows that a SELECT finds, each as an array. `{name:Type}` in the SQL stands for a
    /// parameter, so that no value is read as SQL.
    pub fn select(&self, sql: &str, parameters: &[(&str, String)]) -> Result<Value, String> {
        let settings = "SETTINGS output_format_json_quote_64bit_integers = 0";
        let text = self.ask(&format!("{sql} FORMAT JSONCompact {settings}"), parameters)?;
        let mut answer: Value = serde_json::from_slice(&text)
            .map_err(|error| format!("the store's answer is no JSON: {error}"))?;
        Ok(answer["data"].take())
    }

    /// Returns the result of a SELECT in one of ClickHouse's formats (`CSVWithNames`, `Parquet`).
    pub fn export(&self, sql: &str, parameters: &[(&str, String)], format: &str) -> Result<Vec<u8>, String> {
        self.ask(&format!("{sql} FORMAT {format}"), parameters)
    }

    /// Sends SQL to the store and returns the answer. Parameters are sent as fields of ClickHouse's
    /// TabSeparated format.
    fn ask(&self, sql: &str, parameters: &[(&str, String)]) -> Result<Vec<u8>, String> {
        let named: Vec<_> =
            parameters.iter().map(|(name, value)| (format!("param_{name}"), field(value))).collect();
        let pairs: Vec<_> = named.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.post(&pairs, sql).map_err(|refusal| refusal.why)
    }

    /// Adds rows to a table, one a line, in ClickHouse's TabSeparated. The token stands for these rows: a
    /// store that has seen the token lately has the rows already, and adds them neither to the table nor to
    /// the views on it.
    fn insert(&self, table: &str, token: &str, lines: &str) -> Result<(), InsertRefusal> {
        let sql = format!(
            "INSERT INTO {table} SETTINGS insert_deduplication_token = '{token}', \
             deduplicate_blocks_in_dependent_materialized_views = 1 FORMAT TabSeparated"
        );
        self.post(&[("query", &sql)], lines).map(|_| ())
    }

    fn post(&self, pairs: &[(&str, &str)], body: &str) -> Result<Vec<u8>, InsertRefusal> {
        let away = |why: String| InsertRefusal { is_of_rows: false, why };
        let (url, key) = match &self.place {
            StoreAddress::Server { url, key } => (url.clone(), key.clone()),
            StoreAddress::Chdb(chdb) => chdb.place(),
        };
        let mut request = self.agent.post(&url);
        for (name, value) in pairs {
            request = request.query(name, value);
        }
        let mut response = request
            .header("X-ClickHouse-User", &self.user)
            .header("X-ClickHouse-Key", &key)
            .send(body)
            .map_err(|error| away(format!("the store at {url} does not answer: {error}")))?;
        let status = response.status();
        let code = response.headers().get("X-ClickHouse-Exception-Code");
        let code = code.and_then(|code| code.to_str().ok()?.parse::<u32>().ok());
        let text = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .map_err(|error| away(format!("the store's answer cannot be read: {error}")))?;
        if status.is_success() && code.is_none() {
            return Ok(text);
        }
        let words = String::from_utf8_lossy(&text);
        let first: String = words.lines().next().unwrap_or_default().chars().take(500).collect();
        let is_of_rows = code.is_some_and(|code| OF_ROWS.contains(&code));
        Err(InsertRefusal { is_of_rows, why: format!("the store refuses ({status}): {first}") })
    }
}

/// Returns the text as a quoted literal of SQL inside an array or a map.
pub fn literal(text: &str) -> String {
    format!("'{}'", field(text).replace('\'', "\\'"))
}

/// Returns the text as a field in ClickHouse's TabSeparated format, where a row is one line.
pub fn field(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\t', "\\t")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
        .replace('\0', "\\0")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    impl Store {
        /// Makes a store for tests. `answer` gets the head and body of each request, and returns an error's
        /// code (0 for none) and a text.
        pub fn answered_by(answer: impl Fn(&str) -> (u32, String) + Send + 'static) -> Store {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let (mut stream, mut asked, mut part) = (stream.unwrap(), String::new(), [0; 4096]);
                    let is_whole = |asked: &str| {
                        let (head, body) = asked.split_once("\r\n\r\n")?;
                        let length =
                            head.to_lowercase().split_once("content-length: ")?.1.lines().next()?.parse();
                        Some(body.len() == length.unwrap_or(0))
                    };
                    while is_whole(&asked) != Some(true) {
                        let read = stream.read(&mut part).unwrap();
                        asked += std::str::from_utf8(&part[..read]).unwrap();
                    }
                    let (code, text) = answer(&asked);
                    let head = match code {
                        0 => "200 OK".into(),
                        code => format!("500 Error\r\nX-ClickHouse-Exception-Code: {code}"),
                    };
                    let length = text.len();
                    write!(
                        stream,
                        "HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{text}"
                    )
                    .unwrap();
                }
            });
            Store {
                agent: ureq::Agent::config_builder().http_status_as_error(false).build().new_agent(),
                place: StoreAddress::Server { url, key: String::new() },
                user: "default".into(),
                sizes: Mutex::default(),
            }
        }
    }

    #[test]
    fn an_older_clickhouse_is_refused() {
        let checked = |version: &str| {
            let answer = format!(r#"{{"data": [["{version}"]]}}"#);
            Store::answered_by(move |_| (0, answer.clone())).check_version()
        };
        for old in ["23.12.4.15", "24.7.9.1", ""] {
            assert!(checked(old).unwrap_err().contains("24.8 or newer"), "{old}");
        }
        assert_eq!((checked("24.8.1.1"), checked("25.1.1.1")), (Ok(()), Ok(())));
    }
}
