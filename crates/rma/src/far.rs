// SPDX-License-Identifier: BSD-3-Clause
//! A member of a window on another host, seen by an origin, which sends operations to it as messages.
//!
//! An operation goes in parts of bounded length, in order. Each part is one request message, which the member
//! answers once (`message.rs`), and at most `PARTS_MAX` parts to one member are unanswered. The rest of an
//! operation waits here as a description of the program's memory, so that no call waits and little is copied.
//! A member carries out the requests of one origin in their order, which orders accumulates (MPI 5.0, section
//! 12.7.2).

use crate::message::{IncomingMessage, MessageKind, MessagePiece, OutgoingMessage, PART_BYTES, PIECES_MAX};
use crate::outbox::Outbox;
use crate::record::Lock;
use crate::update::{Swap, Update};
use datatype::{Buffer, Layout, PredefinedOp};
use error::{Class, Error, Result, fail};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use sys::Block;

/// The most parts of operations (request messages) to one member that may be unanswered.
const PARTS_MAX: usize = 16;

/// The result of an operation that has an MPI request (such as MPI_Rput). It is set once the operation is
/// complete at the target.
pub type Completion = Arc<OnceLock<Result<()>>>;

/// A member of a window on another host, as this process sees it: what this process asks of the member, and
/// what the member asks of this process.
pub(crate) struct RemoteMember {
    pub peer: u32,
    /// The length, in bytes, of the memory that the member exposes. It is not used for a dynamic window,
    /// whose regions only the member knows.
    pub bytes: u64,
    pub disp_unit: i64,
    /// This process's operations at the member, in order, as long as they have parts that are not sent yet.
    queue: VecDeque<RemoteOperation>,
    /// The parts of operations (request messages) that were sent to the member and are not answered yet, the
    /// oldest first.
    unanswered: VecDeque<RequestPart>,
    /// The error of the first part that failed in the oldest unanswered operation; None if none of its parts
    /// has failed.
    failing: Option<Error>,
    /// The first error of an operation without an MPI request since the latest call that synchronizes; None
    /// if there was none.
    failed: Option<Error>,
    /// Whether the member has granted the latest lock for which this process asked.
    pub granted: bool,
    /// The lock of this process's memory that the member holds or waits for; None if the member has asked for
    /// none.
    pub asked: Option<LockRequest>,
    /// The number of the member's requests that this process has carried out and has not reported to the
    /// member yet.
    pub done: u64,
}

/// A lock of this process's memory for which a member on another host has asked. `held` says whether the lock
/// was granted.
pub(crate) struct LockRequest {
    pub ticket: u64,
    pub lock: Lock,
    pub held: bool,
}

/// What this process asks of a member on another host, in a request message with or without data.
pub(crate) enum RemoteRequest {
    Put,
    Get,
    Accumulate(Update),
    FetchAndOp(Update),
    Swap(Swap),
    /// A request that moves no data, such as MPI_Win_lock: the kind and the argument of its message.
    WithoutData(MessageKind, u64),
}

pub(crate) struct RemoteOperation {
    what: RemoteRequest,
    /// The program's buffers: first the data to send to the target, then the memory for fetched data. A
    /// buffer without use is empty.
    data: (Buffer, Buffer),
    /// The place of the first element in the target's memory: its offset from the start of that memory, or,
    /// in a dynamic window, its address in the target's process.
    base: usize,
    /// The layout of an element at the target; None for a request that moves no data.
    layout: Option<Arc<Layout>>,
    /// The number of data bytes at the target.
    bytes: usize,
    /// How many of the operation's `bytes` were put into parts so far.
    asked_bytes: usize,
    ended: Option<Completion>,
}

struct RequestPart {
    /// The memory for the data in the answer to this part; None if the operation fetches nothing.
    into: Option<Buffer>,
    /// Whether this is the last part (request message) of its operation.
    is_last: bool,
    ended: Option<Completion>,
}

impl RemoteMember {
    pub fn new(peer: u32, bytes: u64, disp_unit: i64) -> RemoteMember {
        RemoteMember {
            peer,
            bytes,
            disp_unit,
            queue: VecDeque::new(),
            unanswered: VecDeque::new(),
            failing: None,
            failed: None,
            granted: false,
            asked: None,
            done: 0,
        }
    }

