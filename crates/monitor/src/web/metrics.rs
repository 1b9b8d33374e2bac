//! OpenMetrics of the fabric and the collectors. The labels are bounded: nodes and ports, never jobs.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::state::Web;
use crate::live::Now;
use crate::store::Written;

pub async fn metrics(State(web): State<Arc<Web>>) -> impl IntoResponse {
    let written = web.writer.written();
    let text = text(&web.live.now(), &written);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

/// A family of gauges: its name, its sentence, and samples of labels and value.
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
                let sample = now.ports.get(&(u64::from_str_radix(&node.guid, 16).ok()?, port))?;
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
    text.push_str("# EOF\n");
    text
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
