// SPDX-License-Identifier: BSD-3-Clause
//! How the collectives and messages in a trace were carried out: a row for each call site, function, comm and
//! size class (a power of two of bytes).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

/// A row: all calls of one function from one call site, on one comm, whose sizes are in one class (a power of
/// two).
#[derive(Debug, Default)]
pub struct SiteRow {
    /// The call site: the file with the code, and the offset in that file (`file+0xOFFSET`). Empty if it is
    /// not known.
    pub site: String,
    /// The name of the function and the name of the comm, as one text: `MPI_Ibcast on NAME`.
    pub call: String,
    /// The fewest and the most bytes that one of the calls has.
    pub bytes: [u64; 2],
    /// The ranks that made the calls, by their number in MPI_COMM_WORLD.
    pub ranks: BTreeSet<u64>,
    /// Whether the calls send or receive messages. A send and its receive are two calls.
    pub is_message: bool,
    /// The keys of the calls. A collective is one call, although many ranks take part.
    pub calls: BTreeSet<CallKey>,
    /// The calls in groups, one for each way in which calls were carried out (by whom, with which algorithm
    /// and why). The most frequent way is first.
    pub ways: Vec<CarrierCalls>,
    /// The keys of the calls that have not completed on some rank.
    pub under_way: BTreeSet<CallKey>,
}

/// The key of a call: two texts. A collective has the same key on all ranks: its name with its sequence
/// number, and the context id of its comm. The key of a send or receive is its id in the trace, and an empty
/// text.
pub type CallKey = (String, String);

/// The calls of a row that were carried out in one way: by `by` ("proxy", "rank", ...), with one algorithm,
/// and for one reason (`why`).
#[derive(Clone, Debug, Default)]
pub struct CarrierCalls {
    pub by: String,
    pub algorithm: String,
    pub why: String,
    /// The keys of the calls that at least one rank carried out in this way.
    pub calls: BTreeSet<CallKey>,
    /// How many operations were carried out in this way: a collective counts once for each rank that did it
    /// so.
    pub operations: u64,
    /// The times from start to completion of all operations that were carried out in this way, added up, in
    /// ns.
    lasted: f64,
    /// The part of these operations' time (`lasted`) in which their thread was in MPI calls, in ns.
    inside: f64,
}

impl CarrierCalls {
    /// Returns the mean time of an operation from start to completion, in ns.
    pub fn took_ns(&self) -> f64 {
        self.lasted / self.operations.max(1) as f64
    }

    /// Returns how many ns of an operation, on average, its thread was outside MPI calls.
    pub fn outside_ns(&self) -> f64 {
        (self.lasted - self.inside).max(0.0) / self.operations.max(1) as f64
    }
}

impl SiteRow {
    /// Returns how many calls of `way` some other rank carried out in another way.
    pub fn mixed(&self, way: &CarrierCalls) -> usize {
        let others = || self.ways.iter().filter(|other| !std::ptr::eq(*other, way));
        way.calls.iter().filter(|call| others().any(|other| other.calls.contains(*call))).count()
    }
}

/// Returns the mean time in ns of the calls that `by` ("proxy", "rank", ...) carried out, and the number of
/// these calls. Counts calls of the row's function, comm and size class from all call sites. Returns None if
/// there is no such call.
pub fn took(rows: &[SiteRow], row: &SiteRow, by: &str) -> Option<(f64, u64)> {
    let alike = |other: &&SiteRow| (&other.call, class(other.bytes[0])) == (&row.call, class(row.bytes[0]));
    let ways = rows.iter().filter(alike).flat_map(|row| &row.ways).filter(|way| way.by == by);
    let (mut lasted, mut operations, mut calls) = (0.0, 0, BTreeSet::new());
    for way in ways {
        lasted += way.lasted;
        operations += way.operations;
        calls.extend(&way.calls);
    }
    (operations > 0).then(|| (lasted / operations as f64, calls.len() as u64))
}

