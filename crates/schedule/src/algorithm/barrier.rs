//! MPI_Barrier: messages without bytes.
use super::{Params, Tree, powers_of_two_below};
use crate::build::{Builder, Token};
use crate::{Blocks, Schedule};

/// Dissemination barrier (Hensgen, Finkel, Manber 1988). After round k a rank knows that 2^(k+1) ranks,
/// itself included, have arrived.
pub fn dissemination(&Params { rank, size, .. }: &Params) -> Schedule {
    let mut plan = Builder::new(rank, size, 0, 0);
    let mut heard = Token::NOTHING;
    for hop in powers_of_two_below(size) {
        plan.send_after((rank + hop) % size, Blocks::NONE, &[heard]);
        heard = plan.recv_after((rank + size - hop) % size, Blocks::NONE, &[heard]);
    }
    plan.finish()
}

/// Up a binomial tree, then down: twice the rounds of `dissemination`, but only 2 (n - 1) messages.
pub fn tree(&Params { rank, size, .. }: &Params) -> Schedule {
    let mut plan = Builder::new(rank, size, 0, 0);
    let tree = Tree::new(rank, size);
    let mut heard: Vec<Token> = tree.children().map(|child| plan.recv(child.at, Blocks::NONE)).collect();
    if let Some(parent) = tree.parent {
        plan.send_after(parent, Blocks::NONE, &heard);
        // The parent answers only after this rank's message, so this receive waits for nothing else.
        heard = vec![plan.recv(parent, Blocks::NONE)];
    }
    for child in tree.children().rev() {
        plan.send_after(child.at, Blocks::NONE, &heard);
    }
    plan.finish()
}
