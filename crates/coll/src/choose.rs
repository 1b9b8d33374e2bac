// SPDX-License-Identifier: BSD-3-Clause
//! The table of algorithms for each collective, by size. The first rule that fits is used.
//!
//! A setting such as OUTBOARD_ALLREDUCE=ring overrides the table for all calls for which its algorithm is
//! right. All ranks know `bytes` alike (`Call::bytes`). Except for allgatherv, each v- and w-collective has
//! one algorithm, since no rank knows all counts.
//!
//! The order in which a reduction combines follows from its algorithm (`schedule::order`).

use crate::nodes::Placement;
use Spans::*;
use error::{Class, Result, fail};
use schedule::algorithm::Algorithm::{self, *};
use schedule::algorithm::Collective;
use schedule::order;
use settings::{Reproducible, Settings};

/// A row of the table: `algorithm` serves calls of up to `bytes_max` bytes on comms of at least `ranks_min`
/// ranks.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The algorithm that the rule chooses, which also says for which collective the rule is.
    pub algorithm: Algorithm,
    /// The longest call, in bytes, that the rule serves. In a reduction or broadcast the length of the vector
    /// counts, otherwise the length of one rank's block.
    pub bytes_max: u64,
    /// The fewest ranks of a comm that the rule serves.
    pub ranks_min: u32,
    /// On which nodes the ranks of a comm must be for this rule.
    pub spans: Spans,
}

/// The comms that a rule is for, by their nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spans {
    /// The rule is for any comm.
    Any,
    /// Comms on one node with so few ranks that every carrier of a reduction combines in the order of ranks.
    InRanks,
    /// Comms on several nodes, some of which have several ranks.
    Nodes,
    /// Comms like `Nodes` in which the ranks of each node are also consecutive.
    NodesInOrder,
    /// Comms like `Nodes`, on at most this many nodes.
    FewNodes(u32),
    /// Comms on at least as many nodes as the first number says and at most as many as the second. Each of
    /// these nodes has several ranks.
    FullNodes(u32, u32),
}

const fn rule(algorithm: Algorithm, bytes_max: u64, ranks_min: u32) -> Rule {
    Rule { algorithm, bytes_max, ranks_min, spans: Spans::Any }
}

/// Makes a rule for comms of at least three ranks. `spans` says on which nodes these ranks must be.
const fn over(spans: Spans, algorithm: Algorithm, bytes_max: u64) -> Rule {
    Rule { algorithm, bytes_max, ranks_min: 3, spans }
}

/// Makes a rule for reductions whose operands are combined in the order of ranks.
const fn in_ranks(algorithm: Algorithm, bytes_max: u64) -> Rule {
    Rule { algorithm, bytes_max, ranks_min: 1, spans: Spans::InRanks }
}

const ANY: u64 = u64::MAX;

