// SPDX-License-Identifier: BSD-3-Clause
//! Operations under way: how they are advanced, and whether they are over.

use super::{
    Checked, Completion, Enqueued, Generalized, Image, LibraryCollective, OnDevice, Operator,
    PartitionedStart, ReceiveSource, Timed,
};
use crate::staging::{self, StandIns};
use coll::Coll;
use error::Result;
use p2p::{P2p, Ticket};
use slab::Slab;
use std::sync::Arc;
use telemetry::TimedOperation;

/// An operation under way.
pub enum Work {
    /// An operation that is over, with its outcome.
    Done(Completion),
    /// A send, by its ticket (its number in `p2p`).
    Send(Ticket),
    /// A receive, by its ticket (its number in `p2p`), and its source.
    Recv(Ticket, ReceiveSource),
    /// A long send or receive, which a proxy may move.
    Long(Box<LongMessage>),
    /// The send and the receive of MPI_Isendrecv or MPI_Sendrecv_replace.
    SendReceive(Box<SendReceive>),
    /// A collective, with its images (copies of the program's buffers) where it has some, and with its record
    /// for the statistics and the trace if operations are timed.
    Coll(coll::CollTicket, Option<Box<Image>>, Option<Box<telemetry::TimedOperation>>),
    /// An access to a file. The promise gets how many bytes of the program's memory were read or written.
    Io(io::Promise<Result<u64>>),
    /// A collective that a collective library such as NCCL carries out.
    Library(Box<LibraryCollective>),
    /// A reduction that kernels of devices carry out.
    OnDevice(Box<OnDevice>),
    /// A one-sided operation whose target is on another host.
    Window(rma::Completion),
    /// A collective whose members first compare their arguments, with OUTBOARD_CHECK=1.
    Checked(Box<Checked>),
    /// MPI_Buffer_iflush or a similar call. It is over once `messages` messages in all have left the buffer
    /// of `owner`.
    Flush { owner: p2p::BufferOwner, messages: u64 },
    /// One start of a partitioned send or receive.
    Partitioned(Box<PartitionedStart>),
    /// An operation that is enqueued on a device's stream. The program may not wait for its request by
    /// MPI_Wait.
    Enqueued(Arc<Enqueued>),
    /// An operation of another variant, with the memory that stands in for the program's buffers
    /// (`staging.rs`).
    Staged(Box<Work>, Arc<StandIns>),
    /// A send or a receive with its record for the statistics and the trace, if operations are timed.
    Timed(Box<Timed>),
    /// The operation of a generalized request, which the program carries out.
    Generalized {
        /// The functions that the program passed to MPI_Grequest_start.
        functions: Generalized,
        /// Whether MPI_Grequest_complete has been called.
        complete: bool,
        /// Whether MPI_Request_free was called before MPI_Grequest_complete. Then no call waits for the
        /// request.
        freed: bool,
    },
}

/// A long send or receive, which a proxy may move.
pub struct LongMessage {
    pub(crate) ticket: Ticket,
    /// The source of a receive. None for a send.
    pub(crate) source: Option<ReceiveSource>,
    /// The measurement of this message, which shows whether the rank computes while long messages move. None
    /// if this message is not measured.
    pub(crate) measured: Option<coll::MeasuredMessage>,
}

/// A send and a receive with one request. The request gets the receive's status, and the first error of send
/// and receive.
pub struct SendReceive {
    /// The send. None once it is over.
    pub(crate) send: Option<Work>,
    /// The receive. None once it is over.
    pub(crate) recv: Option<Work>,
    /// A copy of the data to send. None unless the receive overwrites the program's buffer.
    pub packed: Option<Box<[u8]>>,
    /// The outcome so far: the receive's status once the receive is over, and the first error of send and
    /// receive.
    pub(crate) completion: Completion,
}

