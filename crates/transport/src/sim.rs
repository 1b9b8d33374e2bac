// SPDX-License-Identifier: BSD-3-Clause
//! The sim route: all ranks of a job in one process, and a network whose faults come from a seed.
//!
//! Packets between two ranks keep their order, as on every route, by the numbers of `sequence.rs`: the
//! simulated network may lose packets while a connection is young, repeat them, and let them overtake each
//! other. It also draws how long a packet is under way, whether a send is refused although there is room, and
//! whether a rank's memory can be read. The same seed gives the same job if the ranks are polled in the same
//! order; a test draws that order by `Network::below`. A rank that is not polled does nothing.

use crate::packet::{Header, INLINE_BYTES, PACKET_BYTES_MAX, Pull, RemoteRange, Sent, Taken};
use crate::sequence::{Arrival, Due, Sequence, Stamp};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::Span;

/// The length of one tick of the simulated time, in nanoseconds, as the timers of `sequence.rs` count it.
const TICK_NS: u64 = 1_000_000;

/// The faults and limits of a simulated network.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// How many packets from one rank to another may wait to be taken before sends are refused; at least 1.
    pub ring_packets: usize,
    /// The longest payload of a packet, in bytes.
    pub payload_bytes_max: usize,
    /// The longest time for which a packet, or a pull (a read of a peer's memory), is under way, in ticks.
    pub delay_max: u64,
    /// The percentage of sends that are refused although there is room; less than 100.
    pub refused_percent: u64,
    /// The percentage of reads and pulls of a peer's memory that fail.
    pub unreadable_percent: u64,
    /// The percentage of exposures of memory (for pulls by peers) that are refused.
    pub unexposed_percent: u64,
    /// The percentage of packets that get lost while a connection is young; less than 100. The sender then
    /// stores copies, and sends lost packets again.
    pub lost_percent: u64,
    /// The percentage of packets that arrive twice.
    pub repeated_percent: u64,
    /// Whether packets may overtake each other on their way.
    pub is_disordered: bool,
}

/// The network of one simulated job. Clones share one network.
#[derive(Clone)]
pub struct Network(Arc<Mutex<NetworkState>>);

/// A simulated rank's access to the network, by which it reaches its peers.
pub struct Port {
    network: Network,
    rank: u32,
}

/// The route between one simulated rank and one peer, for packets both ways.
pub struct Link {
    network: Network,
    rank: u32,
    peer: u32,
    /// How many of the next sends must not be refused, since `has_room` has promised room for them.
    promised: usize,
}

struct NetworkState {
    conditions: Conditions,
    random: u64,
    now: u64,
    ranks: u32,
    /// The packets that each rank has sent to each other rank: from rank `a` to rank `b` at index `a * ranks
    /// + b`.
    rings: Vec<Ring>,
    /// The state that numbers and orders the packets between each rank and each peer: that of rank `a` for
    /// peer `b` at index `a * ranks + b`.
    sequences: Vec<Sequence<Packet>>,
    /// The memory that ranks have exposed to pulls, by keys: for each, the owner's rank, the address and the
    /// length.
    exposed: HashMap<u64, (u32, usize, u64)>,
    exposed_ever: u64,
    pulled_ever: u64,
    pulls: Vec<PullUnderWay>,
}

/// A pull (a read of a peer's memory) that was started and has not ended.
struct PullUnderWay {
    arrives: u64,
    /// The rank that reads the memory.
    rank: u32,
    /// The rank whose memory is read.
    peer: u32,
    far: RemoteRange,
    at: u64,
    to: Span,
    token: u64,
}

/// Memory that a simulated rank has exposed to pulls by peers, until this value is dropped.
pub struct Exposed {
    network: Network,
    far: RemoteRange,
}

impl Exposed {
    pub(crate) fn remote_range(&self) -> RemoteRange {
        self.far
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        self.network.state().exposed.remove(&self.far.key);
    }
}

