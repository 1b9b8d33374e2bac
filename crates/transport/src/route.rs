// SPDX-License-Identifier: BSD-3-Clause
//! All routes to a peer: one closed enum, and one `match` for each operation.
//!
//! A route carries packets in both directions between this process and one peer, in order. It never waits:
//! without room a send is refused (`Sent::Full`). Each direction also has one *consumed* word, by which a
//! receiver returns credit. On some routes the peer's memory can be read (`read`, `pull`).
//!
//! Read next: `route_shm.rs`, `shm/ring.rs`, `sim.rs`.

pub use crate::packet::{
    EDGE, EDGES, Header, INLINE_BYTES, PACKET_BYTES_MAX, PacketSink, Pull, RemoteRange, Sent, Taken,
};
use crate::shm::Segment;
use crate::{route_fabric, route_shm, sim};
use error::Result;
use std::mem::MaybeUninit;
use sys::Span;

/// The route to one peer.
#[expect(
    clippy::large_enum_variant,
    reason = "only tests have Sim, and the owners of routes keep them in boxes"
)]
pub enum Route {
    /// The peer is this process: there are no packets.
    Loopback,
    /// A peer on the same host.
    Shm(route_shm::Link),
    /// A peer on another host.
    Fabric(route_fabric::Link),
    /// A simulated peer.
    Sim(sim::Link),
}

/// Registered memory of this process, which a peer may read or a read of a peer's memory fills. It must stay
/// mapped until this is dropped.
pub enum Exposed {
    /// Memory that is registered with the network's provider.
    Fabric(route_fabric::Exposed),
    /// Memory of a rank of a simulated job.
    Sim(sim::Exposed),
}

impl Exposed {
    /// The numbers that a peer needs to pull this memory.
    pub fn remote_range(&self) -> RemoteRange {
        match self {
            Exposed::Fabric(exposed) => exposed.remote_range(),
            Exposed::Sim(exposed) => exposed.remote_range(),
        }
    }
}

/// The memory and the network through which a process reaches its peers; `route` makes a route of it.
pub enum Reach {
    /// All peers are on this host, and share its segment.
    Shm(route_shm::Port),
    /// The job has several hosts: peers on this host share its segment, others are reached by the network.
    Nodes(Box<(route_shm::Port, route_fabric::Port)>),
    /// The job is simulated: all its ranks are in this process.
    Sim(sim::Port),
}

impl Reach {
    fn shm(&self) -> Option<&route_shm::Port> {
        match self {
            Reach::Shm(port) => Some(port),
            Reach::Nodes(ports) => Some(&ports.0),
            Reach::Sim(_) => None,
        }
    }

    /// This process's number in the job.
    pub fn rank(&self) -> u32 {
        match self {
            Reach::Shm(port) => port.rank(),
            Reach::Nodes(ports) => ports.0.rank(),
            Reach::Sim(port) => port.rank(),
        }
    }

    /// The segment of this host; None in a simulated job.
    pub fn segment(&self) -> Option<&Segment> {
        self.shm().map(route_shm::Port::segment)
    }

    /// The number of process numbers in the job, including room for spawned ranks.
    pub fn ranks(&self) -> u32 {
        match self {
            Reach::Shm(port) => port.ranks(),
            Reach::Nodes(ports) => ports.0.ranks(),
            Reach::Sim(port) => port.ranks(),
        }
    }

    /// Wakes the threads of this process that sleep on its doorbell.
    pub fn ring_own(&self) {
        self.shm().into_iter().for_each(route_shm::Port::ring_own);
    }

    /// The number of a peer's world, which tells it from earlier processes with the same number.
    pub fn generation(&self, peer: u32) -> u32 {
        let known = self.segment().map_or(0, |segment| segment.generation(peer));
        match self {
            // The first packet of a new process may come before the launcher's report of it.
            Reach::Nodes(ports) => known.max(ports.1.generation(peer)),
            Reach::Shm(_) | Reach::Sim(_) => known,
        }
    }

    /// Empties the record of a peer if a new process has the peer's number by now.
    pub fn renew(&self, peer: u32) {
        if let Reach::Nodes(ports) = self {
            ports.1.renew(peer);
        }
    }

    /// Adds the network to other hosts, which `open` opens.
    pub fn add_network(&mut self, open: impl FnOnce() -> Result<route_fabric::Port>) -> Result<()> {
        if let Reach::Shm(port) = self {
            let network = open()?;
            *self = Reach::Nodes(Box::new((port.take(), network)));
        }
        Ok(())
    }

    /// Whether a long message is faster if its receiver reads it from the sender's memory than if it goes in
    /// packets.
    pub fn prefers_read(&self) -> bool {
        self.shm().is_some_and(route_shm::Port::prefers_read)
    }

