// SPDX-License-Identifier: BSD-3-Clause
//! `outboard simulate` prints how long a collective takes on many ranks, and what proxies save.

use super::plan::{Which, collective};
use std::io::Write as _;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use coll::Placement;
use schedule::simulate::{
    Dpu, Network, Proxies, SimulationReport, StepsWithinNode, simulate, simulate_stencil,
};
use schedule::{Algorithm, Collective, Growth, NodeMap};

/// Simulate collectives, and print time and memory by the number of ranks.
#[derive(Args)]
pub struct Simulate {
    #[command(flatten)]
    which: Which,
    /// The numbers of ranks, such as 4,64,1000. Default: powers of ten, as far as the algorithm allows.
    #[arg(short = 'n', long, value_name = "LIST")]
    ranks: Option<String>,
    /// The bytes of the vector, or of the block that one rank sends to one other.
    #[arg(short, long, value_name = "BYTES", default_value = "8,64KiB")]
    bytes: String,
    /// The numbers of nodes, such as 2,100,10000. Print the time of the algorithm that is chosen for ranks on
    /// so many nodes, and of the one that is chosen if their nodes are not known.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["ranks", "algorithm"])]
    nodes: Option<String>,
    /// The number of ranks on each of these nodes.
    #[arg(long, value_name = "COUNT", default_value_t = 8, requires = "nodes")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    per_node: u32,
    /// Print the time of a computation with communication of the same length. First ranks communicate inside
    /// MPI calls only; then this many proxies of each node communicate during the computation.
    #[arg(long, value_name = "COUNT", requires = "nodes")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    proxies: Option<u32>,
    /// The proxies run on a data processing unit of the node, one on each core unless --proxies says how
    /// many. The collective `stencil` is messages to six neighbours in three dimensions.
    #[arg(long, requires = "nodes", num_args = 0..=1, require_equals = true, default_missing_value = "bluefield-2")]
    dpu: Option<KnownDpu>,
    /// Who moves the bytes that stay within a node, while a DPU moves all others.
    #[arg(long, requires = "dpu", default_value = "ranks")]
    within: NodeCarrier,
    /// The DPU moves bytes between hosts without a copy of its own (Cross-GVMI), or its copies stay in its
    /// caches.
    #[arg(long, requires = "dpu")]
    direct: bool,
    /// The time of a message to the DPU and back, in nanoseconds. Default: that of the DPU.
    #[arg(long, value_name = "NS", requires = "dpu")]
    pcie_ns: Option<u64>,
    /// Each rank starts at a random time before this, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 0)]
    skew_us: u64,
    /// The seed of the random times of --skew-us.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A data processing unit whose figures the simulator has.
#[derive(Clone, Copy, ValueEnum)]
enum KnownDpu {
    /// 8 Cortex-A72 cores, a port of 12.5 GB/s, DDR4-3200 memory on one channel.
    #[value(name = "bluefield-2")]
    BlueField2,
    /// 16 Cortex-A78 cores, a port of 25 GB/s, DDR5-5600 memory of 128 bits.
    #[value(name = "bluefield-3")]
    BlueField3,
}

/// Who moves the bytes that stay within a node.
#[derive(Clone, Copy, ValueEnum)]
enum NodeCarrier {
    /// The ranks, inside MPI calls.
    Ranks,
    /// A proxy on the node.
    Proxy,
    /// The DPU, through its port.
    Dpu,
}

/// The most nodes for which a row is simulated, so that it takes some seconds at most.
const NODES_MAX: u32 = 100_000;
/// The most steps of all ranks together for which an algorithm is simulated, so that it takes some seconds at
/// most.
const STEPS_MAX: u64 = 30_000_000;

/// How long a rank takes to submit an operation to a proxy, in ps. It is 3 to 5 us
/// (docs/measured/offload.md).
const HANDOVER_PS: u64 = 4_000_000;

impl Simulate {
    /// Simulates what the command line asks for. Prints each row as soon as it is known, because large ones
    /// take seconds. Returns an empty text.
    pub fn run(&self) -> Result<String, String> {
        let sizes: Vec<u64> = self.bytes.split(',').map(settings::bytes).collect::<Result<_, _>>()?;
        let given = self.ranks.as_deref().map(settings::list).transpose()?;
        let mut out = std::io::stdout();
        if let Some(nodes) = &self.nodes {
            for row in self.over_nodes(settings::list(nodes)?, &sizes)? {
                if writeln!(out, "{}", row?).and_then(|()| out.flush()).is_err() {
                    break;
                }
            }
            return Ok(String::new());
        }
        // A reader that closes the pipe is no failure, but ends the work.
        if writeln!(out, "{}", SimulationReport::HEADER).is_err() {
            return Ok(String::new());
        }
        let network = self.network();
        for facts in self.which.algorithms()? {
            let largest = if facts.growth == Growth::Logarithmic { 1_000_000 } else { 10_000 };
            let decades = std::iter::successors(Some(10u64), |n| Some(n * 10)).take_while(|n| *n <= largest);
            for ranks in given.clone().unwrap_or_else(|| decades.collect()) {
                let ranks = u32::try_from(ranks).ok().filter(|ranks| (1..=1 << 24).contains(ranks));
                let ranks = ranks.ok_or("1 to 2^24 ranks can be simulated")?;
                for &bytes in &sizes {
                    let report = simulate(facts.algorithm, ranks, bytes, None, &network, self.seed);
                    if writeln!(out, "{report}").and_then(|()| out.flush()).is_err() {
                        return Ok(String::new());
                    }
                }
            }
        }
        Ok(String::new())
    }

