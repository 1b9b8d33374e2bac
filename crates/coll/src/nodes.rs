// SPDX-License-Identifier: BSD-3-Clause
//! How the ranks of each comm are spread over nodes, kept for later calls.

use rustc_hash::FxHashMap;
use schedule::NodeMap;
use std::sync::Arc;
use transport::shm::Segment;

/// The most comms whose placement on nodes is kept. When there are more, all are forgotten.
const MAPS_MAX: usize = 64;

/// How the ranks of comms are spread over nodes, by the address of the comm's list of members.
#[derive(Default)]
pub(crate) struct NodeMaps {
    /// The placement of each comm, with the comm's list of members. Since the map holds the list, no other
    /// list gets its address.
    maps: FxHashMap<usize, Members>,
}

type Members = (Arc<[u32]>, Placement);

/// How a comm's ranks are spread over nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All ranks are on one node.
    Together,
    /// Each rank is on a node of its own.
    Apart,
    /// Some nodes have several ranks.
    Over(Arc<NodeMap>),
}

impl Placement {
    /// Returns the placement that a map from ranks to nodes shows.
    pub fn of(map: NodeMap) -> Placement {
        match map.nodes() {
            0 | 1 => Placement::Together,
            nodes if nodes == map.ranks() => Placement::Apart,
            _ => Placement::Over(Arc::new(map)),
        }
    }

    /// Returns the map from ranks to nodes. None if all ranks are on one node or each is on its own, since
    /// then no algorithm needs a map.
    pub fn map(&self) -> Option<&Arc<NodeMap>> {
        if let Placement::Over(map) = self { Some(map) } else { None }
    }
}

impl NodeMaps {
    /// Returns how the ranks `peers` are spread over nodes. A placement that is not kept is worked out first.
    pub(crate) fn of(&mut self, peers: &Arc<[u32]>, segment: &Segment) -> Placement {
        if !segment.has_nodes() {
            return Placement::Together;
        }
        if self.maps.len() >= MAPS_MAX {
            self.maps.clear();
        }
        let make = || {
            let map = NodeMap::new(peers.iter().map(|&peer| segment.node_of(peer)));
            (peers.clone(), Placement::of(map))
        };
        self.maps.entry(peers.as_ptr() as usize).or_insert_with(make).1.clone()
    }
}
