// SPDX-License-Identifier: BSD-3-Clause
//! The figures of a profile: sums for each rank, for functions and their call sites, and for pairs of ranks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::calls::{TraceParts, base};
use super::trace::Trace;
use super::waits::{Wait, Why};

/// All numbers of a profile, as the page and `--json` show them. Times are in us.
#[derive(Serialize)]
pub struct Figures {
    pub command: String,
    pub version: String,
    pub hosts: Vec<String>,
    pub events: usize,
    /// How many us passed from the first event to the last.
    pub lasted_us: f64,
    pub ranks: Vec<RankTimes>,
    pub functions: Vec<FunctionRow>,
    pub traffic: Vec<Traffic>,
    pub waits: Vec<Pair>,
    pub late: Vec<Late>,
    /// The ranks that did not call MPI_Finalize: the trace ends before these ranks did.
    pub cut_off: Vec<u64>,
}

/// How a rank spent the time from its first call in the trace to its last, except MPI_Finalize. The times of
/// its threads are added up.
#[derive(Serialize)]
pub struct RankTimes {
    pub rank: u64,
    pub in_mpi_us: f64,
    pub outside_us: f64,
    /// How many us the rank waited in MPI calls for other ranks that had not started their part.
    pub waited_us: f64,
}

/// The calls of one function at one call site, on all ranks together.
#[derive(Default, Serialize)]
pub struct FunctionRow {
    pub function: String,
    /// The call site: a file with code, and an offset in that file. Empty if it is not known.
    pub site: String,
    pub calls: u64,
    pub ranks: usize,
    /// The bytes of the messages and collectives that these calls started.
    pub bytes: u64,
    pub us: f64,
    pub longest_us: f64,
    pub waited_us: f64,
    /// The least time, in us, that a rank spent in these calls, among the ranks that made them.
    pub least_us: f64,
    /// The most time, in us, that a rank spent in these calls, among the ranks that made them.
    pub most_us: f64,
}

/// How many messages, with how many bytes together, rank `from` sent to rank `to`.
#[derive(Serialize)]
pub struct Traffic {
    pub from: u64,
    pub to: u64,
    pub messages: u64,
    pub bytes: u64,
}

/// How long, in us, rank `rank` waited for rank `late` in all its calls together.
#[derive(Serialize)]
pub struct Pair {
    pub rank: u64,
    pub late: u64,
    pub us: f64,
}

/// How often rank `rank` waited in calls at one call site for calls of rank `late` at another call site, and
/// how long together. All these waits have the same reason `why`.
#[derive(Serialize)]
pub struct Late {
    pub why: Why,
    pub late: u64,
    /// The call site at which the late rank started its part.
    pub late_site: String,
    /// The number of the rank that waited.
    pub rank: u64,
    pub function: String,
    pub site: String,
    pub times: u64,
    pub us: f64,
    pub longest_us: f64,
}

impl Figures {
    pub fn of(trace: &Trace, parts: &TraceParts, waits: &[Wait]) -> Figures {
        let about = &trace.about;
        let ends: BTreeSet<u64> =
            calls_of(parts, "MPI_Finalize").chain(calls_of(parts, "MPI_Session_finalize")).collect();
        let ranks = ranks(parts);
        let cut_off = ranks.iter().map(|rank| rank.rank).filter(|rank| !ends.contains(rank)).collect();
        Figures {
            command: about.command.clone().unwrap_or_default(),
            version: about.version.clone().unwrap_or_default(),
            hosts: about.hosts.clone(),
            events: trace.events.len(),
            lasted_us: parts.period.end - parts.period.start,
            ranks,
            functions: functions(parts),
            traffic: traffic(parts),
            waits: pairs(parts, waits),
            late: late(parts, waits),
            cut_off,
        }
    }

    /// Returns how many us the ranks spent outside MPI: the mean, and the most of a single rank.
    pub fn outside_us(&self) -> (f64, f64) {
        let outside = || self.ranks.iter().map(|rank| rank.outside_us);
        (outside().sum::<f64>() / self.ranks.len() as f64, outside().fold(0.0, f64::max))
    }
}

fn calls_of<'a>(parts: &'a TraceParts, function: &'a str) -> impl Iterator<Item = u64> {
    parts.calls.iter().filter(move |call| call.name == function).map(|call| call.thread.0)
}

