// SPDX-License-Identifier: BSD-3-Clause
//! What goes over the wire between two processes of one build: a header and a payload, in the machine's byte
//! order. Payloads are 64-bit words, or bytes of the message, packed without gaps.
//!
//! The tables of `addressed` and `about` have every kind of packet: its fields with their units, who sends it
//! and who answers. *Sender* and *receiver* are those of the MPI message.

use sys::Span;
use transport::route::Header;

/// The kind of a packet that holds a whole eager message.
pub(crate) const EAGER: u8 = 1;
/// The kind of a packet that offers a message, whose bytes stay with the sender until the receiver fetches
/// them.
pub(crate) const OFFER: u8 = 2;
/// A flag in the address of an OFFER packet: the message is in device memory. The rest of the address names a
/// record in the sender's host memory, which says where on the device the message is.
pub(crate) const ON_DEVICE: u64 = 1 << 63;
/// The kind of a packet by which the receiver asks for bytes of a message that was offered.
pub(crate) const ASK: u8 = 3;
/// The kind of a packet with bytes for which the receiver has asked by ASK.
pub(crate) const DATA: u8 = 4;
/// The kind of a packet by which the receiver says that it needs no more bytes of a message that was offered.
pub(crate) const TAKEN: u8 = 5;
/// The kind of a packet by which the sender takes back its offer, to cancel the send.
pub(crate) const RECALL: u8 = 6;
/// The kind of a packet by which the receiver answers a RECALL: the offer had not matched, and is dropped.
pub(crate) const RETURNED: u8 = 7;
/// The kind of the first packet of an eager message in pieces. It has the message's length, but no bytes.
pub(crate) const BEGIN: u8 = 8;
/// The kind of a packet with the next bytes of the message for which the peer last sent a BEGIN.
pub(crate) const PIECE: u8 = 9;

/// The kind of a packet that announces a message whose bytes executors move (`handoff.rs`).
pub(crate) const ANNOUNCE: u8 = 10;

/// A flag in the kind of an EAGER, BEGIN or OFFER packet: the message has a number in its channel (the
/// messages of its context and tag), although no executor moves it. The receiver counts it, too.
pub(crate) const COUNTED: u8 = 0x20;

/// The length of the payload of a BEGIN packet, in bytes.
pub(crate) const BEGIN_BYTES: usize = 16;

/// The length of the payload of an ASK, of an ANNOUNCE, and of an OFFER without exposed memory, in bytes.
pub(crate) const WORDS_BYTES: usize = 24;
/// The length of the payload of an OFFER whose bytes the receiver's network can read, in bytes.
pub(crate) const PULL_BYTES: usize = 40;

/// Makes a header whose `tag` and `context` are those of the message's envelope. The sender sends these
/// packets.
///
/// | kind | payload | the receiver answers |
/// |---|---|---|
/// | EAGER | the message, packed | nothing; gives the credit back once a receive has the message |
/// | BEGIN | length, address | as EAGER; PIECEs follow |
/// | OFFER | length, ticket, address; if it can be pulled: base, key | ASK or TAKEN; to a RECALL, RETURNED |
/// | ANNOUNCE | length, ticket, number | nothing, the executors go on; to a RECALL, RETURNED |
///
/// Each field is one word. `length`: bytes of the message. `address`: of the message in the sender, or 0.
/// `ticket`: the send's. `base`, `key`: the exposed memory, for the network's provider. `number`: the channel
/// in the upper half, the message's number in it in the lower half.
#[inline]
pub(crate) fn addressed(kind: u8, context: u64, tag: i32) -> Header {
    Header { kind, tag, context }
}

/// Makes a header whose `context` is a ticket. It is a ticket of the process to which the packet goes; only a
/// RECALL has the sender's own. `tag` is the number of the attempt (`rendezvous.rs`) in an ASK and its DATA,
/// otherwise 0.
///
/// | kind | sent by | ticket | payload | answer |
/// |---|---|---|---|---|
/// | ASK | receiver | send | the receive's ticket, first byte, end: a word each | DATA |
/// | DATA | sender | receive | the next bytes, packed | TAKEN after the last, if the attempt is not 0 |
/// | TAKEN | receiver | send | none | none: the send has ended |
/// | RECALL | sender | send | none | RETURNED; none if the offer has matched |
/// | RETURNED | receiver | send | none | none: the send is cancelled |
/// | PIECE | sender | 0 | the next bytes, packed, of the message of the last BEGIN | none |
pub(crate) fn about(kind: u8, ticket: u64, attempt: i32) -> Header {
    Header { kind, tag: attempt, context: ticket }
}

pub(crate) fn write<const MANY: usize>(words: [u64; MANY], to: Span) {
    for (i, word) in words.into_iter().enumerate() {
        to.slice(i * 8, 8).write(&word.to_ne_bytes());
    }
}

/// Reads a payload of exactly `MANY` words. Returns None if the payload has another length.
pub(crate) fn read<const MANY: usize>(from: Span) -> Option<[u64; MANY]> {
    if from.bytes() != MANY * 8 {
        return None;
    }
    Some(std::array::from_fn(|i| {
        let mut word = [0; 8];
        from.slice(i * 8, 8).read(&mut word);
        u64::from_ne_bytes(word)
    }))
}
