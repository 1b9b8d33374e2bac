//! The fabric route: packets to and from peers on other hosts, over this process's one endpoint.
//!
//! A packet is a wire header (`WIRE_BYTES`), then the payload. The header names the sender, carries the job's
//! secret, and says how much the sender has consumed of the other direction; a packet without payload says
//! only that. A peer takes memory from its first packet on. Packets stay in the endpoint's receive buffers
//! until they are taken.
//!
//! Invariants: a packet without the job's secret changes nothing and is counted; numbers are in the sender's
//! byte order, and one with another order or version is refused as a whole; packets of one peer keep their
//! order.
//!
//! Read next: `route.rs`; crate `fabric` (the endpoint).

use crate::packet::{Far, Header, PacketSink, Pull, Sent, Take};
use crate::shm::{ENDPOINT_BYTES_MAX, LocalRank, Segment};
use error::{Class, Result, fail};
use fabric::{Address, Endpoint, Event, Library, Packet, Region, RemoteMemory};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use sys::Span;

/// Bytes before the payload: magic (4), source (4), kind (1), the source's generation (3), tag (4), context
/// (8), secret (8), consumed (8).
pub const WIRE_BYTES: usize = 40;
/// "OBF" and the version of the wire format; with its bytes reversed where the sender's byte order is
/// another.
const MAGIC: u32 = 0x4f42_4601;
/// A kind that p2p does not have: the packet only says what was consumed.
const CONSUMED: u8 = 0;
/// A peer is told at the latest when so much more was consumed of its packets.
const TELL_BYTES: u64 = 128 << 10;

/// How long the watching thread sleeps before it looks whether its process has left the network.
const WATCH: Duration = Duration::from_secs(1);

/// This process's way into the network.
pub struct Port {
    net: Arc<Mutex<Net>>,
    sleeper: Option<Arc<Sleeper>>,
}

/// Both directions between this process and one peer.
pub struct Link {
    net: Arc<Mutex<Net>>,
    peer: u32,
}

/// The thread that watches the network while the process sleeps on its bell.
struct Sleeper {
    /// 1 while the process may be asleep.
    armed: AtomicU32,
}

impl Sleeper {
    /// Nothing where a thread or a descriptor is not to be had.
    fn start(fd: OwnedFd, segment: Segment, rank: LocalRank) -> Option<Arc<Sleeper>> {
        let sleeper = Arc::new(Sleeper { armed: AtomicU32::new(0) });
        let watching = Arc::downgrade(&sleeper);
        let watch = move || {
            sys::signal::block_all();
            while let Some(sleeper) = watching.upgrade() {
                if sleeper.armed.load(Ordering::Acquire) == 0 {
                    sys::futex::wait(&sleeper.armed, 0, Some(WATCH));
                } else if sys::process::readable(&fd, Some(WATCH)).unwrap_or(true) {
                    sleeper.armed.store(0, Ordering::Release);
                    segment.rank(rank).bell.ring();
                }
            }
        };
        std::thread::Builder::new().name("outboard-net".into()).spawn(watch).ok()?;
        Some(sleeper)
    }

    fn arm(&self) {
        if self.armed.swap(1, Ordering::AcqRel) == 0 {
            sys::futex::wake(&self.armed, 1);
        }
    }
}

struct Net {
    endpoint: Endpoint,
    rank: u32,
    /// Which of the processes that have had our place we are.
    generation: u32,
    /// Where the names of endpoints are.
    segment: Segment,
    secret: u64,
    peers: HashMap<u32, Remote>,
    /// Peers of which `arrivals` has not told.
    arrivals: Vec<u32>,
    /// Peers that must be told what was consumed, since nothing else goes to them.
    untold: Vec<u32>,
    /// Reused: packets that `pump` gives back at once.
    done: Vec<Packet>,
    /// Pulls that have ended, by token, and whether their bytes are there.
    pulled: Vec<(u64, bool)>,
}

/// Registered memory of this process.
pub struct Exposed {
    /// There until this is dropped, which it is under the lock.
    region: Option<Region>,
    far: Far,
    net: Arc<Mutex<Net>>,
}

impl Exposed {
    pub(crate) fn far(&self) -> Far {
        self.far
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        let _net = lock(&self.net);
        self.region = None;
    }
}

#[derive(Default)]
struct Remote {
    address: Option<Address>,
    /// Packets that have not been taken.
    inbox: VecDeque<(Header, Packet)>,
    /// What it has consumed of ours, as it last said.
    consumed: u64,
    /// What we have consumed of its packets, and what it knows of that.
    returned: u64,
    told: u64,
    /// Whether it has written to us; whether `arrivals` has said so.
    is_writer: bool,
    /// Which of the processes that had this place one after the other.
    generation: u32,
    /// Why nothing reaches it any more; told once.
    fault: Option<String>,
    is_lost: bool,
}

