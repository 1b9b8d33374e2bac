// SPDX-License-Identifier: BSD-3-Clause
//! The present state of fabric, hosts and jobs: the collectors write it, and the web page shows it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use crate::fabric::counters::{LATCHED, REBOOT, RESET, Sample};
use crate::fabric::discover::Fabric;
use crate::fabric::exchange::Counts;
use crate::fabric::topology::{Topology, TopologyNode};
use crate::hosts::Host;
use crate::job::Job;

/// The state of the fabric's collector (the thread that reads the fabric), as the web page shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FabricStatus {
    /// Why the fabric cannot be reached. It is empty while the fabric can be reached.
    pub error: String,
    pub sweeps: u64,
    pub ports: usize,
    pub discovery_ms: f64,
    pub sweep_ms: f64,
    pub last_sweep: u64,
    /// The GUIDs of nodes that did not answer when all counters were read last.
    pub unreachable: Vec<String>,
    /// The ports behind which no node answered the discovery, each as a text for people.
    pub unanswered: Vec<String>,
    /// The number of switches whose forwarding table is known.
    pub forwarding: usize,
    /// How many nodes are not asked for counters (`skip` in the configuration).
    pub skipped: usize,
    pub mads: Counts,
    /// A sentence for each line of the map file that cannot be read.
    pub map_errors: Vec<String>,
}

/// The last sample of a port's counters, in the form in which the web page gets it.
#[derive(Clone, Debug, Serialize)]
pub struct PortNow {
    pub sent: Option<f32>,
    pub received: Option<f32>,
    pub errors: u64,
    pub flags: Vec<&'static str>,
    pub since: BTreeMap<&'static str, u64>,
    pub seconds: f64,
}

#[derive(Default)]
pub struct Now {
    pub topology: Arc<Topology>,
    /// The fabric as the discovery found it. `topology` is made from it.
    pub discovered: Arc<Fabric>,
    pub ports: HashMap<(u64, u8), Sample>,
    /// What the counters of each port have counted since the alerts were last examined. Since then the
    /// counters may have been read several times.
    pub unwatched: HashMap<(u64, u8), Sample>,
    pub unreachable: BTreeSet<u64>,
    /// The ports, by GUID and number, whose link is up and behind which no node answered the discovery.
    pub unanswered: Vec<(u64, u8)>,
    pub fabric: FabricStatus,
    pub jobs: Vec<Job>,
    /// The hosts that send reports, by name.
    pub hosts: BTreeMap<String, Host>,
    /// For each source of jobs that does not answer, by name: the reason.
    pub job_errors: BTreeMap<&'static str, String>,
}

pub struct Live {
    now: Mutex<Now>,
    /// The newest frame, a binary message with the use of all links. The connection of each open web page
    /// waits here for the next frame.
    frames: watch::Sender<Arc<Vec<u8>>>,
}

impl Default for Live {
    fn default() -> Live {
        Live { now: Mutex::default(), frames: watch::Sender::new(Arc::default()) }
    }
}

impl Live {
    pub fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn frames(&self) -> watch::Receiver<Arc<Vec<u8>>> {
        self.frames.subscribe()
    }

    /// Makes a frame (a binary message) of the present state, and sends it to all open web pages.
    pub fn publish(&self) {
        let frame = self.now().frame();
        self.frames.send_replace(Arc::new(frame));
    }
}

/// Returns a frame, the binary message with the use of all links (little endian). First version and time as
/// f64, then the numbers of links and of nodes as u32. Then for each link its use upwards and its use
/// downwards as f32 (NaN if unknown). Then a byte for each link (1: errors, 2: cleared, 4: latched) and for
/// each node (1: unreachable).
pub fn frame(
    topology: &Topology,
    ports: &HashMap<(u64, u8), Sample>,
    unreachable: &BTreeSet<u64>,
    at: u64,
) -> Vec<u8> {
    let Topology { version, nodes, links } = topology;
    let mut frame = Vec::with_capacity(24 + 9 * links.len() + nodes.len());
    frame.extend((*version as f64).to_le_bytes());
    frame.extend((at as f64).to_le_bytes());
    frame.extend((links.len() as u32).to_le_bytes());
    frame.extend((nodes.len() as u32).to_le_bytes());
    let guids: Vec<u64> = nodes.iter().map(TopologyNode::number).collect();
    let mut states = Vec::with_capacity(links.len());
    for link in links {
        let from = ports.get(&(guids[link.from], link.from_port));
        let to = ports.get(&(guids[link.to], link.to_port));
        // What one end sends, the other receives; either number may be unknown.
        let way = |sender: Option<&Sample>, receiver: Option<&Sample>| {
            sender.and_then(|end| end.sent).or(receiver.and_then(|end| end.received))
        };
        frame.extend(way(from, to).unwrap_or(f32::NAN).to_le_bytes());
        frame.extend(way(to, from).unwrap_or(f32::NAN).to_le_bytes());
        states.push([from, to].into_iter().flatten().fold(0u8, |state, end| {
            state
                | u8::from(end.errors() > 0)
                | u8::from(end.flags & RESET != 0) << 1
                | u8::from(end.flags & LATCHED != 0) << 2
        }));
    }
    frame.extend(states);
    frame.extend(guids.iter().map(|guid| u8::from(unreachable.contains(guid))));
    frame
}

