//! What goes over the wire between two processes. Both run the same library, so numbers are in the machine's byte order.
//!
//! | kind | header carries | payload |
//! |---|---|---|
//! | EAGER | envelope | the message |
//! | BEGIN | envelope | bytes of the message, whose pieces follow, its address or 0 |
//! | PIECE | nothing | the next bytes of the message begun last |
//! | OFFER | envelope | bytes of the message, the sender's ticket, its address or 0 |
//! | ASK | the sender's ticket, attempt | the receiver's ticket, from which byte, to which |
//! | DATA | the receiver's ticket, attempt | the next bytes |
//! | TAKEN | the sender's ticket | nothing: the receiver needs nothing more |
//! | RECALL | the sender's ticket | nothing: the sender wants its offer back |
//! | RETURNED | the sender's ticket | nothing: it has it back |

use sys::Span;
use transport::route::Header;

pub(crate) const EAGER: u8 = 1;
pub(crate) const OFFER: u8 = 2;
pub(crate) const ASK: u8 = 3;
pub(crate) const DATA: u8 = 4;
pub(crate) const TAKEN: u8 = 5;
pub(crate) const RECALL: u8 = 6;
pub(crate) const RETURNED: u8 = 7;
pub(crate) const BEGIN: u8 = 8;
pub(crate) const PIECE: u8 = 9;

/// Bytes of a BEGIN's payload.
pub(crate) const BEGIN_BYTES: usize = 16;

/// Bytes of an OFFER's and an ASK's payload.
pub(crate) const WORDS_BYTES: usize = 24;

/// A header with an envelope.
#[inline]
pub(crate) fn addressed(kind: u8, context: u64, tag: i32) -> Header {
    Header { kind, tag, context }
}

/// A header that speaks of an operation of the peer.
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
