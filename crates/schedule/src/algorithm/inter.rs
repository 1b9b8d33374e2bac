// SPDX-License-Identifier: BSD-3-Clause
//! All collectives on an intercommunicator, a comm with two groups (MPI 5.0, sections 6.2.2 and 6.2.3): what
//! the local group sends, the remote group receives. The first `Params::first_group` ranks are one group, the
//! rest the other.
//!
//! `Input` and `Output` have a block for each rank of the remote group. In a scattered reduction, `Input` has
//! a block for each rank of the local group instead. In a rooted collective only the root and the ranks of
//! the remote group take part; the other ranks of the root's group have no buffers. A vector crosses once,
//! between the groups' first ranks (leaders), and goes up and down binomial trees within the groups.
use super::reduce::sum_up;
use super::{Params, Tree};
use crate::build::Builder;
use crate::{
    Blocks,
    BufferId::{Input, Output},
    Schedule,
};
use std::ops::Range;

/// The two groups of an intercommunicator as one rank sees them: its own group (local) and the other group
/// (remote).
struct Groups {
    rank: u32,
    size: u32,
    root: u32,
    local: Range<u32>,
    remote: Range<u32>,
}

impl Groups {
    fn of(params: &Params) -> Groups {
        let &Params { rank, size, root, first_group, .. } = params;
        let (first, second) = (0..first_group, first_group..size);
        let (local, remote) = if rank < first_group { (first, second) } else { (second, first) };
        Groups { rank, size, root, local, remote }
    }

    fn is_root(&self) -> bool {
        self.rank == self.root
    }

    /// Whether this rank exchanges data with the root: the root is in the remote group.
    fn serves_root(&self) -> bool {
        self.remote.contains(&self.root)
    }

    fn leads(&self) -> bool {
        self.rank == self.local.start
    }

    fn builder(&self, input_blocks: u32, output_blocks: u32) -> Builder {
        Builder::new(self.rank, self.size, input_blocks, output_blocks)
    }

    /// Returns the number of ranks in the remote group.
    fn remote_size(&self) -> u32 {
        self.remote.end - self.remote.start
    }

    /// Returns the ranks of the remote group, each with the number of its block. Each local rank begins with
    /// a different remote rank, to spread the load.
    fn peers(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (remote_size, first, me) = (self.remote_size(), self.remote.start, self.rank - self.local.start);
        (0..remote_size).map(move |hop| (me + hop) % remote_size).map(move |block| (first + block, block))
    }

    /// Returns this rank's place in a binomial tree of the local group, whose top is the leader.
    fn tree(&self) -> Tree {
        Tree::new(self.rank - self.local.start, self.local.end - self.local.start)
    }

    /// Adds steps that combine the vectors of the local group at its leader, in the order of ranks. Returns
    /// where the sum lies at the leader; None at other ranks.
    fn sum_up(&self, plan: &mut Builder, blocks: u32) -> Option<Blocks> {
        let tree = self.tree();
        let sum = sum_up(plan, &tree, |member| self.local.start + member, Input.blocks(0, blocks), None);
        match tree.parent {
            Some(parent) => {
                plan.send(self.local.start + parent, sum);
                None
            }
            None => Some(sum),
        }
    }

    /// Adds steps by which the leader receives `Output` from the rank `source` and passes it down a tree of
    /// the local group.
    fn spread_down(&self, plan: &mut Builder, source: u32) {
        let tree = self.tree();
        plan.recv(tree.parent.map_or(source, |parent| self.local.start + parent), Output.block(0));
        for child in tree.children().rev() {
            plan.send(self.local.start + child.at, Output.block(0));
        }
    }
}

/// Broadcast between groups: the root sends to the leader of the remote group, which passes the message down
/// a tree of its group.
pub fn bcast(params: &Params) -> Schedule {
    let groups = Groups::of(params);
    let mut plan = groups.builder(0, u32::from(groups.is_root() || groups.serves_root()));
    if groups.is_root() {
        plan.send(groups.remote.start, Output.block(0));
    } else if groups.serves_root() {
        groups.spread_down(&mut plan, groups.root);
    }
    plan.finish()
}

