// SPDX-License-Identifier: BSD-3-Clause
//! The Chrome trace format ("Trace Event Format", Google 2016): one JSON object with a list of events, which
//! chrome://tracing and ui.perfetto.dev show. A rank is a process in the picture, and its number is the pid
//! there. Proxy `p` has pid 1000000 + p. Times are microseconds of the monotonic clock of the first host.
//!
//! Read next: `arrow.rs` (which records belong together), `schema.rs` (what a file must have).

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::path::Path;

use crate::arrow::{self, Arrow};
use crate::record::{
    ANY_PEER, ANY_TAG, About, Event, ProcessName, TraceRecord, TracedMessage, TracedProcess,
};
use crate::{Choice, Needs, schema};

/// The pid that proxy 0 gets in the picture of the trace.
pub const FIRST_PROXY_PID: u64 = 1_000_000;

const WAIT_COLOUR: &str = "thread_state_iowait";

/// The most values in a process's counter track. More values would not be visible in the picture.
const SAMPLES_MAX: u64 = 4096;

fn pid(who: ProcessName) -> u64 {
    match who {
        ProcessName::Rank(rank) => u64::from(rank),
        ProcessName::Proxy(proxy) => FIRST_PROXY_PID + u64::from(proxy),
    }
}

/// Returns the position of a process in the picture. A proxy follows the lowest rank that it serves.
fn place(process: &TracedProcess) -> u64 {
    match process.who {
        ProcessName::Rank(rank) => 2 * u64::from(rank),
        ProcessName::Proxy(_) => {
            let served = process.records.iter().filter_map(|record| match record.event()? {
                Event::Step { rank, .. } => Some(2 * u64::from(rank) + 1),
                _ => None,
            });
            served.min().unwrap_or(2 * pid(process.who))
        }
    }
}

/// The names of operations by context and sequence. A proxy's records have only these two numbers.
type Names = HashMap<(u64, u32), String>;

/// What a process has recorded about itself and its operations in records that are no events of the picture.
#[derive(Default)]
struct ProcessFacts<'a> {
    about: BTreeMap<&'static str, String>,
    /// The names of the process's threads, by number.
    threads: BTreeMap<u32, String>,
    /// The names of the places where the program calls MPI, by number.
    sites: HashMap<u32, String>,
    /// For each operation, by the index of its record: who carried it out and why, and the algorithm's name.
    carried: HashMap<usize, (Choice, &'a str)>,
    /// The lists of neighbours from which this process receives, by the number that `Needs::Sources` has.
    sources: HashMap<u32, Vec<u32>>,
}

