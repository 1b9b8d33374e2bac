// SPDX-License-Identifier: BSD-3-Clause
//! One process's network: its endpoint, and what it knows of each peer there.
//!
//! Read next: `sequence.rs`, `wire.rs`, `silence.rs`, `net/way.rs`.

mod edges;
mod gone;
mod way;

pub(crate) use edges::EDGE_PULL;

use crate::packet::{Header, Sent};
use crate::sequence::{Arrival, Due, Sequence};
use crate::shm::{PROXY, Segment};
use crate::silence::Silence;
use crate::wire::{ANSWER, CONSUMED, GONE, PROBE, WIRE_BYTES, Wire, is_of_net, payload};
use error::{Class, Result, fail};
use fabric::{Address, Endpoint, Event, Packet};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use sys::{Block, Span};
use telemetry::{Counter, count};

/// A peer is told at the latest when so much more was consumed of its packets.
const TELL_BYTES: u64 = 128 << 10;
/// How often waiting packets and the clock are looked at.
const TICK_NS: u64 = 1_000_000;

/// The endpoint, and the peers.
pub(crate) struct Net {
    pub(crate) endpoint: Endpoint,
    pub(crate) peers: Peers,
    teller: Option<gone::Teller>,
    /// Where peers expose memory, by name.
    targets: HashMap<Box<[u8]>, Address>,
    /// Reused: packets that `pump` gives back at once.
    done: Vec<Packet>,
}

/// What is known of the peers with which there was a packet.
pub(crate) struct Peers {
    rank: u32,
    /// Which of the processes that have had our place we are.
    generation: u32,
    secret: u64,
    /// Where the names of endpoints are.
    segment: Segment,
    /// By place; a peer takes memory from its first packet on.
    all: Vec<Option<Box<Remote>>>,
    ranks: usize,
    /// Peers of which nobody was told yet.
    pub(crate) arrivals: Vec<u32>,
    /// Pulls that have ended, by token, and whether their bytes are there.
    pub(crate) pulled: Vec<(u64, bool)>,
    /// The same of pulls for edges.
    pub(crate) pulled_edges: Vec<(u32, bool)>,
    /// Peers with packets about edges that were not taken.
    pub(crate) edged: Vec<u32>,
    /// Peers that must be told something, since nothing else goes to them.
    untold: Vec<u32>,
    /// Peers that do not have all our packets, as far as we know.
    open: Vec<u32>,
    /// When the clock was last looked at.
    now: u64,
    /// Packets wait for room at a provider that has a way to their peer.
    is_clogged: bool,
}

/// A packet that was not taken yet: in the endpoint's buffer, or a copy.
pub(crate) enum Held {
    Lent(Packet),
    Own(Block),
}

impl Held {
    fn bytes(&self) -> Span {
        match self {
            Held::Lent(packet) => packet.bytes(),
            Held::Own(block) => block.span(),
        }
    }

    pub(crate) fn payload(&self) -> Span {
        payload(self.bytes())
    }
}

#[derive(Default)]
pub(crate) struct Remote {
    /// Which of the processes that had this place one after the other.
    generation: u32,
    address: Option<Address>,
    sequence: Sequence<Block>,
    /// Packets that have not been taken.
    inbox: VecDeque<(Header, Held)>,
    /// The same, about edges.
    edges: VecDeque<(Header, Held)>,
    is_edged: bool,
    /// What it has consumed of ours, as it last said.
    consumed: u64,
    /// What we have consumed of its packets, and what it knows of that.
    returned: u64,
    told: u64,
    /// Whether `arrivals` has told of it.
    is_writer: bool,
    is_untold: bool,
    is_open: bool,
    /// Whether any packet of it has come; until then, when it is asked next, and how long we have waited.
    is_heard: bool,
    asked_next: u64,
    silence: Silence,
    /// Since when nothing reaches it any more, and why.
    lost: Option<(u64, String)>,
    /// The same reason, until it is told.
    fault: Option<String>,
}

