//! Where the members of comms are, kept for the next calls.

use rustc_hash::FxHashMap;
use schedule::NodeMap;
use std::sync::Arc;
use transport::shm::Segment;

/// So many comms at most; then all are forgotten.
const MAPS_MAX: usize = 64;

/// The maps of comms by the address of their members.
#[derive(Default)]
pub(crate) struct NodeMaps {
    /// The members are kept, so that no others get their address.
    maps: FxHashMap<usize, Members>,
}

type Members = (Arc<[u32]>, Option<Arc<NodeMap>>);

impl NodeMaps {
    /// The map of these members: nothing if all are on one node, or each on one of its own.
    pub(crate) fn of(&mut self, peers: &Arc<[u32]>, segment: &Segment) -> Option<Arc<NodeMap>> {
        if !segment.has_nodes() {
            return None;
        }
        if self.maps.len() >= MAPS_MAX {
            self.maps.clear();
        }
        let make = || {
            let map = NodeMap::new(peers.iter().map(|&peer| segment.node_of(peer)));
            let map = (2..map.ranks()).contains(&map.nodes()).then(|| Arc::new(map));
            (peers.clone(), map)
        };
        self.maps.entry(peers.as_ptr() as usize).or_insert_with(make).1.clone()
    }
}