    /// Whether the member has answered every request of this process.
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.unanswered.is_empty()
    }

    /// Whether the requests to this member no longer need this process's memory: the bytes to put were copied
    /// into messages, and no fetched data are still to come.
    pub fn is_done_here(&self) -> bool {
        self.queue.is_empty() && self.unanswered.iter().all(|part| part.into.is_none())
    }

    /// Returns the first error, since the latest call that synchronized, of an operation without an MPI
    /// request. Forgets the error. Returns `Ok` if there was none.
    pub fn failure(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Sends parts of the queued operations until `PARTS_MAX` parts are unanswered.
    fn advance(&mut self, outbox: &mut Outbox, key: u64) {
        while self.unanswered.len() < PARTS_MAX
            && let Some(operation) = self.queue.front_mut()
        {
            let (block, part) = operation.next_part(key);
            if part.is_last {
                self.queue.pop_front();
            }
            outbox.send(self.peer, block);
            self.unanswered.push_back(part);
        }
    }

    /// Sends a request of this kind, which moves no data, after the operations queued before. `key` names the
    /// window.
    pub fn send_request(&mut self, outbox: &mut Outbox, key: u64, kind: MessageKind, argument: u64) {
        let what = RemoteRequest::WithoutData(kind, argument);
        let nothing = (Buffer::EMPTY, Buffer::EMPTY);
        let operation = RemoteOperation {
            what,
            data: nothing,
            base: 0,
            layout: None,
            bytes: 0,
            asked_bytes: 0,
            ended: None,
        };
        self.enter(outbox, key, operation);
    }

    /// Appends an operation to the queue, and sends parts until `PARTS_MAX` are unanswered. `key` names the
    /// window.
    pub fn enter(&mut self, outbox: &mut Outbox, key: u64, operation: RemoteOperation) {
        self.queue.push_back(operation);
        self.advance(outbox, key);
    }

    /// Processes an answer of the member: marks the answered parts as ended, stores the data that they have
    /// fetched, and sends further parts.
    pub fn take_answer(&mut self, outbox: &mut Outbox, answer: &IncomingMessage) -> Result<()> {
        match answer.kind {
            MessageKind::Granted => self.granted = true,
            MessageKind::Done => {
                for _ in 0..answer.argument {
                    let part = self.oldest()?;
                    if part.into.is_some() {
                        fail!(Class::Intern, "peer {} answers a fetch without data", self.peer);
                    }
                    self.end(part, None);
                }
            }
            MessageKind::Fetched => {
                let part = self.oldest()?;
                let Some(into) = part.into.as_ref().filter(|into| into.bytes() == answer.data.bytes()) else {
                    fail!(
                        Class::Intern,
                        "peer {} answers with {} bytes, which were not asked for",
                        self.peer,
                        answer.data.bytes()
                    );
                };
                into.unpack(0, answer.data);
                self.end(part, None);
            }
            _ => {
                let part = self.oldest()?;
                self.end(part, Some(answer.error()));
            }
        }
        self.advance(outbox, answer.key);
        Ok(())
    }

    fn oldest(&mut self) -> Result<RequestPart> {
        match self.unanswered.pop_front() {
            Some(part) => Ok(part),
            None => fail!(Class::Intern, "peer {} answers what it was not asked", self.peer),
        }
    }

    fn end(&mut self, part: RequestPart, error: Option<Error>) {
        if self.failing.is_none() {
            self.failing = error;
        }
        if !part.is_last {
            return;
        }
        let failing = self.failing.take();
        match part.ended {
            // It is set only once, because a part ends once.
            Some(ended) => drop(ended.set(failing.map_or(Ok(()), Err))),
            None if self.failed.is_none() => self.failed = failing,
            None => {}
        }
    }

    /// Returns the place for the result of the latest unfinished operation at this member. The result is set
    /// when that operation ends. Returns None if all operations at this member have ended.
    pub fn completion_of_latest(&mut self) -> Option<Completion> {
        let queued = self.queue.back_mut().map(|operation| &mut operation.ended);
        let ended = queued.or(self.unanswered.back_mut().map(|part| &mut part.ended))?;
        Some(ended.get_or_insert_with(Completion::default).clone())
    }
}

