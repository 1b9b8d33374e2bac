// SPDX-License-Identifier: BSD-3-Clause
//! Counters of ports: one sweep reads all of them and computes what has happened since the last sweep.
//!
//! A counter stops at its highest value and does not wrap. A driver, a subnet manager or a person may clear
//! it, and a reboot clears all counters of a node. The flags of a sample report such events, and a sample
//! never claims more than has happened.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use super::discover::{Fabric, FabricNode};
use super::exchange::{Exchange, Wire};
use super::mad::{Attribute, Data, Failure, MadRequest, MadTarget, NodeKind, PerformanceInfo, field};

/// A counter that ports have, and its place in the attributes PortCountersExtended and PortCounters.
pub struct Counter {
    pub name: &'static str,
    /// The first byte of the counter's 64 bits in PortCountersExtended.
    extended: usize,
    /// The counter's first bit in PortCounters, and its number of bits.
    basic: (usize, u32),
    /// The number by which the hardware's value is multiplied. It is 4 for data, which the hardware counts in
    /// words of 4 bytes.
    scale: u64,
    pub is_error: bool,
}

const fn counter(name: &'static str, extended: usize, basic: (usize, u32)) -> Counter {
    Counter { name, extended, basic, scale: 1, is_error: true }
}

const fn traffic(name: &'static str, extended: usize, basic: (usize, u32), scale: u64) -> Counter {
    Counter { name, extended, basic, scale, is_error: false }
}

pub const COUNTERS: [Counter; 17] = [
    // Counters of data count words of 4 bytes.
    traffic("xmit_bytes", 8, (192, 32), 4),
    traffic("rcv_bytes", 16, (224, 32), 4),
    traffic("xmit_packets", 24, (256, 32), 1),
    traffic("rcv_packets", 32, (288, 32), 1),
    // The counter counts ticks in which the port had data to send and no credit.
    traffic("xmit_wait", 168, (320, 32), 1),
    counter("symbol_errors", 72, (32, 16)),
    counter("link_recoveries", 80, (48, 8)),
    counter("link_downed", 88, (56, 8)),
    counter("rcv_errors", 96, (64, 16)),
    counter("rcv_remote_physical_errors", 104, (80, 16)),
    counter("rcv_switch_relay_errors", 112, (96, 16)),
    counter("xmit_discards", 120, (112, 16)),
    counter("xmit_constraint_errors", 128, (128, 8)),
    counter("rcv_constraint_errors", 136, (136, 8)),
    counter("local_integrity_errors", 144, (152, 4)),
    counter("buffer_overruns", 152, (156, 4)),
    counter("vl15_dropped", 160, (176, 16)),
];
pub const XMIT_BYTES: usize = 0;
pub const RCV_BYTES: usize = 1;
/// How many counters at the beginning of `COUNTERS` have 64 bits in every node that has PortCountersExtended.
const ALWAYS_EXTENDED: usize = 4;
const XMIT_WAIT: usize = 4;

pub type Values = [u64; COUNTERS.len()];

/// Flag of a sample: there is no earlier sample to compare with, so the differences are 0.
pub const FIRST: u8 = 1;
/// Flag of a sample: a counter was cleared after the last sweep (reading of all ports). The sample has the
/// counter's present value in place of the difference, which may have been larger.
pub const RESET: u8 = 2;
/// Flag of a sample, together with `RESET`: the node did not answer in the last sweep (reading of all ports),
/// so it has probably restarted.
pub const REBOOT: u8 = 4;
/// Flag of a sample: a counter stands at its highest value, so more than the sample says may have happened.
pub const LATCHED: u8 = 8;

