// SPDX-License-Identifier: BSD-3-Clause
//! Simulates messages and packets between the nodes of a job. Many can be under way at once, and each arrives
//! at a random time. Only packets from one process to another keep their order.

use crate::note::{EdgePort, Lease};
use crate::{EdgeMessage, EdgeOutcome, Executor};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use sys::{Block, Span};
use transport::route::{Header, Pull, RemoteRange, Sent};

/// The name of a message: sender, receiver, context and tag.
type Key = (u32, u32, u64, i32);

#[derive(Default)]
pub struct Network {
    /// The messages that schedules need, each with the rank that needs it.
    wanted: Vec<(u32, EdgeMessage)>,
    under_way: Vec<(Key, Vec<u8>)>,
    /// The number of messages that have arrived.
    pub carried: u64,
}

fn key(rank: u32, edge: &EdgeMessage) -> Key {
    let (from, to) = if edge.is_send { (rank, edge.peer) } else { (edge.peer, rank) };
    (from, to, edge.context, edge.tag)
}

impl Network {
    /// Adds to `wanted` the messages that the rank's executor needs.
    pub fn take(&mut self, rank: u32, executor: &mut Executor) {
        self.wanted.extend(std::iter::from_fn(|| executor.next_edge()).map(|edge| (rank, edge)));
    }

    /// Whether no message is needed, and none is under way.
    pub fn is_idle(&self) -> bool {
        self.wanted.is_empty() && self.under_way.is_empty()
    }

    /// Chooses a needed message. Lets it leave if it is a send, or arrive if it is a receive whose message
    /// has left.
    pub fn step<'a>(&mut self, rng: &mut SmallRng, executor: impl FnOnce(u32) -> &'a mut Executor) {
        if self.wanted.is_empty() {
            return;
        }
        let at = rng.random_range(0..self.wanted.len());
        let (rank, edge) = self.wanted[at];
        let mut bytes = vec![0; edge.span.bytes()];
        let outcome = if edge.is_send {
            edge.span.read(&mut bytes);
            self.under_way.push((key(rank, &edge), bytes));
            EdgeOutcome::Moved(edge.span.bytes() as u64)
        } else {
            let Some(found) = self.under_way.iter().position(|(one, _)| *one == key(rank, &edge)) else {
                return;
            };
            let (_, bytes) = self.under_way.swap_remove(found);
            self.carried += 1;
            if bytes.len() > edge.span.bytes() {
                EdgeOutcome::Longer
            } else {
                edge.span.slice(0, bytes.len()).write(&bytes);
                EdgeOutcome::Moved(bytes.len() as u64)
            }
        };
        self.wanted.swap_remove(at);
        executor(rank).edge_ended(&edge, outcome);
    }
}

/// The packets under way from one process to another, in their order.
type Queue = VecDeque<(Header, Vec<u8>)>;

/// The packets and reads under way in a simulated network.
#[derive(Default)]
pub struct Packets {
    pub queues: BTreeMap<(u32, u32), Queue>,
    pub bytes_max: usize,
    /// The number of packets that have arrived.
    pub carried: u64,
    /// The memory that processes have exposed for reads; the index is the key. An entry has the owner, the
    /// memory, and a reference that ends when the owner gives up its lease of the memory.
    pub exposed: Vec<(u32, Span, Weak<()>)>,
    pub pulls: Vec<UnderWay>,
    /// The number of reads that have brought all their bytes.
    pub pulled: u64,
}

/// A read from exposed memory that a process has started and that has not ended.
pub struct UnderWay {
    own: u32,
    token: u32,
    key: usize,
    at: usize,
    to: Span,
}

/// One process's access to the simulated network: the process `own` sends, receives and reads by it.
pub struct End<'a> {
    pub packets: &'a mut Packets,
    pub own: u32,
    pub rng: &'a mut SmallRng,
}

impl Packets {
    /// Ends the process `dead`. Some of the packets that it sent last never arrive, and no packet reaches it.
    pub fn lose(&mut self, dead: u32, rng: &mut SmallRng) {
        for ((from, to), queue) in &mut self.queues {
            if *from == dead && !queue.is_empty() {
                queue.truncate(rng.random_range(0..=queue.len()));
            } else if *to == dead {
                queue.clear();
            }
        }
        self.pulls.retain(|pull| pull.own != dead);
        self.exposed
            .iter_mut()
            .filter(|exposed| exposed.0 == dead)
            .for_each(|exposed| exposed.2 = Weak::new());
    }