/// Returns the rows for the events of a trace in Chrome's format, sorted by call site.
pub fn of(events: &[Value]) -> Vec<SiteRow> {
    let threads = threads(events);
    let ends: HashMap<String, f64> =
        operations(events, "e").filter_map(|event| Some((id(event), event["ts"].as_f64()?))).collect();
    let mut rows: BTreeMap<(String, String, u32), SiteRow> = BTreeMap::new();
    for event in operations(events, "b") {
        let text = |key: &str| event["args"][key].as_str().unwrap_or_default().to_string();
        let name = event["name"].as_str().unwrap_or_default();
        let call = name.rsplit_once(" #").map_or(name, |(call, _)| call).to_string();
        let (site, bytes) = (text("site"), event["args"]["bytes"].as_u64().unwrap_or(0));
        let is_message = event["cat"] == "message";
        let number = if is_message { (id(event), String::new()) } else { (name.into(), text("context")) };
        let key = (site.clone(), call.clone(), class(bytes));
        let new = || SiteRow { site, call, bytes: [bytes; 2], is_message, ..SiteRow::default() };
        let row = rows.entry(key).or_insert_with(new);
        row.calls.insert(number.clone());
        row.bytes = [row.bytes[0].min(bytes), row.bytes[1].max(bytes)];
        row.ranks.extend(event["pid"].as_u64());
        let (Some(from), Some(until)) = (event["ts"].as_f64(), ends.get(&id(event))) else {
            row.under_way.insert(number);
            continue;
        };
        let [by, algorithm, why] = ["by", "algorithm", "why"].map(text);
        let is_it = |way: &&mut CarrierCalls| (&way.by, &way.algorithm, &way.why) == (&by, &algorithm, &why);
        let way = match row.ways.iter_mut().find(is_it) {
            Some(way) => way,
            None => {
                row.ways.push(CarrierCalls { by, algorithm, why, ..CarrierCalls::default() });
                row.ways.last_mut().expect("it was just pushed")
            }
        };
        let calls = threads.get(&thread(event)).map_or(&[][..], |calls| calls);
        way.calls.insert(number);
        way.operations += 1;
        way.lasted += 1000.0 * (until - from);
        way.inside += 1000.0 * inside(calls, from, *until);
    }
    rows.into_values()
        .map(|mut row| {
            row.ways.sort_by_key(|way| std::cmp::Reverse(way.calls.len()));
            row
        })
        .collect()
}

/// Returns the size class of a number of bytes: sizes with the same highest power of two have the same class.
fn class(bytes: u64) -> u32 {
    bytes.checked_ilog2().map_or(0, |log| log + 1)
}

/// Returns the events that begin (`half` is "b") or end ("e") a collective, a send or a receive.
fn operations<'a>(events: &'a [Value], half: &'a str) -> impl Iterator<Item = &'a Value> {
    let is_one = |event: &Value| event["cat"] == "operation" || event["cat"] == "message";
    events.iter().filter(move |event| event["ph"] == half && is_one(event))
}

fn id(event: &Value) -> String {
    event["id2"]["local"].as_str().unwrap_or_default().to_string()
}

/// Returns the numbers of an event's process and thread in the trace.
fn thread(event: &Value) -> (u64, u64) {
    (event["pid"].as_u64().unwrap_or(0), event["tid"].as_u64().unwrap_or(0))
}

/// Returns the MPI calls of each thread: start and end in us, in order of their starts. A call that has not
/// ended lasts for ever.
fn threads(events: &[Value]) -> HashMap<(u64, u64), Vec<(f64, f64)>> {
    let mut threads: HashMap<_, Vec<(f64, f64)>> = HashMap::new();
    for event in events.iter().filter(|event| event["cat"] == "call") {
        let Some(from) = event["ts"].as_f64() else { continue };
        let lasted = event["dur"].as_f64().unwrap_or(f64::INFINITY);
        threads.entry(thread(event)).or_default().push((from, from + lasted));
    }
    threads.values_mut().for_each(|calls| calls.sort_by(|a, b| a.0.total_cmp(&b.0)));
    threads
}

