//! Discovery: a walk from this host's port along all links that are up, breadth first.

use std::collections::BTreeMap;

use super::exchange::{Exchange, Wire};
use super::mad::{
    Attribute, Data, Failure, Kind, NodeInfo, PATH_HOPS_MAX, Path, PerformanceInfo, PortInfo, Request,
    Target, description,
};

/// More nodes than LIDs: who claims more is lying or broken.
const NODES_MAX: usize = 49_152;

/// A node, as it describes itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub guid: u64,
    pub kind: Kind,
    /// The highest port; a switch has port 0, too.
    pub ports_max: u8,
    pub description: String,
    pub ports: BTreeMap<u8, Port>,
    pub counters: PerformanceInfo,
    /// It has answered nothing but its first question.
    pub is_silent: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Port {
    pub info: PortInfo,
    /// The node and port at the other end. Nothing: no link, or nobody who answers.
    pub peer: Option<(u64, u8)>,
}

impl Node {
    /// Where performance management of a port is asked.
    pub fn lid(&self, port: u8) -> Option<u16> {
        let port = if self.kind == Kind::Switch { 0 } else { port };
        self.ports.get(&port).map(|port| port.info.lid).filter(|lid| (1..0xc000).contains(lid))
    }
}

/// Everything that could be reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fabric {
    pub nodes: BTreeMap<u64, Node>,
    /// Ports whose link is up and behind which nobody answers.
    pub unanswered: Vec<(u64, u8)>,
}

/// What a request is about.
enum Ask {
    /// The node behind a port; nothing: the one where the walk begins.
    Node(Option<(u64, u8)>),
    Description(u64),
    Port(u64, u8),
    Counters(u64),
}

/// Walks the fabric; nothing: this host's own port does not answer. An error is the port's own: it cannot
/// send or receive.
pub fn discover<W: Wire>(exchange: &mut Exchange<W>) -> Result<Fabric, String> {
    let mut walk = Walk::default();
    let first = Request { target: Target::Path(Path::new()), attribute: Attribute::NodeInfo };
    exchange.run([(Ask::Node(None), first)], |ask, request, answer| walk.step(ask, request, answer))?;
    let asks: Vec<_> = walk.fabric.nodes.values().filter_map(performance).collect();
    exchange.run(asks, |ask, _, answer| {
        if let (Ask::Counters(guid), Ok(data)) = (ask, answer)
            && let Some(node) = walk.fabric.nodes.get_mut(&guid)
        {
            node.counters = PerformanceInfo::of(data);
        }
        Vec::new()
    })?;
    Ok(walk.fabric)
}

/// The question which counters a node has.
fn performance(node: &Node) -> Option<(Ask, Request)> {
    let lid = node.ports.keys().find_map(|port| node.lid(*port))?;
    Some((
        Ask::Counters(node.guid),
        Request { target: Target::Lid(lid), attribute: Attribute::PerformanceInfo },
    ))
}

#[derive(Default)]
struct Walk {
    fabric: Fabric,
}

impl Walk {
    fn step(&mut self, ask: Ask, request: &Request, answer: Result<&Data, Failure>) -> Vec<(Ask, Request)> {
        let Target::Path(path) = &request.target else { return Vec::new() };
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

    fn nobody(&mut self, from: Option<(u64, u8)>) -> Vec<(Ask, Request)> {
        self.fabric.unanswered.extend(from);
        Vec::new()
    }

    /// A node was reached: for the first time, or by another link.
    fn node(&mut self, from: Option<(u64, u8)>, path: &Path, info: &NodeInfo) -> Vec<(Ask, Request)> {
        let is_new = !self.fabric.nodes.contains_key(&info.guid);
        if is_new && self.fabric.nodes.len() >= NODES_MAX {
            return self.nobody(from);
        }
        let node = self.fabric.nodes.entry(info.guid).or_insert_with(|| Node {
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
        let ask = |ask, attribute| (ask, Request { target: Target::Path(path.clone()), attribute });
        let mut asks = Vec::new();
        if is_new {
            asks.push(ask(Ask::Description(info.guid), Attribute::NodeDescription));
        }
        if info.kind == Kind::Switch {
            if is_new {
                let ports = 0..=info.ports;
                asks.extend(ports.map(|port| ask(Ask::Port(info.guid, port), Attribute::PortInfo(port))));
            }
        } else if is_new_port {
            // A host answers for the port that it was reached through.
            let port = info.local_port;
            asks.push(ask(Ask::Port(info.guid, port), Attribute::PortInfo(port)));
        }
        asks
    }

    /// A port's state: behind an open link the walk goes on.
    fn port(&mut self, guid: u64, number: u8, path: &Path, info: PortInfo) -> Vec<(Ask, Request)> {
        let Some(node) = self.fabric.nodes.get_mut(&guid) else { return Vec::new() };
        let is_switch = node.kind == Kind::Switch;
        let port = node.ports.entry(number).or_default();
        let (is_up, is_known) = (info.is_up(), port.peer.is_some());
        port.info = info;
        // From a host the walk goes on only where it began: a host does not forward.
        let goes_on = is_switch && number != 0 || path.is_empty();
        if !is_up || is_known || !goes_on || path.len() >= PATH_HOPS_MAX {
            return Vec::new();
        }
        let mut onwards = path.clone();
        onwards.push(number);
        let request = Request { target: Target::Path(onwards), attribute: Attribute::NodeInfo };
        vec![(Ask::Node(Some((guid, number))), request)]
    }
}
