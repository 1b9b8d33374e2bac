// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Barrier. A barrier consists of messages without bytes.
use super::team::{Nodes, Team};
use super::{Params, Tree, powers_of_two_below};
use crate::build::{Builder, Token};
use crate::{Blocks, Schedule};

/// Barrier by dissemination (Hensgen, Finkel, Manber 1988). After round k a rank knows that 2^(k+1) ranks,
/// itself included, have arrived.
pub fn dissemination(params: &Params) -> Schedule {
    let mut plan = Builder::new(params.rank, params.size, 0, 0);
    dissemination_among(&mut plan, &Team::all(params), Vec::new());
    plan.finish()
}

/// Adds the steps of `dissemination` among the members of a team. This member's first round starts only after
/// its receives `received`. Returns the receives of the last round.
fn dissemination_among(plan: &mut Builder, team: &Team, mut received: Vec<Token>) -> Vec<Token> {
    let (me, size) = (team.me, team.size());
    for hop in powers_of_two_below(size) {
        plan.send_after(team.rank((me + hop) % size), Blocks::NONE, &received);
        received = vec![plan.recv_after(team.rank((me + size - hop) % size), Blocks::NONE, &received)];
    }
    received
}

/// Barrier by nodes: messages go up a binomial tree to the leader of each node, leaders wait for each other
/// by dissemination, and messages go down the trees.
pub fn nodes(params: &Params) -> Schedule {
    let mut plan = Builder::new(params.rank, params.size, 0, 0);
    let nodes = Nodes::of(params);
    let team = nodes.local_team();
    let tree = team.tree(0);
    let below = tree.children().map(|child| plan.recv(team.rank(child.at), Blocks::NONE));
    let mut received: Vec<Token> = below.collect();
    if let Some(parent) = tree.parent.map(|parent| team.rank(parent)) {
        plan.send_after(parent, Blocks::NONE, &received);
        // The parent answers only after this rank's message, so this receive waits for nothing else.
        received = vec![plan.recv(parent, Blocks::NONE)];
    } else {
        received = dissemination_among(&mut plan, &nodes.leaders_team(0), received);
    }
    for child in tree.children().rev() {
        plan.send_after(team.rank(child.at), Blocks::NONE, &received);
    }
    plan.finish()
}

/// Barrier by a binomial tree: messages go up, then down. It takes twice the rounds of `dissemination`, but
/// only 2 (n - 1) messages.
pub fn tree(&Params { rank, size, .. }: &Params) -> Schedule {
    let mut plan = Builder::new(rank, size, 0, 0);
    let tree = Tree::new(rank, size);
    let mut received: Vec<Token> = tree.children().map(|child| plan.recv(child.at, Blocks::NONE)).collect();
    if let Some(parent) = tree.parent {
        plan.send_after(parent, Blocks::NONE, &received);
        // The parent answers only after this rank's message, so this receive waits for nothing else.
        received = vec![plan.recv(parent, Blocks::NONE)];
    }
    for child in tree.children().rev() {
        plan.send_after(child.at, Blocks::NONE, &received);
    }
    plan.finish()
}
