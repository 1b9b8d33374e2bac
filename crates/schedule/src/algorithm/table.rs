// SPDX-License-Identifier: BSD-3-Clause
//! The table of all collective algorithms: their names, what they need, and how they scale.
use super::*;
use crate::{CombineOrder, NodeMap, Schedule};

/// A collective operation of MPI. Nonblocking and persistent forms count as the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Collective {
    Barrier,
    Bcast,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Alltoallw,
    Reduce,
    Allreduce,
    ReduceScatterBlock,
    ReduceScatter,
    Scan,
    Exscan,
}

/// An algorithm for a collective. The name gives both: `AllreduceRing` is a ring for MPI_Allreduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Algorithm {
    BarrierDissemination,
    BarrierTree,
    BarrierNodes,
    BcastBinomial,
    BcastScatterRing,
    BcastChain,
    BcastNodes,
    BcastNodesSplit,
    GatherLinear,
    GatherBinomial,
    GatherNodes,
    GathervLinear,
    ScatterLinear,
    ScatterBinomial,
    ScatterNodes,
    ScattervLinear,
    AllgatherBruck,
    AllgatherRing,
    AllgatherLinear,
    AllgatherNodes,
    AllgatherNodesSplit,
    AllgathervBruck,
    AllgathervRing,
    AllgathervLinear,
    AllgathervNodes,
    AllgathervNodesSplit,
    AlltoallBruck,
    AlltoallLinear,
    AlltoallPairwise,
    AlltoallNodes,
    AlltoallvLinear,
    AlltoallvPairwise,
    AlltoallwLinear,
    AlltoallwPairwise,
    ReduceLinear,
    ReduceSplit,
    ReduceBinomial,
    ReduceRabenseifner,
    ReduceChain,
    ReduceNodes,
    ReduceNodesSplit,
    AllreduceLinear,
    AllreduceSplit,
    AllreduceDoubling,
    AllreduceRabenseifner,
    AllreduceRing,
    AllreduceNodes,
    AllreduceNodesSplit,
    ReduceScatterBlockLinear,
    ReduceScatterBlockPairwise,
    ReduceScatterBlockHalving,
    ReduceScatterBlockNodes,
    ReduceScatterLinear,
    ReduceScatterPairwise,
    ReduceScatterHalving,
    ReduceScatterNodes,
    ScanLinear,
    ScanDoubling,
    ScanChain,
    ExscanLinear,
    ExscanDoubling,
    ExscanChain,
    BarrierInter,
    BcastInter,
    GatherInter,
    GathervInter,
    ScatterInter,
    ScattervInter,
    AllgatherInter,
    AllgathervInter,
    AlltoallInter,
    AlltoallvInter,
    AlltoallwInter,
    ReduceInter,
    AllreduceInter,
    ReduceScatterBlockInter,
    ReduceScatterInter,
}

/// How the number of steps, in the schedules of all n ranks together, grows with n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The schedules of n ranks have at most about n log n steps together, or this number times the ranks of
    /// a node. So a million ranks can be simulated.
    Logarithmic,
    /// The schedules of n ranks have about n squared steps together, about n for each rank.
    Linear,
}

/// How peers can be numbered relative to each rank so that the schedules of all ranks are equal, apart from
/// the numbers of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// No numbering of peers makes the schedules of all ranks equal.
    None,
    /// A peer's number is how many ranks after this rank it comes, modulo the number of ranks.
    Cyclic,
    /// A peer's number is the exclusive or of the peer's rank and this rank, if the number of ranks is a
    /// power of two.
    Xor,
}

