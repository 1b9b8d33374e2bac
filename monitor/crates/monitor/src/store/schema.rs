// SPDX-License-Identifier: BSD-3-Clause
//! The tables of the store, as a list of steps from version to version. A store of an older version gets the
//! steps that it lacks.
//!
//! The store has one wide row for each port and sweep (reading of all ports). Views make rollups of 1 and 10
//! minutes. Jobs are stored by (job, rank, time). The configuration says how long each table keeps its rows.

use crate::config::Keep;
use crate::fabric::counters::COUNTERS;

/// Returns for each version of the tables the SQL statements that lead to it from the version before. The
/// first version is 1.
pub fn versions() -> Vec<Vec<String>> {
    vec![
        ports(),
        jobs(),
        vec!["ALTER TABLE jobs ADD COLUMN IF NOT EXISTS project String".into()],
        hosts(),
        host_minutes(),
        REPEATS_KNOWN.map(known_repeats).into(),
    ]
}

/// The tables to which a repeated INSERT would add its rows twice. In the other two, `jobs` and `nodes`, a
/// repeated row replaces the first.
const REPEATS_KNOWN: [&str; 6] =
    ["port_samples", "port_minutes", "port_tens", "host_samples", "host_minutes", "job_samples"];

/// Returns the SQL statement that makes a table remember the tokens of its last 10,000 INSERTs. The monitor
/// repeats only the last INSERT of a table or, after a disk has lost data, INSERTs of the last minutes.
fn known_repeats(table: &str) -> String {
    format!("ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = 10000")
}

/// Returns the SQL statements that set how many days each table keeps its rows, for tables where this has
/// changed. `definitions` are the statements that made the tables.
pub fn kept(keep: &Keep, definitions: &[(String, String)]) -> Vec<String> {
    let Keep { samples_days, minutes_days, tens_days, jobs_days } = *keep;
    let times = [
        ("port_samples", "toDateTime(ts)", samples_days),
        ("host_samples", "toDateTime(ts)", samples_days),
        ("job_samples", "toDateTime(ts)", samples_days),
        ("port_minutes", "ts", minutes_days),
        ("host_minutes", "ts", minutes_days),
        ("port_tens", "ts", tens_days),
        ("jobs", "toDateTime(seen)", jobs_days),
    ];
    let statement = |(table, time, days): (&str, &str, u32)| {
        let end = format!("TTL {time} + toIntervalDay({days})");
        let is_so = definitions.iter().any(|(name, text)| name == table && text.contains(&end));
        (!is_so).then(|| format!("ALTER TABLE {table} MODIFY {end}"))
    };
    times.into_iter().filter_map(statement).collect()
}

fn ports() -> Vec<String> {
    let columns = |form: &str| -> String {
        COUNTERS.iter().map(|counter| form.replace('@', counter.name)).collect::<Vec<_>>().join(", ")
    };
    let raw = format!(
        "CREATE TABLE IF NOT EXISTS port_samples (ts DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)), \
         node UInt64 CODEC(ZSTD(1)), port UInt8 CODEC(ZSTD(1)), seconds Float32 CODEC(ZSTD(1)), flags UInt8 CODEC(ZSTD(1)), \
         sent Nullable(Float32) CODEC(ZSTD(1)), received Nullable(Float32) CODEC(ZSTD(1)), {}) \
         ENGINE = MergeTree PARTITION BY toDate(ts) ORDER BY (node, port, ts)",
        columns("@ UInt64 CODEC(ZSTD(1))")
    );
    let mut all = vec![raw];
    for (table, start, partition) in [
        ("port_minutes", "toStartOfMinute(toDateTime(s.ts, 'UTC'))", "toYYYYMM(ts)"),
        ("port_tens", "toStartOfTenMinutes(toDateTime(s.ts, 'UTC'))", "toYear(ts)"),
    ] {
        all.push(format!(
            "CREATE TABLE IF NOT EXISTS {table} (ts DateTime('UTC') CODEC(Delta, ZSTD(1)), node UInt64, port UInt8, \
             seconds SimpleAggregateFunction(sum, Float64), flags SimpleAggregateFunction(groupBitOr, UInt8), \
             sent SimpleAggregateFunction(max, Nullable(Float32)), received SimpleAggregateFunction(max, Nullable(Float32)), {}) \
             ENGINE = AggregatingMergeTree PARTITION BY {partition} ORDER BY (node, port, ts)",
            columns("@ SimpleAggregateFunction(sum, UInt64)")
        ));
        all.push(format!(
            "CREATE MATERIALIZED VIEW IF NOT EXISTS {table}_of TO {table} AS SELECT {start} AS ts, node, port, \
             sum(toFloat64(s.seconds)) AS seconds, groupBitOr(s.flags) AS flags, max(s.sent) AS sent, \
             max(s.received) AS received, {} FROM port_samples AS s GROUP BY ts, node, port",
            columns("sum(s.@) AS @")
        ));
    }
    all.push(
        "CREATE TABLE IF NOT EXISTS nodes (guid UInt64, name String, kind LowCardinality(String), rack String, \
         seen DateTime64(3, 'UTC')) ENGINE = ReplacingMergeTree(seen) ORDER BY guid"
            .into(),
    );
    all
}

