//! The table of algorithms for each collective, by size. The first rule that fits is taken.
//!
//! A setting such as OUTBOARD_ALLREDUCE=ring overrules the table for all calls for which its algorithm is
//! right. All ranks know `bytes` alike (`Call::bytes`); v- and w-collectives have one algorithm, since no
//! rank knows all counts.

use error::{Class, Result, fail};
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
}

const fn rule(algorithm: Algorithm, bytes_max: u64, ranks_min: u32) -> Rule {
    Rule { algorithm, bytes_max, ranks_min }
}

const ANY: u64 = u64::MAX;

/// All rules, in the order of trial. The last one of a collective fits all calls and operators.
pub const RULES: &[Rule] = &[
    rule(BarrierDissemination, ANY, 1),
    rule(BcastScatterRing, 64 << 10, 64),
    rule(BcastBinomial, 512 << 10, 1),
    rule(BcastScatterRing, ANY, 8),
    rule(BcastChain, ANY, 1),
    rule(GatherBinomial, 2 << 10, 8),
    rule(GatherLinear, ANY, 1),
    rule(GathervLinear, ANY, 1),
    rule(ScatterBinomial, 2 << 10, 8),
    rule(ScatterLinear, ANY, 1),
    rule(ScattervLinear, ANY, 1),
    rule(AllgatherBruck, 1 << 10, 3),
    rule(AllgatherLinear, 64 << 10, 1),
    rule(AllgatherRing, ANY, 1),
    rule(AllgathervLinear, ANY, 1),
    rule(AlltoallBruck, 256, 8),
    rule(AlltoallLinear, 32 << 10, 1),
    rule(AlltoallPairwise, ANY, 9),
    rule(AlltoallLinear, ANY, 1),
    rule(AlltoallvLinear, ANY, 1),
    rule(AlltoallwLinear, ANY, 1),
    rule(ReduceRabenseifner, ANY, 64),
    rule(ReduceBinomial, 64 << 10, 1),
    rule(ReduceRabenseifner, ANY, 3),
    rule(ReduceBinomial, ANY, 1),
    rule(AllreduceDoubling, 16 << 10, 1),
    rule(AllreduceRabenseifner, 1 << 20, 1),
    rule(AllreduceRing, ANY, 1),
    rule(AllreduceDoubling, ANY, 1),
    rule(ReduceScatterBlockHalving, 16 << 10, 3),
    rule(ReduceScatterBlockPairwise, ANY, 9),
    rule(ReduceScatterBlockLinear, ANY, 1),
    rule(ReduceScatterHalving, 16 << 10, 3),
    rule(ReduceScatterPairwise, ANY, 9),
    rule(ReduceScatterLinear, ANY, 1),
    rule(ScanDoubling, 64 << 10, 3),
    rule(ScanChain, ANY, 1),
    rule(ExscanDoubling, 64 << 10, 3),
    rule(ExscanChain, ANY, 1),
];

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

    /// The algorithm for a call, the same on all ranks.
    pub fn of(&self, collective: Collective, bytes: u64, ranks: u32, commutative: bool) -> Algorithm {
        let right = |algorithm: Algorithm| {
            let facts = algorithm.facts();
            facts.collective == collective && (commutative || !facts.needs_commutative)
        };
        let overruled = self.overrides.iter().copied().find(|algorithm| right(*algorithm));
        let by_rule = || {
            let fits =
                |rule: &&Rule| right(rule.algorithm) && bytes <= rule.bytes_max && ranks >= rule.ranks_min;
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
        for collective in Collective::ALL {
            for ranks in 1..130 {
                for bytes in (0..24).map(|power| (1 << power) - 1) {
                    for commutative in [true, false] {
                        let algorithm = choice.of(collective, bytes, ranks, commutative);
                        assert_eq!(algorithm.collective(), collective);
                        assert!(commutative || !algorithm.facts().needs_commutative);
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
        assert_eq!(choice.of(Collective::Allreduce, 8, 4, true), AllreduceRing);
        assert_ne!(choice.of(Collective::Allreduce, 8, 4, false), AllreduceRing);
        let message = Choice::from_settings(&with("rign")).unwrap_err().to_string();
        assert!(message.starts_with("OUTBOARD_ALLREDUCE=rign") && message.contains("ring"), "{message}");
    }
}
