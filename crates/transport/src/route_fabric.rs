// SPDX-License-Identifier: BSD-3-Clause
//! The fabric route: packets to and from peers on other hosts, over this process's one endpoint.
//!
//! A packet is a wire header (`wire.rs`), then the payload. The header names the sender, carries the job's
//! secret, numbers the packet (`sequence.rs`), and reports how much the sender has consumed of the other
//! direction. A peer takes memory from its first packet on. Received packets stay in the endpoint's receive
//! buffers until they are taken, except early packets, which are copied.
//!
//! Invariants: a packet without the job's secret, or with an impossible number, is counted and changes
//! nothing else; packets of one peer keep their order, and the loss of a packet is reported.
//!
//! Read next: `net.rs`; `route_fabric/edges.rs`; crate `fabric` (the endpoint).

mod edges;

use crate::net::{Net, Peers};
use crate::packet::{Far, Header, PacketSink, Pull, Sent, Take};
use crate::shm::{ENDPOINT_BYTES_MAX, Member, Segment};
use crate::sleeper::Sleeper;
use crate::wire::WIRE_BYTES;
use error::{Class, Result, fail};
use fabric::{Address, Endpoint, Libfabric, Region, RemoteMemory};
pub use fabric::{ProviderChoice, SIZES, set_sizes};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use sys::Span;

/// A process's access to the network.
pub struct Port {
    net: Arc<Mutex<Net>>,
    waits: Waits,
}

/// How a sleeping process is woken when something arrives.
enum Waits {
    /// A thread rings its bell. A rank sleeps on the bell alone, since signals belong to the program.
    Watched(Arc<Sleeper>),
    /// A proxy sleeps on the descriptor itself.
    Descriptor(OwnedFd),
    /// The process is not woken, so it sleeps for short times only.
    Nothing,
}

/// The longest sleep of a proxy that nothing wakes: the provider has no descriptor, or had no room for a
/// packet.
const BLIND_MAX: Duration = Duration::from_millis(1);

/// Both directions between this process and one peer.
pub struct Link {
    net: Arc<Mutex<Net>>,
    peer: u32,
    /// How many of the next sends must not be refused, since `has_room` promised it.
    promised: usize,
}

/// Registered memory of this process.
pub struct Exposed {
    /// `None` only while this is dropped. The region is dropped under the lock.
    region: Option<Region>,
    far: Far,
    net: Arc<Mutex<Net>>,
}

impl Exposed {
    /// Registers memory, which must stay mapped until this is dropped; None if the provider refuses.
    fn new(net: &Arc<Mutex<Net>>, span: Span) -> Option<Exposed> {
        // SAFETY: the memory stays mapped while it is exposed (contract of `route::Exposed`), and the region
        // is dropped with the `Exposed` that holds it.
        let region = unsafe { lock(net).endpoint.lend(span) }.ok()?;
        Some(Exposed::of(region, net))
    }

    fn of(region: Region, net: &Arc<Mutex<Net>>) -> Exposed {
        let RemoteMemory { key, base, bytes } = region.remote();
        Exposed { region: Some(region), far: Far { base, key, bytes }, net: net.clone() }
    }

    /// The numbers that a peer needs to read it.
    pub fn far(&self) -> Far {
        self.far
    }
}

impl Net {
    /// Starts to read exposed memory from byte `at` of `far` on into `to`, which lies in `own`. No one may
    /// use `to`, and `own` must stay, until `token` has come back.
    fn pull(&mut self, address: Address, (far, at): (Far, u64), to: Span, own: &Exposed, token: u64) -> Pull {
        let (Far { base, key, bytes }, Some(region)) = (far, &own.region) else { return Pull::Never };
        // SAFETY: `to` lies in `own`, and both stay unused and registered as this function's contract says.
        let answer =
            unsafe { self.endpoint.read(address, RemoteMemory { key, base, bytes }, at, to, region, token) };
        match answer {
            Ok(fabric::Sent::Done) => Pull::Started,
            Ok(fabric::Sent::Full) => Pull::Full,
            Err(_) => Pull::Never,
        }
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        let _net = lock(&self.net);
        self.region = None;
    }
}

