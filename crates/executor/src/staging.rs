// SPDX-License-Identifier: BSD-3-Clause
//! Decides which sends' bytes are packed into the arena: by who can read private memory.

use crate::buffers::{Buffers, Spot};
use crate::memory::{Reach, Region};
use crate::peer::Peer;
use schedule::{Blocks, BufferId};
use transport::shm::{Arena, LocalRank};

/// Which processes can read the private memory of a rank, as far as that rank knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readers {
    /// Whether other ranks of this host can read it. A rank that has found out that it cannot is in
    /// `RankPage::unread`.
    pub local: bool,
    /// Whether the process can read it that answers questions from other hosts for this rank.
    pub far: bool,
    /// How often any rank of the job has found out that it cannot read another rank's private memory.
    pub refusals: u32,
    /// The fewest bytes of a send to another host that is fetched. Shorter sends are messages of the caller,
    /// whose bytes no other process reads.
    pub fetched_bytes_min: u64,
    /// Whether short sends to other hosts are copied, so that the operation need not wait for the receiver.
    /// Those of collectives are.
    pub buffered: bool,
}

/// The facts by which a send's bytes are packed into the arena or not.
pub(crate) struct Staging {
    /// The longest send of private memory, in bytes, that is packed in any case.
    pub short: u64,
    /// Who can read longer private sends where they lie.
    pub readers: Readers,
    /// Whether the kernel lets other processes read the private buffers.
    pub attachable: bool,
    /// The rank that sends.
    pub rank: LocalRank,
    /// The longest send to another host that is packed wherever it lies, so that the operation need not wait
    /// for the receiver.
    pub far: u64,
}

impl Staging {
    /// Whether a send's bytes are packed: they are not contiguous, or short on their way to another host, or
    /// they are private and either short or out of the receiver's reach.
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

    /// Whether the process that receives from `to` can read this rank's private memory.
    fn reads(&self, to: Peer, reach: &Reach) -> bool {
        let Readers { local, far, refusals, .. } = self.readers;
        match to {
            Peer::Remote(_) => far,
            Peer::Local(_) if refusals == 0 => local,
            Peer::Local(to) => local && !reach.segment.rank(to).unread.has(self.rank.peer()),
        }
    }
}
