// SPDX-License-Identifier: BSD-3-Clause
//! Groups: ordered sets of processes (MPI 5.0, section 7.3).

use crate::constants::{IDENT, SIMILAR, UNDEFINED, UNEQUAL};
use error::{Class, Result, fail};
use std::collections::HashMap;
use std::sync::Arc;

/// An ordered set of processes. It never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The numbers in the job of the group's processes, in the order of their ranks in the group.
    pub peers: Arc<[u32]>,
    /// This process's rank in the group. None if it is not a member.
    pub rank: Option<u32>,
    /// The number of the handle of the session from which the group derives. 0 if it derives from no session.
    pub session: u64,
}

/// A range of ranks, as MPI_Group_range_incl gets it: the first rank, the last rank, and the stride.
pub type RankRange = [i32; 3];

impl Group {
    /// Makes a group of the processes `peers`. `me` is this process's number in the job, from which its rank
    /// follows.
    pub fn new(peers: impl Into<Arc<[u32]>>, me: u32) -> Group {
        let peers = peers.into();
        let rank = peers.iter().position(|peer| *peer == me).map(|rank| rank as u32);
        Group { peers, rank, session: 0 }
    }

    /// Returns this group, marked as derived from the session whose handle has the number `session`.
    pub fn of_session(self, session: u64) -> Group {
        Group { session, ..self }
    }

    /// Returns a group of the same processes, with the rank that the process `me` has in it.
    pub fn seen_by(&self, me: u32) -> Arc<Group> {
        Arc::new(Group::new(self.peers.clone(), me))
    }

    pub fn size(&self) -> u32 {
        self.peers.len() as u32
    }

    /// Returns the rank of the process with the number `peer` in the job. Returns None if it is not a member.
    pub fn rank_of(&self, peer: u32) -> Option<u32> {
        // Most groups are a prefix of the world, so the answer is at its own index.
        if self.peers.get(peer as usize) == Some(&peer) {
            return Some(peer);
        }
        self.peers.iter().position(|other| *other == peer).map(|rank| rank as u32)
    }

    /// Compares two groups as MPI_Group_compare does. Returns MPI_IDENT, MPI_SIMILAR or MPI_UNEQUAL.
    pub fn compare(&self, other: &Group) -> i32 {
        if self.peers == other.peers {
            return IDENT;
        }
        let sorted = |group: &Group| {
            let mut peers = group.peers.to_vec();
            peers.sort_unstable();
            peers
        };
        if self.size() == other.size() && sorted(self) == sorted(other) { SIMILAR } else { UNEQUAL }
    }

    /// Converts ranks in this group to the ranks of the same processes in `other`, as
    /// MPI_Group_translate_ranks does. MPI_PROC_NULL stays MPI_PROC_NULL.
    pub fn translate(&self, ranks: &[i32], other: &Group) -> Result<Vec<i32>> {
        let ranks_there = other.ranks_by_peer();
        ranks
            .iter()
            .map(|rank| match *rank {
                crate::constants::PROC_NULL => Ok(crate::constants::PROC_NULL),
                rank => {
                    let peer = self.peers[self.member(rank)?];
                    Ok(ranks_there.get(&peer).map_or(UNDEFINED, |place| *place as i32))
                }
            })
            .collect()
    }

    pub fn union(&self, other: &Group, me: u32) -> Group {
        let here = self.ranks_by_peer();
        let others = other.peers.iter().filter(|peer| !here.contains_key(peer));
        Group::new(self.peers.iter().chain(others).copied().collect::<Vec<_>>(), me).of_session(self.session)
    }

    pub fn intersection(&self, other: &Group, me: u32) -> Group {
        let there = other.ranks_by_peer();
        Group::new(self.peers.iter().filter(|peer| there.contains_key(peer)).copied().collect::<Vec<_>>(), me)
            .of_session(self.session)
    }

    pub fn difference(&self, other: &Group, me: u32) -> Group {
        let there = other.ranks_by_peer();
        Group::new(
            self.peers.iter().filter(|peer| !there.contains_key(peer)).copied().collect::<Vec<_>>(),
            me,
        )
        .of_session(self.session)
    }