impl Net {
    pub(crate) fn new(endpoint: Endpoint, segment: &Segment, number: u32) -> Net {
        let peers = Peers {
            rank: number,
            generation: segment.generation(number),
            segment: segment.clone(),
            secret: segment.job().secret.load(Ordering::Relaxed),
            all: (0..segment.shape().ranks).map(|_| None).collect(),
            ranks: segment.shape().ranks as usize,
            arrivals: Vec::new(),
            pulled: Vec::new(),
            pulled_edges: Vec::new(),
            edged: Vec::new(),
            untold: Vec::new(),
            open: Vec::new(),
            now: sys::clock::now(),
            is_clogged: false,
        };
        let teller = gone::Teller::of(segment, number);
        Net { endpoint, peers, teller, targets: HashMap::new(), done: Vec::new() }
    }

    /// Whether nothing waits to leave that could leave now.
    pub(crate) fn is_idle(&self) -> bool {
        let has_news = self.teller.as_ref().is_some_and(|teller| teller.has_news);
        self.peers.untold.is_empty() && !self.peers.is_clogged && !has_news
    }

    /// Sends a packet. A promised one is never refused.
    pub(crate) fn send(
        &mut self,
        number: u32,
        is_promised: bool,
        header: &Header,
        bytes: usize,
        fill: impl FnOnce(Span),
    ) -> Sent {
        let refused = if is_promised { Sent::Done } else { Sent::Full };
        let Some(address) = self.resolve(number) else { return refused };
        if !is_promised && !self.is_met(number) {
            return Sent::Full;
        }
        let whole = WIRE_BYTES + bytes;
        let wire = self.peers.wire(number, *header);
        let peer = self.peers.at(number);
        if !is_promised && !peer.sequence.has_room(1, whole) {
            return Sent::Full;
        }
        // Where the packet was written last: `fill` writes once.
        let (mut fill, at) = (Some(fill), Cell::new(None));
        let mut write = |to: Span| {
            match (fill.take(), at.replace(Some(to))) {
                (Some(fill), _) => {
                    wire.write(to);
                    fill(to.slice(WIRE_BYTES, bytes));
                }
                (None, from) => from.into_iter().for_each(|from: Span| from.copy_to(to)),
            };
        };
        let must_queue = peer.sequence.unsent().is_some();
        let answer = match must_queue {
            true => Ok(fabric::Sent::Full),
            false => self.endpoint.send(address, whole, &mut write),
        };
        let is_away = match answer {
            Ok(answer) => answer == fabric::Sent::Done,
            Err(error) => {
                self.peers.lose(number, &error.message);
                return refused;
            }
        };
        let keeps = peer.sequence.keeps() || must_queue || is_promised && !is_away;
        if !is_away && !keeps {
            return Sent::Full;
        }
        let copy = keeps.then(|| {
            let block = Block::new(whole);
            write(block.span());
            (block, whole)
        });
        peer.sequence.sent(copy, is_away);
        peer.told = wire.consumed;
        if !std::mem::replace(&mut peer.is_open, true) {
            self.peers.open.push(number);
        }
        Sent::Done
    }

    /// Whether so many packets of so many bytes in all may be promised.
    pub(crate) fn has_room(&mut self, number: u32, packets: usize, bytes: usize) -> bool {
        if self.resolve(number).is_none() || !self.is_met(number) {
            return false;
        }
        let free = self.endpoint.free_sends();
        let sequence = &self.peers.at(number).sequence;
        sequence.has_room(packets, bytes) && (sequence.keeps() || free >= packets)
    }

    /// Sends a packet that is not counted; whether it left.
    fn send_loose(&mut self, number: u32, header: Header) -> bool {
        self.resolve(number).is_some_and(|address| self.send_loose_to(address, number, header))
    }

    /// The same to one of a peer's addresses.
    fn send_loose_to(&mut self, address: Address, number: u32, header: Header) -> bool {
        let wire = self.peers.wire(number, header);
        matches!(self.endpoint.send(address, WIRE_BYTES, |to| wire.write(to)), Ok(fabric::Sent::Done))
    }

    /// The next packet of a peer. Errors (MPI_ERR_PROC_ABORTED): the way to it has ended; told once.
    pub(crate) fn take(&mut self, number: u32) -> Result<Option<(Header, Held)>> {
        let Some(peer) = self.peers.get_mut(number) else { return Ok(None) };
        if let Some(next) = peer.inbox.pop_front() {
            return Ok(Some(next));
        }
        let Some(fault) = peer.fault.take() else { return Ok(None) };
        let (rank, provider) = (self.peers.rank, self.endpoint.provider());
        let there = match self.peers.segment.endpoint(number).and_then(|name| provider.peer_address(&name)) {
            Some(address) => format!(" at {address}"),
            None => String::new(),
        };
        let (host, node) = (sys::host::name(), self.peers.segment.node_of(number));
        let sentence = format!(
            "rank {rank} on {host} by {provider} has lost rank {number} on host number {node}{there}: {fault}"
        );
        fail!(Class::ProcAborted, "{sentence}")
    }