    /// Returns the simulated network that the command line describes, with the proxies of its nodes.
    fn network(&self) -> Network {
        let unit = self.dpu.map(|unit| match unit {
            KnownDpu::BlueField2 => Dpu::BLUEFIELD_2,
            KnownDpu::BlueField3 => Dpu::BLUEFIELD_3,
        });
        let given = |dpu: Dpu| Dpu {
            cores: self.proxies.unwrap_or(dpu.cores),
            round_trip_ps: self.pcie_ns.map_or(dpu.round_trip_ps, |ns| ns.saturating_mul(1000)),
            ..if self.direct { dpu.direct() } else { dpu }
        };
        let within = match self.within {
            NodeCarrier::Ranks => StepsWithinNode::Ranks,
            NodeCarrier::Proxy => StepsWithinNode::Proxies(1),
            NodeCarrier::Dpu => StepsWithinNode::Dpu,
        };
        let proxies = match unit {
            Some(dpu) => Some(Proxies::Dpu(given(dpu), within)),
            None => self.proxies.map(Proxies::Host),
        };
        let network = unit.map_or_else(Network::default, |dpu| dpu.network());
        Network { skew_ps: self.skew_us.saturating_mul(1_000_000), proxies, ..network }
    }

    /// Returns the lines of the table for `--nodes`. Each line is simulated when the iterator comes to it.
    fn over_nodes(
        &self,
        nodes: Vec<u64>,
        sizes: &[u64],
    ) -> Result<impl Iterator<Item = Result<String, String>>, String> {
        let settings = settings::load().map_err(|error| error.to_string())?;
        let choice = coll::AlgorithmChoice::from_settings(settings).map_err(|error| error.to_string())?;
        let operations: Vec<SimulatedOperation> = match self.which.collective.as_deref() {
            Some("stencil") => vec![SimulatedOperation::Stencil],
            Some(name) => vec![SimulatedOperation::Collective(collective(name)?.0)],
            None => Collective::ALL.map(SimulatedOperation::Collective).to_vec(),
        };
        let calls = operations.into_iter().flat_map(move |operation| {
            let nodes = nodes.clone();
            nodes.into_iter().flat_map(move |nodes| sizes.iter().map(move |&bytes| (operation, nodes, bytes)))
        });
        let network = self.network();
        let proxies = network.proxies;
        let row = move |(operation, nodes, bytes): (SimulatedOperation, u64, u64)| {
            let nodes = u32::try_from(nodes).ok().filter(|nodes| (1..=NODES_MAX).contains(nodes));
            let nodes = nodes.ok_or(format!("1 to {NODES_MAX} nodes can be simulated"))?;
            let map = Arc::new(NodeMap::by_node(nodes * self.per_node, nodes));
            let network = Network { proxies: None, ..network.clone() };
            let call =
                SimulatedCall { choice: choice.clone(), operation, bytes, map, network, seed: self.seed };
            let head = format!("{:<21} {nodes:>6} {:>7} {bytes:>9}", operation.name(), nodes * self.per_node);
            Ok(match proxies {
                Some(proxies) => head + &call.overlap(proxies),
                None => head + &call.gain(),
            })
        };
        let columns = if proxies.is_some() { SimulatedCall::OVERLAP } else { SimulatedCall::GAIN };
        let header = format!("collective             nodes   ranks     bytes{columns}");
        Ok(std::iter::once(Ok(header)).chain(calls.map(row)))
    }
}

/// The operation that is simulated: a collective, or messages to neighbours.
#[derive(Clone, Copy)]
enum SimulatedOperation {
    Collective(Collective),
    /// Every rank sends messages to its six neighbours in three dimensions.
    Stencil,
}

impl SimulatedOperation {
    fn name(self) -> &'static str {
        match self {
            SimulatedOperation::Collective(collective) => collective.name(),
            SimulatedOperation::Stencil => "stencil",
        }
    }
}

