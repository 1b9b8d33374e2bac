// SPDX-License-Identifier: BSD-3-Clause
//! `outboard simulate`: the time of a collective on many ranks.

use std::io::Write as _;
use std::sync::Arc;

use clap::Args;
use coll::Placement;
use schedule::simulate::{Network, Proxies, Report, simulate};
use schedule::{Algorithm, Collective, Growth, NodeMap};

use super::plan::{Which, collective};

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
    /// The numbers of nodes, such as 2,100,10000. Prints the time of what is chosen for the ranks of so many
    /// nodes, and what is chosen without a map of the nodes.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["ranks", "algorithm"])]
    nodes: Option<String>,
    /// The number of ranks on each of these nodes.
    #[arg(long, value_name = "COUNT", default_value_t = 8, requires = "nodes")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    per_node: u32,
    /// Print the time of computation and communication of equal length, when this many proxies of each node
    /// carry the communication out, and that of ranks which communicate inside MPI calls only.
    #[arg(long, value_name = "COUNT", requires = "nodes")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    proxies: Option<u32>,
    /// The proxies run on a data processing unit of the node.
    #[arg(long, requires = "proxies")]
    dpu: bool,
    /// Each rank starts at a random time before this, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 0)]
    skew_us: u64,
    /// The seed of those random times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Most nodes, and about as many steps of all ranks as are simulated in some seconds.
const NODES_MAX: u32 = 100_000;
const STEPS_MAX: u64 = 30_000_000;

/// What a rank needs to hand an operation over (docs/measured/offload.md: 3 to 5 us), in picoseconds.
const HANDOVER_PS: u64 = 4_000_000;

impl Simulate {
    /// Prints a row as soon as it is known; large ones take seconds.
    pub fn run(&self) -> Result<String, String> {
        let network = Network { skew_ps: self.skew_us.saturating_mul(1_000_000), ..Network::default() };
        let sizes: Vec<u64> = self.bytes.split(',').map(settings::bytes).collect::<Result<_, _>>()?;
        let given = self.ranks.as_deref().map(settings::list).transpose()?;
        let mut out = std::io::stdout();
        if let Some(nodes) = &self.nodes {
            for row in self.over_nodes(settings::list(nodes)?, &sizes, &network)? {
                if writeln!(out, "{}", row?).and_then(|()| out.flush()).is_err() {
                    break;
                }
            }
            return Ok(String::new());
        }
        // A reader that closes the pipe is no failure, but ends the work.
        if writeln!(out, "{}", Report::HEADER).is_err() {
            return Ok(String::new());
        }
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

    /// The lines of the table for nodes.
    fn over_nodes(
        &self,
        nodes: Vec<u64>,
        sizes: &[u64],
        network: &Network,
    ) -> Result<impl Iterator<Item = Result<String, String>>, String> {
        let settings = settings::load().map_err(|error| error.to_string())?;
        let choice = coll::Choice::from_settings(settings).map_err(|error| error.to_string())?;
        let collectives: Vec<Collective> = match &self.which.collective {
            Some(name) => vec![collective(name)?.0],
            None => Collective::ALL.to_vec(),
        };
        let calls = collectives.into_iter().flat_map(move |collective| {
            let nodes = nodes.clone();
            nodes
                .into_iter()
                .flat_map(move |nodes| sizes.iter().map(move |&bytes| (collective, nodes, bytes)))
        });
        let row = move |(collective, nodes, bytes)| {
            let nodes = u32::try_from(nodes).ok().filter(|nodes| (1..=NODES_MAX).contains(nodes));
            let nodes = nodes.ok_or(format!("1 to {NODES_MAX} nodes can be simulated"))?;
            let map = Arc::new(NodeMap::by_node(nodes * self.per_node, nodes));
            let call = Call { choice: choice.clone(), collective, bytes, map, network, seed: self.seed };
            let head =
                format!("{:<21} {nodes:>6} {:>7} {bytes:>9}", collective.name(), nodes * self.per_node);
            Ok(match self.proxies {
                Some(per_node) => head + &call.overlap(Proxies { per_node, is_dpu: self.dpu }),
                None => head + &call.gain(),
            })
        };
        let columns = if self.proxies.is_some() { Call::OVERLAP } else { Call::GAIN };
        let header = format!("collective             nodes   ranks     bytes{columns}");
        Ok(std::iter::once(Ok(header)).chain(calls.map(row)))
    }
}

/// A call on many nodes.
struct Call<'a> {
    choice: coll::Choice,
    collective: Collective,
    bytes: u64,
    map: Arc<NodeMap>,
    network: &'a Network,
    seed: u64,
}

