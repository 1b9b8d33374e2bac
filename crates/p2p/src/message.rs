// SPDX-License-Identifier: BSD-3-Clause
//! Messages that came before their receives, and the state of a message in pieces of which some are still to
//! come.

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
    /// A message that was offered or announced: its bytes are still in the sender's memory.
    Offer(Offer),
    /// A message of this process to itself; the bytes are in the buffer of the send with this ticket.
    Loopback { ours: u64 },
}

impl UnexpectedMessage {
    /// Makes an unexpected message of `bytes` bytes: takes memory for them, which `fill` fills.
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

/// A message that a peer has begun with a BEGIN, and whose last PIECE has not come.
#[derive(Clone, Copy)]
pub(crate) struct IncomingPieces {
    pub(crate) to: PieceDestination,
    pub(crate) left: u64,
    /// The message's address in the sender's memory; 0 if it cannot be read there.
    pub(crate) address: u64,
    /// Set while this message is timed; None as soon as the receiver was not there to wait for a piece.
    pub(crate) timed: Option<PieceTiming>,
}

/// The facts from which a message that comes in pieces through cells is timed.
#[derive(Clone, Copy)]
pub(crate) struct PieceTiming {
    pub(crate) distance: Distance,
    pub(crate) bytes: u64,
    pub(crate) started: u64,
}

/// Where the pieces of a message are stored.
#[derive(Clone, Copy)]
pub(crate) enum PieceDestination {
    /// The buffer of the receive with this ticket. Bytes beyond its end are dropped.
    Receive(u64),
    /// The memory of the message with this number in `Matcher::early`, whose receive is not yet known.
    Early(u64),
}

/// A message in pieces whose receive is not yet known: `filled` of its `bytes` bytes have come into `memory`.
pub(crate) struct EarlyPieces {
    pub(crate) memory: Memory,
    pub(crate) bytes: usize,
    pub(crate) filled: usize,
}

/// What an OFFER or ANNOUNCE says about a message. The fields are unchecked: they only name things to the
/// peer that sent them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) bytes: u64,
    /// The ticket of the send at the sender, by which answers name it.
    pub(crate) theirs: u64,
    /// The address of the bytes in the sender's memory, or 0 if the receiver cannot read there.
    pub(crate) address: u64,
    /// The sender's memory with the bytes, which it has exposed to the network; None if the message cannot be
    /// pulled.
    pub(crate) far: Option<RemoteRange>,
    /// The key by which executors know the message; None unless executors move it.
    pub(crate) key: Option<HandoffKey>,
}
