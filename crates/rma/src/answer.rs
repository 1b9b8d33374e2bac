// SPDX-License-Identifier: BSD-3-Clause
//! A window's member as a target of other hosts. It carries out their requests in its own MPI calls.
//!
//! Invariants: a request touches only memory that this process exposes in the window, and is answered once,
//! in the order of its origin's requests. Updates take the window's latch (its lock for updates), as updates
//! by origins on this host do.

use crate::far::{LockRequest, RemoteMember};
use crate::message::{self, IncomingMessage, MessageKind, OutgoingMessage};
use crate::process::Rma;
use crate::record::Lock;
use crate::serve::Direction;
use crate::update::Swap;
use crate::window::{MemberHost, Window};
use datatype::PredefinedOp;
use error::{Class, Result, fail};
use std::sync::atomic::{Ordering, fence};
use sys::{Block, Span};
use telemetry::{Counter, count};

impl Window {
    /// Carries out a request of a member on another host. An answer with data or an error is sent now;
    /// `report_done` sends all other answers.
    pub(crate) fn carry_out(&mut self, rma: &mut Rma, member: usize, request: &IncomingMessage) {
        count(Counter::WindowRequests, 1);
        let answer = match request.kind {
            MessageKind::Put
            | MessageKind::Get
            | MessageKind::Accumulate
            | MessageKind::FetchAndOp
            | MessageKind::Swap => self.access(rma, request),
            MessageKind::Lock => self.queue(rma, member, request.argument != 0).map(|()| None),
            MessageKind::Unlock => self.release(rma, member).map(|()| None),
            MessageKind::Post => {
                self.mine().record.post(member);
                Ok(None)
            }
            _ => {
                self.mine().record.complete();
                Ok(None)
            }
        };
        let key = self.key;
        let Some(far) = self.far(member) else { return };
        match answer {
            Ok(None) => far.done += 1,
            Ok(Some(fetched)) => far.answer(&mut rma.outbox, key, fetched),
            Err(error) => {
                count(Counter::WindowRefused, 1);
                far.answer(&mut rma.outbox, key, message::failed(key, &error));
            }
        }
    }

    fn far(&mut self, member: usize) -> Option<&mut RemoteMember> {
        match &mut self.members[member].host {
            MemberHost::Other(far) => Some(far),
            MemberHost::Own(_) => None,
        }
    }

    /// Sends each member on another host the number of its requests that were carried out and are not
    /// answered yet.
    pub fn report_done(&mut self, rma: &mut Rma) {
        for at in 0..self.away.len() {
            let (member, key) = (self.away[at], self.key);
            if let Some(far) = self.far(member) {
                far.report_done(&mut rma.outbox, key);
            }
        }
    }

    /// Grants locks to members on other hosts whose turn has come, and tells them so. Returns whether any
    /// lock was granted.
    pub fn grant(&mut self, rma: &mut Rma) -> bool {
        let mut granted = false;
        for at in 0..self.away.len() {
            let (member, key) = (self.away[at], self.key);
            let record = self.mine().record.clone();
            let Some(far) = self.far(member) else { continue };
            if let Some(asked) = far.asked.as_mut().filter(|asked| !asked.held)
                && record.try_grant(asked.ticket, asked.lock, rma.rank.peer(), |peer| rma.ring_named(peer))
            {
                (asked.held, granted) = (true, true);
                rma.waiting -= 1;
                far.answer(
                    &mut rma.outbox,
                    key,
                    OutgoingMessage::short(MessageKind::Granted, key, 0).block(),
                );
            }
        }
        granted
    }

    fn queue(&mut self, rma: &mut Rma, member: usize, exclusive: bool) -> Result<()> {
        let ticket = self.mine().record.take_ticket();
        let lock = if exclusive { Lock::Exclusive } else { Lock::Shared };
        match self.far(member) {
            Some(far) if far.asked.is_none() => {
                far.asked = Some(LockRequest { ticket, lock, held: false });
                rma.waiting += 1;
                Ok(())
            }
            _ => fail!(Class::RmaSync, "member {member} asks for a lock that it holds, or waits for"),
        }
    }

    fn release(&mut self, rma: &Rma, member: usize) -> Result<()> {
        let asked = self.far(member).and_then(|far| far.asked.take_if(|asked| asked.held));
        let Some(asked) = asked else {
            fail!(Class::RmaSync, "member {member} releases a lock that it does not hold");
        };
        self.mine().record.release(asked.ticket, asked.lock, |peer| rma.ring_named(peer));
        Ok(())
    }

    /// Carries out a put, get, accumulate or swap, which a member on another host requests, on this process's
    /// memory. Returns the data for the answer, or None if it has none.
    fn access(&mut self, rma: &mut Rma, request: &IncomingMessage) -> Result<Option<Block>> {
        self.refresh(rma, self.rank)?;
        let target = self.mine();
        let mut pieces = Vec::with_capacity(request.pieces.len());
        for &(offset, bytes) in &request.pieces {
            target.exposed(offset, bytes, &mut pieces)?;
        }
        let (kind, bytes, data) = (request.kind, request.bytes, request.data);
        let (update, sent) = match kind {
            MessageKind::Put => (None, bytes),
            MessageKind::Get => (None, 0),
            MessageKind::Swap => (None, 2 * bytes),
            _ => {
                let update = request.update()?;
                let needs = update.op != PredefinedOp::NoOp;
                if !needs && kind == MessageKind::Accumulate {
                    fail!(Class::Op, "MPI_NO_OP is only for accumulates that fetch");
                }
                (Some(update), if needs { bytes } else { 0 })
            }
        };
        if data.bytes() != sent {
            fail!(Class::Intern, "a request with {} bytes of data instead of {sent}", data.bytes());
        }
        let fetches = matches!(kind, MessageKind::Get | MessageKind::FetchAndOp | MessageKind::Swap);
        let fetched =
            fetches.then(|| OutgoingMessage::short(MessageKind::Fetched, self.key, 0).with_data(bytes));
        let into = fetched.as_ref().map_or(Span::EMPTY, |(_, into)| *into);
        match (kind, update) {
            (MessageKind::Put, _) => target.transfer(rma, &pieces, data, Direction::Put)?,
            (MessageKind::Get, _) => target.transfer(rma, &pieces, into, Direction::Fetch)?,
            (_, Some(update)) => target.update_pieces(rma, update, &pieces, data, into)?,
            _ => {
                let basic = request.basic()?;
                if bytes != basic.size() {
                    fail!(Class::Type, "{bytes} bytes are not one element of {} bytes", basic.size());
                }
                let (compare, origin) = (data.slice(0, bytes), data.slice(bytes, bytes));
                target.swap_pieces(rma, Swap { basic, compare, origin, result: into }, &pieces)?;
            }
        }
        fence(Ordering::SeqCst);
        Ok(fetched.map(|(block, _)| block))
    }
}