impl Port {
    /// Opens the endpoint of process `rank` by libfabric, which lies at `library` or is the system's, and
    /// publishes its name. `provider` is the user's choice, if any; the interface is that of the job's
    /// address for this host. Errors (MPI_ERR_OTHER): there is no libfabric, or it has nothing for this host.
    pub fn open(
        segment: &Segment,
        rank: LocalRank,
        library: Option<&Path>,
        provider: Option<&str>,
    ) -> Result<Port> {
        let library = Library::load(library)?;
        let address = segment.job().address.text().parse().ok();
        let provider = fabric::choose(&library, provider, address)?.swap_remove(0);
        // SAFETY: `net`'s lock is around each use.
        let endpoint = unsafe { Endpoint::open(provider, fabric::Config::default()) }?;
        Port::new(endpoint, segment, rank)
    }

    /// The way in of process `rank` by an endpoint. Errors (MPI_ERR_OTHER): its name is longer than any that
    /// we know.
    fn new(endpoint: Endpoint, segment: &Segment, rank: LocalRank) -> Result<Port> {
        let name = endpoint.name();
        if name.len() > ENDPOINT_BYTES_MAX {
            fail!(
                Class::Other,
                "an endpoint's name of {} bytes: at most {ENDPOINT_BYTES_MAX} are possible",
                name.len()
            );
        }
        segment.set_endpoint(rank.peer(), name);
        let fd = endpoint.wait_fd().and_then(|fd| fd.try_clone_to_owned().ok());
        let sleeper = fd.and_then(|fd| Sleeper::start(fd, segment.clone(), rank));
        let net = Net {
            endpoint,
            rank: rank.peer(),
            generation: segment.generation(rank.peer()),
            segment: segment.clone(),
            secret: segment.job().secret.load(Ordering::Relaxed),
            peers: HashMap::new(),
            arrivals: Vec::new(),
            untold: Vec::new(),
            done: Vec::new(),
            pulled: Vec::new(),
        };
        Ok(Port { net: Arc::new(Mutex::new(net)), sleeper })
    }

    /// The link to a peer.
    pub fn link(&self, peer: u32) -> Link {
        let mut net = lock(&self.net);
        let generation = net.segment.generation(peer);
        net.peers.entry(peer).or_insert_with(|| Remote { generation, ..Remote::default() });
        drop(net);
        Link { net: self.net.clone(), peer }
    }

    /// Moves the network on. Whether `arrivals` would tell of a peer, or `pulled` of a pull.
    pub fn has_arrivals(&self) -> bool {
        let mut net = lock(&self.net);
        net.pump();
        !net.arrivals.is_empty() || !net.pulled.is_empty()
    }

    /// Whether the process may sleep: its bell is then rung when something arrives.
    pub fn may_sleep(&self) -> bool {
        let net = lock(&self.net);
        let Some(sleeper) = &self.sleeper else { return false };
        let may = net.untold.is_empty() && net.endpoint.may_sleep();
        if may {
            sleeper.arm();
        }
        may
    }

    /// Which of the processes that have had a peer's place it is, as far as its packets have told.
    pub fn generation(&self, peer: u32) -> u32 {
        lock(&self.net).remote(peer).map_or(0, |peer| peer.generation)
    }

    /// Begins anew with a peer if another process has its place now.
    pub fn renew(&self, peer: u32) {
        let mut net = lock(&self.net);
        let generation = net.segment.generation(peer);
        let Some(remote) = net.peers.get_mut(&peer).filter(|remote| remote.generation < generation) else {
            return;
        };
        let left = remote.renew(generation);
        left.into_iter().for_each(|packet| net.endpoint.release(packet));
    }

    /// Has `arrivals` tell of all peers again.
    pub fn forget_arrivals(&mut self) {
        let mut net = lock(&self.net);
        net.arrivals =
            net.peers.iter().filter(|(_, peer)| peer.is_writer).map(|(number, _)| *number).collect();
    }

    /// Calls `each` with every pull that has ended.
    pub fn pulled(&mut self, mut each: impl FnMut(u64, bool)) {
        let mut net = lock(&self.net);
        net.pump();
        net.pulled.drain(..).for_each(|(token, done)| each(token, done));
    }

