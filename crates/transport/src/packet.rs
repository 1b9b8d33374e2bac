// SPDX-License-Identifier: BSD-3-Clause
//! Packets, and pulls (reads of a peer's memory): the types that all routes to peers have in common.

pub use crate::shm::ring::Taken;
use sys::Span;

/// The header of a packet. The layer that sends the packet defines what the numbers mean
/// (`p2p/src/packet.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The kind of packet; never 0.
    pub kind: u8,
    /// The tag of the message, if the packet has an envelope.
    pub tag: i32,
    /// The context of the message, if the packet has an envelope. In other packets, the ticket (number) of a
    /// request.
    pub context: u64,
}

/// The lowest of the packet kinds that are about edges of collectives. Executors and proxies take such
/// packets; point-to-point takes all others.
pub const EDGE: u8 = 0x40;
/// The number of kinds of packets about edges of collectives; the first of them is `EDGE`.
pub const EDGES: u8 = 32;

impl Header {
    /// Whether the packet is about an edge of a collective, by its kind.
    pub(crate) fn is_edge(&self) -> bool {
        (EDGE..EDGE + EDGES).contains(&self.kind)
    }
}

/// The longest payload, in bytes, that fits into one slot of a ring beside the packet's header.
pub const INLINE_BYTES: usize = 40;

/// The longest message, in bytes, that is best sent in one packet. Each packet of a longer message, except
/// the last, carries at least this much (docs/measured/choices.md).
pub const PACKET_BYTES_MAX: usize = 16 << 10;

/// The answer of a send: whether the packet was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The packet is under way.
    Done,
    /// There is no room now: the packet was not sent, and the caller tries again later.
    Full,
}

/// A range of a peer's memory that the peer has exposed to pulls (reads by this process), as the peer
/// described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRange {
    /// The address of the range's first byte in the numbering of the peer's provider: an address in the
    /// peer's process, or 0.
    pub base: u64,
    /// The key by which the peer's provider knows the range.
    pub key: u64,
    /// The length of the range, in bytes.
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
    /// This route can never read the peer's memory: the caller must get the bytes in another way.
    Never,
}

/// A receiver of packets, which gets them one after the other. It is a trait, not a closure, because a
/// closure cannot be marked to be inlined.
pub trait PacketSink {
    /// Handles a packet. Returns whether the packet is thereby taken, and whether the next one is wanted. The
    /// payload is valid during the call only.
    fn packet(&mut self, header: &Header, payload: Span) -> Taken;
}
