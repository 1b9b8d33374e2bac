// SPDX-License-Identifier: BSD-3-Clause
//! How one process reaches the ranks of a schedule.

use transport::shm::{LocalRank, Segment};

/// A process that takes part in an operation, as a rank of its schedule, and how to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this host, with which this one shares memory.
    Local(LocalRank),
    /// A process of another host, by its number in the job.
    Remote(u32),
}

impl Peer {
    /// Finds out whether the process with this number in the job is on this host.
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

    /// Returns the process if it is on this host, or None if it is on another.
    pub fn local(self) -> Option<LocalRank> {
        match self {
            Peer::Local(rank) => Some(rank),
            Peer::Remote(_) => None,
        }
    }
}
