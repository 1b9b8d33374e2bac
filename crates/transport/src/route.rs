// SPDX-License-Identifier: BSD-3-Clause
//! Every way to reach a peer: one closed enum, and one `match` for each thing that can be done.
//!
//! A route carries packets in both directions between this process and one peer, in order. It never waits:
//! without room a send is refused (`Sent::Full`). Each direction also has one *consumed* word, by which a
//! receiver gives credit back. Where the kernel allows, the peer's memory can be read.
//!
//! Read next: `route_shm.rs`, `shm/ring.rs`, `sim.rs`.

pub use crate::packet::{
    EDGE, EDGES, Far, Header, INLINE_BYTES, PACKET_BYTES_MAX, PacketSink, Pull, Sent, Take,
};
use crate::shm::Segment;
use crate::{route_fabric, route_shm, sim};
use error::Result;
use std::mem::MaybeUninit;
use sys::Span;

/// The way to one peer.
#[expect(
    clippy::large_enum_variant,
    reason = "only tests have others, and whoever keeps a route keeps it in a box"
)]
pub enum Route {
    /// The peer is this process: nothing becomes a packet.
    Loopback,
    /// A peer on this node.
    Shm(route_shm::Link),
    /// A peer on another host.
    Fabric(route_fabric::Link),
    /// A simulated peer.
    Sim(sim::Link),
}

/// Memory of this process that a peer may read, or that a read of a peer's memory fills. It must stay mapped
/// as long.
pub enum Exposed {
    /// Registered with the network's provider.
    Fabric(route_fabric::Exposed),
    /// Known to the simulated network.
    Sim(sim::Exposed),
}

impl Exposed {
    /// What the peer must know.
    pub fn far(&self) -> Far {
        match self {
            Exposed::Fabric(exposed) => exposed.far(),
            Exposed::Sim(exposed) => exposed.far(),
        }
    }
}

/// Where a process gets its routes.
pub enum Reach {
    /// This node's segment.
    Shm(route_shm::Port),
    /// This node's segment, and the network to other nodes.
    Nodes(Box<(route_shm::Port, route_fabric::Port)>),
    /// A simulated job.
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

    /// This process's number.
    pub fn rank(&self) -> u32 {
        match self {
            Reach::Shm(port) => port.rank(),
            Reach::Nodes(ports) => ports.0.rank(),
            Reach::Sim(port) => port.rank(),
        }
    }

    /// The node's memory, if there is any.
    pub fn segment(&self) -> Option<&Segment> {
        self.shm().map(route_shm::Port::segment)
    }

    /// The number of processes.
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

    /// Which of the processes that have had a peer's place it is.
    pub fn generation(&self, peer: u32) -> u32 {
        let known = self.segment().map_or(0, |segment| segment.generation(peer));
        match self {
            // Its first packet may come before its launcher's word.
            Reach::Nodes(ports) => known.max(ports.1.generation(peer)),
            Reach::Shm(_) | Reach::Sim(_) => known,
        }
    }

    /// Begins anew with a peer whose place another process has now.
    pub fn renew(&self, peer: u32) {
        if let Reach::Nodes(ports) = self {
            ports.1.renew(peer);
        }
    }

    /// Adds the network to other nodes to what reaches this one.
    pub fn add_network(&mut self, open: impl FnOnce() -> Result<route_fabric::Port>) -> Result<()> {
        if let Reach::Shm(port) = self {
            let network = open()?;
            *self = Reach::Nodes(Box::new((port.take(), network)));
        }
        Ok(())
    }

    /// Whether long messages do better when their receiver reads them.
    pub fn prefers_read(&self) -> bool {
        self.shm().is_some_and(route_shm::Port::prefers_read)
    }

    /// The way to a peer. Errors: the peer's memory cannot be mapped.
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

    /// Makes `arrivals` tell of all peers again.
    pub fn forget_arrivals(&mut self) {
        match self {
            Reach::Shm(port) => port.forget_arrivals(),
            Reach::Nodes(ports) => {
                ports.0.forget_arrivals();
                ports.1.forget_arrivals();
            }
            Reach::Sim(_) => {}
        }
    }

    /// Whether `arrivals` would tell of a peer, or `pulled` of a pull.
    #[inline]
    pub fn has_arrivals(&self) -> bool {
        match self {
            Reach::Shm(port) => port.has_arrivals(),
            Reach::Nodes(ports) => ports.0.has_arrivals() || ports.1.has_arrivals(),
            Reach::Sim(port) => port.has_arrivals(),
        }
    }

    /// The way to other hosts, if the job has any.
    pub fn network(&mut self) -> Option<&mut route_fabric::Port> {
        match self {
            Reach::Nodes(ports) => Some(&mut ports.1),
            Reach::Shm(_) | Reach::Sim(_) => None,
        }
    }

    /// Whether the process may sleep on its bell until something arrives. It asks after `has_arrivals`.
    pub fn may_sleep(&self) -> bool {
        match self {
            Reach::Shm(_) | Reach::Sim(_) => true,
            Reach::Nodes(ports) => ports.1.may_sleep(),
        }
    }

