//! Operations under way, and the requests through which a program holds them (MPI 5.0, sections 3.7 and 3.9).
//!
//! `Work` is what a blocking call waits for and a request holds; the two differ only in who asks. A persistent request keeps a
//! `Recipe`, from which work is started again.

use crate::args::Status;
use crate::body::generalized::Generalized;
use crate::body::partitioned::{Partitioned, Parts};
use crate::collective::{Checked, Planned};
use crate::image::{Image, Operator};
use crate::process::{Awaiting, Guard, Job, Process};
use coll::{Coll, Members};
use datatype::Buffer;
use error::{Error, Result};
use objects::context::Claim;
use objects::{Group, Handle, Queue, constants};
use p2p::{Mode, Outcome, P2p, Ticket};
use slab::Slab;
use std::sync::Arc;

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the program is told.
    pub status: Status,
    /// What went wrong.
    pub error: Option<Error>,
    /// Of a generalized request: whom to ask for the rest.
    pub generalized: Option<Box<Generalized>>,
}

impl Completion {
    /// The empty status: of sends, collectives, and requests that are null or not active.
    pub const EMPTY: Completion = Completion { status: Status::EMPTY, error: None, generalized: None };

    /// Of a receive from MPI_PROC_NULL.
    pub const NO_PROCESS: Completion = Completion { status: Status::NO_PROCESS, ..Completion::EMPTY };

    #[inline]
    pub(crate) fn of(outcome: Outcome, source: &Source) -> Completion {
        let rank = match source {
            Source::Peer { rank, .. } => *rank,
            Source::Any(group) => rank_of(outcome.source_peer, group),
            Source::Nobody => constants::PROC_NULL,
        };
        let mut status = Status::new(rank, outcome.tag, outcome.bytes as u64);
        status.set_cancelled(outcome.cancelled);
        Completion { status, error: outcome.error, generalized: None }
    }
}

impl Completion {
    /// Of an access to a file.
    pub(crate) fn of_bytes(outcome: Result<u64>) -> Completion {
        let mut completion = Completion::EMPTY;
        match outcome {
            Ok(bytes) => completion.status.set_bytes(bytes),
            Err(error) => completion.error = Some(error),
        }
        completion
    }
}

/// The status of a message, with the sender's rank in the comm's group.
pub(crate) fn status_of(source_peer: u32, tag: i32, bytes: u64, group: &Group) -> Status {
    Status::new(rank_of(source_peer, group), tag, bytes)
}

fn rank_of(peer: u32, group: &Group) -> i32 {
    group.rank_of(peer).map_or(constants::ANY_SOURCE, |rank| rank as i32)
}

/// An operation under way.
pub enum Work {
    /// It was over when it began.
    Done(Completion),
    /// A send.
    Send(Ticket),
    /// A receive, and whom it listens to.
    Recv(Ticket, Source),
    /// MPI_Isendrecv and MPI_Sendrecv_replace.
    Both(Box<Both>),
    /// A collective; the last is there where operations are timed.
    Coll(coll::CollTicket, Option<Box<Image>>, Option<Box<telemetry::Operation>>),
    /// An access to a file: bytes of the program's memory.
    Io(io::Promise<Result<u64>>),
    /// A collective before which its members compare what they pass.
    Checked(Box<Checked>),
    /// MPI_Buffer_iflush and its like: waits until so many messages have left a buffer.
    Flush { owner: p2p::Owner, messages: u64 },
    /// A partitioned send or receive.
    Parts(Box<Parts>),
    /// An operation of the program.
    Generalized {
        /// What to call.
        functions: Generalized,
        /// MPI_Grequest_complete has been called.
        complete: bool,
        /// MPI_Request_free has been called before that, so that nobody waits for it.
        freed: bool,
    },
}

/// A send and a receive that end together. The receive's status counts, and the first failure.
pub struct Both {
    /// The send, until it is over.
    pub(crate) send: Option<Work>,
    /// The receive, until it is over.
    pub(crate) recv: Option<Work>,
    /// What is sent, where the receive overwrites the user's copy.
    pub packed: Option<Box<[u8]>>,
    /// Of those that are over.
    pub(crate) completion: Completion,
}

