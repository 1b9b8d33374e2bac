// SPDX-License-Identifier: BSD-3-Clause
//! Tests of messages between two ranks, on one node and between nodes. Receives are shorter or longer than
//! the message, or are withdrawn at any time and followed by others. Sends are abandoned, and proxies die.

use super::algorithms::{give_some_dpus, some_nodes, turn_node};
use super::network::{End, Packets};
use super::seeds::seeds;
use super::{Home, Job};
use crate::{Binding, Cut, InstanceTicket, Offload, Start};
use datatype::Buffer;
use error::Class;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use schedule::Schedule;
use schedule::algorithm::Neighbors;
use std::sync::Arc;

const HOMES: [Home; 4] = [Home::Private, Home::Arena, Home::Gaps, Home::ArenaGaps];
const LENGTHS: [usize; 6] = [0, 1, 40, 128, 3000, 12_000];

/// What is to become of a message in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Received,
    /// The receive is withdrawn if its bytes have not started to come. Another receive of the same message
    /// follows.
    Withdrawn,
    /// No receive takes the message, perhaps because one was withdrawn. The sender gives it up.
    Abandoned,
}

#[derive(Debug)]
struct Message {
    sender: u32,
    receiver: u32,
    number: u32,
    data: Vec<u8>,
    capacity: usize,
    fate: Fate,
    send: Side,
    receive: Side,
    /// Whether the receive was withdrawn.
    is_withdrawn: bool,
}

#[derive(Debug)]
enum Side {
    Waiting,
    Running(InstanceTicket, Buffer),
    Over,
}

impl Message {
    fn random(rng: &mut SmallRng, ranks: u32, number: u32) -> Message {
        let sender = rng.random_range(0..ranks);
        let receiver = (sender + rng.random_range(1..ranks)) % ranks;
        let bytes = *LENGTHS.choose(rng).unwrap();
        let capacity = if rng.random() { bytes } else { *LENGTHS.choose(rng).unwrap() };
        let fate = *[Fate::Received, Fate::Received, Fate::Withdrawn, Fate::Abandoned].choose(rng).unwrap();
        let data = (0..bytes).map(|_| rng.random_range(0..200)).collect();
        let (send, receive) = (Side::Waiting, Side::Waiting);
        Message { sender, receiver, number, data, capacity, fate, send, receive, is_withdrawn: false }
    }

    fn is_over(&self) -> bool {
        let is_received = self.fate == Fate::Abandoned && !matches!(self.receive, Side::Running(..))
            || matches!(self.receive, Side::Over);
        matches!(self.send, Side::Over) && is_received
    }

    fn start(&self, job: &mut Job, sends: bool, plans: &[Arc<Schedule>; 2], rng: &mut SmallRng) -> Side {
        let rank = &mut job.ranks[if sends { self.sender } else { self.receiver } as usize];
        let data = if sends { self.data.clone() } else { vec![0xee; self.capacity] };
        let buffer = rank.buffer(&data, *HOMES.choose(rng).unwrap());
        let cut = Cut::Even { block_bytes: buffer.bytes() as u64 };
        let bound = Binding::Whole { buffer: buffer.clone(), cut };
        let (input, output) = if sends { (bound, Binding::None) } else { (Binding::None, bound) };
        let start = Start {
            context: 900,
            sequence: self.number,
            peers: Arc::from([self.sender, self.receiver]),
            schedule: plans[usize::from(sends)].clone(),
            input,
            output,
            reduction: None,
            offload: *[Offload::On, Offload::On, Offload::Off].choose(rng).unwrap(),
            fetched_bytes_min: 0,
            message: true,
        };
        Side::Running(rank.executor.start(start).unwrap(), buffer)
    }

    /// Makes the next random step with the message: starts its send or its receive, withdraws the receive,
    /// gives the send up, or does nothing.
    fn step(&mut self, jobs: &mut [Job], node_of: &[u32], plans: &[Arc<Schedule>; 2], rng: &mut SmallRng) {
        let there = node_of[self.sender as usize] as usize;
        let here = node_of[self.receiver as usize] as usize;
        match rng.random_range(0..3) {
            0 => match self.send {
                Side::Waiting => self.send = self.start(&mut jobs[there], true, plans, rng),
                Side::Running(ticket, _) if self.fate == Fate::Abandoned => {
                    let is_wanted = matches!(self.receive, Side::Running(..)) || !self.is_withdrawn;
                    if !is_wanted {
                        jobs[there].ranks[self.sender as usize].executor.abandon(ticket);
                    }
                }
                _ => (),
            },
            1 => {
                if let Side::Waiting = self.receive
                    && !(self.fate == Fate::Abandoned && self.is_withdrawn)
                {
                    self.receive = self.start(&mut jobs[here], false, plans, rng);
                }
            }
            _ => {
                if let Side::Running(ticket, _) = self.receive
                    && self.fate != Fate::Received
                    && !self.is_withdrawn
                    && rng.random_ratio(1, 3)
                {
                    let executor = &mut jobs[here].ranks[self.receiver as usize].executor;
                    let answer = executor.withdraw(ticket);
                    self.is_withdrawn = answer == Some(true);
                    if answer == Some(false) {
                        self.fate = Fate::Received;
                    }
                }
            }
        }
    }

