// SPDX-License-Identifier: BSD-3-Clause
//! What a collective must do, by its definition (MPI 5.0, chapter 6), and which blocks and messages the steps
//! of schedules have.

use crate::{Action, Algorithm, Blocks, BufferId, Collective, Neighbors, NodeMap, Params, Schedule};
use std::ops::Range;
use std::sync::Arc;

/// A call of a collective with the arguments of all ranks. A set of schedules is checked against it.
#[derive(Clone, Debug)]
pub struct CollectiveCase {
    /// The collective that the ranks call.
    pub collective: Collective,
    /// The number of ranks.
    pub size: u32,
    /// The rank of the root; 0 in collectives without a root.
    pub root: u32,
    /// Whether the ranks pass MPI_IN_PLACE, wherever the standard allows it.
    pub in_place: bool,
    /// Whether the operator is commutative.
    pub commutative: bool,
    /// Whether contributions must be combined from left to right in the order of ranks
    /// (`CombineOrder::InRanks`).
    pub in_ranks: bool,
    /// The number of ranks in the first group of an intercommunicator; 0 on an intracommunicator.
    pub first_group: u32,
    /// The numbers of elements. Here `[i]` is entry i of this list, modulo the list's length. Vectors, and
    /// blocks of equal length, have `[0]` elements. Rank r's block in v-collectives and reduce_scatter has
    /// `[r]`. In alltoallv and alltoallw rank r sends `[r * size + s]` elements to rank s; in place they
    /// exchange `[r * size + s]`, where r is the lower rank. In allgather and alltoall between groups, blocks
    /// of the first group have `[0]` elements and blocks of the second `[1]`. A scattered reduction between
    /// groups lengthens blocks until both vectors are equally long.
    pub counts: Vec<u32>,
    /// For each rank, its neighbours in a neighborhood collective, such as MPI_Neighbor_allgather
    /// (`collective` is then `Allgather`). Empty in all other collectives. With unequal blocks, rank r sends
    /// `counts[7 * r + k]` elements to its neighbour k.
    pub neighbors: Vec<Neighbors>,
    /// The map of ranks to nodes. None if all ranks are on one node, or each is on its own.
    pub nodes: Option<Arc<NodeMap>>,
}

impl CollectiveCase {
    /// Makes the schedules of all ranks by one algorithm.
    pub fn plans(&self, algorithm: Algorithm) -> Vec<Schedule> {
        let &CollectiveCase { size, root, in_place, commutative, first_group, .. } = self;
        let nodes = &self.nodes;
        let params =
            |rank| Params { rank, size, root, in_place, commutative, first_group, nodes: nodes.clone() };
        (0..size).map(|rank| algorithm.plan(&params(rank))).collect()
    }

    /// Whether this rank passes MPI_IN_PLACE and the standard gives it a meaning there.
    pub(super) fn in_place_on(&self, rank: u32) -> bool {
        self.in_place
            && self.collective.may_be_in_place()
            && (!self.collective.is_rooted() || rank == self.root)
    }

    /// Returns the ranks of this rank's own group, and the ranks with which it exchanges data. On an
    /// intracommunicator both are all ranks.
    pub(super) fn groups(&self, rank: u32) -> (Range<u32>, Range<u32>) {
        let (first, second) = (0..self.first_group, self.first_group..self.size);
        match self.first_group {
            0 => (0..self.size, 0..self.size),
            middle if rank < middle => (first, second),
            _ => (second, first),
        }
    }

    pub(super) fn count(&self, index: u32) -> u32 {
        if self.counts.is_empty() { 0 } else { self.counts[index as usize % self.counts.len()] }
    }

    /// Returns how many elements `from` sends to `to` in MPI_Alltoallv or MPI_Alltoallw.
    pub(super) fn pair(&self, from: u32, to: u32) -> u32 {
        let (from, to) = if self.in_place { (from.min(to), from.max(to)) } else { (from, to) };
        self.count(from * self.size + to)
    }

    /// Returns how many elements of the sum a reduce-scatter leaves with a rank.
    pub(super) fn scattered(&self, rank: u32) -> u32 {
        let (local, remote) = self.groups(rank);
        let sum = |group: Range<u32>| group.map(|rank| self.count(rank)).sum::<u32>();
        let missing = sum(remote).saturating_sub(sum(local.clone()));
        self.count(rank) + if rank == local.start { missing } else { 0 }
    }

    /// Makes the schedules of all ranks for a neighborhood collective.
    pub fn plans_among_neighbors(&self) -> Vec<Schedule> {
        self.neighbors.iter().map(|neighbors| neighbors.plan(self.same_for_neighbors())).collect()
    }