    /// Calls `each` with the token of every pull that has ended, and whether its bytes are there.
    pub fn pulled(&mut self, each: impl FnMut(u64, bool)) {
        match self {
            Reach::Shm(_) => {}
            Reach::Nodes(ports) => ports.1.pulled(each),
            Reach::Sim(port) => port.pulled(each),
        }
    }

    /// Calls `each` with every peer that has written to us for the first time.
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

    /// Puts a packet with `bytes` bytes of payload, which `fill` writes, on its way, and wakes the peer if it
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

    /// Whether there is room now for a packet of a few words and `bytes` bytes in packets of at most
    /// `chunk_bytes`. Then the next sends succeed, if they are these.
    pub fn has_room(&mut self, bytes: usize, chunk_bytes: usize) -> bool {
        match self {
            Route::Loopback => unreachable!("{NO_PACKETS}"),
            Route::Shm(link) => link.has_room(bytes, chunk_bytes),
            Route::Fabric(link) => link.has_room(bytes, chunk_bytes),
            Route::Sim(link) => link.has_room(bytes, chunk_bytes),
        }
    }

    /// Takes the next packet, and returns whether there was one. The payload is valid during `each` only.
    /// Errors: the peer has written nonsense into the ring.
    #[inline]
    pub fn poll(&mut self, each: impl FnOnce(&Header, Span)) -> Result<bool> {
        match self {
            Route::Loopback => Ok(false),
            Route::Shm(link) => link.poll(each),
            Route::Fabric(link) => link.poll(each),
            Route::Sim(link) => Ok(link.poll(each)),
        }
    }

    /// As `poll`, of packets as long as `sink` wants more of them.
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

    /// What the peer has consumed of our packets since the job began, in its units. It wraps.
    #[inline]
    pub fn consumed(&self) -> u64 {
        match self {
            Route::Loopback => 0,
            Route::Shm(link) => link.consumed(),
            Route::Fabric(link) => link.consumed(),
            Route::Sim(link) => link.consumed(),
        }
    }

    /// Tells the peer that we have consumed so much more of its packets.
    #[inline(always)]
    pub fn consume(&mut self, amount: u64) {
        match self {
            Route::Loopback => (),
            Route::Shm(link) => link.consume(amount),
            Route::Fabric(link) => link.consume(amount),
            Route::Sim(link) => link.consume(amount),
        }
    }

    /// Payload of the next packet of a message of `message_bytes` bytes that goes in several packets.
    pub fn chunk_for(&self, message_bytes: usize) -> usize {
        match self {
            Route::Loopback => unreachable!("{NO_PACKETS}"),
            Route::Shm(link) => link.chunk_for(message_bytes),
            Route::Fabric(link) => link.payload_bytes_max(),
            Route::Sim(link) => link.chunk_for(message_bytes),
        }
    }

    /// The longest message that had best go in one packet.
    pub fn packet_bytes_max(&self) -> usize {
        match self {
            Route::Loopback => usize::MAX,
            Route::Shm(_) => PACKET_BYTES_MAX,
            Route::Fabric(link) => link.payload_bytes_max(),
            Route::Sim(link) => link.payload_bytes_max().min(PACKET_BYTES_MAX),
        }
    }

    /// Reads the peer's memory at `address` into `to`. False where that is not possible; `to` is then
    /// undefined.
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
    /// Whether the peer can read any memory of ours by its address (`read`).
    pub fn is_readable(&self) -> bool {
        matches!(self, Route::Shm(_) | Route::Sim(_))
    }

    /// Whether what was sent travels on while both processes compute.
    pub fn is_carried_by_kernel(&self) -> bool {
        match self {
            Route::Loopback | Route::Shm(_) => false,
            Route::Fabric(link) => link.is_carried_by_kernel(),
            Route::Sim(_) => true,
        }
    }

    /// Exposes memory to pulls, where the route has any and the provider does not refuse.
    pub fn expose(&self, span: Span) -> Option<Exposed> {
        match self {
            Route::Loopback | Route::Shm(_) => None,
            Route::Fabric(link) => link.expose(span).map(Exposed::Fabric),
            Route::Sim(link) => link.expose(span).map(Exposed::Sim),
        }
    }

    /// Starts to read exposed memory of the peer from byte `at` on into `to`, which lies in `own`. Nobody may
    /// use `to`, and `own` must stay, until `Reach::pulled` gives `token` back.
    pub fn pull(&mut self, far: Far, at: u64, to: Span, own: &Exposed, token: u64) -> Pull {
        match (self, own) {
            (Route::Fabric(link), Exposed::Fabric(own)) => link.pull(far, at, to, own, token),
            (Route::Sim(link), Exposed::Sim(_)) => link.pull(far, at, to, token),
            _ => Pull::Never,
        }
    }

    /// As `read`, into memory of our own.
    pub fn read_into(&self, address: usize, to: &mut [MaybeUninit<u8>]) -> bool {
        // SAFETY: the slice is live and exclusive until after the call, and no route keeps the span.
        self.read(address, unsafe { Span::claim(to.as_mut_ptr().expose_provenance(), to.len()) })
    }
}

const NO_PACKETS: &str = "a message to oneself never becomes a packet";
