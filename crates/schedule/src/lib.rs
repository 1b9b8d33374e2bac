// SPDX-License-Identifier: BSD-3-Clause
//! The schedule of a collective operation: its plan as data, with steps and for which earlier steps each
//! waits. This crate moves no bytes.
//!
//! A schedule is one rank's part of one algorithm. It names blocks of buffers, neither addresses nor lengths.
//! So one schedule serves every call with the same algorithm, rank, size and root.
//!
//! Invariants: a step waits only for earlier steps; sender, receiver and edge number name one message; a
//! `Reduce` never writes an operand, even with MPI_IN_PLACE, so that any step can be run again; if neither of
//! two steps waits for the other, neither writes a block that the other reads or writes.
//!
//! Read next: `build.rs` (writing a schedule), `algorithm/`, `order.rs` (how reductions combine), `side.rs`
//! (what a DPU carries out), `verify.rs`, `simulate.rs`.
#![forbid(unsafe_code)]

pub mod algorithm;
pub mod build;
mod display;
mod nodes;
pub mod order;
mod random;
mod side;
pub mod simulate;
pub mod verify;
mod words;

pub use algorithm::{ALGORITHMS, Algorithm, AlgorithmFacts, Collective, Growth, Neighbors, Params, Symmetry};
pub use nodes::NodeMap;
pub use order::CombineOrder;
pub use side::Side;

/// A buffer whose blocks a step can read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferId {
    /// The user's buffer from which data is sent.
    Input,
    /// The user's buffer in which data is received. In a broadcast it is the user's only buffer, also on the
    /// root.
    Output,
    /// Temporary memory of the operation. The number is an index into `Schedule::scratch`.
    Scratch(u8),
}

/// Consecutive blocks of a buffer. The length of a block is known only when the schedule starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// The buffer to which the blocks belong.
    pub buffer: BufferId,
    /// The index, in the buffer, of the first of these blocks.
    pub first: u32,
    /// The number of blocks; 0 for a message without bytes.
    pub count: u32,
}

impl BufferId {
    /// Names block number `block` of the buffer.
    pub fn block(self, block: u32) -> Blocks {
        self.blocks(block, 1)
    }

    /// Names the `count` blocks of the buffer from number `first` on.
    pub fn blocks(self, first: u32, count: u32) -> Blocks {
        Blocks { buffer: self, first, count }
    }
}

impl Blocks {
    /// The blocks of a message without bytes, as a barrier sends.
    pub const NONE: Blocks = Blocks { buffer: BufferId::Output, first: 0, count: 0 };

    /// Returns the index of the block that comes after the last of these blocks.
    pub fn end(self) -> u32 {
        self.first + self.count
    }
}

/// What a step does. `to` and `from` are ranks of the schedule's comm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sends the blocks `from` to rank `to`. The receive there has the same edge number.
    Send { to: u32, edge: u32, from: Blocks },
    /// Receives the blocks `into` from rank `from`. The send there has the same edge number.
    Recv { from: u32, edge: u32, into: Blocks },
    /// Copies the blocks `from` to the blocks `into`, which have the same number of bytes.
    Copy { from: Blocks, into: Blocks },
    /// Computes `into = left op right`, element by element. If order matters, `left` holds the contributions
    /// of lower ranks.
    Reduce { left: Blocks, right: Blocks, into: Blocks },
}

/// An earlier step for which a step waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct After {
    /// The index of the earlier step in `Schedule::steps`.
    pub step: u32,
    /// Whether byte `k` of the waiting step needs only byte `k` of the earlier step: the two form a pipeline.
    /// If not, the whole earlier step must be finished.
    pub streaming: bool,
}

/// A step of a schedule: what it does, and for which earlier steps it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// What the step does.
    pub action: Action,
    /// The index in `Schedule::after` of the first entry that names a step for which this step waits.
    pub after_first: u32,
    /// The number of steps for which this step waits: entries of `Schedule::after` from `after_first` on.
    pub after_count: u32,
}

/// The user's buffer whose blocks give the blocks of a scratch buffer their lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partition {
    /// The blocks of the scratch buffer are as long as blocks of `BufferId::Input`.
    Input,
    /// The blocks of the scratch buffer are as long as blocks of `BufferId::Output`.
    Output,
}

/// A scratch buffer: temporary memory of an operation. Its block `i` is as long as block `(first + i) % n` of
/// the user's buffer `like`, which has `n` blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scratch {
    /// The user's buffer whose blocks are as long as the scratch blocks.
    pub like: Partition,
    /// The index of the block of the user's buffer that is as long as scratch block 0.
    pub first: u32,
    /// The number of blocks of the scratch buffer.
    pub blocks: u32,
}

/// One rank's plan of a collective operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// The rank whose plan this schedule is.
    pub rank: u32,
    /// The number of ranks in the communicator.
    pub size: u32,
    /// The number of blocks into which `BufferId::Input` is cut; 0 if no step uses it.
    pub input_blocks: u32,
    /// The number of blocks into which `BufferId::Output` is cut; 0 if no step uses it.
    pub output_blocks: u32,
    /// The scratch buffers, which `BufferId::Scratch` names by index.
    pub scratch: Vec<Scratch>,
    /// The steps. Each waits only for steps before it in this list.
    pub steps: Vec<Step>,
    /// For each step, the steps for which it waits, in one list. `Step::after_first` says where a step's
    /// entries begin.
    pub after: Vec<After>,
}

impl Schedule {
    /// Returns the earlier steps for which `step` waits.
    pub fn after_of(&self, step: &Step) -> &[After] {
        &self.after[step.after_first as usize..][..step.after_count as usize]
    }
}