/// Returns how much of the time from `from` to `until` a thread was in these calls. All times are in us.
fn inside(calls: &[(f64, f64)], from: f64, until: f64) -> f64 {
    let first = calls.partition_point(|call| call.1 <= from);
    let these = calls[first..].iter().take_while(|call| call.0 < until);
    these.map(|call| call.1.min(until) - call.0.max(from)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn operation(id: u64, bytes: u64, times: [f64; 2], by: &str) -> [Value; 2] {
        let args = json!({"bytes": bytes, "site": "/bin/a+0x7", "by": by, "why": "so", "algorithm": "ring"});
        let name = format!("MPI_Iallreduce on MPI_COMM_WORLD #{id}");
        let half = |ph: &str, ts: f64| {
            json!({
                "ph": ph, "cat": "operation", "name": name, "pid": id % 2, "tid": 1, "ts": ts,
                "id2": {"local": id.to_string()}, "args": args,
            })
        };
        [half("b", times[0]), half("e", times[1])]
    }

    #[test]
    fn calls_are_summed_up_by_site_and_size_and_compared_with_the_other_way() {
        let call = |pid: u64, ts: f64, dur: f64| json!({"ph": "X", "cat": "call", "name": "MPI_Wait", "pid": pid, "tid": 1, "ts": ts, "dur": dur});
        let mut events = vec![call(0, 90.0, 20.0), call(0, 0.0, 10.0), call(1, 0.0, 1000.0)];
        events.extend(operation(2, 1024, [5.0, 100.0], "proxy"));
        events.extend(operation(1, 1500, [50.0, 60.0], "rank"));
        events.extend(operation(3, 1100, [51.0, 61.0], "rank"));
        events.extend(operation(4, 4096, [1.0, 2.0], "rank"));
        events.extend(operation(6, 1024, [1.0, 2.0], "rank").into_iter().take(1));
        let rows = of(&events);
        assert_eq!(rows.len(), 2);
        let row = &rows[0];
        let counts = (row.ranks.len(), row.calls.len(), row.under_way.len());
        assert_eq!((row.bytes, counts), ([1024, 1500], (2, 4, 1)));
        assert_eq!(
            (row.site.as_str(), row.call.as_str()),
            ("/bin/a+0x7", "MPI_Iallreduce on MPI_COMM_WORLD")
        );
        let way = row.ways.iter().find(|way| way.by == "proxy").unwrap();
        // 95 us, of which 5 in the call that started it and 10 in the one that waited.
        assert_eq!((way.took_ns(), way.outside_ns()), (95_000.0, 80_000.0));
        assert_eq!(took(&rows, row, "rank"), Some((10_000.0, 2)));
        assert_eq!(
            row.ways.iter().map(|way| way.calls.len()).collect::<Vec<_>>(),
            [2, 1],
            "the most frequent first"
        );
        assert_eq!(took(&rows, &rows[1], "proxy"), None);
    }

    #[test]
    fn a_call_of_all_ranks_counts_once_and_messages_by_their_end() {
        let on_rank = |mut events: [Value; 2], rank: u64| {
            events.iter_mut().for_each(|event| {
                event["pid"] = rank.into();
                event["id2"]["local"] = format!("{rank}.{}", event["id2"]["local"]).into();
            });
            events
        };
        let mut events = Vec::new();
        for call in 1..=20 {
            events.extend(on_rank(operation(call, 8, [1.0, 5.0], "rank"), 0));
            events
                .extend(on_rank(operation(call, 8, [1.0, 3.0], if call > 2 { "rank" } else { "proxy" }), 1));
        }
        let row = &of(&events)[0];
        let ways: Vec<_> =
            row.ways.iter().map(|way| (way.calls.len(), row.mixed(way), way.took_ns())).collect();
        assert_eq!((row.calls.len(), ways.len(), ways[1]), (20, 2, (2, 2, 2_000.0)));
        assert_eq!((ways[0].0, ways[0].1), (20, 2));
        for event in &mut events {
            event["cat"] = "message".into();
            event["name"] = "MPI_Send on c".into();
        }
        let row = &of(&events)[0];
        assert_eq!((row.call.as_str(), row.is_message, row.calls.len()), ("MPI_Send on c", true, 40));
    }

    #[test]
    fn a_call_that_never_ended_holds_all_that_follows() {
        let mut events =
            vec![json!({"ph": "B", "cat": "call", "name": "MPI_Wait", "pid": 0, "tid": 1, "ts": 5.0})];
        events.extend(operation(2, 8, [1.0, 9.0], "rank"));
        let row = &of(&events)[0];
        assert_eq!(row.ways[0].outside_ns(), 4_000.0);
    }
}
