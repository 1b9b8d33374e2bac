// SPDX-License-Identifier: BSD-3-Clause
//! The header of a packet between hosts (`WIRE_BYTES` has its fields), and the kinds of packets that only
//! `net.rs` uses.
//!
//! Numbers are in the sender's byte order. A packet of another byte order or version, or without the job's
//! secret, is refused as a whole. Read next: `route_fabric.rs`.

use crate::packet::Header;
use crate::sequence::Stamp;
use sys::Span;

/// Bytes of the header, which come before the payload:
///
/// | field | bytes | meaning |
/// |---|---|---|
/// | magic | 4 | `MAGIC` |
/// | source | 4 | the number of the sender's endpoint |
/// | kind | 1 | the kind of packet; the bit `WANTS_ANSWER` asks for an answer |
/// | generation | 3 | the number of the sender's world (`Segment::generation`) |
/// | tag, context | 4, 8 | as in `Header`, or as the kinds below say |
/// | secret | 8 | the job's secret |
/// | consumed | 8 | eager bytes of the other direction that the sender has consumed so far |
/// | number | 4 | the packet's number in this direction (`Stamp::number`) |
/// | answered | 4 | the sender has all packets of the other direction before this number |
pub const WIRE_BYTES: usize = 48;
/// The number with which a packet begins: "OBF" and the version of the wire format. A sender of the other
/// byte order sends these bytes reversed.
const MAGIC: u32 = 0x4f42_4602;
/// The bit in a header's byte `kind` by which the sender asks for an answer soon.
const WANTS_ANSWER: u8 = 0x80;

/// The kind of a packet that carries only the field `consumed`, sent when no other packet goes to the peer.
/// It asks for no answer. This kind and the kinds below are not kinds of point-to-point packets.
pub(crate) const CONSUMED: u8 = 0;
/// The kind of a packet by which a rank reports to another host that its proxy has ended. The tag is the
/// number of the proxy's endpoint. There is no reply.
pub(crate) const GONE: u8 = 0x7d;
/// The kind of a probe, which asks the peer how many packets have arrived. A probe has no number of its own.
/// The peer replies by `ANSWER`.
pub(crate) const PROBE: u8 = 0x7e;
/// The kind of an answer. With tag 1 it answers the probe whose number is the context; with tag 0 no probe
/// asked for it. An answer has no number of its own.
pub(crate) const ANSWER: u8 = 0x7f;

/// Whether `net.rs` itself handles a numbered packet with this header, so that the packet goes into no queue.
pub(crate) fn ends_in_net(header: &Header) -> bool {
    [CONSUMED, GONE].contains(&header.kind)
}

/// The fields of a packet's wire header, without the magic number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub source: u32,
    /// The number of the sender's world, by which the sender differs from earlier processes with the same
    /// process number.
    pub generation: u32,
    pub header: Header,
    pub secret: u64,
    /// How many bytes of the receiver's eager messages the sender has consumed so far.
    pub consumed: u64,
    pub stamp: Stamp,
}

impl Wire {
    /// Writes these fields to the beginning of a packet.
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

    /// Reads the wire header of a packet. Returns None if the packet is too short, or its magic number or
    /// secret is wrong.
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

/// Returns the payload of a packet: the bytes after the wire header.
pub(crate) fn payload(packet: Span) -> Span {
    packet.slice(WIRE_BYTES, packet.bytes() - WIRE_BYTES)
}
