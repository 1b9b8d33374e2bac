// SPDX-License-Identifier: BSD-3-Clause
//! Messages that came before their receives, and messages in pieces whose last piece has not come yet.

use crate::channel::HandoffKey;
use crate::spares::Spares;
use std::mem::MaybeUninit;
use transport::owned::Memory;
use transport::route::{INLINE_BYTES, RemoteRange};
use tuning::Distance;

/// A message that has come and that no receive has matched yet.
pub(crate) enum UnexpectedMessage {
    /// A message of `bytes` bytes, short enough to be stored here, without an allocation.
    Short { bytes: u8, data: [MaybeUninit<u8>; INLINE_BYTES] },
    /// A copy of the message: the first `bytes` bytes of `memory`.
    Long { bytes: usize, memory: Memory },
    /// A message in pieces, some or all of which have come. `Matcher::early` has its bytes under this number.
    Pieces(u64),
    /// A message that the sender has offered or announced. Its bytes are still in the sender's memory.
    Offer(Offer),
    /// A message of this process to itself. Its bytes are in the buffer of the send with the ticket `ours`.
    Loopback { ours: u64 },
}

impl UnexpectedMessage {
    /// Makes an unexpected message of `bytes` bytes, with memory for these bytes, which `fill` fills.
    pub(crate) fn filled(
        bytes: usize,
        spares: &mut Spares,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> UnexpectedMessage {
        if bytes <= INLINE_BYTES {
            let mut data = [MaybeUninit::uninit(); INLINE_BYTES];
            fill(&mut data[..bytes]);
            return UnexpectedMessage::Short { bytes: bytes as u8, data };
        }
        let mut memory = spares.take(bytes);
        fill(&mut memory[..bytes]);
        UnexpectedMessage::Long { bytes, memory }
    }
}

/// A message in pieces of which a peer has sent the BEGIN packet, but not the last PIECE packet.
#[derive(Clone, Copy)]
pub(crate) struct IncomingPieces {
    pub(crate) to: PieceDestination,
    pub(crate) left: u64,
    /// The address of the message in the sender's memory; 0 if the receiver cannot read it there.
    pub(crate) address: u64,
    /// When this message began, and what else its timing needs. None if it is not timed, or if the receiver
    /// did not have to wait for a piece.
    pub(crate) timed: Option<PieceTiming>,
}

/// What must be known to time a message that comes in pieces: how far its sender is, its length, and when it
/// began.
#[derive(Clone, Copy)]
pub(crate) struct PieceTiming {
    pub(crate) distance: Distance,
    pub(crate) bytes: u64,
    pub(crate) started: u64,
}

/// Where the next pieces of a message are stored.
#[derive(Clone, Copy)]
pub(crate) enum PieceDestination {
    /// In the buffer of the receive with this ticket, which has matched the message. Bytes beyond the
    /// buffer's end are dropped.
    Receive(u64),
    /// In the memory that `Matcher::early` has under this number, since no receive has matched the message
    /// yet.
    Early(u64),
}

/// A message in pieces that no receive has matched. Of its `bytes` bytes, `filled` have come into `memory`.
pub(crate) struct EarlyPieces {
    pub(crate) memory: Memory,
    pub(crate) bytes: usize,
    pub(crate) filled: usize,
}

/// What an OFFER or ANNOUNCE packet says about a message. The receiver does not check the fields: it only
/// sends them back, or uses them to read the sender's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) bytes: u64,
    /// The ticket of the send in the sender's process, by which the receiver's answers name the send.
    pub(crate) theirs: u64,
    /// The address of the bytes in the sender's memory; 0 if the receiver cannot read them there.
    pub(crate) address: u64,
    /// The range of the sender's memory that holds the bytes and that the sender has exposed to network
    /// reads; None if it has exposed none.
    pub(crate) far: Option<RemoteRange>,
    /// The key by which executors know the message; None if no executors move it.
    pub(crate) key: Option<HandoffKey>,
}
