// SPDX-License-Identifier: BSD-3-Clause
//! The ranks of a schedule, as one process reaches them.

use transport::shm::{LocalRank, Segment};

/// A rank of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// In this segment.
    Local(LocalRank),
    /// On another node; its number in the job.
    Remote(u32),
}

impl Peer {
    /// Where a process of the job is.
    pub fn of(peer: u32, segment: &Segment) -> Peer {
        segment.local(peer).map_or(Peer::Remote(peer), Peer::Local)
    }

    /// Its number in the job.
    pub fn number(self) -> u32 {
        match self {
            Peer::Local(rank) => rank.peer(),
            Peer::Remote(peer) => peer,
        }
    }

    /// Its place in this segment, if it has one.
    pub fn local(self) -> Option<LocalRank> {
        match self {
            Peer::Local(rank) => Some(rank),
            Peer::Remote(_) => None,
        }
    }
}
