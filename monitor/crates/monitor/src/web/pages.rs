// SPDX-License-Identifier: BSD-3-Clause
//! Reads a table of the store of any length, page after page, in the order in which the store keeps it. Makes
//! long answers part by part: the beginning is sent before the end is made.

use std::future::Future;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_util::{StreamExt, stream};

use super::api::asking;
use super::state::Web;

pub type Refusal = (StatusCode, String);
pub type Parameters = Vec<(&'static str, String)>;

/// An answer in parts. Each part is made while the part before it is sent.
pub trait AnswerParts: Send + 'static {
    /// Returns the next bytes of the answer, or None after the last.
    fn part(&mut self) -> impl Future<Output = Option<Result<Bytes, Refusal>>> + Send;
}

/// Makes the body of an answer from its parts. If the first part fails, the answer is an error. If a later
/// part fails, the answer breaks off, which clients notice.
pub async fn body(mut parts: impl AnswerParts) -> Result<Body, Refusal> {
    let first = parts.part().await.unwrap_or(Ok(Bytes::new()))?;
    let rest = stream::unfold(Some(parts), |parts| async move {
        let mut parts = parts?;
        match parts.part().await? {
            Ok(part) => Some((Ok(part), Some(parts))),
            Err((_, why)) => Some((Err(std::io::Error::other(why)), None)),
        }
    });
    Ok(Body::from_stream(stream::once(async { Ok(first) }).chain(rest)))
}

/// The most rows in one page of a table. A page may have more rows if several have the same key as its last
/// row.
pub const ROWS_MAX: u32 = 100_000;
/// The most stored rows in one page of a table, if each cell of a stored row's map becomes a row of the
/// answer.
pub const STORED_MAX: u32 = 2_000;
/// The most stored rows that one page of a table covers, if the page has only sums of them.
pub const SUMMED_MAX: u32 = 2_000_000;

/// A column by which the store orders a table: the column's name and type.
pub type Column = (&'static str, &'static str);

/// A query of one table of the store (`s` in the SQL), whose answer is read page by page.
#[derive(Default)]
pub struct Pages {
    /// The table's name in the SQL, with FINAL if the table may hold several versions of a row.
    pub table: String,
    pub key: Vec<Column>,
    /// The most stored rows that one page of the answer covers.
    pub stored_max: u32,
    /// The name of a column of maps, if each cell of such a map becomes a row of the answer. None if each
    /// stored row becomes one row.
    pub cells: Option<&'static str>,
    /// The word SELECT and the columns. The SQL of a page is `select` FROM `table` `join` WHERE `condition`,
    /// the bounds of the page, and `rest`.
    pub select: String,
    pub join: String,
    pub condition: String,
    pub rest: String,
    pub parameters: Parameters,
    /// The key of the row after which the present page of rows begins, column by column. None for the first
    /// page.
    pub after: Option<Vec<String>>,
    /// The key of the row with which the present page of rows ends, column by column. None before the first
    /// page and after the last.
    pub upto: Option<Vec<String>>,
}

/// The names of the SQL parameters that hold the columns of the key `after`.
const AFTER: [&str; 3] = ["after0", "after1", "after2"];
/// The names of the SQL parameters that hold the columns of the key `upto`.
const UPTO: [&str; 3] = ["upto0", "upto1", "upto2"];

/// Returns the SQL condition that a row's key comes before or after another key, in a form with which the
/// store finds such rows fast. `is_last` is the SQL operator for the last column of the key, and `is_than`
/// the operator for the other columns.
fn bound(key: &[Column], names: &[&str], is_than: &str, is_last: &str) -> String {
    let ((column, kind), name) = (key[0], names[0]);
    if key.len() == 1 {
        return format!("s.{column} {is_last} {{{name}:{kind}}}");
    }
    let rest = bound(&key[1..], &names[1..], is_than, is_last);
    format!("(s.{column} {is_than} {{{name}:{kind}}} OR s.{column} = {{{name}:{kind}}} AND ({rest}))")
}

