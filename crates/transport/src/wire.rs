// SPDX-License-Identifier: BSD-3-Clause
//! The header of a packet between hosts.
//!
//! Numbers are in the sender's byte order; a header of another order or version is refused as a whole.
//! Read next: `route_fabric.rs`.

use crate::packet::Header;
use crate::sequence::Stamp;
use sys::Span;

/// Bytes before the payload: magic (4), source (4), kind (1), the source's generation (3), tag (4), context
/// (8), secret (8), consumed (8), number (4), answered (4).
pub const WIRE_BYTES: usize = 48;
/// "OBF" and the version of the wire format; with its bytes reversed where the sender's byte order is
/// another.
const MAGIC: u32 = 0x4f42_4602;
/// In the kind: the sender keeps a copy until it has an answer.
const WANTS_ANSWER: u8 = 0x80;

/// Kinds that p2p does not have. The packet only says what was consumed.
pub(crate) const CONSUMED: u8 = 0;
/// The proxy of the rank that sends it, whose endpoint is its tag, has ended.
pub(crate) const GONE: u8 = 0x7d;
/// It asks what has arrived; it is not counted.
pub(crate) const PROBE: u8 = 0x7e;
/// It says so; its tag is 1 if a probe asked, whose number is the context. It is not counted.
pub(crate) const ANSWER: u8 = 0x7f;

/// Whether a packet that is counted is for nobody above.
pub(crate) fn is_of_net(header: &Header) -> bool {
    [CONSUMED, GONE].contains(&header.kind)
}

/// What a wire header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub source: u32,
    /// Which of the processes that have had its place the source is.
    pub generation: u32,
    pub header: Header,
    pub secret: u64,
    /// What the sender has consumed of the other direction.
    pub consumed: u64,
    pub stamp: Stamp,
}

impl Wire {
    /// Writes the header to the beginning of a packet.
    pub fn write(&self, packet: Span) {
        let Wire { source, generation, header, secret, consumed, stamp } = self;
        let kind = header.kind | if stamp.wants_answer { WANTS_ANSWER } else { 0 };
        let mut bytes = [0; WIRE_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[4..8].copy_from_slice(&source.to_ne_bytes());
        bytes[8..12].copy_from_slice(&(u32::from(kind) | generation << 8).to_ne_bytes());
        bytes[12..16].copy_from_slice(&header.tag.to_ne_bytes());
        bytes[16..24].copy_from_slice(&header.context.to_ne_bytes());
        bytes[24..32].copy_from_slice(&secret.to_ne_bytes());
        bytes[32..40].copy_from_slice(&consumed.to_ne_bytes());
        bytes[40..44].copy_from_slice(&stamp.number.to_ne_bytes());
        bytes[44..48].copy_from_slice(&stamp.answered.to_ne_bytes());
        packet.slice(0, WIRE_BYTES).write(&bytes);
    }

    /// The header of a packet with a secret; nothing if it has none.
    pub fn read(packet: Span, secret: u64) -> Option<Wire> {
        if packet.bytes() < WIRE_BYTES {
            return None;
        }
        let mut bytes = [0; WIRE_BYTES];
        packet.slice(0, WIRE_BYTES).read(&mut bytes);
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let kind = word(8) as u8;
        (word(0) == MAGIC && long(24) == secret).then(|| Wire {
            source: word(4),
            generation: word(8) >> 8,
            header: Header { kind: kind & !WANTS_ANSWER, tag: word(12) as i32, context: long(16) },
            secret,
            consumed: long(32),
            stamp: Stamp { number: word(40), answered: word(44), wants_answer: kind & WANTS_ANSWER != 0 },
        })
    }
}

/// What comes after the header.
pub(crate) fn payload(packet: Span) -> Span {
    packet.slice(WIRE_BYTES, packet.bytes() - WIRE_BYTES)
}