impl Port {
    /// Opens the endpoint of a process by libfabric, and publishes its name. If the user has chosen no
    /// interface, it is the one with the job's address for this host. Errors (MPI_ERR_OTHER): there is no
    /// libfabric, or it has no provider for this host.
    pub fn open(segment: &Segment, member: Member, wanted: &ProviderChoice) -> Result<Port> {
        let library = Libfabric::load(wanted.library)?;
        let address = segment.job().address.text().parse().ok();
        let provider = fabric::choose(&library, wanted, address)?.swap_remove(0);
        // SAFETY: the lock of `net` is held during each use.
        let endpoint = unsafe { Endpoint::open(provider, fabric::Config::default()) }?;
        Port::new(endpoint, segment, member)
    }

    /// Makes the port of a process from its endpoint. Errors (MPI_ERR_OTHER): the endpoint's name is too
    /// long.
    fn new(endpoint: Endpoint, segment: &Segment, member: Member) -> Result<Port> {
        let name = endpoint.name();
        if name.len() > ENDPOINT_BYTES_MAX {
            fail!(
                Class::Other,
                "an endpoint's name of {} bytes: at most {ENDPOINT_BYTES_MAX} are possible",
                name.len()
            );
        }
        let number = member.number(segment);
        segment.set_endpoint(number, name);
        let fd = endpoint.wait_fd().and_then(|fd| fd.try_clone_to_owned().ok());
        let waits = match (fd, member) {
            (Some(fd), Member::Proxy(_)) => Waits::Descriptor(fd),
            (Some(fd), Member::Rank(rank)) => {
                Sleeper::start(fd, segment.clone(), rank).map_or(Waits::Nothing, Waits::Watched)
            }
            (None, _) => Waits::Nothing,
        };
        let mut net = Net::new(endpoint, segment, number);
        // Opening it takes a while, and a proxy has no work yet. A rank opens it when it needs it.
        if let Member::Proxy(_) = member {
            net.endpoint.target()?;
        }
        Ok(Port { net: Arc::new(Mutex::new(net)), waits })
    }

    /// The provider, interface and libfabric in use, as text for people.
    pub fn describe(&self) -> String {
        let net = lock(&self.net);
        let provider = net.endpoint.provider();
        format!("{provider}, by {}", provider.library().origin())
    }

    /// The link to a peer.
    pub fn link(&self, peer: u32) -> Link {
        lock(&self.net).peers.at(peer);
        Link { net: self.net.clone(), peer, promised: 0 }
    }

    /// Drives the network. Returns whether `arrivals` would report a peer, `pulled` or `pulled_edge` a pull,
    /// or `take_edge` a packet.
    pub fn has_arrivals(&self) -> bool {
        let mut net = lock(&self.net);
        net.pump();
        let Peers { arrivals, pulled, pulled_edges, edged, .. } = &net.peers;
        !(arrivals.is_empty() && pulled.is_empty() && pulled_edges.is_empty() && edged.is_empty())
    }

    /// The longest payload of a packet.
    pub fn payload_bytes_max(&self) -> usize {
        lock(&self.net).endpoint.packet_bytes_max() - WIRE_BYTES
    }

    /// Whether a rank may sleep. If so, its bell rings when something arrives.
    pub fn may_sleep(&self) -> bool {
        let net = lock(&self.net);
        let Waits::Watched(sleeper) = &self.waits else { return false };
        let may = net.is_idle() && net.endpoint.may_sleep();
        if may {
            sleeper.arm();
        }
        may
    }

    /// How long a proxy may sleep on `descriptor`; None if something has arrived.
    pub fn nap_max(&self) -> Option<Duration> {
        let net = lock(&self.net);
        match self.waits {
            Waits::Descriptor(_) if !net.endpoint.may_sleep() => None,
            Waits::Descriptor(_) if net.is_idle() => Some(Duration::MAX),
            _ => Some(BLIND_MAX),
        }
    }

