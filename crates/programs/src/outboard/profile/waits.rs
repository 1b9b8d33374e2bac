// SPDX-License-Identifier: BSD-3-Clause
//! Finds which rank waits for which. In an MPI call a rank waits until the last partner that it needs has
//! started its part. A partner is one of these: the sender of a message that the call completes (if the
//! message is partitioned, the sender of the last partition); the receiver of a message that is sent only
//! once the receive has started; a rank of the same collective; a rank whose MPI_Win_post or MPI_Win_complete
//! the call needs; the holder of a lock. Only the last partner of a call counts, so no time counts twice.
//!
//! Some waits are not found, because a trace does not have them: for the ranks that an algorithm adds, in a
//! rooted collective of an intercommunicator, and for the lock in MPI_Win_lock_all.

use std::collections::HashMap;

use serde::Serialize;

use super::calls::{Span, Thread, TraceParts, base};
use super::trace::TraceEvent;

/// Why a rank had to wait: the part that the late rank had in the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Sender,
    Receiver,
    /// The late rank was the last to enter a collective, among the ranks that the waiting rank needs.
    Collective,
    /// The late rank is the target of a window, and had not called MPI_Win_post yet.
    Target,
    /// The late rank is an origin of a window, and had not called MPI_Win_complete yet.
    Origin,
    /// The late rank held the lock of a window that the waiting rank requested.
    Holder,
}

/// A wait in an MPI call for a rank that was late.
#[derive(Clone)]
pub struct Wait<'a> {
    /// The index of the waiting call in `TraceParts::calls`.
    pub call: usize,
    pub why: Why,
    /// The number of the rank that was late.
    pub late: u64,
    /// When the late rank started its part, in us.
    pub began: f64,
    /// The call site at which the late rank started its part.
    pub late_site: &'a str,
    /// How long the call waited, in us.
    pub us: f64,
}

/// Which members of a collective must have started before the call of a member can end.
#[derive(Clone, Copy, PartialEq)]
enum Need {
    All,
    /// Every other member waits until the root has started. The root waits for no member.
    Root,
    /// The root waits until all other members have started. The others wait for no member.
    AllAtRoot,
    /// A member waits until all members of lower ranks have started.
    Below,
    /// A member waits until the neighbours from which it receives have started.
    Sources,
}

/// Returns for which members a member of this collective waits. `base` is the function's name in small
/// letters. None if that is not known.
fn need(base: &str) -> Option<Need> {
    Some(match base {
        "barrier"
        | "allreduce"
        | "allgather"
        | "allgatherv"
        | "alltoall"
        | "alltoallv"
        | "alltoallw"
        | "reduce_scatter"
        | "reduce_scatter_block"
        | "win_fence"
        | "win_free" => Need::All,
        "bcast" | "scatter" | "scatterv" => Need::Root,
        "gather" | "gatherv" | "reduce" => Need::AllAtRoot,
        "scan" | "exscan" => Need::Below,
        "neighbor_allgather"
        | "neighbor_allgatherv"
        | "neighbor_alltoall"
        | "neighbor_alltoallv"
        | "neighbor_alltoallw" => Need::Sources,
        _ => return None,
    })
}

/// What identifies a message in a trace: its context id, its sender, its receiver, its tag and its number.
type MessageKey<'a> = (&'a str, u64, u64, i64, u64);

/// A rank for which another rank waits: its number, when it started its part (in us), and at which call site.
#[derive(Clone, Copy)]
struct Partner<'a> {
    rank: u64,
    began: f64,
    site: &'a str,
}

/// Finds all waits in a trace, and returns them, the longest first. Also writes into each call how long it
/// waited.
pub fn find<'a>(parts: &mut TraceParts<'a>) -> Vec<Wait<'a>> {
    let mut found = WaitSearch { parts, last: HashMap::new() };
    found.messages();
    found.collectives();
    found.signals();
    found.locks();
    let mut waits: Vec<Wait> = found.last.into_values().collect();
    waits.iter().for_each(|wait| parts.calls[wait.call].waited = wait.us);
    waits.sort_by(|a, b| b.us.total_cmp(&a.us).then(a.call.cmp(&b.call)));
    waits
}

/// The search for waits in a trace. `last` holds what was found so far: by the index of a call, the wait of
/// this call for its last partner.
struct WaitSearch<'s, 'a> {
    parts: &'s TraceParts<'a>,
    last: HashMap<usize, Wait<'a>>,
}

