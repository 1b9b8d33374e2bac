// SPDX-License-Identifier: BSD-3-Clause
//! Sends and receives the messages that collectives (`coll`) and windows (`rma`) exchange with other hosts.
//! `coll` and `rma` say what is to be sent and received; this file starts the sends and receives.
//!
//! The message of a collective is an edge: a `Send` step and its `Recv`. If a receiver fetches an edge's
//! bytes, packets of another kind carry them, not these messages.

use super::{Guard, JobState, raise};
use datatype::Buffer;
use error::Class;
use executor::EdgeOutcome;
use objects::Handle;
use objects::context::WINDOW_CONTEXT;
use p2p::{Mode, Ticket};
use rma::{IncomingMessage, MESSAGE_BYTES_MAX};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use sys::Block;
use telemetry::{Counter, count};

/// The messages about windows that this process is sending to other hosts, or receiving from them.
#[derive(Default)]
pub struct WindowMail {
    /// The receives of messages about windows, in the order in which this process reads these messages. Each
    /// has its ticket (its number in `p2p`), the sender, and the message's memory.
    arriving: VecDeque<(Ticket, u32, Block)>,
    leaving: Vec<(Ticket, Block)>,
    /// The handle of each window that spans hosts, by the key that messages contain.
    pub(crate) windows: HashMap<u64, Handle>,
}

impl JobState {
    /// Sends at once the notes (fixed-size messages) for a proxy on another computer. Otherwise they would
    /// wait while the program computes.
    #[inline]
    pub(crate) fn send_notes_now(&mut self) {
        if self.coll.has_urgent_notes() {
            self.exchange_proxy_notes();
        }
    }

    /// Sends and receives notes, the fixed-size messages between ranks and proxies of different computers.
    /// Ignores an error: the next round of progress reports a lost connection.
    #[cold]
    pub(super) fn exchange_proxy_notes(&mut self) {
        if let Some(network) = self.p2p.network() {
            let _ = self.coll.exchange(network);
        }
    }
}

/// The most messages about windows that this process receives at a time. Further ones wait at their senders.
const ARRIVING_MAX: usize = 16;

impl Guard {
    /// Starts the sends and receives that collectives need between hosts, exchanges their notes (fixed-size
    /// messages), and reports to `coll` the sends and receives that have ended. Returns whether anything
    /// moved.
    pub(super) fn carry_edges(&mut self) -> bool {
        let job = self.job();
        let JobState { p2p, coll, edges, .. } = job;
        let mut failure = None;
        while let Some(edge) = coll.next_edge() {
            let buffer = Buffer::from(edge.span);
            let ticket = if edge.is_send {
                let mode = if edge.is_overlapped { Mode::Overlapped } else { Mode::Standard };
                p2p.isend(mode, edge.context, edge.peer, edge.tag, buffer)
            } else {
                Ok(p2p.irecv(edge.context, Some(edge.peer), Some(edge.tag), buffer))
            };
            match ticket {
                Ok(ticket) => edges.push((ticket, edge)),
                Err(error) => failure = Some(error),
            }
        }
        let exchanged = p2p.network().map_or(Ok(false), |network| coll.exchange(network));
        let mut moved = exchanged.unwrap_or_else(|error| {
            failure = Some(error);
            false
        });
        let under_way = edges.len();
        edges.retain(|(ticket, edge)| {
            let Some(outcome) = p2p.take(*ticket) else { return true };
            let bytes = if edge.is_send { edge.span.bytes() } else { outcome.bytes };
            let outcome = match outcome.error {
                None => EdgeOutcome::Moved(bytes as u64),
                Some(error) if error.class == Class::Truncate => EdgeOutcome::Longer,
                Some(_) => EdgeOutcome::Lost,
            };
            coll.edge_ended(edge, outcome);
            false
        });
        moved |= edges.len() < under_way;
        if let Some(error) = failure {
            raise::end(self, "progress", &error);
        }
        moved
    }

    /// Sends at once what a collective that has just started sends to other hosts. Otherwise it would wait
    /// while the program computes.
    pub(crate) fn send_edges_now(&mut self) {
        if self.job().shared.nodes.load(Ordering::Relaxed) > 1 {
            self.progress();
        }
    }

    /// Receives messages about windows from other hosts, carries out the requests in them, and sends this
    /// process's own messages. Returns whether any message arrived or left.
    pub(crate) fn carry_windows(&mut self) -> bool {
        let came = self.take_window_mail();
        self.send_window_mail() || came
    }

    fn take_window_mail(&mut self) -> bool {
        let JobState { p2p, rma, windows, mail, .. } = self.job();
        while mail.arriving.len() < ARRIVING_MAX
            && let Some((message, probe)) = p2p.improbe(WINDOW_CONTEXT, None, None)
        {
            // A longer message is truncated, and then refused.
            let block = Block::new(probe.bytes.min(MESSAGE_BYTES_MAX as u64) as usize);
            if let Some(ticket) = p2p.imrecv(message, block.span().into()) {
                mail.arriving.push_back((ticket, probe.source_peer, block));
            }
        }
        let (mut came, mut named) = (false, Vec::new());
        while let Some((ticket, source, block)) = mail.arriving.front()
            && let Some(outcome) = p2p.take(*ticket)
        {
            came = true;
            let message = match outcome.error {
                None => IncomingMessage::read(block.span()),
                Some(error) => Err(error),
            };
            let taken = message.and_then(|message| {
                let handle = mail.windows.get(&message.key).copied();
                let Some(win) = handle.and_then(|handle| windows.get_mut(handle).ok()) else {
                    rma.refuse(*source, &message);
                    count(Counter::WindowRefused, 1);
                    return Ok(());
                };
                named.extend(handle);
                win.window.take(rma, *source, &message)
            });
            if taken.is_err() {
                count(Counter::WindowRefused, 1);
            }
            mail.arriving.pop_front();
        }
        if rma.has_lock_waiters() {
            for handle in mail.windows.values() {
                came |= windows.get_mut(*handle).is_ok_and(|win| win.window.grant(rma));
            }
        }
        for handle in named {
            if let Ok(win) = windows.get_mut(handle) {
                win.window.report_done(rma);
            }
        }
        came
    }

    /// Sends the messages about windows that `rma` has made. Returns whether there were any.
    fn send_window_mail(&mut self) -> bool {
        let JobState { p2p, rma, mail, .. } = self.job();
        let (mut failure, mut left) = (None, false);
        while let Some((peer, block)) = rma.next_outgoing() {
            left = true;
            match p2p.isend(Mode::Standard, WINDOW_CONTEXT, peer, 0, block.span().into()) {
                Ok(Ticket::DONE) => {}
                Ok(ticket) => mail.leaving.push((ticket, block)),
                Err(error) => failure = Some(error),
            }
        }
        mail.leaving.retain(|(ticket, _)| p2p.take(*ticket).is_none());
        if let Some(error) = failure {
            raise::end(self, "progress", &error);
        }
        left
    }

    /// Sends at once the requests that the running call has made to members of windows on other hosts.
    #[inline(always)]
    pub(crate) fn send_window_requests_now(&mut self) {
        if self.job().rma.has_outgoing() {
            self.send_window_mail();
        }
    }
}
