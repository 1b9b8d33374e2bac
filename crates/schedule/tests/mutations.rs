// SPDX-License-Identifier: BSD-3-Clause
//! Checks that the verifier finds mistakes: it refuses schedules into which a test has put one mistake.
use outboard_schedule::verify::{CollectiveCase, verify};
use outboard_schedule::{ALGORITHMS, Action, Algorithm, Collective, CombineOrder, NodeMap, Schedule};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::sync::Arc;

/// Returns calls of every algorithm at a few sizes, each with the schedules of all ranks: in place and not,
/// and with a non-commutative operator if the algorithm keeps the order of ranks.
fn operations() -> impl Iterator<Item = (CollectiveCase, Vec<Schedule>)> {
    let sizes = [2u32, 3, 5, 8, 13];
    ALGORITHMS.iter().flat_map(move |facts| sizes.map(|size| (facts, size))).flat_map(|(facts, size)| {
        [false, true].map(|in_place| {
            let first_group = if facts.inter { size.div_ceil(3) } else { 0 };
            let collective = facts.collective;
            let in_place = in_place && collective.may_be_in_place() && !facts.inter;
            let root = if collective.is_rooted() { size / 2 } else { 0 };
            let commutative = facts.order == CombineOrder::Lost || !collective.reduces();
            let counts = vec![size + 3];
            let neighbors = vec![];
            let nodes = (!facts.inter).then(|| Arc::new(NodeMap::by_node(size, size.div_ceil(2))));
            let operation = CollectiveCase {
                collective,
                size,
                root,
                in_place,
                commutative,
                in_ranks: facts.order == CombineOrder::InRanks,
                first_group,
                counts,
                neighbors,
                nodes,
            };
            let plans = operation.plans(facts.algorithm);
            (operation, plans)
        })
    })
}

/// Checks that the verifier refuses the schedules of every operation once `mutate` has put a mistake into a
/// random step. `mutate` returns false if it has put none.
fn all_refused(mut mutate: impl FnMut(&mut Schedule, usize, &mut SmallRng) -> bool) {
    let mut random = SmallRng::seed_from_u64(7);
    let mut tried = 0;
    for (operation, plans) in operations() {
        verify(&operation, &plans, [1]).expect("the plan without a mistake");
        for _ in 0..20 {
            let mut plans = plans.clone();
            let rank = random.random_range(0..plans.len());
            let steps = plans[rank].steps.len();
            if steps == 0 {
                continue;
            }
            let step = random.random_range(0..steps);
            let before = plans[rank].steps[step].action;
            if mutate(&mut plans[rank], step, &mut random) {
                tried += 1;
                assert!(
                    verify(&operation, &plans, 0..4).is_err(),
                    "{operation:?}, rank {rank}: accepted a changed step {step}, once {before}\n{}",
                    plans[rank]
                );
            }
        }
    }
    assert!(tried > 100, "only {tried} mistakes were tried");
}

#[test]
fn swapped_operands() {
    all_refused(|plan, step, _| match &mut plan.steps[step].action {
        Action::Reduce { left, right, .. } => {
            std::mem::swap(left, right);
            !commutes(plan)
        }
        _ => false,
    });
    /// Whether the schedule's operator is commutative, so that swapped operands are no mistake. In these
    /// tests only the rings of allreduce have such an operator. They have one block for each rank and at
    /// least 5 (n - 1) steps.
    fn commutes(plan: &Schedule) -> bool {
        plan.output_blocks == plan.size && plan.steps.len() as u32 >= 5 * (plan.size - 1)
    }
}

#[test]
fn a_wrong_block() {
    all_refused(|plan, step, random| {
        let (buffer, blocks) = match &mut plan.steps[step].action {
            Action::Send { from, .. } | Action::Copy { from, .. } => (from.buffer, from),
            Action::Recv { into, .. } | Action::Reduce { into, .. } => (into.buffer, into),
        };
        let first = blocks.first;
        blocks.first = if random.random() { first + 1 } else { first.saturating_sub(1) };
        blocks.first != first && blocks.count > 0 && buffer == blocks.buffer
    });
}

#[test]
fn a_message_too_few_or_misnamed() {
    all_refused(|plan, step, random| match &mut plan.steps[step].action {
        Action::Send { edge, to: peer, .. } | Action::Recv { edge, from: peer, .. } => {
            match random.random_range(0..3) {
                0 => *edge += 1,
                1 => *peer = (*peer + 1) % plan.size,
                _ => *edge = edge.wrapping_sub(1),
            }
            true
        }
        _ => false,
    });
}