/// How much each counter of one port has grown since the last sweep (reading of all ports).
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub node: u64,
    pub port: u8,
    /// The seconds between the port's answer in the last sweep (reading of all ports) and its answer in this
    /// sweep.
    pub seconds: f64,
    pub flags: u8,
    pub since: Values,
    /// How much the port sent, as a share (0 to 1) of what its link can carry. None if it is unknown.
    pub sent: Option<f32>,
    /// How much the port received, as a share (0 to 1) of what its link can carry. None if it is unknown.
    pub received: Option<f32>,
}

impl Sample {
    pub fn errors(&self) -> u64 {
        let errors = self.since.iter().zip(&COUNTERS).filter(|(_, counter)| counter.is_error);
        errors.map(|(value, _)| value).fold(0, |sum, value| sum.saturating_add(*value))
    }

    /// Adds a later sample of the same port: sums the differences, and takes the higher of the two rates
    /// `sent`, and the higher of the two rates `received`.
    pub fn join(&mut self, newer: &Sample) {
        for (sum, value) in self.since.iter_mut().zip(newer.since) {
            *sum = sum.saturating_add(value);
        }
        let higher = |one: Option<f32>, other: Option<f32>| one.into_iter().chain(other).reduce(f32::max);
        self.seconds += newer.seconds;
        self.flags |= newer.flags;
        self.sent = higher(self.sent, newer.sent);
        self.received = higher(self.received, newer.received);
    }
}

/// What one sweep, which reads the counters of all ports, has found.
#[derive(Debug, Default)]
pub struct Sweep {
    pub samples: Vec<Sample>,
    /// The GUIDs of nodes that did not answer in this sweep (reading of all ports).
    pub unreachable: BTreeSet<u64>,
}

/// The values of a port's counters at one moment.
#[derive(Clone, Debug)]
struct Reading {
    at: Instant,
    values: Values,
    latched: bool,
}

/// The values of all ports' counters in the last sweep (reading of all ports). The next sweep compares its
/// values with them.
#[derive(Default)]
pub struct Counters {
    last: HashMap<(u64, u8), Reading>,
    /// The GUIDs of nodes that did not answer in the last sweep (reading of all ports), but in some earlier
    /// one.
    away: BTreeSet<u64>,
}

/// The answers about the counters of one port that have come so far in this sweep (reading of all ports).
#[derive(Default)]
struct PortAnswers {
    at: Option<Instant>,
    basic: Option<Box<Data>>,
    extended: Option<Box<Data>>,
}

impl Counters {
    /// Carries out a sweep: reads the counters of all ports that have a link, except ports of the `skipped`
    /// nodes. Returns by how much each counter has grown since the last sweep.
    pub fn sweep<W: Wire>(
        &mut self,
        exchange: &mut Exchange<W>,
        fabric: &Fabric,
        skipped: &BTreeSet<u64>,
    ) -> Result<Sweep, String> {
        let mut answers: BTreeMap<(u64, u8), PortAnswers> = BTreeMap::new();
        let mut sweep = Sweep::default();
        exchange.run(requests(fabric, skipped), |key, request, answer| {
            let one = answers.entry(key).or_default();
            match (answer, request.attribute) {
                (Ok(data), Attribute::CountersExtended(_)) => {
                    one.at = Some(Instant::now());
                    one.extended = Some(Box::new(*data));
                }
                (Ok(data), _) => {
                    one.at.get_or_insert_with(Instant::now);
                    one.basic = Some(Box::new(*data));
                }
                (Err(Failure::Silent), _) => {
                    sweep.unreachable.insert(key.0);
                }
                (Err(Failure::Refused(_)), _) => {}
            }
            Vec::new()
        })?;
        for ((guid, port), one) in &answers {
            let Some(node) = fabric.nodes.get(guid) else { continue };
            if let Some(now) = read(one, &node.counters) {
                sweep.samples.push(self.sample(node, *port, now));
            }
        }
        let seen: BTreeSet<u64> = sweep.samples.iter().map(|sample| sample.node).collect();
        let known = self.last.keys().map(|(guid, _)| *guid);
        self.away = known.filter(|guid| !seen.contains(guid) && !skipped.contains(guid)).collect();
        Ok(sweep)
    }