impl Now {
    fn frame(&self) -> Vec<u8> {
        frame(&self.topology, &self.ports, &self.unreachable, self.fabric.last_sweep)
    }

    /// Takes the samples of a new sweep (reading of all ports) as the present ones, and keeps them for the
    /// alerts.
    pub fn take_sweep(&mut self, samples: Vec<Sample>) {
        samples.iter().for_each(|sample| self.add_unwatched(sample));
        self.ports = samples.into_iter().map(|sample| ((sample.node, sample.port), sample)).collect();
    }

    /// Adds a sample to `unwatched`, which is kept until the alerts are examined.
    pub fn add_unwatched(&mut self, sample: &Sample) {
        let known = self.unwatched.entry((sample.node, sample.port));
        known.and_modify(|known| known.join(sample)).or_insert_with(|| sample.clone());
    }

    pub fn port(&self, node: u64, port: u8) -> Option<PortNow> {
        let sample = self.ports.get(&(node, port))?;
        let names = crate::fabric::counters::COUNTERS.iter().map(|counter| counter.name);
        let flags = [(RESET, "cleared"), (REBOOT, "restarted"), (LATCHED, "at its end")];
        Some(PortNow {
            sent: sample.sent,
            received: sample.received,
            errors: sample.errors(),
            flags: flags.iter().filter(|(bit, _)| sample.flags & bit != 0).map(|(_, word)| *word).collect(),
            since: names.zip(sample.since).collect(),
            seconds: sample.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::topology::TopologyLink;

    #[test]
    fn a_frame_tells_each_way_of_a_link() {
        let node = |guid: u64| TopologyNode {
            guid: format!("{guid:016x}"),
            name: String::new(),
            rack: String::new(),
            kind: "switch",
            tier: 1,
            x: 0.0,
            y: 0.0,
            ports: 4,
        };
        let link = |from_port, to_port| TopologyLink {
            from: 0,
            from_port,
            to: 1,
            to_port,
            speed: String::new(),
            bytes_per_second: 1.0,
        };
        let nodes = vec![node(1), node(2)];
        let topology = Topology { version: 9, nodes, links: vec![link(1, 3), link(2, 4)] };
        let sample = |node, port, sent, received, flags, errors| {
            let mut since = [0; crate::fabric::counters::COUNTERS.len()];
            since[5] = errors;
            ((node, port), Sample { node, port, seconds: 1.0, flags, since, sent, received })
        };
        let ports = HashMap::from([
            sample(1, 1, Some(0.25), Some(0.5), 0, 0),
            sample(2, 3, None, Some(0.75), RESET, 1),
            sample(2, 4, Some(0.125), None, LATCHED, 0),
        ]);
        let mut now = Now { topology: Arc::new(topology), ports, ..Now::default() };
        now.unreachable.insert(2);
        now.fabric.last_sweep = 1234;
        let frame = now.frame();
        let float = |at: usize| f32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
        let double = |at: usize| f64::from_le_bytes(frame[at..at + 8].try_into().unwrap());
        assert_eq!((double(0), double(8), frame[16], frame[20]), (9.0, 1234.0, 2, 2));
        // Upwards the lower end's sends are known. Downwards the upper end's are not, but the lower end's
        // receives are.
        assert_eq!((float(24), float(28)), (0.25, 0.5));
        // The lower end of the second link has no sample.
        assert!(float(32).is_nan());
        assert_eq!(float(36), 0.125);
        assert_eq!(frame[40..], [1 | 2, 4, 0, 1]);
    }
}
