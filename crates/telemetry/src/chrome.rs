// SPDX-License-Identifier: BSD-3-Clause
//! The Chrome trace format ("Trace Event Format", Google 2016): one JSON object with a list of events, which
//! chrome://tracing and ui.perfetto.dev show. A rank is a process of the picture with its number as pid;
//! proxy `p` has pid 1000000 + p. Times are microseconds of the machine's monotonic clock, the same for all
//! processes of a node.

use serde_json::{Value, json};
use std::collections::HashMap;

use crate::Choice;
use crate::record::{Event, Record, Who};

/// pid of proxy 0 in the picture.
pub const FIRST_PROXY_PID: u64 = 1_000_000;

/// What people call the operations that their ranks have named, by context and sequence.
type Names = HashMap<(u64, u32), String>;

/// What a process tells of operations in records of their own.
#[derive(Default)]
struct Told<'a> {
    /// Call sites.
    sites: HashMap<u32, String>,
    /// By whom operations were carried out, and by which algorithm, by the index of their record.
    carried: HashMap<usize, (Choice, &'a str)>,
}

/// A whole file from the records of processes.
pub fn file(processes: &[(Who, Vec<Record>)]) -> String {
    let mut names = Names::new();
    for record in processes.iter().flat_map(|(_, records)| records) {
        if let Some(Event::Operation { name, number, context, sequence, .. }) = record.event() {
            names.insert((context, sequence), format!("{name} #{number}"));
        }
    }
    let events = processes.iter().flat_map(|(who, records)| of_process(*who, records, &names));
    // One event a line: a file of a million events can still be searched with grep.
    let lines: Vec<String> = events.map(|event| event.to_string()).collect();
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}

/// The events of the file `text`; a file cut off or of another kind is an error sentence.
pub fn parse(text: &str) -> Result<Vec<Value>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    match value {
        Value::Object(mut object) => match object.remove("traceEvents") {
            Some(Value::Array(events)) => Ok(events),
            _ => Err("no list traceEvents".into()),
        },
        _ => Err("not a JSON object".into()),
    }
}

/// One process's records as events, with the lines that name the process.
fn of_process(who: Who, records: &[Record], names: &Names) -> Vec<Value> {
    let pid = match who {
        Who::Rank(rank) => u64::from(rank),
        Who::Proxy(proxy) => FIRST_PROXY_PID + u64::from(proxy),
    };
    let mut events = vec![
        json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": who.to_string()}}),
        json!({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}),
    ];
    let mut told = Told::default();
    for event in records.iter().filter_map(Record::event) {
        match event {
            Event::Site { number, text } => told.sites.entry(number).or_default().push_str(text),
            Event::Carried { operation, choice, algorithm } => {
                told.carried.insert(operation as usize, (choice, algorithm));
            }
            _ => (),
        }
    }
    for (index, record) in records.iter().enumerate() {
        if let Some(event) = record.event()
            && let Some(described) = describe(&event, index, names, &told)
        {
            push(&mut events, (pid, index), record, &event, described);
        }
    }
    events
}

