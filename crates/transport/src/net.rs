// SPDX-License-Identifier: BSD-3-Clause
//! The network of one process: its endpoint, and a record of each peer on other hosts.
//!
//! `Net::send` numbers and sends packets. `Net::pump` drives the endpoint: `Peers::file_packet` puts each
//! packet that has come into a queue of its sender. Then answers, probes and packets that waited for room are
//! sent. A packet stays in the endpoint's buffer until it is taken and released.
//!
//! Read next: `sequence.rs` (numbers), `wire.rs` (the header), `net/contact.rs` (contact with a peer),
//! `net/edges.rs`, `silence.rs`.

mod contact;
mod edges;
mod proxy_end;

pub(crate) use edges::EDGE_PULL;

use crate::packet::{Header, Sent};
use crate::sequence::{Arrival, Due, Sequence};
use crate::shm::{PROXY, Segment};
use crate::silence::Silence;
use crate::wire::{ANSWER, CONSUMED, GONE, PROBE, WIRE_BYTES, Wire, ends_in_net, payload};
use error::{Class, Result, fail};
use fabric::{Address, Endpoint, Event, Packet};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use sys::{Block, Span};
use telemetry::{Counter, count};

/// How many bytes from one sender this process consumes before it sends that sender the next report.
const REPORT_BYTES: u64 = 128 << 10;
/// How often this process sends waiting packets and checks the timers of its peers, in nanoseconds.
const TICK_NS: u64 = 1_000_000;

/// One process's endpoint in the network, and its record of each peer on another host.
pub(crate) struct Net {
    pub(crate) endpoint: Endpoint,
    pub(crate) peers: Peers,
    proxy_end_reports: Option<proxy_end::ProxyEndReports>,
    /// The addresses at which peers expose memory, by the endpoint names that the peers have sent.
    targets: HashMap<Box<[u8]>, Address>,
    /// Packets that `pump` is about to release; otherwise empty. A field only to reuse the vector's memory.
    done: Vec<Packet>,
}

/// The records of the peers with which this process has exchanged packets.
pub(crate) struct Peers {
    rank: u32,
    /// The number of this process's world (`Segment::generation`).
    generation: u32,
    secret: u64,
    /// The host's segment, from which this process learns the names of its peers' endpoints.
    segment: Segment,
    /// Each peer's record, at `Peers::index`; None before the first packet to or from the peer.
    all: Vec<Option<Box<PeerRecord>>>,
    ranks: usize,
    /// Peers whose first packet has come and which `Port::arrivals` has not reported yet.
    pub(crate) arrivals: Vec<u32>,
    /// The ended pulls (reads of a peer's memory): the token of each, and whether its bytes are there.
    pub(crate) pulled: Vec<(u64, bool)>,
    /// The ended pulls for edges of collectives: the token of each, and whether its bytes are there.
    pub(crate) pulled_edges: Vec<(u32, bool)>,
    /// Peers whose packets about edges of collectives have come and still wait for `take_edge`.
    pub(crate) edge_senders: Vec<u32>,
    /// Peers to which this process still owes an answer or a report of consumed bytes.
    needing_reply: Vec<u32>,
    /// Peers that may lack packets of this process, and peers from which no packet has come.
    unsettled: Vec<u32>,
    /// When `check_unsettled` last read the clock, in nanoseconds of `sys::clock::now`.
    now: u64,
    /// Whether packets to a peer in contact wait here, because the provider had no room for them.
    is_clogged: bool,
}

/// A packet that has come and has not been taken yet. It lies in the endpoint's receive buffer, or in a copy
/// if it came before its turn.
pub(crate) enum HeldPacket {
    InBuffer(Packet),
    Copied(Block),
}

impl HeldPacket {
    fn bytes(&self) -> Span {
        match self {
            HeldPacket::InBuffer(packet) => packet.bytes(),
            HeldPacket::Copied(block) => block.span(),
        }
    }

    pub(crate) fn payload(&self) -> Span {
        payload(self.bytes())
    }
}

