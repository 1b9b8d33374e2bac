// SPDX-License-Identifier: BSD-3-Clause
//! What the root knows of one world: the nodes of its ranks, and what these have reported.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::mpirun::wire::frame::{Arrivals, NewWorld};
use crate::mpirun::wire::statistics::Counted;

/// A world whose ranks are spread over nodes.
#[derive(Default)]
pub(super) struct SpreadWorld {
    pub first: u32,
    /// The frame by which agents were told to start the world; None for the first world.
    pub(super) spawned: Option<NewWorld>,
    /// The nodes that have not reported yet that all their ranks of the world have come to MPI_Init; a node
    /// without such ranks reports, too.
    pub(super) unborn: HashSet<usize>,
    /// The nodes on which some rank of the world lives.
    pub(super) living: HashSet<usize>,
    /// The rank that waits in MPI_Comm_spawn for this world; None if none waits (any more).
    pub(super) asker: Option<u32>,
    /// How many of the world's ranks have arrived at MPI_Init and MPI_Finalize, by node.
    pub(super) arrived: HashMap<usize, Arrivals>,
    /// The first ranks of the worlds with which this one is connected, by node.
    pub(super) connected: HashMap<usize, Vec<u32>>,
    /// Whether some rank of the world left other than by MPI_Finalize.
    pub(super) is_broken: bool,
    pub(super) is_ending: bool,
    /// The counters of the world's processes on the nodes that have sent them; None if the user does not want
    /// them.
    pub(super) counted: Option<Counted>,
}

impl SpreadWorld {
    /// Returns the first world of a job, whose ranks are on the nodes `node_of`.
    pub(super) fn of_job(node_of: &[u32]) -> SpreadWorld {
        SpreadWorld { living: node_of.iter().map(|node| *node as usize).collect(), ..SpreadWorld::default() }
    }

    /// Prints the counters of the world's processes, if the user wants them. A second call prints nothing.
    pub(super) fn print_counted(&mut self) {
        if let Some(counted) = self.counted.take() {
            // One write, because others may be printing.
            eprint!("{}", counted.text());
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.living.is_empty()
    }

    pub(super) fn arrivals_but(&self, node: usize) -> Arrivals {
        let others = || self.arrived.iter().filter(|(other, _)| **other != node).map(|(_, arrived)| arrived);
        Arrivals {
            born: others().map(|arrived| arrived.born).sum(),
            leaving: others().map(|arrived| arrived.leaving).sum(),
        }
    }

    pub(super) fn connected_but(&self, node: usize) -> Vec<u32> {
        let others = self.connected.iter().filter(|(other, _)| **other != node);
        let all: BTreeSet<u32> = others.flat_map(|(_, to)| to.iter().copied()).collect();
        all.into_iter().collect()
    }
}
