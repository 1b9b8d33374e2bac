// SPDX-License-Identifier: BSD-3-Clause
//! What the root (the `mpirun` process that decides) knows of one world (an MPI_COMM_WORLD): the nodes that
//! its ranks run on, and what the agents there have reported.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::mpirun::wire::frame::{Arrivals, NewWorld};
use crate::mpirun::wire::statistics::Counted;

/// A world (an MPI_COMM_WORLD), whose ranks may run on several nodes.
#[derive(Default)]
pub(super) struct SpreadWorld {
    pub first: u32,
    /// The frame (message) that told agents to start this world. None for the first world.
    pub(super) spawned: Option<NewWorld>,
    /// The nodes that have not reported yet that their ranks of this world have all come to MPI_Init. A node
    /// without ranks of the world reports, too.
    pub(super) unborn: HashSet<usize>,
    /// The nodes on which some rank of the world lives.
    pub(super) living: HashSet<usize>,
    /// The rank that waits in MPI_Comm_spawn for this world. None if no rank waits, or if it has got its
    /// answer.
    pub(super) asker: Option<u32>,
    /// How many ranks of this world have come to MPI_Init and to MPI_Finalize on each node.
    pub(super) arrived: HashMap<usize, Arrivals>,
    /// The worlds with which this world is connected, as each node reports. Each is named by its first
    /// process number.
    pub(super) connected: HashMap<usize, Vec<u32>>,
    /// Whether some rank of this world has ended other than by MPI_Finalize.
    pub(super) is_broken: bool,
    pub(super) is_ending: bool,
    /// The sum of the counters of this world's processes, as far as nodes have sent them. None if the user
    /// does not want counters.
    pub(super) counted: Option<Counted>,
}

impl SpreadWorld {
    /// Returns the first world of a job; `node_of` is the node of each of its ranks.
    pub(super) fn of_job(node_of: &[u32]) -> SpreadWorld {
        SpreadWorld { living: node_of.iter().map(|node| *node as usize).collect(), ..SpreadWorld::default() }
    }

    /// Prints the counters of this world's processes, if the user wants them. Prints nothing when called
    /// again.
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
