// SPDX-License-Identifier: BSD-3-Clause
//! Computes on a model network how long an algorithm takes and how much memory it needs, for 2 to a million
//! ranks.
//!
//! The model is LogGP (Alexandrov et al. 1995): a message costs `overhead` on the sender's processor,
//! `per_byte` at the sender's port, `latency` on the way, then the same at the receiver. A rank has one
//! processor, and a node one port each way, first come, first served. Within a node the receiver's processor
//! copies, without a port. Proxies on a host are the processors of its ranks; proxies on a DPU carry out what
//! goes between nodes (`network::Dpu`). Approximations: a step that follows another byte by byte starts when
//! the other has handled `chunk_bytes`, and ends at least one chunk later than the other; data leaves as soon
//! as it is valid; blocks have their average length. Without skew, and where all ranks do the same
//! (`AlgorithmFacts::symmetry`), one rank exactly stands for all.
mod engine;
mod network;
mod template;

use crate::{Algorithm, Neighbors, NodeMap, Params, Symmetry};
use engine::Engine;
pub use engine::Traffic;
pub use network::{Dpu, LINGER_PS, LinkCosts, Network, Proxies, StepsWithinNode};
use std::sync::Arc;
use template::{PeerNumbering, Templates, is_vector};

/// The result of a simulation. `Display` prints it as a row under `SimulationReport::HEADER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationReport {
    /// The algorithm that was simulated.
    pub algorithm: Algorithm,
    /// The number of ranks in the operation.
    pub ranks: u32,
    /// The length in bytes for which the algorithm was simulated: of the whole vector, or of one rank's
    /// block.
    pub bytes: u64,
    /// The time from 0 to the end of the last step of the last rank, in picoseconds.
    pub time_ps: u64,
    /// The number of messages that all ranks send together.
    pub messages: u64,
    /// The number of bytes in all messages together.
    pub message_bytes: u64,
    /// The number of steps of the rank that has the most.
    pub steps_max: u64,
    /// The length in bytes of the longest schedule of a rank, encoded as words.
    pub schedule_bytes_max: u64,
    /// The mean length in bytes of a rank's schedule, encoded as words.
    pub schedule_bytes_mean: u64,
    /// The length in bytes of all scratch buffers of a rank, for the rank with the most.
    pub scratch_bytes_max: u64,
    /// Whether only one rank was simulated, since all ranks do the same.
    pub by_symmetry: bool,
    /// The bytes that passed ports and processors. If only one rank was simulated, they are that rank's.
    pub traffic: Traffic,
}

/// Simulates an operation on `ranks` ranks with root 0. Each rank has its own node unless `nodes` says
/// otherwise. `bytes` is the length of the vector or of a block (`template::is_vector`). `seed` chooses the
/// ranks' random start times (`Network::skew_ps`). Panics if there are no ranks, if `Network::chunk_bytes` is
/// 0, or if there are proxies but no nodes.
pub fn simulate(
    algorithm: Algorithm,
    ranks: u32,
    bytes: u64,
    nodes: Option<&Arc<NodeMap>>,
    network: &Network,
    seed: u64,
) -> SimulationReport {
    simulate_by(algorithm, (ranks, nodes), bytes, network, seed, true)
}