/// What is known of one algorithm: a row of the table `ALGORITHMS`.
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmFacts {
    /// The algorithm that this row of the table describes.
    pub algorithm: Algorithm,
    /// The collective for which the algorithm makes schedules.
    pub collective: Collective,
    /// The algorithm's name in settings, such as `ring` in `OUTBOARD_ALLREDUCE=ring`.
    pub name: &'static str,
    /// The order in which the algorithm combines contributions. It decides for which operators the results
    /// are right.
    pub order: CombineOrder,
    /// Whether the algorithm is for the two groups of an intercommunicator. If not, it is for an
    /// intracommunicator.
    pub inter: bool,
    /// How the number of steps grows with the number of ranks.
    pub growth: Growth,
    /// How peers can be numbered so that all ranks have equal schedules, if the operator is commutative and
    /// the call is not in place.
    pub symmetry: Symmetry,
    /// One line for users that says what the algorithm does.
    pub summary: &'static str,
    plan: fn(&Params) -> Schedule,
}

impl Collective {
    /// All collectives, in the order of the variants.
    pub const ALL: [Collective; 17] = [
        Collective::Barrier,
        Collective::Bcast,
        Collective::Gather,
        Collective::Gatherv,
        Collective::Scatter,
        Collective::Scatterv,
        Collective::Allgather,
        Collective::Allgatherv,
        Collective::Alltoall,
        Collective::Alltoallv,
        Collective::Alltoallw,
        Collective::Reduce,
        Collective::Allreduce,
        Collective::ReduceScatterBlock,
        Collective::ReduceScatter,
        Collective::Scan,
        Collective::Exscan,
    ];

    /// Returns the name of the collective in settings and messages, such as `reduce-scatter`.
    pub fn name(self) -> &'static str {
        match self {
            Collective::Barrier => "barrier",
            Collective::Bcast => "bcast",
            Collective::Gather => "gather",
            Collective::Gatherv => "gatherv",
            Collective::Scatter => "scatter",
            Collective::Scatterv => "scatterv",
            Collective::Allgather => "allgather",
            Collective::Allgatherv => "allgatherv",
            Collective::Alltoall => "alltoall",
            Collective::Alltoallv => "alltoallv",
            Collective::Alltoallw => "alltoallw",
            Collective::Reduce => "reduce",
            Collective::Allreduce => "allreduce",
            Collective::ReduceScatterBlock => "reduce-scatter-block",
            Collective::ReduceScatter => "reduce-scatter",
            Collective::Scan => "scan",
            Collective::Exscan => "exscan",
        }
    }

    /// Whether one rank of the comm is the root of this collective.
    pub fn is_rooted(self) -> bool {
        use Collective::*;
        matches!(self, Bcast | Gather | Gatherv | Scatter | Scatterv | Reduce)
    }

    /// Whether each member passes counts of its own, which the other members need not know.
    #[inline]
    pub fn has_counts(self) -> bool {
        use Collective::*;
        matches!(self, Gatherv | Scatterv | Allgatherv | Alltoallv | Alltoallw)
    }

    /// Whether the collective combines contributions by an operator.
    pub fn reduces(self) -> bool {
        use Collective::*;
        matches!(self, Reduce | Allreduce | ReduceScatterBlock | ReduceScatter | Scan | Exscan)
    }

    /// Whether MPI allows MPI_IN_PLACE in this collective.
    pub fn may_be_in_place(self) -> bool {
        !matches!(self, Collective::Barrier | Collective::Bcast)
    }

    /// Returns the algorithms for this collective on an intracommunicator.
    pub fn algorithms(self) -> impl Iterator<Item = &'static AlgorithmFacts> {
        ALGORITHMS.iter().filter(move |facts| facts.collective == self && !facts.inter)
    }

    /// Returns the algorithm for this collective on an intercommunicator. None for scans, which have none
    /// (MPI 5.0, section 6.2.2).
    pub fn between(self) -> Option<Algorithm> {
        ALGORITHMS.iter().find(|facts| facts.collective == self && facts.inter).map(|facts| facts.algorithm)
    }
}

impl Algorithm {
    /// Returns the algorithm with this name in settings, for the collective on an intracommunicator. None if
    /// there is none.
    pub fn find(collective: Collective, name: &str) -> Option<Algorithm> {
        collective.algorithms().find(|facts| facts.name == name).map(|facts| facts.algorithm)
    }

