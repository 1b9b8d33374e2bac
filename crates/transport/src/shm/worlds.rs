// SPDX-License-Identifier: BSD-3-Clause
//! The worlds of a segment: the first rank and the members of each, the worlds connected with it, and how it
//! ends (MPI 5.0, sections 11.8 and 11.10.4).
//!
//! Read next: `segment.rs`, `pages.rs`.

use super::{EndCause, LocalRank, Segment, World};
use error::Result;
use std::sync::atomic::Ordering;

/// The bits of a world's number that make the generation: a packet has room for these.
const GENERATIONS: u32 = 0xff_ffff;

impl Segment {
    /// The generation of a peer: the low bits of its world's number, the same on all hosts. It tells the peer
    /// from earlier processes that had the same number.
    pub fn generation(&self, peer: u32) -> u32 {
        self.peer(peer).map_or(0, |peer| peer.generation.load(Ordering::Acquire))
    }

    /// The state of the world whose first rank is `first`, on any host; that of the job's first world if
    /// `first` is no rank. Each host has its own copy of each world's state.
    pub fn world(&self, first: u32) -> &World {
        &self.page(LocalRank(if first < self.shape().ranks { first } else { 0 })).world
    }

    /// The first rank of a peer's world.
    pub fn first_of(&self, peer: u32) -> u32 {
        self.job().firsts.last_until(peer).unwrap_or(0)
    }

    /// The first ranks of all worlds. A world that has ended stays until its process numbers are used again.
    pub fn firsts(&self) -> Vec<u32> {
        let mut all = Vec::new();
        self.job().firsts.each(self.shape().ranks, |first| all.push(first));
        all
    }

    /// The state of the world to which a rank belongs.
    pub fn world_of(&self, rank: LocalRank) -> &World {
        self.world(self.rank(rank).first.load(Ordering::Relaxed))
    }

    /// The processes of this segment in the world whose first rank is `first`. `World::size` counts the
    /// processes of all hosts.
    pub fn members(&self, first: u32) -> impl Iterator<Item = LocalRank> + Clone + use<'_> {
        let size = self.world(first).size.load(Ordering::Relaxed);
        (first..first.saturating_add(size).min(self.shape().ranks)).filter_map(|peer| self.local(peer))
    }

    /// Resets the state of the ranks from `first` on, which have not attached yet, to that of a new world
    /// `id`. `node_of` has the host of each. `mpirun` calls it on every host once no process uses these
    /// numbers.
    pub fn make_world(&self, first: u32, node_of: &[u32], id: u64) -> Result<()> {
        let size = node_of.len() as u32;
        (first..first + size).for_each(|rank| self.job().firsts.remove(rank));
        for (rank, node) in (first..).zip(node_of) {
            let Some(peer) = self.peer(rank) else { break };
            peer.name_bytes.store(0, Ordering::Relaxed);
            // A process that sees the new generation must not find the name of the earlier process.
            peer.generation.store(id as u32 & GENERATIONS, Ordering::Release);
            peer.node.store(*node, Ordering::Release);
            let Some(rank) = self.local(rank) else { continue };
            self.empty_arena(rank)?;
            self.rank(rank).renew();
            self.rank(rank).first.store(first, Ordering::Relaxed);
        }
        self.world(first).renew(id, size);
        self.job().firsts.add(first);
        Ok(())
    }

    /// A rank's name in sentences: its number in its MPI_COMM_WORLD, and its world if that was spawned.
    pub fn name(&self, rank: u32) -> String {
        let first = self.first_of(rank);
        match self.world(first).id.load(Ordering::Relaxed) {
            0 => format!("rank {rank}"),
            id => format!("rank {} of spawned world {id}", rank.wrapping_sub(first)),
        }
    }

    /// The first ranks of the worlds that are connected with the world of `first` by comms, directly or
    /// through other worlds, including that world itself (MPI 5.0, section 11.10.4).
    pub fn connected(&self, first: u32) -> Vec<u32> {
        let mut found = vec![first];
        // Without a spawned world there are no connections.
        if self.job().worlds.load(Ordering::Acquire) == 0 {
            return found;
        }
        let firsts = self.firsts();
        let leads = |from: u32, to: u32| {
            self.members(from).any(|rank| self.rank(rank).connected.has(to))
                || self.world(from).connected_elsewhere.has(to)
        };
        let mut at = 0;
        while let Some(&world) = found.get(at) {
            at += 1;
            let more: Vec<u32> = firsts
                .iter()
                .copied()
                .filter(|other| !found.contains(other) && (leads(world, *other) || leads(*other, world)))
                .collect();
            found.extend(more);
        }
        found
    }

    /// The first ranks of the worlds to which comms of a world's processes on this host lead, ascending.
    pub fn connected_here(&self, first: u32) -> Vec<u32> {
        let mut all = Vec::new();
        if self.job().worlds.load(Ordering::Acquire) > 0 {
            let ranks = self.shape().ranks;
            self.members(first).for_each(|rank| self.rank(rank).connected.each(ranks, |to| all.push(to)));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Removes all connections that start at the world whose first rank is `first`.
    pub fn disconnect(&self, first: u32) {
        self.members(first).for_each(|rank| self.rank(rank).connected.clear());
        self.world(first).connected_elsewhere.clear();
    }

    /// Ends the world of `rank`: publishes why, the rank and the exit code, and wakes the world's processes.
    pub fn end(&self, rank: LocalRank, code: i32, cause: EndCause) {
        let first = self.rank(rank).first.load(Ordering::Relaxed);
        self.world(first).set_abort(rank.peer(), code, cause);
        self.members(first).for_each(|rank| self.rank(rank).bell.ring());
    }
}
