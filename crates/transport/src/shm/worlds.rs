// SPDX-License-Identifier: BSD-3-Clause
//! The worlds of a job (the processes that share one MPI_COMM_WORLD): the first rank and the members of each,
//! the worlds connected with it, and how it ends (MPI 5.0, sections 11.8 and 11.10.4).
//!
//! Read next: `segment.rs`, `pages.rs`.

use super::{EndCause, LocalRank, Segment, World};
use error::Result;
use std::sync::atomic::Ordering;

/// The bits of a world's number that are its generation. A packet has room for these only.
const GENERATIONS: u32 = 0xff_ffff;

impl Segment {
    /// Returns the generation of a peer: the low bits of its world's number, the same on all hosts. It tells
    /// the peer from earlier processes that had the same process number.
    pub fn generation(&self, peer: u32) -> u32 {
        self.peer(peer).map_or(0, |peer| peer.generation.load(Ordering::Acquire))
    }

    /// Returns this host's copy of the state of the world whose first rank is `first`; that rank may run on
    /// any host. Returns the state of the job's first world if there is no rank `first`.
    pub fn world(&self, first: u32) -> &World {
        &self.page(LocalRank(if first < self.shape().ranks { first } else { 0 })).world
    }

    /// Returns the first rank of the world to which a peer belongs.
    pub fn first_of(&self, peer: u32) -> u32 {
        self.job().firsts.last_until(peer).unwrap_or(0)
    }

    /// Returns the first ranks of all worlds. A world that has ended stays until its process numbers are used
    /// again.
    pub fn firsts(&self) -> Vec<u32> {
        let mut all = Vec::new();
        self.job().firsts.each(self.shape().ranks, |first| all.push(first));
        all
    }

    /// Returns the state of the world to which a rank belongs.
    pub fn world_of(&self, rank: LocalRank) -> &World {
        self.world(self.rank(rank).first.load(Ordering::Relaxed))
    }

    /// Iterates over the processes on this host of the world whose first rank is `first`. `World::size`
    /// counts those of all hosts.
    pub fn members(&self, first: u32) -> impl Iterator<Item = LocalRank> + Clone + use<'_> {
        let size = self.world(first).size.load(Ordering::Relaxed);
        (first..first.saturating_add(size).min(self.shape().ranks)).filter_map(|peer| self.local(peer))
    }

    /// Makes a new world with the number `id` of the ranks from `first` on, and resets their state. `node_of`
    /// has each rank's host. No process has attached as one of them yet. `mpirun` calls this on every host,
    /// once no process uses these process numbers any more.
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

    /// Returns a rank's name for sentences: its number in its MPI_COMM_WORLD, and its world's number if the
    /// world was spawned.
    pub fn name(&self, rank: u32) -> String {
        let first = self.first_of(rank);
        match self.world(first).id.load(Ordering::Relaxed) {
            0 => format!("rank {rank}"),
            id => format!("rank {} of spawned world {id}", rank.wrapping_sub(first)),
        }
    }

    /// Returns the first ranks of the worlds that comms connect with the world of `first`, directly or
    /// through other worlds. `first` itself is among them (MPI 5.0, section 11.10.4).
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

    /// Looks at the processes on this host that belong to the world of `first`. Returns the first ranks of
    /// the worlds with which their comms connect them, in ascending order.
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

    /// Removes all connections that lead from the world whose first rank is `first` to other worlds.
    pub fn disconnect(&self, first: u32) {
        self.members(first).for_each(|rank| self.rank(rank).connected.clear());
        self.world(first).connected_elsewhere.clear();
    }

    /// Ends the world of `rank`: publishes `rank`, the exit code and why the world ends, and wakes the
    /// world's processes.
    pub fn end(&self, rank: LocalRank, code: i32, cause: EndCause) {
        let first = self.rank(rank).first.load(Ordering::Relaxed);
        self.world(first).set_abort(rank.peer(), code, cause);
        self.members(first).for_each(|rank| self.rank(rank).bell.ring());
    }
}
