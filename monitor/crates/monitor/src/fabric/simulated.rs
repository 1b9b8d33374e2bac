// SPDX-License-Identifier: BSD-3-Clause
//! A simulated fabric in memory, for tests. It answers MADs (management datagrams), loses some, falls silent,
//! and gives false answers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use umad::{Class, Mad, MadAddress, Received};

use super::exchange::Wire;

/// A fabric of two switches with two links between them, and two hosts below each switch. The switches have
/// the GUIDs 1 and 2, the hosts 11, 12, 21 and 22. A switch has its hosts at ports 1 and 2, and the other
/// switch at ports 3 and 4. A node's LID is its GUID. Port 3 leads to the first host of the other switch,
/// port 4 to the second.
#[derive(Default)]
pub struct Simulated {
    answers: VecDeque<Received>,
    pub silent: HashSet<u64>,
    /// The number N for which one MAD in N is lost. With 0 no MAD is lost.
    pub lose: u32,
    sent: u32,
    /// Fields of the attribute PortCountersExtended, by (node, port, the field's first byte).
    pub counters: HashMap<(u64, u8, usize), u64>,
    /// Fields of the attribute PortCounters, by (node, port, the field's first byte, its number of bytes).
    pub basic: HashMap<(u64, u8, usize, usize), u64>,
    /// A MAD that answers no request, put before each answer. It gets the request's transaction number (bytes
    /// 12 to 15), so only its other fields tell it from an answer. None if no such MAD is to come.
    pub strange: Option<Box<Mad>>,
    /// The port through which each switch sends to all hosts of the other switch. With None it sends to each
    /// host through the port that leads to that host.
    pub onward: Option<u8>,
}

const HERE: u64 = 11;

fn peer(node: u64, port: u8) -> Option<(u64, u8)> {
    Some(match (node, port) {
        (1 | 2, 1 | 2) => (node * 10 + u64::from(port), 1),
        (1 | 2, 3 | 4) => (3 - node, port),
        (11.., 1) => (node / 10, (node % 10) as u8),
        _ => return None,
    })
}

impl Simulated {
    /// Returns the node at the end of a MAD's path, and the port where the MAD arrives. None if the path
    /// leads nowhere.
    fn walk(&self, mad: &Mad) -> Option<(u64, u8)> {
        let hops = mad[7] as usize;
        let mut at = (HERE, 1);
        for (hop, port) in mad[129..129 + hops].iter().enumerate() {
            // A host does not forward.
            if at.0 > 2 && hop > 0 {
                return None;
            }
            at = peer(at.0, *port)?;
        }
        Some(at)
    }

    fn data(&self, node: u64, port: u8, mad: &Mad) -> Option<[u8; 192]> {
        let mut data = [0; 192];
        match u16::from_be_bytes([mad[16], mad[17]]) {
            0x10 => data[..6].copy_from_slice(format!("node{node:02}").as_bytes()),
            0x11 => {
                data[2] = if node > 2 { 1 } else { 2 };
                data[3] = if node > 2 { 1 } else { 4 };
                data[12..20].copy_from_slice(&node.to_be_bytes());
                data[36] = port;
            }
            0x15 => {
                data[16..18].copy_from_slice(&(node as u16).to_be_bytes());
                data[31] = 2;
                data[32] = 4;
                data[33] = 5 << 4;
                data[62] = 2 << 4;
            }
            0x19 if node <= 2 => {
                data[..64].fill(0xff);
                for (host, port) in [(1, 1), (2, 2)] {
                    data[(10 * node + host) as usize] = port;
                    data[(10 * (3 - node) + host) as usize] = self.onward.unwrap_or(port + 2);
                }
            }
            // Extended bytes and packets, PortXmitWait.
            0x01 if mad[1] == 4 => data[2..4].copy_from_slice(&(1u16 << 9 | 1 << 12).to_be_bytes()),
            0x1d => {
                data[1] = mad[65];
                for at in (8..184).step_by(8) {
                    let value = self.counters.get(&(node, mad[65], at)).copied().unwrap_or(0);
                    data[at..at + 8].copy_from_slice(&value.to_be_bytes());
                }
            }
            0x12 => {
                data[1] = mad[65];
                for ((of, port, at, width), value) in &self.basic {
                    if (*of, *port) == (node, mad[65]) {
                        data[*at..at + width].copy_from_slice(&value.to_be_bytes()[8 - width..]);
                    }
                }
            }
            _ => return None,
        }
        Some(data)
    }
}

