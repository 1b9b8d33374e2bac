//! The sim route: all ranks of a job in one process, and a network whose moods come from a seed.
//!
//! Packets between two ranks keep their order, as on every route; everything else is drawn: how long a packet
//! is under way, whether a ring refuses although it has room, whether a rank's memory can be read. The same
//! seed gives the same job, as long as its ranks are polled in the same order, for which `Network::below`
//! draws the numbers.

use crate::packet::{Far, Header, INLINE_BYTES, PACKET_BYTES_MAX, Pull, Sent, Take};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::Span;

/// What the network does to packets.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Packets that a ring holds before it is full; at least 1.
    pub ring_packets: usize,
    /// Longest payload of a packet.
    pub payload_bytes_max: usize,
    /// Longest time under way, in ticks.
    pub delay_max: u64,
    /// How many sends of 100 are refused although there is room; below 100.
    pub refused_percent: u64,
    /// How many reads of a peer's memory fail, of 100: 0 always works, 100 never does.
    pub unreadable_percent: u64,
    /// How many exposures of memory are refused, of 100; pulls fail as often as reads do.
    pub unexposed_percent: u64,
}

/// The network of one simulated job.
#[derive(Clone)]
pub struct Network(Arc<Mutex<State>>);

/// One rank's way into the network.
pub struct Port {
    network: Network,
    rank: u32,
}

/// Both directions between one rank and one peer.
pub struct Link {
    network: Network,
    rank: u32,
    peer: u32,
    /// Sends to come that are not refused: `has_room` said so.
    promised: usize,
}

struct State {
    conditions: Conditions,
    random: u64,
    now: u64,
    ranks: u32,
    /// By sender, then receiver.
    rings: Vec<Ring>,
    /// Exposed memory by its key: whose it is, where it lies, and its length.
    exposed: HashMap<u64, (u32, usize, u64)>,
    exposed_ever: u64,
    pulled_ever: u64,
    pulls: Vec<Access>,
}

/// A pull under way.
struct Access {
    arrives: u64,
    /// Who pulls, and from whom.
    rank: u32,
    peer: u32,
    far: Far,
    at: u64,
    to: Span,
    token: u64,
}

/// Memory of a rank that its peers may pull.
pub struct Exposed {
    network: Network,
    far: Far,
}

impl Exposed {
    pub(crate) fn far(&self) -> Far {
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
    packets: VecDeque<Packet>,
    consumed: u64,
    used: bool,
    /// Whether the receiver has been told of this ring.
    seen: bool,
}

struct Packet {
    arrives: u64,
    header: Header,
    payload: Vec<u8>,
}

impl Network {
    /// A job of `ranks` ranks.
    pub fn new(ranks: u32, seed: u64, conditions: Conditions) -> Network {
        let rings = (0..ranks * ranks).map(|_| Ring::default()).collect();
        let state = State {
            conditions,
            random: seed,
            now: 0,
            ranks,
            rings,
            exposed: HashMap::new(),
            exposed_ever: 0,
            pulled_ever: 0,
            pulls: Vec::new(),
        };
        Network(Arc::new(Mutex::new(state)))
    }

    /// A rank's way in.
    pub fn port(&self, rank: u32) -> Port {
        Port { network: self.clone(), rank }
    }

    /// Draws a number below `end` from the job's seed.
    pub fn below(&self, end: u64) -> u64 {
        self.state().below(end)
    }

    /// Packets under way.
    pub fn packets(&self) -> usize {
        self.state().rings.iter().map(|ring| ring.packets.len()).sum()
    }

    /// Exposures of memory there are now, and pulls that have brought their bytes so far.
    pub fn exposures_and_pulls(&self) -> (usize, u64) {
        let state = self.state();
        (state.exposed.len(), state.pulled_ever)
    }

