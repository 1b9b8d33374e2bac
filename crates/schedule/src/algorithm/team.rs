// SPDX-License-Identifier: BSD-3-Clause
//! Some ranks of a comm that exchange among themselves: all ranks, the ranks of a node, or a rank of each
//! node.
use super::{Params, Tree};
use crate::nodes::NodeMap;
use std::ops::Range;
use std::sync::Arc;

/// Ranks that exchange among themselves, numbered from 0 as members of the team, and which member this rank
/// is.
pub struct Team<'a> {
    ranks: Ranks<'a>,
    pub me: u32,
}

enum Ranks<'a> {
    /// The ranks below this number: all ranks of the comm.
    All(u32),
    /// These ranks, which are on one node.
    Node(&'a [u32]),
    /// One rank of each node, its leader (`Nodes::leader`, for this `top`).
    Leaders(&'a Nodes, u32),
    /// One rank of each node: the one at this position among the ranks of the node.
    Column(&'a Nodes, u32),
}

impl Team<'_> {
    /// Makes a team of all ranks of the comm.
    pub fn all(params: &Params) -> Team<'static> {
        Team { ranks: Ranks::All(params.size), me: params.rank }
    }

    /// Returns how many members the team has.
    pub fn size(&self) -> u32 {
        match self.ranks {
            Ranks::All(size) => size,
            Ranks::Node(ranks) => ranks.len() as u32,
            Ranks::Leaders(nodes, _) | Ranks::Column(nodes, _) => nodes.count(),
        }
    }

    /// Returns the rank in the comm of a member.
    pub fn rank(&self, member: u32) -> u32 {
        match self.ranks {
            Ranks::All(_) => member,
            Ranks::Node(ranks) => ranks[member as usize],
            Ranks::Leaders(nodes, top) => nodes.leader(member, top),
            Ranks::Column(nodes, position) => nodes.members(member)[position as usize],
        }
    }

    /// Returns this rank's place in a binomial tree of the members, with the member `top` at the top.
    pub fn tree(&self, top: u32) -> Tree {
        Tree::new((self.me + self.size() - top) % self.size(), self.size())
    }

    /// Returns the rank at a position in the binomial tree that has the member `top` at the top.
    pub fn at(&self, top: u32, position: u32) -> u32 {
        self.rank((top + position) % self.size())
    }
}

/// The nodes of all ranks, and where this rank is.
pub struct Nodes {
    map: Arc<NodeMap>,
    rank: u32,
    /// The number of the node on which this rank is.
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

    /// Returns the ranks of `count` nodes, node by node, cyclically from the one that comes `position` nodes
    /// after node `top`.
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

    /// Returns how many ranks of each node share the traffic between nodes: as many as the smallest node has.
    pub fn leaders(&self) -> u32 {
        self.map.members_min()
    }

    /// Returns into how many blocks a vector is cut for these leaders: for each, a share with a block for
    /// each node.
    pub fn split_blocks(&self) -> u32 {
        self.leaders() * self.count()
    }

    /// Returns the blocks that make up the share of the leader at this position in each node.
    pub fn share(&self, position: u32) -> Range<u32> {
        position * self.count()..(position + 1) * self.count()
    }

    /// Returns the leaders of this rank's node, each with the blocks of its share.
    pub fn shares(&self) -> impl Iterator<Item = (u32, Range<u32>)> {
        (0..self.leaders()).map(|position| (self.local()[position as usize], self.share(position)))
    }

    /// Returns the rank that exchanges for a node with other nodes: `top` on the node of `top`, elsewhere the
    /// node's first rank.
    pub fn leader(&self, node: u32, top: u32) -> u32 {
        if self.node(top) == node { top } else { self.members(node)[0] }
    }

    /// The leaders of all nodes as a team. This rank must be one.
    pub fn leaders_team(&self, top: u32) -> Team<'_> {
        Team { ranks: Ranks::Leaders(self, top), me: self.here }
    }

    /// Makes a team of the ranks that are at this rank's position in their nodes. The position must be below
    /// `leaders`.
    pub fn column(&self) -> Team<'_> {
        Team { ranks: Ranks::Column(self, self.position), me: self.here }
    }

    /// Returns the rank of node `node` that exchanges for it with node `other`.
    pub fn exchanger(&self, node: u32, other: u32) -> u32 {
        let members = self.members(node);
        members[other as usize % members.len()]
    }
}
