// SPDX-License-Identifier: BSD-3-Clause
//! What a caller of this crate states to start an operation (a schedule and where its buffers lie), and what
//! it learns about the operation.

use datatype::{Basic, Buffer, PredefinedOp};
use schedule::Schedule;
use std::ops::Range;
use std::sync::Arc;
use sys::Span;

/// One operation to start: a collective or a message. All ranks that take part give the same `context` and
/// `sequence`.
#[derive(Clone, Debug)]
pub struct Start {
    /// The context of the comm to which the operation belongs.
    pub context: u64,
    /// The operation's number in its context. Every member counts operations in the same order.
    pub sequence: u32,
    /// For each rank of the schedule, its number in the job.
    pub peers: Arc<[u32]>,
    /// The rank's schedule. The executor keeps one entry of derived data for each such pointer, so equal
    /// schedules should share one `Arc`.
    pub schedule: Arc<Schedule>,
    /// Where the schedule's input buffer (`BufferId::Input`) lies.
    pub input: Binding,
    /// Where the schedule's output buffer (`BufferId::Output`) lies. With MPI_IN_PLACE it is the same buffer
    /// as `input`, or the schedule has no input.
    pub output: Binding,
    /// The operator of the schedule's `Reduce` steps. None if the schedule has no such step.
    pub reduction: Option<Reduction>,
    /// Whether the operation's caller wants a proxy to execute it. The setting OUTBOARD_OFFLOAD may override
    /// this.
    pub offload: Offload,
    /// The receiver fetches an edge (a send and its receive) between hosts if the edge has at least this many
    /// bytes: 0 fetches all edges, `u64::MAX` none. Shorter edges are messages, which only a rank can carry.
    /// All members give the same value.
    pub fetched_bytes_min: u64,
    /// Whether the operation is one message between two ranks. Its receive takes as many bytes as fit, and
    /// may be withdrawn before the first byte comes.
    pub message: bool,
}

/// Where one of the schedule's buffers lies, and how it is cut into blocks. Lengths are packed bytes.
#[derive(Clone, Debug)]
pub enum Binding {
    /// The schedule does not use the buffer, as on ranks that are not the root. Its blocks are empty.
    None,
    /// The schedule's buffer is one buffer of the user, cut into blocks.
    Whole {
        /// The user's buffer.
        buffer: Buffer,
        /// Where each block ends and the next begins.
        cut: Cut,
    },
    /// Each block of the schedule's buffer is a separate buffer of the user, as in v- and w-collectives.
    Blocks(Arc<[Buffer]>),
}

/// How a buffer is cut into the schedule's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All blocks have this many bytes.
    Even {
        /// The length of each block in bytes.
        block_bytes: u64,
    },
    /// Blocks of whole elements, as equal as possible. The first `elements % n` of n blocks have one element
    /// more than the rest.
    NearEqual {
        /// The number of elements in all blocks together.
        elements: u64,
        /// The length of an element in bytes.
        element_bytes: u64,
    },
    /// Block `i` is the bytes `[at[i], at[i + 1])`. The list has one entry more than there are blocks, and no
    /// entry is less than the one before it.
    Bounds(Arc<[u64]>),
}

/// The operator of a schedule's `Reduce` steps. A predefined operator works on packed bytes, so the buffers
/// may have gaps. A user's function gets each element with its gaps, as many bytes as the datatype's extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// A predefined operator.
    Predefined {
        /// The predefined operator, such as MPI_SUM.
        op: PredefinedOp,
        /// The basic datatype on which the operator works.
        basic: Basic,
        /// The length of an element in packed bytes: a multiple of `basic.size()`.
        element_bytes: u64,
    },
    /// The user's own function. `Executor::poll` returns `Poll::Call` when it must be called. A proxy never
    /// gets such an operation.
    User {
        /// The number by which the executor's caller finds the function.
        token: u64,
        /// The distance in bytes from one element to the next.
        element_bytes: u64,
    },
}

impl Reduction {
    /// Whether the length of an element is valid: for a predefined operator a multiple of the basic
    /// datatype's size, and never 0.
    pub(crate) fn is_sound(&self) -> bool {
        match *self {
            Reduction::Predefined { basic, element_bytes, .. } => {
                element_bytes > 0 && element_bytes.is_multiple_of(basic.size() as u64)
            }
            Reduction::User { element_bytes, .. } => element_bytes > 0,
        }
    }

    /// Returns the distance in bytes from one element to the next.
    pub fn element_bytes(&self) -> u64 {
        match *self {
            Reduction::Predefined { element_bytes, .. } | Reduction::User { element_bytes, .. } => {
                element_bytes
            }
        }
    }
}

/// Whether a proxy is to execute an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// A proxy executes the operation if the operation moves at least `Config::offload_bytes_min` bytes.
    Auto,
    /// A proxy executes the operation whenever it can.
    On,
    /// The rank itself executes the operation.
    Off,
}

/// Names a started operation. The ticket is valid until `Executor::outcome` has returned the operation's
/// outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstanceTicket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// An operation that is under way, as a report on a hanging job shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingOperation {
    /// The context of the comm to which the operation belongs.
    pub context: u64,
    /// The operation's number in its context.
    pub sequence: u32,
    /// The number of steps of the operation's schedule at this rank.
    pub steps: u32,
    /// The number of these steps that have finished.
    pub done: u32,
    /// The members of the operation that have not started it, by their numbers in the job.
    pub absent: Vec<u32>,
    /// Whether the rank's proxy carries the operation out.
    pub is_offloaded: bool,
}

/// A message between this rank and a rank of another host that an operation needs. The caller of `Executor`
/// must send or receive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeMessage {
    /// The operation that needs the message.
    pub ticket: InstanceTicket,
    /// The step that needs the message.
    pub step: u32,
    /// The number in the job of the rank at the other end.
    pub peer: u32,
    /// Whether this rank is the sender of the message.
    pub is_send: bool,
    /// The context of the message. Sender and receiver know the message by context and tag.
    pub context: u64,
    /// The tag of the message.
    pub tag: i32,
    /// The memory that holds the message's bytes. It stays valid until the message has ended.
    pub span: Span,
    /// Whether the rank will probably compute before it waits for the operation to end.
    pub is_overlapped: bool,
}

/// How a message to or from a rank of another host ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeOutcome {
    /// This many bytes were sent, or have come.
    Moved(u64),
    /// The message was longer than the memory for it.
    Longer,
    /// The connection to the other rank is lost.
    Lost,
}

/// What a call of `Executor::poll` has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Poll {
    /// No operation could go on.
    Idle,
    /// Some operation has gone on.
    Progressed,
    /// A user's reduction function must be called, with no lock held. The caller then hands this value to
    /// `Executor::called`.
    Call(UserCall),
}

/// A call of a user's reduction function that is to be made: `function(left, into, elements)` (MPI 5.0,
/// section 6.9.5: invec, inoutvec, len).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserCall {
    /// The operation that needs the user's function to be called.
    pub ticket: InstanceTicket,
    /// The step whose result the user's function computes.
    pub step: u32,
    /// The number from `Reduction::User::token`, by which the caller finds the function.
    pub token: u64,
    /// The memory of the left operands: the function's argument invec.
    pub left: Span,
    /// The memory of the right operands, over which the function writes its results: the argument inoutvec.
    pub into: Span,
    /// The numbers of the vector's blocks that lie in `into`. The numbers can exceed those of a vector of n
    /// blocks: number n + i means block i.
    pub blocks: Range<u64>,
}