    /// Puts a packet of any content into a ring, for tests of what a corrupt peer can do.
    pub fn forge(&self, from: u32, to: u32, header: Header, payload: Vec<u8>) {
        let mut state = self.state();
        let arrives = state.now;
        let ring = state.ring(from, to);
        ring.packets.push_back(Packet { arrives, header, payload });
        ring.used = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn ring(&mut self, from: u32, to: u32) -> &mut Ring {
        &mut self.rings[(from * self.ranks + to) as usize]
    }

    /// Moves a pull's bytes, unless it is to fail.
    fn complete(&mut self, access: &Access) -> bool {
        let Access { peer, far, at, to, .. } = access;
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

    /// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

impl Port {
    /// Which rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks the job has.
    pub fn ranks(&self) -> u32 {
        self.network.state().ranks
    }

    /// The link to a peer.
    pub fn link(&self, peer: u32) -> Link {
        Link { network: self.network.clone(), rank: self.rank, peer, promised: 0 }
    }

    /// Whether a peer has written to us of whom `arrivals` has not told, or a pull has ended.
    pub fn has_arrivals(&self) -> bool {
        let state = self.network.state();
        let has_ended = |access: &Access| access.rank == self.rank && access.arrives <= state.now;
        state.pulls.iter().any(has_ended)
            || (0..state.ranks).any(|peer| {
                let ring = &state.rings[(peer * state.ranks + self.rank) as usize];
                ring.used && !ring.seen
            })
    }

    /// Calls `each` with every pull of this rank that has ended, in any order, and whether it has the bytes.
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

    /// Calls `each` with every peer that has written to us for the first time.
    pub fn arrivals(&mut self, mut each: impl FnMut(u32)) {
        let mut state = self.network.state();
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
        let conditions = state.conditions;
        assert!(bytes <= conditions.payload_bytes_max.max(INLINE_BYTES), "{bytes} bytes in one packet");
        if self.promised > 0 {
            self.promised -= 1;
        } else if state.below(100) < conditions.refused_percent
            || state.ring(self.rank, self.peer).packets.len() >= conditions.ring_packets
        {
            return Sent::Full;
        }
        let mut payload = vec![0; bytes];
        lend(&mut payload, fill);
        let earliest = state.ring(self.rank, self.peer).packets.back().map_or(0, |packet| packet.arrives);
        let arrives = earliest.max(state.now + state.below(conditions.delay_max + 1));
        let ring = state.ring(self.rank, self.peer);
        ring.packets.push_back(Packet { arrives, header: *header, payload });
        ring.used = true;
        Sent::Done
    }

    pub(crate) fn has_room(&mut self, bytes: usize, chunk_bytes: usize) -> bool {
        let mut state = self.network.state();
        let Conditions { refused_percent, ring_packets, .. } = state.conditions;
        let packets = 1 + bytes.div_ceil(chunk_bytes);
        let is_refused = state.below(100) < refused_percent;
        if is_refused || state.ring(self.rank, self.peer).packets.len() + packets > ring_packets {
            return false;
        }
        self.promised = packets;
        true
    }

    pub(crate) fn ready(&self) -> bool {
        let mut state = self.network.state();
        let now = state.now;
        state.ring(self.peer, self.rank).packets.front().is_some_and(|packet| packet.arrives <= now)
    }

    pub(crate) fn poll(&mut self, each: impl FnOnce(&Header, Span)) -> bool {
        let (mut each, mut any) = (Some(each), false);
        self.poll_while(|header, payload| {
            if let Some(each) = each.take() {
                each(header, payload);
            }
            any = true;
            Take::Last
        });
        any
    }

    pub(crate) fn poll_while(&mut self, mut each: impl FnMut(&Header, Span) -> Take) {
        loop {
            let mut state = self.network.state();
            state.now += 1;
            let now = state.now;
            let packets = &mut state.ring(self.peer, self.rank).packets;
            let Some(mut packet) = packets.pop_front_if(|packet| packet.arrives <= now) else { return };
            drop(state);
            let mut taken = Take::Not;
            lend(&mut packet.payload, |span| taken = each(&packet.header, span));
            match taken {
                Take::Not => self.network.state().ring(self.peer, self.rank).packets.push_front(packet),
                Take::More => continue,
                Take::Last => (),
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
        let far = Far { base: 0, key: state.exposed_ever, bytes: span.bytes() as u64 };
        let whose = (self.rank, span.address(), far.bytes);
        state.exposed.insert(far.key, whose);
        Some(Exposed { network: self.network.clone(), far })
    }

    pub(crate) fn pull(&mut self, far: Far, at: u64, to: Span, token: u64) -> Pull {
        let mut state = self.network.state();
        let Conditions { refused_percent, delay_max, .. } = state.conditions;
        if state.below(100) < refused_percent {
            return Pull::Full;
        }
        let arrives = state.now + state.below(delay_max + 1);
        let (rank, peer) = (self.rank, self.peer);
        state.pulls.push(Access { arrives, rank, peer, far, at, to, token });
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

/// Lends a packet's bytes for one call, as a ring does.
fn lend(bytes: &mut [u8], work: impl FnOnce(Span)) {
    // SAFETY: the exclusive borrow outlives the call, and `work` keeps the span no longer (contract of
    // `Route`).
    work(unsafe { Span::claim(bytes.as_mut_ptr().expose_provenance(), bytes.len()) })
}
