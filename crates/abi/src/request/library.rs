// SPDX-License-Identifier: BSD-3-Clause
//! Collectives that a collective library carries out, and their communicators. `collective/library.rs` starts
//! them.

use super::{Completion, to_bytes, to_words};
use ccl::{Communicator, Id, Library, LibraryStep, PendingResult};
use coll::{Coll, CollTicket};
use error::{Class, Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use sys::Block;

/// The collective library's communicators of this process, by the context of their comm.
#[derive(Default)]
pub struct Communicators {
    by_context: HashMap<u64, CommunicatorEntry>,
    /// The communicators of freed comms that this process has not left yet.
    freed: Vec<CommunicatorEntry>,
}

type CommunicatorEntry = (Arc<Communicator>, Arc<Mutex<Exchange>>);

impl Communicators {
    /// Whether the comm with the context `context` has a communicator of the library.
    pub(crate) fn has(&self, context: u64) -> bool {
        self.by_context.contains_key(&context)
    }

    /// Enters a communicator that has no id yet. The collective `statement.ticket` exchanges what the members
    /// need to agree on the id.
    pub(crate) fn enter(&mut self, context: u64, communicator: Communicator, statement: Statement) {
        let communicator = Arc::new(communicator);
        let exchange = Exchange { communicator: communicator.clone(), statement };
        self.by_context.insert(context, (communicator, Arc::new(Mutex::new(exchange))));
    }

    /// Starts a collective by the communicator of a comm that has one.
    pub(crate) fn start(&self, context: u64, steps: Vec<LibraryStep>) -> LibraryCollective {
        let (communicator, exchange) = &self.by_context[&context];
        LibraryCollective { exchange: exchange.clone(), ended: communicator.start(steps) }
    }

    /// Leaves the communicator of a comm that is freed, once its operations are over.
    pub(crate) fn leave(&mut self, context: u64) {
        self.freed.retain(|(communicator, _)| !communicator.has_left());
        let made = self.by_context.remove(&context);
        made.iter().for_each(|(communicator, _)| communicator.leave());
        self.freed.extend(made);
    }

    /// Starts to leave all communicators, and returns whether this process has left them. Ranks leave them in
    /// no common order, and in each a library may wait for the other ranks.
    pub(crate) fn have_left(&self) -> bool {
        let all = || self.by_context.values().chain(&self.freed);
        all().for_each(|(communicator, _)| communicator.leave());
        all().all(|(communicator, _)| communicator.has_left())
    }
}

impl Drop for Communicators {
    /// Starts to leave all communicators; each then waits for its end when it is dropped.
    fn drop(&mut self) {
        self.have_left();
    }
}

/// A collective that the collective library carries out.
pub struct LibraryCollective {
    exchange: Arc<Mutex<Exchange>>,
    ended: PendingResult,
}

/// What the members of a comm exchange in order to name its communicator: rank 0's id, and each rank's
/// version of the library.
pub(crate) struct Statement {
    library: &'static Library,
    /// The allgather of the statements; None when it is over.
    pub ticket: Option<CollTicket>,
    /// The statement of this rank, which the allgather sends.
    pub mine: Block,
    /// The statements of all ranks, which the allgather receives.
    pub all: Block,
}

impl Statement {
    /// Makes the statement of rank `rank` of `size`, before its allgather is started.
    pub fn new(library: &'static Library, rank: u32, size: u32) -> Statement {
        let id = if rank == 0 { library.make_id().ok() } else { None };
        let mut mine = to_bytes(&[i64::from(library.file_and_version().1), i64::from(id.is_some())]);
        mine.extend(id.unwrap_or_default());
        mine.resize(statement_bytes(library), 0);
        let all = Block::new(mine.len() * size as usize);
        Statement { library, ticket: None, mine: Block::of(&mine), all }
    }
}

struct Exchange {
    communicator: Arc<Communicator>,
    statement: Statement,
}

impl Exchange {
    /// Gives the communicator its id once the statements of all ranks have arrived.
    fn poll(&mut self, coll: &mut Coll) {
        if let Some(outcome) = self.statement.ticket.and_then(|ticket| coll.outcome(ticket)) {
            self.statement.ticket = None;
            self.communicator.identify(outcome.and_then(|()| self.agreed()));
        }
    }

    /// Returns the id that rank 0 has made for the communicator. Errors: rank 0 could not make an id, or the
    /// ranks have different versions of the library.
    fn agreed(&self) -> Result<Id> {
        let Statement { library, all, .. } = &self.statement;
        let all = all.to_vec();
        let each: Vec<&[u8]> = all.chunks_exact(statement_bytes(library)).collect();
        let (file, version) = library.file_and_version();
        let words = |rank: usize| to_words(&each[rank][..16]);
        if words(0)[1] == 0 {
            return Err(Error::new(Class::Other, format!("{file}: rank 0 could not name a communicator")));
        }
        let other = (0..each.len()).find(|rank| words(*rank)[0] != i64::from(version));
        if let Some(rank) = other {
            let theirs = words(rank)[0];
            let text = format!("{file} has version {version} here, and {theirs} at rank {rank} of the comm");
            return Err(Error::new(Class::Other, text));
        }
        Ok(each[0][16..].to_vec())
    }
}

fn statement_bytes(library: &Library) -> usize {
    16 + library.id_bytes().next_multiple_of(8)
}

impl LibraryCollective {
    pub(crate) fn poll(&self, coll: &mut Coll) -> Option<Completion> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner).poll(coll);
        let error = self.ended.get()?.clone().err();
        Some(Completion { error, ..Completion::EMPTY })
    }

    /// Whether the communicator has no id yet. Until it has, every wait must poll the exchange of statements.
    pub(crate) fn is_driven(&self) -> bool {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner).statement.ticket.is_some()
    }
}
