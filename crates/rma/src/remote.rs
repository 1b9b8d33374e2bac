// SPDX-License-Identifier: BSD-3-Clause
//! A window's members on other hosts: what it asks of them, and what they answer.
//!
//! Read next: `far.rs` (one such member), `answer.rs` (the target's side).

use crate::far::{Ended, Far, Operation, What};
use crate::message::Incoming;
use crate::process::Rma;
use crate::target::{TargetRange, checked_offset};
use crate::window::{Flavor, Place, Window};
use datatype::Buffer;
use error::{Class, Result, fail};

impl Window {
    /// Asks a member on another host for an operation on `bytes` bytes of a range, which were checked to fit
    /// those of `origin` and `result`. Errors (MPI_ERR_RMA_RANGE): the range leaves the window.
    pub(crate) fn ask_for(
        &mut self,
        rma: &mut Rma,
        member: usize,
        what: What,
        (origin, result): (Buffer, Buffer),
        range: TargetRange,
        bytes: usize,
    ) -> Result<()> {
        let (key, is_dynamic) = (self.key, self.flavor == Flavor::Dynamic);
        let Place::Away(far) = &mut self.members[member].place else {
            fail!(Class::Intern, "member {member} of a window is on this host");
        };
        // Only the target knows what it has attached.
        let base =
            if is_dynamic { range.disp } else { checked_offset(range, far.disp_unit, far.bytes, far.peer)? };
        if bytes > 0 {
            let there = (base as usize, range.layout.clone(), bytes);
            far.enter(&mut rma.outbox, key, Operation::new(what, (origin, result), there));
        }
        Ok(())
    }

    /// Whether members are on other hosts.
    #[inline]
    pub fn spans_hosts(&self) -> bool {
        !self.away.is_empty()
    }

    /// Whether all that was asked of a member (none: of all) on another host was answered.
    pub fn is_quiet(&self, rank: Option<i32>) -> bool {
        self.all_away(rank, Far::is_quiet)
    }

    /// Whether what was asked of a member (none: of all) on another host needs this process's memory no more.
    pub fn is_done_here(&self, rank: Option<i32>) -> bool {
        self.all_away(rank, Far::is_done_here)
    }

    fn all_away(&self, rank: Option<i32>, is_so: impl Fn(&Far) -> bool) -> bool {
        self.away.iter().all(|&member| match &self.members[member].place {
            Place::Away(far) => rank.is_some_and(|rank| rank as usize != member) || is_so(far),
            Place::Here(_) => true,
        })
    }

    /// The first failure of an operation at a member (none: at any), told once, by a call that synchronizes.
    pub fn failure(&mut self, rank: Option<i32>) -> Result<()> {
        let mut outcome = Ok(());
        for member in &self.away {
            if let Place::Away(far) = &mut self.members[*member].place
                && rank.is_none_or(|rank| rank as usize == *member)
            {
                outcome = outcome.and(far.failure());
            }
        }
        outcome
    }

    /// Where the latest operation at a member will tell that it is complete; nothing if it is.
    pub fn ended(&mut self, rank: i32) -> Option<Ended> {
        match &mut self.members.get_mut(rank as usize)?.place {
            Place::Away(far) => far.ended(),
            Place::Here(_) => None,
        }
    }

    /// Takes a message of another host. A request is answered, whatever it is.
    pub fn take(&mut self, rma: &mut Rma, source: u32, message: &Incoming) -> Result<()> {
        let found = self
            .away
            .iter()
            .find(|member| matches!(&self.members[**member].place, Place::Away(far) if far.peer == source));
        let Some(&member) = found else {
            fail!(Class::Win, "peer {source} writes about a window of which it is no member");
        };
        if message.kind.is_request() {
            self.carry_out(rma, member, message);
            return Ok(());
        }
        match &mut self.members[member].place {
            Place::Away(far) => far.answered(&mut rma.outbox, message),
            Place::Here(_) => Ok(()),
        }
    }
}
