//! The Chrome trace format ("Trace Event Format", Google 2016): one JSON object with a list of events, which
//! chrome://tracing and ui.perfetto.dev show. A rank is a process of the picture with its number as pid; proxy `p` has pid
//! 1000000 + p. Times are microseconds of the machine's monotonic clock, the same for all processes of a node.

use serde_json::{Value, json};

use crate::event::{Event, Record, Who};

/// pid of proxy 0 in the picture.
pub const FIRST_PROXY_PID: u64 = 1_000_000;

/// A whole file from events.
pub fn file(events: &[Value]) -> String {
    // One event a line: a file of a million events can still be searched with grep.
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
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
pub fn records(who: Who, records: &[Record]) -> Vec<Value> {
    let (pid, name) = match who {
        Who::Rank(rank) => (u64::from(rank), format!("rank {rank}")),
        Who::Proxy(proxy) => (FIRST_PROXY_PID + u64::from(proxy), format!("proxy {proxy}")),
    };
    let mut events = vec![
        json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}),
        json!({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}),
    ];
    for record in records {
        push(&mut events, pid, record);
    }
    events
}

fn push(events: &mut Vec<Value>, pid: u64, record: &Record) {
    let (name, category, args) = describe(&record.event);
    let at = |ns: u64| ns as f64 / 1000.0;
    let mut event = json!({
        "name": name, "cat": category, "pid": pid, "tid": record.thread, "ts": at(record.from), "args": args,
    });
    if let Event::Collective { context, sequence, .. } = record.event {
        // Several collectives run at once, so their bars may cross: an asynchronous pair instead of a nested bar.
        event["id2"] = json!({"local": format!("{context:x}.{sequence}")});
        event["ph"] = "b".into();
        let mut last = event.clone();
        last["ph"] = "e".into();
        last["ts"] = at(record.until).into();
        events.extend([event, last]);
    } else if record.until == 0 {
        event["ph"] = "i".into();
        event["s"] = "t".into();
        events.push(event);
    } else {
        event["ph"] = "X".into();
        event["dur"] = at(record.until.saturating_sub(record.from)).into();
        events.push(event);
    }
}

/// Name, category and arguments in the picture.
fn describe(event: &Event) -> (&'static str, &'static str, Value) {
    let operation = |context: u64, sequence: u32| format!("{context:x}.{sequence}");
    match *event {
        Event::Call { function } => (function, "call", json!({})),
        Event::Wait => ("wait", "wait", json!({})),
        Event::Sleep => ("sleep", "wait", json!({})),
        Event::Send { to, tag, bytes, route } => {
            ("send", "message", json!({"to": to, "tag": tag, "bytes": bytes, "route": route}))
        }
        Event::Recv { from, tag, bytes, route } => {
            ("recv", "message", json!({"from": from, "tag": tag, "bytes": bytes, "route": route}))
        }
        Event::Transfer { peer, bytes, how } => {
            ("transfer", "message", json!({"peer": peer, "bytes": bytes, "how": how}))
        }
        Event::Collective { name, context, sequence, bytes } => {
            (name, "collective", json!({"operation": operation(context, sequence), "bytes": bytes}))
        }
        Event::Step { kind, peer, context, sequence, bytes } => {
            (kind, "step", json!({"peer": peer, "operation": operation(context, sequence), "bytes": bytes}))
        }
        Event::HandOver { proxy, context, sequence } => {
            ("hand-over", "proxy", json!({"proxy": proxy, "operation": operation(context, sequence)}))
        }
        Event::Recover { proxy, context, sequence } => {
            ("recover", "proxy", json!({"proxy": proxy, "operation": operation(context, sequence)}))
        }
    }
}

/// Whether every event has what the format asks of its kind; `Err` names the first that has not.
pub fn check(events: &[Value]) -> Result<(), String> {
    for event in events {
        let has = |key: &str, test: fn(&Value) -> bool| event.get(key).is_some_and(test);
        let common = has("name", Value::is_string) && has("pid", Value::is_u64) && has("tid", Value::is_u64);
        let timed = has("ts", |ts| ts.as_f64().is_some_and(|ts| ts >= 0.0)) && has("cat", Value::is_string);
        let right = match event.get("ph").and_then(Value::as_str) {
            Some("M") => has("args", Value::is_object),
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

    fn record(event: Event, from: u64, until: u64) -> Record {
        Record { event, from, until, thread: 1 }
    }

    #[test]
    fn every_kind_of_event_is_valid_and_survives_the_file() {
        let all = [
            record(Event::Call { function: "MPI_Wait" }, 1000, 3500),
            record(Event::Wait, 1, 2),
            record(Event::Sleep, 1, 2),
            record(Event::Send { to: 1, tag: 2, bytes: 3, route: "eager" }, 5, 0),
            record(Event::Recv { from: 1, tag: 2, bytes: 3, route: "own" }, 5, 0),
            record(Event::Transfer { peer: 1, bytes: 9, how: "cma" }, 5, 9),
            record(Event::Collective { name: "MPI_Ialltoall", context: 255, sequence: 1, bytes: 9 }, 5, 9),
            record(Event::Step { kind: "reduce", peer: 0, context: 255, sequence: 1, bytes: 9 }, 5, 9),
            record(Event::HandOver { proxy: 0, context: 255, sequence: 1 }, 5, 0),
            record(Event::Recover { proxy: 0, context: 255, sequence: 1 }, 5, 0),
        ];
        let events = parse(&file(&records(Who::Proxy(2), &all))).unwrap();
        check(&events).unwrap();
        assert_eq!(events.len(), 2 + all.len() + 1);
        assert!(events.iter().all(|event| event["pid"] == 1_000_002));
        assert_eq!((events[2]["ts"].as_f64(), events[2]["dur"].as_f64()), (Some(1.0), Some(2.5)));
        assert_eq!(events[8]["id2"]["local"], "ff.1");
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
