// SPDX-License-Identifier: BSD-3-Clause
//! Long messages whose bytes an executor (the rank's engine for schedules, or a proxy) moves, so that the
//! rank may compute meanwhile. `p2p` matches and numbers these messages (`p2p/handoff.rs`). `coll` starts an
//! instance for each, a started schedule with one step. This file reports to each of the two crates what the
//! other has done.

use super::{Guard, JobState, Process, raise};
use crate::request::{LongMessage, Receive, ReceiveSource, Send, Work};
use coll::{CollTicket, MessageInstance, Offload};
use error::Result;
use p2p::{Handoff, HandoffKey, Mode, P2p, Ticket};
use std::sync::Arc;

/// The long messages under way whose bytes an executor (the rank's engine for collectives, or a proxy) moves.
pub struct Handoffs {
    /// The length in bytes from which a message may be offloaded to a proxy. `u64::MAX` if none may be.
    pub(crate) bytes_min: u64,
    under_way: Vec<UnderWay>,
    /// Receives to be started later: a withdrawn receive with the same key has not ended yet, or the start
    /// has failed.
    later: Vec<Handoff>,
}

struct UnderWay {
    ticket: Ticket,
    key: HandoffKey,
    instance: CollTicket,
    sends: bool,
    withdrawn: bool,
}

impl Handoffs {
    /// Makes the `Handoffs` of a process that joins its job: no messages, and the length from which a message
    /// may be offloaded. A message that fits in one packet is never offloaded.
    pub(super) fn new(coll: &coll::Coll, p2p: &P2p) -> Handoffs {
        let bytes_min = coll.message_bytes_min().map_or(u64::MAX, |least| least.max(p2p.long_bytes_min()));
        Handoffs { bytes_min, under_way: Vec::new(), later: Vec::new() }
    }

    /// Returns true if an executor (a proxy or the engine for collectives) has no bytes of messages left to
    /// move: no such message is under way or waits to start.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.later.is_empty()
    }
}

impl JobState {
    /// Whether a message of `bytes` bytes may be offloaded to a proxy. If so, it takes the general path.
    #[inline]
    pub(crate) fn may_offload(&self, bytes: usize) -> bool {
        bytes as u64 >= self.handoffs.bytes_min
    }

    /// Starts the receives that `p2p` leaves to an executor (the engine for collectives, or a proxy), and
    /// reports to `p2p` the messages that have ended. Returns whether any message started or ended. Fails if
    /// a receive cannot be started.
    pub(super) fn carry_handoffs(&mut self) -> Result<bool> {
        let mut moved = self.start_handoffs()?;
        let JobState { p2p, coll, handoffs, .. } = self;
        handoffs.under_way.retain_mut(|it| {
            let carried = if telemetry::timed() { coll.carried(it.instance) } else { None };
            if let Some(outcome) = coll.outcome(it.instance) {
                if !it.withdrawn {
                    p2p.offload_ended(it.ticket, it.key, carried, outcome.err());
                }
                moved = true;
                return false;
            }
            // A message that no executor moves has matched this receive first.
            if !it.sends && !it.withdrawn && !p2p.awaits(it.ticket, it.key) {
                it.withdrawn = coll.withdraw(it.instance) == Some(true);
            }
            true
        });
        Ok(moved)
    }

    /// Starts the receives that `p2p` leaves to an executor (the engine for collectives, or a proxy), and
    /// abandons the sends that `p2p` abandons. Returns whether any receive started. Tries a failed start
    /// again at the next call.
    #[cold]
    fn start_handoffs(&mut self) -> Result<bool> {
        let JobState { p2p, coll, handoffs, .. } = self;
        let (mut started, mut failed) = (false, None);
        let mut due = std::mem::take(&mut handoffs.later);
        due.extend(std::iter::from_fn(|| p2p.next_handoff()));
        for handoff in due {
            let (ticket, key, peer, context, buffer) = match &handoff {
                Handoff::Abandon(ticket) => {
                    if let Some(it) = handoffs.under_way.iter().find(|it| it.sends && it.ticket == *ticket) {
                        coll.abandon(it.instance);
                    }
                    continue;
                }
                Handoff::Receive { ticket, key, peer, context, buffer } => {
                    (*ticket, *key, *peer, *context, buffer)
                }
            };
            if !p2p.awaits(ticket, key) {
                continue;
            }
            if handoffs.under_way.iter().any(|it| it.key == key) {
                handoffs.later.push(handoff);
                continue;
            }
            let offload = offload(coll.message_pays(context, buffer.bytes() as u64));
            let message = message(key, [peer, p2p.rank()], false, buffer.clone(), offload);
            match coll.start_message(message) {
                Ok(instance) => {
                    let (sends, withdrawn) = (false, false);
                    handoffs.under_way.push(UnderWay { ticket, key, instance, sends, withdrawn });
                    started = true;
                }
                // The instance is started once the message has been announced.
                Err(_) if p2p.withdraw_executor(ticket) => (),
                Err(error) => {
                    handoffs.later.push(handoff);
                    failed = Some(error);
                }
            }
        }
        failed.map_or(Ok(started), Err)
    }

    /// Cancels a receive or a send, unless it has matched, and returns `Some(())`. Returns None while a proxy
    /// on another computer has not answered whether the message has matched. The caller then calls again.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> Option<()> {
        let mut is_free = true;
        for other in self.p2p.receives_depending_on(ticket) {
            let mut it = self.handoffs.under_way.iter_mut().find(|it| it.ticket == other && !it.withdrawn);
            // If bytes of `other` have begun to arrive, that message was sent after the one of this receive,
            // which therefore is on its way.
            let withdrawn = it.as_ref().map_or(Some(true), |it| self.coll.withdraw(it.instance))?;
            if let (true, Some(it)) = (withdrawn, &mut it) {
                it.withdrawn = true;
            }
            is_free &= withdrawn && self.p2p.withdraw_executor(other);
        }
        if is_free {
            self.p2p.cancel(ticket);
        }
        Some(())
    }
}

