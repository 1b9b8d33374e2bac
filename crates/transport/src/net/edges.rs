// SPDX-License-Identifier: BSD-3-Clause
//! Packets about edges of collectives (a `Send` and its `Recv`), which executors and proxies take. Such a
//! packet is a note (a short message between drivers or servers), or carries bytes of the edge.
//!
//! | state of a peer | who enters it | who leaves it |
//! |---|---|---|
//! | edge sender: its edge packets wait here | `Peers::file_packet`, the first | `take_edge`, the last |
//! | window shut: `WINDOW` packets lack an answer | `Net::send` | `Peers::file_packet`, an answer |
//! | lost: no packet reaches the peer | `Peers::lose` | `PeerRecord::renew`, a new process |
//! | broken: lost for `BROKEN_NS`, yet its process lives | time (`broken`) | as lost |
//!
//! While the window is shut, only notes (up to `NOTE_BYTES_MAX`) leave. Before that, `must_ask_for_answer`
//! makes packets ask the peer for answers.

use super::{HeldPacket, PeerRecord, Peers};
use crate::packet::Header;
use std::collections::VecDeque;

/// While this many packets to a peer lack an answer, no more bytes of edges leave. Otherwise a note that the
/// peer needs soon, such as the end of an operation, would wait behind them: 1 Gbit/s takes 4 ms for 8
/// packets.
const WINDOW: u32 = 8;
/// The longest payload of a note (a short message about an edge), in bytes. A longer payload carries bytes of
/// the edge.
const NOTE_BYTES_MAX: usize = 256;

/// The bit that marks the token of a pull (a read of a peer's memory) as one for an edge of a collective.
pub(crate) const EDGE_PULL: u64 = 1 << 63;

/// How long a peer may be lost, in nanoseconds, before it counts as broken. Until then its process may have
/// ended without a report of that end.
const BROKEN_NS: u64 = 10_000_000_000;

impl Peers {
    /// Takes the next packet about an edge of a collective, from any peer, and returns it with the peer's
    /// number. None if no such packet waits.
    pub(crate) fn take_edge(&mut self) -> Option<(u32, Header, HeldPacket)> {
        while let Some(&number) = self.edge_senders.last() {
            let peer = self.at(number);
            let next = peer.edges.pop_front();
            if peer.edges.is_empty() {
                peer.is_edge_sender = false;
                self.edge_senders.pop();
            }
            if let Some((header, packet)) = next {
                return Some((number, header, packet));
            }
        }
        None
    }

    /// Stores that the pull with this token has ended, and whether its bytes are there, until the caller that
    /// started the pull asks.
    pub(super) fn pull_ended(&mut self, token: u64, is_there: bool) {
        match token & EDGE_PULL {
            0 => self.pulled.push((token, is_there)),
            _ => self.pulled_edges.push((token as u32, is_there)),
        }
    }

    /// Whether a packet about an edge with `bytes` bytes of payload may leave now: fewer than `WINDOW`
    /// packets to the peer lack an answer, or the packet is a note.
    pub(crate) fn has_window(&self, number: u32, bytes: usize) -> bool {
        let in_flight = |peer: &PeerRecord| peer.sequence.in_flight();
        bytes <= NOTE_BYTES_MAX || self.get(number).map_or(0, in_flight) < WINDOW
    }

    /// Returns the reason why a peer is broken: lost for `BROKEN_NS` although its process has not ended.
    /// Returns None if no peer is broken.
    pub(crate) fn broken(&self) -> Option<String> {
        let now = sys::clock::now();
        let lasts = |(index, peer): (usize, &Option<Box<PeerRecord>>)| {
            let (since, why) = peer.as_ref()?.lost.as_ref()?;
            let is_over = now.saturating_sub(*since) > BROKEN_NS;
            (is_over && !self.segment.is_gone(self.number(index))).then(|| why.clone())
        };
        self.all.iter().enumerate().find_map(lasts)
    }
}

impl PeerRecord {
    /// Whether packet `number`, about an edge, must ask the peer for an answer: true for each packet whose
    /// number is a multiple of `WINDOW / 4`, while at least `WINDOW / 2` packets lack an answer. That is
    /// rare, since packets from the peer carry answers.
    pub(super) fn must_ask_for_answer(&self, header: &Header, number: u32) -> bool {
        header.is_edge() && number.is_multiple_of(WINDOW / 4) && self.sequence.in_flight() >= WINDOW / 2
    }

    /// Returns the queue in which a packet with this header waits to be taken: `edges` for a packet about an
    /// edge of a collective, `inbox` for a point-to-point packet.
    pub(super) fn queue(&mut self, header: &Header) -> &mut VecDeque<(Header, HeldPacket)> {
        if header.is_edge() { &mut self.edges } else { &mut self.inbox }
    }
}
