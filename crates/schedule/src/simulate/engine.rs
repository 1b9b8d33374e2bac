// SPDX-License-Identifier: BSD-3-Clause
//! The events of a simulation: a step whose conditions are met, at the time of the last one. All its times
//! are known when it starts, so there are no other events.
use super::network::{Link, Network, Proxies};
use super::template::{Kind, Step, Template, Templates};
use crate::NodeMap;
use crate::random::{Mix, Random, mix};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;

/// A node's ports, and until when they are busy.
#[derive(Clone, Copy, Default)]
struct Ports {
    out: u64,
    into: u64,
}

/// A step some of whose conditions are met.
struct Pending {
    /// Conditions not met yet.
    waits: u32,
    /// When the last one so far was met.
    ready: u64,
    /// When the last byte of what it streams after is there.
    last_byte: u64,
    /// For a receive: the sending step.
    send: u32,
}

pub struct Engine<'a> {
    templates: &'a Templates,
    network: &'a Network,
    nodes: Option<&'a NodeMap>,
    /// By rank, or by node and proxy: until when the processor is busy.
    processors: Vec<u64>,
    /// By node.
    ports: Vec<Ports>,
    pending: HashMap<u64, Pending, BuildHasherDefault<Mix>>,
    /// Time, rank, step; the step `START` starts the rank.
    events: BinaryHeap<Reverse<(u64, u32, u32)>>,
    end: u64,
}

const START: u32 = u32::MAX;

