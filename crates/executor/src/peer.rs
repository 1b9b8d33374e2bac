// SPDX-License-Identifier: BSD-3-Clause
//! Where the ranks of a schedule are: on this host, or on another.

use transport::shm::{LocalRank, Segment};

/// A process that takes part in an operation, and whether it is on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process on this host, which shares memory with this process.
    Local(LocalRank),
    /// A process on another host, by its number in the job.
    Remote(u32),
}

impl Peer {
    /// Finds out whether the process with the number `peer` in the job is on this host.
    pub fn of(peer: u32, segment: &Segment) -> Peer {
        segment.local(peer).map_or(Peer::Remote(peer), Peer::Local)
    }

    /// Returns the number of the process in the job.
    pub fn number(self) -> u32 {
        match self {
            Peer::Local(rank) => rank.peer(),
            Peer::Remote(peer) => peer,
        }
    }

    /// Returns the process if it is on this host. None if it is on another.
    pub fn local(self) -> Option<LocalRank> {
        match self {
            Peer::Local(rank) => Some(rank),
            Peer::Remote(_) => None,
        }
    }
}
