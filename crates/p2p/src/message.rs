// SPDX-License-Identifier: BSD-3-Clause
//! Messages that came before their receives, and what is known of a message of which pieces are to come.

use crate::channel::HandoffKey;
use crate::spares::Spares;
use std::mem::MaybeUninit;
use transport::owned::Memory;
use transport::route::{Far, INLINE_BYTES};
use tuning::Distance;

/// A message whose receive is not yet known.
pub(crate) enum Message {
    /// As short as most are: kept without another allocation.
    Short { bytes: u8, data: [MaybeUninit<u8>; INLINE_BYTES] },
    /// A copy: the first `bytes` of this memory.
    Long { bytes: usize, memory: Memory },
    /// Some of its pieces have come, perhaps all (`Matcher::early`).
    Pieces(u64),
    /// The bytes are still with the sender.
    Offer(Offer),
    /// A message to ourselves whose bytes are still in the sender's buffer.
    Loopback { ours: u64 },
}

impl Message {
    /// A message of so many bytes, which `fill` writes.
    pub(crate) fn filled(
        bytes: usize,
        spares: &mut Spares,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Message {
        if bytes <= INLINE_BYTES {
            let mut data = [MaybeUninit::uninit(); INLINE_BYTES];
            fill(&mut data[..bytes]);
            return Message::Short { bytes: bytes as u8, data };
        }
        let mut memory = spares.take(bytes);
        fill(&mut memory[..bytes]);
        Message::Long { bytes, memory }
    }
}

/// The message of a peer of which pieces are to come.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    pub(crate) to: Destination,
    pub(crate) left: u64,
    /// Where the message lies in the sender's memory, or 0.
    pub(crate) address: u64,
    /// Its pieces are timed as long as its receiver waits for them.
    pub(crate) timed: Option<Timed>,
}

/// A message in pieces whose way through cells is timed.
#[derive(Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) distance: Distance,
    pub(crate) bytes: u64,
    pub(crate) began: u64,
}

/// Where pieces land.
#[derive(Clone, Copy)]
pub(crate) enum Destination {
    /// In the buffer of this receive, as far as it reaches.
    Receive(u64),
    /// In the memory of this early message.
    Early(u64),
}

/// A message in pieces whose receive is not yet known.
pub(crate) struct Early {
    pub(crate) memory: Memory,
    pub(crate) bytes: usize,
    pub(crate) filled: usize,
}

/// What a peer offers. It is used only to name things to that peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) bytes: u64,
    /// The sender's ticket.
    pub(crate) theirs: u64,
    /// Where the bytes lie in the sender, 0 if they cannot be read there.
    pub(crate) address: u64,
    /// Where they can be pulled from.
    pub(crate) far: Option<Far>,
    /// By which executors know the message, if they move it.
    pub(crate) key: Option<HandoffKey>,
}
