//! The table of algorithms for each collective, by size. The first rule that fits is taken.
//!
//! A setting such as OUTBOARD_ALLREDUCE=ring overrules the table for all calls for which its algorithm is
//! right. All ranks know `bytes` alike (`Call::bytes`); except for allgatherv, v- and w-collectives have one
//! algorithm, since no rank knows all counts.

use Spans::*;
use error::{Class, Result, fail};
use schedule::NodeMap;
use schedule::algorithm::Algorithm::{self, *};
use schedule::algorithm::Collective;
use settings::Settings;

/// `algorithm` serves calls of up to `bytes_max` bytes on at least `ranks_min` ranks.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The algorithm, which names the collective.
    pub algorithm: Algorithm,
    /// The longest call (the vector of a reduction or broadcast, otherwise one rank's block).
    pub bytes_max: u64,
    /// The smallest comm.
    pub ranks_min: u32,
    /// For which comms.
    pub spans: Spans,
}

/// The comms that a rule is for, by their nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spans {
    /// Any.
    Any,
    /// Those of several nodes, of which some have several ranks.
    Nodes,
    /// Those whose nodes have consecutive ranks, too.
    NodesInOrder,
    /// `Nodes` of at most so many.
    FewNodes(u32),
    /// Those of so many nodes, least and most, each with several ranks.
    FullNodes(u32, u32),
}

const fn rule(algorithm: Algorithm, bytes_max: u64, ranks_min: u32) -> Rule {
    Rule { algorithm, bytes_max, ranks_min, spans: Spans::Any }
}

/// For comms of several nodes.
const fn over(spans: Spans, algorithm: Algorithm, bytes_max: u64) -> Rule {
    Rule { algorithm, bytes_max, ranks_min: 3, spans }
}

const ANY: u64 = u64::MAX;

/// All rules, in the order of trial. The last one of a collective fits all calls and operators.
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
    rule(ReduceRabenseifner, ANY, 64),
    rule(ReduceBinomial, 64 << 10, 1),
    rule(ReduceRabenseifner, ANY, 3),
    rule(ReduceBinomial, ANY, 1),
    over(Nodes, AllreduceNodes, 16 << 10),
    over(Nodes, AllreduceNodesSplit, ANY),
    rule(AllreduceDoubling, 16 << 10, 1),
    rule(AllreduceRabenseifner, 1 << 20, 1),
    rule(AllreduceRing, ANY, 1),
    rule(AllreduceDoubling, ANY, 1),
    over(Nodes, ReduceScatterBlockNodes, ANY),
    rule(ReduceScatterBlockHalving, 16 << 10, 3),
    rule(ReduceScatterBlockPairwise, ANY, 9),
    rule(ReduceScatterBlockLinear, ANY, 1),
    over(Nodes, ReduceScatterNodes, ANY),
    rule(ReduceScatterHalving, 16 << 10, 3),
    rule(ReduceScatterPairwise, ANY, 9),
    rule(ReduceScatterLinear, ANY, 1),
    rule(ScanDoubling, 64 << 10, 3),
    rule(ScanChain, ANY, 1),
    rule(ExscanDoubling, 64 << 10, 3),
    rule(ExscanChain, ANY, 1),
];

impl Spans {
    fn has(self, nodes: Option<&NodeMap>) -> bool {
        match (self, nodes) {
            (Any, _) => true,
            (_, None) => false,
            (Nodes, _) => true,
            (NodesInOrder, Some(nodes)) => nodes.is_in_order(),
            (FewNodes(most), Some(nodes)) => nodes.nodes() <= most,
            (FullNodes(least, most), Some(nodes)) => {
                (least..=most).contains(&nodes.nodes()) && nodes.members_min() > 1
            }
        }
    }
}

/// The table with the user's overrides.
#[derive(Clone, Debug)]
pub struct Choice {
    overrides: Vec<Algorithm>,
}

impl Choice {
    /// Reads the settings. Errors: a name that is no algorithm, with the list of those that are.
    pub fn from_settings(settings: &Settings) -> Result<Choice> {
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
        Ok(Choice { overrides })
    }

    /// Whether the user has chosen an algorithm.
    pub fn is_overruled(&self, collective: Collective) -> bool {
        self.overrides.iter().any(|algorithm| algorithm.facts().collective == collective)
    }

    /// The algorithm for a call, the same on all ranks. `nodes`: where they are, as in `Params`.
    pub fn of(
        &self,
        collective: Collective,
        bytes: u64,
        ranks: u32,
        commutative: bool,
        nodes: Option<&NodeMap>,
    ) -> Algorithm {
        let right = |algorithm: Algorithm| {
            algorithm.collective() == collective && algorithm.is_right(commutative, nodes)
        };
        let overruled = self.overrides.iter().copied().find(|algorithm| right(*algorithm));
        let by_rule = || {
            let fits = |rule: &&Rule| {
                right(rule.algorithm)
                    && bytes <= rule.bytes_max
                    && ranks >= rule.ranks_min
                    && rule.spans.has(nodes)
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

    // Goal: every call has an algorithm that is right for it, whatever its size, and none of the rules is
    // dead.
    #[test]
    fn the_rules_cover_all_calls() {
        let choice = Choice { overrides: vec![] };
        let mut taken = std::collections::HashSet::new();
        let maps = |ranks| {
            let make = [NodeMap::by_node, NodeMap::round_robin].into_iter().filter(move |_| ranks >= 8);
            std::iter::once(None).chain(make.map(move |make| Some(make(ranks, ranks / 4))))
        };
        for (collective, ranks) in Collective::ALL.into_iter().flat_map(|c| (1..130).map(move |n| (c, n))) {
            for nodes in maps(ranks) {
                for bytes in (0..24).map(|power| (1 << power) - 1) {
                    for commutative in [true, false] {
                        let algorithm = choice.of(collective, bytes, ranks, commutative, nodes.as_ref());
                        assert_eq!(algorithm.collective(), collective);
                        assert!(algorithm.is_right(commutative, nodes.as_ref()));
                        taken.insert(algorithm);
                    }
                }
            }
        }
        for rule in RULES {
            assert!(taken.contains(&rule.algorithm), "{:?} is never chosen", rule.algorithm);
        }
    }

    #[test]
    fn a_setting_overrules_where_it_is_right() {
        let with = |name: &str| Settings { allreduce: name.into(), ..Settings::default() };
        let choice = Choice::from_settings(&with("ring")).unwrap();
        assert_eq!(choice.of(Collective::Allreduce, 8, 4, true, None), AllreduceRing);
        assert_ne!(choice.of(Collective::Allreduce, 8, 4, false, None), AllreduceRing);
        let message = Choice::from_settings(&with("rign")).unwrap_err().to_string();
        assert!(message.starts_with("OUTBOARD_ALLREDUCE=rign") && message.contains("ring"), "{message}");
    }
}