    /// Moves the network on, and calls `each` with every peer that has written to us for the first time.
    pub fn arrivals(&mut self, mut each: impl FnMut(u32)) {
        let mut net = lock(&self.net);
        net.pump();
        net.arrivals.drain(..).for_each(&mut each);
    }
}

impl Link {
    pub(crate) fn ready(&self) -> bool {
        lock(&self.net).remote(self.peer).is_some_and(|peer| !peer.inbox.is_empty())
    }

    pub(crate) fn send(&mut self, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        lock(&self.net).send(self.peer, header, bytes, fill)
    }

    pub(crate) fn has_room(&mut self, bytes: usize, piece_bytes: usize) -> bool {
        let net = lock(&self.net);
        net.endpoint.free_sends() > bytes.div_ceil(piece_bytes.max(1))
    }

    pub(crate) fn poll(&mut self, each: impl FnOnce(&Header, Span)) -> Result<bool> {
        let Some((header, packet)) = lock(&self.net).take(self.peer)? else { return Ok(false) };
        each(&header, payload(&packet));
        lock(&self.net).endpoint.release(packet);
        Ok(true)
    }

    pub(crate) fn poll_while(&mut self, sink: &mut impl PacketSink) -> Result<()> {
        let mut net = lock(&self.net);
        if !net.has_packet(self.peer) {
            net.pump();
        }
        drop(net);
        loop {
            let Some((header, packet)) = lock(&self.net).take(self.peer)? else { return Ok(()) };
            let answer = sink.packet(&header, payload(&packet));
            let mut net = lock(&self.net);
            match answer {
                Take::Not => {
                    net.put_back(self.peer, header, packet);
                    return Ok(());
                }
                Take::Last => {
                    net.endpoint.release(packet);
                    return Ok(());
                }
                Take::More => net.endpoint.release(packet),
            }
        }
    }

    pub(crate) fn consumed(&self) -> u64 {
        lock(&self.net).remote(self.peer).map_or(0, |peer| peer.consumed)
    }

    pub(crate) fn consume(&mut self, amount: u64) {
        let mut net = lock(&self.net);
        let peer = net.peers.entry(self.peer).or_default();
        peer.returned = peer.returned.wrapping_add(amount);
        if peer.returned.wrapping_sub(peer.told) >= TELL_BYTES && !net.tell(self.peer) {
            net.untold.push(self.peer);
        }
    }

    pub(crate) fn expose(&self, span: Span) -> Option<Exposed> {
        // SAFETY: the memory stays mapped while it is exposed (contract of `route::Exposed`), and the region
        // is dropped with it.
        let region = unsafe { lock(&self.net).endpoint.lend(span) }.ok()?;
        let RemoteMemory { key, base, bytes } = region.remote();
        Some(Exposed { region: Some(region), far: Far { base, key, bytes }, net: self.net.clone() })
    }

    pub(crate) fn pull(&mut self, far: Far, at: u64, to: Span, own: &Exposed, token: u64) -> Pull {
        let mut net = lock(&self.net);
        let Some(&Remote { address: Some(address), is_lost: false, .. }) = net.remote(self.peer) else {
            return Pull::Never;
        };
        let (Far { base, key, bytes }, Some(region)) = (far, &own.region) else { return Pull::Never };
        // SAFETY: nobody uses `to`, and `own` stays, until the token is back (contract of `Route::pull`).
        let answer =
            unsafe { net.endpoint.read(address, RemoteMemory { key, base, bytes }, at, to, region, token) };
        match answer {
            Ok(fabric::Sent::Done) => Pull::Started,
            Ok(fabric::Sent::Full) => Pull::Full,
            Err(_) => Pull::Never,
        }
    }

    pub(crate) fn payload_bytes_max(&self) -> usize {
        lock(&self.net).endpoint.packet_bytes_max() - WIRE_BYTES
    }
}

impl Net {
    fn remote(&self, peer: u32) -> Option<&Remote> {
        self.peers.get(&peer)
    }

    fn has_packet(&self, peer: u32) -> bool {
        self.remote(peer).is_some_and(|peer| !peer.inbox.is_empty())
    }

    fn send(&mut self, number: u32, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        let (source, secret) = ((self.rank, self.generation), self.secret);
        let peer = self.peers.entry(number).or_default();
        if peer.is_lost {
            return Sent::Full;
        }
        let Some(address) = peer.address else { return self.connect_and_send(number, header, bytes, fill) };
        let consumed = peer.returned;
        let answer = self.endpoint.send(address, WIRE_BYTES + bytes, |to| {
            write(to.slice(0, WIRE_BYTES), source, header, secret, consumed);
            fill(to.slice(WIRE_BYTES, bytes));
        });
        match answer {
            Ok(fabric::Sent::Done) => {
                peer.told = consumed;
                Sent::Done
            }
            Ok(fabric::Sent::Full) => Sent::Full,
            Err(error) => {
                peer.lose(error.message.clone());
                Sent::Full
            }
        }
    }

