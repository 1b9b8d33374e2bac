// SPDX-License-Identifier: BSD-3-Clause
//! How one process reaches the ranks of a schedule.

use transport::shm::{LocalRank, Segment};

/// A rank of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this segment.
    Local(LocalRank),
    /// A process of another host, by its number in the job.
    Remote(u32),
}

impl Peer {
    /// The peer with a number in the job.
    pub fn of(peer: u32, segment: &Segment) -> Peer {
        segment.local(peer).map_or(Peer::Remote(peer), Peer::Local)
    }

    /// The peer's number in the job.
    pub fn number(self) -> u32 {
        match self {
            Peer::Local(rank) => rank.peer(),
            Peer::Remote(peer) => peer,
        }
    }

    /// The peer as a process of this segment, or None if another host has it.
    pub fn local(self) -> Option<LocalRank> {
        match self {
            Peer::Local(rank) => Some(rank),
            Peer::Remote(_) => None,
        }
    }
}