    pub(super) fn same_for_neighbors(&self) -> bool {
        matches!(self.collective, Collective::Allgather | Collective::Allgatherv)
    }

    /// Returns the rank of the neighbour that sends the block `block` of a rank's output, and the block's
    /// number in that neighbour's input. None for MPI_PROC_NULL (MPI 5.0, section 8.6).
    pub(super) fn origin(&self, rank: u32, block: u32) -> Option<(u32, u32)> {
        let here = &self.neighbors[rank as usize];
        let from = here.from[block as usize]?;
        let earlier = here.from[..block as usize].iter().filter(|&&other| other == Some(from)).count();
        let mut there = (0..).zip(&self.neighbors[from as usize].to).filter(|(_, to)| **to == Some(rank));
        let at = if here.paired { block ^ 1 } else { there.nth(earlier).expect("every edge has two ends").0 };
        Some((from, if self.same_for_neighbors() { 0 } else { at }))
    }

    /// Returns the number of elements in a block of a rank's user buffer in a neighborhood collective.
    pub(super) fn neighbor_block(&self, buffer: BufferId, rank: u32, block: u32) -> u32 {
        match self.collective {
            Collective::Allgather | Collective::Alltoall => self.count(0),
            _ if buffer == BufferId::Input => self.count(7 * rank + block),
            _ => self.origin(rank, block).map_or(self.count(block), |(from, at)| self.count(7 * from + at)),
        }
    }

    /// Returns the number of elements in the block `block` of a rank's user buffer, if the buffer is cut into
    /// `blocks` blocks. It also answers for a buffer that only other ranks have.
    pub(super) fn block(&self, buffer: BufferId, rank: u32, block: u32, blocks: u32) -> u32 {
        use Collective::*;
        if !self.neighbors.is_empty() {
            return self.neighbor_block(buffer, rank, block);
        }
        let spread = |total: u32| total / blocks + u32::from(block < total % blocks);
        let (local, remote) = self.groups(rank);
        let sends = buffer == BufferId::Input;
        let second = self.first_group > 0 && (rank >= self.first_group) == sends;
        match self.collective {
            Barrier => 0,
            Bcast | Reduce | Allreduce | Scan | Exscan => spread(self.count(0)),
            Gather | Scatter => self.count(0),
            Allgather | Alltoall => self.count(second.into()),
            ReduceScatterBlock if self.first_group > 0 => self.count(0) * remote.len() as u32,
            ReduceScatterBlock => self.count(0),
            ReduceScatter => self.scattered(if sends { local.start + block } else { rank }),
            Gatherv | Allgatherv if sends => self.count(rank),
            Scatterv if !sends => self.count(rank),
            Gatherv | Scatterv | Allgatherv => self.count(remote.start + block),
            Alltoallv | Alltoallw if sends => self.pair(rank, remote.start + block),
            Alltoallv | Alltoallw => self.pair(remote.start + block, rank),
        }
    }

    /// Returns how many blocks a rank's user buffer has by the standard: 1 for a vector, 0 if the rank has no
    /// such buffer.
    pub(super) fn blocks(&self, buffer: BufferId, rank: u32) -> u32 {
        use Collective::*;
        if let Some(neighbors) = self.neighbors.get(rank as usize) {
            let to = if self.same_for_neighbors() { 1 } else { neighbors.to.len() };
            return if buffer == BufferId::Input { to } else { neighbors.from.len() } as u32;
        }
        let (local, remote) = self.groups(rank);
        let (local, remote_size, at_root) =
            (local.len() as u32, remote.len() as u32, u32::from(rank == self.root));
        let serves = u32::from(remote.contains(&self.root));
        match (self.collective, buffer == BufferId::Input) {
            (Barrier, _) | (Bcast, true) => 0,
            (Bcast, false) => serves.max(at_root),
            (Gather | Gatherv, false) | (Scatter | Scatterv, true) => remote_size * at_root,
            (Gather | Gatherv | Reduce, true) | (Scatter | Scatterv, false) => serves,
            (Reduce, false) => at_root,
            (Allgather | Allgatherv, false) | (Alltoall | Alltoallv | Alltoallw, _) => remote_size,
            (ReduceScatterBlock | ReduceScatter, true) => local,
            _ => 1,
        }
    }

    /// Returns for each of the `blocks` blocks of a rank's user buffer the element at which it begins, and
    /// last the buffer's end.
    pub(super) fn offsets(&self, buffer: BufferId, rank: u32, blocks: u32) -> Vec<u32> {
        let mut offsets = vec![0];
        for block in 0..blocks {
            offsets.push(offsets[block as usize] + self.block(buffer, rank, block, blocks));
        }
        offsets
    }

