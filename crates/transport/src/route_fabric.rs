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
use crate::packet::{Header, PacketSink, Pull, RemoteRange, Sent, Taken};
use crate::shm::{ENDPOINT_BYTES_MAX, EndpointOwner, Segment};
use crate::sleeper::Sleeper;
use crate::wire::WIRE_BYTES;
use error::{Class, Result, fail};
use fabric::{Address, Endpoint, Libfabric, Region, RemoteMemory};
pub use fabric::{ProviderChoice, SIZES, set_sizes};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use sys::Span;

/// A process's endpoint in the network, by which it reaches its peers on other hosts.
pub struct Port {
    net: Arc<Mutex<Net>>,
    wake_method: WakeMethod,
}

/// How a sleeping process is woken when something arrives.
enum WakeMethod {
    /// A thread rings the process's bell. A rank is woken in this way: it sleeps on the bell alone, since
    /// signals belong to its program.
    Thread(Arc<Sleeper>),
    /// The process sleeps on this descriptor of the endpoint and on its bell at once. A proxy does that.
    Descriptor(OwnedFd),
    /// The process is not woken, so it sleeps for short times only.
    Nothing,
}

/// The longest sleep of a proxy that an arriving packet may not wake: its provider has no descriptor, or
/// packets of its own wait for room.
const BLIND_MAX: Duration = Duration::from_millis(1);

/// The route to one peer on another host: sends packets to it, and takes those that came from it.
pub struct Link {
    net: Arc<Mutex<Net>>,
    peer: u32,
    /// How many of the next sends must not be refused, since `has_room` promised it.
    promised: usize,
}

/// Memory of this process that is registered with the provider until this is dropped.
pub struct Exposed {
    /// The registration; None only while this is dropped. It is dropped under the lock of `net`.
    region: Option<Region>,
    far: RemoteRange,
    net: Arc<Mutex<Net>>,
}

impl Exposed {
    /// Registers memory, which must stay mapped until this is dropped; None if the provider refuses.
    fn new(net: &Arc<Mutex<Net>>, span: Span) -> Option<Exposed> {
        // SAFETY: the memory stays mapped while it is exposed (contract of `route::Exposed`), and the region
        // is dropped with the `Exposed` that holds it.
        let region = unsafe { lock(net).endpoint.register_readable(span) }.ok()?;
        Some(Exposed::of(region, net))
    }

    fn of(region: Region, net: &Arc<Mutex<Net>>) -> Exposed {
        let RemoteMemory { key, base, bytes } = region.remote();
        Exposed { region: Some(region), far: RemoteRange { base, key, bytes }, net: net.clone() }
    }

    /// The numbers that a peer needs to read this memory.
    pub fn remote_range(&self) -> RemoteRange {
        self.far
    }
}