    /// The route to a peer. Errors: the peer's ring cannot be mapped or is in use.
    pub fn route(&self, peer: u32) -> Result<Route> {
        if peer == self.rank() {
            return Ok(Route::Loopback);
        }
        match self {
            Reach::Shm(port) => Ok(Route::Shm(port.link(peer)?)),
            Reach::Nodes(ports) if ports.0.segment().local(peer).is_some() => {
                Ok(Route::Shm(ports.0.link(peer)?))
            }
            Reach::Nodes(ports) => Ok(Route::Fabric(ports.1.link(peer))),
            Reach::Sim(port) => Ok(Route::Sim(port.link(peer))),
        }
    }

    /// Makes `arrivals` report all peers again.
    pub fn reset_arrivals(&mut self) {
        match self {
            Reach::Shm(port) => port.reset_arrivals(),
            Reach::Nodes(ports) => {
                ports.0.reset_arrivals();
                ports.1.reset_arrivals();
            }
            Reach::Sim(_) => {}
        }
    }

    /// Whether `arrivals` would report a peer, or `pulled` a pull.
    #[inline]
    pub fn has_arrivals(&self) -> bool {
        match self {
            Reach::Shm(port) => port.has_arrivals(),
            Reach::Nodes(ports) => ports.0.has_arrivals() || ports.1.has_arrivals(),
            Reach::Sim(port) => port.has_arrivals(),
        }
    }

    /// The port to other hosts; None if the job has one host.
    pub fn network(&mut self) -> Option<&mut route_fabric::Port> {
        match self {
            Reach::Nodes(ports) => Some(&mut ports.1),
            Reach::Shm(_) | Reach::Sim(_) => None,
        }
    }

    /// Whether the process may sleep on its bell, which then rings when something arrives. Call it after
    /// `has_arrivals`.
    pub fn may_sleep(&self) -> bool {
        match self {
            Reach::Shm(_) | Reach::Sim(_) => true,
            Reach::Nodes(ports) => ports.1.may_sleep(),
        }
    }

    /// Calls `each` with the token of each pull that has ended, and whether its bytes are there.
    pub fn pulled(&mut self, each: impl FnMut(u64, bool)) {
        match self {
            Reach::Shm(_) => {}
            Reach::Nodes(ports) => ports.1.pulled(each),
            Reach::Sim(port) => port.pulled(each),
        }
    }

    /// Calls `each` with each peer that has sent to this process for the first time.
    #[inline]
    pub fn arrivals(&mut self, mut each: impl FnMut(u32)) {
        match self {
            Reach::Shm(port) => port.arrivals(each),
            Reach::Nodes(ports) => {
                ports.0.arrivals(&mut each);
                ports.1.arrivals(each);
            }
            Reach::Sim(port) => port.arrivals(each),
        }
    }
}

impl Route {
    /// Whether `poll` would find a packet.
    #[inline]
    pub fn ready(&self) -> bool {
        match self {
            Route::Loopback => false,
            Route::Shm(link) => link.ready(),
            Route::Fabric(link) => link.ready(),
            Route::Sim(link) => link.ready(),
        }
    }

    /// Sends a packet with `bytes` bytes of payload, which `fill` writes, and wakes the peer if it sleeps.
    #[inline]
    pub fn send(&mut self, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        match self {
            Route::Loopback => Sent::Full,
            Route::Shm(link) => link.send(header, bytes, fill),
            Route::Fabric(link) => link.send(header, bytes, fill),
            Route::Sim(link) => link.send(header, bytes, fill),
        }
    }

    /// Whether there is room now for a packet of a few words, and for `bytes` bytes in packets of at most
    /// `chunk_bytes`. If so, the sends of exactly these packets succeed.
    pub fn has_room(&mut self, bytes: usize, chunk_bytes: usize) -> bool {
        match self {
            Route::Loopback => unreachable!("{NO_PACKETS}"),
            Route::Shm(link) => link.has_room(bytes, chunk_bytes),
            Route::Fabric(link) => link.has_room(bytes, chunk_bytes),
            Route::Sim(link) => link.has_room(bytes, chunk_bytes),
        }
    }

    /// Takes the next packet and returns whether there was one. The payload is valid during `each` only.
    /// Errors: the ring's content is invalid, or the peer is lost.
    #[inline]
    pub fn poll(&mut self, each: impl FnOnce(&Header, Span)) -> Result<bool> {
        match self {
            Route::Loopback => Ok(false),
            Route::Shm(link) => link.poll(each),
            Route::Fabric(link) => link.poll(each),
            Route::Sim(link) => Ok(link.poll(each)),
        }
    }

