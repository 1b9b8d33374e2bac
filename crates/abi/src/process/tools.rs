// SPDX-License-Identifier: BSD-3-Clause
//! The state of the tool interface, whose functions begin with MPI_T_ (MPI 5.0, section 15.3).

use super::Guard;
use slab::Slab;
use telemetry::Counter;

/// The state of the tool interface (MPI_T).
#[derive(Debug, Default)]
pub(crate) struct Tool {
    /// How many calls of MPI_T_init_thread have no matching call of MPI_T_finalize yet.
    pub uses: u32,
    /// The highest thread level that a call of MPI_T_init_thread asked for.
    pub thread_level: i32,
    pub cvars: Slab<usize>,
    pub sessions: Slab<Slab<Pvar>>,
}

/// A tool's handle of a performance variable. While the handle is started, it adds up how much the
/// variable's counter grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pvar {
    pub counter: Counter,
    /// How much this handle of a performance variable had counted when it was last stopped or set.
    pub counted: u64,
    /// The counter's value when this handle of a performance variable was last started or set. None while the
    /// handle is stopped.
    pub since: Option<u64>,
}

impl Guard {
    /// Whether a tool has initialized the tool interface and not finalized it.
    pub(crate) fn has_tools(&self) -> bool {
        self.tool.uses > 0
    }

    /// Returns the highest thread level for which a tool has asked.
    pub(crate) fn tool_threads(&self) -> i32 {
        self.tool.thread_level
    }
}