/// A call that is simulated: the operation, its size in bytes, and the node of each rank.
struct SimulatedCall {
    choice: coll::AlgorithmChoice,
    operation: SimulatedOperation,
    bytes: u64,
    map: Arc<NodeMap>,
    /// The network between the nodes, without proxies.
    network: Network,
    seed: u64,
}

impl SimulatedCall {
    const GAIN: &'static str = "  over nodes        time us  without a map     time us   gain";
    const OVERLAP: &'static str =
        "  ranks by           ranks us  proxies by      proxies us    without us   with us   less  auto";

    /// Returns the algorithm that Outboard chooses. `is_known` says whether it knows the nodes of the ranks.
    /// None for messages to neighbours.
    fn algorithm(&self, is_known: bool) -> Option<Algorithm> {
        let SimulatedOperation::Collective(collective) = self.operation else { return None };
        let known = if is_known { Placement::of((*self.map).clone()) } else { Placement::Apart };
        Some(self.choice.of(collective, self.bytes, self.map.ranks(), true, &known))
    }

    /// Returns the simulated time of the call in ps. None if the simulation would take minutes.
    fn time(&self, algorithm: Option<Algorithm>, network: &Network) -> Option<u64> {
        let Some(algorithm) = algorithm else {
            return Some(simulate_stencil(&self.map, self.bytes, network, self.seed));
        };
        let ranks = u64::from(self.map.ranks());
        let is_over = algorithm.facts().name.starts_with("nodes");
        let peers = if is_over { self.map.nodes().into() } else { ranks };
        let feasible = algorithm.facts().growth == Growth::Logarithmic || ranks * peers <= STEPS_MAX;
        feasible.then(|| {
            simulate(algorithm, self.map.ranks(), self.bytes, Some(&self.map), network, self.seed).time_ps
        })
    }

    /// Returns a line of the table: the algorithms chosen with and without knowing the nodes, and their
    /// times.
    fn gain(&self) -> String {
        let run = |is_known| {
            let algorithm = self.algorithm(is_known);
            (name(algorithm), self.time(algorithm, &self.network))
        };
        let (over, flat) = (run(true), run(false));
        let gain = over.1.zip(flat.1).map(|(over, flat)| flat as f64 / over.max(1) as f64);
        format!(
            "  {:<14} {:>10}  {:<14} {:>10} {:>6}",
            over.0,
            us(over.1),
            flat.0,
            us(flat.1),
            gain.map_or("-".into(), |gain| format!("{gain:.2}"))
        )
    }

