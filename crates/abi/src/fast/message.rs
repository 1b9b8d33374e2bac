// SPDX-License-Identifier: BSD-3-Clause
//! The fast path of messages: contiguous data, to or from one rank of a comm, without wildcards as the
//! source.

use crate::args::{Address, Handle, claim_buffer};
use crate::process::{FoundMessage, Guard, JobState, MemoKey, Process};
use crate::request::{Completion, ReceiveSource, Request, Work};
use crate::staging::Fill;
use datatype::Buffer;
use objects::constants;
use p2p::{Mode, NeedsRequest, Protocol, SendAttempt, Ticket};
use sys::Span;

/// The checked arguments of a message that takes the fast path.
#[derive(Clone, Copy)]
pub(crate) struct FastMessage {
    context: u64,
    peer: u32,
    rank: i32,
    span: Span,
}

impl Process {
    /// Returns the program's buffer if it is contiguous host memory. Otherwise returns None, and the call
    /// takes the general path.
    #[inline(always)]
    pub(crate) fn span(&self, address: Address, count: i64, datatype: Handle) -> Option<Span> {
        // Device memory takes the general path, which copies back what stands in for it.
        if device::on() {
            return None;
        }
        let layout = self.objects.committed(datatype).ok()?.layout();
        let elements = usize::try_from(count).ok()?;
        let bytes = Buffer::bytes_of(elements, layout)?;
        claim_buffer(address, elements, bytes, layout, Fill::Now).ok()?.contiguous()
    }

    /// Checks the arguments of a message to or from the rank `rank` of a comm. Returns None if the message
    /// needs the general path.
    #[inline(always)]
    pub(crate) fn fast_message(
        &mut self,
        buf: Address,
        count: i64,
        datatype: Handle,
        rank: i32,
        comm: Handle,
    ) -> Option<FastMessage> {
        let key = MemoKey { count, datatype, with: rank, comm, removals: self.removals() };
        if let Some(FoundMessage { context, peer, bytes }) = self.messages.get(rank as usize, &key)
            && let Some(span) = buf.contiguous(bytes)
        {
            return Some(FastMessage { context, peer, rank, span });
        }
        self.find(buf, count, datatype, rank, comm)
    }

    #[inline(never)] // With what was asked in registers: the fast path has no place for it.
    fn find(
        &mut self,
        buf: Address,
        count: i64,
        datatype: Handle,
        rank: i32,
        comm: Handle,
    ) -> Option<FastMessage> {
        let span = self.span(buf, count, datatype)?;
        let known = self.objects.comm(comm).ok()?;
        if rank < 0 {
            return None;
        }
        let (context, peer) = (known.context, known.peer(rank).ok()?);
        if self.job().may_offload(span.bytes()) || telemetry::timed() {
            return None;
        }
        // A datatype that begins elsewhere than at its buffer is not remembered.
        if span.address() == buf.0 {
            let key = MemoKey { count, datatype, with: rank, comm, removals: self.removals() };
            self.messages.set(rank as usize, key, FoundMessage { context, peer, bytes: span.bytes() });
        }
        Some(FastMessage { context, peer, rank, span })
    }
}

impl FastMessage {
    /// Sends the message if it can leave at once. Returns whether it has left.
    #[inline(always)]
    pub(crate) fn send(self, process: &mut Process, tag: i32) -> bool {
        tag >= 0 && process.job().p2p.send_now(self.context, self.peer, tag, self.span) == SendAttempt::Left
    }

    /// Starts to send the message. Returns the handle of its request, or None if the message needs the
    /// general path.
    #[inline(always)]
    pub(crate) fn isend(self, process: &mut Process, tag: i32, comm: Handle) -> Option<Handle> {
        let FastMessage { context, peer, span, .. } = self;
        let JobState { p2p, sent, .. } = process.job();
        if tag < 0 {
            return None;
        }
        match p2p.send_now(context, peer, tag, span) {
            SendAttempt::Left => *sent,
            SendAttempt::MustWait(protocol) => self.isend_later(process, protocol, tag, comm),
            SendAttempt::NotConnected => None,
        }
    }

    #[cold]
    fn isend_later(
        self,
        process: &mut Process,
        protocol: Protocol,
        tag: i32,
        comm: Handle,
    ) -> Option<Handle> {
        let FastMessage { context, peer, span, .. } = self;
        let JobState { p2p, requests, sent, .. } = process.job();
        requests.reserve().ok()?;
        let ticket = p2p.isend_later(Mode::Standard, protocol, (context, peer, tag), span.into()).ok()?;
        if ticket == Ticket::DONE {
            return *sent;
        }
        Some(requests.put(Request { comm, work: Some(Work::Send(ticket)), recipe: None }))
    }

    /// Receives the message, waiting for it. Returns how the receive ended.
    #[inline(always)]
    pub(crate) fn recv(self, guard: &mut Guard, tag: Option<i32>) -> Completion {
        let FastMessage { context, peer, rank, span } = self;
        let next = |process: &mut Process| process.job().p2p.recv_now(context, peer, tag, span).transpose();
        match guard.look_for_message(peer, next) {
            Some(Ok(outcome)) => Completion::of(outcome, &ReceiveSource::Peer { peer, rank }),
            next => {
                let ticket = match next {
                    Some(Err(NeedsRequest::Started(ticket))) => ticket,
                    _ => guard.job().p2p.irecv(context, Some(peer), tag, span.into()),
                };
                guard.finish(Work::Recv(ticket, ReceiveSource::Peer { peer, rank }))
            }
        }
    }

    /// Starts to receive the message. Returns the handle of its request, or None if there is no room for one
    /// more request.
    #[inline(always)]
    pub(crate) fn irecv(self, process: &mut Process, tag: Option<i32>, comm: Handle) -> Option<Handle> {
        let FastMessage { context, peer, rank, span } = self;
        let JobState { p2p, deferred, requests, .. } = process.job();
        if let Some(number) = p2p.defer(context, peer, tag, span) {
            return Some(deferred.enter(number, comm, peer, rank));
        }
        requests.reserve().ok()?;
        let ticket = p2p.irecv_posted(context, Some(peer), tag, span.into());
        let work = Some(Work::Recv(ticket, ReceiveSource::Peer { peer, rank }));
        Some(requests.put(Request { comm, work, recipe: None }))
    }
}

/// Returns the tag to match, or `Some(None)` for MPI_ANY_TAG. Returns None if `tag` is not a valid tag.
#[inline(always)]
pub(crate) fn tag_of(tag: i32) -> Option<Option<i32>> {
    match tag {
        constants::ANY_TAG => Some(None),
        0.. => Some(Some(tag)),
        _ => None,
    }
}