impl Pages {
    /// Returns the SQL condition that a row comes after the key `after`, with which the previous page of rows
    /// ended. Adds the condition's parameters to `parameters`.
    fn begin(&self, parameters: &mut Parameters) -> String {
        let Some(after) = &self.after else { return String::new() };
        parameters.extend(AFTER.into_iter().zip(after.iter().cloned()));
        format!(" AND {}", bound(&self.key, &AFTER, ">", ">"))
    }

    /// Returns the SQL that asks for the key of the row with which the next page of rows ends, and the
    /// parameters of this SQL.
    pub fn end_query(&self) -> (String, Parameters) {
        let mut parameters = self.parameters.clone();
        let begin = self.begin(&mut parameters);
        let Pages { table, condition, stored_max, .. } = self;
        let names: Vec<_> = self.key.iter().map(|(column, _)| *column).collect();
        let (plain, own) = (names.join(", "), format!("s.{}", names.join(", s.")));
        let called: Vec<_> = names.iter().map(|name| format!("s.{name} AS {name}")).collect();
        let called = called.join(", ");
        let cells = self.cells.map_or(String::new(), |cells| format!(", mapKeys(s.{cells}) AS cells"));
        let stored = format!(
            "SELECT {called}{cells} FROM {table} WHERE {condition}{begin} ORDER BY {own} LIMIT {stored_max}"
        );
        let rows = match self.cells {
            None => stored,
            // A stored row without cells counts, too; otherwise the next page would begin with it again.
            Some(_) => format!(
                "SELECT {plain} FROM ({stored}) LEFT ARRAY JOIN cells ORDER BY {plain} LIMIT {ROWS_MAX}"
            ),
        };
        let texts: Vec<_> =
            (1..=names.len()).map(|at| format!("toString(tupleElement(last, {at}))")).collect();
        let sql = format!(
            "SELECT {} FROM (SELECT max(tuple({plain})) AS last, count() AS rows FROM ({rows})) WHERE rows > 0",
            texts.join(", ")
        );
        (sql, parameters)
    }

    /// Turns to the next page of rows, by asking the store where that page ends. Returns false if there is no
    /// next page.
    pub async fn turn(&mut self, web: &Arc<Web>) -> Result<bool, Refusal> {
        self.after = self.upto.take().or(self.after.take());
        let (sql, parameters) = self.end_query();
        let rows = asking(web, move |store| store.select(&sql, &parameters)).await?;
        let end = rows[0].as_array();
        self.upto = end.map(|key| key.iter().map(|text| text.as_str().unwrap_or_default().into()).collect());
        Ok(self.upto.is_some())
    }

    /// Returns the SQL that asks for the rows of the present page, and the parameters of this SQL.
    pub fn question(&self) -> (String, Parameters) {
        let mut parameters = self.parameters.clone();
        let begin = self.begin(&mut parameters);
        let end = match &self.upto {
            Some(upto) => {
                parameters.extend(UPTO.into_iter().zip(upto.iter().cloned()));
                bound(&self.key, &UPTO, "<", "<=")
            }
            None => "0".into(),
        };
        let Pages { table, select, join, condition, rest, .. } = self;
        (format!("{select} FROM {table} {join} WHERE {condition}{begin} AND {end} {rest}"), parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_where_the_one_before_ends() {
        let key: [Column; 3] = [("a", "UInt8"), ("b", "UInt8"), ("c", "String")];
        assert_eq!(
            bound(&key, &AFTER, ">", ">"),
            "(s.a > {after0:UInt8} OR s.a = {after0:UInt8} AND ((s.b > {after1:UInt8} OR s.b = {after1:UInt8} \
             AND (s.c > {after2:String}))))"
        );
        assert_eq!(
            bound(&key[1..], &UPTO, "<", "<="),
            "(s.b < {upto0:UInt8} OR s.b = {upto0:UInt8} AND (s.c <= {upto1:String}))"
        );
    }
}
