// SPDX-License-Identifier: BSD-3-Clause
//! `outboard explain`: which process carried out the collectives and messages of each call site, why, and
//! what ran at the same time as the program's computation. It reads what ranks record while OUTBOARD_TRACE is
//! set: from the file, once the job has ended, or from the running processes.
//!
//! Read next: `rows.rs` (what is counted), `sites.rs` (names of call sites).

mod rows;
pub(super) mod sites;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use clap::Args;
use schedule::{Algorithm, CombineOrder};
use serde_json::{Value, json};
use telemetry::summary::short;
use telemetry::{TracedProcess, Unit, chrome, decode};
use transport::shm::Segment;

use super::jobs::{RunningJob, ranks, running};
use super::plan::collective;
use rows::{CarrierCalls, SiteRow};
use sites::{Site, Sites};

/// For each call site, communicator and size, report who carried out the collective or message (a proxy or
/// the rank), with which algorithm and why, what overlapped with computation, and how long the other of the
/// two took for such calls.
///
/// The job must run with OUTBOARD_TRACE=FILE. Then FILE can be explained after its end, and the job itself
/// while it runs. Debug information (-g) gives call sites their lines.
#[derive(Args)]
pub struct Explain {
    /// A file that OUTBOARD_TRACE made, or the pid of a running job's mpirun (`outboard top` shows it), or of
    /// a program that runs alone.
    #[arg(value_name = "JOB|TRACE")]
    what: String,
    /// Print all numbers as JSON.
    #[arg(long)]
    json: bool,
}

impl Explain {
    /// Reads the trace file or the running job that the command line names. Returns the text or JSON to
    /// print.
    pub fn run(&self) -> Result<String, String> {
        let path = Path::new(&self.what);
        let text = match self.what.parse() {
            Ok(pid) if !path.exists() => of_job(pid)?,
            _ => std::fs::read_to_string(path)
                .map_err(|error| format!("{} is no running job and cannot be read: {error}", self.what))?,
        };
        let events = chrome::parse(&text).map_err(|error| format!("{}: {error}", self.what))?;
        let rows = rows::of(&events);
        let mut sites = Sites::default();
        let located: Vec<(Site, &SiteRow)> = rows.iter().map(|row| (sites.find(&row.site), row)).collect();
        Ok(if self.json {
            let values: Vec<Value> = located.iter().map(|(site, row)| described(site, row)).collect();
            format!("{:#}\n", Value::Array(values))
        } else {
            text_of(&self.what, &located, &rows)
        })
    }
}

/// Returns the trace of a running job so far, as JSON, from what its processes on this host have recorded.
/// `pid` is that of its `mpirun` or of the program that runs alone.
fn of_job(pid: u32) -> Result<String, String> {
    let mut processes = Vec::new();
    for job in running(Some(pid))? {
        processes.extend(pids(&job.segment).filter_map(part_of));
        if processes.is_empty() {
            let RunningJob { pid, .. } = job;
            return Err(format!("job {pid} keeps no trace: it must be started with OUTBOARD_TRACE=FILE"));
        }
    }
    Ok(chrome::file(processes))
}

/// Returns the pids of a job's ranks and proxies on this host.
fn pids(segment: &Segment) -> impl Iterator<Item = u32> {
    let ranks = ranks(segment).map(|rank| segment.rank(rank).pid.load(Ordering::Relaxed));
    let proxies = (0..segment.shape().proxies).map(|at| segment.proxy(at).pid.load(Ordering::Relaxed));
    ranks.chain(proxies).filter(|pid| *pid != 0).collect::<BTreeSet<_>>().into_iter()
}

/// Reads the events that a process has recorded so far from the file that the process holds open. None if it
/// records no events.
fn part_of(pid: u32) -> Option<TracedProcess> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    descriptors.flatten().find_map(|entry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        let who = telemetry::event::whose(&target)?;
        Some(TracedProcess { who, clock: 0, records: decode(&std::fs::read(entry.path()).ok()?) })
    })
}

