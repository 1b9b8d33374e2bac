//! MPI_Bcast: the buffer is `Output`, on the root too. MPI_IN_PLACE is not allowed.
use super::{Params, Tree};
use crate::build::Builder;
use crate::{BufferId::Output, Schedule};

/// Binomial tree: log2(n) rounds of the whole message, streaming through inner ranks.
pub fn binomial(params: &Params) -> Schedule {
    let mut plan = Builder::new(params.rank, params.size, 0, 1);
    let tree = Tree::new(params.relative(), params.size);
    if let Some(parent) = tree.parent {
        plan.recv(params.absolute(parent), Output.block(0));
    }
    for child in tree.children().rev() {
        plan.send(params.absolute(child.at), Output.block(0));
    }
    plan.finish()
}

/// Binomial scatter, then ring allgather (van de Geijn; Thakur et al. 2005): every rank sends and receives
/// the message about once, in n rounds. Blocks that the scatter gave to a rank are not sent to it again.
pub fn scatter_ring(params: &Params) -> Schedule {
    let &Params { rank, size, .. } = params;
    let mut plan = Builder::new(rank, size, 0, size);
    let me = params.relative();
    let tree = Tree::new(me, size);
    if let Some(parent) = tree.parent {
        plan.recv(params.absolute(parent), Output.blocks(me, tree.span));
    }
    for child in tree.children().rev() {
        plan.send(params.absolute(child.at), Output.blocks(child.at, child.span));
    }
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    let right_span = Tree::new(right, size).span;
    for round in 0..size - 1 {
        let outgoing = (me + size - round) % size;
        if !(right..right + right_span).contains(&outgoing) {
            plan.send(params.absolute(right), Output.block(outgoing));
        }
        let incoming = (left + size - round) % size;
        if !(me..me + tree.span).contains(&incoming) {
            plan.recv(params.absolute(left), Output.block(incoming));
        }
    }
    plan.finish()
}

/// Pipelined chain: the least work per rank, n - 1 hops of latency.
pub fn chain(params: &Params) -> Schedule {
    let mut plan = Builder::new(params.rank, params.size, 0, 1);
    let me = params.relative();
    if me > 0 {
        plan.recv(params.absolute(me - 1), Output.block(0));
    }
    if me + 1 < params.size {
        plan.send(params.absolute(me + 1), Output.block(0));
    }
    plan.finish()
}
