//! The rank's side: starts instances, drives those it executes itself, and watches over those a proxy executes.

use crate::{Config, Poll, Start, Ticket, UserCall};
use error::Result;

/// What happened to a rank's operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Operations started.
    pub started: u64,
    /// Of those, given to a proxy.
    pub offloaded: u64,
    /// Meant for a proxy, but its launch ring was full.
    pub ring_full: u64,
    /// Taken back from a proxy that died or stalled.
    pub recovered: u64,
}

/// A rank's executor.
pub struct Executor {
    counters: Counters,
}

impl Executor {
    /// The executor of `rank`.
    pub fn new(_config: Config) -> Result<Executor> {
        todo!()
    }

    /// Starts an operation.
    pub fn start(&mut self, _start: Start) -> Result<Ticket> {
        todo!()
    }

    /// Drives what this rank executes, once round, and now and then looks after its proxy.
    pub fn poll(&mut self) -> Poll {
        todo!()
    }

    /// A user's function has been called.
    pub fn called(&mut self, _call: UserCall) {
        todo!()
    }

    /// How the operation ended, once it has; the ticket is then spent.
    pub fn outcome(&mut self, _ticket: Ticket) -> Option<Result<()>> {
        todo!()
    }

    /// A sentence for the user, each said once.
    pub fn warning(&mut self) -> Option<String> {
        todo!()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
