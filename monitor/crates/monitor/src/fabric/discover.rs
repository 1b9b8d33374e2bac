// SPDX-License-Identifier: BSD-3-Clause
//! Discovery: a walk through the fabric from this host's port along all links that are up, breadth first.
//! Afterwards each node is asked which counters it has, and each switch for its forwarding table.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::exchange::{Exchange, Wire};
use super::mad::{
    Attribute, Data, FORWARDING_BLOCK, Failure, MadRequest, MadTarget, NodeInfo, NodeKind, PATH_HOPS_MAX,
    Path, PerformanceInfo, PortInfo, description,
};

/// The most nodes that the walk visits. A fabric has fewer addresses (LIDs), so a fabric that shows more
/// nodes is broken or lies.
const NODES_MAX: usize = 49_152;
/// The most blocks of forwarding tables that are requested: 256 MiB. A fabric that claims to have more is
/// asked for none.
const BLOCKS_MAX: usize = 1 << 22;
/// The port number that means "no route" in a forwarding table.
pub const NO_PORT: u8 = 0xff;

/// A node of the fabric, as it describes itself.
#[derive(Clone, Debug, PartialEq)]
pub struct FabricNode {
    pub guid: u64,
    pub kind: NodeKind,
    /// The number of the node's highest port. A switch also has a port 0.
    pub ports_max: u8,
    pub description: String,
    pub ports: BTreeMap<u8, FabricPort>,
    pub counters: PerformanceInfo,
    /// Whether the node answered the request that found it, and later did not answer requests for its name or
    /// ports.
    pub is_silent: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct FabricPort {
    pub info: PortInfo,
    /// The GUID and port number at the other end of the link. None if there is no link, or if the other end
    /// does not answer.
    pub peer: Option<(u64, u8)>,
}

impl FabricNode {
    /// Returns the address (LID) at which a port answers requests for its counters, or None if it is unknown.
    pub fn lid(&self, port: u8) -> Option<u16> {
        let port = if self.kind == NodeKind::Switch { 0 } else { port };
        self.ports.get(&port).map(|port| port.info.lid).filter(|lid| (1..0xc000).contains(lid))
    }
}

/// The fabric as far as the discovery has reached it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fabric {
    pub nodes: BTreeMap<u64, FabricNode>,
    /// The ports, by GUID and number, whose link is up and behind which no node answers.
    pub unanswered: Vec<(u64, u8)>,
    /// The forwarding table of each switch, by the switch's GUID. At the index of each LID it has the port
    /// through which the switch sends to that LID (IBTA 14.2.5.13). LIDs beyond the table's end have no port.
    pub forwarding: HashMap<u64, Vec<u8>>,
}

impl Fabric {
    /// Returns the port through which `switch` sends to `lid`. Returns None if the switch has no route to
    /// `lid`, or if the forwarding table of the switch is unknown.
    pub fn forwards(&self, switch: u64, lid: u16) -> Option<u8> {
        let port = *self.forwarding.get(&switch)?.get(usize::from(lid))?;
        Some(port).filter(|port| *port != NO_PORT)
    }
}

/// What a request of the discovery asks for. It says where the answer must be stored.
enum Ask {
    /// The node behind the port with this GUID and number. None stands for the node where the walk begins.
    Node(Option<(u64, u8)>),
    Description(u64),
    Port(u64, u8),
    Counters(u64),
    Forwarding(u64, u16),
}

/// Walks through the fabric from this host's port, and returns the part of the fabric that the walk has
/// reached. If this port does not answer, that part has no nodes. An error means that the port cannot send or
/// receive.
pub fn discover<W: Wire>(exchange: &mut Exchange<W>) -> Result<Fabric, String> {
    let mut walk = Walk::default();
    let first = MadRequest { target: MadTarget::Path(Path::new()), attribute: Attribute::NodeInfo };
    exchange.run([(Ask::Node(None), first)], |ask, request, answer| walk.step(ask, request, answer))?;
    let asks = walk.fabric.nodes.values().filter_map(performance).chain(walk.forwarding());
    let asks: Vec<_> = asks.collect();
    exchange.run(asks, |ask, _, answer| {
        match (ask, answer) {
            (Ask::Counters(guid), Ok(data)) => {
                if let Some(node) = walk.fabric.nodes.get_mut(&guid) {
                    node.counters = PerformanceInfo::of(data);
                }
            }
            (Ask::Forwarding(guid, block), Ok(data)) => walk.block(guid, block.into(), data),
            _ => {}
        }
        Vec::new()
    })?;
    Ok(walk.fabric)
}

/// Returns the request that asks which counters a node has, and the `Ask` under which its answer is stored.
/// Returns None if no LID of the node is known.
fn performance(node: &FabricNode) -> Option<(Ask, MadRequest)> {
    let lid = node.ports.keys().find_map(|port| node.lid(*port))?;
    Some((
        Ask::Counters(node.guid),
        MadRequest { target: MadTarget::Lid(lid), attribute: Attribute::PerformanceInfo },
    ))
}

#[derive(Default)]
struct Walk {
    fabric: Fabric,
    /// The path from this host to each switch, by the switch's GUID.
    paths: BTreeMap<u64, Path>,
}

