// SPDX-License-Identifier: BSD-3-Clause
//! The picture of the fabric that the web page draws: nodes with a tier and a position, and links in a fixed
//! order.
//!
//! The tiers follow from the links alone: hosts have tier 0, and a switch is one tier above its lowest
//! neighbour. Within a tier nodes are in the order of their names, hosts below their switch. So the same
//! fabric always has the same picture.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;

use super::discover::Fabric;
use super::mad::NodeKind;
use super::names::Name;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Topology {
    /// A number that differs for each picture of the fabric. It is a hash of the picture's nodes and links.
    pub version: u64,
    pub nodes: Vec<TopologyNode>,
    pub links: Vec<TopologyLink>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TopologyNode {
    /// The GUID of the node in hexadecimal, because a number in JavaScript has fewer than 64 bits.
    pub guid: String,
    pub name: String,
    pub rack: String,
    pub kind: &'static str,
    pub tier: usize,
    pub x: f64,
    pub y: f64,
    pub ports: u8,
}

#[derive(Clone, Debug, Serialize)]
pub struct TopologyLink {
    /// The node at the lower end of the link, as an index into `nodes`. If both nodes are in one tier, this
    /// is the lower index.
    pub from: usize,
    pub from_port: u8,
    /// The node at the other end of the link, as an index into `nodes`.
    pub to: usize,
    pub to_port: u8,
    pub speed: String,
    /// The bytes that the link can carry in one direction in a second.
    pub bytes_per_second: f64,
}

impl TopologyNode {
    /// Returns the GUID of the node as a number.
    pub fn number(&self) -> u64 {
        u64::from_str_radix(&self.guid, 16).unwrap_or(0)
    }
}

impl Topology {
    pub fn of(fabric: &Fabric, names: &HashMap<u64, Name>) -> Topology {
        let tiers = tiers(fabric);
        let mut nodes: Vec<(u64, TopologyNode)> = fabric
            .nodes
            .values()
            .map(|node| {
                let named = names.get(&node.guid);
                let own = if node.description.is_empty() { "without a name" } else { &node.description };
                let node_of_page = TopologyNode {
                    guid: format!("{:016x}", node.guid),
                    name: named.map_or_else(|| own.to_string(), |name| name.name.clone()),
                    rack: named.map_or_else(String::new, |name| name.rack.clone()),
                    kind: match node.kind {
                        NodeKind::Host => "host",
                        NodeKind::Switch => "switch",
                        NodeKind::Router => "router",
                    },
                    tier: tiers[&node.guid],
                    x: 0.0,
                    y: 0.0,
                    ports: node.ports_max,
                };
                (node.guid, node_of_page)
            })
            .collect();
        nodes.sort_by_cached_key(|(guid, node)| (std::cmp::Reverse(node.tier), natural(&node.name), *guid));
        let index: HashMap<u64, usize> =
            nodes.iter().enumerate().map(|(at, (guid, _))| (*guid, at)).collect();
        let mut topology = Topology { version: 0, links: links(fabric, &index, &nodes), nodes: Vec::new() };
        topology.nodes = nodes.into_iter().map(|(_, node)| node).collect();
        place(&mut topology);
        topology.version = topology.fingerprint();
        topology
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for node in &self.nodes {
            (&node.guid, &node.name, &node.rack, node.tier).hash(&mut hasher);
        }
        for link in &self.links {
            (link.from, link.from_port, link.to, link.to_port, &link.speed).hash(&mut hasher);
        }
        // JavaScript reads the version as a number of 53 bits.
        hasher.finish() >> 11
    }
}

/// Returns the tier of each node, by GUID: the number of links between it and the nearest host. A node that
/// reaches no host gets tier 1.
fn tiers(fabric: &Fabric) -> HashMap<u64, usize> {
    let mut tiers: HashMap<u64, usize> = HashMap::new();
    let mut next: VecDeque<u64> = VecDeque::new();
    for node in fabric.nodes.values().filter(|node| node.kind != NodeKind::Switch) {
        tiers.insert(node.guid, 0);
        next.push_back(node.guid);
    }
    while let Some(guid) = next.pop_front() {
        let tier = tiers[&guid];
        for (peer, _) in fabric.nodes[&guid].ports.values().filter_map(|port| port.peer) {
            if fabric.nodes.contains_key(&peer) && !tiers.contains_key(&peer) {
                tiers.insert(peer, tier + 1);
                next.push_back(peer);
            }
        }
    }
    for guid in fabric.nodes.keys() {
        tiers.entry(*guid).or_insert(1);
    }
    tiers
}

/// Returns each link once. The links are in the order of the nodes at their lower ends.
fn links(fabric: &Fabric, index: &HashMap<u64, usize>, nodes: &[(u64, TopologyNode)]) -> Vec<TopologyLink> {
    let mut links = Vec::new();
    for node in fabric.nodes.values() {
        for (number, port) in &node.ports {
            let Some((peer, peer_port)) = port.peer else { continue };
            let (Some(here), Some(there)) = (index.get(&node.guid), index.get(&peer)) else { continue };
            let order = |at: usize, port: u8| (nodes[at].1.tier, at, port);
            // A link is listed by the lower of its two ends.
            if order(*here, *number) < order(*there, peer_port) {
                links.push(TopologyLink {
                    from: *here,
                    from_port: *number,
                    to: *there,
                    to_port: peer_port,
                    speed: port.info.speed(),
                    bytes_per_second: port.info.bytes_per_second(),
                });
            }
        }
    }
    links.sort_by_key(|link| (link.from, link.from_port));
    links
}

/// Returns a key for sorting names so that digits count as numbers: leaf-2 comes before leaf-10. Each element
/// has the number that a part of the name begins with, and the text behind it.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts = vec![(0u64, String::new())];
    for char in name.chars() {
        let last = parts.last_mut().expect("there is always one");
        match char.to_digit(10) {
            Some(digit) if last.1.is_empty() => {
                last.0 = last.0.saturating_mul(10).saturating_add(digit.into())
            }
            Some(digit) => parts.push((digit.into(), String::new())),
            None => last.1.push(char),
        }
    }
    parts
}

