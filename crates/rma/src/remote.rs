// SPDX-License-Identifier: BSD-3-Clause
//! A window's members on other hosts: the requests of this process to these members, and the members'
//! answers.
//!
//! Read next: `far.rs` (one such member), `answer.rs` (what a target does).

use crate::far::{Completion, RemoteMember, RemoteOperation, RemoteRequest};
use crate::message::IncomingMessage;
use crate::process::Rma;
use crate::target::{TargetRange, checked_offset};
use crate::window::{Flavor, MemberHost, Window};
use datatype::Buffer;
use error::{Class, Result, fail};

impl Window {
    /// Asks a member on another host for an operation on the first `bytes` bytes of `range`. The caller has
    /// checked that these bytes fit `origin` and `result`. Errors (MPI_ERR_RMA_RANGE): the range is not
    /// inside the window.
    pub(crate) fn send_operation(
        &mut self,
        rma: &mut Rma,
        member: usize,
        what: RemoteRequest,
        (origin, result): (Buffer, Buffer),
        range: TargetRange,
        bytes: usize,
    ) -> Result<()> {
        let (key, is_dynamic) = (self.key, self.flavor == Flavor::Dynamic);
        let MemberHost::Other(far) = &mut self.members[member].host else {
            fail!(Class::Intern, "member {member} of a window is on this host");
        };
        // Only the target knows the regions that it has attached.
        let base =
            if is_dynamic { range.disp } else { checked_offset(range, far.disp_unit, far.bytes, far.peer)? };
        if bytes > 0 {
            let there = (base as usize, range.layout.clone(), bytes);
            far.enter(&mut rma.outbox, key, RemoteOperation::new(what, (origin, result), there));
        }
        Ok(())
    }

    /// Whether the window has members on other hosts.
    #[inline]
    pub fn spans_hosts(&self) -> bool {
        !self.away.is_empty()
    }

    /// Whether the member `rank`, which is on another host, has answered all requests of this process. If
    /// `rank` is None: whether all such members have.
    pub fn is_quiet(&self, rank: Option<i32>) -> bool {
        self.all_away(rank, RemoteMember::is_quiet)
    }

    /// Whether the requests to the member `rank`, which is on another host, no longer need this process's
    /// memory. If `rank` is None, asks this about all such members.
    pub fn is_done_here(&self, rank: Option<i32>) -> bool {
        self.all_away(rank, RemoteMember::is_done_here)
    }

    fn all_away(&self, rank: Option<i32>, is_so: impl Fn(&RemoteMember) -> bool) -> bool {
        self.away.iter().all(|&member| match &self.members[member].host {
            MemberHost::Other(far) => rank.is_some_and(|rank| rank as usize != member) || is_so(far),
            MemberHost::Own(_) => true,
        })
    }

    /// Returns the first error of an operation at the member `rank` on another host, or at any such member if
    /// `rank` is None. Forgets the error. MPI calls that synchronize call this.
    pub fn failure(&mut self, rank: Option<i32>) -> Result<()> {
        let mut outcome = Ok(());
        for member in &self.away {
            if let MemberHost::Other(far) = &mut self.members[*member].host
                && rank.is_none_or(|rank| rank as usize == *member)
            {
                outcome = outcome.and(far.failure());
            }
        }
        outcome
    }

    /// Returns the place for the result of the latest unfinished operation at the member `rank`. The result
    /// is set when that operation ends. Returns None if all operations at this member have ended, or if the
    /// member is on this host.
    pub fn completion_of_latest(&mut self, rank: i32) -> Option<Completion> {
        match &mut self.members.get_mut(rank as usize)?.host {
            MemberHost::Other(far) => far.completion_of_latest(),
            MemberHost::Own(_) => None,
        }
    }

    /// Takes a message about this window from `source`, a peer on another host. A request is carried out and
    /// answered; if it is invalid, the answer is an error. An answer ends an operation of this process.
    pub fn take(&mut self, rma: &mut Rma, source: u32, message: &IncomingMessage) -> Result<()> {
        let found = self.away.iter().find(
            |member| matches!(&self.members[**member].host, MemberHost::Other(far) if far.peer == source),
        );
        let Some(&member) = found else {
            fail!(Class::Win, "peer {source} writes about a window of which it is no member");
        };
        if message.kind.is_request() {
            self.carry_out(rma, member, message);
            return Ok(());
        }
        match &mut self.members[member].host {
            MemberHost::Other(far) => far.take_answer(&mut rma.outbox, message),
            MemberHost::Own(_) => Ok(()),
        }
    }
}
