// SPDX-License-Identifier: BSD-3-Clause
//! The fabric route: packets to and from peers on other hosts, over this process's one endpoint.
//!
//! A packet is a wire header (`wire.rs`), then the payload. The header names the sender, carries the job's
//! secret, numbers the packet (`sequence.rs`), and reports how much the sender has consumed of the other
//! direction. A peer's record is allocated at the first packet. Received packets stay in the endpoint's
//! receive buffers until they are taken, except early packets, which are copied.
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

/// A process's endpoint in the network, by which it reaches peers on other hosts, and the way to wake it when
/// something arrives.
pub struct Port {
    net: Arc<Mutex<Net>>,
    wake_method: WakeMethod,
}

/// How a process that sleeps is woken when something arrives from another host.
enum WakeMethod {
    /// A thread rings the process's doorbell. Ranks are woken so: a rank sleeps on the doorbell alone, since
    /// a sleep on a descriptor would need signals, which belong to the rank's program.
    Thread(Arc<Sleeper>),
    /// The process sleeps on this descriptor of the endpoint and on its doorbell at once. Proxies do that.
    Descriptor(OwnedFd),
    /// No arrival wakes the process, so it sleeps for short times only.
    Nothing,
}

/// The longest sleep of a proxy if an arriving packet may fail to wake it: its provider has no descriptor, or
/// packets that the proxy sends wait for room.
const BLIND_MAX: Duration = Duration::from_millis(1);

/// The route to one peer on another host, for packets to the peer and from it.
pub struct Link {
    net: Arc<Mutex<Net>>,
    peer: u32,
    /// How many of the next sends must not be refused, since `has_room` has promised room for them.
    promised: usize,
}

/// Memory of this process that is registered with the network's provider until this value is dropped.
pub struct Exposed {
    /// The provider's registration of the memory. None only while this value is dropped: the drop removes it
    /// while it holds the lock of `net`.
    region: Option<Region>,
    far: RemoteRange,
    net: Arc<Mutex<Net>>,
}

impl Exposed {
    /// Registers memory, which must stay mapped until the returned value is dropped. Returns None if the
    /// provider refuses.
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

    /// Returns the address, key and length by which a peer reads this memory.
    pub fn remote_range(&self) -> RemoteRange {
        self.far
    }
}

impl Net {
    /// Starts to read a peer's exposed memory `far`, from its byte `at` on, into `to`, which lies in `own`.
    /// Until `Event::Accessed` or `Event::Failed` has returned `token`, no one may use `to`, and `own` must
    /// not be dropped.
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
    /// Opens a process's endpoint by libfabric, and publishes the endpoint's name to the host's processes.
    /// The endpoint uses the interface with the host's address in the job, unless the user has chosen
    /// another. Errors (MPI_ERR_OTHER): there is no libfabric, or it has no provider for this host.
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

    /// Returns the provider, the interface and the libfabric in use, as text for people.
    pub fn describe(&self) -> String {
        let net = lock(&self.net);
        let provider = net.endpoint.provider();
        format!("{provider}, by {}", provider.library().origin())
    }

    /// Makes the link (the route over the network) to a peer.
    pub fn link(&self, peer: u32) -> Link {
        lock(&self.net).peers.at(peer);
        Link { net: self.net.clone(), peer, promised: 0 }
    }

    /// Drives the network. Returns whether a first packet of a peer, an ended pull, or a packet about an edge
    /// of a collective waits to be taken.
    pub fn has_arrivals(&self) -> bool {
        let mut net = lock(&self.net);
        net.pump();
        let Peers { arrivals, pulled, pulled_edges, edge_senders, .. } = &net.peers;
        !(arrivals.is_empty() && pulled.is_empty() && pulled_edges.is_empty() && edge_senders.is_empty())
    }

    /// Returns the longest payload that a packet may have, in bytes.
    pub fn payload_bytes_max(&self) -> usize {
        lock(&self.net).endpoint.packet_bytes_max() - WIRE_BYTES
    }

    /// Whether a rank may sleep now. If so, its doorbell will ring when a packet arrives or a pull (a read of
    /// a peer's memory) ends.
    pub fn may_sleep(&self) -> bool {
        let net = lock(&self.net);
        let WakeMethod::Thread(sleeper) = &self.wake_method else { return false };
        let may = net.is_idle() && net.endpoint.may_sleep();
        if may {
            sleeper.arm();
        }
        may
    }

    /// Returns the longest time for which a proxy may sleep on `descriptor` now. None if something has
    /// arrived, so that the proxy must poll.
    pub fn nap_max(&self) -> Option<Duration> {
        let net = lock(&self.net);
        match self.wake_method {
            WakeMethod::Descriptor(_) if !net.endpoint.may_sleep() => None,
            WakeMethod::Descriptor(_) if net.is_idle() => Some(Duration::MAX),
            _ => Some(BLIND_MAX),
        }
    }

    /// Returns the descriptor on which a proxy sleeps for at most `nap_max`. Returns None for a rank, or if
    /// the provider has no descriptor.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.wake_method {
            WakeMethod::Descriptor(fd) => Some(fd.as_fd()),
            _ => None,
        }
    }

    /// Returns the number of a peer's world, as the latest packets from the peer have shown it
    /// (`Segment::generation`).
    pub fn generation(&self, peer: u32) -> u32 {
        lock(&self.net).peers.generation(peer)
    }

    /// Empties the record of a peer if the segment shows that a new process has the peer's number.
    pub fn renew(&self, peer: u32) {
        lock(&self.net).renew(peer);
    }

    /// Makes `arrivals` report every peer again that has ever sent to this process.
    pub fn reset_arrivals(&mut self) {
        lock(&self.net).peers.reset_arrivals();
    }

    /// Calls `each` with the token of each pull (a read of a peer's memory) that has ended, and whether the
    /// pulled bytes are there.
    pub fn pulled(&mut self, mut each: impl FnMut(u64, bool)) {
        let mut net = lock(&self.net);
        net.pump();
        net.peers.pulled.drain(..).for_each(|(token, done)| each(token, done));
    }

    /// Drives the network, and calls `each` with each peer that has sent to this process for the first time
    /// since `reset_arrivals`.
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

    /// Whether the kernel delivers packets while neither this process nor the peer is in an MPI call
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
