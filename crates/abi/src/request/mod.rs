// SPDX-License-Identifier: BSD-3-Clause
//! Operations under way, and the requests through which a program holds them (MPI 5.0, sections 3.7 and 3.9).
//!
//! A blocking call waits for a `Work`; a nonblocking call puts it into a `Request`. A persistent request also
//! has a `Recipe`, which starts work again.

mod deferred;
mod generalized;
mod image;
mod library;
mod on_device;
mod partitioned;
mod planned;
mod stream;
mod timed;
mod work;

use crate::args::Status;
use crate::staging::{StandIns, Unfilled};
use ccl::LibraryStep;
use coll::Members;
use datatype::Buffer;
pub use deferred::DeferredReceives;
use error::{Error, Result};
pub use generalized::Generalized;
pub use image::{Image, ImageShape, Operator, UserOp};
pub(crate) use library::{Communicators, LibraryCollective, Statement};
use objects::context::ContextClaim;
use objects::{Group, Handle, QueueState, constants};
pub(crate) use on_device::DeviceShare;
pub use on_device::OnDevice;
use p2p::{Mode, Outcome};
pub use partitioned::{Partitioned, PartitionedStart};
pub(crate) use planned::{Checked, Imaged, Planned, TracedCollective, one, to_bytes, to_words};
use std::sync::Arc;
pub use stream::{Enqueued, HeldHandles};
pub(crate) use stream::{MpixStream, STREAM_NULL, StreamJob, StreamThread, Streams};
pub use timed::Timed;
pub(crate) use timed::{MessageEnd, choice};
pub use work::{LongMessage, SendReceive, Work};

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The status that the program gets.
    pub status: Status,
    /// Why the operation failed, if it did.
    pub error: Option<Error>,
    /// The functions of a generalized request, which supply the rest of the status.
    pub generalized: Option<Box<Generalized>>,
}

impl Completion {
    /// The completion of sends, collectives, and requests that are null or not active.
    pub const EMPTY: Completion = Completion { status: Status::EMPTY, error: None, generalized: None };

    /// The completion of a receive from MPI_PROC_NULL.
    pub const NO_PROCESS: Completion = Completion { status: Status::NO_PROCESS, ..Completion::EMPTY };

    #[inline]
    pub(crate) fn of(outcome: Outcome, source: &ReceiveSource) -> Completion {
        let rank = match source {
            ReceiveSource::Peer { rank, .. } => *rank,
            ReceiveSource::Any(group) => rank_of(outcome.source_peer, group),
            ReceiveSource::Nobody => constants::PROC_NULL,
        };
        let mut status = Status::new(rank, outcome.tag, outcome.bytes as u64);
        status.set_cancelled(outcome.cancelled);
        Completion { status, error: outcome.error, generalized: None }
    }
}

impl Completion {
    /// Returns the completion of a send.
    #[inline]
    pub(crate) fn of_send(outcome: Outcome) -> Completion {
        let mut completion = Completion { error: outcome.error, ..Completion::EMPTY };
        completion.status.set_cancelled(outcome.cancelled);
        completion
    }

    /// Returns the completion of an access to a file, from the bytes of the program's memory that were moved.
    pub(crate) fn of_bytes(outcome: Result<u64>) -> Completion {
        let mut completion = Completion::EMPTY;
        match outcome {
            Ok(bytes) => completion.status.set_bytes(bytes),
            Err(error) => completion.error = Some(error),
        }
        completion
    }
}

/// Returns the status of a message. Its source is the rank in `group` of the sender `source_peer`.
pub(crate) fn status_of(source_peer: u32, tag: i32, bytes: u64, group: &Group) -> Status {
    Status::new(rank_of(source_peer, group), tag, bytes)
}

fn rank_of(peer: u32, group: &Group) -> i32 {
    group.rank_of(peer).map_or(constants::ANY_SOURCE, |rank| rank as i32)
}

/// The arguments of a send, checked. `peer` is None for MPI_PROC_NULL.
#[derive(Clone)]
pub struct Send {
    pub(crate) mode: Mode,
    pub(crate) context: u64,
    pub(crate) peer: Option<u32>,
    pub(crate) tag: i32,
    pub(crate) buffer: Unfilled,
}

/// The arguments of a receive, checked.
#[derive(Clone)]
pub struct Receive {
    pub(crate) context: u64,
    pub(crate) source: ReceiveSource,
    pub(crate) tag: Option<i32>,
    pub(crate) buffer: Buffer,
}

/// How a persistent request is started (MPI 5.0, section 3.9).
pub enum Recipe {
    /// MPI_Send_init and its modes.
    Send(Send),
    /// MPI_Recv_init.
    Recv(Receive),
    /// MPI_Bcast_init and the other collectives. `members.sequence` numbers the instances in the request's
    /// context, `starts` counts the starts. `queue` and `library` say whether a queue or a collective library
    /// carries them out.
    Coll {
        planned: Box<Planned>,
        members: Members,
        queue: QueueState,
        library: Option<Vec<LibraryStep>>,
        starts: u32,
        _claim: ContextClaim,
    },
    /// MPI_Psend_init and MPI_Precv_init.
    Partitioned(Arc<Partitioned>),
    /// One of the other recipes, with the memory that stands in for its buffers (`staging.rs`).
    Staged(Box<Recipe>, Arc<StandIns>),
}

impl Recipe {
    /// The recipe without its stand-ins.
    pub(crate) fn inner(&self) -> &Recipe {
        if let Recipe::Staged(recipe, _) = self { recipe.inner() } else { self }
    }

    /// The recipe without its stand-ins, to be changed.
    pub(crate) fn inner_mut(&mut self) -> &mut Recipe {
        if let Recipe::Staged(recipe, _) = self { recipe.inner_mut() } else { self }
    }
}

/// The source of a receive.
#[derive(Clone, Debug)]
pub enum ReceiveSource {
    /// MPI_PROC_NULL.
    Nobody,
    /// MPI_ANY_SOURCE, with the group in which the sender has its rank for the status.
    Any(Arc<Group>),
    /// One process: its rank in the job, and its rank in the comm.
    Peer { peer: u32, rank: i32 },
}

impl ReceiveSource {
    /// Returns the rank in the job from which the message must come. Returns None for MPI_ANY_SOURCE and
    /// MPI_PROC_NULL.
    #[inline]
    pub(crate) fn peer(&self) -> Option<u32> {
        if let ReceiveSource::Peer { peer, .. } = self { Some(*peer) } else { None }
    }
}

/// What an MPI_Request names.
pub struct Request {
    /// The comm or file whose error handler gets the operation's errors. MPI_COMM_NULL if there is none.
    pub comm: Handle,
    /// The operation; None while a persistent request is not active.
    pub work: Option<Work>,
    /// How the operation of a persistent request is started. None if the request is not persistent.
    pub recipe: Option<Box<Recipe>>,
}

/// What an MPI_Message names: a message that a matched probe has taken out of the queue.
pub struct MatchedMessage {
    pub(crate) comm: Handle,
    pub(crate) context: u64,
    pub(crate) group: Arc<Group>,
    pub(crate) message: p2p::MessageTicket,
    pub(crate) probe: p2p::Probe,
    /// The record of the message's receive, if operations are timed.
    pub(crate) operation: Option<Box<telemetry::TimedOperation>>,
}

// These types are moved for each operation. A commit that raises a number must say why.
const _: () = assert!(size_of::<Work>() <= 56 && size_of::<Request>() <= 72);
