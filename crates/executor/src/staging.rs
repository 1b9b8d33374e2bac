// SPDX-License-Identifier: BSD-3-Clause
//! Decides which sends are staged: their bytes are copied to the sender's arena, because some reader could
//! not reach them in private memory, or so that the operation need not wait for the reader.

use crate::buffers::{Buffers, Spot};
use crate::memory::{Reach, Region};
use crate::peer::Peer;
use schedule::{Blocks, BufferId};
use transport::shm::{Arena, LocalRank};

/// Which processes can read a rank's private memory (memory outside the arena), as far as that rank knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readers {
    /// Whether other ranks of this host can read the rank's private memory. `RankPage::unreadable` lists the
    /// exceptions: ranks that have found that they cannot.
    pub ranks_read: bool,
    /// Whether the process that answers other hosts for this rank (its proxy, or the rank itself) can read
    /// the rank's private memory.
    pub server_reads: bool,
    /// The number of times that any rank of the job has found that it cannot read another rank's private
    /// memory.
    pub refusals: u32,
    /// The receiver fetches a send to another host if the send has at least this many bytes. Shorter sends
    /// are messages, whose bytes only the sending rank itself reads.
    pub fetched_bytes_min: u64,
    /// Whether short sends to other hosts are copied, so that the operation need not wait for the receiver.
    /// True for collectives, false for single messages.
    pub buffered: bool,
}

/// The facts that decide whether a send's bytes are copied to the arena.
pub(crate) struct Staging {
    /// The length in bytes up to which a send from private memory is always copied to the arena.
    pub copy_bytes_max: u64,
    /// Which processes can read a send in private memory that is longer than `short`.
    pub readers: Readers,
    /// Whether the kernel lets other processes read the private buffers.
    pub attachable: bool,
    /// The rank that sends the bytes.
    pub rank: LocalRank,
    /// The length in bytes up to which a send to another host is always copied to the arena, so that the
    /// operation need not wait for the receiver.
    pub far_copy_bytes_max: u64,
}

impl Staging {
    /// Whether a send's bytes are copied to the arena. They are copied in four cases: they have gaps; they
    /// are few and for another host; they are few and in private memory; the receiver cannot read them in
    /// private memory.
    pub fn stages(
        &self,
        buffers: &Buffers,
        from: Blocks,
        spot: &Spot,
        to: Peer,
        reach: &Reach,
        arena: &Arena,
    ) -> bool {
        // Scratch lies in the arena already.
        if spot.bytes == 0 || matches!(from.buffer, BufferId::Scratch(_)) {
            return false;
        }
        if matches!(to, Peer::Remote(_)) {
            if spot.bytes < self.readers.fetched_bytes_min {
                return false;
            }
            if spot.bytes <= self.far_copy_bytes_max {
                return true;
            }
        }
        match buffers.locate(from.buffer, spot.at[0]) {
            Some((Region::Local(span), offset, here)) if here >= spot.bytes => {
                let address = span.address() + offset as usize;
                arena.offset_of(address, spot.bytes).is_none()
                    && (spot.bytes <= self.copy_bytes_max || !self.attachable || !self.reads(to, reach))
            }
            _ => true,
        }
    }

    /// Whether the process that receives the bytes for rank `to` can read this rank's private memory.
    fn reads(&self, to: Peer, reach: &Reach) -> bool {
        let Readers { ranks_read, server_reads, refusals, .. } = self.readers;
        match to {
            Peer::Remote(_) => server_reads,
            Peer::Local(_) if refusals == 0 => ranks_read,
            Peer::Local(to) => ranks_read && !reach.segment.rank(to).unreadable.has(self.rank.peer()),
        }
    }
}
