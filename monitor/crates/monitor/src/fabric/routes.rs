// SPDX-License-Identifier: BSD-3-Clause
//! Routes through the fabric: the ports through which the nodes of a job send to each other.
//!
//! The routes follow from the switches' forwarding tables. Adaptive routing may take other routes. If a port
//! has several LIDs (LMC), only the route to its first LID is followed.

use std::collections::{BTreeSet, HashSet};

use super::discover::Fabric;
use super::mad::NodeKind;
use super::topology::{Topology, TopologyNode};

/// A port that sends, as the GUID of its node and its number there.
pub type PortId = (u64, u8);

/// Returns the GUIDs of the hosts that `nodes`, the node list of a job, names. A host's description begins
/// with the host's name (`n01 mlx5_0`). Domains in the description and in the list are ignored.
pub fn hosts(topology: &Topology, nodes: &[String]) -> BTreeSet<u64> {
    let short = |name: &str| name.split([' ', '.']).next().unwrap_or_default().to_ascii_lowercase();
    let wanted: HashSet<String> =
        nodes.iter().map(|node| short(node)).filter(|name| !name.is_empty()).collect();
    let hosts =
        topology.nodes.iter().filter(|node| node.kind == "host" && wanted.contains(&short(&node.name)));
    hosts.map(TopologyNode::number).collect()
}

/// Returns the ports through which messages between these hosts are sent, including the ports of the hosts.
pub fn routes(fabric: &Fabric, hosts: &BTreeSet<u64>) -> BTreeSet<PortId> {
    let mut used = BTreeSet::new();
    let nodes = || hosts.iter().filter_map(|guid| fabric.nodes.get(guid));
    if nodes().count() < 2 {
        return used;
    }
    let mut first = BTreeSet::new();
    for node in nodes() {
        for (number, port) in &node.ports {
            if let Some((peer, _)) = port.peer {
                used.insert((node.guid, *number));
                first.insert(peer);
            }
        }
    }
    for lid in nodes().flat_map(|node| node.ports.keys().filter_map(|port| node.lid(*port))) {
        // All routes to a port join into one tree, so each switch is passed once. This also ends a loop.
        let mut passed = HashSet::new();
        for switch in &first {
            follow(fabric, *switch, lid, &mut passed, &mut used);
        }
    }
    used
}

/// Follows the route from the switch `first` to the port that has `lid`. Adds its ports to `used` and its
/// switches to `passed`. Stops at a switch that is in `passed` already.
fn follow(fabric: &Fabric, first: u64, lid: u16, passed: &mut HashSet<u64>, used: &mut BTreeSet<PortId>) {
    let mut at = first;
    while let Some(node) = fabric.nodes.get(&at).filter(|node| node.kind == NodeKind::Switch)
        && passed.insert(at)
        && let Some(number) = fabric.forwards(at, lid)
        && let Some((peer, _)) = node.ports.get(&number).and_then(|port| port.peer)
    {
        used.insert((at, number));
        at = peer;
    }
}