    /// Makes the group of the members with the ranks `ranks`, in this order (MPI_Group_incl). Fails if a rank
    /// repeats.
    pub fn include(&self, ranks: &[i32], me: u32) -> Result<Group> {
        self.distinct(ranks)?;
        Ok(Group::new(ranks.iter().map(|rank| self.peers[*rank as usize]).collect::<Vec<_>>(), me)
            .of_session(self.session))
    }

    /// Makes the group of all members except those with the ranks `ranks`, in the old order (MPI_Group_excl).
    pub fn exclude(&self, ranks: &[i32], me: u32) -> Result<Group> {
        let out = self.distinct(ranks)?;
        let stay = self.peers.iter().zip(&out).filter(|(_, out)| !**out).map(|(peer, _)| *peer);
        Ok(Group::new(stay.collect::<Vec<_>>(), me).of_session(self.session))
    }

    /// Returns the ranks that `ranges` contain, as MPI_Group_range_incl reads such ranges (MPI 5.0, section
    /// 7.3.2).
    pub fn ranks_of(&self, ranges: &[RankRange]) -> Result<Vec<i32>> {
        let mut ranks = Vec::new();
        for &[first, last, stride] in ranges {
            if stride == 0 {
                fail!(Class::Arg, "range ({first}, {last}, {stride}) has stride 0");
            }
            self.member(first)?;
            // The ranks that the range reaches must be members; `last` itself need not be.
            let mut rank = i64::from(first);
            while if stride > 0 { rank <= i64::from(last) } else { rank >= i64::from(last) } {
                self.member(rank.clamp(-1, i64::from(i32::MAX)) as i32)?;
                ranks.push(rank as i32);
                rank += i64::from(stride);
            }
        }
        Ok(ranks)
    }

    fn ranks_by_peer(&self) -> HashMap<u32, usize> {
        self.peers.iter().enumerate().map(|(rank, peer)| (*peer, rank)).collect()
    }

    fn member(&self, rank: i32) -> Result<usize> {
        match usize::try_from(rank) {
            Ok(at) if at < self.peers.len() => Ok(at),
            _ => fail!(Class::Rank, "rank {rank} is not in a group of {}", self.size()),
        }
    }

    fn distinct(&self, ranks: &[i32]) -> Result<Vec<bool>> {
        let mut seen = vec![false; self.peers.len()];
        for rank in ranks {
            if std::mem::replace(&mut seen[self.member(*rank)?], true) {
                fail!(Class::Rank, "rank {rank} is given twice");
            }
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(peers: &[u32]) -> Group {
        Group::new(peers, 2)
    }

    #[test]
    fn set_operations_keep_the_standards_order() {
        let (a, b) = (group(&[3, 1, 2]), group(&[2, 4, 3]));
        assert_eq!(&*a.union(&b, 2).peers, [3, 1, 2, 4]);
        assert_eq!(&*a.intersection(&b, 2).peers, [3, 2]);
        assert_eq!(&*a.difference(&b, 2).peers, [1]);
        assert_eq!(a.union(&b, 2).rank, Some(2));
        assert_eq!(a.difference(&b, 2).rank, None);
        assert_eq!(a.compare(&group(&[1, 2, 3])), SIMILAR);
        assert_eq!(a.compare(&a), IDENT);
        assert_eq!(a.compare(&b), UNEQUAL);
        assert_eq!(a.translate(&[0, -3, 1], &b).unwrap(), [2, -3, UNDEFINED]);
        assert_eq!(a.translate(&[3], &b).unwrap_err().class, Class::Rank);
    }

    #[test]
    fn ranges_name_ranks() {
        let all = group(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(all.ranks_of(&[[1, 8, 3], [9, 5, -2]]).unwrap(), [1, 4, 7, 9, 7, 5]);
        assert_eq!(all.ranks_of(&[[8, 11, 3]]).unwrap_err().class, Class::Rank);
        assert_eq!(all.ranks_of(&[[0, i32::MAX, i32::MAX]]).unwrap_err().class, Class::Rank);
        assert_eq!(all.ranks_of(&[[5, 4, 1]]).unwrap(), []);
        assert_eq!(all.ranks_of(&[[5, 4, 0]]).unwrap_err().class, Class::Arg);
        let twice = all.include(&[1, 2, 1], 2).unwrap_err();
        assert_eq!(twice.message, "rank 1 is given twice");
        assert_eq!(&*all.exclude(&[0, 9, 5], 2).unwrap().peers, [1, 2, 3, 4, 6, 7, 8]);
    }
}
