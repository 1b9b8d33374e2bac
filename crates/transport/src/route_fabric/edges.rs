// SPDX-License-Identifier: BSD-3-Clause
//! The functions of a port for executors and proxies: packets about edges, and reads of memory that peers
//! have exposed for edges.

use super::{Exposed, Port, lock};
use crate::net::EDGE_PULL;
use crate::packet::{Header, Pull, RemoteRange, Sent};
use crate::wire::WIRE_BYTES;
use sys::Span;

impl Port {
    /// Whether the kernel moves packets on while neither process is in an MPI call
    /// (`Endpoint::is_carried_by_kernel`).
    pub fn is_carried_by_kernel(&self) -> bool {
        lock(&self.net).endpoint.is_carried_by_kernel()
    }

    /// Sends endpoint `to` a packet about an edge, with `bytes` bytes of payload, which `fill` writes. The
    /// answer `Full` also means that the window to the endpoint is shut.
    pub fn send_edge(&mut self, to: u32, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        let mut net = lock(&self.net);
        if !net.peers.has_window(to, bytes) {
            return Sent::Full;
        }
        net.send(to, false, header, bytes, fill)
    }

    /// Whether `send_edge` would find the window open and room for a packet. The provider may still refuse
    /// it.
    pub fn has_room_for_edge(&self, to: u32, bytes: usize) -> bool {
        let mut net = lock(&self.net);
        net.peers.has_window(to, bytes) && net.has_room(to, 1, bytes + WIRE_BYTES)
    }

    /// Calls `each` with the next packet about an edge and its source; false if none has come.
    pub fn take_edge(&mut self, each: impl FnOnce(u32, &Header, Span)) -> bool {
        let mut net = lock(&self.net);
        if net.peers.edge_senders.is_empty() {
            net.pump();
        }
        let Some((source, header, packet)) = net.peers.take_edge() else { return false };
        drop(net);
        each(source, &header, packet.payload());
        lock(&self.net).release(packet);
        true
    }

    /// Registers memory of this process into which `pull_edge` reads; None if the provider refuses.
    pub fn register(&self, span: Span) -> Option<Exposed> {
        Exposed::new(&self.net, span)
    }

    /// Exposes memory of this process to reads by peers. Returns what must be kept as long as they may read,
    /// and the name of the endpoint that serves them. Returns None if the provider refuses.
    pub fn expose(&self, span: Span) -> Option<(Exposed, Box<[u8]>)> {
        let mut net = lock(&self.net);
        // SAFETY: the memory stays mapped (contract), and the region is dropped with what exposes it.
        let region = unsafe { net.endpoint.expose(span) }.ok()?;
        let name = net.endpoint.target().ok()?.into();
        Some((Exposed::of(region, &self.net), name))
    }

    /// Starts to read memory of endpoint `from`, for an edge, into `to`, which lies in `own`. `far` is the
    /// exposed range and an offset in it, and `name` the endpoint that serves it. No one may use `to`, and
    /// `own` must stay, until `pulled_edge` returns `token`.
    pub fn pull_edge(
        &mut self,
        (from, name): (u32, &[u8]),
        far: (RemoteRange, u64),
        to: Span,
        own: &Exposed,
        token: u32,
    ) -> Pull {
        let mut net = lock(&self.net);
        match net.target(from, name) {
            Some(target) => net.pull(target, far, to, own, EDGE_PULL | u64::from(token)),
            None => Pull::Never,
        }
    }

    /// Takes a pull of `pull_edge` that has ended: its token, and whether its bytes are there. Returns None
    /// if no pull has ended.
    pub fn pulled_edge(&mut self) -> Option<(u32, bool)> {
        lock(&self.net).peers.pulled_edges.pop()
    }

    /// Tells the endpoint with this name, which serves memory of endpoint `from`, that this process reads no
    /// more for now. On some networks the last bytes would else be acknowledged late.
    pub fn acknowledge(&mut self, (from, name): (u32, &[u8])) {
        lock(&self.net).acknowledge(from, name);
    }

    /// Why a peer is out of reach although its process has not ended, once that has lasted too long to be a
    /// late report. Returns None if there is no such peer.
    pub fn broken(&self) -> Option<String> {
        lock(&self.net).peers.broken()
    }
}