fn text_of(what: &str, located: &[(Site, &SiteRow)], rows: &[SiteRow]) -> String {
    let mut text = String::new();
    if located.is_empty() {
        return format!("{what}: no collective was called and no message sent\n");
    }
    for (site, row) in located {
        let what = counted(row.calls.len(), if row.is_message { "message" } else { "call" });
        let ranks = counted(row.ranks.len(), "rank");
        writeln!(text, "{site}: {}, {}, {what} of {ranks}", row.call, size(row)).expect("a String takes all");
        for way in &row.ways {
            line(&mut text, row, way, rows);
        }
        if !row.under_way.is_empty() {
            writeln!(text, "  {} not complete", row.under_way.len()).expect("a String takes all");
        }
    }
    text
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn size(row: &SiteRow) -> String {
    let [least, most] = row.bytes.map(|bytes| short(bytes, Unit::Bytes));
    if least == most { least } else { format!("{least} to {most}") }
}

fn line(text: &mut String, row: &SiteRow, way: &CarrierCalls, rows: &[SiteRow]) {
    let by = match way.by.as_str() {
        "proxy" => "by a proxy",
        "library" => "by a collective library",
        _ => "by the rank",
    };
    let order =
        if has_own_order(&row.call, &way.algorithm) { ", which combines in an order of its own" } else { "" };
    let algorithm =
        if way.algorithm.is_empty() { String::new() } else { format!(", {}{order}", way.algorithm) };
    let time = |ns: f64| short(ns as u64, Unit::Nanoseconds);
    let (took, outside) = (way.took_ns(), way.outside_ns());
    let percent = 100.0 * outside / took.max(1.0);
    let beside = match way.by.as_str() {
        "proxy" => format!("{percent:.0} % of it beside computation"),
        _ if percent >= 1.0 => format!("{} of it the program computed, and nothing moved", time(outside)),
        _ => "all of it in MPI".into(),
    };
    let mixed = match row.mixed(way) {
        0 => String::new(),
        mixed => format!(" ({mixed} of them on some ranks only)"),
    };
    writeln!(
        text,
        "  {} {by}{mixed}{algorithm}: {}\n      {} each, {beside}{}",
        way.calls.len(),
        way.why,
        time(took),
        compared(row, way, rows)
    )
    .expect("a String takes all");
}

/// Whether a reduction used an algorithm that combines in another order than that of the ranks
/// (`schedule::order`). `call` begins with the MPI function's name.
fn has_own_order(call: &str, algorithm: &str) -> bool {
    let function = call.split(' ').next().unwrap_or_default().trim_end_matches("_init");
    let Ok((collective, _)) = collective(function) else { return false };
    let algorithm = Algorithm::find(collective, algorithm);
    collective.reduces()
        && algorithm.is_some_and(|algorithm| algorithm.facts().order != CombineOrder::InRanks)
}

/// Returns text for the end of a row's line: how long calls of the same function, comm and size took where
/// the rank carried them out (if `way` is by a proxy) or a proxy did (if `way` is by the rank). Empty if
/// there are no such calls.
fn compared(row: &SiteRow, way: &CarrierCalls, rows: &[SiteRow]) -> String {
    let (other, name) = if way.by == "proxy" { ("rank", "the rank") } else { ("proxy", "a proxy") };
    match rows::took(rows, row, other) {
        Some((ns, calls)) => {
            let time = short(ns as u64, Unit::Nanoseconds);
            format!("; {name} took {time} for such calls ({calls} in this trace)")
        }
        None => String::new(),
    }
}

fn described(site: &Site, row: &SiteRow) -> Value {
    let ways = row.ways.iter().map(|way| {
        json!({
            "by": way.by, "why": way.why, "algorithm": way.algorithm, "calls": way.calls.len(),
            "on_some_ranks_only": row.mixed(way), "took_ns": way.took_ns(), "outside_mpi_ns": way.outside_ns(),
        })
    });
    json!({
        "site": row.site, "function": site.function, "file": site.file, "line": site.line,
        "call": row.call, "bytes_min": row.bytes[0], "bytes_max": row.bytes[1],
        "calls": row.calls.len(), "ranks": row.ranks, "not_complete": row.under_way.len(), "ways": ways.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_of_its_own_is_told() {
        assert!(has_own_order("MPI_Allreduce on MPI_COMM_WORLD", "ring"));
        assert!(has_own_order("MPI_Iscan on x", "doubling"));
        assert!(has_own_order("MPI_Reduce_scatter_block_init on MPI_COMM_WORLD", "halving"));
        assert!(
            !has_own_order("MPI_Allreduce on MPI_COMM_WORLD", "split")
                && !has_own_order("MPI_Bcast on x", "chain")
        );
        assert!(!has_own_order("MPI_Reduce on MPI_COMM_WORLD", "") && !has_own_order("MPI_Wait", "ring"));
    }
}