impl Both {
    fn poll(&mut self, p2p: &mut P2p, coll: &mut Coll, operators: &mut Slab<Operator>) -> Option<Completion> {
        let Both { send, recv, completion, .. } = self;
        if let Some(sent) = send.as_mut().and_then(|work| work.poll(p2p, coll, operators)) {
            *send = None;
            completion.error = completion.error.take().or(sent.error);
        }
        if let Some(received) = recv.as_mut().and_then(|work| work.poll(p2p, coll, operators)) {
            *recv = None;
            let error = completion.error.take().or_else(|| received.error.clone());
            *completion = Completion { error, ..received };
        }
        (send.is_none() && recv.is_none()).then(|| completion.clone())
    }
}

impl Work {
    /// Whether it is over, and how; once it has been told, it is spent, and has let go what it needed.
    #[inline]
    pub fn poll(
        &mut self,
        p2p: &mut P2p,
        coll: &mut Coll,
        operators: &mut Slab<Operator>,
    ) -> Option<Completion> {
        match self {
            Work::Done(completion) => Some(completion.clone()),
            Work::Send(Ticket::DONE) => Some(Completion::EMPTY),
            Work::Send(ticket) => {
                let outcome = p2p.take(*ticket)?;
                let mut completion = Completion { error: outcome.error, ..Completion::EMPTY };
                completion.status.set_cancelled(outcome.cancelled);
                Some(completion)
            }
            Work::Recv(ticket, source) => {
                let outcome = p2p.take(*ticket)?;
                Some(Completion::of(outcome, source))
            }
            Work::Both(both) => both.poll(p2p, coll, operators),
            Work::Checked(checked) => match checked.poll(coll)? {
                Ok(work) => {
                    *self = work;
                    self.poll(p2p, coll, operators)
                }
                Err(error) => {
                    checked.operator().map(|operator| operators.remove(operator));
                    Some(Completion { error: Some(error), ..Completion::EMPTY })
                }
            },
            Work::Flush { owner, messages } => p2p.is_flushed(*owner, *messages).then_some(Completion::EMPTY),
            Work::Parts(parts) => parts.poll(p2p),
            Work::Io(slot) => Some(Completion::of_bytes(slot.take()?)),
            Work::Generalized { functions, complete, .. } => {
                complete.then(|| Completion { generalized: Some(Box::new(*functions)), ..Completion::EMPTY })
            }
            Work::Coll(ticket, image, operation) => {
                let mut carried = None;
                if let Some(operation) = operation {
                    operation.look();
                    carried = coll.carried(*ticket);
                }
                let outcome = coll.outcome(*ticket)?;
                if let Some(operation) = operation.take() {
                    operation.over(carried);
                }
                if let Some(mut image) = image.take() {
                    if outcome.is_ok() {
                        image.deliver();
                    }
                    image.operator.map(|operator| operators.remove(operator));
                }
                Some(Completion { error: outcome.err(), ..Completion::EMPTY })
            }
        }
    }

    /// Whether it takes steps of its own, which must be taken whoever waits for what: nobody else's progress takes them.
    pub(crate) fn is_driven(&self) -> bool {
        match self {
            Work::Parts(parts) => parts.awaits_heading(),
            Work::Checked(_) => true,
            _ => false,
        }
    }

    /// Cancels sends and receives that have not matched.
    pub fn cancel(&mut self, p2p: &mut P2p) {
        match self {
            Work::Send(ticket) | Work::Recv(ticket, _) => p2p.cancel(*ticket),
            _ => (),
        }
    }
}

/// A send about to be started; nobody receives it where `peer` is none.
#[derive(Clone)]
pub struct Send {
    pub(crate) mode: Mode,
    pub(crate) context: u64,
    pub(crate) peer: Option<u32>,
    pub(crate) tag: i32,
    pub(crate) buffer: Buffer,
}

/// A receive about to be started.
#[derive(Clone)]
pub struct Receive {
    pub(crate) context: u64,
    pub(crate) source: Source,
    pub(crate) tag: Option<i32>,
    pub(crate) buffer: Buffer,
}