/// Returns the SQL statements that make the table `host_samples`. A row of it has all numbers of a host by
/// their names: gauges, and the growth of counters in a second.
fn hosts() -> Vec<String> {
    vec![
        "CREATE TABLE IF NOT EXISTS host_samples (ts DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)), \
         host LowCardinality(String), numbers Map(LowCardinality(String), Float64) CODEC(ZSTD(1))) \
         ENGINE = MergeTree PARTITION BY toDate(ts) ORDER BY (host, ts)"
            .into(),
        // Two programs of one job of Slurm have the same ranks.
        "ALTER TABLE job_samples ADD COLUMN IF NOT EXISTS pid UInt32".into(),
    ]
}

/// Returns the SQL statements that make the table `host_minutes`: the sum, count and maximum of each number
/// of a host in a minute.
fn host_minutes() -> Vec<String> {
    vec![
        "CREATE TABLE IF NOT EXISTS host_minutes (ts DateTime('UTC') CODEC(Delta, ZSTD(1)), host LowCardinality(String), \
         sums SimpleAggregateFunction(sumMap, Map(String, Float64)) CODEC(ZSTD(1)), \
         counts SimpleAggregateFunction(sumMap, Map(String, UInt64)) CODEC(ZSTD(1)), \
         highest SimpleAggregateFunction(maxMap, Map(String, Float64)) CODEC(ZSTD(1))) \
         ENGINE = AggregatingMergeTree PARTITION BY toYYYYMM(ts) ORDER BY (host, ts)"
            .into(),
        "CREATE MATERIALIZED VIEW IF NOT EXISTS host_minutes_of TO host_minutes AS SELECT \
         toStartOfMinute(toDateTime(s.ts, 'UTC')) AS ts, host, sumMap(s.numbers) AS sums, \
         sumMap(mapApply((name, value) -> (name, toUInt64(1)), s.numbers)) AS counts, maxMap(s.numbers) AS highest \
         FROM host_samples AS s GROUP BY ts, host"
            .into(),
    ]
}

fn jobs() -> Vec<String> {
    vec![
        "CREATE TABLE IF NOT EXISTS jobs (id String, source LowCardinality(String), user String, name String, \
         nodes Array(String), ranks UInt32, state LowCardinality(String), start DateTime64(3, 'UTC'), \
         end Nullable(DateTime64(3, 'UTC')), seen DateTime64(3, 'UTC')) ENGINE = ReplacingMergeTree(seen) \
         ORDER BY (source, id)"
            .into(),
        "CREATE TABLE IF NOT EXISTS job_samples (ts DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)), job String, rank UInt32, \
         host LowCardinality(String), counters Map(LowCardinality(String), UInt64) CODEC(ZSTD(1))) \
         ENGINE = MergeTree PARTITION BY toDate(ts) ORDER BY (job, rank, ts)"
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_changed_only_if_it_keeps_its_rows_for_another_time() {
        let keep = Keep::default();
        let all = kept(&keep, &[]);
        assert_eq!(all.len(), REPEATS_KNOWN.len() + 1, "each table but nodes");
        let so = |statement: &String| {
            let (table, end) =
                statement.strip_prefix("ALTER TABLE ").unwrap().split_once(" MODIFY ").unwrap();
            (
                table.to_string(),
                format!("CREATE TABLE default.{table} (...) {end} SETTINGS index_granularity = 8192"),
            )
        };
        let definitions: Vec<_> = all.iter().map(so).collect();
        assert_eq!(kept(&keep, &definitions), Vec::<String>::new());
        let longer = Keep { jobs_days: 3650, ..keep };
        assert_eq!(
            kept(&longer, &definitions),
            ["ALTER TABLE jobs MODIFY TTL toDateTime(seen) + toIntervalDay(3650)"]
        );
    }
}
