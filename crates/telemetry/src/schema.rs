// SPDX-License-Identifier: BSD-3-Clause
//! Checks of a trace file: what the Trace Event Format requires of events, and what `chrome.rs` promises of
//! the arrows that a trace viewer draws between events. Viewers silently drop what breaks these rules.

use std::collections::HashMap;

use serde_json::Value;

/// Checks that an event has the fields that the format requires of its kind. The error says what is wrong.
pub fn check(event: &Value) -> Result<(), String> {
    let has = |key: &str, test: fn(&Value) -> bool| event.get(key).is_some_and(test);
    let common = has("name", Value::is_string) && has("pid", Value::is_u64) && has("tid", Value::is_u64);
    let at = has("ts", |ts| ts.as_f64().is_some_and(|ts| ts >= 0.0));
    let timed = at && has("cat", Value::is_string);
    let named = has("args", |args| args["name"].is_string());
    let right = match event.get("ph").and_then(Value::as_str) {
        Some("M") => match event["name"].as_str() {
            Some("process_name" | "thread_name") => named,
            Some("process_sort_index") => has("args", |args| args["sort_index"].is_u64()),
            Some("process_labels") => has("args", |args| args["labels"].is_string()),
            _ => has("args", Value::is_object),
        },
        Some("B") => timed,
        Some("i") => timed && has("s", |scope| ["t", "p", "g"].iter().any(|it| scope == it)),
        Some("X") => timed && has("dur", |dur| dur.as_f64().is_some_and(|dur| dur >= 0.0)),
        Some("b" | "e") => timed && has("id2", |id| id["local"].is_string() || id["global"].is_string()),
        Some("s") => timed && has("id", |id| id.is_u64() || id.is_string()),
        Some("t" | "f") => {
            timed && has("id", |id| id.is_u64() || id.is_string()) && has("bp", |bp| bp == "e")
        }
        Some("C") => {
            let numbers = |args: &Value| args.as_object().is_some_and(|it| it.values().all(Value::is_number));
            at && has("args", numbers)
        }
        _ => false,
    };
    if common && right { Ok(()) } else { Err(format!("not an event of the Chrome trace format: {event}")) }
}

/// For each process and thread of a trace: the start and the end of each event that has a duration, which a
/// viewer draws as a bar.
type Bars = HashMap<(u64, u64), Vec<(f64, f64)>>;

/// Checks each arrow that a viewer draws between events: it has a start, then its points, then an end, never
/// backwards in time, and each point lies within an event of the point's thread. The error names the first
/// wrong arrow.
pub fn check_arrows(events: &[Value]) -> Result<(), String> {
    let at = |event: &Value| event["ts"].as_f64().unwrap_or(0.0);
    let thread = |event: &Value| (event["pid"].as_u64().unwrap_or(0), event["tid"].as_u64().unwrap_or(0));
    let mut bars = Bars::new();
    let mut arrows: HashMap<String, Vec<&Value>> = HashMap::new();
    for event in events {
        match event["ph"].as_str() {
            Some("X") => {
                let end = at(event) + event["dur"].as_f64().unwrap_or(0.0);
                bars.entry(thread(event)).or_default().push((at(event), end));
            }
            Some("B") => bars.entry(thread(event)).or_default().push((at(event), f64::INFINITY)),
            Some("s" | "t" | "f") => arrows.entry(event["id"].to_string()).or_default().push(event),
            _ => (),
        }
    }
    // A bar may lie in another, so the longest of those before counts.
    for bars in bars.values_mut() {
        bars.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut end = f64::NEG_INFINITY;
        bars.iter_mut().for_each(|bar| {
            end = end.max(bar.1);
            bar.1 = end;
        });
    }
    // Times are sums of rounded numbers.
    const ROUNDED: f64 = 0.01;
    let in_bar = |event: &&Value| {
        let bars = bars.get(&thread(event)).map_or(&[][..], |bars| bars);
        let before = bars.partition_point(|bar| bar.0 <= at(event) + ROUNDED);
        before > 0 && bars[before - 1].1 + ROUNDED >= at(event)
    };
    for (id, mut points) in arrows {
        points.sort_by(|a, b| at(a).total_cmp(&at(b)));
        let order = |event: &&Value| ["s", "t", "f"].iter().position(|phase| event["ph"] == *phase);
        let phases: Vec<_> = points.iter().map(order).collect();
        let count = |phase| phases.iter().filter(|it| **it == Some(phase)).count();
        // Points of one instant may stand in any order.
        let first = points.iter().find(|event| event["ph"] == "s");
        let last = points.iter().find(|event| event["ph"] == "f");
        let is_whole = count(0) == 1
            && count(2) == 1
            && first.is_some_and(|first| at(first) <= at(points[0]))
            && last.is_some_and(|last| at(last) >= at(points[points.len() - 1]));
        if !is_whole {
            return Err(format!("arrow {id} does not begin first and end last, once each: {points:?}"));
        }
        if let Some(point) = points.iter().find(|point| !in_bar(point)) {
            return Err(format!("arrow {id} has a point in no bar: {point}"));
        }
    }
    Ok(())
}
