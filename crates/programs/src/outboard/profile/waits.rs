// SPDX-License-Identifier: BSD-3-Clause
//! Who waits for whom. In an MPI call a rank waits until the last partner that it needs has begun its part:
//! the sender of a message that the call completes, the receiver of one that moves only then, the last rank
//! to enter a collective. A call has at most one such partner, the last; so no time counts twice.
//!
//! A collective with a root, a scan, or one among neighbours needs some ranks only, and a trace does not say
//! which, so these are left out.

use std::collections::HashMap;

use serde::Serialize;

use super::calls::{Parts, Span, Thread, base};

/// Who was late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Sender,
    Receiver,
    /// The last rank to enter a collective.
    Collective,
}

/// A wait in a call.
#[derive(Clone)]
pub struct Wait<'a> {
    /// The call, by its index.
    pub call: usize,
    pub why: Why,
    /// The rank that came late, when it began, and where.
    pub late: u64,
    pub began: f64,
    pub late_site: &'a str,
    /// How long it was.
    pub us: f64,
}

/// The collectives that no member ends before all have begun.
const NEEDS_ALL: [&str; 9] = [
    "barrier",
    "allreduce",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "alltoallw",
    "reduce_scatter",
    "reduce_scatter_block",
];

/// Context, sender, receiver, tag and number of a message.
type Message<'a> = (&'a str, u64, u64, i64, u64);

/// All waits, the longest first; writes how long each call waited.
pub fn find<'a>(parts: &mut Parts<'a>) -> Vec<Wait<'a>> {
    let mut last: HashMap<usize, Wait<'a>> = HashMap::new();
    let mut consider = |span: &Span<'a>, partner: &Span<'a>, why: Why| {
        let began = partner.event.ts;
        // What completed before its partner began did not need it.
        let Some(until) = span.until.filter(|until| *until >= began) else { return };
        let Some(at) = parts.around(thread(span), until) else { return };
        let call = &parts.calls[at];
        let us = began.min(call.until) - call.from;
        if us > 0.0 && last.get(&at).is_none_or(|other| other.us < us) {
            let (late, late_site) = (partner.event.pid, &*partner.event.args.site);
            last.insert(at, Wait { call: at, why, late, began, late_site, us });
        }
    };
    let mut sends: HashMap<Message, &Span> = HashMap::new();
    let messages = || parts.spans.iter().filter(|span| span.event.cat == "message");
    for (span, key) in messages().filter_map(|span| Some((span, key(span)?))) {
        if span.event.args.direction == "send" {
            sends.insert(key, span);
        }
    }
    for (receive, key) in messages().filter_map(|span| Some((span, key(span)?))) {
        if receive.event.args.direction == "receive"
            && let Some(send) = sends.get(&key)
        {
            consider(receive, send, Why::Sender);
            consider(send, receive, Why::Receiver);
        }
    }
    for members in collectives(parts).values() {
        let latest = members.iter().max_by(|a, b| a.event.ts.total_cmp(&b.event.ts));
        let Some(latest) = latest else { continue };
        for member in members.iter().filter(|member| member.event.pid != latest.event.pid) {
            consider(member, latest, Why::Collective);
        }
    }
    let mut waits: Vec<Wait> = last.into_values().collect();
    waits.iter().for_each(|wait| parts.calls[wait.call].waited = wait.us);
    waits.sort_by(|a, b| b.us.total_cmp(&a.us).then(a.call.cmp(&b.call)));
    waits
}

fn thread(span: &Span) -> Thread {
    (span.event.pid, span.event.tid)
}

/// None: a receive of which the trace does not say what it got.
fn key<'a>(span: &Span<'a>) -> Option<Message<'a>> {
    let (rank, args) = (span.event.pid, &span.event.args);
    let peer = args.peer.filter(|_| args.number != 0)?;
    let (from, to) = if args.direction == "send" { (rank, peer) } else { (peer, rank) };
    Some((&args.context, from, to, args.tag, args.number))
}

/// The spans of each collective that needs all its ranks, by context and name with number.
fn collectives<'s, 'a>(parts: &'s Parts<'a>) -> HashMap<(&'a str, &'a str), Vec<&'s Span<'a>>> {
    let mut collectives: HashMap<_, Vec<&Span>> = HashMap::new();
    for span in parts.spans.iter().filter(|span| span.event.cat == "operation") {
        let name = &*span.event.name;
        let function = name.split(' ').next().unwrap_or_default();
        if NEEDS_ALL.contains(&base(function).trim_end_matches("_init")) {
            collectives.entry((&*span.event.args.context, name)).or_default().push(span);
        }
    }
    collectives
}
