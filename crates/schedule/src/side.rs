// SPDX-License-Identifier: BSD-3-Clause
//! Decides which process carries out each step of a schedule, where proxies run on another computer (a DPU):
//! the rank's host or the DPU.
//!
//! An edge (a send and its receive) between two ranks of a host belongs to the host, which carries it out in
//! shared memory, so that its bytes never pass the DPU's port. An edge to another host belongs to the DPU.
//! Copies and reductions belong to the host until bytes from another host take part in them. So the leader of
//! a host sums what its ranks have, DPUs exchange these sums, and the result comes back once to each host.

use crate::{Action, Schedule, Step};

/// Which process carries a step out, where proxies run on another computer (a DPU).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The rank itself, or a proxy on the rank's host, carries the step out.
    Host,
    /// The rank's proxy on the other computer (the DPU) carries the step out.
    Dpu,
}

impl Schedule {
    /// Returns for each step which process carries it out. `is_here` returns whether a rank is on this rank's
    /// host.
    pub fn sides(&self, is_here: impl Fn(u32) -> bool) -> Vec<Side> {
        let mut sides: Vec<Side> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let is_dpu = match step.action {
                Action::Send { to: peer, .. } | Action::Recv { from: peer, .. } => !is_here(peer),
                Action::Copy { .. } | Action::Reduce { .. } => self.has_far_bytes(step, &sides),
            };
            sides.push(if is_dpu { Side::Dpu } else { Side::Host });
        }
        sides
    }

    /// Whether a copy or reduction reads bytes that the DPU has received or computed.
    fn has_far_bytes(&self, step: &Step, sides: &[Side]) -> bool {
        self.after_of(step).iter().any(|after| {
            let earlier = &self.steps[after.step as usize];
            sides[after.step as usize] == Side::Dpu && !matches!(earlier.action, Action::Send { .. })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALGORITHMS, Algorithm, CombineOrder, NodeMap, Params};
    use std::sync::Arc;

    /// Returns each rank's schedule, and which process carries out each of its steps.
    fn divided(algorithm: Algorithm, nodes: &Arc<NodeMap>, root: u32) -> Vec<(Schedule, Vec<Side>)> {
        let size = nodes.ranks();
        let params = |rank| Params { root, nodes: Some(nodes.clone()), ..Params::new(rank, size) };
        let plan = |rank: u32| {
            let schedule = algorithm.plan(&params(rank));
            let sides = schedule.sides(|peer| nodes.of(peer) == nodes.of(rank));
            (schedule, sides)
        };
        (0..size).map(plan).collect()
    }

    // Goal: both ends of an edge are on one side, which is the host's if and only if both ranks are on one
    // host; a rank whose peers are all on its host has no step of the DPU.
    #[test]
    fn what_stays_within_a_host_never_passes_the_dpu() {
        let maps = [NodeMap::by_node(12, 3), NodeMap::round_robin(12, 4), NodeMap::by_node(7, 3)];
        for nodes in maps.map(Arc::new) {
            for facts in ALGORITHMS.iter().filter(|facts| !facts.inter) {
                if facts.order == CombineOrder::KeptInOrder && !nodes.is_in_order() {
                    continue;
                }
                for (rank, (schedule, sides)) in (0..).zip(divided(facts.algorithm, &nodes, 5)) {
                    let is_here = |peer: u32| nodes.of(peer) == nodes.of(rank);
                    let mut leaves = false;
                    for (step, side) in schedule.steps.iter().zip(&sides) {
                        if let Action::Send { to: peer, .. } | Action::Recv { from: peer, .. } = step.action {
                            assert_eq!(is_here(peer), *side == Side::Host, "{facts:?} {step:?}");
                            leaves |= !is_here(peer);
                        }
                    }
                    assert!(leaves || sides.iter().all(|side| *side == Side::Host), "{facts:?} rank {rank}");
                }
            }
        }
    }

    // Goal: a broadcast by leaders comes to each host once; what the ranks of a host contribute to an
    // allreduce is combined on the host.
    #[test]
    fn a_result_comes_once_per_host() {
        let nodes = Arc::new(NodeMap::by_node(12, 3));
        let receives = |algorithm: Algorithm| -> Vec<usize> {
            let mut at_nodes = vec![0; 3];
            for (rank, (schedule, sides)) in (0..).zip(divided(algorithm, &nodes, 5)) {
                let is_far = |(step, side): &(&Step, &Side)| {
                    **side == Side::Dpu && matches!(step.action, Action::Recv { .. })
                };
                at_nodes[nodes.of(rank) as usize] += schedule.steps.iter().zip(&sides).filter(is_far).count();
            }
            at_nodes
        };
        // Rank 5 is on node 1.
        assert_eq!(receives(Algorithm::BcastNodes), [1, 0, 1]);
        let reduced = divided(Algorithm::AllreduceNodes, &nodes, 0);
        let sums = |side: Side| {
            let all = reduced.iter().flat_map(|(schedule, sides)| schedule.steps.iter().zip(sides));
            all.filter(|(step, of)| **of == side && matches!(step.action, Action::Reduce { .. })).count()
        };
        // On each host three contributions join that of the leader, and there are few sums of hosts.
        assert_eq!(sums(Side::Host), 9);
        assert!((1..=6).contains(&sums(Side::Dpu)), "{}", sums(Side::Dpu));
    }
}