impl<'a> ProcessFacts<'a> {
    fn of(records: &'a [TraceRecord]) -> ProcessFacts<'a> {
        let mut facts = ProcessFacts::default();
        for event in records.iter().filter_map(TraceRecord::event) {
            match event {
                Event::About { what, text } => facts.about.entry(what.key()).or_default().push_str(text),
                Event::Thread { number, text } => facts.threads.entry(number).or_default().push_str(text),
                Event::Site { number, text } => facts.sites.entry(number).or_default().push_str(text),
                Event::Source { list, peer } => facts.sources.entry(list).or_default().push(peer),
                Event::Carried { operation, choice, algorithm } => {
                    facts.carried.insert(operation as usize, (choice, algorithm));
                }
                _ => (),
            }
        }
        facts
    }

    /// Adds the ranks without which a collective cannot complete to `args`, the arguments of its event.
    fn add_needs(&self, args: &mut Value, needs: Needs) {
        match needs {
            Needs::Unknown => (),
            Needs::Root(peer) => args["root"] = peer.into(),
            Needs::Below(rank) => args["place"] = rank.into(),
            Needs::Sources(list) => {
                args["sources"] = self.sources.get(&list).map_or(&[][..], |list| list).into()
            }
        }
    }

    fn about(&self, what: About) -> &str {
        self.about.get(what.key()).map_or("", |text| text)
    }
}

/// Writes the records of `processes` to `file`, in the Chrome trace format.
pub fn save(file: &Path, processes: Vec<TracedProcess>) -> Result<()> {
    let mut to = BufWriter::new(File::create(file)?);
    write(&mut to, processes)?;
    to.flush()
}

/// Returns the text of a trace file with the records of `processes`.
pub fn file(processes: Vec<TracedProcess>) -> String {
    let mut text = Vec::new();
    write(&mut text, processes).expect("a Vec takes all");
    String::from_utf8(text).expect("JSON is text")
}

fn write(to: &mut impl Write, mut processes: Vec<TracedProcess>) -> Result<()> {
    let numbers: Vec<Vec<u32>> = processes.iter().map(|it| arrow::numbers(&it.records)).collect();
    let arrows = arrow::all(&processes, &numbers);
    arrow::align(&mut processes, &arrows);
    let facts: Vec<ProcessFacts> =
        processes.iter().map(|process| ProcessFacts::of(&process.records)).collect();
    let mut names = Names::new();
    for record in processes.iter().flat_map(|process| &process.records) {
        if let Some(Event::Operation { name, number, context, sequence, .. }) = record.event() {
            names.insert((context, sequence), format!("{name} #{number}"));
        }
    }
    let of_all = |what| facts.iter().map(move |facts| facts.about(what)).filter(|text| !text.is_empty());
    let header = json!({
        "version": of_all(About::Version).next(), "command": of_all(About::Command).next(),
        "hosts": of_all(About::Host).collect::<BTreeSet<_>>(),
    });
    write!(to, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{header},\"traceEvents\":[")?;
    // One event per line: grep can still search a file of a million events.
    let mut between = "\n";
    let mut each = |event: Value| {
        write!(to, "{between}{event}")?;
        between = ",\n";
        Ok(())
    };
    let mut flows = flows(&processes, &arrows);
    for (at, (process, facts)) in processes.iter().zip(&facts).enumerate() {
        introduce(process, facts, &mut each)?;
        for (index, record) in process.records.iter().enumerate() {
            let number = numbers[at][index];
            if let Some(event) = record.event()
                && let Some(described) = describe(&event, (index, number), &names, facts)
            {
                put((pid(process.who), index), record, &event, described, &mut each)?;
            }
        }
        under_way(process, &mut each)?;
        flows.remove(&at).unwrap_or_default().into_iter().try_for_each(&mut each)?;
    }
    writeln!(to, "\n]}}")
}

/// Reads the events in a trace file's text. The error says if the text is cut off or of another format.
pub fn parse(text: &str) -> std::result::Result<Vec<Value>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    match value {
        Value::Object(mut object) => match object.remove("traceEvents") {
            Some(Value::Array(events)) => Ok(events),
            _ => Err("no list traceEvents".into()),
        },
        _ => Err("not a JSON object".into()),
    }
}