impl SendReceive {
    fn poll(&mut self, p2p: &mut P2p, coll: &mut Coll, operators: &mut Slab<Operator>) -> Option<Completion> {
        let SendReceive { send, recv, completion, .. } = self;
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
    /// Advances the operation. Returns its outcome once it is over, and None before. After that the operation
    /// must not be polled again.
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
                Some(Completion::of_send(outcome))
            }
            Work::Long(long) => long.poll(p2p, coll),
            Work::Recv(ticket, source) => {
                let outcome = p2p.take(*ticket)?;
                Some(Completion::of(outcome, source))
            }
            Work::SendReceive(both) => both.poll(p2p, coll, operators),
            Work::Timed(timed) => timed.poll(p2p, coll, operators),
            Work::Checked(checked) => {
                let next = checked.poll(coll)?;
                if next.is_err() {
                    checked.operator().map(|operator| operators.remove(operator));
                }
                self.continue_as(next.map(Some), p2p, coll, operators)
            }
            Work::Flush { owner, messages } => p2p.is_flushed(*owner, *messages).then_some(Completion::EMPTY),
            Work::Partitioned(parts) => parts.poll(p2p, coll),
            Work::Enqueued(_) => Some(Enqueued::awaited_by_host()),
            Work::Staged(work, staged) => {
                let mut completion = work.poll(p2p, coll, operators)?;
                if let Err(error) = staged.deliver(work.receives().then(|| completion.status.bytes())) {
                    completion.error.get_or_insert(error);
                }
                Some(completion)
            }
            Work::Library(carried) => carried.poll(coll),
            Work::OnDevice(reduction) => {
                let next = reduction.poll(coll)?;
                self.continue_as(next, p2p, coll, operators)
            }
            Work::Window(ended) => {
                let error = ended.get()?.clone().err();
                Some(Completion { error, ..Completion::EMPTY })
            }
            Work::Io(slot) => Some(Completion::of_bytes(slot.take()?)),
            Work::Generalized { functions, complete, .. } => {
                complete.then(|| Completion { generalized: Some(Box::new(*functions)), ..Completion::EMPTY })
            }
            Work::Coll(ticket, image, operation) => {
                if let Some(operation) = operation {
                    operation.note_progress();
                    // A collective that waited in a queue gets its number only when it starts.
                    operation.note_carried(coll.carried(*ticket));
                }
                let outcome = coll.outcome(*ticket)?;
                if let Some(operation) = operation.take() {
                    operation.end();
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

    /// Makes this operation the operation `next`, and polls it once. Returns the outcome of `next`, or None
    /// if it is still under way. Returns an outcome at once if `next` is None or an error.
    fn continue_as(
        &mut self,
        next: Result<Option<Work>>,
        p2p: &mut P2p,
        coll: &mut Coll,
        operators: &mut Slab<Operator>,
    ) -> Option<Completion> {
        match next {
            Ok(Some(work)) => {
                *self = work;
                self.poll(p2p, coll, operators)
            }
            Ok(None) => Some(Completion::EMPTY),
            Err(error) => Some(Completion { error: Some(error), ..Completion::EMPTY }),
        }
    }

    /// Whether each round of progress must poll this operation by `poll`. The progress of the crates below
    /// advances all other operations.
    pub(crate) fn is_driven(&self) -> bool {
        match self {
            Work::Partitioned(parts) => parts.awaits_heading(),
            Work::Staged(work, _) => work.is_driven(),
            Work::Timed(timed) => timed.work.is_driven(),
            Work::Checked(_) | Work::OnDevice(_) => true,
            Work::Library(carried) => carried.is_driven(),
            _ => false,
        }
    }

    /// Whether the operation is a receive, whose outcome says how many bytes arrived.
    fn receives(&self) -> bool {
        match self {
            Work::Recv(..) | Work::SendReceive(_) => true,
            Work::Long(long) => long.source.is_some(),
            Work::Staged(work, _) => work.receives(),
            Work::Timed(timed) => timed.work.receives(),
            _ => false,
        }
    }

    /// Returns the ticket of a send or a receive, its number in `p2p`. Returns None for another operation.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match self {
            Work::Send(ticket) | Work::Recv(ticket, _) => Some(*ticket),
            Work::Long(long) => Some(long.ticket),
            Work::Staged(work, _) => work.ticket(),
            Work::Timed(timed) => timed.work.ticket(),
            _ => None,
        }
    }
}

impl Work {
    /// Moves all memory that stands in for device memory in the running call into this operation.
    #[cold]
    pub(crate) fn take_stand_ins(&mut self) {
        if let Some(staged) = staging::taken() {
            self.stand_in(staged);
        }
    }

    /// Adds memory that stands in for the program's buffers to this operation. It is copied back when the
    /// operation is over.
    pub(crate) fn stand_in(&mut self, staged: Arc<StandIns>) {
        let work = std::mem::replace(self, Work::Done(Completion::EMPTY));
        *self = Work::Staged(Box::new(work), staged);
    }

    /// Returns the operation without the memory that stands in for its buffers, and without its record.
    pub(crate) fn inner(&self) -> &Work {
        match self {
            Work::Staged(work, _) => work.inner(),
            Work::Timed(timed) => timed.work.inner(),
            work => work,
        }
    }

    /// Returns the operation like `inner`, to be changed.
    pub(crate) fn inner_mut(&mut self) -> &mut Work {
        match self {
            Work::Staged(work, _) => work.inner_mut(),
            Work::Timed(timed) => timed.work.inner_mut(),
            work => work,
        }
    }

    /// Gives this operation a record for the statistics and the trace, which ends when the operation is over.
    pub(crate) fn follow(&mut self, operation: Option<Box<TimedOperation>>, coll: &Coll) {
        let Some(mut operation) = operation else { return };
        match self {
            Work::Coll(ticket, _, followed) => {
                operation.note_carried(coll.carried(*ticket));
                *followed = Some(operation);
            }
            Work::Checked(checked) => checked.operation = Some(operation),
            Work::Staged(work, _) => work.follow(Some(operation), coll),
            _ => operation.end(),
        }
    }
}
