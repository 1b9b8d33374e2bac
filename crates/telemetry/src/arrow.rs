// SPDX-License-Identifier: BSD-3-Clause
//! Finds the records of several processes that belong together: both ends of a message, the steps of a
//! rendezvous, and what a proxy does for a rank. An arrow in the picture of the trace joins such records.
//!
//! Both ends know a message by its number among the messages with its context, tag, sender and receiver. Such
//! messages match in the order in which they were sent, and their receives in the order in which they were
//! posted (MPI 5.0, section 3.5). So each end counts for itself. Both ends count a window's posts and
//! completions in the same way.
//!
//! The clocks of hosts differ. The differences that were measured are already corrected in the records. The
//! remaining error is mostly less than the time of a message, and [`align`] removes it.

use std::collections::HashMap;
use std::hash::Hash;

use crate::record::{ANY_PEER, ANY_TAG, Event, ProcessName, TraceRecord, TracedMessage, TracedProcess};

/// A point of an arrow: an event in a trace, and the start or the end of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The index of the process among the processes of the trace.
    pub(crate) process: usize,
    /// The index of the event's record among the records of the process.
    pub(crate) record: usize,
    /// The time of the event (start or end) that the arrow touches.
    moment: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The time at which the event started.
    From,
    /// The later of two times: the end of the event, and the start of the MPI call that noticed the end.
    Found,
}

/// An arrow in the picture of the trace: points in the order in which they must have happened.
#[derive(Debug)]
pub(crate) struct Arrow {
    /// What the arrow shows, in a word: `message`, `partition`, `window`, `rendezvous` or `proxy`.
    pub(crate) name: &'static str,
    pub(crate) points: Vec<Point>,
}

impl Point {
    /// Returns the time of the point, and the number of the thread in whose line it lies.
    pub(crate) fn at(&self, processes: &[TracedProcess]) -> (u64, u64) {
        let record = &processes[self.process].records[self.record];
        match self.moment {
            Moment::From => (record.from(), record.thread()),
            Moment::Found => (record.until().max(record.found_by()), record.last_thread()),
        }
    }
}

/// Numbers a process's messages, partitioned messages and signals of windows, in the way in which both ends
/// count them. Returns a number for each record. It is 0 for records of other kinds, and for a receive whose
/// source or tag is still unknown.
pub(crate) fn numbers(records: &[TraceRecord]) -> Vec<u32> {
    let mut counts: HashMap<(u64, u32, i32, bool), u32> = HashMap::new();
    let mut signals: HashMap<(u64, u32, bool, bool), u32> = HashMap::new();
    let mut number = |record: &TraceRecord| match record.event() {
        Some(Event::Partition { number, .. }) => number,
        Some(Event::Signal { what, peer, context }) => {
            let (is_post, sends) = signal(what);
            let count = signals.entry((context, peer, is_post, sends)).or_default();
            *count += 1;
            *count
        }
        Some(Event::Message(TracedMessage { sends, peer, tag, context, .. }))
            if peer != ANY_PEER && tag != ANY_TAG =>
        {
            let count = counts.entry((context, peer, tag, sends)).or_default();
            *count += 1;
            *count
        }
        _ => 0,
    };
    records.iter().map(&mut number).collect()
}

/// Returns two facts about a signal of a window: whether the signal belongs to a post, not to a completion,
/// and whether the process that recorded the signal has sent it.
fn signal(what: &str) -> (bool, bool) {
    (["post", "start"].contains(&what), ["post", "complete"].contains(&what))
}

/// Finds all arrows between the records of processes. `numbers` has for each process what [`numbers`]
/// returned.
pub(crate) fn all(processes: &[TracedProcess], numbers: &[Vec<u32>]) -> Vec<Arrow> {
    let mut arrows = messages(processes, numbers);
    arrows.extend(partitions(processes));
    arrows.extend(signals(processes, numbers));
    arrows.extend(rendezvous(processes));
    arrows.extend(offloads(processes));
    arrows
}

fn records(
    processes: &[TracedProcess],
) -> impl Iterator<Item = (usize, usize, ProcessName, &TraceRecord, Event<'_>)> {
    processes.iter().enumerate().flat_map(|(process, it)| {
        let events = it.records.iter().enumerate();
        events.filter_map(move |(at, record)| Some((process, at, it.who, record, record.event()?)))
    })
}

