// SPDX-License-Identifier: BSD-3-Clause
//! The metrics (measured values, such as error rates) that a criterion for alerts can name.

use serde::Serialize;

/// The kinds of things for which a metric can be measured, such as ports, hosts or jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    Port,
    Link,
    Node,
    Host,
    Job,
    Monitor,
}

#[derive(Debug, Serialize)]
pub struct Metric {
    pub name: &'static str,
    pub of: Subject,
    /// The unit of the metric's values, as the monitor's page shows it.
    pub unit: &'static str,
    pub doc: &'static str,
}

const fn metric(name: &'static str, of: Subject, unit: &'static str, doc: &'static str) -> Metric {
    Metric { name, of, unit, doc }
}

pub const METRICS: [Metric; 25] = [
    metric("use", Subject::Port, "share", "data sent or received, of what the link can carry: 0 to 1"),
    metric("errors", Subject::Port, "in an interval", "errors of all kinds"),
    metric("xmit_wait", Subject::Port, "in an interval", "ticks with data to send and no credit"),
    metric("symbol_errors", Subject::Port, "in an interval", "symbols that were no code, on any lane"),
    metric(
        "link_recoveries",
        Subject::Port,
        "in an interval",
        "times that the link was trained anew with success",
    ),
    metric("link_downed", Subject::Port, "in an interval", "times that it could not be, and went down"),
    metric("rcv_errors", Subject::Port, "in an interval", "packets that came in damaged"),
    metric(
        "rcv_remote_physical_errors",
        Subject::Port,
        "in an interval",
        "packets marked as bad on their way",
    ),
    metric(
        "rcv_switch_relay_errors",
        Subject::Port,
        "in an interval",
        "packets that the switch could not forward",
    ),
    metric(
        "xmit_discards",
        Subject::Port,
        "in an interval",
        "packets dropped: the port is down or congested",
    ),
    metric("xmit_constraint_errors", Subject::Port, "in an interval", "packets not sent by a rule"),
    metric("rcv_constraint_errors", Subject::Port, "in an interval", "packets not taken by a rule"),
    metric(
        "local_integrity_errors",
        Subject::Port,
        "in an interval",
        "times of too many local errors in a row",
    ),
    metric("buffer_overruns", Subject::Port, "in an interval", "times that flow control failed"),
    metric("vl15_dropped", Subject::Port, "in an interval", "management packets dropped for want of room"),
    metric("link_lost", Subject::Link, "", "1: a link that was there is down"),
    metric("unreachable", Subject::Node, "", "1: the node does not answer"),
    metric("host_unreachable", Subject::Host, "", "1: the host's agent does not report any more"),
    metric("cpu_use", Subject::Host, "share", "of the time of all processors, what was used: 0 to 1"),
    metric("memory_use", Subject::Host, "share", "of the memory, what programs cannot have: 0 to 1"),
    metric("wait_share", Subject::Job, "share", "of the time of all ranks, what they waited in MPI: 0 to 1"),
    metric(
        "dropped_rows",
        Subject::Monitor,
        "rows",
        "rows that were lost on their way into the store in the last five minutes",
    ),
    metric("spooled_bytes", Subject::Monitor, "bytes", "what waits on disk for the store"),
    metric("sweep_seconds", Subject::Monitor, "s", "time of the last sweep"),
    metric("fabric_down", Subject::Monitor, "", "1: there is no way into the fabric"),
];
