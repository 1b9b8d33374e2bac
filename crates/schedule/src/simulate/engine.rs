// SPDX-License-Identifier: BSD-3-Clause
//! The event loop of the simulation. An event is the start of a step, at the time when the last of the step's
//! conditions is met. All other times of the step are known then, so no other events are needed.
use super::network::{Dpu, LINGER_PS, LinkCosts, Network, Proxies, StepsWithinNode};
use super::template::{StepKind, Template, TemplateStep, Templates};
use crate::random::{Mix, Random, mix};
use crate::{NodeMap, Side};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;

/// What the ranks of a node share: its port and its memories. Each field is the time in picoseconds until
/// which one of them is busy.
#[derive(Clone, Copy, Default)]
struct NodeState {
    /// The time, in picoseconds, until which the node's port is busy with what leaves the node.
    out: u64,
    /// The time, in picoseconds, until which the node's port is busy with what comes to the node.
    into: u64,
    /// The time, in picoseconds, until which the node's memory is busy with copies and reductions.
    memory: u64,
    /// The time, in picoseconds, until which the memory of the node's DPU is busy.
    staging: u64,
}

/// The bytes that passed ports, processors and DPUs in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The bytes that left nodes through their ports.
    pub out: u64,
    /// The bytes that came to nodes through their ports.
    pub into: u64,
    /// The bytes that processors copied within nodes.
    pub within: u64,
    /// The bytes that DPUs read from the memory of their nodes.
    pub fetched: u64,
}

/// A step of which some conditions are met: steps have finished, or its message has come.
struct PendingStep {
    /// The number of the step's conditions that are not met yet.
    waits: u32,
    /// For the host and for the DPU (index `Side`), the latest time at which it has met a condition of the
    /// step; 0 if it has met none.
    ready: [u64; 2],
    /// The time at which the last byte comes from the step that this step follows byte by byte; 0 if it
    /// follows none.
    last_byte: u64,
    /// For a receive, the number of the step that sends its message, in the sender's schedule.
    send: u32,
}