    /// Brings some or all bytes of a read. Returns whether all have come. If the memory is not exposed any
    /// more, the bytes are arbitrary.
    fn advance(&mut self, pull: &UnderWay, rng: &mut SmallRng) -> bool {
        let (_, span, lease) = &self.exposed[pull.key];
        let is_there = lease.strong_count() > 0 && rng.random_ratio(19, 20);
        let bytes = if is_there { pull.to.bytes() } else { rng.random_range(0..=pull.to.bytes()) };
        match lease.strong_count() {
            0 => pull.to.slice(0, bytes).write(&vec![0xdd; bytes]),
            _ => span.slice(pull.at, bytes).copy_to(pull.to.slice(0, bytes)),
        }
        self.pulled += u64::from(is_there);
        is_there
    }
}

impl EdgePort for End<'_> {
    fn send(&mut self, to: u32, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        if !self.has_room(to, bytes) || self.rng.random_ratio(1, 5) {
            return Sent::Full;
        }
        let queue = self.packets.queues.entry((self.own, to)).or_default();
        let block = Block::new(bytes);
        fill(block.span());
        queue.push_back((*header, block.to_vec()));
        Sent::Done
    }

    fn has_room(&mut self, to: u32, _bytes: usize) -> bool {
        self.packets.queues.get(&(self.own, to)).is_none_or(|queue| queue.len() <= 3)
    }

    fn take(&mut self, each: impl FnOnce(u32, &Header, Span)) -> bool {
        let ours = |((_, to), queue): &(&(u32, u32), &mut VecDeque<_>)| *to == self.own && !queue.is_empty();
        let some = self.packets.queues.iter_mut().filter(ours).choose(self.rng);
        let Some(((from, _), queue)) = some.filter(|_| self.rng.random_ratio(3, 4)) else { return false };
        let Some((header, bytes)) = queue.pop_front() else { return false };
        self.packets.carried += 1;
        let block = Block::new(bytes.len());
        block.span().write(&bytes);
        each(*from, &header, block.span());
        true
    }

    fn payload_bytes_max(&self) -> usize {
        self.packets.bytes_max
    }

    fn register(&mut self, _span: Span) -> Option<Lease> {
        Some(Lease(Box::new(())))
    }

    fn expose(&mut self, span: Span) -> Option<(RemoteRange, Box<[u8]>, Lease)> {
        if self.rng.random_ratio(1, 50) {
            return None;
        }
        let lease = Arc::new(());
        let far = RemoteRange { base: 0, key: self.packets.exposed.len() as u64, bytes: span.bytes() as u64 };
        self.packets.exposed.push((self.own, span, Arc::downgrade(&lease)));
        let name = self.own.to_ne_bytes();
        Some((far, Box::new(name), Lease(Box::new(lease))))
    }

    fn pull(
        &mut self,
        (from, name): (u32, &[u8]),
        (far, at): (RemoteRange, u64),
        to: Span,
        _own: &Lease,
        token: u32,
    ) -> Pull {
        let (owner, span, _) = &self.packets.exposed[far.key as usize];
        assert!(*owner == from && name == owner.to_ne_bytes());
        assert!(at as usize + to.bytes() <= span.bytes(), "{} bytes from {at} of {span:?}", to.bytes());
        if self.rng.random_ratio(1, 5) {
            return Pull::Full;
        }
        let key = far.key as usize;
        self.packets.pulls.push(UnderWay { own: self.own, token, key, at: at as usize, to });
        Pull::Started
    }

    fn acknowledge(&mut self, (from, _): (u32, &[u8])) {
        let is_reading = |pull: &UnderWay| pull.own == self.own && self.packets.exposed[pull.key].0 == from;
        assert!(!self.packets.pulls.iter().any(is_reading), "{} still reads from {from}", self.own);
    }

    fn pulled(&mut self) -> Option<(u32, bool)> {
        let ours = |(_, pull): &(usize, &UnderWay)| pull.own == self.own;
        let some = self.packets.pulls.iter().enumerate().filter(ours).choose(self.rng);
        let (at, _) = some.filter(|_| self.rng.random_ratio(1, 2))?;
        let pull = self.packets.pulls.swap_remove(at);
        Some((pull.token, self.packets.advance(&pull, self.rng)))
    }

    fn broken(&self) -> Option<String> {
        None
    }
}