    /// Begins anew with a peer if another process has its place now.
    pub(crate) fn renew(&mut self, number: u32) {
        let generation = self.peers.segment.generation(number);
        if let Some(peer) = self.peers.get_mut(number).filter(|peer| peer.generation < generation) {
            peer.renew(generation).into_iter().for_each(|packet| self.endpoint.release(packet));
        }
    }

    pub(crate) fn release(&mut self, packet: Held) {
        if let Held::Lent(packet) = packet {
            self.endpoint.release(packet);
        }
    }

    /// Drives the endpoint, files what has arrived, and sends what is due.
    pub(crate) fn pump(&mut self) {
        // Before the next packets come: what left since the last time has told most.
        if !self.peers.untold.is_empty() {
            self.tell_all();
        }
        let Net { endpoint, peers, done, .. } = self;
        let polled = endpoint.poll(|event| match event {
            Event::Packet(packet) => peers.file(packet, done),
            Event::Undelivered(to, said) => peers.undelivered(to, &said),
            Event::Accessed(token) => peers.pull_ended(token, true),
            Event::Failed(token, _) => peers.pull_ended(token, false),
        });
        done.drain(..).for_each(|packet| endpoint.release(packet));
        if let Err(error) = polled {
            (0..peers.all.len())
                .filter(|place| peers.all[*place].is_some())
                .map(|place| peers.number(place))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|number| peers.lose(number, &error.message));
        }
        if self.teller.is_some() {
            self.tell_of_proxy();
        }
        if !self.peers.open.is_empty() {
            self.look_after_open();
        }
    }

    /// Answers peers, and tells them what was consumed. One that cannot be reached keeps no other waiting.
    fn tell_all(&mut self) {
        for number in std::mem::take(&mut self.peers.untold) {
            if self.tell(number) {
                self.peers.at(number).is_untold = false;
            } else {
                self.peers.untold.push(number);
            }
        }
    }

    /// Whether the peer knows everything, or never will.
    fn tell(&mut self, number: u32) -> bool {
        let Some(peer) = self.peers.get(number) else { return true };
        if peer.lost.is_some() {
            return true;
        }
        if peer.must_tell() {
            let header = Header { kind: CONSUMED, tag: 0, context: 0 };
            if self.send(number, false, &header, 0, |_| ()) == Sent::Full {
                return false;
            }
        }
        let Some(asked) = self.peers.at(number).sequence.owes() else { return true };
        let header =
            Header { kind: ANSWER, tag: asked.is_some().into(), context: asked.unwrap_or_default().into() };
        let is_told = self.send_loose(number, header);
        if is_told {
            self.peers.at(number).sequence.paid();
        }
        is_told
    }

    /// Sends packets that wait, and probes to peers that say nothing.
    fn look_after_open(&mut self) {
        let now = sys::clock::now();
        let is_early = now < self.peers.now + TICK_NS;
        if is_early && !self.peers.is_clogged {
            return;
        }
        self.peers.now = now;
        self.peers.is_clogged = false;
        for i in (0..self.peers.open.len()).rev() {
            let number = self.peers.open[i];
            self.peers.lose_if_gone(number);
            self.flush(number);
            if self.look_after(number, now) {
                self.peers.open.swap_remove(i);
                self.peers.at(number).is_open = false;
            }
        }
    }

    /// Whether a peer needs no looking after any more.
    fn look_after(&mut self, number: u32, now: u64) -> bool {
        let Some(peer) = self.peers.get_mut(number) else { return true };
        if peer.lost.is_some() {
            return true;
        }
        match peer.sequence.tick(now) {
            Due::Settled if peer.is_heard => return true,
            Due::Settled | Due::Waiting => {}
            Due::Probe => {
                self.send_loose(number, Header { kind: PROBE, tag: 0, context: 0 });
            }
            Due::Lost(packet) => {
                let why = format!("packet {packet} to it did not arrive, nor those after it");
                self.peers.lose(number, &why);
            }
        }
        let (segment, provider) = (self.peers.segment.clone(), self.endpoint.provider());
        let Some(Remote { is_heard: false, silence, .. }) = self.peers.get_mut(number) else {
            return false;
        };
        let there = || segment.endpoint(number).and_then(|name| provider.peer_address(&name));
        if let Some(why) = silence.look(now, provider.core() == "tcp", there) {
            self.peers.lose(number, &why);
        }
        false
    }

    /// Sends what waits for a peer, in its order.
    fn flush(&mut self, number: u32) {
        let Some(peer) = self.peers.get_mut(number) else { return };
        let (Some(address), None) = (peer.address, &peer.lost) else { return };
        while let Some((_, (block, bytes))) = peer.sequence.unsent() {
            match self.endpoint.send(address, *bytes, |to| block.span().copy_to(to)) {
                Ok(fabric::Sent::Done) => peer.sequence.left(),
                Ok(fabric::Sent::Full) => {
                    self.peers.is_clogged |= peer.sequence.is_answered();
                    return;
                }
                Err(error) => return self.peers.lose(number, &error.message),
            }
        }
    }
}