impl Wire for Simulated {
    fn send(&mut self, _class: Class, to: MadAddress, mad: &Mad, _timeout: Duration) -> Result<(), String> {
        self.sent += 1;
        let (node, port) = match to {
            MadAddress::Path => match self.walk(mad) {
                Some(at) => at,
                None => return Ok(()),
            },
            MadAddress::Lid(lid) => (lid.into(), 1),
        };
        let is_lost = self.lose > 0 && self.sent.is_multiple_of(self.lose);
        if is_lost || self.silent.contains(&node) {
            return Ok(());
        }
        if let Some(strange) = &self.strange {
            let mut strange = strange.clone();
            strange[12..16].copy_from_slice(&mad[12..16]);
            self.answers.push_back(Received::Mad(strange));
        }
        let mut answer = Box::new(*mad);
        answer[3] = 0x81;
        match self.data(node, port, mad) {
            Some(data) => answer[64..].copy_from_slice(&data),
            None => answer[5] = 0x0c,
        }
        self.answers.push_back(Received::Mad(answer));
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Received>, String> {
        // Answers may overtake each other.
        let next =
            if self.sent.is_multiple_of(3) { self.answers.pop_back() } else { self.answers.pop_front() };
        if next.is_none() {
            std::thread::sleep(wait);
        }
        Ok(next)
    }
}

mod tests {
    use std::collections::BTreeSet;

    use super::super::counters::{Counters, FIRST, LATCHED, REBOOT, RESET, Sample, Sweep};
    use super::super::discover::{Fabric, discover};
    use super::super::exchange::{Exchange, ExchangeLimits};
    use super::super::routes::{hosts, routes};
    use super::super::topology::Topology;
    use super::*;

    fn exchange(wire: Simulated) -> Exchange<Simulated> {
        Exchange::new(wire, ExchangeLimits { in_flight: 4, answer_ms: 5, retries: 3 })
    }

    fn sample(sweep: &Sweep, node: u64, port: u8) -> &Sample {
        sweep.samples.iter().find(|sample| (sample.node, sample.port) == (node, port)).unwrap()
    }

    /// Discovers a fabric and reads its counters twice, and calls `change` between the readings. Returns the
    /// fabric and what the second reading found.
    fn twice(wire: Simulated, change: impl FnOnce(&mut Simulated)) -> (Fabric, Sweep) {
        let mut exchange = exchange(wire);
        let fabric = discover(&mut exchange).unwrap();
        let mut counters = Counters::default();
        let none = BTreeSet::new();
        let first = counters.sweep(&mut exchange, &fabric, &none).unwrap();
        assert!(first.samples.iter().all(|sample| sample.flags & FIRST != 0));
        std::thread::sleep(Duration::from_millis(20));
        change(exchange.wire_mut());
        (fabric.clone(), counters.sweep(&mut exchange, &fabric, &none).unwrap())
    }

    #[test]
    fn the_whole_fabric_is_found_though_mads_are_lost() {
        let mut exchange = exchange(Simulated { lose: 4, ..Default::default() });
        let fabric = discover(&mut exchange).unwrap();
        assert_eq!(fabric.nodes.keys().copied().collect::<Vec<_>>(), [1, 2, 11, 12, 21, 22]);
        assert_eq!(fabric.nodes[&1].ports[&3].peer, Some((2, 3)));
        assert_eq!(fabric.nodes[&22].ports[&1].peer, Some((2, 2)));
        assert_eq!(fabric.nodes[&22].description, "node22");
        assert!(exchange.counts.sent_again > 0);
        let topology = Topology::of(&fabric, &HashMap::new());
        assert_eq!(topology.links.len(), 6);
        assert_eq!(topology.nodes.iter().map(|node| node.tier).collect::<Vec<_>>(), [1, 1, 0, 0, 0, 0]);
        assert_eq!(topology.links[0].speed, "4x EDR");
    }

    #[test]
    fn messages_go_where_the_forwarding_tables_say() {
        let fabric = discover(&mut exchange(Simulated { lose: 5, ..Default::default() })).unwrap();
        let of =
            |hosts: &[u64]| routes(&fabric, &hosts.iter().copied().collect()).into_iter().collect::<Vec<_>>();
        assert_eq!(of(&[11, 12]), [(1, 1), (1, 2), (11, 1), (12, 1)]);
        // From 11 to 22 by port 4 of the first switch, and back by port 3 of the second.
        assert_eq!(of(&[11, 22]), [(1, 1), (1, 4), (2, 2), (2, 3), (11, 1), (22, 1)]);
        assert_eq!(of(&[11, 12, 21, 22]).len(), 2 * 4 + 4);
        assert_eq!((of(&[11]), of(&[11, 99])), (vec![], vec![]));
        let topology = Topology::of(&fabric, &HashMap::new());
        let nodes = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        assert_eq!(
            hosts(&topology, &nodes(&["Node11.site", "node22", "node01", ""])),
            BTreeSet::from([11, 22])
        );
    }

    #[test]
    fn tables_that_send_in_a_circle_or_nowhere_lead_to_no_end() {
        for onward in [0, 1, 3, 9, 0xff] {
            let wire = Simulated { onward: Some(onward), ..Default::default() };
            let fabric = discover(&mut exchange(wire)).unwrap();
            let used = routes(&fabric, &BTreeSet::from([11, 21]));
            assert!(used.len() <= 6 && used.contains(&(11, 1)), "{onward}: {used:?}");
        }
        let circle = |switch: u64| (switch, vec![3; 64]);
        let mut fabric = discover(&mut exchange(Simulated::default())).unwrap();
        fabric.forwarding = HashMap::from([circle(1), circle(2)]);
        assert_eq!(
            routes(&fabric, &BTreeSet::from([11, 21])),
            BTreeSet::from([(1, 3), (2, 3), (11, 1), (21, 1)])
        );
    }