    /// The descriptor that becomes readable when something arrives at a proxy after `nap_max`.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.waits {
            Waits::Descriptor(fd) => Some(fd.as_fd()),
            _ => None,
        }
    }

    /// The number of a peer's world, as far as its packets have shown (`Segment::generation`).
    pub fn generation(&self, peer: u32) -> u32 {
        lock(&self.net).peers.generation(peer)
    }

    /// Makes the record of a peer anew if a new process has its number now.
    pub fn renew(&self, peer: u32) {
        lock(&self.net).renew(peer);
    }

    /// Makes `arrivals` report all peers again.
    pub fn forget_arrivals(&mut self) {
        lock(&self.net).peers.forget_arrivals();
    }

    /// Calls `each` with the token of each pull that has ended, and whether its bytes are there.
    pub fn pulled(&mut self, mut each: impl FnMut(u64, bool)) {
        let mut net = lock(&self.net);
        net.pump();
        net.peers.pulled.drain(..).for_each(|(token, done)| each(token, done));
    }

    /// Drives the network, and calls `each` with each peer that has sent to this process for the first time.
    pub fn arrivals(&mut self, mut each: impl FnMut(u32)) {
        let mut net = lock(&self.net);
        net.pump();
        net.peers.arrivals.drain(..).for_each(&mut each);
    }
}

impl Link {
    pub(crate) fn ready(&self) -> bool {
        lock(&self.net).peers.has_packet(self.peer)
    }

    pub(crate) fn send(&mut self, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        let is_promised = self.promised > 0;
        self.promised -= usize::from(is_promised);
        lock(&self.net).send(self.peer, is_promised, header, bytes, fill)
    }

    pub(crate) fn has_room(&mut self, bytes: usize, piece_bytes: usize) -> bool {
        let packets = 1 + bytes.div_ceil(piece_bytes.max(1));
        let has_room = lock(&self.net).has_room(self.peer, packets, bytes + packets * WIRE_BYTES);
        self.promised = if has_room { packets } else { 0 };
        has_room
    }

    pub(crate) fn poll(&mut self, each: impl FnOnce(&Header, Span)) -> Result<bool> {
        let Some((header, packet)) = lock(&self.net).take(self.peer)? else { return Ok(false) };
        each(&header, packet.payload());
        lock(&self.net).release(packet);
        Ok(true)
    }

    pub(crate) fn poll_while(&mut self, sink: &mut impl PacketSink) -> Result<()> {
        let mut net = lock(&self.net);
        if !net.peers.has_packet(self.peer) {
            net.pump();
        }
        drop(net);
        loop {
            let Some((header, packet)) = lock(&self.net).take(self.peer)? else { return Ok(()) };
            let answer = sink.packet(&header, packet.payload());
            let mut net = lock(&self.net);
            match answer {
                Take::Not => {
                    net.peers.put_back(self.peer, header, packet);
                    return Ok(());
                }
                Take::Last => {
                    net.release(packet);
                    return Ok(());
                }
                Take::More => net.release(packet),
            }
        }
    }

    pub(crate) fn consumed(&self) -> u64 {
        lock(&self.net).peers.consumed(self.peer)
    }

    pub(crate) fn consume(&mut self, amount: u64) {
        lock(&self.net).peers.consume(self.peer, amount);
    }

    pub(crate) fn expose(&self, span: Span) -> Option<Exposed> {
        Exposed::new(&self.net, span)
    }

    pub(crate) fn pull(&mut self, far: Far, at: u64, to: Span, own: &Exposed, token: u64) -> Pull {
        let mut net = lock(&self.net);
        match net.peers.address(self.peer) {
            Some(address) => net.pull(address, (far, at), to, own, token),
            None => Pull::Never,
        }
    }

    /// Whether packets travel on while both processes compute (`Endpoint::is_carried_by_kernel`).
    pub(crate) fn is_carried_by_kernel(&self) -> bool {
        lock(&self.net).endpoint.is_carried_by_kernel()
    }

    pub(crate) fn payload_bytes_max(&self) -> usize {
        lock(&self.net).endpoint.packet_bytes_max() - WIRE_BYTES
    }
}

