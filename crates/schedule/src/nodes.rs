// SPDX-License-Identifier: BSD-3-Clause
//! The map of a comm's ranks to nodes, for any placement: node by node, round robin, or uneven.

use crate::random::mix;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// A map of ranks to nodes. Nodes are numbered in the order of their first ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMap {
    node_of: Box<[u32]>,
    /// The ranks of each node, in rising order.
    members: Vec<Vec<u32>>,
    /// For each rank, its position among the ranks of its node.
    positions: Box<[u32]>,
    hash: u64,
}

impl NodeMap {
    /// Makes the map from the name of each rank's node. Ranks with equal names are on one node.
    pub fn new(names: impl IntoIterator<Item = u32>) -> NodeMap {
        let (mut numbers, mut members, mut positions) = (HashMap::new(), Vec::<Vec<u32>>::new(), Vec::new());
        let mut node_of = Vec::new();
        for (rank, name) in (0..).zip(names) {
            let next = members.len() as u32;
            let node = *numbers.entry(name).or_insert(next);
            if node == next {
                members.push(Vec::new());
            }
            positions.push(members[node as usize].len() as u32);
            members[node as usize].push(rank);
            node_of.push(node);
        }
        let hash = node_of.iter().fold(1, |hash: u64, &node| mix(hash.rotate_left(5) ^ u64::from(node)));
        NodeMap { node_of: node_of.into(), members, positions: positions.into(), hash }
    }

    /// Makes a map in which all `ranks` ranks are on one node.
    pub fn one(ranks: u32) -> NodeMap {
        NodeMap::new((0..ranks).map(|_| 0))
    }

    /// Makes a map in which consecutive ranks fill `nodes` nodes one after the other, as evenly as possible.
    pub fn by_node(ranks: u32, nodes: u32) -> NodeMap {
        NodeMap::new((0..ranks).map(|rank| (u64::from(rank) * u64::from(nodes) / u64::from(ranks)) as u32))
    }

    /// Makes a map in which `ranks` ranks are dealt out to `nodes` nodes one by one.
    pub fn round_robin(ranks: u32, nodes: u32) -> NodeMap {
        NodeMap::new((0..ranks).map(|rank| rank % nodes))
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u32 {
        self.node_of.len() as u32
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        self.members.len() as u32
    }

    /// Returns the number of the node on which a rank is.
    pub fn of(&self, rank: u32) -> u32 {
        self.node_of[rank as usize]
    }

    /// Returns a rank's position among the ranks of its node.
    pub fn position(&self, rank: u32) -> u32 {
        self.positions[rank as usize]
    }

    /// Returns the ranks of a node, in rising order.
    pub fn members(&self, node: u32) -> &[u32] {
        &self.members[node as usize]
    }

    /// Returns the number of ranks on the node that has the fewest.
    pub fn members_min(&self) -> u32 {
        self.members.iter().map(Vec::len).min().unwrap_or(0) as u32
    }

    /// Returns the number of ranks on the node that has the most.
    pub fn members_max(&self) -> u32 {
        self.members.iter().map(Vec::len).max().unwrap_or(0) as u32
    }

    /// Whether ranks are numbered node by node: all ranks of a node have lower numbers than those of the next
    /// node.
    pub fn is_in_order(&self) -> bool {
        self.node_of.is_sorted()
    }
}

impl Hash for NodeMap {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_by_their_first_ranks() {
        let map = NodeMap::new([7, 3, 7, 9, 3]);
        assert_eq!((0..5).map(|rank| map.of(rank)).collect::<Vec<_>>(), [0, 1, 0, 2, 1]);
        assert_eq!((map.members(0), map.members(1), map.members(2)), (&[0, 2][..], &[1, 4][..], &[3][..]));
        assert_eq!((map.position(2), map.position(4), map.nodes(), map.ranks()), (1, 1, 3, 5));
        assert_eq!((map.members_min(), map.members_max(), map.is_in_order()), (1, 2, false));
        assert_eq!(map, NodeMap::new([0, 1, 0, 2, 1]));
    }

    #[test]
    fn ranks_are_dealt_out_evenly() {
        let sizes = |map: NodeMap| (0..map.nodes()).map(|node| map.members(node).len()).collect::<Vec<_>>();
        assert_eq!(sizes(NodeMap::by_node(7, 3)), [3, 2, 2]);
        assert_eq!(sizes(NodeMap::round_robin(7, 3)), [3, 2, 2]);
        assert!(NodeMap::by_node(7, 3).is_in_order() && !NodeMap::round_robin(7, 3).is_in_order());
        assert_eq!(sizes(NodeMap::by_node(2, 5)), [1, 1]);
        assert_eq!(NodeMap::one(4).members(0), [0, 1, 2, 3]);
    }
}