impl Net {
    /// Starts to read a peer's exposed memory `far`, from its byte `at` on, into `to`, which lies in `own`.
    /// No one may use `to`, and `own` must stay, until `Event::Accessed` or `Event::Failed` has returned
    /// `token`.
    fn pull(
        &mut self,
        address: Address,
        (far, at): (RemoteRange, u64),
        to: Span,
        own: &Exposed,
        token: u64,
    ) -> Pull {
        let (RemoteRange { base, key, bytes }, Some(region)) = (far, &own.region) else { return Pull::Never };
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
    /// Opens a process's endpoint by libfabric, and publishes its name. If the user has chosen no interface,
    /// the endpoint uses the interface with the host's address in the job. Errors (MPI_ERR_OTHER): there is
    /// no libfabric, or it has no provider for this host.
    pub fn open(segment: &Segment, member: EndpointOwner, wanted: &ProviderChoice) -> Result<Port> {
        let library = Libfabric::load(wanted.library)?;
        let address = segment.job().address.text().parse().ok();
        let provider = fabric::choose(&library, wanted, address)?.swap_remove(0);
        // SAFETY: the lock of `net` is held during each use.
        let endpoint = unsafe { Endpoint::open(provider, fabric::Config::default()) }?;
        Port::new(endpoint, segment, member)
    }

    /// Makes the port of a process from its endpoint. Errors (MPI_ERR_OTHER): the endpoint's name is too
    /// long.
    fn new(endpoint: Endpoint, segment: &Segment, member: EndpointOwner) -> Result<Port> {
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
        let wake_method = match (fd, member) {
            (Some(fd), EndpointOwner::Proxy(_)) => WakeMethod::Descriptor(fd),
            (Some(fd), EndpointOwner::Rank(rank)) => {
                Sleeper::start(fd, segment.clone(), rank).map_or(WakeMethod::Nothing, WakeMethod::Thread)
            }
            (None, _) => WakeMethod::Nothing,
        };
        let mut net = Net::new(endpoint, segment, number);
        // Opening it takes a while, and a proxy has no work yet. A rank opens it when it needs it.
        if let EndpointOwner::Proxy(_) = member {
            net.endpoint.target()?;
        }
        Ok(Port { net: Arc::new(Mutex::new(net)), wake_method })
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
        let Peers { arrivals, pulled, pulled_edges, edge_senders, .. } = &net.peers;
        !(arrivals.is_empty() && pulled.is_empty() && pulled_edges.is_empty() && edge_senders.is_empty())
    }

    /// The longest payload of a packet.
    pub fn payload_bytes_max(&self) -> usize {
        lock(&self.net).endpoint.packet_bytes_max() - WIRE_BYTES
    }

    /// Whether a rank may sleep now. If so, its bell will ring when a packet arrives or a pull ends.
    pub fn may_sleep(&self) -> bool {
        let net = lock(&self.net);
        let WakeMethod::Thread(sleeper) = &self.wake_method else { return false };
        let may = net.is_idle() && net.endpoint.may_sleep();
        if may {
            sleeper.arm();
        }
        may
    }

    /// How long a proxy may sleep on `descriptor` now, at most; None if something has arrived and it must
    /// poll.
    pub fn nap_max(&self) -> Option<Duration> {
        let net = lock(&self.net);
        match self.wake_method {
            WakeMethod::Descriptor(_) if !net.endpoint.may_sleep() => None,
            WakeMethod::Descriptor(_) if net.is_idle() => Some(Duration::MAX),
            _ => Some(BLIND_MAX),
        }
    }

    /// The descriptor on which a proxy sleeps after `nap_max`; None if the provider has none, or for a rank.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.wake_method {
            WakeMethod::Descriptor(fd) => Some(fd.as_fd()),
            _ => None,
        }
    }

    /// The number of a peer's world, as far as its packets have shown (`Segment::generation`).
    pub fn generation(&self, peer: u32) -> u32 {
        lock(&self.net).peers.generation(peer)
    }

    /// Empties the record of a peer if a new process has the peer's number by now.
    pub fn renew(&self, peer: u32) {
        lock(&self.net).renew(peer);
    }

    /// Makes `arrivals` report all peers again.
    pub fn reset_arrivals(&mut self) {
        lock(&self.net).peers.reset_arrivals();
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
                Taken::No => {
                    net.peers.put_back(self.peer, header, packet);
                    return Ok(());
                }
                Taken::Last => {
                    net.release(packet);
                    return Ok(());
                }
                Taken::More => net.release(packet),
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

    pub(crate) fn pull(&mut self, far: RemoteRange, at: u64, to: Span, own: &Exposed, token: u64) -> Pull {
        let mut net = lock(&self.net);
        match net.peers.address(self.peer) {
            Some(address) => net.pull(address, (far, at), to, own, token),
            None => Pull::Never,
        }
    }

    /// Whether the kernel moves packets on while neither process is in an MPI call
    /// (`Endpoint::is_carried_by_kernel`).
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
mod tests;