fn lock(net: &Mutex<Net>) -> MutexGuard<'_, Net> {
    net.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::Stamp;
    use crate::shm::Shape;
    use crate::wire::{PROBE, Wire};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;
    use telemetry::{Counter, value};

    const SECRET: u64 = 0x5ec;
    const LIMIT: Duration = Duration::from_secs(60);

    /// The segment of host `node` of a job with one rank on each of two hosts.
    fn host(node: u32) -> (Segment, OwnedFd) {
        let (segment, fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap();
        segment.set_nodes(node, 2, &[0, 1], SECRET);
        segment.job().address.set("127.0.0.1");
        (segment, fd)
    }

    fn port(segment: &Segment, rank: u32) -> Port {
        Port::open(segment, Member::Rank(segment.require(rank).unwrap()), &ProviderChoice::provider("tcp"))
            .unwrap()
    }

    /// Two hosts, and the ports of their ranks.
    fn pair() -> ([(Segment, OwnedFd); 2], [Port; 2]) {
        let hosts = [host(0), host(1)];
        let ports = [port(&hosts[0].0, 0), port(&hosts[1].0, 1)];
        for (from, to) in [(0, 1), (1, 0)] {
            hosts[to].0.set_endpoint(from as u32, &hosts[from].0.endpoint(from as u32).unwrap());
        }
        (hosts, ports)
    }

    /// Goal: packets without the job's secret, of another version, of a rank that does not exist, too short,
    /// or with impossible numbers are counted and change nothing. Method: an endpoint that belongs to no rank
    /// sends each of them to a rank's port, and a good packet at last.
    #[test]
    fn a_strangers_packets_are_counted_and_change_nothing() {
        let (segment, _fd) = host(0);
        let mut port = port(&segment, 0);
        let library = Libfabric::load(None).unwrap();
        let provider = fabric::choose(&library, &ProviderChoice::provider("tcp"), "127.0.0.1".parse().ok())
            .unwrap()
            .swap_remove(0);
        // SAFETY: one thread uses it.
        let mut stranger = unsafe { Endpoint::open(provider, fabric::Config::default()) }.unwrap();
        let to = stranger.insert(&segment.endpoint(0).unwrap()).unwrap();
        let good = Wire {
            source: 1,
            generation: 0,
            header: Header { kind: 1, tag: 3, context: 4 },
            secret: SECRET,
            consumed: 0,
            stamp: Stamp { number: 0, answered: 0, wants_answer: false },
        };
        let numbered = |number, answered, kind| Wire {
            stamp: Stamp { number, answered, wants_answer: false },
            header: Header { kind, ..good.header },
            ..good
        };
        let spoilt = [
            ("another secret", Wire { secret: SECRET + 1, ..good }, 0, WIRE_BYTES + 8),
            ("a rank that is not there", Wire { source: 2, ..good }, 0, WIRE_BYTES + 8),
            ("the port's own rank", Wire { source: 0, ..good }, 0, WIRE_BYTES + 8),
            ("another version", good, 1, WIRE_BYTES + 8),
            ("too short", good, 0, WIRE_BYTES - 1),
            ("an answer to what was not sent", numbered(0, 1, 1), 0, WIRE_BYTES + 8),
            ("a number far ahead", numbered(1 << 20, 0, 1), 0, WIRE_BYTES + 8),
            ("a number long past", numbered(1 << 31, 0, 1), 0, WIRE_BYTES + 8),
            ("a probe far ahead", numbered(1 << 20, 0, PROBE), 0, WIRE_BYTES),
            ("nothing wrong", good, 0, WIRE_BYTES + 8),
        ];
        let begin = Instant::now();
        for (i, (what, wire, mask, bytes)) in spoilt.into_iter().enumerate() {
            let before = value(Counter::NetRefused);
            let (mut is_sent, mut writers) = (false, Vec::new());
            let is_good = i == spoilt.len() - 1;
            while (value(Counter::NetRefused) == before) != is_good || is_good && writers.is_empty() {
                assert!(begin.elapsed() < LIMIT, "{what}: nothing came");
                stranger.poll(|_| ()).unwrap();
                is_sent = is_sent
                    || stranger
                        .send(to, bytes, |to| {
                            let whole = sys::Block::new(WIRE_BYTES + 8);
                            wire.write(whole.span());
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

    /// Sends `packets` packets and takes as many, and checks that they come in order.
    fn exchange(port: &mut Port, peer: u32, packets: u64) {
        let mut link = port.link(peer);
        let (mut sent, mut taken) = (0, 0);
        let begin = Instant::now();
        while sent < packets || taken < packets {
            assert!(begin.elapsed() < LIMIT, "{sent} packets of {packets} sent, {taken} taken");
            let header = Header { kind: 1, tag: 0, context: sent };
            if sent < packets && link.send(&header, 8, |to| to.write(&sent.to_ne_bytes())) == Sent::Done {
                sent += 1;
            }
            port.arrivals(|_| ());
            let mut number = [0; 8];
            while link
                .poll(|header, payload| {
                    payload.read(&mut number);
                    assert_eq!((header.context, u64::from_ne_bytes(number)), (taken, taken));
                })
                .unwrap()
            {
                taken += 1;
            }
        }
    }

    /// Goal: bytes of edges leave only while few packets lack an answer; notes leave always.
    #[test]
    fn bytes_of_edges_wait_for_answers() {
        const LONG: usize = 300;
        let (_hosts, mut ports) = pair();
        let begin = Instant::now();
        while !ports[0].has_room_for_edge(1, LONG) {
            assert!(begin.elapsed() < LIMIT, "they do not meet");
            ports.iter().for_each(|port| _ = port.has_arrivals());
        }
        let header = Header { kind: crate::packet::EDGE, tag: 0, context: 0 };
        let send = |port: &mut Port, bytes| port.send_edge(1, &header, bytes, |_| ());
        let mut sent = 0;
        while ports[0].has_room_for_edge(1, LONG) {
            assert_eq!(send(&mut ports[0], LONG), Sent::Done);
            sent += 1;
            assert!(sent < 100, "nothing bounds them");
        }
        assert_eq!((sent, send(&mut ports[0], LONG)), (8, Sent::Full));
        assert_eq!(send(&mut ports[0], 40), Sent::Done);
        let mut taken = 0;
        while taken < 9 || !ports[0].has_room_for_edge(1, LONG) {
            assert!(begin.elapsed() < LIMIT, "{taken} taken");
            ports[0].has_arrivals();
            taken += u32::from(ports[1].take_edge(|_, _, _| ()));
        }
    }

    /// Proxies of two hosts, their segments, and their endpoints.
    fn two_proxies() -> ([(Segment, OwnedFd); 2], [Port; 2], [u32; 2]) {
        let hosts = [0, 1].map(|node| {
            let (segment, fd) = Segment::create(Shape { ranks: 2, proxies: 1, arena_bytes: 1 }).unwrap();
            segment.set_nodes(node, 2, &[0, 1], SECRET);
            segment.job().address.set("127.0.0.1");
            (segment, fd)
        });
        let ports = [0, 1]
            .map(|at| Port::open(&hosts[at].0, Member::Proxy(0), &ProviderChoice::provider("tcp")).unwrap());
        let [here, there] = [0, 1].map(|at| hosts[at].0.proxy_endpoint(0));
        hosts[0].0.set_endpoint(there, &hosts[1].0.endpoint(there).unwrap());
        hosts[1].0.set_endpoint(here, &hosts[0].0.endpoint(here).unwrap());
        (hosts, ports, [here, there])
    }

    /// Goal: reads of memory that a proxy has exposed end when the proxy has ended, and no packet is sent to
    /// it any more.
    #[test]
    fn a_proxy_that_has_ended_takes_no_reads_and_no_packets() {
        const BYTES: usize = 64;
        let (hosts, [mut near, mut far], [_, there]) = two_proxies();
        let [from, to] = [0; 2].map(|_| sys::Block::new(BYTES));
        let own = near.register(to.span()).unwrap();
        let begin = Instant::now();
        let header = Header { kind: crate::packet::EDGE, tag: 0, context: 0 };
        while near.send_edge(there, &header, 8, |_| ()) == Sent::Full {
            assert!(begin.elapsed() < LIMIT, "they do not meet");
            near.has_arrivals();
            far.has_arrivals();
        }
        let mut read = |far: Option<&mut Port>, (exposed, name): &(Far, Box<[u8]>)| {
            let mut far = far;
            loop {
                assert!(begin.elapsed() < LIMIT, "a read has no end");
                match near.pull_edge((there, name), (*exposed, 0), to.span(), &own, 1) {
                    Pull::Full => _ = far.as_mut().map(|far| far.has_arrivals()),
                    Pull::Never => return false,
                    Pull::Started => break,
                }
                near.has_arrivals();
            }
            loop {
                assert!(begin.elapsed() < LIMIT, "a read has no end");
                near.has_arrivals();
                far.as_mut().map(|far| far.has_arrivals());
                if let Some((1, is_there)) = near.pulled_edge() {
                    return is_there;
                }
            }
        };
        let (exposed, name) = far.expose(from.span()).unwrap();
        let place = (exposed.far(), name);
        assert!(read(Some(&mut far), &place), "it lives");
        drop((exposed, far));
        hosts[0].0.set_endpoint(there, &[]);
        (0..3).for_each(|_| assert!(!read(None, &place), "it has ended"));
        assert_eq!(near.send_edge(there, &header, 8, |_| ()), Sent::Full);
        assert!(near.broken().is_none() && lock(&near.net).is_idle());
    }

    /// Goal: a packet wakes a proxy that sleeps on its descriptor, and a proxy does not sleep while a packet
    /// waits. Method: the receiver polls only when it may not sleep, or was woken, or after a nap.
    #[test]
    fn a_proxy_sleeps_on_its_descriptor_until_a_packet_comes() {
        let (_hosts, [mut near, mut far], [here, there]) = two_proxies();
        let header = Header { kind: crate::packet::EDGE, tag: 0, context: 0 };
        let (begin, mut sent, mut taken, mut woken) = (Instant::now(), 0, 0, 0);
        while taken < 10 {
            assert!(begin.elapsed() < LIMIT, "{sent} sent, {taken} taken");
            if sent == taken && near.send_edge(there, &header, 8, |_| ()) == Sent::Done {
                sent += 1;
            }
            near.has_arrivals();
            if let Some(most) = far.nap_max() {
                let nap = most.min(Duration::from_millis(5));
                woken += u32::from(sys::process::readable(far.descriptor().unwrap(), Some(nap)).unwrap());
            }
            taken += u32::from(far.take_edge(|from, _, _| assert_eq!(from, here)));
        }
        assert!(woken > 0, "the descriptor never became readable");
        assert!(!far.may_sleep(), "that is for ranks");
    }

    /// Goal: a packet that was sent arrives although its sender does not drive the network any more. This
    /// holds for the first packet, too.
    #[test]
    fn a_packet_that_was_sent_needs_its_sender_no_more() {
        let (_hosts, ports) = pair();
        let [mut here, mut there] = [ports[0].link(1), ports[1].link(0)];
        let begin = Instant::now();
        let header = Header { kind: 1, tag: 0, context: 0 };
        while here.send(&header, 8, |to| to.write(&[7; 8])) == Sent::Full {
            assert!(begin.elapsed() < LIMIT, "it is not sent");
            ports.iter().for_each(|port| _ = port.has_arrivals());
        }
        while !there.poll(|_, _| ()).unwrap() {
            assert!(begin.elapsed() < LIMIT, "it does not arrive");
            ports[1].has_arrivals();
        }
    }

    /// Goal: no packet is lost if two processes connect to each other at once, whatever the provider then
    /// does. Method: two threads start together, again and again.
    #[test]
    fn two_that_connect_at_once_lose_nothing() {
        const ROUNDS: usize = 6;
        for _ in 0..ROUNDS {
            let (_hosts, ports) = pair();
            let (start, done) = (Barrier::new(2), AtomicU32::new(0));
            std::thread::scope(|scope| {
                for (rank, mut port) in (0..).zip(ports) {
                    let (start, done) = (&start, &done);
                    scope.spawn(move || {
                        start.wait();
                        exchange(&mut port, 1 - rank, 20);
                        done.fetch_add(1, Ordering::AcqRel);
                        // The peer may still need an answer.
                        while done.load(Ordering::Acquire) < 2 {
                            port.has_arrivals();
                        }
                    });
                }
            });
        }
    }
}
