// SPDX-License-Identifier: BSD-3-Clause
//! A member of a window on another host, seen by an origin: operations are sent to it as messages.
//!
//! An operation goes in parts of bounded length, in order. Each part is answered once (`message.rs`), and at
//! most `PARTS_MAX` parts to one member are unanswered. The rest waits here as a description of the program's
//! memory, so that no call waits and little is copied. A member carries out the requests of one origin in
//! their order, which orders accumulates (MPI 5.0, section 12.7.2).

use crate::message::{IncomingMessage, MessageKind, MessagePiece, OutgoingMessage, PART_BYTES, PIECES_MAX};
use crate::outbox::Outbox;
use crate::record::Lock;
use crate::update::{Swap, Update};
use datatype::{Buffer, Layout, PredefinedOp};
use error::{Class, Error, Result, fail};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use sys::Block;

/// The most parts to one member that may be unanswered.
const PARTS_MAX: usize = 16;

/// Set to the result of an operation with a request (such as MPI_Rput) once the operation is complete at the
/// target.
pub type Completion = Arc<OnceLock<Result<()>>>;

/// A member of a window on another host, as this process sees it: what this process asks of it, and what it
/// asks.
pub(crate) struct RemoteMember {
    pub peer: u32,
    /// The length of the memory that the member exposes; not used for a dynamic window, whose regions only
    /// the member knows.
    pub bytes: u64,
    pub disp_unit: i64,
    /// Operations of this process at the member of which some parts have not been sent.
    queue: VecDeque<RemoteOperation>,
    /// Parts of operations that were sent to the member and that it has not answered, the oldest first.
    unanswered: VecDeque<RequestPart>,
    /// The error of the first failed part of the oldest unanswered operation; None if no part of it has
    /// failed.
    failing: Option<Error>,
    /// The first failure of an operation without a request since the latest call that synchronizes; None if
    /// there was none.
    failed: Option<Error>,
    /// Whether the member has granted this process the lock for which it asked last.
    pub granted: bool,
    /// The lock of this process's memory that the member holds or waits for; None if it has asked for none.
    pub asked: Option<LockRequest>,
    /// The number of the member's requests that this process has carried out and not yet reported to the
    /// member.
    pub done: u64,
}

/// A lock of this process's memory for which a member on another host has asked. `held`: whether it was
/// granted.
pub(crate) struct LockRequest {
    pub ticket: u64,
    pub lock: Lock,
    pub held: bool,
}

/// What an operation or a notice asks of a member on another host.
pub(crate) enum RemoteRequest {
    Put,
    Get,
    Accumulate(Update),
    FetchAndOp(Update),
    Swap(Swap),
    /// A notice, which moves no data: the kind and the argument of its message.
    WithoutData(MessageKind, u64),
}

pub(crate) struct RemoteOperation {
    what: RemoteRequest,
    /// The program's buffers: the data to send to the target, and where fetched data go. Empty where there
    /// are none.
    data: (Buffer, Buffer),
    /// The offset of the first element from the start of the target's memory; in a dynamic window, its
    /// address there.
    base: usize,
    /// The layout of an element at the target; None for a notice.
    layout: Option<Arc<Layout>>,
    /// The number of data bytes at the target.
    bytes: usize,
    /// The number of these bytes that were put into parts so far.
    asked: usize,
    ended: Option<Completion>,
}

struct RequestPart {
    /// The part of the program's buffer into which its answer goes; None if the operation fetches nothing.
    into: Option<Buffer>,
    /// Whether this is the last part of its operation.
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

    /// Whether the requests to this member need this process's memory no more: the bytes to put were copied
    /// into messages, and no fetched data are still to come.
    pub fn is_done_here(&self) -> bool {
        self.queue.is_empty() && self.unanswered.iter().all(|part| part.into.is_none())
    }

