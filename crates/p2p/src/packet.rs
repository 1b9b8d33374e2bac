// SPDX-License-Identifier: BSD-3-Clause
//! What goes over the wire between two processes of one build: a header and a payload, in the machine's byte
//! order. Payloads are 64-bit words or packed bytes of the message.
//!
//! The tables of `addressed` and `about` have every kind of packet: its fields with their units, who sends it
//! and who answers. *Sender* and *receiver* are those of the MPI message.

use sys::Span;
use transport::route::Header;

/// A whole eager message, in one packet.
pub(crate) const EAGER: u8 = 1;
/// An offer of a message whose bytes stay with the sender.
pub(crate) const OFFER: u8 = 2;
/// A flag in the address of an OFFER: at the address lies a note that says where on a device the bytes are.
pub(crate) const ON_DEVICE: u64 = 1 << 63;
/// The receiver asks for bytes of an offered message.
pub(crate) const ASK: u8 = 3;
/// Bytes that the receiver asked for.
pub(crate) const DATA: u8 = 4;
/// The receiver needs nothing more of an offered message.
pub(crate) const TAKEN: u8 = 5;
/// The sender recalls its offer, to cancel the send.
pub(crate) const RECALL: u8 = 6;
/// The receiver confirms a RECALL: the offer had not matched, and has been dropped.
pub(crate) const RETURNED: u8 = 7;
/// The start of an eager message that comes in pieces: its length, but no bytes.
pub(crate) const BEGIN: u8 = 8;
/// The next bytes of the last message that the peer began.
pub(crate) const PIECE: u8 = 9;

/// An announcement of a message whose bytes executors move (`handoff.rs`).
pub(crate) const ANNOUNCE: u8 = 10;

/// A flag in the kind of an EAGER, BEGIN or OFFER: the message has a number in its channel, although no
/// executor moves it. The receiver counts it.
pub(crate) const COUNTED: u8 = 0x20;

/// The length of a BEGIN's payload.
pub(crate) const BEGIN_BYTES: usize = 16;

/// The length of the payload of an OFFER without a key, of an ASK and of an ANNOUNCE.
pub(crate) const WORDS_BYTES: usize = 24;
/// The length of the payload of an OFFER that the receiver's network can pull.
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

/// Makes a header whose `context` is a ticket of the process to which it goes, except that a RECALL has the
/// sender's own. `tag` is the attempt (`rendezvous.rs`) of an ASK and its DATA, otherwise 0.
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

/// Reads a payload of `MANY` words. Returns None if the payload is longer or shorter.
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
