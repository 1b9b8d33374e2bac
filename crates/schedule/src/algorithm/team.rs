// SPDX-License-Identifier: BSD-3-Clause
//! Teams: ranks of a comm that exchange data among themselves. A team is all ranks, the ranks of a node, or
//! one rank of each node.
use super::{Params, Tree};
use crate::nodes::NodeMap;
use std::ops::Range;
use std::sync::Arc;

/// Ranks that exchange data among themselves, numbered from 0 as members of the team. `me` is this rank's
/// number as a member.
pub struct Team<'a> {
    ranks: Ranks<'a>,
    pub me: u32,
}

enum Ranks<'a> {
    /// All ranks of the comm. The number is how many there are.
    All(u32),
    /// The ranks of one node.
    Node(&'a [u32]),
    /// The leader of each node. The number is the rank `top`, which leads its node (`Nodes::leader`).
    Leaders(&'a Nodes, u32),
    /// One rank of each node. The number is the rank's position among the ranks of its node.
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

    /// Returns the rank in the comm that the member `member` has.
    pub fn rank(&self, member: u32) -> u32 {
        match self.ranks {
            Ranks::All(_) => member,
            Ranks::Node(ranks) => ranks[member as usize],
            Ranks::Leaders(nodes, top) => nodes.leader(member, top),
            Ranks::Column(nodes, position) => nodes.members(member)[position as usize],
        }
    }

    /// Returns this rank's place in a binomial tree of the team. The member `top` is the tree's top.
    pub fn tree(&self, top: u32) -> Tree {
        Tree::new((self.me + self.size() - top) % self.size(), self.size())
    }

    /// Returns the rank at the position `position` of a binomial tree of the team. The member `top` is the
    /// tree's top.
    pub fn at(&self, top: u32, position: u32) -> u32 {
        self.rank((top + position) % self.size())
    }
}

/// The nodes of all ranks of a comm, as one rank sees them.
pub struct Nodes {
    map: Arc<NodeMap>,
    rank: u32,
    /// The number of the node on which this rank is.
    pub here: u32,
    /// The position of this rank among the ranks of its node.
    pub position: u32,
}

impl Nodes {
    pub fn of(params: &Params) -> Nodes {
        let map = params.nodes.clone().unwrap_or_else(|| Arc::new(NodeMap::one(params.size)));
        let (here, position) = (map.of(params.rank), map.position(params.rank));
        Nodes { map, rank: params.rank, here, position }
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> u32 {
        self.map.nodes()
    }

    /// Returns the node on which a rank is.
    pub fn node(&self, rank: u32) -> u32 {
        self.map.of(rank)
    }

    /// Returns a rank's position among the ranks of its node.
    pub fn position_of(&self, rank: u32) -> u32 {
        self.map.position(rank)
    }

    /// Returns the ranks of a node, in rising order.
    pub fn members(&self, node: u32) -> &[u32] {
        self.map.members(node)
    }

    /// Returns the ranks of `count` nodes, node by node. The first node comes `position` nodes after the node
    /// `top`, and after the last node comes node 0.
    pub fn subtree(&self, top: u32, position: u32, count: u32) -> Vec<u32> {
        let nodes = (0..count).map(|at| (top + position + at) % self.count());
        nodes.flat_map(|node| self.members(node).iter().copied()).collect()
    }

    /// Returns the ranks of this rank's node, in rising order.
    pub fn local(&self) -> &[u32] {
        self.members(self.here)
    }

    /// Returns the ranks of this rank's node without this rank.
    pub fn others(&self) -> impl Iterator<Item = u32> {
        self.local().iter().copied().filter(|&rank| rank != self.rank)
    }

    /// Makes a team of the ranks of this rank's node.
    pub fn local_team(&self) -> Team<'_> {
        Team { ranks: Ranks::Node(self.local()), me: self.position }
    }

    /// Returns how many ranks of each node (its leaders) share the traffic between nodes: as many as the
    /// smallest node has ranks.
    pub fn leaders(&self) -> u32 {
        self.map.members_min()
    }

    /// Returns into how many blocks a vector is cut where several leaders of each node share the traffic.
    /// Each leader has a share of the vector, and each share has a block for each node.
    pub fn split_blocks(&self) -> u32 {
        self.leaders() * self.count()
    }

    /// Returns the blocks of the vector that are the share of the leader at the position `position` of each
    /// node.
    pub fn share(&self, position: u32) -> Range<u32> {
        position * self.count()..(position + 1) * self.count()
    }

    /// Returns the leaders of this rank's node, each with the blocks of the vector that are its share.
    pub fn shares(&self) -> impl Iterator<Item = (u32, Range<u32>)> {
        (0..self.leaders()).map(|position| (self.local()[position as usize], self.share(position)))
    }

    /// Returns the rank that exchanges with other nodes for the node `node`: the rank `top` if it is on this
    /// node, else the node's first rank.
    pub fn leader(&self, node: u32, top: u32) -> u32 {
        if self.node(top) == node { top } else { self.members(node)[0] }
    }

    /// Makes a team of the leaders of all nodes (`leader`). This rank must be a leader.
    pub fn leaders_team(&self, top: u32) -> Team<'_> {
        Team { ranks: Ranks::Leaders(self, top), me: self.here }
    }

    /// Makes a team of one rank of each node: the rank at the same position in its node as this rank. The
    /// position must be below `leaders`.
    pub fn column(&self) -> Team<'_> {
        Team { ranks: Ranks::Column(self, self.position), me: self.here }
    }

    /// Returns the rank of the node `node` that exchanges data with the node `other`.
    pub fn exchanger(&self, node: u32, other: u32) -> u32 {
        let members = self.members(node);
        members[other as usize % members.len()]
    }
}