/// Passes to `each` the events that give a process in the picture its name, position and threads' names.
fn introduce(
    process: &TracedProcess,
    facts: &ProcessFacts,
    each: &mut impl FnMut(Value) -> Result<()>,
) -> Result<()> {
    let pid = pid(process.who);
    let mut tell = |name: &str, tid: u32, args: Value| {
        each(json!({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}))
    };
    tell("process_name", 0, json!({"name": process.who.to_string()}))?;
    tell("process_sort_index", 0, json!({"sort_index": place(process)}))?;
    if !facts.about.is_empty() {
        let [host, number] = [About::Host, About::Pid].map(|what| facts.about(what));
        tell("process_labels", 0, json!({"labels": format!("host {host}, process {number}")}))?;
    }
    for (number, name) in &facts.threads {
        tell("thread_name", *number, json!({"name": name}))?;
    }
    Ok(())
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// Makes flow events for the points of arrows that lead forward in time. The keys are indices of processes.
fn flows(processes: &[TracedProcess], arrows: &[Arrow]) -> HashMap<usize, Vec<Value>> {
    let mut flows: HashMap<usize, Vec<Value>> = HashMap::new();
    for (id, Arrow { name, points }) in arrows.iter().enumerate() {
        let times: Vec<(u64, u64)> = points.iter().map(|point| point.at(processes)).collect();
        if !times.is_sorted_by_key(|(time, _)| time) {
            continue;
        }
        for (index, (point, (time, thread))) in points.iter().zip(times).enumerate() {
            let phase = match index {
                0 => "s",
                _ if index == points.len() - 1 => "f",
                _ => "t",
            };
            let mut event = json!({
                "ph": phase, "name": name, "cat": "arrow", "id": id + 1, "pid": pid(processes[point.process].who),
                "tid": thread, "ts": microseconds(time),
            });
            if phase != "s" {
                // The arrow points at the bar around it, not at the next one.
                event["bp"] = "e".into();
            }
            flows.entry(point.process).or_default().push(event);
        }
    }
    flows
}

/// Passes the values of a process's counter track (sends, receives, collectives in progress) to `each`.
fn under_way(process: &TracedProcess, each: &mut impl FnMut(Value) -> Result<()>) -> Result<()> {
    let mut changes: Vec<(u64, usize, i64)> = Vec::new();
    for record in &process.records {
        let kind = match record.event() {
            Some(Event::Message(message)) => usize::from(!message.sends),
            Some(Event::Operation { .. }) => 2,
            _ => continue,
        };
        changes.push((record.from(), kind, 1));
        if record.until() != 0 {
            changes.push((record.until(), kind, -1));
        }
    }
    changes.sort_unstable();
    let span = changes.last().map_or(0, |last| last.0 - changes[0].0);
    let (mut counts, mut next) = ([0; 3], 0);
    for (index, (time, kind, by)) in changes.iter().enumerate() {
        counts[*kind] += by;
        if *time >= next || index == changes.len() - 1 {
            next = time + span / SAMPLES_MAX;
            let [sends, receives, collectives] = counts;
            let args = json!({"sends": sends, "receives": receives, "collectives": collectives});
            let (pid, ts) = (pid(process.who), microseconds(*time));
            each(json!({"ph": "C", "name": "under way", "pid": pid, "tid": 0, "ts": ts, "args": args}))?;
        }
    }
    Ok(())
}

/// The name, the category and the arguments of an event in the picture.
type Described = (String, &'static str, Value);

fn put(
    (pid, index): (u64, usize),
    record: &TraceRecord,
    what: &Event,
    (name, category, args): Described,
    each: &mut impl FnMut(Value) -> Result<()>,
) -> Result<()> {
    let (from, until) = (record.from(), record.until());
    let mut event = json!({
        "name": name, "cat": category, "pid": pid, "tid": record.thread(), "ts": microseconds(from), "args": args,
    });
    match what {
        Event::Operation { .. } | Event::Message(_) | Event::Epoch { .. } => {
            // The bars of several operations may cross, so each is an asynchronous pair instead of a nested
            // bar. An operation that has not completed has no second half.
            event["id2"] = json!({"local": format!("{pid}.{index}")});
            event["ph"] = "b".into();
            let mut last = event.clone();
            each(event)?;
            if until != 0 {
                last["ph"] = "e".into();
                last["ts"] = microseconds(until).into();
                last["args"] = json!({});
                each(last)?;
            }
            return Ok(());
        }
        // The process ended in this call.
        Event::Call { .. } | Event::Access { .. } if until == 0 => event["ph"] = "B".into(),
        _ if until == 0 || matches!(what, Event::Cancelled { .. }) => {
            event["ph"] = "i".into();
            event["s"] = "t".into();
        }
        _ => {
            event["ph"] = "X".into();
            event["dur"] = microseconds(until.saturating_sub(from)).into();
        }
    }
    if let Event::Wait = what {
        event["cname"] = WAIT_COLOUR.into();
    }
    each(event)
}

/// Returns an event's name, category and arguments. None for a record that only adds to other records.
fn describe(
    event: &Event,
    (index, number): (usize, u32),
    names: &Names,
    facts: &ProcessFacts,
) -> Option<Described> {
    let operation = |context: u64, sequence: u32| match names.get(&(context, sequence)) {
        Some(name) => name.clone(),
        None => format!("{context:x}.{sequence}"),
    };
    let proxied = |what: &str, proxy: u32, context, sequence| {
        (what.into(), "proxy", json!({"proxy": proxy, "operation": operation(context, sequence)}))
    };
    let locate = |args: &mut Value, site: u32| {
        if let Some(site) = facts.sites.get(&site) {
            args["site"] = site.as_str().into();
        }
    };
    Some(match *event {
        Event::Call { function, site } => {
            let mut args = json!({});
            locate(&mut args, site);
            (function.into(), "call", args)
        }
        Event::Access { function, site, pe, bytes } => {
            let mut args = json!({"pe": pe, "bytes": bytes});
            locate(&mut args, site);
            (function.into(), "call", args)
        }
        Event::Wait => ("wait".into(), "wait", json!({})),
        Event::Operation { name, number, bytes, site, context, needs, .. } => {
            let mut args = json!({"bytes": bytes, "context": format!("{context:x}")});
            locate(&mut args, site);
            facts.add_needs(&mut args, needs);
            if let Some((choice, algorithm)) = facts.carried.get(&index) {
                args["by"] = choice.by().into();
                args["why"] = choice.why().into();
                args["algorithm"] = (*algorithm).into();
            }
            (format!("{name} #{number}"), "operation", args)
        }
        Event::Message(message) => {
            let mut args = describe_message(&message, number);
            locate(&mut args, message.site);
            (message.name.into(), "message", args)
        }
        Event::Cancelled { name } => (name.into(), "cancelled", json!({})),
        Event::Partition { .. } | Event::Signal { .. } | Event::Epoch { .. } => {
            describe_synchronization(event, number, locate)?
        }
        Event::Rendezvous { what, peer, bytes, .. } => {
            (what.into(), "rendezvous", json!({"peer": peer, "bytes": bytes}))
        }
        Event::Step { kind, rank, peer, context, sequence, bytes } => {
            let operation = operation(context, sequence);
            let args = json!({"rank": rank, "peer": peer, "operation": operation, "bytes": bytes});
            (kind.into(), "step", args)
        }
        Event::Offload { proxy, context, sequence } => proxied("hand-over", proxy, context, sequence),
        Event::Recover { proxy, context, sequence } => proxied("recover", proxy, context, sequence),
        Event::Carried { .. }
        | Event::Site { .. }
        | Event::Thread { .. }
        | Event::Source { .. }
        | Event::About { .. } => {
            return None;
        }
    })
}

/// Describes an event of a partitioned message or of a window. `number` is its number as both ends count it.
fn describe_synchronization(
    event: &Event,
    number: u32,
    locate: impl Fn(&mut Value, u32),
) -> Option<Described> {
    Some(match *event {
        Event::Partition { what, peer, context, partition, bytes, .. } => {
            let args = json!({
                "peer": peer, "partition": partition, "number": number, "bytes": bytes, "context": format!("{context:x}"),
            });
            (what.into(), "partition", args)
        }
        Event::Signal { what, peer, context } => {
            let args = json!({"peer": peer, "number": number, "context": format!("{context:x}")});
            (what.into(), "window", args)
        }
        Event::Epoch { name, context, peer, lock, site } => {
            let mut args = json!({"context": format!("{context:x}")});
            locate(&mut args, site);
            if peer != ANY_PEER {
                args["peer"] = peer.into();
            }
            if !lock.is_empty() {
                args["lock"] = lock.into();
            }
            (name.into(), "epoch", args)
        }
        _ => return None,
    })
}

/// Describes a message. `number` is its number among the messages of its comm, tag, sender and receiver.
fn describe_message(message: &TracedMessage, number: u32) -> Value {
    let TracedMessage { name, sends, peer, tag, context, bytes, choice, .. } = message;
    let comm = name.split_once(" on ").map_or("", |(_, comm)| comm);
    let mut args = json!({
        "direction": if *sends { "send" } else { "receive" }, "bytes": bytes, "comm": comm,
        "context": format!("{context:x}"), "by": choice.by(), "why": choice.why(),
    });
    if *peer != ANY_PEER {
        args["peer"] = (*peer).into();
    }
    if *tag != ANY_TAG {
        args["tag"] = (*tag).into();
    }
    if number != 0 {
        args["number"] = number.into();
    }
    args
}

/// Checks that all events have Outboard's form. The error names the first event that has another form.
pub fn check(events: &[Value]) -> std::result::Result<(), String> {
    events.iter().try_for_each(schema::check)?;
    schema::check_arrows(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "MPI_Ialltoall on MPI_COMM_WORLD";

    fn message(sends: bool, peer: u32, number: u64) -> TraceRecord {
        let (name, choice) = ("MPI_Send on c", Choice::Eager);
        let message = TracedMessage { name, sends, peer, tag: 3, context: 7, bytes: 8, site: 2, choice };
        TraceRecord::new(&Event::Message(message), 5 + number, 9 + number)
    }

    fn processes() -> Vec<TracedProcess> {
        let name = NAME;
        let needs = Needs::Root(2);
        let operation =
            Event::Operation { name, number: 17, context: 255, sequence: 1, bytes: 9, site: 2, needs };
        let choice = Choice::ProxyLong;
        let rank = [
            TraceRecord::new(&Event::Call { function: "MPI_Wait", site: 2 }, 1000, 3500),
            TraceRecord::new(&Event::Wait, 1, 2),
            TraceRecord::new(&operation, 5, 9),
            TraceRecord::new(&Event::Offload { proxy: 0, context: 255, sequence: 1 }, 5, 0),
            TraceRecord::new(&Event::Recover { proxy: 0, context: 255, sequence: 2 }, 5, 0),
            TraceRecord::new(&Event::Call { function: "MPI_Recv", site: 0 }, 5, 0),
            TraceRecord::new(
                &Event::Operation { name, number: 18, context: 0, sequence: 0, bytes: 9, site: 0, needs },
                5,
                0,
            ),
            TraceRecord::new(&Event::Carried { operation: 2, choice, algorithm: "ring" }, 9, 0),
            TraceRecord::new(&Event::Site { number: 2, text: "/bin/" }, 9, 0),
            TraceRecord::new(&Event::Site { number: 2, text: "a+0x7" }, 9, 0),
            TraceRecord::new(&Event::Access { function: "shmem_put", site: 2, pe: 3, bytes: 8 }, 4000, 5000),
        ];
        let proxy = [TraceRecord::new(
            &Event::Step { kind: "reduce", rank: 1, peer: 0, context: 255, sequence: 1, bytes: 9 },
            5,
            9,
        )];
        vec![
            TracedProcess {
                who: ProcessName::Rank(1),
                clock: 0,
                records: [&rank[..], &[message(true, 2, 0)]].concat(),
            },
            TracedProcess {
                who: ProcessName::Rank(2),
                clock: 0,
                records: vec![
                    message(false, 1, 1),
                    TraceRecord::new(&Event::Call { function: "MPI_Recv", site: 0 }, 5, 20),
                    TraceRecord::new(&Event::About { what: About::Host, text: "n1" }, 1, 0),
                    TraceRecord::new(&Event::Thread { number: 1, text: "main thread" }, 1, 0),
                    TraceRecord::new(&Event::Cancelled { name: "MPI_Irecv on c" }, 7, 9),
                ],
            },
            TracedProcess { who: ProcessName::Proxy(2), clock: 0, records: proxy.to_vec() },
        ]
    }

    /// Returns the events of the process `pid` whose category or kind is `what`.
    fn of<'a>(events: &'a [Value], pid: u64, what: &str) -> Vec<&'a Value> {
        let is_it = |event: &&Value| event["pid"] == pid && (event["cat"] == what || event["ph"] == what);
        events.iter().filter(is_it).collect()
    }

    #[test]
    fn every_kind_of_event_is_valid_and_operations_are_named_everywhere() {
        let events = parse(&file(processes())).unwrap();
        check(&events).unwrap();
        let of = |pid, what| of(&events, pid, what);
        let call = of(1, "call");
        assert_eq!((call[0]["ts"].as_f64(), call[0]["dur"].as_f64()), (Some(1.0), Some(2.5)));
        assert_eq!(call[0]["args"]["site"], "/bin/a+0x7");
        assert_eq!((&call[1]["name"], &call[1]["ph"]), (&json!("MPI_Recv"), &json!("B")));
        let put = json!({"pe": 3, "bytes": 8, "site": "/bin/a+0x7"});
        assert_eq!((&call[2]["name"], &call[2]["args"]), (&json!("shmem_put"), &put));
        assert_eq!(of(1, "wait")[0]["cname"], WAIT_COLOUR);
        let spans = of(1, "operation");
        assert_eq!((&spans[0]["name"], &spans[0]["ph"]), (&json!(format!("{NAME} #17")), &json!("b")));
        assert_eq!((&spans[1]["ph"], &spans[1]["id2"]), (&json!("e"), &spans[0]["id2"]));
        let by = json!({
            "bytes": 9, "context": "ff", "site": "/bin/a+0x7", "by": "proxy", "why": Choice::ProxyLong.why(), "algorithm": "ring",
            "root": 2,
        });
        assert_eq!((&spans[0]["args"], &spans[2]["args"]["bytes"]), (&by, &json!(9)));
        assert_eq!((&spans[2]["ph"], spans.len()), (&json!("b"), 3));
        let proxied: Vec<_> = of(1, "proxy").iter().map(|event| event["args"]["operation"].clone()).collect();
        assert_eq!(proxied, [json!(format!("{NAME} #17")), json!("ff.2")]);
        assert_eq!(of(1_000_002, "step")[0]["args"]["operation"], format!("{NAME} #17"));
    }

    #[test]
    fn messages_arrows_names_and_counters() {
        let events = parse(&file(processes())).unwrap();
        let of = |pid, what| of(&events, pid, what);
        let facts = json!({
            "direction": "send", "peer": 2, "tag": 3, "bytes": 8, "comm": "c", "context": "7", "number": 1, "by": "rank",
            "why": Choice::Eager.why(), "site": "/bin/a+0x7",
        });
        let ends = of(1, "message");
        assert_eq!((&ends[0]["args"], &ends[1]["args"]), (&facts, &json!({})));
        assert_eq!(of(2, "message")[0]["args"]["number"], 1);
        // The arrows go from the send to the receive's end, and from the rank by the proxy's step to its end.
        let arrows = |phase| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        let (from, to) = (arrows("s"), arrows("f"));
        assert_eq!((from.len(), arrows("t").len(), to.len()), (2, 1, 2));
        let message = to.iter().find(|event| event["name"] == "message").unwrap();
        assert_eq!(
            (&message["pid"], message["ts"].as_f64(), &message["bp"]),
            (&json!(2), Some(0.01), &json!("e"))
        );
        let names = |pid| of(pid, "M").iter().map(|event| event["args"].clone()).collect::<Vec<_>>();
        let labels = json!({"labels": "host n1, process "});
        let known =
            [json!({"name": "rank 2"}), json!({"sort_index": 4}), labels, json!({"name": "main thread"})];
        assert_eq!(names(2), known);
        // The proxy stands behind rank 1, which it serves.
        assert_eq!(names(1_000_002)[1], json!({"sort_index": 3}));
        assert_eq!(of(2, "cancelled")[0]["ph"], "i");
        let counts: Vec<_> = of(2, "C").iter().map(|event| event["args"]["receives"].clone()).collect();
        assert_eq!(counts, [1, 0]);
    }

    #[test]
    fn partitions_and_windows_are_told() {
        let lock =
            Event::Epoch { name: "MPI_Win_lock on w", context: 10, peer: 2, lock: "exclusive", site: 0 };
        let fence =
            Event::Epoch { name: "MPI_Win_fence on w", context: 10, peer: ANY_PEER, lock: "", site: 0 };
        let ready =
            Event::Partition { what: "ready", peer: 2, context: 11, number: 3, partition: 1, bytes: 8 };
        let post = Event::Signal { what: "post", peer: 2, context: 10 };
        let records = [(lock, 1, 9), (fence, 2, 0), (ready, 3, 0), (post, 4, 0), (post, 5, 0)];
        let records = records.map(|(event, from, until)| TraceRecord::new(&event, from, until)).to_vec();
        let events =
            parse(&file(vec![TracedProcess { who: ProcessName::Rank(1), clock: 0, records }])).unwrap();
        check(&events).unwrap();
        let facts = |what| of(&events, 1, what).into_iter().map(|event| event["args"].clone());
        assert_eq!(
            facts("epoch").collect::<Vec<_>>(),
            [json!({"context": "a", "peer": 2, "lock": "exclusive"}), json!({}), json!({"context": "a"})]
        );
        let ready = json!({"peer": 2, "partition": 1, "number": 3, "bytes": 8, "context": "b"});
        assert_eq!(facts("partition").collect::<Vec<_>>(), [ready]);
        assert_eq!(facts("window").map(|args| args["number"].clone()).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_broken_file_and_a_broken_event_are_refused() {
        assert!(parse("{\"traceEvents\":[").is_err());
        assert!(parse("[]").is_err());
        let point = |phase: &str, pid: u32, ts: f64| json!({"ph": phase, "name": "a", "cat": "arrow", "id": 1, "pid": pid, "tid": 1, "ts": ts, "bp": "e"});
        let bar = |pid: u32| json!({"ph": "X", "name": "a", "cat": "call", "pid": pid, "tid": 1, "ts": 1.0, "dur": 9.0});
        assert_eq!(check(&[bar(0), bar(1), point("s", 0, 2.0), point("f", 1, 3.0)]), Ok(()));
        for wrong in [
            vec![point("s", 0, 2.0), point("f", 1, 1.5)],
            vec![point("s", 0, 2.0)],
            vec![point("s", 0, 2.0), point("f", 1, 11.0)],
            vec![point("s", 0, 2.0), point("s", 0, 2.0), point("f", 1, 3.0)],
        ] {
            assert!(check(&[vec![bar(0), bar(1)], wrong].concat()).is_err());
        }
        assert!(
            check(&[json!({"ph": "X", "name": "a", "cat": "b", "pid": 1, "tid": 1, "ts": 1.0})]).is_err()
        );
        assert!(
            check(&[json!({"ph": "Q", "name": "a", "cat": "b", "pid": 1, "tid": 1, "ts": 1.0})]).is_err()
        );
    }
}