    /// Takes the first failure since the last call: an error if an operation without a request has failed.
    pub fn failure(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Sends parts of the queued operations, as many as may be unanswered.
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

    /// Sends a notice of this kind after the operations before it. `key` names the window.
    pub fn send_request(&mut self, outbox: &mut Outbox, key: u64, kind: MessageKind, argument: u64) {
        let what = RemoteRequest::WithoutData(kind, argument);
        let nothing = (Buffer::EMPTY, Buffer::EMPTY);
        let operation =
            RemoteOperation { what, data: nothing, base: 0, layout: None, bytes: 0, asked: 0, ended: None };
        self.enter(outbox, key, operation);
    }

    /// Appends an operation to the queue, and sends as many parts as may be unanswered. `key` names the
    /// window.
    pub fn enter(&mut self, outbox: &mut Outbox, key: u64, operation: RemoteOperation) {
        self.queue.push_back(operation);
        self.advance(outbox, key);
    }

    /// Takes an answer of the member: ends the parts that it answers, stores what they have fetched, and
    /// sends further parts.
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

    /// Returns the completion of the latest operation at this member; None if all operations at it have
    /// ended.
    pub fn ended(&mut self) -> Option<Completion> {
        let queued = self.queue.back_mut().map(|operation| &mut operation.ended);
        let ended = queued.or(self.unanswered.back_mut().map(|part| &mut part.ended))?;
        Some(ended.get_or_insert_with(Completion::default).clone())
    }
}

impl RemoteOperation {
    /// Makes an operation of the kind `what`. `data`: the program's data to send, and its buffer for fetched
    /// data. Then the offset of the first element at the target, its layout, and the number of bytes.
    pub fn new(
        what: RemoteRequest,
        data: (Buffer, Buffer),
        (base, layout, bytes): (usize, Arc<Layout>, usize),
    ) -> RemoteOperation {
        RemoteOperation { what, data, base, layout: Some(layout), bytes, asked: 0, ended: None }
    }

    /// Makes the message that asks for the operation's next part. Returns it, and what must be kept until its
    /// answer comes.
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
            _ if sends > 0 => self.data.0.pack(self.asked, data),
            _ => {}
        }
        let into = match self.what {
            RemoteRequest::Get | RemoteRequest::FetchAndOp(_) | RemoteRequest::Swap(_) => {
                Some(self.data.1.slice(self.asked, bytes))
            }
            _ => None,
        };
        self.asked += bytes;
        let is_last = self.asked == self.bytes;
        (block, RequestPart { into, is_last, ended: self.ended.take_if(|_| is_last) })
    }

    /// Lists the pieces of the target's memory that the next part touches, in whole elements if they are
    /// combined. Returns their number of bytes.
    fn pieces_of_next(&self, pieces: &mut Vec<MessagePiece>) -> usize {
        let Some(layout) = &self.layout else { return 0 };
        let unit = match self.what {
            RemoteRequest::Accumulate(update) | RemoteRequest::FetchAndOp(update) => update.basic.size(),
            _ => 1,
        };
        let mut bytes = (self.bytes - self.asked).min(PART_BYTES / unit * unit);
        loop {
            pieces.clear();
            layout.pieces_at(self.base, self.asked, bytes, |offset, bytes| pieces.push((offset, bytes)));
            if pieces.len() <= PIECES_MAX || bytes <= unit {
                return bytes;
            }
            bytes = (bytes / 2 / unit * unit).max(unit);
        }
    }
}

impl RemoteMember {
    /// Sends the member the answer to its latest request, after reporting the earlier requests that were
    /// carried out.
    pub fn answer(&mut self, outbox: &mut Outbox, key: u64, answer: Block) {
        self.report_done(outbox, key);
        outbox.send(self.peer, answer);
    }

    /// Sends the member the number of its requests that were carried out and not yet answered, unless there
    /// are none.
    pub fn report_done(&mut self, outbox: &mut Outbox, key: u64) {
        if self.done > 0 {
            let done = OutgoingMessage::short(MessageKind::Done, key, std::mem::take(&mut self.done));
            outbox.send(self.peer, done.block());
        }
    }
}
