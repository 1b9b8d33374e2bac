// SPDX-License-Identifier: BSD-3-Clause
//! Assigns the vertices of a topology to processes, so that neighbours run near each other (MPI 5.0, section
//! 8.3).

use crate::topology::GraphEdge;
use std::cmp::Reverse;

/// Where a process runs: the numbers of its package, of its group of cores with one last-level cache, and of
/// its core.
pub type ProcessLocality = [u32; 3];

/// Returns how far apart two processes run: 0 on one core, 1 with one last-level cache, 2 in one package,
/// otherwise 3.
fn distance(a: &ProcessLocality, b: &ProcessLocality) -> u64 {
    (0..3).find(|level| a[*level] != b[*level]).map_or(0, |level| 3 - level as u64)
}

/// Whether some pairs of processes are farther apart than others, so that the order of processes matters.
pub fn matters(places: &[ProcessLocality]) -> bool {
    let mut pairs =
        places.iter().flat_map(|a| places.iter().filter(move |b| *b != a).map(move |b| distance(a, b)));
    let first = pairs.next();
    pairs.any(|other| Some(other) != first)
}

/// Returns, for each vertex, the process that gets it. There are as many vertices as processes. Returns None
/// if the given order is as good.
///
/// The method is greedy graph growing: it fills groups of near processes one by one, and adds to a group the
/// vertex with the heaviest edges into the group. The cost of an order is the sum of weight times distance
/// over all edges.
pub fn arrange(places: &[ProcessLocality], edges: &[GraphEdge]) -> Option<Vec<u32>> {
    let mut near: Vec<Vec<(usize, u64)>> = vec![Vec::new(); places.len()];
    for (from, to, weight) in edges {
        near[*from as usize].push((*to as usize, *weight));
        near[*to as usize].push((*from as usize, *weight));
    }
    let mut slots: Vec<usize> = (0..places.len()).collect();
    slots.sort_by_key(|slot| places[*slot]);
    // For each vertex: the weight of its edges into the current group, and to all vertices that are assigned.
    let mut pull = vec![(0u64, 0u64); places.len()];
    let mut process = vec![None; places.len()];
    let mut group = None;
    for slot in slots {
        let here = &places[slot][..2];
        if group.replace(here) != Some(here) {
            pull.iter_mut().for_each(|pull| pull.0 = 0);
        }
        let free = (0..places.len()).filter(|vertex| process[*vertex].is_none());
        let vertex = free.max_by_key(|vertex| (pull[*vertex], Reverse(*vertex))).expect("as many as slots");
        process[vertex] = Some(slot as u32);
        for (neighbor, weight) in &near[vertex] {
            pull[*neighbor].0 += weight;
            pull[*neighbor].1 += weight;
        }
    }
    let found: Vec<u32> = process.into_iter().map(|slot| slot.expect("every slot took one")).collect();
    let cost = |process: &dyn Fn(u32) -> u32| -> u128 {
        let of = |edge: &GraphEdge| {
            let [from, to] = [edge.0, edge.1].map(|vertex| &places[process(vertex) as usize]);
            u128::from(edge.2) * u128::from(distance(from, to))
        };
        edges.iter().map(of).sum()
    };
    (cost(&|vertex| found[vertex as usize]) < cost(&|vertex| vertex)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Cart;

    // Goal: a ring dealt out over two packages is cut twice instead of everywhere; each process gets one
    // vertex.
    #[test]
    fn a_ring_over_two_packages() {
        let places: Vec<ProcessLocality> = (0..8).map(|rank| [rank % 2, rank % 2, rank]).collect();
        assert!(matters(&places));
        let ring = Cart::new(&[8], &[1]).unwrap();
        let found = arrange(&places, &ring.edges()).expect("dealt out is the worst");
        let cut =
            |vertex: usize| places[found[vertex] as usize][0] != places[found[(vertex + 1) % 8] as usize][0];
        assert_eq!((0..8).filter(|vertex| cut(*vertex)).count(), 2);
        let mut all = found.clone();
        all.sort_unstable();
        assert_eq!(all, (0..8).collect::<Vec<_>>());
    }

    // Goal: weights count, and a good order stays.
    #[test]
    fn the_heavier_edges_are_short() {
        let places = [[0, 0, 0], [0, 0, 1], [1, 1, 2], [1, 1, 3]];
        let edges = [(0, 3, 9), (1, 2, 9), (0, 1, 1), (2, 3, 1)];
        let found = arrange(&places, &edges).unwrap();
        let package = |vertex: usize| places[found[vertex] as usize][0];
        assert!(package(0) == package(3) && package(1) == package(2));
        assert_eq!(arrange(&places, &[(0, 1, 9), (2, 3, 9), (1, 2, 1)]), None);
        assert_eq!(arrange(&places, &[]), None);
        assert!(!matters(&[[0, 0, 0], [0, 0, 1], [0, 0, 2]]) && !matters(&[[0, 0, 0]]));
    }
}