pub struct Engine<'a> {
    templates: &'a Templates,
    network: &'a Network,
    nodes: Option<&'a NodeMap>,
    /// For each processor, the time in picoseconds until which it is busy. A rank has a processor, or a node
    /// has one for each proxy.
    processors: Vec<u64>,
    /// For each rank, whether it has left the call that starts the operation, and computes. Empty if no rank
    /// computes.
    has_left: Vec<bool>,
    /// For each core of each node's DPU, the time in picoseconds until which it is busy.
    cores: Vec<u64>,
    /// For each node, until when its port and memories, which its ranks share, are busy.
    shared: Vec<NodeState>,
    pending: HashMap<u64, PendingStep, BuildHasherDefault<Mix>>,
    /// The events to come: time, rank and step. The step `START` is the start of the rank.
    events: BinaryHeap<Reverse<(u64, u32, u32)>>,
    end: u64,
    traffic: Traffic,
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
        let ranks = templates.template_of_rank.len();
        let count = nodes.map_or(ranks, |nodes| nodes.nodes() as usize);
        let dpu = dpu_of(network);
        let served = host_proxies_per_node(network).zip(nodes);
        let computes = served.is_none() && network.work_ps > 0;
        Engine {
            templates,
            network,
            nodes,
            processors: vec![0; served.map_or(ranks, |(per_node, _)| count * per_node as usize)],
            has_left: vec![false; if computes { ranks } else { 0 }],
            cores: vec![0; dpu.map_or(0, |dpu| count * dpu.cores as usize)],
            shared: vec![NodeState::default(); count],
            pending: HashMap::default(),
            events: (0..ranks as u32).map(|rank| Reverse((start(rank), rank, START))).collect(),
            end: 0,
            traffic: Traffic::default(),
        }
    }

    /// Runs the simulation to its end. Returns the end's time in picoseconds, and the bytes that passed ports
    /// and processors.
    pub fn run(mut self) -> (u64, Traffic) {
        while let Some(Reverse((now, rank, step))) = self.events.pop() {
            if step == START {
                self.start(rank, now);
            } else {
                self.step(rank, step, now);
            }
        }
        assert!(self.pending.is_empty(), "a step waits for ever");
        // A rank that had nothing to do after the first call computes to the end all the same.
        let working = |rank: usize| if self.has_left[rank] { 0 } else { self.network.work_ps };
        let computed = (0..self.has_left.len()).map(|rank| self.processors[rank] + working(rank)).max();
        (self.end.max(computed.unwrap_or(self.network.work_ps)), self.traffic)
    }

    fn template(&self, rank: u32) -> &'a Template {
        let templates = self.templates;
        &templates.all[templates.template_of_rank[rank as usize] as usize]
    }

    /// Starts a rank at the time `now`, and those of its steps that need not wait. A receive always waits for
    /// its message.
    fn start(&mut self, rank: u32, now: u64) {
        self.end = self.end.max(now);
        self.wait_for_start(rank, now);
        let noted = self.take_note(rank, now);
        for (number, step) in (0..).zip(&self.template(rank).steps) {
            let ready = if self.side(rank, step, false) == Side::Dpu { noted } else { now };
            match (step.kind, step.waits) {
                (StepKind::Recv, 0) if self.network.skew_ps > 0 => {
                    self.meet(rank, number, Side::Host, now, 0)
                }
                (StepKind::Recv, _) => {}
                (_, 0) if ready > now => self.events.push(Reverse((ready, rank, number))),
                (_, 0) => self.step(rank, number, now),
                _ => {}
            }
        }
    }

    /// Makes the rank's processor busy until the time `now`, at which the rank starts.
    fn wait_for_start(&mut self, rank: u32, now: u64) {
        if !self.has_left.is_empty() {
            self.processors[rank as usize] = self.processors[rank as usize].max(now);
        }
    }

    /// Makes the DPU handle the note by which the rank gives it the operation, and returns the time at which
    /// the DPU has handled the note. Returns `now` if no DPU carries out a step of the rank.
    fn take_note(&mut self, rank: u32, now: u64) -> u64 {
        let Some(dpu) = self.dpu() else { return now };
        if !self.template(rank).steps.iter().any(|step| self.side(rank, step, false) == Side::Dpu) {
            return now;
        }
        let at = self.core(rank, dpu);
        self.cores[at] = self.cores[at].max(now + dpu.round_trip_ps / 2) + dpu.slowed(dpu.note_ps);
        self.cores[at]
    }

    /// Returns the number of conditions of a step: the steps for which it waits, and the message of a
    /// receive. If ranks start at different times, a receive that waits for no step also waits for its rank's
    /// start.
    fn conditions(&self, step: &TemplateStep) -> u32 {
        let start = step.kind == StepKind::Recv && step.waits == 0 && self.network.skew_ps > 0;
        step.waits + u32::from(step.kind == StepKind::Recv) + u32::from(start)
    }

    /// Records that the host or the DPU (`side`) has met a condition of step `number` at the time `ready`.
    /// `last_byte` is the end of the step that this one follows byte by byte; 0 if it follows none.
    fn meet(&mut self, rank: u32, number: u32, side: Side, ready: u64, last_byte: u64) {
        self.meet_from(rank, number, (side, ready), last_byte, None);
    }

    fn meet_from(
        &mut self,
        rank: u32,
        number: u32,
        (side, ready): (Side, u64),
        last_byte: u64,
        send: Option<u32>,
    ) {
        let step = self.template(rank).steps[number as usize];
        let conditions = self.conditions(&step);
        let fresh = || PendingStep { waits: conditions, ready: [0; 2], last_byte: 0, send: 0 };
        let pending = self.pending.entry(u64::from(rank) << 32 | u64::from(number)).or_insert_with(fresh);
        pending.waits -= 1;
        pending.send = send.unwrap_or(pending.send);
        pending.ready[side as usize] = pending.ready[side as usize].max(ready);
        pending.last_byte = pending.last_byte.max(last_byte);
        if pending.waits == 0 {
            let of_both = pending.ready;
            let side = self.side(rank, &step, of_both[Side::Dpu as usize] > 0);
            let other = if side == Side::Host { Side::Dpu } else { Side::Host };
            // The news of a step of the other side takes half a round trip.
            let news = self.dpu().map_or(0, |dpu| dpu.round_trip_ps / 2);
            let reported = of_both[other as usize];
            let ready = of_both[side as usize].max(if reported > 0 { reported + news } else { 0 });
            self.events.push(Reverse((ready, rank, number)));
        }
    }

    /// Carries out a step. All its conditions are met.
    fn step(&mut self, rank: u32, number: u32, now: u64) {
        let step = self.template(rank).steps[number as usize];
        let pending = self.pending.remove(&(u64::from(rank) << 32 | u64::from(number)));
        let (last_byte, send) = pending.as_ref().map_or((0, 0), |pending| (pending.last_byte, pending.send));
        let met = |side: Side| pending.as_ref().is_some_and(|pending| pending.ready[side as usize] > 0);
        let side = self.side(rank, &step, met(Side::Dpu));
        // Bytes that no step of the DPU has made lie in the node's memory.
        let is_fetched = side == Side::Dpu && (met(Side::Host) || pending.is_none());
        match step.kind {
            StepKind::Send if side == Side::Dpu => self.send_by_dpu(rank, number, &step, now, is_fetched),
            StepKind::Send => self.send(rank, number, &step, now, last_byte),
            StepKind::Recv if side == Side::Dpu => {
                self.recv_by_dpu(rank, number, &step, now, last_byte, send)
            }
            StepKind::Recv => self.recv(rank, number, &step, now, last_byte, send),
            StepKind::Copy => {
                self.compute(rank, number, &step, (side, now), last_byte, self.network.copy_per_byte_ps)
            }
            StepKind::Reduce => {
                let per_byte = self.network.reduce_per_byte_ps;
                self.compute(rank, number, &step, (side, now), last_byte, per_byte);
            }
        }
    }

    fn chunk(&self, step: &TemplateStep) -> u64 {
        step.bytes.min(self.network.chunk_bytes)
    }

    /// Returns the rank at the other end of a step's message. It is rank 0 if one rank stands for all.
    fn peer(&self, rank: u32, step: &TemplateStep) -> u32 {
        if self.templates.template_of_rank.len() == 1 {
            0
        } else {
            self.templates.peers.absolute(rank, step.peer)
        }
    }

    fn dpu(&self) -> Option<Dpu> {
        dpu_of(self.network)
    }

    /// Decides whether the host or the DPU carries out a step, like `Schedule::sides`, but copies always
    /// belong to ranks. `is_of_dpu` says whether a reduction reads bytes that the DPU has received or
    /// computed.
    fn side(&self, rank: u32, step: &TemplateStep, is_of_dpu: bool) -> Side {
        let Some(Proxies::Dpu(_, within)) = self.network.proxies else { return Side::Host };
        let is_dpus = match step.kind {
            _ if within == StepsWithinNode::Dpu => true,
            StepKind::Send | StepKind::Recv => self.is_between(rank, self.peer(rank, step)),
            StepKind::Reduce => is_of_dpu,
            StepKind::Copy => false,
        };
        if is_dpus { Side::Dpu } else { Side::Host }
    }

    /// Returns the index of the node's own processor that carries out a rank's steps.
    fn processor(&self, rank: u32) -> usize {
        match self.nodes.zip(host_proxies_per_node(self.network)) {
            None => rank as usize,
            Some((nodes, per_node)) => (nodes.of(rank) * per_node + nodes.position(rank) % per_node) as usize,
        }
    }

    /// Returns the time at which the rank's processor can start a step, at `now` at the earliest. If the rank
    /// has had no work for a while, it has left the call that starts the operation, and computes first.
    fn turn(&mut self, rank: u32, now: u64) -> u64 {
        let at = self.processor(rank);
        let idle = self.processors[at] + LINGER_PS;
        if now > idle && self.has_left.get(at) == Some(&false) {
            self.has_left[at] = true;
            self.processors[at] = idle + self.network.work_ps;
        }
        self.processors[at].max(now)
    }

    /// Returns the index of the core of the node's DPU that carries out a rank's steps.
    fn core(&self, rank: u32, dpu: Dpu) -> usize {
        let (node, position) = self.nodes.map_or((rank, 0), |nodes| (nodes.of(rank), nodes.position(rank)));
        (node * dpu.cores + position % dpu.cores) as usize
    }

    fn node(&self, rank: u32) -> usize {
        self.nodes.map_or(rank, |nodes| nodes.of(rank)) as usize
    }

    fn is_between(&self, rank: u32, peer: u32) -> bool {
        self.nodes.is_none_or(|nodes| nodes.of(rank) != nodes.of(peer))
    }

    /// Returns the costs of a message from `rank` to `peer`, and whether it passes the ports of two nodes.
    fn link(&self, rank: u32, peer: u32) -> (&'a LinkCosts, bool) {
        let between = self.is_between(rank, peer);
        (if between { &self.network.between } else { &self.network.within }, between)
    }

    fn send(&mut self, rank: u32, number: u32, step: &TemplateStep, now: u64, last_byte: u64) {
        let peer = self.peer(rank, step);
        let (link, between) = self.link(rank, peer);
        let now = if link.streams { now } else { now.max(last_byte) };
        let mut begin = self.turn(rank, now) + link.overhead_ps;
        let at = self.processor(rank);
        self.processors[at] = begin;
        let (mut bytes_time, mut chunk_time) = (0, 0);
        if between {
            let chunk = if link.streams { self.chunk(step) } else { step.bytes };
            (bytes_time, chunk_time) = (step.bytes * link.per_byte_ps, chunk * link.per_byte_ps);
            let node = self.node(rank);
            begin = begin.max(self.shared[node].out);
            self.shared[node].out = begin + link.gap_ps.max(bytes_time);
            self.traffic.out += step.bytes;
        }
        let last = (begin + bytes_time).max(last_byte + chunk_time);
        let recv = self.template(peer).recv(self.templates.peers.back(step.peer), step.edge);
        let first_arrival = begin + chunk_time + link.latency_ps;
        self.meet_from(peer, recv, (Side::Host, first_arrival), last + link.latency_ps, Some(number));
    }

    /// Carries out a send by the DPU. `is_fetched` says whether the bytes lie in the node's memory. If so,
    /// the DPU fetches them, unless they are few enough to have come with the note that submitted the
    /// operation. It sends each chunk as soon as it has fetched the chunk.
    fn send_by_dpu(&mut self, rank: u32, number: u32, step: &TemplateStep, now: u64, is_fetched: bool) {
        let dpu = self.dpu().expect("it carries the step out");
        let (peer, node, at) = (self.peer(rank, step), self.node(rank), self.core(rank, dpu));
        let link = &self.network.between;
        self.cores[at] = self.cores[at].max(now) + dpu.slowed(link.overhead_ps);
        let (mut begin, mut fetched) = (self.cores[at], 0);
        if is_fetched && step.bytes > dpu.inline_bytes {
            begin += dpu.round_trip_ps;
            fetched = self.stage(node, begin, step.bytes, dpu);
            begin += self.chunk(step) * dpu.staged_per_byte_ps;
            self.traffic.fetched += step.bytes;
        }
        begin = begin.max(self.shared[node].out);
        let bytes_time = step.bytes * link.per_byte_ps;
        self.shared[node].out = begin + link.gap_ps.max(bytes_time);
        self.traffic.out += step.bytes;
        let last = (begin + bytes_time).max(fetched) + link.latency_ps;
        let recv = self.template(peer).recv(self.templates.peers.back(step.peer), step.edge);
        self.meet_from(peer, recv, (Side::Dpu, last), last, Some(number));
    }

    /// Passes bytes through the memory of the node's DPU. Returns the time at which the last byte is through.
    fn stage(&mut self, node: usize, now: u64, bytes: u64, dpu: Dpu) -> u64 {
        let staging = &mut self.shared[node].staging;
        *staging = (*staging).max(now) + bytes * dpu.staged_per_byte_ps;
        *staging
    }

    fn recv(&mut self, rank: u32, number: u32, step: &TemplateStep, now: u64, last_byte: u64, send: u32) {
        let peer = self.peer(rank, step);
        let (link, between) = self.link(rank, peer);
        let bytes_time = step.bytes * link.per_byte_ps;
        let turn = self.turn(rank, now);
        let at = self.processor(rank);
        let (first, done) = if between {
            let node = self.node(rank);
            let begin = self.shared[node].into.max(last_byte - bytes_time);
            self.shared[node].into = begin + link.gap_ps.max(bytes_time);
            self.traffic.into += step.bytes;
            self.processors[at] = turn + link.overhead_ps;
            let done = (begin + bytes_time).max(turn) + link.overhead_ps;
            (if link.streams { turn + link.overhead_ps } else { done }, done)
        } else {
            let chunk_time = self.chunk(step) * link.per_byte_ps;
            let copied = self.copied(rank, turn + link.overhead_ps, step.bytes, link.per_byte_ps);
            self.traffic.within += step.bytes;
            self.processors[at] = copied;
            (turn + link.overhead_ps + chunk_time, copied.max(last_byte + chunk_time))
        };
        self.finish(rank, number, Side::Host, first, done);
        self.finish(peer, send, Side::Host, done, done);
    }

    /// Carries out a receive by the DPU. The DPU writes the bytes that arrive into the node's memory.
    fn recv_by_dpu(
        &mut self,
        rank: u32,
        number: u32,
        step: &TemplateStep,
        now: u64,
        last_byte: u64,
        send: u32,
    ) {
        let dpu = self.dpu().expect("it carries the step out");
        let (peer, node, at) = (self.peer(rank, step), self.node(rank), self.core(rank, dpu));
        let link = &self.network.between;
        let bytes_time = step.bytes * link.per_byte_ps;
        let turn = self.cores[at].max(now);
        let begin = self.shared[node].into.max(last_byte - bytes_time);
        self.shared[node].into = begin + link.gap_ps.max(bytes_time);
        self.traffic.into += step.bytes;
        let staged = self.stage(node, begin, step.bytes, dpu);
        let overhead = dpu.slowed(link.overhead_ps);
        self.cores[at] = turn + overhead;
        let done = (begin + bytes_time).max(turn).max(staged) + overhead;
        self.finish(rank, number, Side::Dpu, done, done);
        self.finish(peer, send, Side::Dpu, done, done);
    }

    /// Returns the time at which a processor that starts at `now` has copied or reduced `bytes` bytes. It may
    /// have to wait for the node's memory, which all processors of the node share.
    fn copied(&mut self, rank: u32, now: u64, bytes: u64, per_byte: u64) -> u64 {
        let node = self.node(rank);
        let memory = &mut self.shared[node].memory;
        *memory = (*memory).max(now) + bytes * self.network.memory_per_byte_ps;
        (now + bytes * per_byte).max(*memory)
    }

    fn compute(
        &mut self,
        rank: u32,
        number: u32,
        step: &TemplateStep,
        (side, now): (Side, u64),
        last_byte: u64,
        host_per_byte: u64,
    ) {
        let (turn, whole, per_byte);
        match (side, self.dpu()) {
            (Side::Dpu, Some(dpu)) => {
                let at = self.core(rank, dpu);
                per_byte = dpu.slowed(host_per_byte);
                turn = self.cores[at].max(now);
                whole = turn + step.bytes * per_byte;
                self.cores[at] = whole;
            }
            _ => {
                per_byte = host_per_byte;
                turn = self.turn(rank, now);
                whole = self.copied(rank, turn, step.bytes, per_byte);
                let at = self.processor(rank);
                self.processors[at] = whole;
            }
        }
        let chunk_time = self.chunk(step) * per_byte;
        self.finish(rank, number, side, turn + chunk_time, whole.max(last_byte + chunk_time));
    }

    /// Meets a condition of each step that waits for the step `number`: at the time `first`, when its first
    /// chunk is done, for a step that follows it byte by byte, and at `done`, when all is done, for the
    /// others.
    fn finish(&mut self, rank: u32, number: u32, side: Side, first: u64, done: u64) {
        let news = self.dpu().filter(|_| side == Side::Dpu).map_or(0, |dpu| dpu.round_trip_ps / 2);
        self.end = self.end.max(done + news);
        for (waiting, streaming) in self.template(rank).waiting(number) {
            let (ready, last_byte) = if streaming { (first, done) } else { (done, 0) };
            self.meet(rank, waiting, side, ready, last_byte);
        }
    }
}

fn dpu_of(network: &Network) -> Option<Dpu> {
    match network.proxies {
        Some(Proxies::Dpu(dpu, _)) => Some(dpu),
        _ => None,
    }
}

/// Returns the number of proxies on each node that carry out the steps of its ranks. None if the ranks
/// themselves or the DPU carry the steps out.
fn host_proxies_per_node(network: &Network) -> Option<u32> {
    match network.proxies {
        Some(Proxies::Host(per_node) | Proxies::Dpu(_, StepsWithinNode::Proxies(per_node))) => Some(per_node),
        _ => None,
    }
}
