// SPDX-License-Identifier: BSD-3-Clause
//! Checks every algorithm against its definition: 1 to 33 ranks, every root, unusual counts, in place,
//! commutative and not. Unusual counts are none, one, fewer elements than ranks, and uneven counts with
//! zeros.
use outboard_schedule::verify::{CollectiveCase, run, structure};
use outboard_schedule::{ALGORITHMS, AlgorithmFacts, Collective, CombineOrder, NodeMap};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::sync::Arc;

/// Checks an algorithm in all cases for `size` ranks on these nodes. It tries all roots if there are few
/// ranks, or no nodes.
fn all_cases(facts: &AlgorithmFacts, size: u32, nodes: Option<Arc<NodeMap>>) {
    let collective = facts.collective;
    let in_places: &[bool] = if collective.may_be_in_place() { &[false, true] } else { &[false] };
    let right = facts.algorithm.is_right(false, nodes.as_deref());
    let commutes: &[bool] = if collective.reduces() && right { &[false, true] } else { &[true] };
    let step = if nodes.is_some() && size > 6 { size / 2 } else { 1 };
    for root in (0..if collective.is_rooted() { size } else { 1 }).step_by(step as usize) {
        for (&in_place, &commutative) in in_places.iter().flat_map(|i| commutes.iter().map(move |c| (i, c))) {
            let mut operation = CollectiveCase {
                collective,
                size,
                root,
                in_place,
                commutative,
                in_ranks: facts.order == CombineOrder::InRanks,
                first_group: 0,
                counts: vec![],
                neighbors: vec![],
                nodes: nodes.clone(),
            };
            let plans = operation.plans(facts.algorithm);
            structure(&operation, &plans).unwrap_or_else(|what| panic!("{:?}: {what}", facts.algorithm));
            for (seed, counts) in (u64::from(root * 100 + size)..).zip(counts(&operation)) {
                operation.counts = counts;
                for seed in seeds(seed, size) {
                    run(&operation, &plans, seed)
                        .unwrap_or_else(|what| panic!("{:?}: {what}", facts.algorithm));
                }
            }
        }
    }
}

/// Returns every way to put up to 6 ranks on nodes, and some ways for 7 to 20 ranks: node by node, round
/// robin, uneven.
fn node_maps() -> impl Iterator<Item = NodeMap> {
    // Each rank joins an earlier one's node or opens the next: all partitions of a set.
    let mut small: Vec<Vec<u32>> = vec![vec![0]];
    for size in 1..6 {
        let longer = small.iter().filter(|names| names.len() == size).flat_map(|names| {
            let next = names.iter().max().map_or(0, |most| most + 1);
            (0..=next).map(|name| names.iter().copied().chain([name]).collect()).collect::<Vec<Vec<u32>>>()
        });
        small.extend(longer.collect::<Vec<_>>());
    }
    let random = &mut SmallRng::seed_from_u64(3);
    let mut large = Vec::new();
    for size in 7..=20 {
        let nodes = random.random_range(2..=size / 2);
        large.extend([NodeMap::by_node(size, nodes), NodeMap::round_robin(size, nodes)]);
        large.push(NodeMap::new((0..size).map(|_| random.random_range(0..nodes))));
        let mut uneven: Vec<u32> = (0..size).map(|_| random.random_range(0..nodes)).collect();
        uneven.sort_unstable();
        large.push(NodeMap::new(uneven));
    }
    small.into_iter().map(NodeMap::new).chain(large)
}

/// Goal: algorithms by nodes are right for every placement of up to 6 ranks, and for some of 7 to 20.
#[test]
fn over_nodes() {
    let facts: Vec<_> = ALGORITHMS.iter().filter(|facts| facts.name.starts_with("nodes")).collect();
    assert_eq!(facts.len(), 16);
    let maps: Vec<_> = node_maps().map(Arc::new).collect();
    assert_eq!(maps.len(), 1 + 2 + 5 + 15 + 52 + 203 + 4 * 14);
    for facts in facts {
        for map in &maps {
            all_cases(facts, map.ranks(), Some(map.clone()));
        }
    }
}

/// Returns the seeds to try: two, or one where there are many roots to try anyway.
fn seeds(seed: u64, size: u32) -> impl Iterator<Item = u64> {
    [seed, !seed].into_iter().take(if size < 12 { 2 } else { 1 })
}

/// Returns the counts of elements with which to try an operation.
fn counts(operation: &CollectiveCase) -> Vec<Vec<u32>> {
    use Collective::*;
    let size = operation.size;
    match operation.collective {
        Barrier => vec![vec![]],
        Bcast | Reduce | Allreduce | Scan | Exscan => {
            vec![vec![0], vec![1], vec![size.saturating_sub(1)], vec![size + 3]]
        }
        Gatherv | Scatterv | Allgatherv | ReduceScatter | Alltoallv | Alltoallw => {
            vec![vec![0], vec![3, 0, 1, 0, 0, 2, 1], vec![0, 2, 5], vec![1]]
        }
        _ => vec![vec![0], vec![1], vec![3]],
    }
}

macro_rules! collectives {
    ($($name:ident $collective:ident)*) => {$(
        #[test]
        fn $name() {
            for facts in Collective::$collective.algorithms() {
                (1..=33).for_each(|size| all_cases(facts, size, None));
            }
        }
    )*};
}
collectives! {
    barrier Barrier bcast Bcast gather Gather gatherv Gatherv scatter Scatter scatterv Scatterv
    allgather Allgather allgatherv Allgatherv alltoall Alltoall alltoallv Alltoallv alltoallw Alltoallw
    reduce Reduce allreduce Allreduce
    reduce_scatter_block ReduceScatterBlock reduce_scatter ReduceScatter scan Scan exscan Exscan
}

/// Goal: algorithms between two groups are right for groups of 1 to 8 ranks, every root in either group, and
/// lengths that differ by direction and may be 0.
#[test]
fn between_groups() {
    for facts in ALGORITHMS.iter().filter(|facts| facts.inter) {
        for (first_group, second_group) in
            (1..=8).flat_map(|first| (1..=8).map(move |second| (first, second)))
        {
            let (collective, size) = (facts.collective, first_group + second_group);
            for root in 0..if collective.is_rooted() { size } else { 1 } {
                for commutative in if collective.reduces() { vec![false, true] } else { vec![true] } {
                    let counts = vec![];
                    let in_place = false;
                    let mut operation = CollectiveCase {
                        collective,
                        size,
                        root,
                        in_place,
                        commutative,
                        in_ranks: false,
                        first_group,
                        counts,
                        neighbors: vec![],
                        nodes: None,
                    };
                    let plans = operation.plans(facts.algorithm);
                    structure(&operation, &plans)
                        .unwrap_or_else(|what| panic!("{:?}: {what}", facts.algorithm));
                    for counts in [vec![0], vec![3], vec![0, 2], vec![2, 0], vec![3, 0, 1, 0, 0, 2, 1]] {
                        operation.counts = counts;
                        for seed in seeds(u64::from(root * 100 + size), size) {
                            run(&operation, &plans, seed)
                                .unwrap_or_else(|what| panic!("{:?}: {what}", facts.algorithm));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_collective_is_tried() {
    assert_eq!(Collective::ALL.len(), 17);
    assert!(ALGORITHMS.iter().all(|facts| Collective::ALL.contains(&facts.collective)));
}
