//! Files: views, accesses of one rank, and collective accesses in two phases (MPI 5.0, chapter 14).
//!
//! A rank's access is packed bytes of a view and a buffer (`access.rs`). A collective one is a state machine that `Io::poll` moves on, as
//! everything that needs peers; its ranks exchange data by the collectives of `coll`, in a context of its own. What waits for the device
//! runs on a few threads (`pool.rs`), so that a rank can compute or talk meanwhile. Nothing here waits for a peer.
//!
//! Invariants: bytes are written at their offsets and nowhere else, so a crash leaves what POSIX allows; a file position is a number of the
//! handle or, if shared, a word in the job's shared memory.
//!
//! Read next: `view.rs`, `access.rs`, `collective.rs`, `file.rs`.
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

pub use access::{Access, Conversion, Transfer, Way};
pub use collective::{Collective, Ordered, WAITING_BYTES_MAX};
pub use file::{File, Split};
pub use hints::Hints;
pub use pool::Promise;
pub use representation::{Representation, UserRepresentation};
pub use shared_pointer::SharedPointer;
pub use storage::Storage;
pub use view::{KnownViews, Tiles, View};

use coll::Coll;
use error::Result;
use pool::Pool;
use std::sync::Arc;

/// Accesses under way in one process.
pub struct Io {
    pool: Pool,
    collectives: Vec<Collective>,
    /// Jobs of the pool that somebody has been told of.
    seen: u64,
    /// MPI_Register_datarep.
    pub representations: Vec<Arc<UserRepresentation>>,
}

impl Io {
    /// Nothing under way. `wake` is called by other threads when something is done.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Io {
        Io { pool: Pool::new(wake), collectives: Vec::new(), seen: 0, representations: Vec::new() }
    }

    /// Starts a transfer of this rank alone; its outcome will be in the promise.
    pub fn start(&mut self, transfer: Transfer) -> Promise<Result<u64>> {
        collective::carry_out(transfer, &mut self.pool)
    }

    /// Starts a collective transfer.
    pub fn start_collective(&mut self, collective: Collective, coll: &mut Coll) -> Promise<Result<u64>> {
        let outcome = collective.outcome();
        self.collectives.push(collective);
        self.poll(coll);
        outcome
    }

    /// Moves everything on; whether anything moved.
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

    /// Whether something was done since the last `poll`: to be asked before sleeping on the doorbell.
    pub fn has_events(&self) -> bool {
        self.pool.done() != self.seen
    }

    /// Whether no collective access is under way.
    pub fn is_quiet(&self) -> bool {
        self.collectives.is_empty()
    }
}
