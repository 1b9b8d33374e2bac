// SPDX-License-Identifier: BSD-3-Clause
//! What executors and proxies do by a port: packets about edges, and reads of memory that peers have exposed
//! for these.

use super::{Exposed, Port, lock};
use crate::net::EDGE_PULL;
use crate::packet::{Far, Header, Pull, Sent};
use crate::wire::WIRE_BYTES;
use sys::Span;

impl Port {
    /// As `Endpoint::is_carried_by_kernel`.
    pub fn is_carried_by_kernel(&self) -> bool {
        lock(&self.net).endpoint.is_carried_by_kernel()
    }

    /// Sends a packet about an edge to an endpoint, as `Route::send` does.
    pub fn send_edge(&mut self, to: u32, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        let mut net = lock(&self.net);
        if !net.peers.has_window(to, bytes) {
            return Sent::Full;
        }
        net.send(to, false, header, bytes, fill)
    }

    /// Whether `send_edge` has room, as far as is known before the provider is asked.
    pub fn has_room_for_edge(&self, to: u32, bytes: usize) -> bool {
        let mut net = lock(&self.net);
        net.peers.has_window(to, bytes) && net.has_room(to, 1, bytes + WIRE_BYTES)
    }

    /// Calls `each` with the next packet about an edge and its source; false if none has come.
    pub fn take_edge(&mut self, each: impl FnOnce(u32, &Header, Span)) -> bool {
        let mut net = lock(&self.net);
        if net.peers.edged.is_empty() {
            net.pump();
        }
        let Some((source, header, packet)) = net.peers.take_edge() else { return false };
        drop(net);
        each(source, &header, packet.payload());
        lock(&self.net).release(packet);
        true
    }

    /// Registers memory of this process into which `pull_edge` reads; nothing if the provider refuses.
    pub fn register(&self, span: Span) -> Option<Exposed> {
        Exposed::new(&self.net, span)
    }

    /// Lets peers read memory of this process, which stays mapped as long, by the endpoint of that name;
    /// nothing if the provider refuses.
    pub fn expose(&self, span: Span) -> Option<(Exposed, Box<[u8]>)> {
        let mut net = lock(&self.net);
        // SAFETY: the memory stays mapped (contract), and the region is dropped with what exposes it.
        let region = unsafe { net.endpoint.offer(span) }.ok()?;
        let name = net.endpoint.target().ok()?.into();
        Some((Exposed::of(region, &self.net), name))
    }

    /// Reads what an endpoint has exposed under a name, from `at` of it on, for an edge. Nobody uses `to`,
    /// which lies in `own`, and `own` stays, until `pulled_edge` has told of `token`.
    pub fn pull_edge(
        &mut self,
        (from, name): (u32, &[u8]),
        far: (Far, u64),
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

    /// A pull of `pull_edge` that has ended, and whether its bytes are there.
    pub fn pulled_edge(&mut self) -> Option<(u32, bool)> {
        lock(&self.net).peers.pulled_edges.pop()
    }

    /// Nothing more is wanted for now from where an endpoint has exposed memory under a name.
    pub fn acknowledge(&mut self, (from, name): (u32, &[u8])) {
        lock(&self.net).acknowledge(from, name);
    }

    /// Why an endpoint is out of reach, if that has lasted although its process has not ended.
    pub fn broken(&self) -> Option<String> {
        lock(&self.net).peers.broken()
    }
}
