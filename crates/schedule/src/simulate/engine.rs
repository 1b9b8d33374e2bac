//! The events of a simulation: a step whose conditions are met, at the time of the last one. All its times
//! are known when it starts, so there are no other events.
use super::network::Network;
use super::template::{Kind, Step, Template, Templates};
use crate::random::{Mix, Random, mix};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;

/// A rank's processor and ports, and until when they are busy.
#[derive(Clone, Copy, Default)]
struct Rank {
    processor: u64,
    port_out: u64,
    port_in: u64,
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
    ranks: Vec<Rank>,
    pending: HashMap<u64, Pending, BuildHasherDefault<Mix>>,
    /// Time, rank, step; the step `START` starts the rank.
    events: BinaryHeap<Reverse<(u64, u32, u32)>>,
    end: u64,
}

const START: u32 = u32::MAX;

impl<'a> Engine<'a> {
    pub fn new(templates: &'a Templates, network: &'a Network, seed: u64) -> Engine<'a> {
        let start = |rank: u32| match network.skew_ps {
            0 => 0,
            skew => Random(mix(seed) ^ u64::from(rank) << 32).below(skew),
        };
        let ranks = templates.of.len();
        Engine {
            templates,
            network,
            ranks: vec![Rank::default(); ranks],
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

    fn send(&mut self, rank: u32, number: u32, step: &Step, now: u64, last_byte: u64) {
        let network = self.network;
        let this = &mut self.ranks[rank as usize];
        this.processor = this.processor.max(now) + network.overhead_ps;
        let begin = this.processor.max(this.port_out);
        this.port_out = begin + network.gap_ps.max(step.bytes * network.per_byte_ps);
        let chunk_time = self.chunk(step) * network.per_byte_ps;
        let last = (begin + step.bytes * network.per_byte_ps).max(last_byte + chunk_time);
        let (peers, whole) = (self.templates.peers, self.templates.of.len() as u32);
        // One rank may stand for all.
        let peer = if whole == 1 { 0 } else { peers.absolute(rank, step.peer) };
        let recv = self.template(peer).recv(peers.back(step.peer), step.edge);
        let first_arrival = begin + chunk_time + network.latency_ps;
        self.meet_from(peer, recv, first_arrival, last + network.latency_ps, Some(number));
    }

    fn recv(&mut self, rank: u32, number: u32, step: &Step, now: u64, last_byte: u64, send: u32) {
        let network = self.network;
        let this = &mut self.ranks[rank as usize];
        let bytes_time = step.bytes * network.per_byte_ps;
        let begin = this.port_in.max(last_byte - bytes_time);
        this.port_in = begin + network.gap_ps.max(bytes_time);
        let whole = begin + bytes_time;
        let turn = this.processor.max(now);
        this.processor = turn + network.overhead_ps;
        let (first, done) = (turn + network.overhead_ps, whole.max(turn) + network.overhead_ps);
        self.finish(rank, number, first, done);
        let peer =
            if self.templates.of.len() == 1 { 0 } else { self.templates.peers.absolute(rank, step.peer) };
        self.finish(peer, send, done, done);
    }

    fn compute(&mut self, rank: u32, number: u32, step: &Step, now: u64, last_byte: u64, per_byte: u64) {
        let this = &mut self.ranks[rank as usize];
        let turn = this.processor.max(now);
        this.processor = turn + step.bytes * per_byte;
        let (whole, chunk_time) = (this.processor, self.chunk(step) * per_byte);
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