impl<'a> WaitSearch<'_, 'a> {
    /// Records the wait of a call of `thread` for `partner`, if the call had to wait. The call completed at
    /// `until` an operation that needed `partner`. `why` is the kind of wait.
    fn consider(&mut self, thread: Thread, until: Option<f64>, partner: Partner<'a>, why: Why) {
        let Partner { rank, began, site } = partner;
        // A part that completed before its partner started did not need it.
        let Some(until) = until.filter(|until| *until >= began) else { return };
        let Some(at) = self.parts.around(thread, until) else { return };
        let call = &self.parts.calls[at];
        let us = began.min(call.until) - call.from;
        if us > 0.0 && self.last.get(&at).is_none_or(|other| other.us < us) {
            self.last.insert(at, Wait { call: at, why, late: rank, began, late_site: site, us });
        }
    }

    /// Returns `thread`'s rank as a partner whose part began at `began`, with the call site of the call at
    /// that time.
    fn at(&self, thread: Thread, began: f64) -> Partner<'a> {
        let site = self.parts.around(thread, began).map_or("", |call| self.parts.calls[call].site);
        Partner { rank: thread.0, began, site }
    }

    fn messages(&mut self) {
        let parts = self.parts;
        let messages = || parts.spans.iter().filter(|span| span.event.cat == "message");
        let keyed = || {
            messages().filter_map(|span| Some((span, key(span.event, span.event.args.direction == "send")?)))
        };
        let sends: HashMap<MessageKey, &Span> = keyed()
            .filter(|(span, _)| span.event.args.direction == "send")
            .map(|(span, key)| (key, span))
            .collect();
        // A partitioned message is whole when its last partition is ready. No other message has its context.
        let mut ready: HashMap<MessageKey, &TraceEvent> = HashMap::new();
        for event in parts.signals.iter().filter(|event| event.name == "ready") {
            let Some(key) = key(event, true) else { continue };
            let last = ready.entry(key).or_insert(event);
            if last.ts < event.ts {
                *last = event;
            }
        }
        for (receive, key) in keyed().filter(|(span, _)| span.event.args.direction == "receive") {
            let Some(send) = sends.get(&key) else { continue };
            let (context, from, to, _, number) = key;
            let whole = match ready.get(&(context, from, to, 0, number)) {
                Some(event) => self.at((event.pid, event.tid), event.ts),
                None => partner_of(send),
            };
            self.consider(thread(receive), receive.until, whole, Why::Sender);
            self.consider(thread(send), send.until, partner_of(receive), Why::Receiver);
        }
    }

    fn collectives(&mut self) {
        for (need, members) in collectives(self.parts) {
            let root = members.iter().find(|span| span.event.args.root == Some(span.event.pid)).copied();
            for member in &members {
                let of_others = members.iter().copied().filter(|other| other.event.pid != member.event.pid);
                let is_root = member.event.args.root == Some(member.event.pid);
                let place = |span: &Span| span.event.args.place;
                let needed = match need {
                    Need::All => latest(of_others),
                    Need::Root if is_root => None,
                    Need::Root => root.filter(|root| root.event.args.bytes > 0),
                    Need::AllAtRoot if !is_root => None,
                    Need::AllAtRoot => latest(of_others.filter(|it| it.event.args.bytes > 0)),
                    Need::Sources => {
                        latest(of_others.filter(|it| member.event.args.sources.contains(&it.event.pid)))
                    }
                    Need::Below => latest(of_others.filter(|it| {
                        it.event.args.bytes > 0 && place(it).is_some() && place(it) < place(member)
                    })),
                };
                if let Some(needed) = needed {
                    self.consider(thread(member), member.until, partner_of(needed), Why::Collective);
                }
            }
        }
    }

    /// Finds the waits of MPI_Win_start for MPI_Win_post, and of MPI_Win_wait for MPI_Win_complete.
    fn signals(&mut self) {
        let parts = self.parts;
        let sent = |event: &&&TraceEvent| ["post", "complete"].contains(&&*event.name);
        let by_key =
            parts.signals.iter().filter(sent).map(|event| ((&*event.name, key(event, true)), *event));
        let by_key: HashMap<_, &TraceEvent> = by_key.collect();
        for event in &parts.signals {
            let (sent, why) = match &*event.name {
                "start" => ("post", Why::Target),
                "wait" => ("complete", Why::Origin),
                _ => continue,
            };
            if let Some(teller) = by_key.get(&(sent, key(event, false))) {
                let partner = self.at((teller.pid, teller.tid), teller.ts);
                self.consider((event.pid, event.tid), Some(event.ts), partner, why);
            }
        }
    }

    /// Finds the waits for a window's lock that another rank held when the lock was requested. An epoch
    /// begins when its lock is granted.
    fn locks(&mut self) {
        let parts = self.parts;
        // The epochs of each window and target by their ends; those of MPI_Win_lock_all are of all targets.
        let mut held: HashMap<(&str, Option<u64>), Vec<&Span>> = HashMap::new();
        for span in parts.spans.iter().filter(|span| !span.event.args.lock.is_empty() && span.until.is_some())
        {
            held.entry((&*span.event.args.context, span.event.args.peer)).or_default().push(span);
        }
        held.values_mut().for_each(|spans| spans.sort_by(|a, b| end(a).total_cmp(&end(b))));
        let locks = parts
            .spans
            .iter()
            .filter(|span| !span.event.args.lock.is_empty() && span.event.args.peer.is_some());
        for lock in locks {
            let (event, granted) = (lock.event, lock.event.ts);
            let Some(call) = parts.around(thread(lock), granted) else { continue };
            let asked = parts.calls[call].from;
            let conflicts = |other: &&&Span| {
                other.event.pid != event.pid
                    && (event.args.lock == "exclusive" || other.event.args.lock == "exclusive")
            };
            let last = |target: Option<u64>| {
                let spans = held.get(&(&*event.args.context, target))?;
                let before = spans.partition_point(|span| end(span) <= granted);
                let meanwhile = spans[..before].iter().rev().take_while(|span| end(span) > asked);
                meanwhile.into_iter().find(&conflicts).copied()
            };
            let holders = [last(event.args.peer), last(None)].into_iter().flatten();
            if let Some(holder) = holders.max_by(|a, b| end(a).total_cmp(&end(b))) {
                let partner = self.at(thread(holder), end(holder));
                self.consider(thread(lock), Some(granted), partner, Why::Holder);
            }
        }
    }
}

