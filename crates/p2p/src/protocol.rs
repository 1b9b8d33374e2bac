// SPDX-License-Identifier: BSD-3-Clause
//! The protocols: how a message's bytes get from the send buffer to the receive buffer. Only this file
//! decides by the length.
//!
//! The sender decides once per message (`Lane::protocol`). Without credit, an eager message is offered like a
//! long one. The receiver decides once per offer (`Matcher::choose_fetch`): only it knows whether it can read
//! the sender's memory, and which way was measured to be faster (`choice.rs`). `outboard plan --p2p` prints
//! the table.
//!
//! Read next: `send.rs`, `pieces.rs`, `rendezvous.rs`.

use crate::config::{Config, EAGER_MOST};
use transport::route::{INLINE_BYTES, PACKET_BYTES_MAX};

/// How a message leaves its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The message is sent at once in one packet, whose header and bytes fit together into one slot of the
    /// ring.
    Inline,
    /// The message is sent at once in one packet: a slot of the ring has the header, and a cell of the ring
    /// the bytes.
    Cell,
    /// The message is sent at once, as a BEGIN packet and then PIECE packets.
    Pieces,
    /// The sender offers the message. Once its receive is known, the receiver chooses a `FetchMethod`.
    Offer,
}

/// How a receiver fetches the bytes of a message that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchMethod {
    /// The receiver asks for the bytes, and the sender sends them as packets, through cells of the ring.
    Cells,
    /// The receiver asks for the bytes, as with `Cells`. If the sender stays silent, the receiver reads the
    /// sender's memory instead.
    CellsOrRead,
    /// The receiver reads the sender's memory by cross-memory attach, a part at each poll.
    Read,
    /// The receiver's network reads the sender's memory (RDMA).
    Pull,
}

/// One row of the table that `outboard plan --p2p` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolRow {
    /// The name of the protocol, as the table shows it.
    pub name: &'static str,
    /// The length of the shortest message that the protocol carries, in bytes.
    pub bytes_min: u64,
    /// The length of the longest message that the protocol carries, in bytes.
    pub bytes_max: u64,
    /// How the protocol moves the bytes of a message, as text.
    pub moves: &'static str,
    /// What the protocol needs, as text. Where that is missing, the message goes by another protocol.
    pub needs: &'static str,
}

/// The lengths that decide the protocol of a message to one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The longest message that is sent at once in one packet, in bytes.
    pub(crate) packet_bytes_max: usize,
    /// The longest message that is sent before its receive is known, in one packet or in pieces, in bytes.
    pub(crate) eager_bytes_max: usize,
}

impl Limits {
    /// Makes the limits for a peer. One packet carries at most `packet_bytes_max` bytes to the peer.
    pub(crate) fn new(eager_bytes_max: usize, packet_bytes_max: usize) -> Limits {
        Limits { packet_bytes_max: eager_bytes_max.min(packet_bytes_max), eager_bytes_max }
    }

    /// Returns the protocol of a message of `bytes` bytes whose mode allows that it is sent eagerly.
    #[inline(always)]
    pub(crate) fn of(&self, bytes: usize) -> Protocol {
        // Callers often treat the first two protocols alike; then this costs one comparison.
        match bytes {
            _ if bytes <= self.packet_bytes_max && bytes <= INLINE_BYTES => Protocol::Inline,
            _ if bytes <= self.packet_bytes_max => Protocol::Cell,
            _ if bytes <= self.eager_bytes_max => Protocol::Pieces,
            _ => Protocol::Offer,
        }
    }
}

/// Lists the protocols under these settings, from the shortest messages to the longest. Leaves out protocols
/// that no length uses.
pub fn table(config: &Config) -> Vec<ProtocolRow> {
    let Limits { packet_bytes_max, eager_bytes_max } = Limits::new(config.eager_bytes_max, PACKET_BYTES_MAX);
    let [inline, packet, eager] = [INLINE_BYTES.min(eager_bytes_max), packet_bytes_max, eager_bytes_max];
    debug_assert!(eager as u64 <= EAGER_MOST);
    let pull = config.pull_bytes_min.max(eager + 1);
    let row = |name, bytes: (usize, u64), moves, needs| ProtocolRow {
        name,
        bytes_min: bytes.0 as u64,
        bytes_max: bytes.1,
        moves,
        needs,
    };
    let rows = [
        row("eager inline", (0, inline as u64), "in the packet's slot", "credit, a free slot"),
        row(
            "eager cell",
            (inline + 1, packet as u64),
            "in one cell of the ring, or a recycled buffer",
            "credit, a free slot and cell",
        ),
        row(
            "eager pieces",
            (packet + 1, eager as u64),
            "in several cells; the receiver copies one while the sender fills the next",
            "credit, free slots and cells",
        ),
        row(
            "rendezvous cells",
            (eager + 1, u64::MAX),
            "streamed through cells, once the receiver asks",
            "both ranks in MPI",
        ),
        row(
            "rendezvous read",
            (eager + 1, u64::MAX),
            "copied by the receiver out of the sender's memory",
            "cross-memory attach, a send buffer without gaps",
        ),
        row(
            "rendezvous RDMA read",
            (pull, u64::MAX),
            "read by the receiver's network out of the sender's memory into its own",
            "another host, a provider with RMA, buffers without gaps",
        ),
    ];
    rows.into_iter().filter(|row| row.bytes_min <= row.bytes_max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: for every length, the table names the protocol that a sender chooses.
    #[test]
    fn the_table_and_the_decision_agree() {
        for eager_bytes_max in [0, 10, 40, 41, 8 << 10, 64 << 10] {
            let limits = Limits::new(eager_bytes_max, PACKET_BYTES_MAX);
            let rows = table(&Config { eager_bytes_max, ..Config::default() });
            for bytes in [0, 1, 10, 11, 40, 41, 8 << 10, (8 << 10) + 1, 16 << 10, 17 << 10, 64 << 10, 1 << 20]
            {
                let name = match limits.of(bytes) {
                    Protocol::Inline => "eager inline",
                    Protocol::Cell => "eager cell",
                    Protocol::Pieces => "eager pieces",
                    Protocol::Offer => "rendezvous cells",
                };
                let row = rows.iter().find(|row| (row.bytes_min..=row.bytes_max).contains(&(bytes as u64)));
                assert_eq!(row.unwrap().name, name, "{bytes} bytes, eager up to {eager_bytes_max}");
            }
        }
    }
}
