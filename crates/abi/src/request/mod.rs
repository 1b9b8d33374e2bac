// SPDX-License-Identifier: BSD-3-Clause
//! Operations under way, and the requests through which a program holds them (MPI 5.0, sections 3.7 and 3.9).
//!
//! A `Work` is an operation under way: a blocking call waits for it, and a nonblocking call puts it into a
//! `Request`. A persistent request also has a `Recipe`, from which each start makes a `Work`.

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
    /// The status of the operation, which the program gets.
    pub status: Status,
    /// Why the operation failed. None if it did not fail.
    pub error: Option<Error>,
    /// The program's functions for a generalized request, which fill in the status. None for other
    /// operations.
    pub generalized: Option<Box<Generalized>>,
}

impl Completion {
    /// The completion of a send or a collective, and of a request that is null or inactive.
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

    /// Returns the completion of an access to a file. `outcome` is the number of bytes of the program's
    /// memory that were read or written, or the error.
    pub(crate) fn of_bytes(outcome: Result<u64>) -> Completion {
        let mut completion = Completion::EMPTY;
        match outcome {
            Ok(bytes) => completion.status.set_bytes(bytes),
            Err(error) => completion.error = Some(error),
        }
        completion
    }
}

/// Returns the status of a message. The source in the status is the rank of the sender `source_peer` in
/// `group`.
pub(crate) fn status_of(source_peer: u32, tag: i32, bytes: u64, group: &Group) -> Status {
    Status::new(rank_of(source_peer, group), tag, bytes)
}

fn rank_of(peer: u32, group: &Group) -> i32 {
    group.rank_of(peer).map_or(constants::ANY_SOURCE, |rank| rank as i32)
}

/// The checked arguments of a send. `peer` is the receiver's number in the job, or None for MPI_PROC_NULL.
#[derive(Clone)]
pub struct Send {
    pub(crate) mode: Mode,
    pub(crate) context: u64,
    pub(crate) peer: Option<u32>,
    pub(crate) tag: i32,
    pub(crate) buffer: Unfilled,
}

/// The checked arguments of a receive. `tag` is None for MPI_ANY_TAG.
#[derive(Clone)]
pub struct Receive {
    pub(crate) context: u64,
    pub(crate) source: ReceiveSource,
    pub(crate) tag: Option<i32>,
    pub(crate) buffer: Buffer,
}

/// The operation of a persistent request, from which each start makes a `Work` (MPI 5.0, section 3.9).
pub enum Recipe {
    /// A send: MPI_Send_init, MPI_Bsend_init, MPI_Ssend_init or MPI_Rsend_init.
    Send(Send),
    /// A receive: MPI_Recv_init.
    Recv(Receive),
    /// A collective: MPI_Bcast_init and the like. `members.sequence` is the number of the latest collective
    /// in the request's context, `starts` the number of starts. `queue` says whether the comm's queue carries
    /// out each start. `library` has the steps for the collective library, or None if another carrier is
    /// chosen.
    Coll {
        planned: Box<Planned>,
        members: Members,
        queue: QueueState,
        library: Option<Vec<LibraryStep>>,
        starts: u32,
        _claim: ContextClaim,
    },
    /// A partitioned message: MPI_Psend_init or MPI_Precv_init.
    Partitioned(Arc<Partitioned>),
    /// The operation of another recipe, with the memory that stands in for the program's buffers
    /// (`staging.rs`).
    Staged(Box<Recipe>, Arc<StandIns>),
}

impl Recipe {
    /// Returns what a start of the persistent request needs, without the memory that stands in for its
    /// buffers.
    pub(crate) fn inner(&self) -> &Recipe {
        if let Recipe::Staged(recipe, _) = self { recipe.inner() } else { self }
    }

    /// Returns what a start of the persistent request needs, without the memory that stands in for its
    /// buffers, as a mutable reference.
    pub(crate) fn inner_mut(&mut self) -> &mut Recipe {
        if let Recipe::Staged(recipe, _) = self { recipe.inner_mut() } else { self }
    }
}

/// The process from which a receive takes a message.
#[derive(Clone, Debug)]
pub enum ReceiveSource {
    /// MPI_PROC_NULL, no process.
    Nobody,
    /// MPI_ANY_SOURCE, any process of this group. The sender's rank in the group goes into the status.
    Any(Arc<Group>),
    /// One process, with its number in the job and its rank in the comm.
    Peer { peer: u32, rank: i32 },
}

impl ReceiveSource {
    /// Returns the number in the job of the process from which the message must come. Returns None for
    /// MPI_ANY_SOURCE and MPI_PROC_NULL.
    #[inline]
    pub(crate) fn peer(&self) -> Option<u32> {
        if let ReceiveSource::Peer { peer, .. } = self { Some(*peer) } else { None }
    }
}

/// The request that an MPI_Request handle names.
pub struct Request {
    /// The comm or file whose error handler receives the operation's error. MPI_COMM_NULL if there is none.
    pub comm: Handle,
    /// The operation under way. None while a persistent request is inactive.
    pub work: Option<Work>,
    /// The recipe from which each start of a persistent request makes its operation. None if the request is
    /// not persistent.
    pub recipe: Option<Box<Recipe>>,
}

/// The message that an MPI_Message handle names. MPI_Mprobe or MPI_Improbe has taken it out of the queue of
/// arrived messages.
pub struct MatchedMessage {
    pub(crate) comm: Handle,
    pub(crate) context: u64,
    pub(crate) group: Arc<Group>,
    pub(crate) message: p2p::MessageTicket,
    pub(crate) probe: p2p::Probe,
    /// The record of the message's receive for statistics and trace. None unless operations are timed.
    pub(crate) operation: Option<Box<telemetry::TimedOperation>>,
}

// These types are moved for each operation. A commit that raises a number must say why.
const _: () = assert!(size_of::<Work>() <= 56 && size_of::<Request>() <= 72);