/// Gather between groups: every rank of the remote group sends its block to the root.
pub fn gather(params: &Params) -> Schedule {
    let groups = Groups::of(params);
    let output_blocks = if groups.is_root() { groups.remote_size() } else { 0 };
    let mut plan = groups.builder(u32::from(groups.serves_root()), output_blocks);
    if groups.is_root() {
        for (from, block) in groups.peers() {
            plan.recv(from, Output.block(block));
        }
    } else if groups.serves_root() {
        plan.send(groups.root, Input.block(0));
    }
    plan.finish()
}

/// Scatter between groups: the root sends a block to every rank of the remote group.
pub fn scatter(params: &Params) -> Schedule {
    let groups = Groups::of(params);
    let input_blocks = if groups.is_root() { groups.remote_size() } else { 0 };
    let mut plan = groups.builder(input_blocks, u32::from(groups.serves_root()));
    if groups.is_root() {
        for (to, block) in groups.peers() {
            plan.send(to, Input.block(block));
        }
    } else if groups.serves_root() {
        plan.recv(groups.root, Output.block(0));
    }
    plan.finish()
}

/// Allgather between groups: every rank sends its block to every rank of the remote group.
pub fn allgather(params: &Params) -> Schedule {
    let groups = Groups::of(params);
    let mut plan = groups.builder(1, groups.remote_size());
    for (peer, block) in groups.peers() {
        plan.send(peer, Input.block(0));
        plan.recv(peer, Output.block(block));
    }
    plan.finish()
}

/// All-to-all between groups: every rank sends a block to every rank of the remote group.
pub fn alltoall(params: &Params) -> Schedule {
    let groups = Groups::of(params);
    let mut plan = groups.builder(groups.remote_size(), groups.remote_size());
    for (peer, block) in groups.peers() {
        plan.send(peer, Input.block(block));
        plan.recv(peer, Output.block(block));
    }
    plan.finish()
}

/// Reduction between groups: the remote group combines its vectors up a tree, and its leader sends the sum to
/// the root.
pub fn reduce(params: &Params) -> Schedule {
    let groups = Groups::of(params);
    let mut plan = groups.builder(u32::from(groups.serves_root()), u32::from(groups.is_root()));
    if groups.is_root() {
        plan.recv(groups.remote.start, Output.block(0));
    } else if groups.serves_root()
        && let Some(sum) = groups.sum_up(&mut plan, 1)
    {
        plan.send(groups.root, sum);
    }
    plan.finish()
}

/// Allreduce between groups: each group combines its vectors up a tree, the leaders exchange the sums, and
/// each sum goes down the other group's tree.
pub fn allreduce(params: &Params) -> Schedule {
    let groups = Groups::of(params);
    let mut plan = groups.builder(1, 1);
    if let Some(sum) = groups.sum_up(&mut plan, 1) {
        plan.send(groups.remote.start, sum);
    }
    groups.spread_down(&mut plan, groups.remote.start);
    plan.finish()
}

/// Scattered reduction between groups: each group combines its vectors up a tree, and the leaders exchange
/// the sums. Each leader sends the blocks of the sum that it has received to its group. A sum crosses whole,
/// since only the receiving group knows the lengths of the blocks.
pub fn reduce_scatter(params: &Params) -> Schedule {
    let groups = Groups::of(params);
    let blocks = groups.local.end - groups.local.start;
    let mut plan = groups.builder(blocks, 1);
    if let Some(sum) = groups.sum_up(&mut plan, blocks) {
        plan.send(groups.remote.start, sum);
    }
    if groups.leads() {
        let whole = plan.scratch(Input, 0, blocks);
        plan.recv(groups.remote.start, whole.blocks(0, blocks));
        for block in 1..blocks {
            plan.send(groups.local.start + block, whole.block(block));
        }
        plan.copy(whole.block(0), Output.block(0));
    } else {
        plan.recv(groups.local.start, Output.block(0));
    }
    plan.finish()
}