    /// Returns the number of elements in a rank's user buffer.
    pub(super) fn elements(&self, buffer: BufferId, rank: u32) -> u32 {
        *self.offsets(buffer, rank, self.blocks(buffer, rank)).last().expect("starts with 0")
    }

    /// Returns the indices, among the elements of a rank's memory, at which its input and its output begin.
    /// In place the two overlap.
    pub(super) fn bases(&self, rank: u32) -> (u32, u32) {
        use Collective::*;
        let block = |buffer| self.offsets(buffer, rank, self.size)[rank as usize];
        match self.collective {
            _ if !self.in_place_on(rank) => (0, self.elements(BufferId::Input, rank)),
            Gather | Gatherv | Allgather | Allgatherv => (block(BufferId::Output), 0),
            Scatter | Scatterv => (0, block(BufferId::Input)),
            _ => (0, 0),
        }
    }

    /// Returns what must be in a rank's output: for each element, the contributions (rank, element of its
    /// input) that it combines. The list is empty where the standard leaves the element open.
    pub(super) fn definition(&self, rank: u32) -> Vec<Vec<(u32, u32)>> {
        use Collective::*;
        let all = self.elements(BufferId::Output, rank);
        if !self.neighbors.is_empty() {
            let received = |block: u32| {
                let origin = self.origin(rank, block);
                let first =
                    origin.map_or(0, |(from, at)| self.offsets(BufferId::Input, from, at)[at as usize]);
                let elements = 0..self.neighbor_block(BufferId::Output, rank, block);
                elements.map(move |at| origin.map(|(from, _)| (from, first + at)).into_iter().collect())
            };
            return (0..self.blocks(BufferId::Output, rank)).flat_map(received).collect();
        }
        let (local, remote) = self.groups(rank);
        let sum = |ranks: Range<u32>, first: u32| {
            (first..first + all).map(|element| ranks.clone().map(|rank| (rank, element)).collect()).collect()
        };
        let from_all = |first: &dyn Fn(u32) -> u32| {
            let blocks = (0..self.blocks(BufferId::Output, rank)).map(|block| {
                let source = remote.start + block;
                let count = self.block(BufferId::Output, rank, block, remote.len() as u32);
                (first(source)..first(source) + count).map(move |element| vec![(source, element)])
            });
            blocks.flatten().collect()
        };
        let sent_to_me = |source: u32| {
            self.offsets(BufferId::Input, source, local.len() as u32)[(rank - local.start) as usize]
        };
        match self.collective {
            Barrier => Vec::new(),
            Bcast => (0..all).map(|element| vec![(self.root, element)]).collect(),
            Gather | Gatherv | Allgather | Allgatherv => from_all(&|_| 0),
            Alltoall | Alltoallv | Alltoallw => from_all(&sent_to_me),
            Scatter | Scatterv => {
                let first = if all > 0 { sent_to_me(self.root) } else { 0 };
                (first..first + all).map(|element| vec![(self.root, element)]).collect()
            }
            Reduce | Allreduce => sum(remote.clone(), 0),
            ReduceScatterBlock | ReduceScatter => sum(remote.clone(), sent_to_me(rank)),
            Scan => sum(0..rank + 1, 0),
            Exscan => sum(0..rank, 0),
        }
    }
}

/// Returns the blocks that a step reads, at most two, and those that it writes.
pub(super) fn accesses(action: &Action) -> ([Option<Blocks>; 2], Option<Blocks>) {
    match *action {
        Action::Send { from, .. } => ([Some(from), None], None),
        Action::Recv { into, .. } => ([None, None], Some(into)),
        Action::Copy { from, into } => ([Some(from), None], Some(into)),
        Action::Reduce { left, right, into } => ([Some(left), Some(right)], Some(into)),
    }
}

/// The messages of all schedules: for each (sender, receiver, edge number), the sending step and the
/// receiving step.
pub(super) type Messages = std::collections::HashMap<(u32, u32, u32), (Option<u32>, Option<u32>)>;

pub(super) fn messages(schedules: &[Schedule]) -> Messages {
    let mut messages = Messages::new();
    for (rank, schedule) in (0..).zip(schedules) {
        for (index, step) in (0..).zip(&schedule.steps) {
            match step.action {
                Action::Send { to, edge, .. } => {
                    messages.entry((rank, to, edge)).or_default().0 = Some(index)
                }
                Action::Recv { from, edge, .. } => {
                    messages.entry((from, rank, edge)).or_default().1 = Some(index)
                }
                _ => {}
            }
        }
    }
    messages
}