fn simulate_by(
    algorithm: Algorithm,
    (ranks, nodes): (u32, Option<&Arc<NodeMap>>),
    bytes: u64,
    network: &Network,
    seed: u64,
    symmetry: bool,
) -> SimulationReport {
    assert!(ranks > 0 && network.chunk_bytes > 0, "{ranks} ranks, {network:?}");
    let is_served = match network.proxies {
        None | Some(Proxies::Dpu(Dpu { cores: 1.., .. }, StepsWithinNode::Ranks | StepsWithinNode::Dpu)) => {
            true
        }
        Some(
            Proxies::Host(per_node)
            | Proxies::Dpu(Dpu { cores: 1.., .. }, StepsWithinNode::Proxies(per_node)),
        ) => per_node > 0,
        Some(_) => false,
    };
    assert!(is_served && (network.proxies.is_none() || nodes.is_some()), "{network:?}");
    let peers = match algorithm.facts().symmetry {
        Symmetry::Xor if ranks.is_power_of_two() => PeerNumbering::Xor,
        _ => PeerNumbering::Cyclic(ranks),
    };
    let same = match algorithm.facts().symmetry {
        Symmetry::None => false,
        Symmetry::Cyclic => true,
        Symmetry::Xor => ranks.is_power_of_two(),
    };
    let by_symmetry = symmetry && same && network.skew_ps == 0 && nodes.is_none();
    let built = if by_symmetry { 1 } else { ranks };
    let placed = nodes.cloned().unwrap_or_else(|| Arc::new(NodeMap::by_node(ranks, ranks)));
    let plan = |rank| algorithm.plan(&Params { nodes: Some(placed.clone()), ..Params::new(rank, ranks) });
    let templates = Templates::new(&plan, (bytes, is_vector(algorithm.collective())), peers, built);
    let (time_ps, traffic) = Engine::new(&templates, nodes.map(|nodes| &**nodes), network, seed).run();
    let of_all = if by_symmetry { u64::from(ranks) } else { 1 };
    SimulationReport {
        algorithm,
        ranks,
        bytes,
        time_ps,
        messages: templates.messages * of_all,
        message_bytes: templates.message_bytes * of_all,
        steps_max: templates.steps_max,
        schedule_bytes_max: templates.schedule_bytes_max,
        schedule_bytes_mean: templates.schedule_bytes * of_all / u64::from(ranks),
        scratch_bytes_max: templates.scratch_bytes_max,
        by_symmetry,
        traffic,
    }
}

/// Simulates messages of `bytes` bytes between each rank and its six neighbours in a periodic grid of three
/// dimensions. Returns the time in picoseconds. The ranks of a node are neighbours in the first dimension.
pub fn simulate_stencil(nodes: &NodeMap, bytes: u64, network: &Network, seed: u64) -> u64 {
    let ranks = nodes.ranks();
    let grid = grid(ranks);
    let plan = |rank| stencil(rank, ranks, grid).plan(false);
    let templates = Templates::new(&plan, (bytes, false), PeerNumbering::Cyclic(ranks), ranks);
    Engine::new(&templates, Some(nodes), network, seed).run().0
}

/// Returns three factors whose product is `ranks`, as equal as possible, the largest first.
fn grid(ranks: u32) -> [u32; 3] {
    let divisor = |n: u32, most: u32| (1..=most).rev().find(|by| n.is_multiple_of(*by)).unwrap_or(1);
    let last = divisor(ranks, ranks.isqrt().min((1..).find(|n: &u32| n.pow(3) >= ranks).unwrap_or(1)));
    let middle = divisor(ranks / last, (ranks / last).isqrt());
    let mut grid = [ranks / last / middle, middle, last];
    grid.sort_unstable_by(|a, b| b.cmp(a));
    grid
}

fn stencil(rank: u32, size: u32, grid: [u32; 3]) -> Neighbors {
    let stride = [1, grid[0], grid[0] * grid[1]];
    let moved = |dimension: usize, by: u32| {
        let at = rank / stride[dimension] % grid[dimension];
        rank - at * stride[dimension] + (at + by) % grid[dimension] * stride[dimension]
    };
    let both = |dimension| [grid[dimension] - 1, 1].map(|by| Some(moved(dimension, by)));
    let peers: Vec<_> = (0..3).flat_map(both).collect();
    Neighbors { rank, size, to: peers.clone(), from: peers, paired: true }
}

impl SimulationReport {
    /// The line with the names of the columns, under which reports are printed as rows.
    pub const HEADER: &str = "collective            algorithm        ranks        bytes      time us     messages   message bytes    steps schedule B  scratch B";
}

