// SPDX-License-Identifier: BSD-3-Clause
//! The functions of a port for executors and proxies. They send and take packets about edges (a `Send` and a
//! `Recv` of collectives), and read memory that peers have exposed for edges.

use super::{Exposed, Port, lock};
use crate::net::EDGE_PULL;
use crate::packet::{Header, Pull, RemoteRange, Sent};
use crate::wire::WIRE_BYTES;
use sys::Span;

impl Port {
    /// Whether the kernel delivers packets while neither this process nor the peer is in an MPI call
    /// (`Endpoint::is_carried_by_kernel`).
    pub fn is_carried_by_kernel(&self) -> bool {
        lock(&self.net).endpoint.is_carried_by_kernel()
    }

    /// Sends endpoint `to` a packet about an edge of a collective, with `bytes` bytes of payload, which
    /// `fill` writes. Also returns `Full` while too many packets to the endpoint lack an answer.
    pub fn send_edge(&mut self, to: u32, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        let mut net = lock(&self.net);
        if !net.peers.has_window(to, bytes) {
            return Sent::Full;
        }
        net.send(to, false, header, bytes, fill)
    }

    /// Whether `send_edge` may send a packet of `bytes` bytes: there is room, and not too many packets lack
    /// an answer. The provider may still refuse the packet.
    pub fn has_room_for_edge(&self, to: u32, bytes: usize) -> bool {
        let mut net = lock(&self.net);
        net.peers.has_window(to, bytes) && net.has_room(to, 1, bytes + WIRE_BYTES)
    }

    /// Calls `each` with the next packet about an edge of a collective and the number of its sender. Returns
    /// false if there is no such packet.
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

    /// Exposes memory of this process to reads by peers. Returns the exposure, which the caller keeps as long
    /// as peers may read, and the name of the endpoint at which they read. Returns None if the provider
    /// refuses.
    pub fn expose(&self, span: Span) -> Option<(Exposed, Box<[u8]>)> {
        let mut net = lock(&self.net);
        // SAFETY: the memory stays mapped (contract), and the region is dropped with what exposes it.
        let region = unsafe { net.endpoint.expose(span) }.ok()?;
        let name = net.endpoint.target().ok()?.into();
        Some((Exposed::of(region, &self.net), name))
    }

    /// Starts to read memory of endpoint `from`, for an edge, into `to`, which lies in `own`. `far` is the
    /// exposed range and an offset in it, and `name` names the endpoint that serves the range. Until
    /// `pulled_edge` returns `token`, no one may use `to`, and `own` must not be dropped.
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

    /// Takes a read started by `pull_edge` that has ended. Returns its token, and whether the bytes are
    /// there; None if no read has ended.
    pub fn pulled_edge(&mut self) -> Option<(u32, bool)> {
        lock(&self.net).peers.pulled_edges.pop()
    }

    /// Tells endpoint `name`, at which endpoint `from` exposes memory, that this process reads no more for
    /// now. On some networks the last bytes would otherwise be acknowledged late.
    pub fn acknowledge(&mut self, (from, name): (u32, &[u8])) {
        lock(&self.net).acknowledge(from, name);
    }

    /// Returns the reason why a peer is broken: out of reach for a long time although its process has not
    /// ended. Returns None if no peer is broken.
    pub fn broken(&self) -> Option<String> {
        lock(&self.net).peers.broken()
    }
}
