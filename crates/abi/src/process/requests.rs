// SPDX-License-Identifier: BSD-3-Clause
//! Makes requests for operations under way, and asks whether operations are over.

use super::{Awaiting, Guard, JobState, Process};
use crate::args::Out;
use crate::request::{Completion, Recipe, Request, Work};
use crate::staging;
use error::Result;
use objects::{Handle, constants};

impl Guard {
    /// Waits for the operation `work`. The completion says whether the operation failed.
    #[inline]
    pub(crate) fn finish(&mut self, mut work: Work) -> Completion {
        let mut poll = |process: &mut Process| {
            let job = process.job();
            work.poll(&mut job.p2p, &mut job.coll, &mut job.operators)
        };
        match self.wait_briefly(&mut poll) {
            Ok(completion) => completion,
            Err(_) => {
                if let Some(ticket) = work.ticket()
                    && let Some(operation) = self.job().p2p.describe(ticket)
                {
                    self.awaiting = Awaiting::Operation(operation);
                }
                self.wait_long(|process| {
                    let job = process.job();
                    work.poll(&mut job.p2p, &mut job.coll, &mut job.operators)
                })
            }
        }
    }
}

impl Process {
    /// Whether the operation of the request `handle` is over. Returns true also if the request is null or
    /// inactive. Leaves the request as it is.
    pub(crate) fn peek(&mut self, handle: Handle) -> Result<bool> {
        if handle == constants::REQUEST_NULL || Some(handle) == self.job().sent {
            return Ok(true);
        }
        self.job().advance(handle)
    }

    /// Makes a request on `comm` for the operation `work`. Returns the request's handle.
    #[inline(always)]
    pub(crate) fn request(&mut self, comm: Handle, mut work: Work) -> Result<Handle> {
        if device::on() {
            work.take_stand_ins();
        }
        let driven = work.is_driven();
        let handle = self.job().requests.insert(Request { comm, work: Some(work), recipe: None })?;
        if driven {
            self.job().driven.push(handle);
        }
        Ok(handle)
    }

    /// Makes an inactive persistent request and stores its handle for the program.
    pub(crate) fn enter_persistent(
        &mut self,
        comm: Handle,
        recipe: Recipe,
        request: Out<Handle>,
    ) -> Result<()> {
        staging::fill()?;
        let recipe = match staging::taken() {
            Some(staged) => Recipe::Staged(Box::new(recipe), staged),
            None => recipe,
        };
        let entered = Request { comm, work: None, recipe: Some(Box::new(recipe)) };
        request.set(self.job().requests.insert(entered)?)
    }
}

impl JobState {
    /// Advances the operation of the request `handle`. Returns whether the operation is over, and true if the
    /// request is inactive. The request keeps the operation's outcome.
    pub(crate) fn advance(&mut self, handle: Handle) -> Result<bool> {
        let JobState { requests, deferred, p2p, coll, operators, .. } = self;
        if let Some(receive) = deferred.get(handle) {
            return Ok(p2p.is_done(receive.ticket()));
        }
        let Some(work) = &mut requests.get_mut(handle)?.work else { return Ok(true) };
        match work {
            Work::Done(_) => return Ok(true),
            Work::Send(ticket) | Work::Recv(ticket, _) => return Ok(p2p.is_done(*ticket)),
            _ => (),
        }
        let Some(completion) = work.poll(p2p, coll, operators) else { return Ok(false) };
        *work = Work::Done(completion);
        Ok(true)
    }

    /// Advances the operations in `driven`, which each round of progress must advance. Returns whether any
    /// has ended.
    pub(crate) fn poll_driven(&mut self) -> bool {
        let mut driven = std::mem::take(&mut self.driven);
        let before = driven.len();
        driven.retain(|handle| self.advance(*handle).is_ok_and(|over| !over));
        let moved = driven.len() < before;
        self.driven = driven;
        moved
    }

    /// Advances the operations whose requests the program has freed, and forgets those that are over.
    pub(crate) fn poll_detached(&mut self) {
        let JobState { detached, p2p, coll, operators, .. } = self;
        detached.retain_mut(|work| work.poll(p2p, coll, operators).is_none());
    }
}