    /// The first packet to a peer: its address may not have come yet.
    #[cold]
    fn connect_and_send(
        &mut self,
        number: u32,
        header: &Header,
        bytes: usize,
        fill: impl FnOnce(Span),
    ) -> Sent {
        let peer = self.peers.entry(number).or_default();
        if peer.generation > self.segment.generation(number) {
            // The name is still that of the process before.
            return Sent::Full;
        }
        let Some(name) = self.segment.endpoint(number) else { return Sent::Full };
        match self.endpoint.insert(&name) {
            Ok(address) => peer.address = Some(address),
            Err(error) => peer.lose(error.message.clone()),
        }
        self.send(number, header, bytes, fill)
    }

    /// Tells a peer what was consumed of its packets; whether that left.
    fn tell(&mut self, number: u32) -> bool {
        let header = Header { kind: CONSUMED, tag: 0, context: 0 };
        self.send(number, &header, 0, |_| ()) == Sent::Done
    }

    /// The next packet of a peer. Errors (MPI_ERR_PROC_ABORTED): the way to it has ended; told once.
    fn take(&mut self, number: u32) -> Result<Option<(Header, Packet)>> {
        let Some(peer) = self.peers.get_mut(&number) else { return Ok(None) };
        if let Some(next) = peer.inbox.pop_front() {
            return Ok(Some(next));
        }
        match peer.fault.take() {
            None => Ok(None),
            Some(fault) => {
                let rank = self.rank;
                fail!(Class::ProcAborted, "the connection of rank {rank} to rank {number} is lost: {fault}")
            }
        }
    }

    fn put_back(&mut self, number: u32, header: Header, packet: Packet) {
        self.peers.entry(number).or_default().inbox.push_front((header, packet));
    }

    /// Drives the endpoint, and files what has arrived.
    fn pump(&mut self) {
        let Net { endpoint, rank, segment, secret, peers, arrivals, done, pulled, .. } = self;
        let polled = endpoint.poll(|event| match event {
            Event::Packet(packet) => {
                let Some(found) = read(packet.bytes(), *secret)
                    .filter(|it| it.source < segment.shape().ranks && it.source != *rank)
                else {
                    telemetry::count(telemetry::Counter::NetRefused, 1);
                    done.push(packet);
                    return;
                };
                let first = || Remote { generation: found.generation, ..Remote::default() };
                let peer = peers.entry(found.source).or_insert_with(first);
                if found.generation < peer.generation {
                    // What an ended process said last means nothing any more.
                    done.push(packet);
                    return;
                }
                if found.generation > peer.generation {
                    done.extend(peer.renew(found.generation));
                }
                peer.consumed = found.consumed;
                if found.header.kind == CONSUMED {
                    done.push(packet);
                    return;
                }
                if !std::mem::replace(&mut peer.is_writer, true) {
                    arrivals.push(found.source);
                }
                peer.inbox.push_back((found.header, packet));
            }
            Event::Undelivered(to, said) => {
                if let Some(peer) = peers.values_mut().find(|peer| peer.address == Some(to)) {
                    peer.lose(said);
                }
            }
            Event::Accessed(token) => pulled.push((token, true)),
            Event::Failed(token, _) => pulled.push((token, false)),
        });
        done.drain(..).for_each(|packet| endpoint.release(packet));
        if let Err(error) = polled {
            peers.values_mut().for_each(|peer| peer.lose(error.message.clone()));
        }
        // One that cannot be reached now keeps no other waiting; one that is lost needs to know nothing.
        for number in std::mem::take(&mut self.untold) {
            if !self.tell(number) && self.remote(number).is_some_and(|peer| !peer.is_lost) {
                self.untold.push(number);
            }
        }
    }
}

impl Remote {
    /// Another process has the place now. Returns what the one before has left in the inbox.
    fn renew(&mut self, generation: u32) -> Vec<Packet> {
        // Its first packet is told of as that of any peer: the lane to it must begin anew before.
        let anew = Remote { generation, ..Remote::default() };
        std::mem::replace(self, anew).inbox.into_iter().map(|(_, packet)| packet).collect()
    }

    fn lose(&mut self, why: String) {
        if !std::mem::replace(&mut self.is_lost, true) {
            self.fault = Some(why);
        }
    }
}

/// What a wire header says.
struct Found {
    source: u32,
    generation: u32,
    header: Header,
    consumed: u64,
}

