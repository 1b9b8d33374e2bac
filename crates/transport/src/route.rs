// SPDX-License-Identifier: BSD-3-Clause
//! All routes by which a process reaches a peer: one closed enum, and one `match` for each operation.
//!
//! A route carries packets in both directions between this process and one peer, in order. It never waits:
//! without room a send is refused (`Sent::Full`). Each direction also has one *consumed* word, in which a
//! receiver reports what it has consumed, so that the sender may send more. On some routes the peer's memory
//! can be read (`read`, `pull`).
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
    /// The peer is this process, so the route carries no packets.
    Loopback,
    /// The peer is on this host: packets go through rings in shared memory.
    Shm(route_shm::Link),
    /// The peer is on another host: packets go over the network, by libfabric.
    Fabric(route_fabric::Link),
    /// The peer is simulated in this process, for tests.
    Sim(sim::Link),
}

/// Registered memory of this process. Either a peer may read it, or this process reads a peer's memory into
/// it. It must stay mapped until this value is dropped.
pub enum Exposed {
    /// Memory that is registered with the network's provider.
    Fabric(route_fabric::Exposed),
    /// Memory of a rank in a simulated job, in tests.
    Sim(sim::Exposed),
}

impl Exposed {
    /// Returns the address, key and length by which a peer pulls (reads) this memory.
    pub fn remote_range(&self) -> RemoteRange {
        match self {
            Exposed::Fabric(exposed) => exposed.remote_range(),
            Exposed::Sim(exposed) => exposed.remote_range(),
        }
    }
}

/// What a process needs to reach all its peers: the shared memory, the network, or the simulated job. The
/// function `route` makes the route to one peer.
pub enum Reach {
    /// The job has one host: all peers share the segment (the job's shared memory).
    Shm(route_shm::Port),
    /// The job has several hosts: peers on this host share its segment (shared memory), others are reached by
    /// the network.
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

    /// Returns this process's number in the job.
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

    /// Returns how many process numbers the job has, including numbers for ranks that may be spawned.
    pub fn ranks(&self) -> u32 {
        match self {
            Reach::Shm(port) => port.ranks(),
            Reach::Nodes(ports) => ports.0.ranks(),
            Reach::Sim(port) => port.ranks(),
        }
    }

    /// Rings this process's own doorbell, so that its threads that sleep on the doorbell wake.
    pub fn ring_own(&self) {
        self.shm().into_iter().for_each(route_shm::Port::ring_own);
    }

    /// Returns the number of a peer's world, by which the peer differs from earlier processes with the same
    /// process number.
    pub fn generation(&self, peer: u32) -> u32 {
        let known = self.segment().map_or(0, |segment| segment.generation(peer));
        match self {
            // The first packet of a new process may come before the launcher's report of it.
            Reach::Nodes(ports) => known.max(ports.1.generation(peer)),
            Reach::Shm(_) | Reach::Sim(_) => known,
        }
    }

    /// Empties what the network knows of a peer, if a new process has the peer's number by now.
    pub fn renew(&self, peer: u32) {
        if let Reach::Nodes(ports) = self {
            ports.1.renew(peer);
        }
    }

    /// Adds the network, by which peers on other hosts are reached. `open` opens this process's port to it.
    pub fn add_network(&mut self, open: impl FnOnce() -> Result<route_fabric::Port>) -> Result<()> {
        if let Reach::Shm(port) = self {
            let network = open()?;
            *self = Reach::Nodes(Box::new((port.take(), network)));
        }
        Ok(())
    }

    /// Whether a long message arrives sooner if its receiver reads it from the sender's memory, instead of
    /// getting it in packets.
    pub fn prefers_read(&self) -> bool {
        self.shm().is_some_and(route_shm::Port::prefers_read)
    }

    /// Makes the route to a peer. Errors: the ring to or from the peer cannot be mapped, or another user has
    /// it.
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

    /// Makes `arrivals` report every peer again that has ever sent to this process.
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

    /// Whether `arrivals` has a peer to report, or `pulled` has a pull (a read of a peer's memory) to report.
    #[inline]
    pub fn has_arrivals(&self) -> bool {
        match self {
            Reach::Shm(port) => port.has_arrivals(),
            Reach::Nodes(ports) => ports.0.has_arrivals() || ports.1.has_arrivals(),
            Reach::Sim(port) => port.has_arrivals(),
        }
    }

    /// Returns this process's port to other hosts; None if the job has one host.
    pub fn network(&mut self) -> Option<&mut route_fabric::Port> {
        match self {
            Reach::Nodes(ports) => Some(&mut ports.1),
            Reach::Shm(_) | Reach::Sim(_) => None,
        }
    }

    /// Whether the process may sleep on its doorbell, which then rings when something arrives from another
    /// host. The caller has called `has_arrivals` before.
    pub fn may_sleep(&self) -> bool {
        match self {
            Reach::Shm(_) | Reach::Sim(_) => true,
            Reach::Nodes(ports) => ports.1.may_sleep(),
        }
    }

    /// Calls `each` with the token of each pull (a read of a peer's memory) that has ended, and whether the
    /// pulled bytes are there.
    pub fn pulled(&mut self, each: impl FnMut(u64, bool)) {
        match self {
            Reach::Shm(_) => {}
            Reach::Nodes(ports) => ports.1.pulled(each),
            Reach::Sim(port) => port.pulled(each),
        }
    }

    /// Calls `each` with each peer that has sent to this process for the first time since `reset_arrivals`.
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