/// Returns the operation that started last, or None if there is no operation.
fn latest<'s, 'a>(spans: impl Iterator<Item = &'s Span<'a>>) -> Option<&'s Span<'a>>
where
    'a: 's,
{
    spans.max_by(|a, b| a.event.ts.total_cmp(&b.event.ts))
}

fn thread(span: &Span) -> Thread {
    (span.event.pid, span.event.tid)
}

/// Returns when an operation completed, in us. Returns 0 if it did not complete.
fn end(span: &Span) -> f64 {
    span.until.unwrap_or(0.0)
}

/// Returns the rank of an operation as a partner (a rank for which another waits), with the time and the call
/// site at which it started the operation.
fn partner_of<'a>(span: &Span<'a>) -> Partner<'a> {
    Partner { rank: span.event.pid, began: span.event.ts, site: &span.event.args.site }
}

/// Returns what identifies the message (or signal) of `event`, the same for sender and receiver. `sends` says
/// whether `event` is the sender's. Returns None if the trace does not have the message's number or peer.
fn key<'a>(event: &'a TraceEvent<'a>, sends: bool) -> Option<MessageKey<'a>> {
    let (rank, args) = (event.pid, &event.args);
    let peer = args.peer.filter(|_| args.number != 0)?;
    let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
    Some((&args.context, from, to, args.tag, args.number))
}

/// Returns each collective of which [`need`] is known, with one operation for each rank. Operations belong to
/// one collective if they have the same context id and the same name, which ends with a number.
fn collectives<'s, 'a>(parts: &'s TraceParts<'a>) -> Vec<(Need, Vec<&'s Span<'a>>)> {
    let mut collectives: HashMap<_, (Need, Vec<&Span>)> = HashMap::new();
    for span in parts.spans.iter().filter(|span| span.event.cat == "operation") {
        let name = &*span.event.name;
        let function = name.split(' ').next().unwrap_or_default();
        if let Some(need) = need(base(function).trim_end_matches("_init")) {
            let one = collectives.entry((&*span.event.args.context, name));
            one.or_insert((need, Vec::new())).1.push(span);
        }
    }
    collectives.into_values().collect()
}
