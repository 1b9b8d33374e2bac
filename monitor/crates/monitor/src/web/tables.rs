// SPDX-License-Identifier: BSD-3-Clause
//! Tables of any length for other programs: CSV, or one Parquet file. The SQL itself selects only rows that
//! the person who asks may see.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::api::{WebState, asking, errors_sum, guid, known_job, span, table_of};
use super::hosts::{no_host, sees};
use super::limits::Underway;
use super::pages::{AnswerParts, Pages, Parameters, ROWS_MAX, Refusal, STORED_MAX, SUMMED_MAX, body};
use super::parquet::Joined;
use super::state::Web;
use crate::fabric::counters::COUNTERS;
use crate::jobs::key;
use crate::people::{Role, Who};
use crate::time::seconds;

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Csv,
    Parquet,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum View {
    /// Samples of all ports, or of one port.
    Ports,
    /// For each port, the sums of its errors.
    Errors,
    /// Figures of all hosts, or of one host.
    Hosts,
    Jobs,
    /// The counters of the ranks of one job.
    Job,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableQuery {
    view: View,
    #[serde(default)]
    format: Format,
    from: Option<u64>,
    to: Option<u64>,
    /// The GUID of the node whose ports are requested, or None for all nodes.
    node: Option<String>,
    /// The number of the port that is requested, or None for all ports.
    port: Option<u8>,
    /// The name of the host that is requested, or None for all hosts.
    host: Option<String>,
    /// The source of the job that is requested, such as `slurm`. None for views without a job.
    source: Option<String>,
    /// The id of the job that is requested. None for views without a job.
    id: Option<String>,
}

pub async fn export(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Query(asked): Query<TableQuery>,
) -> Result<Response, Refusal> {
    if matches!(asked.view, View::Job) {
        let (source, id) = (asked.source.clone().unwrap_or_default(), asked.id.clone().unwrap_or_default());
        known_job(&web, &who, source, id).await?;
    }
    if matches!(asked.view, View::Hosts) && web.private_hosts && who.role < Role::Support {
        let host = asked.host.as_deref().unwrap_or_default();
        if !sees(&web, &web.live.now(), &who, host) {
            return Err(no_host());
        }
    }
    let (kind, ending) = match asked.format {
        Format::Csv => ("text/csv; charset=utf-8", "csv"),
        Format::Parquet => ("application/vnd.apache.parquet", "parquet"),
    };
    let name = format!("attachment; filename=\"{:?}.{ending}\"", asked.view).to_lowercase();
    let (from, to, _) = span(asked.from, asked.to, 1)?;
    let pages = pages_of(&asked, &who, from, to)?;
    let underway = web.exports.begin(&who.name)?;
    let file = TableFile {
        web,
        pages,
        format: asked.format,
        joined: None,
        state: FileProgress::Begins,
        _underway: underway,
    };
    let body = body(file).await?;
    Ok(([(header::CONTENT_TYPE, kind.to_string()), (header::CONTENT_DISPOSITION, name)], body)
        .into_response())
}

/// How much of an exported file has been made.
#[derive(Clone, Copy, PartialEq)]
enum FileProgress {
    Begins,
    GoesOn,
    IsWhole,
}

/// An export of a table as one file. It is made page by page of the table while it is sent.
struct TableFile {
    web: Arc<Web>,
    pages: Pages,
    format: Format,
    joined: Option<Joined>,
    state: FileProgress,
    _underway: Underway,
}

impl AnswerParts for TableFile {
    async fn part(&mut self) -> Option<Result<Bytes, Refusal>> {
        while self.state != FileProgress::IsWhole {
            match self.page().await {
                // A page of errors may have no rows.
                Ok(part) if part.is_empty() => {}
                found => return Some(found),
            }
        }
        None
    }
}

impl TableFile {
    async fn page(&mut self) -> Result<Bytes, Refusal> {
        let is_first = self.state == FileProgress::Begins;
        let is_more = self.pages.turn(&self.web).await?;
        self.state = if is_more { FileProgress::GoesOn } else { FileProgress::IsWhole };
        let format = match (self.format, is_first) {
            (Format::Csv, true) => "CSVWithNames",
            (Format::Csv, false) => "CSV",
            (Format::Parquet, _) => "Parquet",
        };
        let mut bytes = Vec::new();
        // The first page is read even if it has no rows, because it has the names of the columns.
        if is_more || is_first {
            let (sql, parameters) = self.pages.question();
            bytes = asking(&self.web, move |store| store.export(&sql, &parameters, format)).await?;
        }
        match self.format {
            Format::Csv => Ok(bytes.into()),
            Format::Parquet => {
                self.join(bytes.into(), !is_more).map_err(|why| (StatusCode::BAD_GATEWAY, why))
            }
        }
    }

    /// Adds a page, which is a Parquet file itself, to the file that is sent. Returns the bytes to send next.
    fn join(&mut self, page: Bytes, is_last: bool) -> Result<Bytes, String> {
        let mut joined = match self.joined.take() {
            Some(joined) => joined,
            None => Joined::like(&page)?,
        };
        let mut part = if page.is_empty() { Vec::new() } else { joined.add(&page)? };
        if is_last {
            part.extend(joined.end()?);
        } else {
            self.joined = Some(joined);
        }
        Ok(part.into())
    }
}

/// Returns the query that asks the store for a view (such as `Ports`) of what happened between the times
/// `from` and `to`.
fn pages_of(asked: &TableQuery, who: &Who, from: u64, to: u64) -> Result<Pages, Refusal> {
    let mut pages = match asked.view {
        View::Ports => of_ports(asked, to - from),
        View::Errors => of_errors(asked, to - from),
        View::Hosts => of_hosts(asked, to - from),
        View::Jobs => of_jobs(asked, who),
        View::Job => of_job(asked),
    };
    pages.parameters.extend([("from", seconds(from)), ("to", seconds(to))]);
    if matches!(asked.view, View::Ports | View::Errors) {
        one_port(&mut pages, asked)?;
    }
    Ok(pages)
}

/// Restricts the query to the node and the port that `asked` names, if it names any.
fn one_port(pages: &mut Pages, asked: &TableQuery) -> Result<(), Refusal> {
    if let Some(node) = &asked.node {
        pages.condition += " AND s.node = {node:UInt64}";
        pages.parameters.push(("node", guid(node)?.to_string()));
    }
    if let Some(port) = asked.port {
        pages.condition += " AND s.port = {port:UInt8}";
        pages.parameters.push(("port", port.to_string()));
    }
    Ok(())
}

const IN_TIME: &str = "s.ts >= toDateTime64({from:Float64}, 3) AND s.ts < toDateTime64({to:Float64}, 3)";
const NAMES: &str =
    "LEFT JOIN (SELECT guid, argMax(name, seen) AS name FROM nodes GROUP BY guid) AS n ON n.guid = s.node";
const GUID: &str = "leftPad(lower(hex(s.node)), 16, '0') AS guid";
const SAMPLED: &str = "DateTime64(3, 'UTC')";
const ROLLED: &str = "DateTime('UTC')";

/// Returns the SQL for the text in a column. In CSV it puts a quote before a text that a spreadsheet would
/// take for a formula.
fn plain(format: Format, column: &str) -> String {
    match format {
        Format::Csv => {
            format!("if(match({column}, '^[=+@\\\\-\\\\t\\\\r]'), concat('\\'', {column}), {column})")
        }
        Format::Parquet => column.into(),
    }
}

/// Returns what follows FROM in the SQL for a table of samples or of sums of samples, and the SQL type of its
/// times.
fn timed(table: &str) -> (String, &'static str) {
    match table.ends_with("_samples") {
        true => (format!("{table} AS s"), SAMPLED),
        // Rows that were not merged yet are stored in parts.
        false => (format!("{table} AS s FINAL"), ROLLED),
    }
}

fn of_ports(asked: &TableQuery, span_ms: u64) -> Pages {
    let (table, kind) = timed(table_of(span_ms).0);
    let counters: Vec<_> = COUNTERS.iter().map(|counter| counter.name).collect();
    let name = plain(asked.format, "n.name");
    Pages {
        table,
        key: vec![("node", "UInt64"), ("port", "UInt8"), ("ts", kind)],
        stored_max: ROWS_MAX,
        select: format!(
            "SELECT s.ts AS ts, {GUID}, {name} AS name, s.port AS port, seconds, flags, sent, received, {}",
            counters.join(", ")
        ),
        join: NAMES.into(),
        condition: IN_TIME.into(),
        rest: "ORDER BY s.node, s.port, s.ts".into(),
        ..Pages::default()
    }
}

fn of_errors(asked: &TableQuery, span_ms: u64) -> Pages {
    let errors = COUNTERS.iter().filter(|counter| counter.is_error);
    let sums: Vec<_> = errors.map(|counter| format!("sum(s.{0}) AS {0}_sum", counter.name)).collect();
    let name = plain(asked.format, "any(n.name)");
    Pages {
        table: format!("{} AS s", table_of(span_ms).0),
        key: vec![("node", "UInt64"), ("port", "UInt8")],
        stored_max: SUMMED_MAX,
        select: format!(
            "SELECT {GUID}, {name} AS name, s.port AS port, sum({}) AS errors, {}",
            errors_sum(),
            sums.join(", ")
        ),
        join: NAMES.into(),
        condition: IN_TIME.into(),
        rest: "GROUP BY s.node, s.port HAVING errors > 0 ORDER BY s.node, s.port".into(),
        ..Pages::default()
    }
}

fn of_hosts(asked: &TableQuery, span_ms: u64) -> Pages {
    let (table, cells, value) = match table_of(span_ms).0 {
        "port_samples" => ("host_samples", "numbers", "s.numbers[cell]"),
        _ => ("host_minutes", "counts", "s.sums[cell] / s.counts[cell]"),
    };
    let (table, kind) = timed(table);
    let [host, name] = ["s.host", "cell"].map(|column| plain(asked.format, column));
    let of_host = if asked.host.is_some() { " AND s.host = {host:String}" } else { "" };
    Pages {
        table,
        key: vec![("host", "String"), ("ts", kind)],
        stored_max: STORED_MAX,
        cells: Some(cells),
        select: format!("SELECT s.ts AS ts, {host} AS host, {name} AS name, {value} AS value"),
        join: format!("ARRAY JOIN mapKeys(s.{cells}) AS cell"),
        condition: format!("{IN_TIME}{of_host}"),
        rest: "ORDER BY s.host, s.ts, cell".into(),
        parameters: asked.host.clone().map(|host| ("host", host)).into_iter().collect(),
        ..Pages::default()
    }
}

fn of_jobs(asked: &TableQuery, who: &Who) -> Pages {
    let text = |column: &str| format!("{} AS {column}", plain(asked.format, &format!("s.{column}")));
    let [id, user, project, name, state] = ["id", "user", "project", "name", "state"].map(text);
    Pages {
        table: "jobs AS s FINAL".into(),
        key: vec![("source", "String"), ("id", "String")],
        stored_max: ROWS_MAX,
        select: format!(
            "SELECT s.source AS source, {id}, {user}, {project}, {name}, nodes, ranks, {state}, start, end"
        ),
        condition: format!(
            "s.start < toDateTime64({{to:Float64}}, 3) AND (s.end IS NULL OR s.end >= toDateTime64({{from:Float64}}, 3)) \
             AND {SEEN}"
        ),
        rest: "ORDER BY s.source, s.id".into(),
        parameters: sight(who),
        ..Pages::default()
    }
}

fn of_job(asked: &TableQuery) -> Pages {
    let (source, id) = (asked.source.as_deref().unwrap_or_default(), asked.id.as_deref().unwrap_or_default());
    let [host, name] = ["s.host", "cell"].map(|column| plain(asked.format, column));
    Pages {
        table: "job_samples AS s".into(),
        key: vec![("rank", "UInt32"), ("ts", SAMPLED)],
        stored_max: STORED_MAX,
        cells: Some("counters"),
        select: format!(
            "SELECT s.ts AS ts, s.rank AS rank, {host} AS host, s.pid AS pid, {name} AS name, s.counters[cell] AS value"
        ),
        join: "ARRAY JOIN mapKeys(s.counters) AS cell".into(),
        condition: format!("s.job = {{job:String}} AND {IN_TIME}"),
        rest: "ORDER BY s.rank, s.ts, s.host, s.pid, cell".into(),
        parameters: vec![("job", key(source, id))],
        ..Pages::default()
    }
}

/// The SQL condition that a person may see a row of `jobs` (which the SQL calls `s`), as `Who::sees` decides.
/// `sight` returns the parameters of the condition.
pub const SEEN: &str = "({all:UInt8} OR s.user = {user:String} OR has(JSONExtract({projects:String}, 'Array(String)'), s.project))";

pub fn sight(who: &Who) -> Parameters {
    let projects: &[String] = if who.role == Role::Manager { &who.projects } else { &[] };
    vec![
        ("all", u8::from(who.role >= Role::Support).to_string()),
        ("user", who.name.clone()),
        ("projects", json!(projects).to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(view: View) -> TableQuery {
        let (node, host, source, id) = (None, None, None, None);
        TableQuery { view, format: Format::Csv, from: None, to: None, node, port: None, host, source, id }
    }

    fn eva(role: Role) -> Who {
        Who { name: "eva".into(), role, projects: vec!["c'fd".into()] }
    }

    #[test]
    fn a_user_is_given_his_jobs_only() {
        let words = |role| sight(&eva(role)).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        assert_eq!(words(Role::User), ["0", "eva", "[]"]);
        assert_eq!(words(Role::Manager), ["0", "eva", "[\"c'fd\"]"]);
        assert_eq!(words(Role::Support)[0], "1");
        let pages = pages_of(&asked(View::Jobs), &eva(Role::User), 1, 2).unwrap();
        assert!(pages.question().0.contains(SEEN) && pages.end_query().0.contains(SEEN));
    }

    #[test]
    fn no_value_becomes_sql() {
        let odd = TableQuery { node: Some("'; DROP".into()), ..asked(View::Ports) };
        assert!(pages_of(&odd, &eva(Role::User), 1, 2).is_err());
        let odd = TableQuery { host: Some("'; DROP".into()), ..asked(View::Hosts) };
        let mut pages = pages_of(&odd, &eva(Role::User), 1, 2).unwrap();
        pages.upto = Some(vec!["'; DROP".into(), "2026-11-27 10:00:00.000".into()]);
        for (sql, parameters) in [pages.question(), pages.end_query()] {
            assert!(!sql.contains("DROP") && parameters.iter().any(|(_, value)| value.contains("DROP")));
        }
    }

    #[test]
    fn a_page_has_the_rows_between_two_keys() {
        let mut pages = pages_of(&asked(View::Errors), &eva(Role::User), 1, 2).unwrap();
        assert!(pages.question().0.contains("AND 0 GROUP BY"), "no rows, and the names of the columns");
        (pages.after, pages.upto) = (Some(vec!["1".into(), "2".into()]), Some(vec!["3".into(), "4".into()]));
        let (sql, parameters) = pages.question();
        assert!(sql.contains("s.node > {after0:UInt64}") && sql.contains("s.port <= {upto1:UInt8}"), "{sql}");
        let values =
            |name| parameters.iter().filter(move |(one, _)| *one == name).map(|(_, value)| value.as_str());
        assert_eq!(
            ["after0", "after1", "upto0", "upto1"].map(|name| values(name).collect::<String>()),
            ["1", "2", "3", "4"]
        );
    }
}