    #[test]
    fn a_silent_node_is_unreachable_and_costs_one_waiting_time() {
        let (fabric, sweep) = twice(Simulated::default(), |wire| {
            wire.silent.insert(2);
        });
        assert_eq!(fabric.nodes.len(), 6);
        assert_eq!(sweep.unreachable, BTreeSet::from([2]));
        assert!(sweep.samples.iter().all(|sample| sample.node != 2));
        assert_eq!(sweep.samples.len(), 4 + 4);
    }

    #[test]
    fn who_does_not_answer_at_discovery_is_named_by_the_port_before_it() {
        let wire = Simulated { silent: HashSet::from([22]), ..Default::default() };
        let fabric = discover(&mut exchange(wire)).unwrap();
        assert_eq!(fabric.unanswered, [(2, 2)]);
        assert_eq!(fabric.nodes.len(), 5);
    }

    #[test]
    fn use_is_measured_by_the_time_and_the_rate() {
        // At 12.5 GB/s 20 ms carry 250 MB; the counter counts words of 4 bytes.
        let (_, sweep) = twice(Simulated::default(), |wire| {
            wire.counters.insert((1, 3, 8), 125_000_000 / 4);
        });
        let hot = sample(&sweep, 1, 3);
        assert_eq!(hot.since[0], 125_000_000);
        let expected = 125e6 / (12.5e9 * hot.seconds);
        assert!((f64::from(hot.sent.unwrap()) - expected).abs() < 1e-3 && hot.seconds > 0.019, "{hot:?}");
        assert_eq!(sample(&sweep, 1, 4).sent, Some(0.0));
    }

    #[test]
    fn a_cleared_counter_claims_no_rate() {
        let wire = Simulated { counters: HashMap::from([((1, 3, 8), 1_000_000)]), ..Default::default() };
        let (_, sweep) = twice(wire, |wire| {
            wire.counters.insert((1, 3, 8), 10);
        });
        let cleared = sample(&sweep, 1, 3);
        assert_eq!((cleared.flags, cleared.since[0], cleared.sent), (RESET, 40, None));
        assert_eq!(sample(&sweep, 1, 4).flags, 0);
    }

    #[test]
    fn a_node_that_was_away_and_is_cleared_has_started_anew() {
        let mut exchange =
            exchange(Simulated { counters: HashMap::from([((12, 1, 8), 900)]), ..Default::default() });
        let fabric = discover(&mut exchange).unwrap();
        let (mut counters, none) = (Counters::default(), BTreeSet::new());
        counters.sweep(&mut exchange, &fabric, &none).unwrap();
        exchange.wire_mut().silent.insert(12);
        counters.sweep(&mut exchange, &fabric, &none).unwrap();
        exchange.wire_mut().silent.clear();
        exchange.wire_mut().counters.insert((12, 1, 8), 2);
        let sweep = counters.sweep(&mut exchange, &fabric, &none).unwrap();
        assert_eq!(sample(&sweep, 12, 1).flags, RESET | REBOOT);
    }

    #[test]
    fn a_counter_that_stands_at_its_end_is_latched() {
        let (_, sweep) = twice(Simulated::default(), |wire| {
            wire.basic.insert((21, 1, 4, 2), 0xffff);
            // The lower half of a byte: ExcessiveBufferOverrunErrors; the upper is LocalLinkIntegrityErrors.
            wire.basic.insert((22, 1, 19, 1), 0x2f);
        });
        let symbols = sample(&sweep, 21, 1);
        assert_eq!((symbols.flags, symbols.since[5], symbols.errors()), (LATCHED, 65535, 65535));
        let overruns = sample(&sweep, 22, 1);
        assert_eq!((overruns.flags, overruns.since[14], overruns.since[15]), (LATCHED, 2, 15));
    }

    #[test]
    fn skipped_nodes_are_not_asked() {
        let mut exchange = exchange(Simulated { silent: HashSet::from([2]), ..Default::default() });
        exchange.wire_mut().silent.clear();
        let fabric = discover(&mut exchange).unwrap();
        exchange.wire_mut().silent.insert(2);
        let sweep = Counters::default().sweep(&mut exchange, &fabric, &BTreeSet::from([2])).unwrap();
        assert!(sweep.unreachable.is_empty());
        assert_eq!(exchange.counts.silent, 0);
    }

    #[test]
    fn strangers_are_counted_and_change_nothing() {
        let mut strange = Box::new([0xff; 256]);
        strange[..4].copy_from_slice(&[1, 0x81, 1, 0x01]);
        let mut exchange = exchange(Simulated { strange: Some(strange), ..Default::default() });
        let fabric = discover(&mut exchange).unwrap();
        assert_eq!(fabric.nodes.len(), 6);
        assert!(exchange.counts.strangers >= 6);
    }
}