impl<'a> Engine<'a> {
    pub fn new(
        templates: &'a Templates,
        nodes: Option<&'a NodeMap>,
        network: &'a Network,
        seed: u64,
    ) -> Engine<'a> {
        let start = |rank: u32| match network.skew_ps {
            0 => 0,
            skew => Random(mix(seed) ^ u64::from(rank) << 32).below(skew),
        };
        let ranks = templates.of.len();
        let of_proxies = |(nodes, proxies): (&NodeMap, Proxies)| nodes.nodes() * proxies.per_node;
        let processors = nodes.zip(network.proxies).map_or(ranks, |both| of_proxies(both) as usize);
        Engine {
            templates,
            network,
            nodes,
            processors: vec![0; processors],
            ports: vec![Ports::default(); nodes.map_or(ranks, |nodes| nodes.nodes() as usize)],
            pending: HashMap::default(),
            events: (0..ranks as u32).map(|rank| Reverse((start(rank), rank, START))).collect(),
            end: 0,
        }
    }

    /// Runs to the end; returns when that is.
    pub fn run(mut self) -> u64 {
        while let Some(Reverse((now, rank, step))) = self.events.pop() {
            if step == START {
                self.start(rank, now);
            } else {
                self.step(rank, step, now);
            }
        }
        assert!(self.pending.is_empty(), "a step waits for ever");
        self.end
    }

    fn template(&self, rank: u32) -> &'a Template {
        let templates = self.templates;
        &templates.all[templates.of[rank as usize] as usize]
    }

    /// Starts a rank. A receive waits for its message, and anything for the start.
    fn start(&mut self, rank: u32, now: u64) {
        self.end = self.end.max(now);
        for (number, step) in (0..).zip(&self.template(rank).steps) {
            match (step.kind, step.waits) {
                (Kind::Recv, 0) if self.network.skew_ps > 0 => {
                    self.meet(rank, number, now, 0);
                }
                (Kind::Recv, _) => {}
                (_, 0) => self.step(rank, number, now),
                _ => {}
            }
        }
    }

    /// Conditions of a step: other steps; the message of a receive; the start, where it can be late and
    /// nothing else is waited for.
    fn conditions(&self, step: &Step) -> u32 {
        let start = step.kind == Kind::Recv && step.waits == 0 && self.network.skew_ps > 0;
        step.waits + u32::from(step.kind == Kind::Recv) + u32::from(start)
    }

    /// One condition of a step is met at `ready`; what it streams ends at `last_byte`.
    fn meet(&mut self, rank: u32, number: u32, ready: u64, last_byte: u64) {
        self.meet_from(rank, number, ready, last_byte, None);
    }

    fn meet_from(&mut self, rank: u32, number: u32, ready: u64, last_byte: u64, send: Option<u32>) {
        let step = self.template(rank).steps[number as usize];
        let conditions = self.conditions(&step);
        let fresh = || Pending { waits: conditions, ready: 0, last_byte: 0, send: 0 };
        let pending = self.pending.entry(u64::from(rank) << 32 | u64::from(number)).or_insert_with(fresh);
        pending.waits -= 1;
        pending.send = send.unwrap_or(pending.send);
        pending.ready = pending.ready.max(ready);
        pending.last_byte = pending.last_byte.max(last_byte);
        if pending.waits == 0 {
            self.events.push(Reverse((pending.ready, rank, number)));
        }
    }

    /// A step whose conditions are met takes its turn.
    fn step(&mut self, rank: u32, number: u32, now: u64) {
        let step = self.template(rank).steps[number as usize];
        let pending = self.pending.remove(&(u64::from(rank) << 32 | u64::from(number)));
        let (last_byte, send) = pending.map_or((0, 0), |pending| (pending.last_byte, pending.send));
        match step.kind {
            Kind::Send => self.send(rank, number, &step, now, last_byte),
            Kind::Recv => self.recv(rank, number, &step, now, last_byte, send),
            Kind::Copy => self.compute(rank, number, &step, now, last_byte, self.network.copy_per_byte_ps),
            Kind::Reduce => {
                self.compute(rank, number, &step, now, last_byte, self.network.reduce_per_byte_ps)
            }
        }
    }

    fn chunk(&self, step: &Step) -> u64 {
        step.bytes.min(self.network.chunk_bytes)
    }

    /// The rank at the other end of a message: one rank may stand for all.
    fn peer(&self, rank: u32, step: &Step) -> u32 {
        if self.templates.of.len() == 1 { 0 } else { self.templates.peers.absolute(rank, step.peer) }
    }

    /// Who carries out a rank's steps.
    fn processor(&self, rank: u32) -> usize {
        match self.nodes.zip(self.network.proxies) {
            None => rank as usize,
            Some((nodes, Proxies { per_node, .. })) => {
                (nodes.of(rank) * per_node + nodes.place(rank) % per_node) as usize
            }
        }
    }

    fn node(&self, rank: u32) -> usize {
        self.nodes.map_or(rank, |nodes| nodes.of(rank)) as usize
    }

    /// The link to a peer, and whether it passes ports.
    fn link(&self, rank: u32, peer: u32) -> (&'a Link, bool) {
        let is_dpu = self.network.proxies.is_some_and(|proxies| proxies.is_dpu);
        let between = is_dpu || self.nodes.is_none_or(|nodes| nodes.of(rank) != nodes.of(peer));
        (if between { &self.network.between } else { &self.network.within }, between)
    }

    fn send(&mut self, rank: u32, number: u32, step: &Step, now: u64, last_byte: u64) {
        let peer = self.peer(rank, step);
        let (link, between) = self.link(rank, peer);
        let now = if link.streams { now } else { now.max(last_byte) };
        let at = self.processor(rank);
        self.processors[at] = self.processors[at].max(now) + link.overhead_ps * self.network.slowness();
        let mut begin = self.processors[at];
        let (mut bytes_time, mut chunk_time) = (0, 0);
        if between {
            let chunk = if link.streams { self.chunk(step) } else { step.bytes };
            (bytes_time, chunk_time) = (step.bytes * link.per_byte_ps, chunk * link.per_byte_ps);
            let node = self.node(rank);
            begin = begin.max(self.ports[node].out);
            self.ports[node].out = begin + link.gap_ps.max(bytes_time);
        }
        let last = (begin + bytes_time).max(last_byte + chunk_time);
        let recv = self.template(peer).recv(self.templates.peers.back(step.peer), step.edge);
        let first_arrival = begin + chunk_time + link.latency_ps;
        self.meet_from(peer, recv, first_arrival, last + link.latency_ps, Some(number));
    }

    fn recv(&mut self, rank: u32, number: u32, step: &Step, now: u64, last_byte: u64, send: u32) {
        let peer = self.peer(rank, step);
        let (link, between) = self.link(rank, peer);
        let bytes_time = step.bytes * link.per_byte_ps;
        let overhead = link.overhead_ps * self.network.slowness();
        let at = self.processor(rank);
        let turn = self.processors[at].max(now);
        let (first, done) = if between {
            let node = self.node(rank);
            let begin = self.ports[node].into.max(last_byte - bytes_time);
            self.ports[node].into = begin + link.gap_ps.max(bytes_time);
            self.processors[at] = turn + overhead;
            let done = (begin + bytes_time).max(turn) + overhead;
            (if link.streams { turn + overhead } else { done }, done)
        } else {
            let chunk_time = self.chunk(step) * link.per_byte_ps;
            let copied = turn + overhead + bytes_time;
            self.processors[at] = copied;
            (turn + overhead + chunk_time, copied.max(last_byte + chunk_time))
        };
        self.finish(rank, number, first, done);
        self.finish(peer, send, done, done);
    }

    fn compute(&mut self, rank: u32, number: u32, step: &Step, now: u64, last_byte: u64, per_byte: u64) {
        let at = self.processor(rank);
        let per_byte = per_byte * self.network.slowness();
        let turn = self.processors[at].max(now);
        let whole = turn + step.bytes * per_byte;
        self.processors[at] = whole;
        let chunk_time = self.chunk(step) * per_byte;
        self.finish(rank, number, turn + chunk_time, whole.max(last_byte + chunk_time));
    }

    /// Tells the steps that wait for a step when its first chunk is there and when it is done.
    fn finish(&mut self, rank: u32, number: u32, first: u64, done: u64) {
        self.end = self.end.max(done);
        for (waiting, streaming) in self.template(rank).waiting(number) {
            let (ready, last_byte) = if streaming { (first, done) } else { (done, 0) };
            self.meet(rank, waiting, ready, last_byte);
        }
    }
}