#[derive(Default)]
struct Ring {
    /// The packets that have arrived in order and that the receiver has not taken.
    packets: VecDeque<Packet>,
    /// The number of packets that were sent and have not arrived in order yet.
    missing: usize,
    under_way: Vec<Datagram>,
    consumed: u64,
    used: bool,
    /// Whether `Port::arrivals` has reported the sender to the receiver.
    seen: bool,
}

#[derive(Clone)]
struct Packet {
    header: Header,
    payload: Vec<u8>,
}

/// What the simulated network carries: a packet, a probe or an answer, with the packet numbers of its sender.
#[derive(Clone)]
struct Datagram {
    arrives: u64,
    stamp: Stamp,
    what: Content,
}

#[derive(Clone)]
enum Content {
    Packet(Packet),
    Probe,
    /// An answer to the other rank. Inside is the number of the probe that it answers, or None if no probe
    /// asked for it.
    Answer(Option<u32>),
}

impl Ring {
    fn packets_held(&self) -> usize {
        self.packets.len() + self.missing
    }
}

impl Network {
    /// Makes the network of a job of `ranks` ranks. All faults follow from `seed` and `conditions`.
    pub fn new(ranks: u32, seed: u64, conditions: Conditions) -> Network {
        let rings = (0..ranks * ranks).map(|_| Ring::default()).collect();
        let state = NetworkState {
            conditions,
            random: seed,
            now: 0,
            ranks,
            rings,
            sequences: (0..ranks * ranks).map(|_| Sequence::default()).collect(),
            exposed: HashMap::new(),
            exposed_ever: 0,
            pulled_ever: 0,
            pulls: Vec::new(),
        };
        Network(Arc::new(Mutex::new(state)))
    }

    /// Returns the port by which rank `rank` reaches its peers.
    pub fn port(&self, rank: u32) -> Port {
        Port { network: self.clone(), rank }
    }

    /// Draws a random number below `end` from the job's seed.
    pub fn below(&self, end: u64) -> u64 {
        self.state().below(end)
    }

    /// Returns how many packets of the job have been sent and not taken yet.
    pub fn packets(&self) -> usize {
        self.state().rings.iter().map(|ring| ring.packets.len() + ring.missing).sum()
    }

    /// Returns how many exposures of memory there are now, and how many pulls (reads of peers' memory) have
    /// succeeded so far.
    pub fn exposures_and_pulls(&self) -> (usize, u64) {
        let state = self.state();
        (state.exposed.len(), state.pulled_ever)
    }

