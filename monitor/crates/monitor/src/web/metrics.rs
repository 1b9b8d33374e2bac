// SPDX-License-Identifier: BSD-3-Clause
//! Metrics of the fabric and of the collectors in the OpenMetrics format. The number of labels is bounded,
//! because labels name nodes and ports, never jobs.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::state::Web;
use crate::hosts::Summary;
use crate::live::Now;
use crate::store::Written;
use crate::time::now_ms;

pub async fn metrics(State(web): State<Arc<Web>>) -> impl IntoResponse {
    let written = web.writer.written();
    let text = text(&web.live.now(), &written);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

/// Adds a metric of type gauge to `text`: its name, a sentence about it, and the labels and values of its
/// samples.
fn family(text: &mut String, name: &str, help: &str, samples: impl Iterator<Item = (String, f64)>) {
    let mut lines = format!("# TYPE outboard_{name} gauge\n# HELP outboard_{name} {help}\n");
    for (labels, value) in samples {
        writeln!(lines, "outboard_{name}{labels} {value}").expect("a String takes all");
    }
    text.push_str(&lines);
}

fn text(now: &Now, written: &Written) -> String {
    let mut text = String::new();
    let one = |value: f64| std::iter::once((String::new(), value));
    let fabric = &now.fabric;
    family(
        &mut text,
        "fabric_up",
        "1: the fabric is reached.",
        one(f64::from(u8::from(fabric.error.is_empty()))),
    );
    family(&mut text, "fabric_sweep_seconds", "Time of the last sweep.", one(fabric.sweep_ms / 1e3));
    family(&mut text, "fabric_ports", "Ports that the last sweep read.", one(fabric.ports as f64));
    family(
        &mut text,
        "fabric_unreachable_nodes",
        "Nodes that do not answer.",
        one(now.unreachable.len() as f64),
    );
    family(
        &mut text,
        "fabric_mads_sent_again",
        "MADs sent again since the start.",
        one(fabric.mads.sent_again as f64),
    );
    family(&mut text, "store_rows", "Rows written since the start.", one(written.rows as f64));
    family(&mut text, "store_dropped_rows", "Rows lost since the start.", one(written.dropped_rows as f64));
    family(
        &mut text,
        "store_spooled_bytes",
        "Bytes that wait on disk for the store.",
        one(written.spooled_bytes as f64),
    );
    let ends = || {
        now.topology
            .links
            .iter()
            .flat_map(|link| [(link.from, link.from_port), (link.to, link.to_port)])
            .filter_map(|(at, port)| {
                let node = &now.topology.nodes[at];
                let sample = now.ports.get(&(node.number(), port))?;
                Some((
                    format!("{{node=\"{}\",guid=\"{}\",port=\"{port}\"}}", label(&node.name), node.guid),
                    sample,
                ))
            })
    };
    let sent = ends().filter_map(|(labels, sample)| Some((labels, f64::from(sample.sent?))));
    family(&mut text, "port_sent_ratio", "Data sent, of what the link can carry.", sent);
    let received = ends().filter_map(|(labels, sample)| Some((labels, f64::from(sample.received?))));
    family(&mut text, "port_received_ratio", "Data received, of what the link can carry.", received);
    let errors = ends().map(|(labels, sample)| (labels, sample.errors() as f64));
    family(&mut text, "port_errors", "Errors of all kinds in the last interval.", errors);
    hosts(&mut text, now);
    text.push_str("# EOF\n");
    text
}

fn hosts(text: &mut String, now: &Now) {
    let at = now_ms();
    let all: Vec<Summary> = now.hosts.values().map(|host| host.summary(at)).collect();
    let mut each = |name: &str, help: &str, value: &dyn Fn(&Summary) -> Option<f64>| {
        let labelled = |host: &Summary| Some((format!("{{host=\"{}\"}}", label(&host.name)), value(host)?));
        family(text, &format!("host_{name}"), help, all.iter().filter_map(labelled));
    };
    // The last figures of a host that is away are not its present ones.
    let is_up = |host: &Summary| host.state == "up";
    each("up", "1: the host reports.", &|host| Some(f64::from(u8::from(is_up(host)))));
    each("cpu_ratio", "Use of its processors.", &|host| host.cpu.filter(|_| is_up(host)));
    each("memory_ratio", "Use of its memory.", &|host| host.memory.filter(|_| is_up(host)));
    each("sent_bytes_per_second", "Sent over all links.", &|host| is_up(host).then_some(host.sent));
    each("received_bytes_per_second", "Received over all links.", &|host| {
        is_up(host).then_some(host.received)
    });
    each("power_watts", "Power of packages and GPUs.", &|host| {
        (is_up(host) && host.watts > 0.0).then_some(host.watts)
    });
    each("lustre_read_bytes_per_second", "Read from Lustre.", &|host| is_up(host).then_some(host.read));
    each("lustre_written_bytes_per_second", "Written to Lustre.", &|host| {
        is_up(host).then_some(host.written)
    });
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