/// All rules, in the order in which they are tried. The last rule of a collective fits all calls and
/// operators.
pub const RULES: &[Rule] = &[
    over(Nodes, BarrierNodes, ANY),
    rule(BarrierDissemination, ANY, 1),
    over(Nodes, BcastNodes, 64 << 10),
    over(FullNodes(4, 64), BcastNodesSplit, ANY),
    over(Nodes, BcastNodes, ANY),
    rule(BcastScatterRing, 64 << 10, 64),
    rule(BcastBinomial, 512 << 10, 1),
    rule(BcastScatterRing, ANY, 8),
    rule(BcastChain, ANY, 1),
    over(Nodes, GatherNodes, 2 << 10),
    rule(GatherBinomial, 2 << 10, 8),
    rule(GatherLinear, ANY, 1),
    rule(GathervLinear, ANY, 1),
    over(Nodes, ScatterNodes, 2 << 10),
    rule(ScatterBinomial, 2 << 10, 8),
    rule(ScatterLinear, ANY, 1),
    rule(ScattervLinear, ANY, 1),
    over(NodesInOrder, AllgatherNodes, 1 << 10),
    over(Nodes, AllgatherNodesSplit, ANY),
    rule(AllgatherBruck, 1 << 10, 3),
    rule(AllgatherLinear, 64 << 10, 1),
    rule(AllgatherRing, ANY, 1),
    over(NodesInOrder, AllgathervNodes, 1 << 10),
    over(Nodes, AllgathervNodesSplit, ANY),
    rule(AllgathervLinear, ANY, 1),
    over(FewNodes(32), AlltoallNodes, 2 << 10),
    rule(AlltoallBruck, 256, 8),
    rule(AlltoallLinear, 32 << 10, 1),
    rule(AlltoallPairwise, ANY, 9),
    rule(AlltoallLinear, ANY, 1),
    rule(AlltoallvLinear, ANY, 1),
    rule(AlltoallwLinear, ANY, 1),
    over(Nodes, ReduceNodes, 16 << 10),
    over(Nodes, ReduceNodesSplit, ANY),
    in_ranks(ReduceLinear, 64 << 10),
    in_ranks(ReduceSplit, ANY),
    rule(ReduceRabenseifner, ANY, 64),
    rule(ReduceBinomial, 64 << 10, 1),
    rule(ReduceRabenseifner, ANY, 3),
    rule(ReduceBinomial, ANY, 1),
    over(Nodes, AllreduceNodes, 16 << 10),
    over(Nodes, AllreduceNodesSplit, ANY),
    in_ranks(AllreduceLinear, 4 << 10),
    in_ranks(AllreduceSplit, ANY),
    rule(AllreduceDoubling, 16 << 10, 1),
    rule(AllreduceRabenseifner, 1 << 20, 1),
    rule(AllreduceRing, ANY, 1),
    rule(AllreduceDoubling, ANY, 1),
    over(Nodes, ReduceScatterBlockNodes, ANY),
    in_ranks(ReduceScatterBlockLinear, ANY),
    rule(ReduceScatterBlockHalving, 16 << 10, 3),
    rule(ReduceScatterBlockPairwise, ANY, 9),
    rule(ReduceScatterBlockLinear, ANY, 1),
    over(Nodes, ReduceScatterNodes, ANY),
    in_ranks(ReduceScatterLinear, ANY),
    rule(ReduceScatterHalving, 16 << 10, 3),
    rule(ReduceScatterPairwise, ANY, 9),
    rule(ReduceScatterLinear, ANY, 1),
    in_ranks(ScanLinear, 16 << 10),
    in_ranks(ScanChain, ANY),
    rule(ScanDoubling, 64 << 10, 3),
    rule(ScanChain, ANY, 1),
    in_ranks(ExscanLinear, 16 << 10),
    in_ranks(ExscanChain, ANY),
    rule(ExscanDoubling, 64 << 10, 3),
    rule(ExscanChain, ANY, 1),
];

impl Spans {
    fn has(self, ranks: u32, placement: &Placement) -> bool {
        match (self, placement) {
            (Any, _) => true,
            (InRanks, placement) => *placement == Placement::Together && ranks <= order::IN_RANKS_MAX,
            (_, Placement::Together | Placement::Apart) => false,
            (Nodes, _) => true,
            (NodesInOrder, Placement::Over(nodes)) => nodes.is_in_order(),
            (FewNodes(most), Placement::Over(nodes)) => nodes.nodes() <= most,
            (FullNodes(least, most), Placement::Over(nodes)) => {
                (least..=most).contains(&nodes.nodes()) && nodes.members_min() > 1
            }
        }
    }
}

/// The table of rules, and the algorithms that the user has chosen instead.
#[derive(Clone, Debug)]
pub struct AlgorithmChoice {
    overrides: Vec<Algorithm>,
    /// Whether the operands of a reduction may be combined in an order that follows the placement of the
    /// ranks on nodes.
    placed: bool,
}

impl AlgorithmChoice {
    /// Makes the choice from the settings. Errors: a setting has a value that is not the name of an
    /// algorithm; the error's message lists the names.
    pub fn from_settings(settings: &Settings) -> Result<AlgorithmChoice> {
        let mut overrides = Vec::new();
        for collective in Collective::ALL {
            let name = setting_of(collective, settings);
            if name == "auto" {
                continue;
            }
            let Some(algorithm) = Algorithm::find(collective, name) else {
                let known: Vec<_> = collective.algorithms().map(|facts| facts.name).collect();
                let variable = collective.name().to_uppercase().replace('-', "_");
                fail!(Class::Other, "OUTBOARD_{variable}={name}: allowed: auto, {}", known.join(", "));
            };
            overrides.push(algorithm);
        }
        Ok(AlgorithmChoice { overrides, placed: settings.reproducible == Reproducible::Run })
    }

    /// Whether the user has chosen an algorithm for this collective, so that the table is not asked.
    pub fn is_overruled(&self, collective: Collective) -> bool {
        self.overrides.iter().any(|algorithm| algorithm.facts().collective == collective)
    }

    /// Returns the algorithm for a call of `collective` with `bytes` bytes (`Call::bytes`) on `ranks` ranks.
    /// All ranks get the same algorithm.
    pub fn of(
        &self,
        collective: Collective,
        bytes: u64,
        ranks: u32,
        commutative: bool,
        placement: &Placement,
    ) -> Algorithm {
        let nodes = placement.map().map(|map| &**map);
        let right = |algorithm: Algorithm| {
            algorithm.collective() == collective && algorithm.is_right(commutative, nodes)
        };
        let placement = if self.placed || !collective.reduces() { placement } else { &Placement::Together };
        let overruled = self.overrides.iter().copied().find(|algorithm| right(*algorithm));
        let by_rule = || {
            let fits = |rule: &&Rule| {
                right(rule.algorithm)
                    && bytes <= rule.bytes_max
                    && ranks >= rule.ranks_min
                    && rule.spans.has(ranks, placement)
            };
            RULES.iter().find(fits).expect("the last rule of a collective fits all calls").algorithm
        };
        overruled.unwrap_or_else(by_rule)
    }
}