/// Name, category and arguments of an event in the picture.
type Described = (String, &'static str, Value);

fn push(
    events: &mut Vec<Value>,
    (pid, index): (u64, usize),
    record: &Record,
    what: &Event,
    (name, category, args): Described,
) {
    let at = |ns: u64| ns as f64 / 1000.0;
    let (from, until) = (record.from(), record.until());
    let mut event = json!({
        "name": name, "cat": category, "pid": pid, "tid": record.thread(), "ts": at(from), "args": args,
    });
    match what {
        Event::Operation { .. } => {
            // The bars of several operations may cross, so each is an asynchronous pair instead of a nested
            // bar. An operation that has not completed has no second half.
            event["id2"] = json!({"local": format!("{pid}.{index}")});
            event["ph"] = "b".into();
            let mut last = event.clone();
            events.push(event);
            if until != 0 {
                last["ph"] = "e".into();
                last["ts"] = at(until).into();
                events.push(last);
            }
        }
        // The process ended in it.
        Event::Call { .. } if until == 0 => {
            event["ph"] = "B".into();
            events.push(event);
        }
        _ if until == 0 => {
            event["ph"] = "i".into();
            event["s"] = "t".into();
            events.push(event);
        }
        _ => {
            event["ph"] = "X".into();
            event["dur"] = at(until.saturating_sub(from)).into();
            events.push(event);
        }
    }
}

/// Nothing of an event that only tells more of others.
fn describe(event: &Event, index: usize, names: &Names, told: &Told) -> Option<Described> {
    let operation = |context: u64, sequence: u32| match names.get(&(context, sequence)) {
        Some(name) => name.clone(),
        None => format!("{context:x}.{sequence}"),
    };
    let proxied = |what: &str, proxy: u32, context, sequence| {
        (what.into(), "proxy", json!({"proxy": proxy, "operation": operation(context, sequence)}))
    };
    Some(match *event {
        Event::Call { function } => (function.into(), "call", json!({})),
        Event::Wait => ("wait".into(), "wait", json!({})),
        Event::Operation { name, number, bytes, site, .. } => {
            let mut args = json!({"bytes": bytes});
            if let Some(site) = told.sites.get(&site) {
                args["site"] = site.as_str().into();
            }
            if let Some((choice, algorithm)) = told.carried.get(&index) {
                args["by"] = choice.by().into();
                args["why"] = choice.why().into();
                args["algorithm"] = (*algorithm).into();
            }
            (format!("{name} #{number}"), "operation", args)
        }
        Event::Step { kind, peer, context, sequence, bytes } => {
            let args = json!({"peer": peer, "operation": operation(context, sequence), "bytes": bytes});
            (kind.into(), "step", args)
        }
        Event::HandOver { proxy, context, sequence } => proxied("hand-over", proxy, context, sequence),
        Event::Recover { proxy, context, sequence } => proxied("recover", proxy, context, sequence),
        Event::Carried { .. } | Event::Site { .. } => return None,
    })
}

/// Whether every event has what the format asks of its kind; `Err` names the first that has not.
pub fn check(events: &[Value]) -> Result<(), String> {
    for event in events {
        let has = |key: &str, test: fn(&Value) -> bool| event.get(key).is_some_and(test);
        let common = has("name", Value::is_string) && has("pid", Value::is_u64) && has("tid", Value::is_u64);
        let timed = has("ts", |ts| ts.as_f64().is_some_and(|ts| ts >= 0.0)) && has("cat", Value::is_string);
        let right = match event.get("ph").and_then(Value::as_str) {
            Some("M") => has("args", Value::is_object),
            Some("B") => timed,
            Some("i") => timed && has("s", Value::is_string),
            Some("X") => timed && has("dur", |dur| dur.as_f64().is_some_and(|dur| dur >= 0.0)),
            Some("b" | "e") => timed && has("id2", Value::is_object),
            _ => false,
        };
        if !(common && right) {
            return Err(format!("not an event of the Chrome trace format: {event}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_is_valid_and_operations_are_named_everywhere() {
        let name = "MPI_Ialltoall on MPI_COMM_WORLD";
        let operation = Event::Operation { name, number: 17, context: 255, sequence: 1, bytes: 9, site: 2 };
        let choice = Choice::ProxyLong;
        let rank = [
            Record::new(&Event::Call { function: "MPI_Wait" }, 1000, 3500),
            Record::new(&Event::Wait, 1, 2),
            Record::new(&operation, 5, 9),
            Record::new(&Event::HandOver { proxy: 0, context: 255, sequence: 1 }, 5, 0),
            Record::new(&Event::Recover { proxy: 0, context: 255, sequence: 2 }, 5, 0),
            Record::new(&Event::Call { function: "MPI_Recv" }, 5, 0),
            Record::new(
                &Event::Operation { name, number: 18, context: 0, sequence: 0, bytes: 9, site: 0 },
                5,
                0,
            ),
            Record::new(&Event::Carried { operation: 2, choice, algorithm: "ring" }, 9, 0),
            Record::new(&Event::Site { number: 2, text: "/bin/" }, 9, 0),
            Record::new(&Event::Site { number: 2, text: "a+0x7" }, 9, 0),
        ];
        let proxy = [Record::new(
            &Event::Step { kind: "reduce", peer: 0, context: 255, sequence: 1, bytes: 9 },
            5,
            9,
        )];
        let text = file(&[(Who::Rank(1), rank.to_vec()), (Who::Proxy(2), proxy.to_vec())]);
        let events = parse(&text).unwrap();
        check(&events).unwrap();
        let of = |pid: u64, at: usize| events.iter().filter(|event| event["pid"] == pid).nth(at).unwrap();
        assert_eq!((of(1, 2)["ts"].as_f64(), of(1, 2)["dur"].as_f64()), (Some(1.0), Some(2.5)));
        assert_eq!((&of(1, 4)["name"], &of(1, 4)["ph"]), (&json!(format!("{name} #17")), &json!("b")));
        assert_eq!((&of(1, 5)["ph"], &of(1, 5)["id2"]), (&json!("e"), &of(1, 4)["id2"]));
        assert_eq!(of(1, 6)["args"]["operation"], format!("{name} #17"));
        assert_eq!(of(1, 7)["args"]["operation"], "ff.2");
        assert_eq!((&of(1, 8)["name"], &of(1, 8)["ph"]), (&json!("MPI_Recv"), &json!("B")));
        let told = json!({"bytes": 9, "site": "/bin/a+0x7", "by": "proxy", "why": choice.why(), "algorithm": "ring"});
        assert_eq!((&of(1, 4)["args"], &of(1, 9)["args"]), (&told, &json!({"bytes": 9})));
        assert_eq!(of(1, 9)["ph"], "b");
        assert_eq!(of(1_000_002, 2)["args"]["operation"], format!("{name} #17"));
        assert_eq!(events.len(), 2 + 9 + 2);
    }

    #[test]
    fn a_broken_file_and_a_broken_event_are_refused() {
        assert!(parse("{\"traceEvents\":[").is_err());
        assert!(parse("[]").is_err());
        assert!(
            check(&[json!({"ph": "X", "name": "a", "cat": "b", "pid": 1, "tid": 1, "ts": 1.0})]).is_err()
        );
        assert!(
            check(&[json!({"ph": "Q", "name": "a", "cat": "b", "pid": 1, "tid": 1, "ts": 1.0})]).is_err()
        );
    }
}
