//! Every algorithm, 1 to 33 ranks, every root, odd counts, in place, commutative and not: against the
//! definition. Odd counts are: none, one, fewer elements than ranks, uneven counts with zeros among them.
use outboard_schedule::verify::{Operation, run, structure};
use outboard_schedule::{ALGORITHMS, Collective, Facts};

fn all_cases(facts: &Facts, sizes: impl Iterator<Item = u32>) {
    let collective = facts.collective;
    let in_places: &[bool] = if collective.may_be_in_place() { &[false, true] } else { &[false] };
    let commutes: &[bool] =
        if collective.reduces() && !facts.needs_commutative { &[false, true] } else { &[true] };
    for size in sizes {
        for root in 0..if collective.is_rooted() { size } else { 1 } {
            for (&in_place, &commutative) in
                in_places.iter().flat_map(|i| commutes.iter().map(move |c| (i, c)))
            {
                let mut operation = Operation {
                    collective,
                    size,
                    root,
                    in_place,
                    commutative,
                    first_group: 0,
                    counts: vec![],
                    neighbors: vec![],
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
}

/// Two orders, or one where there are many roots to try anyway.
fn seeds(seed: u64, size: u32) -> impl Iterator<Item = u64> {
    [seed, !seed].into_iter().take(if size < 12 { 2 } else { 1 })
}

/// The counts to try.
fn counts(operation: &Operation) -> Vec<Vec<u32>> {
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
            Collective::$collective.algorithms().for_each(|facts| all_cases(facts, 1..=33));
        }
    )*};
}
collectives! {
    barrier Barrier bcast Bcast gather Gather gatherv Gatherv scatter Scatter scatterv Scatterv
    allgather Allgather allgatherv Allgatherv alltoall Alltoall alltoallv Alltoallv alltoallw Alltoallw
    reduce Reduce allreduce Allreduce
    reduce_scatter_block ReduceScatterBlock reduce_scatter ReduceScatter scan Scan exscan Exscan
}

/// Between two groups of 1 to 8 ranks each: every root on either side, lengths that differ by direction and
/// may be none.
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
                    let mut operation = Operation {
                        collective,
                        size,
                        root,
                        in_place,
                        commutative,
                        first_group,
                        counts,
                        neighbors: vec![],
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