fn write(to: Span, (source, generation): (u32, u32), header: &Header, secret: u64, consumed: u64) {
    let mut bytes = [0; WIRE_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC.to_ne_bytes());
    bytes[4..8].copy_from_slice(&source.to_ne_bytes());
    bytes[8..12].copy_from_slice(&(u32::from(header.kind) | generation << 8).to_ne_bytes());
    bytes[12..16].copy_from_slice(&header.tag.to_ne_bytes());
    bytes[16..24].copy_from_slice(&header.context.to_ne_bytes());
    bytes[24..32].copy_from_slice(&secret.to_ne_bytes());
    bytes[32..40].copy_from_slice(&consumed.to_ne_bytes());
    to.write(&bytes);
}

/// The header of a packet of this job; nothing if it is none.
fn read(packet: Span, secret: u64) -> Option<Found> {
    if packet.bytes() < WIRE_BYTES {
        return None;
    }
    let mut bytes = [0; WIRE_BYTES];
    packet.slice(0, WIRE_BYTES).read(&mut bytes);
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    (word(0) == MAGIC && long(24) == secret).then(|| Found {
        source: word(4),
        generation: word(8) >> 8,
        header: Header { kind: word(8) as u8, tag: word(12) as i32, context: long(16) },
        consumed: long(32),
    })
}

fn payload(packet: &Packet) -> Span {
    let all = packet.bytes();
    all.slice(WIRE_BYTES, all.bytes() - WIRE_BYTES)
}

fn lock(net: &Mutex<Net>) -> MutexGuard<'_, Net> {
    net.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::Shape;
    use std::time::{Duration, Instant};
    use telemetry::{Counter, value};

    /// Goal: packets without the job's secret, of another version, of a rank that is not there, or too short,
    /// are counted and change nothing. Method: an endpoint of no rank sends each to a rank's port, and at
    /// last a good one.
    #[test]
    fn a_strangers_packets_are_counted_and_change_nothing() {
        const SECRET: u64 = 0x5ec;
        let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap();
        segment.set_nodes(0, 2, &[0, 1], SECRET);
        segment.job().address.set("127.0.0.1");
        let mut port = Port::open(&segment, segment.require(0).unwrap(), None, Some("tcp")).unwrap();
        let library = Library::load(None).unwrap();
        let provider =
            fabric::choose(&library, Some("tcp"), "127.0.0.1".parse().ok()).unwrap().swap_remove(0);
        // SAFETY: one thread uses it.
        let mut stranger = unsafe { Endpoint::open(provider, fabric::Config::default()) }.unwrap();
        let to = stranger.insert(&segment.endpoint(0).unwrap()).unwrap();
        let header = Header { kind: 1, tag: 3, context: 4 };
        let spoilt: [(&str, u32, u64, usize, usize); 6] = [
            ("another secret", 1, SECRET + 1, 0, WIRE_BYTES + 8),
            ("a rank that is not there", 2, SECRET, 0, WIRE_BYTES + 8),
            ("the port's own rank", 0, SECRET, 0, WIRE_BYTES + 8),
            ("another version", 1, SECRET, 1, WIRE_BYTES + 8),
            ("too short", 1, SECRET, 0, WIRE_BYTES - 1),
            ("nothing wrong", 1, SECRET, 0, WIRE_BYTES + 8),
        ];
        let begin = Instant::now();
        for (i, (what, source, secret, mask, bytes)) in spoilt.into_iter().enumerate() {
            let before = value(Counter::NetRefused);
            let (mut is_sent, mut writers) = (false, Vec::new());
            let is_good = i == spoilt.len() - 1;
            while (value(Counter::NetRefused) == before) != is_good || is_good && writers.is_empty() {
                assert!(begin.elapsed() < Duration::from_secs(60), "{what}: nothing came");
                stranger.poll(|_| ()).unwrap();
                is_sent = is_sent
                    || stranger
                        .send(to, bytes, |to| {
                            let whole = sys::Block::new(WIRE_BYTES + 8);
                            write(whole.span().slice(0, WIRE_BYTES), (source, 0), &header, secret, 0);
                            let mut copy = whole.to_vec();
                            copy[0] ^= mask as u8;
                            to.write(&copy[..bytes]);
                        })
                        .unwrap()
                        == fabric::Sent::Done;
                port.arrivals(|peer| writers.push(peer));
            }
            assert_eq!(writers, if is_good { vec![1] } else { vec![] }, "{what}");
        }
        assert_eq!(value(Counter::NetRefused), spoilt.len() as u64 - 1);
    }
}