/// One end of an arrow that has two points: the key that both ends have, and whether this end is the first
/// point.
type ArrowEnd<K> = (K, bool);

/// Makes arrows named `name`. An arrow joins two records of ranks for which `end` returns the same key, once
/// as the first point and once as the last. `last` says which time of the second record (start or end) the
/// arrow touches.
fn joined<K: Hash + Eq>(
    processes: &[TracedProcess],
    (name, last): (&'static str, Moment),
    end: impl Fn(u32, (usize, usize), &TraceRecord, Event) -> Option<ArrowEnd<K>>,
) -> Vec<Arrow> {
    let mut starts: HashMap<K, Point> = HashMap::new();
    let mut ends = Vec::new();
    for (process, record, who, kept, event) in records(processes) {
        let ProcessName::Rank(rank) = who else { continue };
        match end(rank, (process, record), kept, event) {
            Some((key, true)) => drop(starts.insert(key, Point { process, record, moment: Moment::From })),
            Some((key, false)) => ends.push((key, Point { process, record, moment: last })),
            None => (),
        }
    }
    let arrow = |(key, to): (K, Point)| Some(Arrow { name, points: vec![*starts.get(&key)?, to] });
    ends.into_iter().filter_map(arrow).collect()
}

/// Returns the sender and the receiver of a message between `rank` and `peer`. `sends` says whether `rank`
/// sends it.
fn sender_and_receiver(sends: bool, rank: u32, peer: u32) -> (u32, u32) {
    if sends { (rank, peer) } else { (peer, rank) }
}

fn messages(processes: &[TracedProcess], numbers: &[Vec<u32>]) -> Vec<Arrow> {
    joined(processes, ("message", Moment::Found), |rank, (process, record), kept, event| {
        let Event::Message(TracedMessage { context, sends, peer, tag, .. }) = event else {
            return None;
        };
        let number = numbers[process][record];
        let is_whole = number != 0 && (sends || kept.until() != 0);
        is_whole.then_some(((context, sender_and_receiver(sends, rank, peer), tag, number), sends))
    })
}

/// Finds the arrows of partitioned messages. An arrow leads from where a partition is marked ready to where a
/// call of the receiver finds that it has arrived.
fn partitions(processes: &[TracedProcess]) -> Vec<Arrow> {
    joined(processes, ("partition", Moment::From), |rank, _, _, event| {
        let Event::Partition { what, peer, context, number, partition, .. } = event else { return None };
        let sends = what == "ready";
        Some(((context, sender_and_receiver(sends, rank, peer), number, partition), sends))
    })
}

/// Finds the arrows between the processes of a window: from each MPI_Win_post to the MPI_Win_start that needs
/// it, and from each MPI_Win_complete to the MPI_Win_wait for it.
fn signals(processes: &[TracedProcess], numbers: &[Vec<u32>]) -> Vec<Arrow> {
    joined(processes, ("window", Moment::From), |rank, (process, record), _, event| {
        let Event::Signal { what, peer, context } = event else { return None };
        let (is_post, sends) = signal(what);
        Some(((context, sender_and_receiver(sends, rank, peer), is_post, numbers[process][record]), sends))
    })
}

/// Finds the arrows of rendezvous (messages of which the sender first offers the bytes). An arrow leads from
/// the sender's offer over the receiver's acceptance to the sender's receipt of the acceptance.
fn rendezvous(processes: &[TracedProcess]) -> Vec<Arrow> {
    let mut steps: HashMap<(u32, u64), [Option<Point>; 3]> = HashMap::new();
    for (process, record, who, _, event) in records(processes) {
        let (ProcessName::Rank(rank), Event::Rendezvous { what, peer, ticket, .. }) = (who, event) else {
            continue;
        };
        let (sender, step) = match what {
            "offer" => (rank, 0),
            "accept" => (peer, 1),
            _ => (rank, 2),
        };
        let point = Point { process, record, moment: Moment::From };
        steps.entry((sender, ticket)).or_default()[step].get_or_insert(point);
    }
    let arrow = |points: [Option<Point>; 3]| {
        let points: Vec<Point> = points.into_iter().map_while(|point| point).collect();
        (points.len() > 1).then_some(Arrow { name: "rendezvous", points })
    };
    steps.into_values().filter_map(arrow).collect()
}

/// Finds the arrows of operations that proxies carry out. An arrow leads from where a rank hands an operation
/// to a proxy, over the proxy's steps, to the call that finds the operation complete.
fn offloads(processes: &[TracedProcess]) -> Vec<Arrow> {
    let mut operations: HashMap<(u32, u64, u32), [Vec<Point>; 3]> = HashMap::new();
    for (process, record, who, kept, event) in records(processes) {
        let (rank, context, sequence, stage, moment) = match (who, event) {
            (ProcessName::Rank(rank), Event::Offload { context, sequence, .. }) => {
                (rank, context, sequence, 0, Moment::From)
            }
            (ProcessName::Proxy(_), Event::Step { rank, context, sequence, .. }) => {
                (rank, context, sequence, 1, Moment::From)
            }
            (ProcessName::Rank(rank), Event::Operation { context, sequence, .. }) if kept.until() != 0 => {
                (rank, context, sequence, 2, Moment::Found)
            }
            _ => continue,
        };
        let stages = operations.entry((rank, context, sequence)).or_default();
        stages[stage].push(Point { process, record, moment });
    }
    let arrow = |[begin, mut steps, end]: [Vec<Point>; 3]| {
        let (begin, end) = (*begin.first()?, end.first());
        steps.sort_by_key(|step| step.at(processes));
        let points: Vec<Point> = std::iter::once(begin).chain(steps).chain(end.copied()).collect();
        (points.len() > 1).then_some(Arrow { name: "proxy", points })
    };
    operations.into_values().filter_map(arrow).collect()
}

/// Shifts the clocks of hosts as little as possible so that no arrow points backwards in time. It does not
/// remove the errors of a clock that ran unevenly.
pub(crate) fn align(processes: &mut [TracedProcess], arrows: &[Arrow]) {
    // The least time by which the second clock must be later than the first.
    let mut lags: HashMap<(u32, u32), i64> = HashMap::new();
    for pair in arrows.iter().flat_map(|arrow| arrow.points.windows(2)) {
        let clocks = (processes[pair[0].process].clock, processes[pair[1].process].clock);
        if clocks.0 != clocks.1 {
            let lag = pair[0].at(processes).0.wrapping_sub(pair[1].at(processes).0) as i64;
            let most = lags.entry(clocks).or_insert(i64::MIN);
            *most = lag.max(*most);
        }
    }
    let mut late: HashMap<u32, i64> = processes.iter().map(|process| (process.clock, 0)).collect();
    for _ in 0..late.len() {
        for ((from, to), lag) in &lags {
            late.insert(*to, late[to].max(late[from].saturating_add(*lag)));
        }
    }
    for process in processes {
        let by = late[&process.clock];
        if by != 0 {
            process.records.iter_mut().for_each(|record| record.shift(|_| by));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choice, Needs};

    fn message(sends: bool, peer: u32, tag: i32, from: u64, until: u64) -> TraceRecord {
        let (name, context, bytes, site, choice) = ("MPI_Send", 7, 8, 0, Choice::Eager);
        let message = TracedMessage { name, sends, peer, tag, context, bytes, site, choice };
        TraceRecord::new(&Event::Message(message), from, until)
    }

    fn rank(rank: u32, clock: u32, records: &[TraceRecord]) -> TracedProcess {
        TracedProcess { who: ProcessName::Rank(rank), clock, records: records.to_vec() }
    }

    fn arrows(processes: &[TracedProcess]) -> Vec<Arrow> {
        let numbers: Vec<Vec<u32>> = processes.iter().map(|it| numbers(&it.records)).collect();
        all(processes, &numbers)
    }

    #[test]
    fn messages_are_counted_on_both_ends_and_joined() {
        let processes = [
            rank(
                0,
                0,
                &[message(true, 1, 5, 10, 11), message(true, 1, 6, 12, 13), message(true, 1, 5, 14, 15)],
            ),
            rank(
                1,
                0,
                &[
                    // The first receive gets the second message with its tag; what the later ones get is not
                    // known yet.
                    message(false, 0, 5, 1, 20),
                    message(false, ANY_PEER, ANY_TAG, 2, 0),
                    message(false, 0, 5, 3, 30),
                    message(false, 0, 6, 4, 0),
                ],
            ),
        ];
        assert_eq!(numbers(&processes[1].records), [1, 0, 2, 1]);
        let found: Vec<_> = arrows(&processes)
            .iter()
            .map(|arrow| (arrow.points[0].record, arrow.points[1].record, arrow.points[1].at(&processes).0))
            .collect();
        assert_eq!(found, [(0, 0, 20), (2, 2, 30)]);
    }

    #[test]
    fn no_arrow_points_backwards_between_clocks() {
        // The clock of rank 1 is 100 behind, that of rank 2 another 50; only rank 1 receives from rank 0.
        let mut processes = [
            rank(0, 0, &[message(true, 1, 5, 1000, 1001)]),
            rank(1, 1, &[message(false, 0, 5, 890, 905), message(true, 2, 5, 906, 907)]),
            rank(2, 2, &[message(false, 1, 5, 800, 860)]),
        ];
        let found = arrows(&processes);
        assert_eq!(found.len(), 2);
        align(&mut processes, &found);
        for arrow in &found {
            assert!(arrow.points[0].at(&processes).0 <= arrow.points[1].at(&processes).0, "{arrow:?}");
        }
        // The clocks have moved as little as possible.
        assert_eq!((processes[1].records[0].until(), processes[2].records[0].until()), (1000, 1001));
        assert_eq!(processes[0].records[0].from(), 1000);
    }

    #[test]
    fn partitions_and_signals_of_windows_are_joined_by_what_both_ends_count() {
        let part = |what, peer, number, partition, at| {
            let event = Event::Partition { what, peer, context: 7, number, partition, bytes: 1 };
            TraceRecord::new(&event, at, 0)
        };
        let signal = |what, peer, at| TraceRecord::new(&Event::Signal { what, peer, context: 8 }, at, 0);
        let processes = [
            rank(
                0,
                0,
                &[
                    part("ready", 1, 1, 1, 10),
                    part("ready", 1, 1, 0, 12),
                    part("ready", 1, 2, 0, 14),
                    signal("start", 1, 22),
                    signal("complete", 1, 24),
                    signal("start", 1, 32),
                ],
            ),
            rank(
                1,
                0,
                &[
                    part("arrived", 0, 1, 0, 13),
                    part("arrived", 0, 1, 1, 13),
                    signal("post", 0, 20),
                    signal("wait", 0, 26),
                    signal("post", 2, 27),
                    signal("post", 0, 30),
                ],
            ),
        ];
        assert_eq!(numbers(&processes[1].records), [1, 1, 1, 1, 1, 2]);
        let mut found: Vec<_> = arrows(&processes)
            .iter()
            .map(|arrow| (arrow.name, arrow.points[0].at(&processes).0, arrow.points[1].at(&processes).0))
            .collect();
        found.sort_unstable();
        let wanted = [
            ("partition", 10, 13),
            ("partition", 12, 13),
            ("window", 20, 22),
            ("window", 24, 26),
            ("window", 30, 32),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_rendezvous_and_a_proxy_are_followed() {
        let step =
            |what, peer, at| TraceRecord::new(&Event::Rendezvous { what, peer, ticket: 9, bytes: 1 }, at, 0);
        let piece = |rank, at| {
            let event = Event::Step { kind: "recv", rank, peer: 1, context: 3, sequence: 4, bytes: 1 };
            TraceRecord::new(&event, at, at + 1)
        };
        let mut over = TraceRecord::new(
            &Event::Operation {
                name: "a",
                number: 1,
                context: 3,
                sequence: 4,
                bytes: 1,
                site: 0,
                needs: Needs::Unknown,
            },
            1,
            0,
        );
        over.end(50, 60);
        let given = TraceRecord::new(&Event::Offload { proxy: 0, context: 3, sequence: 4 }, 2, 0);
        let processes = [
            rank(0, 0, &[step("offer", 1, 5), step("taken", 1, 9), over, given]),
            rank(1, 0, &[step("accept", 0, 7)]),
            TracedProcess {
                who: ProcessName::Proxy(0),
                clock: 0,
                records: vec![piece(0, 30), piece(1, 25), piece(0, 20)],
            },
        ];
        let times = |name| {
            let found = arrows(&processes);
            let arrow = found.iter().find(|arrow| arrow.name == name).unwrap();
            arrow.points.iter().map(|point| point.at(&processes).0).collect::<Vec<_>>()
        };
        assert_eq!(times("rendezvous"), [5, 7, 9]);
        assert_eq!(times("proxy"), [2, 20, 30, 60]);
    }
}