/// Sets `x` and `y`, the position in the picture, of all nodes. Switches stand in a row for each tier, hosts
/// in a block below their first switch.
fn place(topology: &mut Topology) {
    const BLOCK: usize = 8;
    let mut leaf: HashMap<usize, usize> = HashMap::new();
    for link in &topology.links {
        if topology.nodes[link.from].tier == 0 {
            leaf.entry(link.from).or_insert(link.to);
        }
    }
    let mut rows: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, node) in topology.nodes.iter().enumerate().filter(|(_, node)| node.tier > 0) {
        rows.entry(node.tier).or_default().push(at);
    }
    let width = rows.values().map(Vec::len).max().unwrap_or(1).max(1) as f64;
    for (tier, row) in rows {
        let step = width / row.len() as f64;
        for (at, node) in row.into_iter().enumerate() {
            topology.nodes[node].x = (at as f64 + 0.5) * step;
            topology.nodes[node].y = tier as f64 * (1.0 + width / 4.0);
        }
    }
    let hosts: Vec<usize> = (0..topology.nodes.len()).filter(|at| topology.nodes[*at].tier == 0).collect();
    let mut below: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    for at in hosts {
        below.entry(leaf.get(&at).copied()).or_default().push(at);
    }
    for (above, hosts) in below {
        let (x, y) = above.map_or((0.0, 1.0), |leaf| (topology.nodes[leaf].x, topology.nodes[leaf].y));
        let columns = hosts.len().min(BLOCK);
        for (number, at) in hosts.into_iter().enumerate() {
            let (column, row) = (number % BLOCK, number / BLOCK);
            topology.nodes[at].x = x + (column as f64 - (columns - 1) as f64 / 2.0) * 0.8 / columns as f64;
            topology.nodes[at].y = y - (0.6 + 0.12 * row as f64) * (1.0 + width / 16.0);
        }
    }
}