/// How a persistent request is started (MPI 5.0, section 3.9).
pub enum Recipe {
    /// MPI_Send_init and its modes.
    Send(Send),
    /// MPI_Recv_init.
    Recv(Receive),
    /// MPI_Bcast_init and the other collectives. The members' sequence number counts the starts, which may go through a queue of their own.
    Coll { planned: Planned, members: Members, queue: Queue, _claim: Claim },
    /// MPI_Psend_init and MPI_Precv_init.
    Partitioned(Arc<Partitioned>),
}

/// Whom a receive listens to.
#[derive(Clone, Debug)]
pub enum Source {
    /// MPI_PROC_NULL.
    Nobody,
    /// MPI_ANY_SOURCE; in the comm's group the sender's rank is found.
    Any(Arc<Group>),
    /// One process: its number in the job, and its rank in the comm.
    Peer { peer: u32, rank: i32 },
}

impl Source {
    /// The peer to match; nothing stands for any, and `Nobody` has none.
    #[inline]
    pub(crate) fn peer(&self) -> Option<u32> {
        if let Source::Peer { peer, .. } = self { Some(*peer) } else { None }
    }
}

/// What an MPI_Request names.
pub struct Request {
    /// The comm, or the file, whose error handler hears of failures; MPI_COMM_NULL: it belongs to none.
    pub comm: Handle,
    /// The operation; nothing while a persistent request is not active.
    pub work: Option<Work>,
    /// Persistent requests: how to start.
    pub recipe: Option<Box<Recipe>>,
}

// What each operation under way moves about. A commit that raises a number must say why.
const _: () = assert!(size_of::<Work>() <= 56 && size_of::<Request>() <= 72);

impl Guard {
    /// Waits for an operation; whether it failed is in the completion.
    #[inline]
    pub(crate) fn finish(&mut self, mut work: Work) -> Completion {
        let mut poll = |process: &mut Process| {
            let job = process.job();
            work.poll(&mut job.p2p, &mut job.coll, &mut job.operators)
        };
        match self.wait_briefly(&mut poll) {
            Ok(completion) => completion,
            Err(_) => {
                if let Work::Send(ticket) | Work::Recv(ticket, _) = work
                    && let Some(operation) = self.job().p2p.describe(ticket)
                {
                    self.awaiting = Awaiting::Operation(operation);
                }
                self.wait_long(|process| {
                    let job = process.job();
                    work.poll(&mut job.p2p, &mut job.coll, &mut job.operators)
                })
            }
        }
    }
}

impl Process {
    /// A request for this work.
    #[inline(always)]
    pub(crate) fn request(&mut self, comm: Handle, work: Work) -> Result<Handle> {
        let driven = work.is_driven();
        let handle = self.job().requests.insert(Request { comm, work: Some(work), recipe: None })?;
        if driven {
            self.job().driven.push(handle);
        }
        Ok(handle)
    }
}

impl Job {
    /// Whether a request is over (inactive ones are). What it has to tell is kept in it.
    pub(crate) fn advance(&mut self, handle: Handle) -> Result<bool> {
        let Job { requests, deferred, p2p, coll, operators, .. } = self;
        if let Some(receive) = deferred.get(handle) {
            return Ok(p2p.is_done(receive.ticket()));
        }
        let Some(work) = &mut requests.get_mut(handle)?.work else { return Ok(true) };
        match work {
            Work::Done(_) => return Ok(true),
            Work::Send(ticket) | Work::Recv(ticket, _) => return Ok(p2p.is_done(*ticket)),
            _ => (),
        }
        let Some(completion) = work.poll(p2p, coll, operators) else { return Ok(false) };
        *work = Work::Done(completion);
        Ok(true)
    }

    /// Advances requests that have steps of their own to take; whether any is over now.
    pub(crate) fn poll_driven(&mut self) -> bool {
        let mut driven = std::mem::take(&mut self.driven);
        let before = driven.len();
        driven.retain(|handle| self.advance(*handle).is_ok_and(|over| !over));
        let moved = driven.len() < before;
        self.driven = driven;
        moved
    }

    /// Advances operations whose requests the program has freed.
    pub(crate) fn poll_orphans(&mut self) {
        let Job { orphans, p2p, coll, operators, .. } = self;
        orphans.retain_mut(|work| work.poll(p2p, coll, operators).is_none());
    }
}