impl Peers {
    fn get(&self, number: u32) -> Option<&Remote> {
        self.all.get(self.place(number))?.as_deref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Remote> {
        let place = self.place(number);
        self.all.get_mut(place)?.as_deref_mut()
    }

    /// The record of a peer, which begins with this.
    pub(crate) fn at(&mut self, number: u32) -> &mut Remote {
        let segment = &self.segment;
        let begin = || Box::new(Remote { generation: segment.generation(number), ..Remote::default() });
        let place = self.place(number);
        if place >= self.all.len() {
            self.all.resize_with(place + 1, || None);
        }
        self.all[place].get_or_insert_with(begin)
    }

    /// Which of the processes that have had a peer's place it is, as far as its packets have told.
    pub(crate) fn generation(&self, number: u32) -> u32 {
        self.get(number).map_or(0, |peer| peer.generation)
    }

    /// The header of the next packet to a peer.
    fn wire(&mut self, number: u32, header: Header) -> Wire {
        let (source, generation, secret) = (self.rank, self.generation, self.secret);
        let peer = self.at(number);
        let (consumed, mut stamp) = (peer.returned, peer.sequence.stamp());
        stamp.wants_answer |= peer.moves_window(&header, stamp.number);
        Wire { source, generation, header, secret, consumed, stamp }
    }

    pub(crate) fn has_packet(&self, number: u32) -> bool {
        self.get(number).is_some_and(|peer| !peer.inbox.is_empty())
    }

    pub(crate) fn consumed(&self, number: u32) -> u64 {
        self.get(number).map_or(0, |peer| peer.consumed)
    }

    pub(crate) fn consume(&mut self, number: u32, amount: u64) {
        let peer = self.at(number);
        peer.returned = peer.returned.wrapping_add(amount);
        if peer.must_tell() && !std::mem::replace(&mut peer.is_untold, true) {
            self.untold.push(number);
        }
    }

    /// Where a peer is that is not lost.
    pub(crate) fn address(&self, number: u32) -> Option<Address> {
        self.get(number).filter(|peer| peer.lost.is_none())?.address
    }

    pub(crate) fn put_back(&mut self, number: u32, header: Header, packet: Held) {
        self.at(number).inbox.push_front((header, packet));
    }

    pub(crate) fn forget_arrivals(&mut self) {
        let is_writer = |number: &u32| self.get(*number).is_some_and(|peer| peer.is_writer);
        self.arrivals = (0..self.ranks as u32).filter(is_writer).collect();
    }

    /// The place of a peer's record: those of proxies follow those of ranks.
    fn place(&self, number: u32) -> usize {
        match number & PROXY {
            0 => number as usize,
            _ => self.ranks + (number & !PROXY) as usize,
        }
    }

    fn number(&self, place: usize) -> u32 {
        if place < self.ranks { place as u32 } else { PROXY | (place - self.ranks) as u32 }
    }

    /// Takes a packet up. `done` gets what nobody needs any more.
    fn file(&mut self, packet: Packet, done: &mut Vec<Packet>) {
        let wire = Wire::read(packet.bytes(), self.secret)
            .filter(|wire| wire.source != self.rank && self.segment.is_endpoint(wire.source));
        let Some(wire) = wire else {
            count(Counter::NetRefused, 1);
            return done.push(packet);
        };
        let now = self.now;
        if wire.header.kind == GONE {
            // It comes again at worst; what it says does not change.
            gone::hear(&self.segment, &wire);
        }
        let peer = self.at(wire.source);
        if wire.generation < peer.generation {
            // What an ended process said last means nothing any more.
            return done.push(packet);
        }
        if wire.generation > peer.generation {
            done.extend(peer.renew(wire.generation));
        }
        if !peer.sequence.answer(wire.stamp.answered, now) {
            count(Counter::NetRefused, 1);
            return done.push(packet);
        }
        peer.is_heard = true;
        // An old packet says less than is known.
        if (wire.consumed.wrapping_sub(peer.consumed) as i64) > 0 {
            peer.consumed = wire.consumed;
        }
        let must_flush = match wire.header.kind {
            PROBE | ANSWER => {
                done.push(packet);
                peer.asked_or_answered(&wire, now)
            }
            _ => {
                done.extend(peer.arrive(&wire, packet));
                false
            }
        };
        let is_new = !peer.inbox.is_empty() && !std::mem::replace(&mut peer.is_writer, true);
        let is_owed = peer.sequence.owes().is_some() && !std::mem::replace(&mut peer.is_untold, true);
        let is_edge = !peer.edges.is_empty() && !std::mem::replace(&mut peer.is_edged, true);
        self.arrivals.extend(is_new.then_some(wire.source));
        self.edged.extend(is_edge.then_some(wire.source));
        self.untold.extend(is_owed.then_some(wire.source));
        self.is_clogged |= must_flush;
    }
}

impl Remote {
    fn must_tell(&self) -> bool {
        self.returned.wrapping_sub(self.told) >= TELL_BYTES
    }