impl std::fmt::Display for SimulationReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<21} {:<13} {:>8} {:>12} {:>12.3} {:>12} {:>15} {:>8} {:>10} {:>10}",
            self.algorithm.collective().name(),
            self.algorithm.name(),
            self.ranks,
            self.bytes,
            self.time_ps as f64 / 1e6,
            self.messages,
            self.message_bytes,
            self.steps_max,
            self.schedule_bytes_max,
            self.scratch_bytes_max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALGORITHMS, Growth};

    const L: u64 = 1_000_000;
    const O: u64 = 200_000;
    const G: u64 = 40;

    /// Returns a network for tests on which messages are not cut into chunks, and only links and ports take
    /// time.
    fn plain() -> Network {
        let between = LinkCosts { streams: true, ..Network::default().between };
        Network {
            between,
            copy_per_byte_ps: 0,
            reduce_per_byte_ps: 0,
            chunk_bytes: u64::MAX,
            ..Network::default()
        }
    }

    fn time(algorithm: Algorithm, ranks: u32, bytes: u64, network: &Network) -> u64 {
        simulate(algorithm, ranks, bytes, None, network, 0).time_ps
    }

    #[test]
    fn rounds_cost_what_the_formula_says() {
        for ranks in [2u32, 3, 4, 7, 8, 100, 1 << 20] {
            let log = u64::from(ranks.next_power_of_two().ilog2());
            assert_eq!(
                time(Algorithm::BarrierDissemination, ranks, 0, &plain()),
                log * (L + 2 * O),
                "{ranks}"
            );
        }
        for ranks in [2u32, 8, 64, 1 << 20] {
            let log = u64::from(ranks.ilog2());
            assert_eq!(
                time(Algorithm::AllreduceDoubling, ranks, 1000, &plain()),
                log * (L + 2 * O + 1000 * G),
                "{ranks}"
            );
        }
        for ranks in [2u64, 5, 16, 1000] {
            let hop = L + 2 * O + 4096 * G;
            assert_eq!(time(Algorithm::AllgatherRing, ranks as u32, 4096, &plain()), (ranks - 1) * hop);
            // The vector is cut into blocks of 4096 bytes.
            assert_eq!(
                time(Algorithm::AllreduceRing, ranks as u32, 4096 * ranks, &plain()),
                2 * (ranks - 1) * hop
            );
        }
    }

    #[test]
    fn a_pipeline_costs_what_the_formula_says() {
        let network = Network { chunk_bytes: 1 << 10, ..plain() };
        let (bytes, chunk) = (1 << 20, 1 << 10);
        for ranks in [2, 3, 10, 100] {
            let hops = u64::from(ranks) - 1;
            let expected = hops * (L + 2 * O) + bytes * G + (hops - 1) * chunk * G;
            assert_eq!(time(Algorithm::BcastChain, ranks, bytes, &network), expected, "{ranks}");
        }
    }

    #[test]
    fn the_root_of_a_linear_gather_takes_all_bytes_by_one_port() {
        let bytes = 1 << 20;
        for ranks in [2, 10, 1000] {
            let all = u64::from(ranks - 1) * bytes * G;
            assert_eq!(time(Algorithm::GatherLinear, ranks, bytes, &plain()), L + 2 * O + all);
        }
    }

    #[test]
    fn one_rank_stands_for_all_where_the_table_says_so() {
        let network = Network { chunk_bytes: 64, ..Network::default() };
        for facts in ALGORITHMS.iter().filter(|facts| !facts.inter) {
            for ranks in (1..=20).chain([32, 33]) {
                for bytes in [0, 100, 10_000] {
                    let all = simulate_by(
                        facts.algorithm,
                        (ranks, None),
                        bytes * u64::from(ranks),
                        &network,
                        1,
                        false,
                    );
                    let one = simulate_by(
                        facts.algorithm,
                        (ranks, None),
                        bytes * u64::from(ranks),
                        &network,
                        1,
                        true,
                    );
                    assert_eq!(SimulationReport { by_symmetry: false, traffic: all.traffic, ..one }, all);
                }
            }
        }
    }

    #[test]
    fn a_node_has_one_port_and_its_ranks_need_none_among_themselves() {
        let (ranks, bytes) = (8, 1 << 20);
        let on = |nodes| Some(Arc::new(NodeMap::by_node(ranks, nodes)));
        let gather = |nodes: Option<Arc<NodeMap>>| {
            simulate(Algorithm::GatherLinear, ranks, bytes, nodes.as_ref(), &plain(), 0).time_ps
        };
        let within = plain().within;
        // The root's processor copies all.
        let copies = 7 * (within.overhead_ps + bytes * within.per_byte_ps);
        assert_eq!(gather(on(1)), within.overhead_ps + within.latency_ps + copies);
        assert_eq!(gather(on(8)), gather(None));
        // Four ranks of the other node share its port.
        let shared = simulate(Algorithm::AlltoallLinear, 2, bytes, None, &plain(), 0).time_ps;
        let four = Some(Arc::new(NodeMap::by_node(8, 2)));
        let all = simulate(Algorithm::AlltoallLinear, 8, bytes, four.as_ref(), &plain(), 0).time_ps;
        assert!(all > 16 * bytes * G && all > 15 * shared, "{all} {shared}");
    }

    #[test]
    fn proxies_take_the_place_of_ranks() {
        let (ranks, bytes) = (8, 1 << 20);
        let nodes = Some(Arc::new(NodeMap::by_node(ranks, 2)));
        let time = |algorithm, proxies| {
            simulate(algorithm, ranks, bytes, nodes.as_ref(), &Network { proxies, ..plain() }, 0).time_ps
        };
        let hosts = |algorithm, per_node| time(algorithm, Some(Proxies::Host(per_node)));
        for facts in ALGORITHMS.iter().filter(|facts| !facts.inter) {
            assert_eq!(hosts(facts.algorithm, 4), time(facts.algorithm, None), "{facts:?}");
            assert!(hosts(facts.algorithm, 1) >= hosts(facts.algorithm, 2), "{facts:?}");
        }
        // One proxy copies what four ranks would: three blocks for each.
        let copies = 12 * (plain().within.overhead_ps + bytes * plain().within.per_byte_ps);
        assert!(hosts(Algorithm::AlltoallLinear, 1) > copies);
        // A DPU that does it copies nothing within its host: the port carries all 7 blocks of the 4 ranks.
        let port = 28 * bytes * G;
        let dpu = Dpu::BLUEFIELD_3.direct();
        let dpu = time(Algorithm::AlltoallLinear, Some(Proxies::Dpu(dpu, StepsWithinNode::Dpu)));
        assert!((port..port + port / 10).contains(&dpu), "{dpu} {port}");
    }

    fn over_nodes_gains(nodes: u32, per_node: u32) {
        let map = Arc::new(NodeMap::round_robin(per_node * nodes, nodes));
        let time = |algorithm, bytes| {
            simulate(algorithm, map.ranks(), bytes, Some(&map), &Network::default(), 0).time_ps
        };
        let faster = |over, flat, bytes| {
            let (over_time, flat_time) = (time(over, bytes), time(flat, bytes));
            assert!(over_time < flat_time, "{over:?} {nodes} {bytes}: {over_time} {flat_time}");
        };
        faster(Algorithm::AllreduceNodes, Algorithm::AllreduceDoubling, 8);
        faster(Algorithm::AllreduceNodesSplit, Algorithm::AllreduceRabenseifner, 64 << 10);
        faster(Algorithm::AllgatherNodesSplit, Algorithm::AllgatherRing, 64 << 10);
        faster(Algorithm::AlltoallNodes, Algorithm::AlltoallLinear, 8);
    }

    #[test]
    fn algorithms_over_nodes_gain() {
        over_nodes_gains(3, 5);
        over_nodes_gains(16, 8);
    }

    #[test]
    #[ignore = "half a minute; a part of `make test-more`"]
    fn algorithms_over_many_nodes_gain() {
        over_nodes_gains(100, 8);
    }

    #[test]
    fn skew_delays_and_is_replayed_by_its_seed() {
        let network = Network { skew_ps: 50_000_000, ..Network::default() };
        for facts in ALGORITHMS.iter().filter(|facts| facts.growth == Growth::Logarithmic) {
            let run = |seed| simulate(facts.algorithm, 100, 1000, None, &network, seed);
            assert_eq!(run(1), run(1));
            assert_ne!(run(1).time_ps, run(2).time_ps, "{:?}", facts.algorithm);
            assert!(run(1).time_ps > 40_000_000);
        }
    }

    fn logarithmic_plans_are_small(ranks: u32) {
        for facts in ALGORITHMS.iter().filter(|facts| facts.growth == Growth::Logarithmic) {
            let report = simulate(facts.algorithm, ranks, 64, None, &Network::default(), 0);
            assert!(report.schedule_bytes_mean < 4096, "{report:?}");
        }
    }

    #[test]
    fn plans_of_logarithmic_algorithms_stay_small() {
        logarithmic_plans_are_small(1 << 10);
    }

    #[test]
    #[ignore = "half a minute; a part of `make test-more`"]
    fn plans_of_logarithmic_algorithms_stay_small_on_many_ranks() {
        logarithmic_plans_are_small(1 << 13);
    }
}