    /// Returns the row of this algorithm in the table.
    pub fn facts(self) -> &'static AlgorithmFacts {
        &ALGORITHMS[self as usize]
    }

    /// Returns the collective for which this algorithm makes schedules.
    pub fn collective(self) -> Collective {
        self.facts().collective
    }

    /// Returns the name of the algorithm in settings, such as `ring`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Whether the algorithm gives right results on these nodes, for an operator that is `commutative` or
    /// not. For a commutative operator it always does.
    pub fn is_right(self, commutative: bool, nodes: Option<&NodeMap>) -> bool {
        commutative
            || match self.facts().order {
                CombineOrder::InRanks | CombineOrder::Kept => true,
                CombineOrder::KeptInOrder => nodes.is_none_or(NodeMap::is_in_order),
                CombineOrder::Lost => false,
            }
    }

    /// Makes the schedule of the rank `params.rank`. Panics if the algorithm cannot be used with `params`.
    pub fn plan(self, params: &Params) -> Schedule {
        let facts = self.facts();
        assert!(params.rank < params.size && params.root < params.size, "{self:?}: {params:?}");
        assert_eq!(params.first_group > 0, facts.inter, "{self:?}: {params:?}");
        let nodes = params.nodes.as_deref();
        assert!(nodes.is_none_or(|nodes| nodes.ranks() == params.size), "{self:?}: {params:?}");
        assert!(self.is_right(params.commutative, nodes), "{self:?}: {params:?}");
        (facts.plan)(params)
    }
}

const fn row(
    algorithm: Algorithm,
    collective: Collective,
    name: &'static str,
    growth: Growth,
    symmetry: Symmetry,
    plan: fn(&Params) -> Schedule,
    summary: &'static str,
) -> AlgorithmFacts {
    AlgorithmFacts {
        algorithm,
        collective,
        name,
        order: CombineOrder::Kept,
        inter: false,
        growth,
        symmetry,
        summary,
        plan,
    }
}

/// Returns the row `facts` for an algorithm that combines from left to right in the order of ranks.
const fn in_ranks(facts: AlgorithmFacts) -> AlgorithmFacts {
    AlgorithmFacts { order: CombineOrder::InRanks, ..facts }
}

/// Makes the row of an algorithm for the two groups of an intercommunicator.
const fn between(
    algorithm: Algorithm,
    collective: Collective,
    plan: fn(&Params) -> Schedule,
    summary: &'static str,
) -> AlgorithmFacts {
    let facts = row(algorithm, collective, "inter", Growth::Linear, Symmetry::None, plan, summary);
    AlgorithmFacts { inter: true, ..facts }
}