impl Walk {
    /// Returns the requests for the forwarding tables of all switches, up to the highest LID that exists.
    /// There are none if the fabric claims more than `BLOCKS_MAX` blocks.
    fn forwarding(&self) -> Vec<(Ask, MadRequest)> {
        let ports = self.fabric.nodes.values().flat_map(|node| node.ports.values());
        let lids = ports.map(|port| port.info.lid).filter(|lid| (1..0xc000).contains(lid));
        let blocks: BTreeSet<u16> = lids.map(|lid| lid / FORWARDING_BLOCK as u16).collect();
        if blocks.len() * self.paths.len() > BLOCKS_MAX {
            return Vec::new();
        }
        let ask = |(guid, path): (&u64, &Path), block: u16| {
            let (target, attribute) = (MadTarget::Path(path.clone()), Attribute::Forwarding(block));
            (Ask::Forwarding(*guid, block), MadRequest { target, attribute })
        };
        self.paths.iter().flat_map(|to| blocks.iter().map(move |block| ask(to, *block))).collect()
    }

    /// Stores a block of a switch's forwarding table, which the switch has sent.
    fn block(&mut self, guid: u64, block: usize, data: &Data) {
        let table = self.fabric.forwarding.entry(guid).or_default();
        let (begin, end) = (block * FORWARDING_BLOCK, (block + 1) * FORWARDING_BLOCK);
        if table.len() < end {
            table.resize(end, NO_PORT);
        }
        table[begin..end].copy_from_slice(&data[..FORWARDING_BLOCK]);
    }

    fn step(
        &mut self,
        ask: Ask,
        request: &MadRequest,
        answer: Result<&Data, Failure>,
    ) -> Vec<(Ask, MadRequest)> {
        let MadTarget::Path(path) = &request.target else { return Vec::new() };
        match (ask, answer) {
            (Ask::Node(from), Ok(data)) => match NodeInfo::of(data) {
                Some(info) => self.node(from, path, &info),
                None => self.nobody(from),
            },
            (Ask::Node(from), Err(_)) => self.nobody(from),
            (Ask::Description(guid), Ok(data)) => {
                if let Some(node) = self.fabric.nodes.get_mut(&guid) {
                    node.description = description(data);
                }
                Vec::new()
            }
            (Ask::Port(guid, port), Ok(data)) => self.port(guid, port, path, PortInfo::of(data)),
            (Ask::Description(guid) | Ask::Port(guid, _), Err(Failure::Silent)) => {
                if let Some(node) = self.fabric.nodes.get_mut(&guid) {
                    node.is_silent = true;
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn nobody(&mut self, from: Option<(u64, u8)>) -> Vec<(Ask, MadRequest)> {
        self.fabric.unanswered.extend(from);
        Vec::new()
    }

    /// Stores a node that has answered, and the link (`from`) by which it was reached; None stands for the
    /// first node. Returns requests for what is not known of the node yet.
    fn node(&mut self, from: Option<(u64, u8)>, path: &Path, info: &NodeInfo) -> Vec<(Ask, MadRequest)> {
        let is_new = !self.fabric.nodes.contains_key(&info.guid);
        if is_new && self.fabric.nodes.len() >= NODES_MAX {
            return self.nobody(from);
        }
        let node = self.fabric.nodes.entry(info.guid).or_insert_with(|| FabricNode {
            guid: info.guid,
            kind: info.kind,
            ports_max: info.ports,
            description: String::new(),
            ports: BTreeMap::new(),
            counters: PerformanceInfo::default(),
            is_silent: false,
        });
        let is_new_port = !node.ports.contains_key(&info.local_port);
        let here = (info.guid, info.local_port);
        if let Some(there) = from {
            node.ports.entry(info.local_port).or_default().peer = Some(there);
            if let Some(port) =
                self.fabric.nodes.get_mut(&there.0).and_then(|node| node.ports.get_mut(&there.1))
            {
                port.peer = Some(here);
            }
        }
        let ask = |ask, attribute| (ask, MadRequest { target: MadTarget::Path(path.clone()), attribute });
        let mut asks = Vec::new();
        if is_new {
            asks.push(ask(Ask::Description(info.guid), Attribute::NodeDescription));
        }
        if info.kind == NodeKind::Switch {
            if is_new {
                self.paths.insert(info.guid, path.clone());
                let ports = 0..=info.ports;
                asks.extend(ports.map(|port| ask(Ask::Port(info.guid, port), Attribute::PortInfo(port))));
            }
        } else if is_new_port {
            // A host answers for the port through which it was reached.
            let port = info.local_port;
            asks.push(ask(Ask::Port(info.guid, port), Attribute::PortInfo(port)));
        }
        asks
    }

    /// Stores the state of a port. If its link is up and leads to an unknown node, returns a request to that
    /// node.
    fn port(&mut self, guid: u64, number: u8, path: &Path, info: PortInfo) -> Vec<(Ask, MadRequest)> {
        let Some(node) = self.fabric.nodes.get_mut(&guid) else { return Vec::new() };
        let is_switch = node.kind == NodeKind::Switch;
        let port = node.ports.entry(number).or_default();
        let (is_up, is_known) = (info.is_up(), port.peer.is_some());
        port.info = info;
        // A host does not forward, so the walk goes on from a host only where it begins.
        let goes_on = is_switch && number != 0 || path.is_empty();
        if !is_up || is_known || !goes_on || path.len() >= PATH_HOPS_MAX {
            return Vec::new();
        }
        let mut onwards = path.clone();
        onwards.push(number);
        let request = MadRequest { target: MadTarget::Path(onwards), attribute: Attribute::NodeInfo };
        vec![(Ask::Node(Some((guid, number))), request)]
    }
}
