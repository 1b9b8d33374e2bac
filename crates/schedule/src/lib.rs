// SPDX-License-Identifier: BSD-3-Clause
//! The plan of a collective operation as data: steps, and what each waits for. This crate moves no bytes.
//!
//! A schedule is one rank's part of one algorithm. It names buffers as buffers cut into blocks, so it holds
//! neither addresses nor lengths: the same schedule serves every call with the same algorithm, rank, size and
//! root.
//!
//! Invariants: a step waits only for earlier steps; (sender, receiver, edge) names one message of an
//! operation; a `Reduce` never writes an operand, even with MPI_IN_PLACE, so any step can be run again after
//! its executor has died; of two unordered steps neither writes a block that the other reads or writes.
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

/// A buffer that a step can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferId {
    /// The memory from which the user sends.
    Input,
    /// The memory in which the user receives. In a broadcast, the user's one buffer, also on the root.
    Output,
    /// Memory of the operation itself, by index into `Schedule::scratch`.
    Scratch(u8),
}

/// Consecutive blocks of a buffer. The length of a block is known only when the schedule starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// The buffer to which the blocks belong.
    pub buffer: BufferId,
    /// The index of the first block in the buffer.
    pub first: u32,
    /// How many blocks there are; 0 in a message without bytes.
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
    /// The blocks of a message without bytes, which only shows that its sender got there.
    pub const NONE: Blocks = Blocks { buffer: BufferId::Output, first: 0, count: 0 };

    /// Returns the index of the block that comes after the last of these.
    pub fn end(self) -> u32 {
        self.first + self.count
    }
}

/// What a step does. Peers are ranks of the schedule's communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Lets rank `to` take the blocks `from`, by its step with the same edge number.
    Send { to: u32, edge: u32, from: Blocks },
    /// Takes the blocks that `from` sends with the same edge number.
    Recv { from: u32, edge: u32, into: Blocks },
    /// Copies blocks; both sides have the same number of bytes.
    Copy { from: Blocks, into: Blocks },
    /// `into = left op right`, element by element; `left` holds the contributions of lower ranks where order
    /// matters.
    Reduce { left: Blocks, right: Blocks, into: Blocks },
}

/// An earlier step for which a step waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct After {
    /// The index of the earlier step in `Schedule::steps`.
    pub step: u32,
    /// Whether byte `k` of the waiting step needs only byte `k` of the earlier one: the two, of equal length,
    /// form a pipeline. Otherwise the whole earlier step must be finished.
    pub streaming: bool,
}

/// A step, and the range of `Schedule::after` with the steps that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// What the step does.
    pub action: Action,
    /// The index into `Schedule::after` of the first step for which this one waits.
    pub after_first: u32,
    /// How many steps this one waits for, which are entries of `Schedule::after` from `after_first` on.
    pub after_count: u32,
}

/// Which of the user's two buffers gives the blocks of a scratch buffer their lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partition {
    /// Blocks of the scratch buffer are as long as blocks of `BufferId::Input`.
    Input,
    /// Blocks of the scratch buffer are as long as blocks of `BufferId::Output`.
    Output,
}

/// A scratch buffer of `blocks` blocks; block `i` is as long as block `(first + i) % n` of a user's buffer of
/// `n` blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scratch {
    /// The user's buffer whose blocks give the lengths.
    pub like: Partition,
    /// The index of the block of the user's buffer that is as long as scratch block 0.
    pub first: u32,
    /// The number of blocks of the scratch buffer.
    pub blocks: u32,
}

/// One rank's plan of a collective operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// The rank whose plan it is, in the comm.
    pub rank: u32,
    /// The number of ranks in the communicator.
    pub size: u32,
    /// The number of blocks into which `BufferId::Input` is cut (0: it is not used).
    pub input_blocks: u32,
    /// The number of blocks into which `BufferId::Output` is cut (0: it is not used).
    pub output_blocks: u32,
    /// The scratch buffers, which `BufferId::Scratch` names by index.
    pub scratch: Vec<Scratch>,
    /// The steps, each of which waits only for earlier ones.
    pub steps: Vec<Step>,
    /// The steps for which each step waits, step after step (`Step::after_first`).
    pub after: Vec<After>,
}

impl Schedule {
    /// Returns the earlier steps for which `step` waits.
    pub fn after_of(&self, step: &Step) -> &[After] {
        &self.after[step.after_first as usize..][..step.after_count as usize]
    }
}
