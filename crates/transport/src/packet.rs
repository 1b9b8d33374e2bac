// SPDX-License-Identifier: BSD-3-Clause
//! Packets and pulls: the types that all routes have in common.

pub use crate::shm::ring::Taken;
use sys::Span;

/// The header of a packet. The protocol above defines what the numbers mean (`p2p/src/packet.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The kind of packet; never 0.
    pub kind: u8,
    /// The tag of the message, if the packet has an envelope.
    pub tag: i32,
    /// The context of the message, if the packet has an envelope. In other packets, the ticket of a request.
    pub context: u64,
}

/// The first kind of packets about edges of collectives, which go to executors and proxies, not to
/// point-to-point.
pub const EDGE: u8 = 0x40;
/// The number of kinds of packets about edges, from `EDGE` on.
pub const EDGES: u8 = 32;

impl Header {
    /// Whether the packet is about an edge.
    pub(crate) fn is_edge(&self) -> bool {
        (EDGE..EDGE + EDGES).contains(&self.kind)
    }
}

/// The longest payload that travels in one slot of a ring, beside the packet's header.
pub const INLINE_BYTES: usize = 40;

/// The longest message that is best sent in one packet. Each packet of a longer message, except the last,
/// carries at least this much (docs/measured/choices.md).
pub const PACKET_BYTES_MAX: usize = 16 << 10;

/// Whether a send has sent the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The packet is under way.
    Done,
    /// There is no room now: the packet was not sent, and the caller tries again later.
    Full,
}

/// A range of a peer's memory that the peer has exposed to pulls, as the peer has described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRange {
    /// The address of the range's first byte, as the peer's provider counts.
    pub base: u64,
    /// The provider's key for the range.
    pub key: u64,
    /// The length of the range.
    pub bytes: u64,
}

/// Whether a pull (a read of a peer's exposed memory) was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pull {
    /// The pull is under way; `Reach::pulled` reports its end by its token.
    Started,
    /// There is no room now: the pull was not started, and the caller tries again later.
    Full,
    /// This route can never read that memory: the caller must get the bytes in another way.
    Never,
}

/// A receiver of packets, one after the other. It is a trait because a closure cannot be marked to be
/// inlined.
pub trait PacketSink {
    /// Looks at a packet, and returns whether it takes the packet and whether it wants the next. The payload
    /// is valid during the call only.
    fn packet(&mut self, header: &Header, payload: Span) -> Taken;
}