    /// Takes packets as `poll` does, until `sink` wants no more.
    #[inline(always)]
    pub fn poll_while(&mut self, sink: &mut impl PacketSink) -> Result<()> {
        match self {
            Route::Loopback => Ok(()),
            Route::Shm(link) => link.poll_while(sink),
            Route::Fabric(link) => link.poll_while(sink),
            Route::Sim(link) => {
                link.poll_while(|header, payload| sink.packet(header, payload));
                Ok(())
            }
        }
    }

    /// How much of this process's packets the peer has consumed since the job started, in the units in which
    /// the peer calls `consume`. The number wraps.
    #[inline]
    pub fn consumed(&self) -> u64 {
        match self {
            Route::Loopback => 0,
            Route::Shm(link) => link.consumed(),
            Route::Fabric(link) => link.consumed(),
            Route::Sim(link) => link.consumed(),
        }
    }

    /// Reports to the peer that this process has consumed `amount` more of its packets. The caller defines
    /// the unit.
    #[inline(always)]
    pub fn consume(&mut self, amount: u64) {
        match self {
            Route::Loopback => (),
            Route::Shm(link) => link.consume(amount),
            Route::Fabric(link) => link.consume(amount),
            Route::Sim(link) => link.consume(amount),
        }
    }

    /// How much payload the next packet should carry, for a message of `message_bytes` bytes that goes in
    /// several packets.
    pub fn chunk_for(&self, message_bytes: usize) -> usize {
        match self {
            Route::Loopback => unreachable!("{NO_PACKETS}"),
            Route::Shm(link) => link.chunk_for(message_bytes),
            Route::Fabric(link) => link.payload_bytes_max(),
            Route::Sim(link) => link.chunk_for(message_bytes),
        }
    }

    /// The longest message that is best sent in one packet.
    pub fn packet_bytes_max(&self) -> usize {
        match self {
            Route::Loopback => usize::MAX,
            Route::Shm(_) => PACKET_BYTES_MAX,
            Route::Fabric(link) => link.payload_bytes_max(),
            Route::Sim(link) => link.payload_bytes_max().min(PACKET_BYTES_MAX),
        }
    }

    /// Reads the peer's memory at `address` into `to`. False if it cannot be read; the content of `to` is
    /// then undefined.
    pub fn read(&self, address: usize, to: Span) -> bool {
        match self {
            Route::Loopback => unreachable!("{NO_PACKETS}"),
            Route::Shm(link) => link.read(address, to),
            Route::Fabric(_) => false,
            Route::Sim(link) => link.read(address, to),
        }
    }
}

impl Route {
    /// Whether the peer can read any memory of this process by its address (`read`).
    pub fn is_readable(&self) -> bool {
        matches!(self, Route::Shm(_) | Route::Sim(_))
    }

    /// Whether the kernel moves packets on while neither process is in an MPI call.
    pub fn is_carried_by_kernel(&self) -> bool {
        match self {
            Route::Loopback | Route::Shm(_) => false,
            Route::Fabric(link) => link.is_carried_by_kernel(),
            Route::Sim(_) => true,
        }
    }

    /// Exposes memory to pulls; None if the route has no pulls or the provider refuses.
    pub fn expose(&self, span: Span) -> Option<Exposed> {
        match self {
            Route::Loopback | Route::Shm(_) => None,
            Route::Fabric(link) => link.expose(span).map(Exposed::Fabric),
            Route::Sim(link) => link.expose(span).map(Exposed::Sim),
        }
    }

    /// Starts to read exposed memory of the peer from byte `at` on into `to`, which lies in `own`. No one may
    /// use `to`, and `own` must stay, until `Reach::pulled` reports `token`.
    pub fn pull(&mut self, far: RemoteRange, at: u64, to: Span, own: &Exposed, token: u64) -> Pull {
        match (self, own) {
            (Route::Fabric(link), Exposed::Fabric(own)) => link.pull(far, at, to, own, token),
            (Route::Sim(link), Exposed::Sim(_)) => link.pull(far, at, to, token),
            _ => Pull::Never,
        }
    }

    /// Reads the peer's memory at `address` into a buffer of the library. Returns false if it cannot be read.
    pub fn read_into(&self, address: usize, to: &mut [MaybeUninit<u8>]) -> bool {
        // SAFETY: the slice is live and exclusive until after the call, and no route keeps the span.
        self.read(address, unsafe { Span::claim(to.as_mut_ptr().expose_provenance(), to.len()) })
    }
}

const NO_PACKETS: &str = "a message to oneself never becomes a packet";
