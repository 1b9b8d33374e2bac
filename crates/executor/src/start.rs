// SPDX-License-Identifier: BSD-3-Clause
//! The parameters of an operation: its schedule, and where its buffers lie.

use datatype::{Basic, Buffer, PredefinedOp};
use schedule::Schedule;
use std::ops::Range;
use std::sync::Arc;
use sys::Span;

/// One operation. The ranks that take part give the same `context` and `sequence`.
#[derive(Clone, Debug)]
pub struct Start {
    /// The context of the comm whose operation it is.
    pub context: u64,
    /// The operation's number within the context, counted by every member in the same order.
    pub sequence: u32,
    /// For each rank of the schedule, its number in the job.
    pub peers: Arc<[u32]>,
    /// The plan. Programs are cached by this pointer, so equal plans should be one `Arc`.
    pub schedule: Arc<Schedule>,
    /// Where the bytes of the schedule's `BufferId::Input` lie.
    pub input: Binding,
    /// Where the bytes of `BufferId::Output` lie. With MPI_IN_PLACE, `input` and `output` are the same
    /// buffer, or the schedule has no input.
    pub output: Binding,
    /// The operator of the schedule's `Reduce` steps; None if it has none.
    pub reduction: Option<Reduction>,
    /// Whether a proxy or the rank itself is to execute the operation.
    pub offload: Offload,
    /// The least bytes of an edge between hosts that is fetched, in a job with proxies: 0 fetches all edges,
    /// `u64::MAX` none. Shorter edges are messages of the callers, and a rank that has such an edge executes
    /// its part itself. All members give the same value.
    pub fetched_bytes_min: u64,
    /// Whether the operation is one message between two ranks. Its receive may never get one. The receiver
    /// takes what fits, and may withdraw before the bytes begin to come.
    pub message: bool,
}

/// Where a buffer of the schedule lies and how it is cut into blocks. Lengths are packed bytes.
#[derive(Clone, Debug)]
pub enum Binding {
    /// The schedule does not use the buffer (that of the root, on another rank). Its blocks are empty.
    None,
    /// One buffer that is cut into blocks.
    Whole {
        /// The user's buffer.
        buffer: Buffer,
        /// Where each block ends and the next begins.
        cut: Cut,
    },
    /// One buffer for each block of the schedule's buffer (v- and w-collectives).
    Blocks(Arc<[Buffer]>),
}

/// How a buffer is cut into the schedule's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All blocks have this many bytes.
    Even {
        /// Bytes of a block.
        block_bytes: u64,
    },
    /// Near-equal parts of whole elements. The first `elements % n` of n blocks have one element more than
    /// the rest.
    NearEqual {
        /// Elements in all.
        elements: u64,
        /// Bytes of an element.
        element_bytes: u64,
    },
    /// Explicit bounds: block `i` is `[at[i], at[i + 1])`. There is one entry more than blocks, and none is
    /// less than the one before.
    Bounds(Arc<[u64]>),
}

/// The operator of a schedule's `Reduce` steps. A predefined operator works on packed bytes, so buffers may
/// have gaps (the padding of pair types). A user's function needs buffers without gaps: a datatype with gaps
/// is bound as elements of its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// A predefined operator.
    Predefined {
        /// The operator.
        op: PredefinedOp,
        /// The type of the items.
        basic: Basic,
        /// Packed bytes of an element: a multiple of `basic.size()`.
        element_bytes: u64,
    },
    /// A user's function. `Executor::poll` returns `Poll::Call` when it is to be called. Such an operation is
    /// never offloaded.
    User {
        /// The number by which the caller recognises the function.
        token: u64,
        /// Bytes from one element to the next.
        element_bytes: u64,
    },
}

impl Reduction {
    /// Whether an element is one or more items of the operator's type.
    pub(crate) fn is_sound(&self) -> bool {
        match *self {
            Reduction::Predefined { basic, element_bytes, .. } => {
                element_bytes > 0 && element_bytes.is_multiple_of(basic.size() as u64)
            }
            Reduction::User { element_bytes, .. } => element_bytes > 0,
        }
    }

    /// Bytes from one element to the next.
    pub fn element_bytes(&self) -> u64 {
        match *self {
            Reduction::Predefined { element_bytes, .. } | Reduction::User { element_bytes, .. } => {
                element_bytes
            }
        }
    }
}

/// Who executes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// A proxy if the operation moves enough bytes (`Config::offload_bytes_min`).
    Auto,
    /// A proxy whenever one can.
    On,
    /// The caller.
    Off,
}

/// A started operation. The ticket is valid until `Executor::outcome` has returned the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstanceTicket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// An operation that is under way, as a report on a hanging job shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingOperation {
    /// The context of the operation's comm.
    pub context: u64,
    /// The operation's number in the context.
    pub sequence: u32,
    /// The number of steps of the operation's schedule at this rank.
    pub steps: u32,
    /// The number of those steps that have finished.
    pub done: u32,
    /// The peers that have not started the operation.
    pub absent: Vec<u32>,
    /// Whether a proxy carries it out.
    pub is_offloaded: bool,
}

/// A message to or from a rank of another host that an operation needs. The user of `Executor` sends or
/// receives it.
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
    /// The context of the message. With the tag it names the message on both sides.
    pub context: u64,
    /// The tag of the message.
    pub tag: i32,
    /// The memory of the message's bytes, which stays where it is until the message has ended.
    pub span: Span,
    /// Whether the rank will probably compute before it waits for the operation.
    pub is_overlapped: bool,
}

/// How a message to or from a rank of another host ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeOutcome {
    /// This many bytes came or were sent.
    Moved(u64),
    /// The message was longer than the memory for it.
    Longer,
    /// The connection to the other rank is lost.
    Lost,
}

/// What one call of `Executor::poll` has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Poll {
    /// No instance could be advanced.
    Idle,
    /// Some instance advanced.
    Progressed,
    /// A user's function is to be called, with no lock held. Then `Executor::called` takes the call back.
    Call(UserCall),
}

/// A user's reduction function to be called as `function(left, into, elements)` (MPI 5.0, section 6.9.5:
/// invec, inoutvec, len). `into` holds the right operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserCall {
    /// The operation that needs the call.
    pub ticket: InstanceTicket,
    /// The step that needs the call.
    pub step: u32,
    /// The number that `Reduction::User::token` gave, by which the caller finds the function.
    pub token: u64,
    /// The left operands: the argument invec of the function.
    pub left: Span,
    /// The right operands, over which the function writes its result: the argument inoutvec.
    pub into: Span,
    /// The numbers of the vector's blocks in `into`. They go on above the number of blocks.
    pub blocks: Range<u64>,
}
