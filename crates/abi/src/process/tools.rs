//! What this process's tools hold (MPI 5.0, section 15.3).

use super::Guard;
use slab::Slab;
use telemetry::Counter;

/// What the process's tools hold.
#[derive(Debug, Default)]
pub(crate) struct Tool {
    /// Calls of MPI_T_init_thread without their MPI_T_finalize.
    pub uses: u32,
    /// The highest thread level that one of them asked for.
    pub thread_level: i32,
    pub cvars: Slab<usize>,
    pub sessions: Slab<Slab<Pvar>>,
}

/// A performance variable in use: what it counts from its start on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pvar {
    pub counter: Counter,
    /// What was counted until it was stopped.
    pub counted: u64,
    /// The counter's value when it was started, while it runs.
    pub since: Option<u64>,
}

impl Guard {
    /// Whether tools are at work.
    pub(crate) fn has_tools(&self) -> bool {
        self.tool.uses > 0
    }

    /// The highest thread level of a tool.
    pub(crate) fn tool_threads(&self) -> i32 {
        self.tool.thread_level
    }
}