    /// Puts a packet with any content among those that have arrived, for tests with a corrupt peer.
    pub fn forge(&self, from: u32, to: u32, header: Header, payload: Vec<u8>) {
        let mut state = self.state();
        let ring = state.ring(from, to);
        ring.packets.push_back(Packet { header, payload });
        ring.used = true;
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetworkState {
    fn ring(&mut self, from: u32, to: u32) -> &mut Ring {
        &mut self.rings[(from * self.ranks + to) as usize]
    }

    fn sequence(&mut self, rank: u32, peer: u32) -> &mut Sequence<Packet> {
        &mut self.sequences[(rank * self.ranks + peer) as usize]
    }

    /// Sends a datagram from one rank to another, with a drawn delay. It travels once, twice or, if it is
    /// drawn to be lost, not at all.
    fn send_datagram(&mut self, from: u32, to: u32, stamp: Stamp, what: Content) {
        let Conditions { lost_percent, repeated_percent, delay_max, is_disordered, .. } = self.conditions;
        // On a connection that is not young any more the network loses no packets.
        let may_be_lost = stamp.wants_answer || !matches!(what, Content::Packet(_));
        let copies = 1 + usize::from(self.below(100) < repeated_percent);
        for _ in 0..copies {
            if self.below(100) < lost_percent && may_be_lost {
                continue;
            }
            let earliest = match self.ring(from, to).under_way.last() {
                Some(last) if !is_disordered => last.arrives,
                _ => 0,
            };
            let arrives = earliest.max(self.now + self.below(delay_max + 1));
            self.ring(from, to).under_way.push(Datagram { arrives, stamp, what: what.clone() });
        }
    }

    /// Takes all datagrams that have arrived at a rank. Sends what the rank owes its peers: answers, probes,
    /// and stored copies of packets that must be sent again.
    fn receive_and_send_due(&mut self, rank: u32) {
        for peer in (0..self.ranks).filter(|peer| *peer != rank) {
            if let Some(asked) = self.sequence(rank, peer).answer_due() {
                let stamp = self.sequence(rank, peer).stamp();
                self.send_datagram(rank, peer, stamp, Content::Answer(asked));
                self.sequence(rank, peer).answer_sent();
            }
            while let Some(datagram) = self.arrived(peer, rank) {
                self.file(peer, rank, datagram);
            }
            let now = self.now * TICK_NS;
            match self.sequence(rank, peer).tick(now) {
                Due::Settled | Due::Waiting => {}
                Due::Probe => {
                    let stamp = self.sequence(rank, peer).stamp();
                    self.send_datagram(rank, peer, stamp, Content::Probe);
                }
                Due::Lost(packet) => panic!("packet {packet} of rank {rank} to rank {peer} is lost"),
            }
            while let Some((number, (packet, _))) = self.sequence(rank, peer).unsent().cloned() {
                let stamp = Stamp { number, ..self.sequence(rank, peer).stamp() };
                self.send_datagram(rank, peer, stamp, Content::Packet(packet));
                self.sequence(rank, peer).copy_sent();
            }
        }
    }

    /// Takes the next datagram that has arrived from one rank at another. Returns None if no datagram has
    /// arrived by now.
    fn arrived(&mut self, from: u32, to: u32) -> Option<Datagram> {
        let now = self.now;
        let under_way = &mut self.ring(from, to).under_way;
        let there = (0..under_way.len()).filter(|at| under_way[*at].arrives <= now);
        let first = there.min_by_key(|at| under_way[*at].arrives)?;
        Some(under_way.remove(first))
    }

    fn file(&mut self, from: u32, to: u32, Datagram { stamp, what, .. }: Datagram) {
        let now = self.now * TICK_NS;
        let sequence = self.sequence(to, from);
        assert!(sequence.receive_answer(stamp.answered, now), "an answer to what was not sent");
        let packet = match what {
            Content::Packet(packet) => packet,
            Content::Probe => return assert!(sequence.receive_probe(stamp.number), "a probe out of bounds"),
            Content::Answer(asked) => {
                asked.map(|asked| sequence.receive_probe_answer(stamp.answered, asked, now));
                return;
            }
        };
        let mut taken = Vec::new();
        match sequence.receive(stamp) {
            Arrival::Next => {
                taken.push(packet);
                taken.extend(std::iter::from_fn(|| sequence.next_early()));
            }
            Arrival::Early => {
                let bytes = packet.payload.len();
                sequence.keep_early(stamp.number, packet, bytes);
            }
            Arrival::Repeated => {}
            Arrival::Refused => panic!("a number out of bounds"),
        }
        let ring = self.ring(from, to);
        ring.missing -= taken.len();
        ring.packets.extend(taken);
    }

    /// Copies the bytes of a pull (a read of a peer's memory), unless the pull is drawn to fail. Returns
    /// whether it has copied them.
    fn complete(&mut self, access: &PullUnderWay) -> bool {
        let PullUnderWay { peer, far, at, to, .. } = access;
        let percent = self.conditions.unreadable_percent;
        if self.below(100) < percent {
            return false;
        }
        let known = self.exposed.get(&far.key).copied();
        let (owner, address, bytes) = known.expect("a pull of memory that is exposed no more");
        assert!(owner == *peer && at + to.bytes() as u64 <= bytes, "a pull beside exposed memory");
        // SAFETY: as in `Link::read`; exposed memory stays mapped.
        let from = unsafe { Span::claim(address + *at as usize, to.bytes()) };
        from.copy_to(*to);
        self.pulled_ever += 1;
        true
    }

    /// Draws a number below `end` by SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

impl Port {
    /// Returns the number of the rank to which this port belongs.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks of the simulated job.
    pub fn ranks(&self) -> u32 {
        self.network.state().ranks
    }

    /// Makes the route from this rank to a peer.
    pub fn link(&self, peer: u32) -> Link {
        Link { network: self.network.clone(), rank: self.rank, peer, promised: 0 }
    }

    /// Whether `arrivals` has a peer to report, or `pulled` has a pull (a read of a peer's memory) to report.
    pub fn has_arrivals(&self) -> bool {
        let mut state = self.network.state();
        state.receive_and_send_due(self.rank);
        let has_ended = |access: &PullUnderWay| access.rank == self.rank && access.arrives <= state.now;
        state.pulls.iter().any(has_ended)
            || (0..state.ranks).any(|peer| {
                let ring = &state.rings[(peer * state.ranks + self.rank) as usize];
                ring.used && !ring.seen
            })
    }

    /// Calls `each` for each pull of this rank that has ended, in a drawn order, with the pull's token and
    /// whether its bytes are there.
    pub fn pulled(&mut self, mut each: impl FnMut(u64, bool)) {
        loop {
            let mut state = self.network.state();
            state.now += 1;
            let (now, rank) = (state.now, self.rank);
            let ended: Vec<usize> = (0..state.pulls.len())
                .filter(|i| state.pulls[*i].rank == rank && state.pulls[*i].arrives <= now)
                .collect();
            if ended.is_empty() {
                return;
            }
            let drawn = ended[state.below(ended.len() as u64) as usize];
            let access = state.pulls.swap_remove(drawn);
            let is_done = state.complete(&access);
            drop(state);
            each(access.token, is_done);
        }
    }

    /// Calls `each` with each peer that has sent to this rank and was not reported before.
    pub fn arrivals(&mut self, mut each: impl FnMut(u32)) {
        let mut state = self.network.state();
        state.receive_and_send_due(self.rank);
        for peer in 0..state.ranks {
            let ring = state.ring(peer, self.rank);
            if ring.used && !std::mem::replace(&mut ring.seen, true) {
                each(peer);
            }
        }
    }
}

impl Link {
    pub(crate) fn send(&mut self, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        let mut state = self.network.state();
        let Conditions { payload_bytes_max, refused_percent, ring_packets, .. } = state.conditions;
        assert!(bytes <= payload_bytes_max.max(INLINE_BYTES), "{bytes} bytes in one packet");
        let (rank, peer) = (self.rank, self.peer);
        if self.promised > 0 {
            self.promised -= 1;
        } else if state.below(100) < refused_percent
            || state.ring(rank, peer).packets_held() >= ring_packets
            || !state.sequence(rank, peer).has_room(1, bytes)
        {
            return Sent::Full;
        }
        let mut payload = vec![0; bytes];
        with_span(&mut payload, fill);
        let packet = Packet { header: *header, payload };
        let sequence = state.sequence(rank, peer);
        let stamp = sequence.stamp();
        let is_away = sequence.unsent().is_none();
        let copy = (sequence.stores_copies() || !is_away).then(|| (packet.clone(), bytes));
        sequence.sent(copy, is_away);
        if is_away {
            state.send_datagram(rank, peer, stamp, Content::Packet(packet));
        }
        let ring = state.ring(rank, peer);
        ring.missing += 1;
        ring.used = true;
        Sent::Done
    }

    pub(crate) fn has_room(&mut self, bytes: usize, chunk_bytes: usize) -> bool {
        let mut state = self.network.state();
        let Conditions { refused_percent, ring_packets, .. } = state.conditions;
        let packets = 1 + bytes.div_ceil(chunk_bytes);
        let is_refused = state.below(100) < refused_percent;
        if is_refused
            || state.ring(self.rank, self.peer).packets_held() + packets > ring_packets
            || !state.sequence(self.rank, self.peer).has_room(packets, bytes)
        {
            return false;
        }
        self.promised = packets;
        true
    }

    pub(crate) fn ready(&self) -> bool {
        let mut state = self.network.state();
        state.receive_and_send_due(self.rank);
        !state.ring(self.peer, self.rank).packets.is_empty()
    }

    pub(crate) fn poll(&mut self, each: impl FnOnce(&Header, Span)) -> bool {
        let (mut each, mut any) = (Some(each), false);
        self.poll_while(|header, payload| {
            if let Some(each) = each.take() {
                each(header, payload);
            }
            any = true;
            Taken::Last
        });
        any
    }

    pub(crate) fn poll_while(&mut self, mut each: impl FnMut(&Header, Span) -> Taken) {
        loop {
            let mut state = self.network.state();
            state.now += 1;
            state.receive_and_send_due(self.rank);
            let packets = &mut state.ring(self.peer, self.rank).packets;
            let Some(mut packet) = packets.pop_front() else { return };
            drop(state);
            let mut taken = Taken::No;
            with_span(&mut packet.payload, |span| taken = each(&packet.header, span));
            match taken {
                Taken::No => self.network.state().ring(self.peer, self.rank).packets.push_front(packet),
                Taken::More => continue,
                Taken::Last => (),
            }
            return;
        }
    }

    pub(crate) fn consumed(&self) -> u64 {
        self.network.state().ring(self.rank, self.peer).consumed
    }

    pub(crate) fn consume(&mut self, amount: u64) {
        self.network.state().ring(self.peer, self.rank).consumed += amount;
    }

    pub(crate) fn chunk_for(&self, message_bytes: usize) -> usize {
        (message_bytes / 2).max(PACKET_BYTES_MAX).min(self.payload_bytes_max())
    }

    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.network.state().conditions.payload_bytes_max
    }

    pub(crate) fn expose(&self, span: Span) -> Option<Exposed> {
        let mut state = self.network.state();
        let percent = state.conditions.unexposed_percent;
        if state.below(100) < percent {
            return None;
        }
        state.exposed_ever += 1;
        let far = RemoteRange { base: 0, key: state.exposed_ever, bytes: span.bytes() as u64 };
        let whose = (self.rank, span.address(), far.bytes);
        state.exposed.insert(far.key, whose);
        Some(Exposed { network: self.network.clone(), far })
    }

    pub(crate) fn pull(&mut self, far: RemoteRange, at: u64, to: Span, token: u64) -> Pull {
        let mut state = self.network.state();
        let Conditions { refused_percent, delay_max, .. } = state.conditions;
        if state.below(100) < refused_percent {
            return Pull::Full;
        }
        let arrives = state.now + state.below(delay_max + 1);
        let (rank, peer) = (self.rank, self.peer);
        state.pulls.push(PullUnderWay { arrives, rank, peer, far, at, to, token });
        Pull::Started
    }

    pub(crate) fn read(&self, address: usize, to: Span) -> bool {
        let mut state = self.network.state();
        let percent = state.conditions.unreadable_percent;
        if state.below(100) < percent {
            return false;
        }
        // SAFETY: all simulated ranks live in this process, and a peer offers only memory of a send that has
        // not ended.
        let from = unsafe { Span::claim(address, to.bytes()) };
        from.copy_to(to);
        true
    }
}

/// Calls `work` with the bytes of a packet. They are valid during the call only, as in a real ring.
fn with_span(bytes: &mut [u8], work: impl FnOnce(Span)) {
    // SAFETY: the exclusive borrow outlives the call, and `work` keeps the span no longer (contract of
    // `Route`).
    work(unsafe { Span::claim(bytes.as_mut_ptr().expose_provenance(), bytes.len()) })
}
