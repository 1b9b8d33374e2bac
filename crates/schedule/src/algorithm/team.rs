// SPDX-License-Identifier: BSD-3-Clause
//! Some ranks of a comm that exchange among themselves: all ranks, the ranks of a node, or a rank of each
//! node.
use super::{Params, Tree};
use crate::nodes::NodeMap;
use std::ops::Range;
use std::sync::Arc;

/// The ranks, and which of them is this one.
pub struct Team<'a> {
    ranks: Ranks<'a>,
    pub me: u32,
}

enum Ranks<'a> {
    /// All of this many ranks.
    All(u32),
    /// The ranks of a node.
    Node(&'a [u32]),
    /// The leader of each node.
    Leaders(&'a Nodes, u32),
    /// The rank at this position in each node.
    Column(&'a Nodes, u32),
}

impl Team<'_> {
    /// All ranks.
    pub fn all(params: &Params) -> Team<'static> {
        Team { ranks: Ranks::All(params.size), me: params.rank }
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        match self.ranks {
            Ranks::All(size) => size,
            Ranks::Node(ranks) => ranks.len() as u32,
            Ranks::Leaders(nodes, _) | Ranks::Column(nodes, _) => nodes.count(),
        }
    }

    /// The rank of a member.
    pub fn rank(&self, member: u32) -> u32 {
        match self.ranks {
            Ranks::All(_) => member,
            Ranks::Node(ranks) => ranks[member as usize],
            Ranks::Leaders(nodes, top) => nodes.leader(member, top),
            Ranks::Column(nodes, position) => nodes.members(member)[position as usize],
        }
    }

    /// This rank's position in a binomial tree with the member `top` at the top.
    pub fn tree(&self, top: u32) -> Tree {
        Tree::new((self.me + self.size() - top) % self.size(), self.size())
    }

    /// The rank at a position in such a tree.
    pub fn at(&self, top: u32, position: u32) -> u32 {
        self.rank((top + position) % self.size())
    }
}

/// A rank and the nodes, as the algorithms over nodes see them.
pub struct Nodes {
    map: Arc<NodeMap>,
    rank: u32,
    /// This rank's node.
    pub here: u32,
    /// This rank's position among the ranks of its node.
    pub position: u32,
}

impl Nodes {
    pub fn of(params: &Params) -> Nodes {
        let map = params.nodes.clone().unwrap_or_else(|| Arc::new(NodeMap::one(params.size)));
        let (here, position) = (map.of(params.rank), map.position(params.rank));
        Nodes { map, rank: params.rank, here, position }
    }

    /// The number of nodes.
    pub fn count(&self) -> u32 {
        self.map.nodes()
    }

    /// The node of a rank.
    pub fn node(&self, rank: u32) -> u32 {
        self.map.of(rank)
    }

    /// A rank's position among the ranks of its node.
    pub fn position_of(&self, rank: u32) -> u32 {
        self.map.position(rank)
    }

    /// The ranks of a node.
    pub fn members(&self, node: u32) -> &[u32] {
        self.map.members(node)
    }

    /// The ranks of `count` nodes, node by node, cyclically from the node at `position` after `top` on.
    pub fn subtree(&self, top: u32, position: u32, count: u32) -> Vec<u32> {
        let nodes = (0..count).map(|at| (top + position + at) % self.count());
        nodes.flat_map(|node| self.members(node).iter().copied()).collect()
    }

    /// The ranks of this node.
    pub fn local(&self) -> &[u32] {
        self.members(self.here)
    }

    /// The other ranks of this node.
    pub fn others(&self) -> impl Iterator<Item = u32> {
        self.local().iter().copied().filter(|&rank| rank != self.rank)
    }

    /// The ranks of this node as a team.
    pub fn local_team(&self) -> Team<'_> {
        Team { ranks: Ranks::Node(self.local()), me: self.position }
    }

    /// The number of ranks that each node can give to share the traffic between nodes.
    pub fn leaders(&self) -> u32 {
        self.map.members_min()
    }

    /// The number of a vector's blocks that the leaders of a node share, one for each node in a share.
    pub fn split_blocks(&self) -> u32 {
        self.leaders() * self.count()
    }

    /// The blocks of the leader at this position in each node.
    pub fn share(&self, position: u32) -> Range<u32> {
        position * self.count()..(position + 1) * self.count()
    }

    /// This node's leaders with their shares.
    pub fn shares(&self) -> impl Iterator<Item = (u32, Range<u32>)> {
        (0..self.leaders()).map(|position| (self.local()[position as usize], self.share(position)))
    }

    /// The rank that exchanges for a node: `top` on its own node, elsewhere the first.
    pub fn leader(&self, node: u32, top: u32) -> u32 {
        if self.node(top) == node { top } else { self.members(node)[0] }
    }

    /// The leaders of all nodes as a team. This rank must be one.
    pub fn leaders_team(&self, top: u32) -> Team<'_> {
        Team { ranks: Ranks::Leaders(self, top), me: self.here }
    }

    /// The ranks at this rank's position in each node, if that is less than `leaders`.
    pub fn column(&self) -> Team<'_> {
        Team { ranks: Ranks::Column(self, self.position), me: self.here }
    }

    /// The rank of `node` that exchanges with `other` for its node.
    pub fn exchanger(&self, node: u32, other: u32) -> u32 {
        let members = self.members(node);
        members[other as usize % members.len()]
    }
}
