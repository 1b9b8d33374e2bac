// SPDX-License-Identifier: BSD-3-Clause
//! Checks schedules of neighborhood collectives: on all small Cartesian grids, on random graphs with repeated
//! edges and loops, and with mistakes put in.
use outboard_schedule::verify::{CollectiveCase, verify};
use outboard_schedule::{Action, Collective, Neighbors};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};

/// Returns every neighborhood collective among these neighbours, with several counts.
fn operations(neighbors: &[Neighbors]) -> impl Iterator<Item = CollectiveCase> {
    use Collective::*;
    let cases = [
        (Allgather, vec![3]),
        (Alltoall, vec![2]),
        (Allgatherv, vec![3, 0, 1, 0, 2]),
        (Alltoallv, vec![3, 0, 1, 0, 0, 2, 1, 5, 4]),
        (Alltoallw, vec![0]),
    ];
    let (size, neighbors) = (neighbors.len() as u32, neighbors.to_vec());
    cases.into_iter().map(move |(collective, counts)| CollectiveCase {
        collective,
        size,
        root: 0,
        in_place: false,
        commutative: true,
        in_ranks: false,
        first_group: 0,
        counts,
        neighbors: neighbors.clone(),
        nodes: None,
    })
}

fn all_right(neighbors: &[Neighbors]) {
    for operation in operations(neighbors) {
        let plans = operation.plans_among_neighbors();
        verify(&operation, &plans, 0..3).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// Returns the neighbours of each rank in a Cartesian grid, whose ranks are in row-major order (MPI 5.0,
/// section 8.2).
fn grid(dims: &[u32], periods: u32) -> Vec<Neighbors> {
    let size = dims.iter().product();
    let all = (0..size).map(|rank| {
        let mut to = Vec::new();
        for (dim, extent) in dims.iter().enumerate() {
            let stride: u32 = dims[dim + 1..].iter().product();
            let at = rank / stride % extent;
            let (first, last) = (at == 0, at == extent - 1);
            let open = periods & 1 << dim == 0;
            to.push((!(first && open)).then(|| rank - at * stride + (at + extent - 1) % extent * stride));
            to.push((!(last && open)).then(|| rank - at * stride + (at + 1) % extent * stride));
        }
        Neighbors { rank, size, from: to.clone(), to, paired: true }
    });
    all.collect()
}

#[test]
fn grids() {
    let extents = || 1..=3u32;
    for a in extents() {
        (0..2).for_each(|periods| all_right(&grid(&[a], periods)));
        for b in extents() {
            (0..4).for_each(|periods| all_right(&grid(&[a, b], periods)));
            for c in extents() {
                (0..8).for_each(|periods| all_right(&grid(&[a, b, c], periods)));
            }
        }
    }
}

/// Returns the neighbours of each rank in a random graph. Edges may repeat, and each rank lists its own in
/// random order.
fn graph(random: &mut SmallRng) -> Vec<Neighbors> {
    let size = random.random_range(1..8);
    let alone = |rank| Neighbors { rank, size, to: vec![], from: vec![], paired: false };
    let mut all: Vec<Neighbors> = (0..size).map(alone).collect();
    for _ in 0..random.random_range(0..30) {
        let (from, to) = (random.random_range(0..size), random.random_range(0..size));
        all[from as usize].to.push(Some(to));
        all[to as usize].from.push(Some(from));
    }
    for here in &mut all {
        here.to.shuffle(random);
        here.from.shuffle(random);
    }
    all
}

#[test]
fn graphs() {
    let mut random = SmallRng::seed_from_u64(11);
    (0..200).for_each(|_| all_right(&graph(&mut random)));
}

// Goal: the verifier refuses two receives from one process that change places, unless all blocks are alike.
#[test]
fn exchanged_edges_are_refused() {
    let mut tried = 0;
    for dims in [&[2u32][..], &[2, 3], &[1, 2, 2]] {
        let neighbors = grid(dims, 7);
        for operation in
            operations(&neighbors).filter(|operation| operation.collective == Collective::Alltoall)
        {
            let mut plans = operation.plans_among_neighbors();
            let mut ends: Vec<&mut u32> = Vec::new();
            for step in &mut plans[0].steps {
                if let Action::Recv { edge, .. } = &mut step.action {
                    ends.push(edge);
                }
            }
            let [.., one, other] = &mut ends[..] else { continue };
            if **one != **other {
                std::mem::swap(*one, *other);
                tried += 1;
                assert!(verify(&operation, &plans, [1]).is_err());
            }
        }
    }
    assert!(tried > 0);
}