/// Goal: the verifier refuses a step that reads what another step writes, but waits for no step.
#[test]
fn no_wait_for_data() {
    all_refused(|plan, step, _| {
        let operands: Vec<_> = match plan.steps[step].action {
            Action::Send { from, .. } | Action::Copy { from, .. } => vec![from],
            Action::Reduce { left, right, .. } => vec![left, right],
            Action::Recv { .. } => vec![],
        };
        let needed = plan.steps[..step].iter().any(|earlier| match earlier.action {
            Action::Recv { into, .. } | Action::Copy { into, .. } | Action::Reduce { into, .. } => operands
                .iter()
                .any(|read| read.buffer == into.buffer && read.first < into.end() && into.first < read.end()),
            Action::Send { .. } => false,
        });
        plan.steps[step].after_count = 0;
        needed
    });
}

/// Goal: the verifier refuses a step that overwrites blocks while a step that reads them may still run, or
/// run again.
#[test]
fn streaming_over_a_reader() {
    all_refused(|plan, step, _| {
        let Action::Recv { into, .. } = plan.steps[step].action else { return false };
        let (first, count) = (plan.steps[step].after_first as usize, plan.steps[step].after_count as usize);
        let mut changed = false;
        for at in first..first + count {
            let reader = plan.steps[plan.after[at].step as usize].action;
            let reads = match reader {
                Action::Send { from, .. } | Action::Copy { from, .. } => from == into,
                _ => false,
            };
            // This wait must matter alone: no other wait may replace it.
            if reads && count == 1 {
                plan.after[at].streaming = true;
                changed = true;
            }
        }
        changed
    });
}

/// Goal: the verifier refuses a barrier in which one rank does not wait, so that ranks leave too early.
#[test]
fn a_barrier_with_a_gap() {
    for facts in Collective::Barrier.algorithms() {
        let operation = CollectiveCase {
            collective: Collective::Barrier,
            size: 9,
            root: 0,
            in_place: false,
            commutative: true,
            in_ranks: false,
            first_group: 0,
            counts: vec![],
            neighbors: vec![],
            nodes: None,
        };
        let mut plans = operation.plans(facts.algorithm);
        verify(&operation, &plans, [1]).unwrap();
        let step = plans[0].steps.iter().position(|s| s.after_count > 0).unwrap();
        plans[0].steps[step].after_count = 0;
        assert!(verify(&operation, &plans, [1]).is_err(), "{:?}", facts.algorithm);
    }
}

/// Goal: the verifier refuses schedules of two ranks that wait for each other in a cycle.
#[test]
fn a_deadlock() {
    use outboard_schedule::{BufferId, build::Builder};
    let plan = |rank: u32| {
        let mut plan = Builder::new(rank, 2, 1, 2);
        plan.copy(BufferId::Input.block(0), BufferId::Output.block(rank));
        let got = plan.recv(1 - rank, BufferId::Output.block(1 - rank));
        plan.send_after(1 - rank, BufferId::Input.block(0), &[got]);
        plan.finish()
    };
    let collective = Collective::Allgather;
    let operation = CollectiveCase {
        collective,
        size: 2,
        root: 0,
        in_place: false,
        commutative: true,
        in_ranks: false,
        first_group: 0,
        counts: vec![1],
        neighbors: vec![],
        nodes: None,
    };
    let error = verify(&operation, &[plan(0), plan(1)], [1]).unwrap_err();
    assert!(error.contains("never completes"), "{error}");
}

/// Goal: where the order from left to right is demanded, the verifier refuses schedules that combine in
/// another order. Each case has as many ranks as are needed for the two orders to differ.
#[test]
fn another_order_of_combining() {
    let trees =
        [(Algorithm::AllreduceDoubling, 4), (Algorithm::AllreduceRing, 3), (Algorithm::ReduceBinomial, 4)];
    for (algorithm, size) in trees {
        let operation = CollectiveCase {
            collective: algorithm.collective(),
            size,
            root: 0,
            in_place: false,
            commutative: true,
            in_ranks: true,
            first_group: 0,
            counts: vec![2 * size],
            neighbors: vec![],
            nodes: None,
        };
        let error = verify(&operation, &operation.plans(algorithm), [1]).unwrap_err();
        assert!(error.contains("from left to right"), "{error}");
    }
}
