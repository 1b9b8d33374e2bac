// SPDX-License-Identifier: BSD-3-Clause
//! Files: views, accesses of one rank, and collective accesses in two phases (MPI 5.0, chapter 14).
//!
//! An access names packed bytes of a view and a buffer (`access.rs`). A collective access is a state machine
//! that `Io::poll` advances; its ranks exchange data by collectives of `coll`. Accesses to the device run on
//! a few threads (`pool.rs`), so that a rank can compute or communicate meanwhile.
//!
//! Invariants: no function here waits for a peer. Bytes are written at their offsets and nowhere else, so a
//! crash leaves what POSIX allows. The shared file pointer is a word in the arena of the file's rank 0; other
//! hosts reach it through a window, in abi. Read next: `view.rs`, `access.rs`, `collective.rs`, `file.rs`.
#![forbid(unsafe_code)]

pub mod access;
pub mod collective;
mod collective_buffer;
mod failure;
pub mod file;
pub mod hints;
mod pool;
pub mod representation;
mod shared_pointer;
pub mod storage;
pub mod view;

pub use access::{Access, AccessDirection, Conversion, Transfer};
pub use collective::{CollectiveAccess, OrderedPosition, WAITING_BYTES_MAX};
pub use file::{OpenFile, SplitAccess};
pub use hints::Hints;
pub use pool::Promise;
pub use representation::{Representation, UserRepresentation};
pub use shared_pointer::SharedPointer;
pub use storage::Storage;
pub use view::{KnownViews, Tiles, View};

use coll::Coll;
use error::Result;
use pool::ThreadPool;
use std::sync::Arc;

/// The accesses to files that are under way in one process, and the threads that carry them out.
pub struct Io {
    pool: ThreadPool,
    collectives: Vec<CollectiveAccess>,
    /// The number of jobs that the thread pool had done at the latest `poll`.
    seen: u64,
    /// The data representations that the program has registered by MPI_Register_datarep.
    pub representations: Vec<Arc<UserRepresentation>>,
}

impl Io {
    /// Makes the state of a process that has no accesses under way. The threads that carry out transfers call
    /// `wake` whenever they have finished a job.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Io {
        Io { pool: ThreadPool::new(wake), collectives: Vec::new(), seen: 0, representations: Vec::new() }
    }

    /// Starts a transfer that this rank makes alone. Returns the promise of the number of bytes moved.
    pub fn start(&mut self, transfer: Transfer) -> Promise<Result<u64>> {
        collective::carry_out(transfer, &mut self.pool)
    }

    pub fn start_collective(
        &mut self,
        collective: CollectiveAccess,
        coll: &mut Coll,
    ) -> Promise<Result<u64>> {
        let outcome = collective.outcome();
        self.collectives.push(collective);
        self.poll(coll);
        outcome
    }

    /// Advances all collective accesses. Returns whether any access advanced, or any job of a thread was
    /// done.
    #[inline]
    pub fn poll(&mut self, coll: &mut Coll) -> bool {
        let mut moved = self.has_events();
        self.seen = self.pool.done();
        if !self.collectives.is_empty() {
            let pool = &mut self.pool;
            self.collectives.iter_mut().for_each(|collective| moved |= collective.poll(coll, pool));
            self.collectives.retain(|collective| !collective.is_over());
        }
        moved
    }

    /// Whether a thread has finished a job since the latest `poll`. The rank asks this before it sleeps on
    /// its doorbell.
    pub fn has_events(&self) -> bool {
        self.pool.done() != self.seen
    }

    pub fn is_quiet(&self) -> bool {
        self.collectives.is_empty()
    }
}
