// SPDX-License-Identifier: BSD-3-Clause
//! Which sends' bytes are packed into the arena, by who can read private memory.

use crate::buffers::{Buffers, Spot};
use crate::memory::{Reach, Region};
use crate::peer::Peer;
use schedule::{Blocks, BufferId};
use transport::shm::{Arena, LocalRank};

/// Who can read a rank's private memory, as far as the rank knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readers {
    /// Ranks of this host, but for those that have found out that they cannot (`RankPage::unread`).
    pub local: bool,
    /// Whoever answers ranks of other hosts.
    pub far: bool,
    /// How often a rank of the job has found that out.
    pub refusals: u32,
    /// Sends to other hosts of fewer bytes are messages of the caller, which nobody else reads.
    pub fetched_bytes_min: u64,
    /// Whether sends to other hosts are buffered: those of collectives.
    pub buffered: bool,
}

/// Which sends' bytes are packed into the arena.
pub(crate) struct Staging {
    /// Private ones up to this length.
    pub short: u64,
    /// Longer ones go to these where they lie.
    pub readers: Readers,
    /// Whether the kernel lets anybody read them.
    pub attachable: bool,
    /// The sender.
    pub rank: LocalRank,
    /// Sends to other hosts up to this length are packed wherever they lie: then the operation need not wait
    /// for their receivers.
    pub far: u64,
}

impl Staging {
    /// Whether a send's bytes are: they are not contiguous, or short on their way to another host, or are
    /// private and either short or out of the receiver's reach.
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
            if spot.bytes <= self.far {
                return true;
            }
        }
        match buffers.locate(from.buffer, spot.at[0]) {
            Some((Region::Local(span), offset, here)) if here >= spot.bytes => {
                let address = span.address() + offset as usize;
                arena.offset_of(address, spot.bytes).is_none()
                    && (spot.bytes <= self.short || !self.attachable || !self.reads(to, reach))
            }
            _ => true,
        }
    }

    /// Whether a receiver can read private memory.
    fn reads(&self, to: Peer, reach: &Reach) -> bool {
        let Readers { local, far, refusals, .. } = self.readers;
        match to {
            Peer::Remote(_) => far,
            Peer::Local(_) if refusals == 0 => local,
            Peer::Local(to) => local && !reach.segment.rank(to).unread.has(self.rank.peer()),
        }
    }
}
