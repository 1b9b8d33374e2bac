// SPDX-License-Identifier: BSD-3-Clause
//! What the packets and pulls of every route have in common.

pub use crate::shm::ring::Take;
use sys::Span;

/// What a packet says before its payload. What the numbers mean is the protocol's business
/// (`p2p/src/packet.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The kind of packet; never 0.
    pub kind: u8,
    /// The tag, where the packet has an envelope.
    pub tag: i32,
    /// The context, where the packet has an envelope; a ticket otherwise.
    pub context: u64,
}

/// The least kind of the packets about edges of collectives, which go to executors and proxies and not to
/// point-to-point; `EDGES` kinds from this on.
pub const EDGE: u8 = 0x40;
/// See `EDGE`.
pub const EDGES: u8 = 32;

impl Header {
    /// Whether the packet is about an edge.
    pub(crate) fn is_edge(&self) -> bool {
        (EDGE..EDGE + EDGES).contains(&self.kind)
    }
}

/// Payload that travels beside the header, in the same slot.
pub const INLINE_BYTES: usize = 40;

/// The longest message that had best go in one packet, and the least that a packet of a longer one carries,
/// but the last (docs/measured/choices.md).
pub const PACKET_BYTES_MAX: usize = 16 << 10;

/// The answer to a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The packet is under way.
    Done,
    /// No room now: nothing was sent.
    Full,
}

/// Exposed memory of a peer, by the peer's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Far {
    /// Where it begins, in the numbers of the peer's provider.
    pub base: u64,
    /// Its key.
    pub key: u64,
    /// Its length.
    pub bytes: u64,
}

/// The answer to a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pull {
    /// Under way: `Reach::pulled` gives its token back.
    Started,
    /// No room now: nothing was started.
    Full,
    /// This route cannot read there.
    Never,
}

/// Takes packets one after the other. A trait and not a closure, because a closure cannot be told to be
/// inlined.
pub trait PacketSink {
    /// Looks at a packet, whose payload is valid during the call only.
    fn packet(&mut self, header: &Header, payload: Span) -> Take;
}