fn ranks(parts: &TraceParts) -> Vec<RankTimes> {
    let mut ranks: BTreeMap<u64, RankTimes> = BTreeMap::new();
    for (&(rank, _), range) in &parts.threads {
        let new = RankTimes { rank, in_mpi_us: 0.0, outside_us: 0.0, waited_us: 0.0 };
        let sums = ranks.entry(rank).or_insert(new);
        let calls = parts.calls[range.clone()].iter().filter(|call| call.name != "MPI_Finalize");
        let (mut from, mut until, mut inside) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
        for call in calls {
            (from, until) = (from.min(call.from), until.max(call.until));
            inside += call.until - call.from;
            sums.waited_us += call.waited;
        }
        // A thread without a call has no time.
        if from <= until {
            sums.in_mpi_us += inside;
            sums.outside_us += (until - from - inside).max(0.0);
        }
    }
    ranks.into_values().collect()
}

/// Returns a row for each function and call site, sorted by their time: the longest first.
fn functions(parts: &TraceParts) -> Vec<FunctionRow> {
    let mut bytes: HashMap<(String, &str), u64> = HashMap::new();
    for span in &parts.spans {
        let function = span.event.name.split(' ').next().unwrap_or_default();
        let sum = bytes.entry((base(function), &span.event.args.site)).or_default();
        *sum = sum.saturating_add(span.event.args.bytes);
    }
    let mut by_rank: HashMap<(&str, &str), BTreeMap<u64, f64>> = HashMap::new();
    let mut functions: HashMap<(&str, &str), FunctionRow> = HashMap::new();
    for call in &parts.calls {
        let (key, us) = ((call.name, call.site), call.until - call.from);
        *by_rank.entry(key).or_default().entry(call.thread.0).or_default() += us;
        let row = functions.entry(key).or_default();
        row.calls += 1;
        row.us += us;
        row.longest_us = row.longest_us.max(us);
        row.waited_us += call.waited;
    }
    let whole = |((function, site), row): ((&str, &str), FunctionRow)| {
        let times = || by_rank[&(function, site)].values().copied();
        FunctionRow {
            function: function.into(),
            site: site.into(),
            ranks: times().count(),
            bytes: bytes.get(&(base(function), site)).copied().unwrap_or(0),
            least_us: times().fold(f64::INFINITY, f64::min),
            most_us: times().fold(0.0, f64::max),
            ..row
        }
    };
    let mut functions: Vec<FunctionRow> = functions.into_iter().map(whole).collect();
    functions.sort_by(|a, b| {
        b.us.total_cmp(&a.us).then_with(|| (&a.function, &a.site).cmp(&(&b.function, &b.site)))
    });
    functions
}

fn traffic(parts: &TraceParts) -> Vec<Traffic> {
    let mut traffic: BTreeMap<(u64, u64), Traffic> = BTreeMap::new();
    for event in parts.spans.iter().map(|span| span.event) {
        if let ("message", "send", Some(to)) = (&*event.cat, &*event.args.direction, event.args.peer) {
            let from = event.pid;
            let pair = traffic.entry((from, to)).or_insert(Traffic { from, to, messages: 0, bytes: 0 });
            pair.messages += 1;
            pair.bytes = pair.bytes.saturating_add(event.args.bytes);
        }
    }
    traffic.into_values().collect()
}

fn pairs(parts: &TraceParts, waits: &[Wait]) -> Vec<Pair> {
    let mut pairs: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    for wait in waits {
        *pairs.entry((parts.calls[wait.call].thread.0, wait.late)).or_default() += wait.us;
    }
    pairs.into_iter().map(|((rank, late), us)| Pair { rank, late, us }).collect()
}

/// Returns a row for each pair of call sites where a rank at one waited for a rank at the other. The pair
/// with the longest waits comes first.
fn late(parts: &TraceParts, waits: &[Wait]) -> Vec<Late> {
    let mut late: HashMap<(Why, u64, &str, u64, &str, &str), Late> = HashMap::new();
    for wait in waits {
        let call = &parts.calls[wait.call];
        let key = (wait.why, wait.late, wait.late_site, call.thread.0, call.name, call.site);
        let row = late.entry(key).or_insert_with(|| Late {
            why: wait.why,
            late: wait.late,
            late_site: wait.late_site.into(),
            rank: call.thread.0,
            function: call.name.into(),
            site: call.site.into(),
            times: 0,
            us: 0.0,
            longest_us: 0.0,
        });
        row.times += 1;
        row.us += wait.us;
        row.longest_us = row.longest_us.max(wait.us);
    }
    let mut late: Vec<Late> = late.into_values().collect();
    late.sort_by(|a, b| b.us.total_cmp(&a.us).then((a.late, a.rank).cmp(&(b.late, b.rank))));
    late
}
