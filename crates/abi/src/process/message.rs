// SPDX-License-Identifier: BSD-3-Clause
//! Records of sends and receives for OUTBOARD_STATS and OUTBOARD_TRACE, each from its start to its end, by
//! function and comm. While messages are recorded, none takes the fast path (`fast/message.rs`).

use super::{JobState, Process, report};
use crate::request::{
    Completion, MessageEnd, Partitioned, Receive, ReceiveSource, Send, Timed, Work, choice,
};
use error::Result;
use p2p::Ticket;
use std::sync::Arc;
use telemetry::{ANY_PEER, ANY_TAG, TimedOperation, TracedMessage};

impl Process {
    /// Starts the record of a message of the running MPI call, for statistics and trace. Returns None if
    /// there are too many pairs of function and comm to count.
    pub(crate) fn message(&mut self, end: &MessageEnd, peer: Option<u32>) -> Option<Box<TimedOperation>> {
        self.message_of(end.context, end, peer)
    }

    /// Starts the record, for statistics and trace, of a message that belongs to the comm with the context id
    /// `of_comm`. A partitioned message has a context of its own, in `end`.
    fn message_of(
        &mut self,
        of_comm: u64,
        end: &MessageEnd,
        peer: Option<u32>,
    ) -> Option<Box<TimedOperation>> {
        let MessageEnd { sends, context, tag, bytes, .. } = *end;
        let (objects, job) = self.parts();
        let named = || {
            let found = report::comms(objects).find(|(_, comm)| comm.context == of_comm);
            found.map_or_else(|| "a freed comm".into(), |(handle, comm)| comm.name_or(handle))
        };
        let calls = job.operations.calls(of_comm, telemetry::function(), named)?;
        let (row, name, peer) = (calls.row, &*calls.name, peer.unwrap_or(ANY_PEER));
        let choice = choice(&mut job.p2p, peer, bytes);
        let message = TracedMessage { name, sends, peer, tag, context, bytes, site: 0, choice };
        Some(Box::new(TimedOperation::message(row, message)))
    }

    /// Starts a message by a call of `start`, and records it from now until its end.
    fn time(&mut self, end: MessageEnd, start: impl FnOnce(&mut Process) -> Result<Work>) -> Result<Work> {
        let operation = self.message(&end, end.source.peer());
        self.follow(end, operation, start)
    }

    fn follow(
        &mut self,
        end: MessageEnd,
        mut operation: Option<Box<TimedOperation>>,
        start: impl FnOnce(&mut Process) -> Result<Work>,
    ) -> Result<Work> {
        match start(self) {
            Ok(work) => {
                let is_over = matches!(work, Work::Send(Ticket::DONE));
                let mut timed = Timed::new(work, end, operation);
                if is_over {
                    timed.over(&mut self.job().p2p, &Completion::EMPTY);
                    return Ok(timed.work);
                }
                Ok(Work::Timed(Box::new(timed)))
            }
            Err(error) => {
                operation.take().into_iter().for_each(|operation| operation.cancelled());
                Err(error)
            }
        }
    }
}

/// Starts the partitioned message of a persistent request. Also records it, if operations are timed.
pub(crate) fn start_partitioned(made: &Arc<Partitioned>, process: &mut Process) -> Result<Work> {
    let start = |process: &mut Process| {
        let JobState { p2p, coll, .. } = process.job();
        made.start(p2p, coll)
    };
    match made.end().filter(|_| telemetry::timed()) {
        Some(end) => {
            let operation = process.message_of(made.comm, &end, made.peer);
            process.follow(end, operation, start)
        }
        None => start(process),
    }
}

impl Send {
    /// Starts this send by a call of `start`, and records it from now until its end.
    #[cold]
    pub(crate) fn time(
        self,
        process: &mut Process,
        start: impl FnOnce(Send, &mut Process) -> Result<Work>,
    ) -> Result<Work> {
        // A send to MPI_PROC_NULL is not timed.
        let Some(peer) = self.peer else { return start(self, process) };
        let (context, tag, bytes) = (self.context, self.tag, self.buffer.bytes() as u64);
        let end =
            MessageEnd { sends: true, context, source: ReceiveSource::Peer { peer, rank: 0 }, tag, bytes };
        process.time(end, |process| start(self, process))
    }
}

impl Receive {
    /// Starts this receive by a call of `start`, and records it from now until its end.
    #[cold]
    pub(crate) fn time(
        self,
        process: &mut Process,
        start: impl FnOnce(Receive, &mut Process) -> Result<Work>,
    ) -> Result<Work> {
        if let ReceiveSource::Nobody = self.source {
            return start(self, process);
        }
        let (source, bytes) = (self.source.clone(), self.buffer.bytes() as u64);
        let end = MessageEnd {
            sends: false,
            context: self.context,
            source,
            tag: self.tag.unwrap_or(ANY_TAG),
            bytes,
        };
        process.time(end, |process| start(self, process))
    }
}