impl RemoteOperation {
    /// Makes an operation of the kind `what`. `data` holds the program's data to send, and its buffer for
    /// fetched data. The third argument says where the data are at the target: the offset of the first
    /// element, the layout of an element, and the number of bytes.
    pub fn new(
        what: RemoteRequest,
        data: (Buffer, Buffer),
        (base, layout, bytes): (usize, Arc<Layout>, usize),
    ) -> RemoteOperation {
        RemoteOperation { what, data, base, layout: Some(layout), bytes, asked_bytes: 0, ended: None }
    }

    /// Makes the message that asks for the operation's next part. Returns the message, and what must be kept
    /// until its answer comes.
    fn next_part(&mut self, key: u64) -> (Block, RequestPart) {
        let mut pieces = Vec::new();
        let bytes = self.pieces_of_next(&mut pieces);
        let (kind, argument, update) = match self.what {
            RemoteRequest::Put => (MessageKind::Put, 0, None),
            RemoteRequest::Get => (MessageKind::Get, 0, None),
            RemoteRequest::Accumulate(update) => (MessageKind::Accumulate, 0, Some(update)),
            RemoteRequest::FetchAndOp(update) => (MessageKind::FetchAndOp, 0, Some(update)),
            RemoteRequest::Swap(Swap { basic, .. }) => {
                (MessageKind::Swap, 0, Some(Update { op: PredefinedOp::Replace, basic }))
            }
            RemoteRequest::WithoutData(kind, argument) => (kind, argument, None),
        };
        let message = OutgoingMessage { kind, key, argument, update, pieces: &pieces };
        let sends = match self.what {
            RemoteRequest::Put | RemoteRequest::Accumulate(_) => bytes,
            RemoteRequest::FetchAndOp(update) if update.op != PredefinedOp::NoOp => bytes,
            RemoteRequest::Swap(_) => 2 * bytes,
            _ => 0,
        };
        let (block, data) = message.with_data(sends);
        match self.what {
            RemoteRequest::Swap(swap) => {
                swap.compare.copy_to(data.slice(0, bytes));
                swap.origin.copy_to(data.slice(bytes, bytes));
            }
            _ if sends > 0 => self.data.0.pack(self.asked_bytes, data),
            _ => {}
        }
        let into = match self.what {
            RemoteRequest::Get | RemoteRequest::FetchAndOp(_) | RemoteRequest::Swap(_) => {
                Some(self.data.1.slice(self.asked_bytes, bytes))
            }
            _ => None,
        };
        self.asked_bytes += bytes;
        let is_last = self.asked_bytes == self.bytes;
        (block, RequestPart { into, is_last, ended: self.ended.take_if(|_| is_last) })
    }

    /// Lists the contiguous ranges of the target's memory that the next part touches. An accumulate is cut
    /// between elements. Returns the number of bytes of all ranges together.
    fn pieces_of_next(&self, pieces: &mut Vec<MessagePiece>) -> usize {
        let Some(layout) = &self.layout else { return 0 };
        let unit = match self.what {
            RemoteRequest::Accumulate(update) | RemoteRequest::FetchAndOp(update) => update.basic.size(),
            _ => 1,
        };
        let mut bytes = (self.bytes - self.asked_bytes).min(PART_BYTES / unit * unit);
        loop {
            pieces.clear();
            layout
                .pieces_at(self.base, self.asked_bytes, bytes, |offset, bytes| pieces.push((offset, bytes)));
            if pieces.len() <= PIECES_MAX || bytes <= unit {
                return bytes;
            }
            bytes = (bytes / 2 / unit * unit).max(unit);
        }
    }
}

impl RemoteMember {
    /// Sends the member the answer to its latest request. Before that, sends it the number of earlier
    /// requests that were carried out and are not answered yet.
    pub fn answer(&mut self, outbox: &mut Outbox, key: u64, answer: Block) {
        self.report_done(outbox, key);
        outbox.send(self.peer, answer);
    }

    /// Sends the member the number of its requests that were carried out and are not answered yet. Sends
    /// nothing if the number is 0.
    pub fn report_done(&mut self, outbox: &mut Outbox, key: u64) {
        if self.done > 0 {
            let done = OutgoingMessage::short(MessageKind::Done, key, std::mem::take(&mut self.done));
            outbox.send(self.peer, done.block());
        }
    }
}