/// The facts about all algorithms, in the order of the enum `Algorithm`.
#[rustfmt::skip]
pub static ALGORITHMS: [AlgorithmFacts; 77] = {
    use Algorithm as A;
    use Collective as C;
    use Growth::{Linear, Logarithmic};
    use Symmetry::{Cyclic, None, Xor};
    [
        row(A::BarrierDissemination, C::Barrier, "dissemination", Logarithmic, Cyclic, barrier::dissemination, "all ranks in log2(n) rounds"),
        row(A::BarrierTree, C::Barrier, "tree", Logarithmic, None, barrier::tree, "up and down a binomial tree, fewest messages"),
        row(A::BarrierNodes, C::Barrier, "nodes", Logarithmic, None, barrier::nodes, "up in each node, dissemination among nodes, down"),
        row(A::BcastBinomial, C::Bcast, "binomial", Logarithmic, None, bcast::binomial, "binomial tree"),
        row(A::BcastScatterRing, C::Bcast, "scatter-ring", Linear, None, bcast::scatter_ring, "binomial scatter, ring allgather"),
        row(A::BcastChain, C::Bcast, "chain", Logarithmic, None, bcast::chain, "streaming chain"),
        row(A::BcastNodes, C::Bcast, "nodes", Logarithmic, None, bcast::nodes, "binomial tree of nodes, then one in each"),
        row(A::BcastNodesSplit, C::Bcast, "nodes-split", Linear, None, bcast::nodes_split, "a share for each leader of a node, scatter and ring among nodes"),
        row(A::GatherLinear, C::Gather, "linear", Logarithmic, None, gather::linear, "all ranks to the root at once"),
        row(A::GatherBinomial, C::Gather, "binomial", Logarithmic, None, gather::binomial, "binomial tree"),
        row(A::GatherNodes, C::Gather, "nodes", Logarithmic, None, gather::nodes, "in each node, then up a binomial tree of nodes"),
        row(A::GathervLinear, C::Gatherv, "linear", Logarithmic, None, gather::linear, "all ranks to the root at once"),
        row(A::ScatterLinear, C::Scatter, "linear", Logarithmic, None, scatter::linear, "the root to all ranks at once"),
        row(A::ScatterBinomial, C::Scatter, "binomial", Logarithmic, None, scatter::binomial, "binomial tree"),
        row(A::ScatterNodes, C::Scatter, "nodes", Logarithmic, None, scatter::nodes, "down a binomial tree of nodes, then in each"),
        row(A::ScattervLinear, C::Scatterv, "linear", Logarithmic, None, scatter::linear, "the root to all ranks at once"),
        row(A::AllgatherBruck, C::Allgather, "bruck", Logarithmic, None, allgather::bruck, "log2(n) rounds of doubling ranges"),
        row(A::AllgatherRing, C::Allgather, "ring", Linear, Cyclic, allgather::ring, "streaming ring"),
        row(A::AllgatherLinear, C::Allgather, "linear", Linear, Cyclic, allgather::linear, "all ranks to all ranks at once"),
        row(A::AllgatherNodes, C::Allgather, "nodes", Logarithmic, None, allgather::nodes, "in each node, bruck among nodes, down in each"),
        row(A::AllgatherNodesSplit, C::Allgather, "nodes-split", Linear, None, allgather::nodes_split, "ring of nodes, by all leaders at once"),
        row(A::AllgathervBruck, C::Allgatherv, "bruck", Logarithmic, None, allgather::bruck, "log2(n) rounds of doubling ranges"),
        row(A::AllgathervRing, C::Allgatherv, "ring", Linear, Cyclic, allgather::ring, "streaming ring"),
        row(A::AllgathervLinear, C::Allgatherv, "linear", Linear, Cyclic, allgather::linear, "all ranks to all ranks at once"),
        row(A::AllgathervNodes, C::Allgatherv, "nodes", Logarithmic, None, allgather::nodes, "in each node, bruck among nodes, down in each"),
        row(A::AllgathervNodesSplit, C::Allgatherv, "nodes-split", Linear, None, allgather::nodes_split, "ring of nodes, by all leaders at once"),
        row(A::AlltoallBruck, C::Alltoall, "bruck", Linear, Cyclic, alltoall::bruck, "log2(n) rounds of n/2 blocks"),
        row(A::AlltoallLinear, C::Alltoall, "linear", Linear, Cyclic, alltoall::linear, "all ranks to all ranks at once"),
        row(A::AlltoallPairwise, C::Alltoall, "pairwise", Linear, Cyclic, alltoall::pairwise, "one partner a round"),
        row(A::AlltoallNodes, C::Alltoall, "nodes", Linear, None, alltoall::nodes, "one message between each two nodes"),
        row(A::AlltoallvLinear, C::Alltoallv, "linear", Linear, Cyclic, alltoall::linear, "all ranks to all ranks at once"),
        row(A::AlltoallvPairwise, C::Alltoallv, "pairwise", Linear, Cyclic, alltoall::pairwise_unequal, "one partner a round"),
        row(A::AlltoallwLinear, C::Alltoallw, "linear", Linear, Cyclic, alltoall::linear, "all ranks to all ranks at once"),
        row(A::AlltoallwPairwise, C::Alltoallw, "pairwise", Linear, Cyclic, alltoall::pairwise_unequal, "one partner a round"),
        in_ranks(row(A::ReduceLinear, C::Reduce, "linear", Logarithmic, None, reduce::linear, "all ranks to the root at once")),
        in_ranks(row(A::ReduceSplit, C::Reduce, "split", Linear, None, reduce::split, "each rank sums a share of all vectors for the root")),
        row(A::ReduceBinomial, C::Reduce, "binomial", Logarithmic, None, reduce::binomial, "binomial tree of whole vectors"),
        row(A::ReduceRabenseifner, C::Reduce, "rabenseifner", Logarithmic, None, reduce::rabenseifner, "recursive halving, binomial gather"),
        row(A::ReduceChain, C::Reduce, "chain", Logarithmic, None, reduce::chain, "two streaming chains that meet at the root"),
        AlgorithmFacts { order: CombineOrder::KeptInOrder, ..row(A::ReduceNodes, C::Reduce, "nodes", Logarithmic, None, reduce::nodes, "binomial tree in each node, then one of nodes") },
        AlgorithmFacts { order: CombineOrder::KeptInOrder, ..row(A::ReduceNodesSplit, C::Reduce, "nodes-split", Logarithmic, None, reduce::nodes_split, "a share for each leader of a node, rabenseifner among nodes") },
        in_ranks(row(A::AllreduceLinear, C::Allreduce, "linear", Linear, None, allreduce::linear, "all ranks to all ranks at once")),
        in_ranks(row(A::AllreduceSplit, C::Allreduce, "split", Linear, None, allreduce::split, "each rank sums a share of all vectors for all")),
        row(A::AllreduceDoubling, C::Allreduce, "doubling", Logarithmic, Xor, allreduce::doubling, "recursive doubling of whole vectors"),
        row(A::AllreduceRabenseifner, C::Allreduce, "rabenseifner", Logarithmic, Xor, allreduce::rabenseifner, "recursive halving, then doubling"),
        AlgorithmFacts { order: CombineOrder::Lost, ..row(A::AllreduceRing, C::Allreduce, "ring", Linear, Cyclic, allreduce::ring, "streaming ring, twice around") },
        AlgorithmFacts { order: CombineOrder::KeptInOrder, ..row(A::AllreduceNodes, C::Allreduce, "nodes", Logarithmic, None, allreduce::nodes, "up in each node, doubling among nodes, down") },
        AlgorithmFacts { order: CombineOrder::KeptInOrder, ..row(A::AllreduceNodesSplit, C::Allreduce, "nodes-split", Logarithmic, None, allreduce::nodes_split, "a share for each leader of a node, rabenseifner among nodes") },
        in_ranks(row(A::ReduceScatterBlockLinear, C::ReduceScatterBlock, "linear", Linear, None, reduce_scatter::linear, "all ranks to all ranks at once")),
        row(A::ReduceScatterBlockPairwise, C::ReduceScatterBlock, "pairwise", Linear, Cyclic, reduce_scatter::pairwise, "one partner a round"),
        row(A::ReduceScatterBlockHalving, C::ReduceScatterBlock, "halving", Logarithmic, None, reduce_scatter::halving, "recursive halving, then delivery"),
        AlgorithmFacts { order: CombineOrder::KeptInOrder, ..row(A::ReduceScatterBlockNodes, C::ReduceScatterBlock, "nodes", Linear, None, reduce_scatter::nodes, "a sum of each node for each rank") },
        in_ranks(row(A::ReduceScatterLinear, C::ReduceScatter, "linear", Linear, None, reduce_scatter::linear, "all ranks to all ranks at once")),
        row(A::ReduceScatterPairwise, C::ReduceScatter, "pairwise", Linear, Cyclic, reduce_scatter::pairwise, "one partner a round"),
        row(A::ReduceScatterHalving, C::ReduceScatter, "halving", Logarithmic, None, reduce_scatter::halving, "recursive halving, then delivery"),
        AlgorithmFacts { order: CombineOrder::KeptInOrder, ..row(A::ReduceScatterNodes, C::ReduceScatter, "nodes", Linear, None, reduce_scatter::nodes_unequal, "a sum of each node for each rank") },
        in_ranks(row(A::ScanLinear, C::Scan, "linear", Linear, None, scan::linear, "each rank to all higher ones at once")),
        row(A::ScanDoubling, C::Scan, "doubling", Logarithmic, None, scan::doubling, "recursive doubling"),
        in_ranks(row(A::ScanChain, C::Scan, "chain", Logarithmic, None, scan::chain, "streaming chain")),
        in_ranks(row(A::ExscanLinear, C::Exscan, "linear", Linear, None, exscan::linear, "each rank to all higher ones at once")),
        row(A::ExscanDoubling, C::Exscan, "doubling", Logarithmic, None, exscan::doubling, "recursive doubling"),
        in_ranks(row(A::ExscanChain, C::Exscan, "chain", Logarithmic, None, exscan::chain, "streaming chain")),
        between(A::BarrierInter, C::Barrier, barrier::dissemination, "all ranks of both groups in log2(n) rounds"),
        between(A::BcastInter, C::Bcast, inter::bcast, "across, then down a binomial tree"),
        between(A::GatherInter, C::Gather, inter::gather, "the other group to the root at once"),
        between(A::GathervInter, C::Gatherv, inter::gather, "the other group to the root at once"),
        between(A::ScatterInter, C::Scatter, inter::scatter, "the root to the other group at once"),
        between(A::ScattervInter, C::Scatterv, inter::scatter, "the root to the other group at once"),
        between(A::AllgatherInter, C::Allgather, inter::allgather, "all ranks to the other group at once"),
        between(A::AllgathervInter, C::Allgatherv, inter::allgather, "all ranks to the other group at once"),
        between(A::AlltoallInter, C::Alltoall, inter::alltoall, "all ranks to the other group at once"),
        between(A::AlltoallvInter, C::Alltoallv, inter::alltoall, "all ranks to the other group at once"),
        between(A::AlltoallwInter, C::Alltoallw, inter::alltoall, "all ranks to the other group at once"),
        between(A::ReduceInter, C::Reduce, inter::reduce, "up a binomial tree, then across"),
        between(A::AllreduceInter, C::Allreduce, inter::allreduce, "up both trees, across, down both"),
        between(A::ReduceScatterBlockInter, C::ReduceScatterBlock, inter::reduce_scatter, "up a binomial tree, then across"),
        between(A::ReduceScatterInter, C::ReduceScatter, inter::reduce_scatter, "up both trees, across, dealt out by the leaders"),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_enum_and_names_are_unique() {
        for (at, facts) in ALGORITHMS.iter().enumerate() {
            assert_eq!(facts.algorithm as usize, at);
            let found = if facts.inter {
                facts.collective.between()
            } else {
                Algorithm::find(facts.collective, facts.name)
            };
            assert_eq!(found, Some(facts.algorithm));
            let full = format!("{:?}{}", facts.collective, facts.name.replace('-', "")).to_lowercase();
            assert_eq!(format!("{:?}", facts.algorithm).to_lowercase(), full);
        }
        assert_eq!(Algorithm::find(Collective::Barrier, "ring"), None);
        assert!(Collective::ALL.iter().all(|c| c.algorithms().count() > 0));
    }

    #[test]
    fn logarithmic_algorithms_have_few_steps_and_no_rank_has_more_than_it_must() {
        for facts in ALGORITHMS.iter().filter(|f| f.growth == Growth::Logarithmic) {
            let size: u32 = 1 << 12;
            let nodes = Some(Arc::new(NodeMap::by_node(size, size / 4)));
            let params = |rank| Params { nodes: nodes.clone(), ..Params::new(rank, size) };
            let all: usize = (0..size).map(|rank| facts.algorithm.plan(&params(rank)).steps.len()).sum();
            assert!(all <= size as usize * 12 * 6, "{:?} has {all} steps", facts.algorithm);
        }
    }
}