    /// Another process has the place now. Returns what the one before has left in the inbox.
    fn renew(&mut self, generation: u32) -> Vec<Packet> {
        // Its first packet is told of as that of any peer: the lane to it must begin anew before.
        let Remote { is_open, is_untold, is_edged, .. } = *self;
        let anew = Remote { generation, is_open, is_untold, is_edged, ..Remote::default() };
        let before = std::mem::replace(self, anew);
        let lent = |(_, packet)| if let Held::Lent(packet) = packet { Some(packet) } else { None };
        before.inbox.into_iter().chain(before.edges).filter_map(lent).collect()
    }

    /// A packet that is counted. Gives it back if nobody needs it any more.
    fn arrive(&mut self, wire: &Wire, packet: Packet) -> Option<Packet> {
        match self.sequence.arrive(wire.stamp) {
            Arrival::Next => {
                let left = if is_of_net(&wire.header) {
                    Some(packet)
                } else {
                    self.queue(&wire.header).push_back((wire.header, Held::Lent(packet)));
                    None
                };
                while let Some(early) = self.sequence.next_early() {
                    let header = Wire::read(early.span(), wire.secret).map(|wire| wire.header);
                    let Some(header) = header.filter(|header| !is_of_net(header)) else { continue };
                    self.queue(&header).push_back((header, Held::Own(early)));
                }
                return left;
            }
            Arrival::Early => {
                count(Counter::NetEarly, 1);
                let bytes = packet.bytes().bytes();
                let copy = Block::new(bytes);
                packet.bytes().copy_to(copy.span());
                self.sequence.keep_early(wire.stamp.number, copy, bytes);
            }
            Arrival::Repeated => count(Counter::NetRepeated, 1),
            Arrival::Refused => count(Counter::NetRefused, 1),
        }
        Some(packet)
    }

    /// A packet that is not counted. Whether packets must leave again.
    fn asked_or_answered(&mut self, wire: &Wire, now: u64) -> bool {
        let Header { kind, tag, context } = wire.header;
        if kind == PROBE {
            if !self.sequence.probed(wire.stamp.number) {
                count(Counter::NetRefused, 1);
            }
            return false;
        }
        if tag == 0 {
            return false;
        }
        let again = self.sequence.probe_answered(wire.stamp.answered, context as u32, now);
        count(Counter::NetResent, again as u64);
        again > 0
    }
}
