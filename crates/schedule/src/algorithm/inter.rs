//! All collectives between the two groups of an intercommunicator (MPI 5.0, sections 6.2.2 and 6.2.3): what one group sends,
//! the other receives. `Params::first_group` ranks are the first group, the rest the second.
//!
//! Slots are cut by the group they name: `Input` and `Output` have a block for each rank of the other group where the intracommunicator's
//! have one for each rank, except that a scattered reduction's `Input` is cut for the own group. In a rooted collective the root has the
//! side of the buffers that roots have, the other group's ranks have theirs, and the rest of the root's group has no part in it.
//! A vector crosses once, between the groups' first ranks (leaders), and goes up and down binomial trees within the groups.
use super::reduce::sum_up;
use super::{Params, Tree};
use crate::build::Builder;
use crate::{
    Blocks, Schedule,
    Slot::{Input, Output},
};
use std::ops::Range;

/// A rank between the groups.
struct Place {
    rank: u32,
    size: u32,
    root: u32,
    own: Range<u32>,
    other: Range<u32>,
}

impl Place {
    fn of(params: &Params) -> Place {
        let &Params { rank, size, root, first_group, .. } = params;
        let (first, second) = (0..first_group, first_group..size);
        let (own, other) = if rank < first_group { (first, second) } else { (second, first) };
        Place { rank, size, root, own, other }
    }

    fn is_root(&self) -> bool {
        self.rank == self.root
    }

    /// Whether the other group has the root.
    fn serves_root(&self) -> bool {
        self.other.contains(&self.root)
    }

    fn leads(&self) -> bool {
        self.rank == self.own.start
    }

    fn builder(&self, input_blocks: u32, output_blocks: u32) -> Builder {
        Builder::new(self.rank, self.size, input_blocks, output_blocks)
    }

    /// Blocks for each rank of the other group.
    fn others(&self) -> u32 {
        self.other.end - self.other.start
    }

    /// The block of each rank of the other group, a different one first on every rank of the own.
    fn peers(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (others, first, me) = (self.others(), self.other.start, self.rank - self.own.start);
        (0..others).map(move |hop| (me + hop) % others).map(move |block| (first + block, block))
    }

    /// The own group's binomial tree on its leader.
    fn tree(&self) -> Tree {
        Tree::new(self.rank - self.own.start, self.own.end - self.own.start)
    }

    /// The own group's vector, combined in the order of ranks: at the leader; the others hand theirs on.
    fn sum_up(&self, plan: &mut Builder, blocks: u32) -> Option<Blocks> {
        let tree = self.tree();
        let sum = sum_up(plan, &tree, |member| self.own.start + member, blocks, None);
        match tree.parent {
            Some(parent) => {
                plan.send(self.own.start + parent, sum);
                None
            }
            None => Some(sum),
        }
    }

    /// Spreads `Output` from the leader, which takes it from `source`, through the own group.
    fn spread_down(&self, plan: &mut Builder, source: u32) {
        let tree = self.tree();
        plan.recv(tree.parent.map_or(source, |parent| self.own.start + parent), Output.block(0));
        for child in tree.children().rev() {
            plan.send(self.own.start + child.at, Output.block(0));
        }
    }
}

/// From the root to the other group's leader, and down its tree.
pub fn bcast(params: &Params) -> Schedule {
    let place = Place::of(params);
    let mut plan = place.builder(0, u32::from(place.is_root() || place.serves_root()));
    if place.is_root() {
        plan.send(place.other.start, Output.block(0));
    } else if place.serves_root() {
        place.spread_down(&mut plan, place.root);
    }
    plan.finish()
}

/// The other group's ranks to the root at once.
pub fn gather(params: &Params) -> Schedule {
    let place = Place::of(params);
    let output_blocks = if place.is_root() { place.others() } else { 0 };
    let mut plan = place.builder(u32::from(place.serves_root()), output_blocks);
    if place.is_root() {
        for (from, block) in place.peers() {
            plan.recv(from, Output.block(block));
        }
    } else if place.serves_root() {
        plan.send(place.root, Input.block(0));
    }
    plan.finish()
}

/// The root to the other group's ranks at once.
pub fn scatter(params: &Params) -> Schedule {
    let place = Place::of(params);
    let input_blocks = if place.is_root() { place.others() } else { 0 };
    let mut plan = place.builder(input_blocks, u32::from(place.serves_root()));
    if place.is_root() {
        for (to, block) in place.peers() {
            plan.send(to, Input.block(block));
        }
    } else if place.serves_root() {
        plan.recv(place.root, Output.block(0));
    }
    plan.finish()
}

/// Every rank to every rank of the other group at once.
pub fn allgather(params: &Params) -> Schedule {
    let place = Place::of(params);
    let mut plan = place.builder(1, place.others());
    for (peer, block) in place.peers() {
        plan.send(peer, Input.block(0));
        plan.recv(peer, Output.block(block));
    }
    plan.finish()
}

/// Every rank to every rank of the other group at once.
pub fn alltoall(params: &Params) -> Schedule {
    let place = Place::of(params);
    let mut plan = place.builder(place.others(), place.others());
    for (peer, block) in place.peers() {
        plan.send(peer, Input.block(block));
        plan.recv(peer, Output.block(block));
    }
    plan.finish()
}

/// Up the other group's tree, then to the root.
pub fn reduce(params: &Params) -> Schedule {
    let place = Place::of(params);
    let mut plan = place.builder(u32::from(place.serves_root()), u32::from(place.is_root()));
    if place.is_root() {
        plan.recv(place.other.start, Output.block(0));
    } else if place.serves_root()
        && let Some(sum) = place.sum_up(&mut plan, 1)
    {
        plan.send(place.root, sum);
    }
    plan.finish()
}

/// Up both trees, across both ways, and down both.
pub fn allreduce(params: &Params) -> Schedule {
    let place = Place::of(params);
    let mut plan = place.builder(1, 1);
    if let Some(sum) = place.sum_up(&mut plan, 1) {
        plan.send(place.other.start, sum);
    }
    place.spread_down(&mut plan, place.other.start);
    plan.finish()
}

/// Up both trees and across both ways; then each leader deals out what came. Where the groups cut the vector differs, and only
/// the receiving group knows its own cuts, so the vector crosses whole.
pub fn reduce_scatter(params: &Params) -> Schedule {
    let place = Place::of(params);
    let blocks = place.own.end - place.own.start;
    let mut plan = place.builder(blocks, 1);
    if let Some(sum) = place.sum_up(&mut plan, blocks) {
        plan.send(place.other.start, sum);
    }
    if place.leads() {
        let whole = plan.scratch(Input, 0, blocks);
        plan.recv(place.other.start, whole.blocks(0, blocks));
        for block in 1..blocks {
            plan.send(place.own.start + block, whole.block(block));
        }
        plan.copy(whole.block(0), Output.block(0));
    } else {
        plan.recv(place.own.start, Output.block(0));
    }
    plan.finish()
}