fn setting_of(collective: Collective, settings: &Settings) -> &str {
    match collective {
        Collective::Barrier => &settings.barrier,
        Collective::Bcast => &settings.bcast,
        Collective::Gather => &settings.gather,
        Collective::Gatherv => &settings.gatherv,
        Collective::Scatter => &settings.scatter,
        Collective::Scatterv => &settings.scatterv,
        Collective::Allgather => &settings.allgather,
        Collective::Allgatherv => &settings.allgatherv,
        Collective::Alltoall => &settings.alltoall,
        Collective::Alltoallv => &settings.alltoallv,
        Collective::Alltoallw => &settings.alltoallw,
        Collective::Reduce => &settings.reduce,
        Collective::Allreduce => &settings.allreduce,
        Collective::ReduceScatterBlock => &settings.reduce_scatter_block,
        Collective::ReduceScatter => &settings.reduce_scatter,
        Collective::Scan => &settings.scan,
        Collective::Exscan => &settings.exscan,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedule::{CombineOrder, NodeMap};

    fn choice(settings: Settings) -> AlgorithmChoice {
        AlgorithmChoice::from_settings(&settings).unwrap()
    }

    fn placements(ranks: u32) -> impl Iterator<Item = Placement> {
        let make = [NodeMap::by_node, NodeMap::round_robin].into_iter().filter(move |_| ranks >= 8);
        let over = make.map(move |make| Placement::of(make(ranks, ranks / 4)));
        [Placement::Together, Placement::Apart].into_iter().chain(over)
    }

    // Goal: every call has an algorithm that is right for it, whatever its size, and none of the rules is
    // dead.
    #[test]
    fn the_rules_cover_all_calls() {
        let choice = choice(Settings::default());
        let mut taken = std::collections::HashSet::new();
        for (collective, ranks) in Collective::ALL.into_iter().flat_map(|c| (1..130).map(move |n| (c, n))) {
            for placement in placements(ranks) {
                for bytes in (0..24).map(|power| (1 << power) - 1) {
                    for commutative in [true, false] {
                        let algorithm = choice.of(collective, bytes, ranks, commutative, &placement);
                        assert_eq!(algorithm.collective(), collective);
                        assert!(algorithm.is_right(commutative, placement.map().map(|map| &**map)));
                        taken.insert(algorithm);
                    }
                }
            }
        }
        for rule in RULES {
            assert!(taken.contains(&rule.algorithm), "{:?} is never chosen", rule.algorithm);
        }
    }

    // Goal: where slots or devices may carry a reduction out, too, schedules combine in their order, at every
    // length; OUTBOARD_REPRODUCIBLE=placement makes the placement irrelevant.
    #[test]
    fn reductions_combine_in_one_order() {
        let placed = choice(Settings::default());
        let anywhere = choice(Settings { reproducible: Reproducible::Placement, ..Settings::default() });
        let reductions = || Collective::ALL.into_iter().filter(|collective| collective.reduces());
        for (collective, ranks) in reductions().flat_map(|c| (1..40).map(move |n| (c, n))) {
            for bytes in (0..24).map(|power| (1 << power) - 1) {
                for commutative in [true, false] {
                    let of = |choice: &AlgorithmChoice, placement: &Placement| {
                        choice.of(collective, bytes, ranks, commutative, placement)
                    };
                    let together = of(&placed, &Placement::Together);
                    let in_ranks = together.facts().order == CombineOrder::InRanks;
                    assert!(in_ranks || ranks > order::IN_RANKS_MAX, "{together:?} {ranks}");
                    assert!(placements(ranks).all(|placement| of(&anywhere, &placement) == together));
                }
            }
        }
    }

    #[test]
    fn a_setting_overrules_where_it_is_right() {
        let with = |name: &str| Settings { allreduce: name.into(), ..Settings::default() };
        let choice = choice(with("ring"));
        let of = |commutative| choice.of(Collective::Allreduce, 8, 4, commutative, &Placement::Together);
        assert_eq!(of(true), AllreduceRing);
        assert_ne!(of(false), AllreduceRing);
        let message = AlgorithmChoice::from_settings(&with("rign")).unwrap_err().to_string();
        assert!(message.starts_with("OUTBOARD_ALLREDUCE=rign") && message.contains("ring"), "{message}");
    }
}
