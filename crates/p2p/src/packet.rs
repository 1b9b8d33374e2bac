// SPDX-License-Identifier: BSD-3-Clause
//! What goes over the wire between two processes, which run the same library: numbers are in the machine's
//! byte order.

use sys::Span;
use transport::route::Header;

/// A whole message, with its envelope.
pub(crate) const EAGER: u8 = 1;
/// An envelope; bytes of the message, the sender's ticket, its address or 0. Where the message can be pulled:
/// then where it begins for its provider, and its key.
pub(crate) const OFFER: u8 = 2;
/// In the address of an OFFER: a note lies there, which says where on a device the bytes are.
pub(crate) const ON_DEVICE: u64 = 1 << 63;
/// To the sender's ticket, with the attempt: the receiver's ticket, from which byte, to which.
pub(crate) const ASK: u8 = 3;
/// To the receiver's ticket, with the attempt: the next bytes.
pub(crate) const DATA: u8 = 4;
/// To the sender's ticket: the receiver needs nothing more.
pub(crate) const TAKEN: u8 = 5;
/// Of the sender's ticket: the sender wants its offer back.
pub(crate) const RECALL: u8 = 6;
/// To the sender's ticket: the offer is taken back.
pub(crate) const RETURNED: u8 = 7;
/// An envelope; bytes of the message whose pieces follow, its address or 0.
pub(crate) const BEGIN: u8 = 8;
/// The next bytes of the message begun last.
pub(crate) const PIECE: u8 = 9;

/// An envelope; bytes of the message, the sender's ticket, its channel and number there: executors move it
/// (`handoff.rs`).
pub(crate) const ANNOUNCE: u8 = 10;

/// In the kind of an EAGER, BEGIN or OFFER: it has a number in its channel, and no executor moves it.
pub(crate) const COUNTED: u8 = 0x20;

/// Bytes of a BEGIN's payload.
pub(crate) const BEGIN_BYTES: usize = 16;

/// Bytes of an OFFER's, an ASK's and an ANNOUNCE's payload.
pub(crate) const WORDS_BYTES: usize = 24;
/// Bytes of the payload of an OFFER that can be pulled.
pub(crate) const PULL_BYTES: usize = 40;

/// A header with an envelope.
#[inline]
pub(crate) fn addressed(kind: u8, context: u64, tag: i32) -> Header {
    Header { kind, tag, context }
}

/// A header about an operation of the peer.
pub(crate) fn about(kind: u8, ticket: u64, attempt: i32) -> Header {
    Header { kind, tag: attempt, context: ticket }
}

pub(crate) fn write<const MANY: usize>(words: [u64; MANY], to: Span) {
    for (i, word) in words.into_iter().enumerate() {
        to.slice(i * 8, 8).write(&word.to_ne_bytes());
    }
}

/// The words, if the payload is exactly that.
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
