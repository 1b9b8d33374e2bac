// SPDX-License-Identifier: BSD-3-Clause
//! The collectives that a collective library such as NCCL carries out, and this process's communicators in
//! the library. `collective/library.rs` starts the collectives.

use super::{Completion, to_bytes, to_words};
use ccl::{Communicator, Id, Library, LibraryStep, PendingResult};
use coll::{Coll, CollTicket};
use error::{Class, Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use sys::Block;

/// This process's communicators in the collective library, by the context id of their comm or persistent
/// request.
#[derive(Default)]
pub struct Communicators {
    by_context: HashMap<u64, CommunicatorEntry>,
    /// The communicators of freed comms. This process is still leaving most of them.
    freed: Vec<CommunicatorEntry>,
}

type CommunicatorEntry = (Arc<Communicator>, Arc<Mutex<Exchange>>);

impl Communicators {
    /// Whether the collective library has a communicator for the context id `context`.
    pub(crate) fn has(&self, context: u64) -> bool {
        self.by_context.contains_key(&context)
    }

    /// Adds a communicator that has no id yet. The members agree on its id by the collective
    /// `statement.ticket`, which is under way.
    pub(crate) fn enter(&mut self, context: u64, communicator: Communicator, statement: Statement) {
        let communicator = Arc::new(communicator);
        let exchange = Exchange { communicator: communicator.clone(), statement };
        self.by_context.insert(context, (communicator, Arc::new(Mutex::new(exchange))));
    }

    /// Starts the steps of a collective on the collective library's communicator for the context id
    /// `context`. Returns the collective under way.
    pub(crate) fn start(&self, context: u64, steps: Vec<LibraryStep>) -> LibraryCollective {
        let (communicator, exchange) = &self.by_context[&context];
        LibraryCollective { exchange: exchange.clone(), ended: communicator.start(steps) }
    }

    /// Begins to leave the communicator for the context id `context`. The comm or persistent request is being
    /// freed.
    pub(crate) fn leave(&mut self, context: u64) {
        self.freed.retain(|(communicator, _)| !communicator.has_left());
        let made = self.by_context.remove(&context);
        made.iter().for_each(|(communicator, _)| communicator.leave());
        self.freed.extend(made);
    }

    /// Begins to leave all communicators, and returns whether this process has left all. Does not wait: the
    /// library may wait for other ranks when this process leaves a communicator, and ranks leave
    /// communicators in any order.
    pub(crate) fn have_left(&self) -> bool {
        let all = || self.by_context.values().chain(&self.freed);
        all().for_each(|(communicator, _)| communicator.leave());
        all().all(|(communicator, _)| communicator.has_left())
    }
}

impl Drop for Communicators {
    /// Begins to leave all communicators. The drop of each one then waits until this process has left it.
    fn drop(&mut self) {
        self.have_left();
    }
}

/// A collective under way that the collective library carries out.
pub struct LibraryCollective {
    exchange: Arc<Mutex<Exchange>>,
    ended: PendingResult,
}

/// The exchange by which the members of a comm agree on an id for a communicator in the collective library.
/// Each rank sends its library's version, and rank 0 also sends the id that it has made.
pub(crate) struct Statement {
    library: &'static Library,
    /// The allgather by which the members agree on the communicator's id. None before it starts and when it
    /// is over.
    pub ticket: Option<CollTicket>,
    /// What this rank sends in the allgather `ticket`: the version of its library, and, on rank 0, the id.
    pub mine: Block,
    /// What all ranks send in the allgather `ticket`, as this rank receives it.
    pub all: Block,
}

impl Statement {
    /// Makes the exchange of the rank `rank` of `size` ranks: what it sends to agree on an id for a
    /// communicator, and the memory for what all send. The caller then starts the allgather.
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
    /// When the members' allgather is over, gives the communicator the id on which the members agreed, or the
    /// error if they did not agree.
    fn poll(&mut self, coll: &mut Coll) {
        if let Some(outcome) = self.statement.ticket.and_then(|ticket| coll.outcome(ticket)) {
            self.statement.ticket = None;
            self.communicator.identify(outcome.and_then(|()| self.agreed()));
        }
    }

    /// Returns the id that rank 0 has made for the communicator. Fails if rank 0 could not make an id, or if
    /// the ranks have different versions of the library.
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

    /// Whether the members are still agreeing on the communicator's id. Each wait must advance their
    /// exchange.
    pub(crate) fn is_driven(&self) -> bool {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner).statement.ticket.is_some()
    }
}