    fn sample(&mut self, node: &FabricNode, port: u8, now: Reading) -> Sample {
        let mut sample = Sample {
            node: node.guid,
            port,
            seconds: 0.0,
            flags: if now.latched { LATCHED } else { 0 },
            since: [0; COUNTERS.len()],
            sent: None,
            received: None,
        };
        match self.last.get(&(node.guid, port)) {
            None => sample.flags |= FIRST,
            Some(last) => {
                sample.seconds = (now.at - last.at).as_secs_f64();
                for (at, (now, last)) in now.values.iter().zip(last.values).enumerate() {
                    sample.since[at] = now.checked_sub(last).unwrap_or_else(|| {
                        sample.flags |= RESET;
                        *now
                    });
                }
                if sample.flags & RESET != 0 && self.away.contains(&node.guid) {
                    sample.flags |= REBOOT;
                }
                let rate = node.ports.get(&port).map_or(0.0, |port| port.info.bytes_per_second());
                let share = |bytes: u64| {
                    let whole = rate * sample.seconds;
                    // No rate is known for a counter that was cleared or stands at its highest value.
                    let is_known = whole > 0.0 && sample.flags & (RESET | LATCHED) == 0;
                    is_known.then(|| (bytes as f64 / whole).min(1.0) as f32)
                };
                (sample.sent, sample.received) =
                    (share(sample.since[XMIT_BYTES]), share(sample.since[RCV_BYTES]));
            }
        }
        self.last.insert((node.guid, port), now);
        sample
    }
}

/// Returns the requests of a sweep (reading of all ports), in the order of port numbers and then of nodes, so
/// that no node gets many requests at once.
fn requests(fabric: &Fabric, skipped: &BTreeSet<u64>) -> Vec<((u64, u8), MadRequest)> {
    let mut asks = Vec::new();
    for node in fabric.nodes.values().filter(|node| !skipped.contains(&node.guid)) {
        for (number, port) in &node.ports {
            let is_own = node.kind == NodeKind::Switch && *number == 0;
            let Some(lid) = node.lid(*number).filter(|_| port.info.is_up() && !is_own) else { continue };
            let mut ask = |attribute| {
                asks.push(((node.guid, *number), MadRequest { target: MadTarget::Lid(lid), attribute }));
            };
            if node.counters.extended {
                ask(Attribute::CountersExtended(*number));
            }
            if !node.counters.extended_errors {
                ask(Attribute::Counters(*number));
            }
        }
    }
    asks.sort_by_key(|((_, port), _)| *port);
    asks
}

/// Returns the values of a port's counters, from counters of 64 bits as far as the node has them (`has`),
/// else from shorter ones. Returns None if an answer is missing.
fn read(answers: &PortAnswers, has: &PerformanceInfo) -> Option<Reading> {
    let mut reading = Reading { at: answers.at?, values: [0; COUNTERS.len()], latched: false };
    for (at, counter) in COUNTERS.iter().enumerate() {
        let is_wide = has.extended && (at < ALWAYS_EXTENDED || has.extended_errors);
        if at == XMIT_WAIT && !is_wide && !has.waits {
            continue;
        }
        let (value, highest) = if is_wide {
            (field(answers.extended.as_ref()?, counter.extended, 8), u64::MAX)
        } else {
            let (first, width) = counter.basic;
            let whole = field(answers.basic.as_ref()?, first / 8, (width as usize).div_ceil(8));
            // A field of 4 bits is the upper or the lower half of a byte.
            let value = if width == 4 && first % 8 == 0 { whole >> 4 } else { whole & ((1 << width) - 1) };
            (value, (1 << width) - 1)
        };
        reading.latched |= value == highest;
        reading.values[at] = value.saturating_mul(counter.scale);
    }
    Some(reading)
}