impl Call<'_> {
    const GAIN: &'static str = "  over nodes        time us  without a map     time us   gain";
    const OVERLAP: &'static str = "  algorithm        ranks us  proxies us    without us   with us   less";

    /// What is chosen with a map of the nodes or without.
    fn algorithm(&self, is_known: bool) -> Algorithm {
        let known = if is_known { Placement::of((*self.map).clone()) } else { Placement::Apart };
        self.choice.of(self.collective, self.bytes, self.map.ranks(), true, &known)
    }

    /// In picoseconds; nothing: it would take minutes to find out.
    fn time(&self, algorithm: Algorithm, network: &Network) -> Option<u64> {
        let ranks = u64::from(self.map.ranks());
        let is_over = algorithm.facts().name.starts_with("nodes");
        let peers = if is_over { self.map.nodes().into() } else { ranks };
        let feasible = algorithm.facts().growth == Growth::Logarithmic || ranks * peers <= STEPS_MAX;
        feasible.then(|| {
            simulate(algorithm, self.map.ranks(), self.bytes, Some(&self.map), network, self.seed).time_ps
        })
    }

    /// What is chosen with the map and without, and their times.
    fn gain(&self) -> String {
        let run = |is_known| {
            let algorithm = self.algorithm(is_known);
            (algorithm.name(), self.time(algorithm, self.network))
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

    /// The times of the communication by ranks and by proxies, and of computation that takes as long as the
    /// communication by ranks beside it: ranks communicate after it, proxies meanwhile.
    fn overlap(&self, proxies: Proxies) -> String {
        let algorithm = self.algorithm(true);
        let ranks = self.time(algorithm, self.network);
        let proxies = self.time(algorithm, &Network { proxies: Some(proxies), ..self.network.clone() });
        let without = ranks.map(|time| 2 * time);
        let with = ranks.zip(proxies).map(|(ranks, proxies)| HANDOVER_PS + ranks.max(proxies));
        let less = with.zip(without).map(|(with, without)| 1.0 - with as f64 / without.max(1) as f64);
        format!(
            "  {:<14} {:>10} {:>11} {:>13} {:>9} {:>6}",
            algorithm.name(),
            us(ranks),
            us(proxies),
            us(without),
            us(with),
            less.map_or("-".into(), |less| format!("{:.0} %", less * 100.0))
        )
    }
}

fn us(time: Option<u64>) -> String {
    time.map_or("-".into(), |time| format!("{:.1}", time as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proxies_save_is_told() {
        let network = Network::default();
        let map = Arc::new(NodeMap::by_node(16, 4));
        let choice = coll::Choice::from_settings(&settings::parse(&[]).unwrap()).unwrap();
        let call = Call {
            choice,
            collective: Collective::Alltoall,
            bytes: 64 << 10,
            map,
            network: &network,
            seed: 1,
        };
        let told = |is_dpu| {
            let text = call.overlap(Proxies { per_node: 2, is_dpu });
            let words: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            <[f64; 5]>::try_from(words).unwrap()
        };
        let [ranks, proxies, without, with, less] = told(false);
        assert!((without - 2.0 * ranks).abs() < 0.2 && proxies >= ranks, "{:?}", told(false));
        assert!((with - proxies - 4.0).abs() < 0.2, "what handing over costs");
        assert!((less - 100.0 * (1.0 - with / without)).abs() < 1.0);
        assert!(told(true)[1] > proxies, "a DPU is slower");
    }
}