#[derive(Default)]
pub(crate) struct PeerRecord {
    /// The number of the peer's world: an earlier process with the same number had another world.
    generation: u32,
    address: Option<Address>,
    sequence: Sequence<Block>,
    /// The point-to-point packets that have come from the peer and wait to be taken.
    inbox: VecDeque<(Header, HeldPacket)>,
    /// The packets about edges of collectives that have come from the peer and wait to be taken.
    edges: VecDeque<(Header, HeldPacket)>,
    /// Whether the peer is in `Peers::edge_senders`: packets wait in `edges`.
    is_edge_sender: bool,
    /// How many bytes of this process's eager messages the peer has consumed, by the peer's last report.
    consumed: u64,
    /// How many bytes of the peer's eager messages this process has consumed.
    consumed_here: u64,
    /// The value of `consumed_here` that the last packet to the peer carried.
    reported_consumed: u64,
    /// Whether the peer was put into `Peers::arrivals` at any time.
    is_in_arrivals: bool,
    /// Whether the peer is in `Peers::needing_reply`: this process owes it an answer or a report.
    needs_reply: bool,
    /// Whether the peer is in `Peers::unsettled`: it may lack packets, or none has come from it.
    is_unsettled: bool,
    /// Whether any packet from the peer has come.
    has_sent: bool,
    /// When to probe the peer next, in nanoseconds; not used once a packet from the peer has come.
    next_probe: u64,
    /// Measures how long the peer has been silent, until a first packet from it comes.
    silence: Silence,
    /// The time in nanoseconds at which the peer was lost, and why. None while the peer is not lost.
    lost: Option<(u64, String)>,
    /// Why the peer is lost, until `Net::take` has returned it as an error; None otherwise.
    unreported_loss: Option<String>,
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
            edge_senders: Vec::new(),
            needing_reply: Vec::new(),
            unsettled: Vec::new(),
            now: sys::clock::now(),
            is_clogged: false,
        };
        let proxy_end_reports = proxy_end::ProxyEndReports::of(segment, number);
        Net { endpoint, peers, proxy_end_reports, targets: HashMap::new(), done: Vec::new() }
    }

    /// Whether this process owes its peers no packet that could leave now. If it owes none, it may sleep.
    pub(crate) fn is_idle(&self) -> bool {
        let is_unfinished = self.proxy_end_reports.as_ref().is_some_and(|reports| reports.is_unfinished);
        self.peers.needing_reply.is_empty() && !self.peers.is_clogged && !is_unfinished
    }

    /// Sends peer `number` a packet with `bytes` bytes of payload, which `fill` writes. Returns `Full` if
    /// there is no room, but never for a packet for which `has_room` has promised room (`is_promised`).
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
        if !is_promised && !self.is_in_contact(number) {
            return Sent::Full;
        }
        let whole = WIRE_BYTES + bytes;
        let wire = self.peers.wire(number, *header);
        let peer = self.peers.at(number);
        if !is_promised && !peer.sequence.has_room(1, whole) {
            return Sent::Full;
        }
        // Where the packet was last written: `fill` writes only once, later calls copy.
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
        let keeps = peer.sequence.stores_copies() || must_queue || is_promised && !is_away;
        if !is_away && !keeps {
            return Sent::Full;
        }
        let copy = keeps.then(|| {
            let block = Block::new(whole);
            write(block.span());
            (block, whole)
        });
        peer.sequence.sent(copy, is_away);
        peer.reported_consumed = wire.consumed;
        if !std::mem::replace(&mut peer.is_unsettled, true) {
            self.peers.unsettled.push(number);
        }
        Sent::Done
    }

    /// Whether there is room to send `packets` packets, of `bytes` bytes in all, to peer `number`. If so, the
    /// caller may send them as promised packets, which are not refused.
    pub(crate) fn has_room(&mut self, number: u32, packets: usize, bytes: usize) -> bool {
        if self.resolve(number).is_none() || !self.is_in_contact(number) {
            return false;
        }
        let free = self.endpoint.free_sends();
        let sequence = &self.peers.at(number).sequence;
        sequence.has_room(packets, bytes) && (sequence.stores_copies() || free >= packets)
    }

    /// Sends a probe or an answer, which has no number of its own. Returns whether it has left.
    fn send_unnumbered(&mut self, number: u32, header: Header) -> bool {
        self.resolve(number).is_some_and(|address| self.send_unnumbered_to(address, number, header))
    }

    /// Sends a probe or an answer to `address`, an endpoint of peer `number`. Returns whether it has left.
    fn send_unnumbered_to(&mut self, address: Address, number: u32, header: Header) -> bool {
        let wire = self.peers.wire(number, header);
        matches!(self.endpoint.send(address, WIRE_BYTES, |to| wire.write(to)), Ok(fabric::Sent::Done))
    }

    /// Takes the next point-to-point packet of a peer; None if no packet is there. Errors
    /// (MPI_ERR_PROC_ABORTED): the peer is lost. Only the first call after the loss returns this error.
    pub(crate) fn take(&mut self, number: u32) -> Result<Option<(Header, HeldPacket)>> {
        let Some(peer) = self.peers.get_mut(number) else { return Ok(None) };
        if let Some(next) = peer.inbox.pop_front() {
            return Ok(Some(next));
        }
        let Some(unreported_loss) = peer.unreported_loss.take() else { return Ok(None) };
        let (rank, provider) = (self.peers.rank, self.endpoint.provider());
        let there = match self.peers.segment.endpoint(number).and_then(|name| provider.peer_address(&name)) {
            Some(address) => format!(" at {address}"),
            None => String::new(),
        };
        let (host, node) = (sys::host::name(), self.peers.segment.node_of(number));
        let sentence = format!(
            "rank {rank} on {host} by {provider} has lost rank {number} on host number {node}{there}: {unreported_loss}"
        );
        fail!(Class::ProcAborted, "{sentence}")
    }

    /// Empties the record of a peer if the segment shows that a new process has the peer's number.
    pub(crate) fn renew(&mut self, number: u32) {
        let generation = self.peers.segment.generation(number);
        if let Some(peer) = self.peers.get_mut(number).filter(|peer| peer.generation < generation) {
            peer.renew(generation).into_iter().for_each(|packet| self.endpoint.release(packet));
        }
    }

    pub(crate) fn release(&mut self, packet: HeldPacket) {
        if let HeldPacket::InBuffer(packet) = packet {
            self.endpoint.release(packet);
        }
    }

    /// Drives the endpoint: files packets that have come, and sends packets that wait.
    pub(crate) fn pump(&mut self) {
        // Before new packets come: packets that left since the last call carried most answers already.
        if !self.peers.needing_reply.is_empty() {
            self.reply_to_all();
        }
        let Net { endpoint, peers, done, .. } = self;
        let polled = endpoint.poll(|event| match event {
            Event::Packet(packet) => peers.file_packet(packet, done),
            Event::Undelivered(to, said) => peers.undelivered(to, &said),
            Event::Accessed(token) => peers.pull_ended(token, true),
            Event::Failed(token, _) => peers.pull_ended(token, false),
        });
        done.drain(..).for_each(|packet| endpoint.release(packet));
        if let Err(error) = polled {
            (0..peers.all.len())
                .filter(|index| peers.all[*index].is_some())
                .map(|index| peers.number(index))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|number| peers.lose(number, &error.message));
        }
        if self.proxy_end_reports.is_some() {
            self.report_proxy_end();
        }
        if !self.peers.unsettled.is_empty() {
            self.check_unsettled();
        }
    }

    /// Sends the owed answers and reports of consumed bytes. A peer without room does not delay others.
    fn reply_to_all(&mut self) {
        for number in std::mem::take(&mut self.peers.needing_reply) {
            if self.reply_to(number) {
                self.peers.at(number).needs_reply = false;
            } else {
                self.peers.needing_reply.push(number);
            }
        }
    }

    /// Sends a peer the report of consumed bytes and the answer that this process owes it. Returns true if
    /// both have left, or if the peer is lost.
    fn reply_to(&mut self, number: u32) -> bool {
        let Some(peer) = self.peers.get(number) else { return true };
        if peer.lost.is_some() {
            return true;
        }
        if peer.must_report() {
            let header = Header { kind: CONSUMED, tag: 0, context: 0 };
            if self.send(number, false, &header, 0, |_| ()) == Sent::Full {
                return false;
            }
        }
        let Some(asked) = self.peers.at(number).sequence.answer_due() else { return true };
        let header =
            Header { kind: ANSWER, tag: asked.is_some().into(), context: asked.unwrap_or_default().into() };
        let has_left = self.send_unnumbered(number, header);
        if has_left {
            self.peers.at(number).sequence.answer_sent();
        }
        has_left
    }

    /// Sends packets that waited for room, and probes peers that have not answered for a while.
    fn check_unsettled(&mut self) {
        let now = sys::clock::now();
        let is_early = now < self.peers.now + TICK_NS;
        if is_early && !self.peers.is_clogged {
            return;
        }
        self.peers.now = now;
        self.peers.is_clogged = false;
        for i in (0..self.peers.unsettled.len()).rev() {
            let number = self.peers.unsettled[i];
            self.peers.lose_if_gone(number);
            self.flush(number);
            if self.check_timers(number, now) {
                self.peers.unsettled.swap_remove(i);
                self.peers.at(number).is_unsettled = false;
            }
        }
    }

    /// Probes a peer or marks it as lost, once a timer has run out. Returns whether it may leave `unsettled`.
    fn check_timers(&mut self, number: u32, now: u64) -> bool {
        let Some(peer) = self.peers.get_mut(number) else { return true };
        if peer.lost.is_some() {
            return true;
        }
        match peer.sequence.tick(now) {
            Due::Settled if peer.has_sent => return true,
            Due::Settled | Due::Waiting => {}
            Due::Probe => {
                self.send_unnumbered(number, Header { kind: PROBE, tag: 0, context: 0 });
            }
            Due::Lost(packet) => {
                let why = format!("packet {packet} to it did not arrive, nor those after it");
                self.peers.lose(number, &why);
            }
        }
        let (segment, provider) = (self.peers.segment.clone(), self.endpoint.provider());
        let Some(PeerRecord { has_sent: false, silence, .. }) = self.peers.get_mut(number) else {
            return false;
        };
        let there = || segment.endpoint(number).and_then(|name| provider.peer_address(&name));
        if let Some(why) = silence.check(now, provider.core() == "tcp", there) {
            self.peers.lose(number, &why);
        }
        false
    }

    /// Sends a peer the stored packets that the provider has not taken, in their order.
    fn flush(&mut self, number: u32) {
        let Some(peer) = self.peers.get_mut(number) else { return };
        let (Some(address), None) = (peer.address, &peer.lost) else { return };
        while let Some((_, (block, bytes))) = peer.sequence.unsent() {
            match self.endpoint.send(address, *bytes, |to| block.span().copy_to(to)) {
                Ok(fabric::Sent::Done) => peer.sequence.copy_sent(),
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
    fn get(&self, number: u32) -> Option<&PeerRecord> {
        self.all.get(self.index(number))?.as_deref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut PeerRecord> {
        let index = self.index(number);
        self.all.get_mut(index)?.as_deref_mut()
    }

    /// Returns the record of a peer, and makes it if there is none.
    pub(crate) fn at(&mut self, number: u32) -> &mut PeerRecord {
        let segment = &self.segment;
        let begin =
            || Box::new(PeerRecord { generation: segment.generation(number), ..PeerRecord::default() });
        let index = self.index(number);
        if index >= self.all.len() {
            self.all.resize_with(index + 1, || None);
        }
        self.all[index].get_or_insert_with(begin)
    }

    /// Returns the number of a peer's world, as its packets have shown it; 0 if there were none.
    pub(crate) fn generation(&self, number: u32) -> u32 {
        self.get(number).map_or(0, |peer| peer.generation)
    }

    /// Makes the wire header of the next packet to a peer: the packet's header, and what the network adds.
    fn wire(&mut self, number: u32, header: Header) -> Wire {
        let (source, generation, secret) = (self.rank, self.generation, self.secret);
        let peer = self.at(number);
        let (consumed, mut stamp) = (peer.consumed_here, peer.sequence.stamp());
        stamp.wants_answer |= peer.must_ask_for_answer(&header, stamp.number);
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
        peer.consumed_here = peer.consumed_here.wrapping_add(amount);
        if peer.must_report() && !std::mem::replace(&mut peer.needs_reply, true) {
            self.needing_reply.push(number);
        }
    }

    /// Returns the address of a peer's endpoint; None if it was not looked up yet, or the peer is lost.
    pub(crate) fn address(&self, number: u32) -> Option<Address> {
        self.get(number).filter(|peer| peer.lost.is_none())?.address
    }

    pub(crate) fn put_back(&mut self, number: u32, header: Header, packet: HeldPacket) {
        self.at(number).inbox.push_front((header, packet));
    }

    pub(crate) fn reset_arrivals(&mut self) {
        let is_in_arrivals = |number: &u32| self.get(*number).is_some_and(|peer| peer.is_in_arrivals);
        self.arrivals = (0..self.ranks as u32).filter(is_in_arrivals).collect();
    }

    /// Returns the index of a peer's record in `all`: first come the ranks, then the proxies.
    fn index(&self, number: u32) -> usize {
        match number & PROXY {
            0 => number as usize,
            _ => self.ranks + (number & !PROXY) as usize,
        }
    }

    fn number(&self, index: usize) -> u32 {
        if index < self.ranks { index as u32 } else { PROXY | (index - self.ranks) as u32 }
    }

    /// Checks a packet's header and puts the packet into its sender's queue. A packet that no one will take
    /// goes to `done`, and its buffer is then released.
    fn file_packet(&mut self, packet: Packet, done: &mut Vec<Packet>) {
        let wire = Wire::read(packet.bytes(), self.secret)
            .filter(|wire| wire.source != self.rank && self.segment.is_endpoint(wire.source));
        let Some(wire) = wire else {
            count(Counter::NetRefused, 1);
            return done.push(packet);
        };
        let now = self.now;
        if wire.header.kind == GONE {
            // Before the checks of its number: the report stays true if it comes twice.
            proxy_end::receive_report(&self.segment, &wire);
        }
        let peer = self.at(wire.source);
        if wire.generation < peer.generation {
            // A late packet of an earlier process.
            return done.push(packet);
        }
        if wire.generation > peer.generation {
            done.extend(peer.renew(wire.generation));
        }
        if !peer.sequence.receive_answer(wire.stamp.answered, now) {
            count(Counter::NetRefused, 1);
            return done.push(packet);
        }
        peer.has_sent = true;
        // An old packet has an older value.
        if (wire.consumed.wrapping_sub(peer.consumed) as i64) > 0 {
            peer.consumed = wire.consumed;
        }
        let must_resend = match wire.header.kind {
            PROBE | ANSWER => {
                done.push(packet);
                peer.take_probe_or_answer(&wire, now)
            }
            _ => {
                done.extend(peer.arrive(&wire, packet));
                false
            }
        };
        let is_new = !peer.inbox.is_empty() && !std::mem::replace(&mut peer.is_in_arrivals, true);
        let is_answer_due =
            peer.sequence.answer_due().is_some() && !std::mem::replace(&mut peer.needs_reply, true);
        let is_edge = !peer.edges.is_empty() && !std::mem::replace(&mut peer.is_edge_sender, true);
        self.arrivals.extend(is_new.then_some(wire.source));
        self.edge_senders.extend(is_edge.then_some(wire.source));
        self.needing_reply.extend(is_answer_due.then_some(wire.source));
        self.is_clogged |= must_resend;
    }
}

impl PeerRecord {
    fn must_report(&self) -> bool {
        self.consumed_here.wrapping_sub(self.reported_consumed) >= REPORT_BYTES
    }

    /// Empties the record for a new process. Returns the earlier process's packets, to be released.
    fn renew(&mut self, generation: u32) -> Vec<Packet> {
        // `is_in_arrivals` becomes false, so `arrivals` reports the new process like any peer: the state that
        // the matcher has of the peer must be made anew before.
        let PeerRecord { is_unsettled, needs_reply, is_edge_sender, .. } = *self;
        let anew =
            PeerRecord { generation, is_unsettled, needs_reply, is_edge_sender, ..PeerRecord::default() };
        let before = std::mem::replace(self, anew);
        let in_buffer =
            |(_, packet)| if let HeldPacket::InBuffer(packet) = packet { Some(packet) } else { None };
        before.inbox.into_iter().chain(before.edges).filter_map(in_buffer).collect()
    }

    /// Puts a numbered packet into its queue, or copies it if it came before its turn. Returns the packet,
    /// for the caller to release, or None if the queue now holds it.
    fn arrive(&mut self, wire: &Wire, packet: Packet) -> Option<Packet> {
        match self.sequence.receive(wire.stamp) {
            Arrival::Next => {
                let left = if ends_in_net(&wire.header) {
                    Some(packet)
                } else {
                    self.queue(&wire.header).push_back((wire.header, HeldPacket::InBuffer(packet)));
                    None
                };
                while let Some(early) = self.sequence.next_early() {
                    let header = Wire::read(early.span(), wire.secret).map(|wire| wire.header);
                    let Some(header) = header.filter(|header| !ends_in_net(header)) else { continue };
                    self.queue(&header).push_back((header, HeldPacket::Copied(early)));
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

    /// Handles a probe or an answer. Returns whether stored packets must be sent to the peer again.
    fn take_probe_or_answer(&mut self, wire: &Wire, now: u64) -> bool {
        let Header { kind, tag, context } = wire.header;
        if kind == PROBE {
            if !self.sequence.receive_probe(wire.stamp.number) {
                count(Counter::NetRefused, 1);
            }
            return false;
        }
        if tag == 0 {
            return false;
        }
        let again = self.sequence.receive_probe_answer(wire.stamp.answered, context as u32, now);
        count(Counter::NetResent, again as u64);
        again > 0
    }
}