    /// Returns a line of the table: the times of the communication by ranks and by proxies, alone and beside
    /// a computation of the same length. Ranks communicate after the computation, proxies during it. The last
    /// word of the line says who is faster: `proxies` or `ranks`.
    fn overlap(&self, proxies: Proxies) -> String {
        let algorithm = self.algorithm(true);
        let ranks = self.time(algorithm, &self.network);
        let (by, both) = self.beside(algorithm, proxies, ranks.unwrap_or(0));
        let alone = self.time(by, &Network { proxies: Some(proxies), ..self.network.clone() });
        let without = ranks.map(|time| 2 * time);
        let with = ranks.and(both);
        let less = with.zip(without).map(|(with, without)| 1.0 - with as f64 / without.max(1) as f64);
        format!(
            "  {:<14} {:>12}  {:<14} {:>11} {:>13} {:>9} {:>6}  {}",
            name(algorithm),
            us(ranks),
            name(by),
            us(alone),
            us(without),
            us(with),
            less.map_or("-".into(), |less| format!("{:.0} %", less * 100.0)),
            if less.is_some_and(|less| less > 0.0) { "proxies" } else { "ranks" }
        )
    }

    /// Returns the fastest algorithm for proxies, and its time in ps beside a computation of `work_ps`. Tries
    /// `algorithm` and, on a DPU, also the algorithms named `linear` or `nodes...`. The algorithm is None for
    /// messages to neighbours; the time is None if each simulation would take minutes.
    fn beside(
        &self,
        algorithm: Option<Algorithm>,
        proxies: Proxies,
        work_ps: u64,
    ) -> (Option<Algorithm>, Option<u64>) {
        let network = Network { proxies: Some(proxies), work_ps, ..self.network.clone() };
        let over = match (self.operation, proxies) {
            (SimulatedOperation::Collective(collective), Proxies::Dpu(..)) => {
                let named = |facts: &&schedule::AlgorithmFacts| {
                    facts.name.starts_with("nodes") || facts.name == "linear" && !collective.reduces()
                };
                collective.algorithms().filter(named).map(|facts| Some(facts.algorithm)).collect()
            }
            _ => Vec::new(),
        };
        let others = over.into_iter().filter(|other| *other != algorithm);
        std::iter::once(algorithm)
            .chain(others)
            .map(|by| (by, self.time(by, &network).map(|time| HANDOVER_PS + time)))
            .min_by_key(|(_, time)| time.unwrap_or(u64::MAX))
            .expect("there is one")
    }
}

fn name(algorithm: Option<Algorithm>) -> &'static str {
    algorithm.map_or("messages", Algorithm::name)
}

fn us(time: Option<u64>) -> String {
    time.map_or("-".into(), |time| format!("{:.1}", time as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(operation: SimulatedOperation, bytes: u64, dpu: Option<Dpu>) -> String {
        let network = dpu.map_or_else(Network::default, |dpu| dpu.network());
        let map = Arc::new(NodeMap::by_node(16, 4));
        let choice = coll::AlgorithmChoice::from_settings(&settings::parse(&[]).unwrap()).unwrap();
        let call = SimulatedCall { choice, operation, bytes, map, network, seed: 1 };
        call.overlap(dpu.map_or(Proxies::Host(2), |dpu| Proxies::Dpu(dpu, StepsWithinNode::Ranks)))
    }

    fn figures(text: &str) -> [f64; 5] {
        let words: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        words.try_into().unwrap()
    }

    #[test]
    fn what_proxies_save_is_told() {
        let alltoall = SimulatedOperation::Collective(Collective::Alltoall);
        let text = told(alltoall, 64 << 10, None);
        let [ranks, proxies, without, with, less] = figures(&text);
        assert!((without - 2.0 * ranks).abs() < 0.2 && proxies >= ranks, "{text}");
        assert!((with - proxies - 4.0).abs() < 0.2, "what handing over costs: {text}");
        assert!((less - 100.0 * (1.0 - with / without)).abs() < 1.0, "{text}");
    }

    #[test]
    fn short_operations_stay_with_the_ranks_and_long_ones_gain() {
        let bcast = SimulatedOperation::Collective(Collective::Bcast);
        for operation in [bcast, SimulatedOperation::Stencil] {
            let (short, long) = (
                told(operation, 8, Some(Dpu::BLUEFIELD_3)),
                told(operation, 1 << 20, Some(Dpu::BLUEFIELD_3)),
            );
            assert!(short.ends_with(" ranks") && figures(&short)[4] < 0.0, "{short}");
            assert!(long.ends_with(" proxies") && figures(&long)[4] > 0.0, "{long}");
        }
    }
}
