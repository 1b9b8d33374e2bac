// SPDX-License-Identifier: BSD-3-Clause
//! A world, as the root sees it.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::mpirun::wire::frame::{Arrivals, NewWorld};
use crate::mpirun::wire::statistics::Counted;

/// A world whose ranks are spread over nodes.
#[derive(Default)]
pub(super) struct SpreadWorld {
    pub first: u32,
    /// How it was spawned; None for the first world.
    pub(super) spawned: Option<NewWorld>,
    /// The nodes that have not reported it as born, and those on which some of its ranks live.
    pub(super) unborn: HashSet<usize>,
    pub(super) living: HashSet<usize>,
    /// The rank that waits for the spawn.
    pub(super) asker: Option<u32>,
    /// Arrivals, and the worlds with which it is connected, by node.
    pub(super) arrived: HashMap<usize, Arrivals>,
    pub(super) connected: HashMap<usize, Vec<u32>>,
    /// Whether some rank left other than by MPI_Finalize.
    pub(super) is_broken: bool,
    pub(super) is_ending: bool,
    /// What its processes have counted, if the user wants that.
    pub(super) counted: Option<Counted>,
}

impl SpreadWorld {
    /// The first world, with the node of each rank.
    pub(super) fn of_job(node_of: &[u32]) -> SpreadWorld {
        SpreadWorld { living: node_of.iter().map(|node| *node as usize).collect(), ..SpreadWorld::default() }
    }

    /// Prints what its processes have counted, once.
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
