// SPDX-License-Identifier: BSD-3-Clause
//! The tables, as a list of steps: a store of an older version gets the steps that it lacks.
//!
//! One wide row per port and sweep; rollups at 1 and 10 minutes by views; jobs by (job, rank, time). Times to
//! live: raw 30 days, minutes 1 year, tens of minutes 5 years.

use crate::fabric::counters::COUNTERS;

/// Statements by version, the first is 1.
pub fn versions() -> Vec<Vec<String>> {
    vec![ports(), jobs(), vec!["ALTER TABLE jobs ADD COLUMN IF NOT EXISTS project String".into()], hosts()]
}

fn ports() -> Vec<String> {
    let columns = |form: &str| -> String {
        COUNTERS.iter().map(|counter| form.replace('@', counter.name)).collect::<Vec<_>>().join(", ")
    };
    let raw = format!(
        "CREATE TABLE IF NOT EXISTS port_samples (ts DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)), \
         node UInt64 CODEC(ZSTD(1)), port UInt8 CODEC(ZSTD(1)), seconds Float32 CODEC(ZSTD(1)), flags UInt8 CODEC(ZSTD(1)), \
         sent Nullable(Float32) CODEC(ZSTD(1)), received Nullable(Float32) CODEC(ZSTD(1)), {}) \
         ENGINE = MergeTree PARTITION BY toDate(ts) ORDER BY (node, port, ts) TTL toDateTime(ts) + INTERVAL 30 DAY",
        columns("@ UInt64 CODEC(ZSTD(1))")
    );
    let mut all = vec![raw];
    for (table, start, partition, kept) in [
        ("port_minutes", "toStartOfMinute(toDateTime(s.ts, 'UTC'))", "toYYYYMM(ts)", "1 YEAR"),
        ("port_tens", "toStartOfTenMinutes(toDateTime(s.ts, 'UTC'))", "toYear(ts)", "5 YEAR"),
    ] {
        all.push(format!(
            "CREATE TABLE IF NOT EXISTS {table} (ts DateTime('UTC') CODEC(Delta, ZSTD(1)), node UInt64, port UInt8, \
             seconds SimpleAggregateFunction(sum, Float64), flags SimpleAggregateFunction(groupBitOr, UInt8), \
             sent SimpleAggregateFunction(max, Nullable(Float32)), received SimpleAggregateFunction(max, Nullable(Float32)), {}) \
             ENGINE = AggregatingMergeTree PARTITION BY {partition} ORDER BY (node, port, ts) TTL ts + INTERVAL {kept}",
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

/// A host's numbers in one row, by names of its own: gauges, and counters as what they grew by in a second.
fn hosts() -> Vec<String> {
    vec![
        "CREATE TABLE IF NOT EXISTS host_samples (ts DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)), \
         host LowCardinality(String), numbers Map(LowCardinality(String), Float64) CODEC(ZSTD(1))) \
         ENGINE = MergeTree PARTITION BY toDate(ts) ORDER BY (host, ts) TTL toDateTime(ts) + INTERVAL 30 DAY"
            .into(),
        // Two programs of one job of Slurm have the same ranks.
        "ALTER TABLE job_samples ADD COLUMN IF NOT EXISTS pid UInt32".into(),
    ]
}

fn jobs() -> Vec<String> {
    vec![
        "CREATE TABLE IF NOT EXISTS jobs (id String, source LowCardinality(String), user String, name String, \
         nodes Array(String), ranks UInt32, state LowCardinality(String), start DateTime64(3, 'UTC'), \
         end Nullable(DateTime64(3, 'UTC')), seen DateTime64(3, 'UTC')) ENGINE = ReplacingMergeTree(seen) \
         ORDER BY (source, id) TTL toDateTime(seen) + INTERVAL 1 YEAR"
            .into(),
        "CREATE TABLE IF NOT EXISTS job_samples (ts DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)), job String, rank UInt32, \
         host LowCardinality(String), counters Map(LowCardinality(String), UInt64) CODEC(ZSTD(1))) \
         ENGINE = MergeTree PARTITION BY toDate(ts) ORDER BY (job, rank, ts) TTL toDateTime(ts) + INTERVAL 30 DAY"
            .into(),
    ]
}