fn offload(pays: bool) -> Offload {
    if pays { Offload::On } else { Offload::Off }
}

fn message(
    key: HandoffKey,
    peers: [u32; 2],
    sends: bool,
    buffer: datatype::Buffer,
    offload: Offload,
) -> MessageInstance {
    let HandoffKey { context, sequence } = key;
    MessageInstance { context, sequence, peers: Arc::from(peers), sends, buffer, offload, matched: false }
}

impl Guard {
    /// Starts and ends the messages whose bytes an executor, such as a proxy, moves. Ends the job if this
    /// fails. Returns whether any message started or ended.
    #[cold]
    pub(super) fn carry_messages(&mut self) -> bool {
        match self.job().carry_handoffs() {
            Ok(moved) => moved,
            Err(error) => raise::end(self, "progress", &error),
        }
    }
}

impl Send {
    /// Starts the send of a nonblocking or persistent call. A proxy may move a long message.
    #[inline(always)]
    pub(crate) fn start_nonblocking(self, process: &mut Process) -> Result<Work> {
        if telemetry::timed() { self.time(process, Send::start_untimed) } else { self.start_untimed(process) }
    }

    #[inline(always)]
    fn start_untimed(self, process: &mut Process) -> Result<Work> {
        let may_offload = process.job().may_offload(self.buffer.bytes());
        if may_offload
            && let (Some(peer), Mode::Standard | Mode::Synchronous) = (self.peer, self.mode)
            && process.job().p2p.is_long(peer, self.buffer.bytes())?
            && !self.is_exported(process.job(), peer)
        {
            return self.start_long(process.job(), peer);
        }
        Ok(Work::Send(self.start(process)?))
    }

    /// Whether the receiver is on the same host, and will read the message in the sender's device memory
    /// itself.
    fn is_exported(&self, job: &JobState, peer: u32) -> bool {
        device::on() && job.membership.segment.local(peer).is_some() && self.buffer.is_stand_in()
    }

    #[cold]
    fn start_long(self, job: &mut JobState, peer: u32) -> Result<Work> {
        let Send { mode, context, tag, buffer, .. } = self;
        let buffer = buffer.filled()?;
        let bytes = buffer.bytes() as u64;
        let (pays, measured) = job.coll.decide_message(context, bytes);
        let JobState { p2p, coll, handoffs, .. } = job;
        let ticket = if pays && coll.takes_message(peer, bytes) {
            let rank = p2p.rank();
            let start = |key, buffer: &datatype::Buffer| {
                coll.start_message(message(key, [rank, peer], true, buffer.clone(), Offload::On))
            };
            let (ticket, started) = p2p.isend_offloaded(mode, (context, peer, tag), buffer, start)?;
            handoffs.under_way.extend(started.map(|(key, instance)| UnderWay {
                ticket,
                key,
                instance,
                sends: true,
                withdrawn: false,
            }));
            ticket
        } else {
            p2p.isend(mode, context, peer, tag, buffer)?
        };
        Ok(Work::Long(Box::new(LongMessage { ticket, source: None, measured })))
    }
}

impl Receive {
    /// Starts the receive of a nonblocking or persistent call. A proxy may move a long message.
    #[inline(always)]
    pub(crate) fn start_nonblocking(self, process: &mut Process) -> Result<Work> {
        if telemetry::timed() {
            self.time(process, Receive::start_untimed)
        } else {
            self.start_untimed(process)
        }
    }

    #[inline(always)]
    fn start_untimed(self, process: &mut Process) -> Result<Work> {
        if process.job().may_offload(self.buffer.bytes()) && !matches!(self.source, ReceiveSource::Nobody) {
            return self.start_long(process.job());
        }
        self.start(process)
    }

    #[cold]
    fn start_long(self, job: &mut JobState) -> Result<Work> {
        let Receive { context, source, tag, buffer } = self;
        let bytes = buffer.bytes();
        let peer = source.peer();
        let is_long = match peer {
            Some(peer) => job.p2p.is_long(peer, bytes)?,
            None => true,
        };
        if !is_long {
            return Ok(Work::Recv(job.p2p.irecv(context, peer, tag, buffer), source));
        }
        let (pays, measured) = job.coll.decide_message(context, bytes as u64);
        let JobState { p2p, coll, .. } = job;
        if let Some(peer) = peer {
            p2p.take_packets_of(peer)?;
        }
        let ticket = p2p.irecv_posted(context, peer, tag, buffer);
        if let (Some(peer), Some(tag)) = (peer, tag)
            && pays
            && coll.takes_message(peer, bytes as u64)
        {
            p2p.expect_message(ticket, context, peer, tag);
        }
        // The receive has started. If an instance could not start, the next round of progress reports it.
        let _ = job.start_handoffs();
        Ok(Work::Long(Box::new(LongMessage { ticket, source: Some(source), measured })))
    }
}

impl LongMessage {
    /// Returns how this long send or receive ended, or None while it is under way.
    pub(crate) fn poll(
        &mut self,
        p2p: &mut P2p,
        coll: &mut coll::Coll,
    ) -> Option<crate::request::Completion> {
        let outcome = p2p.take(self.ticket)?;
        if let Some(measured) = self.measured.take() {
            coll.message_ended(measured);
        }
        Some(match &self.source {
            Some(source) => crate::request::Completion::of(outcome, source),
            None => crate::request::Completion::of_send(outcome),
        })
    }
}