    /// Checks what has ended on the rank `rank`: the send, the receive, or neither.
    fn look(&mut self, job: &mut Job, rank: u32) {
        let memory = &mut job.ranks[rank as usize];
        if rank == self.sender
            && let Side::Running(ticket, _) = self.send
            && let Some(outcome) = memory.executor.outcome(ticket)
        {
            outcome.unwrap();
            self.send = Side::Over;
        }
        let Side::Running(ticket, buffer) = &self.receive else { return };
        if rank != self.receiver {
            return;
        }
        let Some(outcome) = memory.executor.outcome(*ticket) else { return };
        let data = memory.data(buffer);
        // The first receive was withdrawn, and this is its end.
        if self.is_withdrawn && self.fate != Fate::Received {
            assert!(data.iter().all(|byte| *byte == 0xee), "a withdrawn receive was written");
            outcome.unwrap();
            self.receive = Side::Waiting;
            if self.fate == Fate::Withdrawn {
                self.fate = Fate::Received;
            }
            return;
        }
        let taken = self.data.len().min(self.capacity);
        assert_eq!(data[..taken], self.data[..taken]);
        assert!(data[taken..].iter().all(|byte| *byte == 0xee));
        match outcome {
            Ok(()) => assert!(self.data.len() <= self.capacity),
            Err(error) => {
                assert_eq!(error.class, Class::Truncate);
                assert!(self.data.len() > self.capacity, "{error}");
            }
        }
        self.receive = Side::Over;
    }
}

/// Runs a random job. Returns how many operations ranks took back, how many packets passed between nodes, and
/// how many operations proxies on other computers have carried out.
fn run(seed: u64) -> [u64; 3] {
    let rng = &mut SmallRng::seed_from_u64(seed);
    let ranks = rng.random_range(2..=4);
    let nodes = rng.random_range(1..=3);
    let (config, node_of, mut jobs) = some_nodes(rng, ranks as usize, nodes);
    give_some_dpus(&mut jobs, &config, rng);
    let side = |rank, to, from| Arc::new(Neighbors { rank, size: 2, to, from, paired: false }.plan(false));
    let plans = [side(1, vec![], vec![Some(0)]), side(0, vec![Some(1)], vec![])];
    let mut packets = Packets { bytes_max: *[64, 1000, 16 << 10].choose(rng).unwrap(), ..Packets::default() };
    let mut unheard = vec![];
    let mut messages: Vec<Message> =
        (0..rng.random_range(1..=6)).map(|number| Message::random(rng, ranks, number)).collect();
    messages.shuffle(rng);
    for _ in 0..400_000 {
        if messages.iter().all(Message::is_over) {
            let all = jobs.iter().flat_map(|job| &job.ranks);
            let recovered = all.map(|rank| rank.executor.counters().recovered).sum();
            let ended_elsewhere = jobs.iter().map(Job::ended_elsewhere).sum();
            return [recovered, packets.carried, ended_elsewhere];
        }
        match rng.random_range(0..8) {
            0 => {
                let at = rng.random_range(0..messages.len());
                messages[at].step(&mut jobs, &node_of, &plans, rng);
            }
            1..4 => {
                let rank = rng.random_range(0..ranks);
                let job = &mut jobs[node_of[rank as usize] as usize];
                let executor = &mut job.ranks[rank as usize].executor;
                executor.poll();
                executor.exchange(&mut End { packets: &mut packets, own: rank, rng }).unwrap();
                messages.iter_mut().for_each(|message| message.look(job, rank));
            }
            _ => turn_node(&mut jobs, &mut packets, &mut unheard, rng),
        }
    }
    panic!("the job hangs: {messages:?}");
}

#[test]
fn messages_arrive_once_whatever_receivers_and_proxies_do() {
    let mut sums = [0; 3];
    let are_all = seeds(1500, |seed| {
        let counts = run(seed);
        sums = std::array::from_fn(|i| sums[i] + counts[i]);
    });
    eprintln!("{sums:?}");
    if !are_all {
        return;
    }
    assert!(sums[0] > 100, "only {} operations were recovered", sums[0]);
    assert!(sums[1] > 10_000, "only {} packets went between nodes", sums[1]);
    assert!(sums[2] > 500, "only {} operations were carried out on other computers", sums[2]);
}