    /// Sends the peer a packet with `bytes` bytes of payload, which `fill` writes, and wakes the peer if it
    /// sleeps.
    #[inline]
    pub fn send(&mut self, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        match self {
            Route::Loopback => Sent::Full,
            Route::Shm(link) => link.send(header, bytes, fill),
            Route::Fabric(link) => link.send(header, bytes, fill),
            Route::Sim(link) => link.send(header, bytes, fill),
        }
    }

    /// Whether there is room now for one packet of a few words, and for `bytes` bytes in packets of at most
    /// `chunk_bytes` bytes. If so, the sends of exactly these packets succeed.
    pub fn has_room(&mut self, bytes: usize, chunk_bytes: usize) -> bool {
        match self {
            Route::Loopback => unreachable!("{NO_PACKETS}"),
            Route::Shm(link) => link.has_room(bytes, chunk_bytes),
            Route::Fabric(link) => link.has_room(bytes, chunk_bytes),
            Route::Sim(link) => link.has_room(bytes, chunk_bytes),
        }
    }

    /// Passes the next packet to `each` and takes it. Returns whether there was a packet. The payload is
    /// valid during `each` only. Errors: the ring's content is invalid, or the peer is lost.
    #[inline]
    pub fn poll(&mut self, each: impl FnOnce(&Header, Span)) -> Result<bool> {
        match self {
            Route::Loopback => Ok(false),
            Route::Shm(link) => link.poll(each),
            Route::Fabric(link) => link.poll(each),
            Route::Sim(link) => Ok(link.poll(each)),
        }
    }

    /// Passes packets to `sink`, one after the other, until none is there or `sink` wants no more. Errors:
    /// the ring's content is invalid, or the peer is lost.
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

    /// Returns how much the peer has consumed of what this process has sent since the job started, in the
    /// units of `consume` at the peer. The number wraps.
    #[inline]
    pub fn consumed(&self) -> u64 {
        match self {
            Route::Loopback => 0,
            Route::Shm(link) => link.consumed(),
            Route::Fabric(link) => link.consumed(),
            Route::Sim(link) => link.consumed(),
        }
    }

    /// Reports to the peer that this process has consumed `amount` more of what the peer has sent. The caller
    /// chooses the unit, such as bytes.
    #[inline(always)]
    pub fn consume(&mut self, amount: u64) {
        match self {
            Route::Loopback => (),
            Route::Shm(link) => link.consume(amount),
            Route::Fabric(link) => link.consume(amount),
            Route::Sim(link) => link.consume(amount),
        }
    }

    /// Returns how many bytes of payload the next packet should carry, if a message of `message_bytes` bytes
    /// goes in several packets.
    pub fn chunk_for(&self, message_bytes: usize) -> usize {
        match self {
            Route::Loopback => unreachable!("{NO_PACKETS}"),
            Route::Shm(link) => link.chunk_for(message_bytes),
            Route::Fabric(link) => link.payload_bytes_max(),
            Route::Sim(link) => link.chunk_for(message_bytes),
        }
    }

    /// Returns the length of the longest message that is best sent in one packet, in bytes.
    pub fn packet_bytes_max(&self) -> usize {
        match self {
            Route::Loopback => usize::MAX,
            Route::Shm(_) => PACKET_BYTES_MAX,
            Route::Fabric(link) => link.payload_bytes_max(),
            Route::Sim(link) => link.payload_bytes_max().min(PACKET_BYTES_MAX),
        }
    }

    /// Reads the peer's memory at `address` into `to`. Returns false if the peer's memory cannot be read; the
    /// content of `to` is then undefined.
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
    /// Whether the peer can read any memory of this process by an address alone (`read`), without `expose`.
    pub fn is_readable(&self) -> bool {
        matches!(self, Route::Shm(_) | Route::Sim(_))
    }

    /// Whether the kernel delivers packets while neither this process nor the peer is in an MPI call.
    pub fn is_carried_by_kernel(&self) -> bool {
        match self {
            Route::Loopback | Route::Shm(_) => false,
            Route::Fabric(link) => link.is_carried_by_kernel(),
            Route::Sim(_) => true,
        }
    }

    /// Exposes memory of this process to pulls (reads by the peer). Returns None if the route has no pulls or
    /// the provider refuses.
    pub fn expose(&self, span: Span) -> Option<Exposed> {
        match self {
            Route::Loopback | Route::Shm(_) => None,
            Route::Fabric(link) => link.expose(span).map(Exposed::Fabric),
            Route::Sim(link) => link.expose(span).map(Exposed::Sim),
        }
    }

    /// Starts to read the peer's exposed memory `far`, from byte `at` on, into `to`, which lies in `own`.
    /// Until `Reach::pulled` reports `token`, no one may use `to`, and `own` must not be dropped.
    pub fn pull(&mut self, far: RemoteRange, at: u64, to: Span, own: &Exposed, token: u64) -> Pull {
        match (self, own) {
            (Route::Fabric(link), Exposed::Fabric(own)) => link.pull(far, at, to, own, token),
            (Route::Sim(link), Exposed::Sim(_)) => link.pull(far, at, to, token),
            _ => Pull::Never,
        }
    }

    /// Reads the peer's memory at `address` into a buffer in the library's private memory. Returns false if
    /// the peer's memory cannot be read.
    pub fn read_into(&self, address: usize, to: &mut [MaybeUninit<u8>]) -> bool {
        // SAFETY: the slice is live and exclusive until after the call, and no route keeps the span.
        self.read(address, unsafe { Span::claim(to.as_mut_ptr().expose_provenance(), to.len()) })
    }
}

const NO_PACKETS: &str = "a message to oneself never becomes a packet";
