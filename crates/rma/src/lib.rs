//! Windows: one-sided communication (MPI 5.0, chapter 12), carried out by the origin alone.
//!
//! Invariants: an operation has moved its bytes when it returns; the passive target never acts; all processes update one element of
//! memory by an atomic instruction where it is mapped and has 4 or 8 bytes, and else, or several at once, in the latch of the target's record.
//! Memory in an arena (MPI_Win_allocate, MPI_Win_allocate_shared, MPI_Alloc_mem) is reached by loads and stores, other memory by cross-memory attach, and where
//! that is refused through a thread at its owner.
//!
//! Read next: `window.rs` (members and epochs), `record.rs` (what members show each other), `access.rs` (operations), `serve.rs` (the thread).
#![forbid(unsafe_code)]

mod access;
mod record;
mod serve;
mod window;

pub use access::{Place, Swap, Update};
pub use record::Lock;
pub use serve::Way;
pub use window::{Exposure, Flavor, Window};

use error::Result;
use record::Record;
use serve::{Asker, Server};
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use transport::shm::{Allocator, Segment, cma};
use window::Memory;

/// What all windows of a process share.
pub struct Rma {
    segment: Segment,
    rank: u32,
    /// Whether each peer's private memory can be reached; tried on first use.
    reaches: Box<[OnceCell<bool>]>,
    /// News about windows as of the latest `poll`.
    seen: u64,
    windows: u64,
    server: Server,
    asker: Option<Asker>,
    scratch: access::Scratch,
}

impl Rma {
    /// For rank `rank` of a job.
    pub fn new(segment: Segment, rank: u32) -> Rma {
        let reaches = (0..segment.shape().ranks).map(|_| OnceCell::new()).collect();
        let (server, scratch) = (Server::default(), access::Scratch::default());
        Rma { segment, rank, reaches, seen: 0, windows: 0, server, asker: None, scratch }
    }

    /// Whether there is news for a wait (locks, posts, completions) since the last call.
    #[inline]
    pub fn poll(&mut self) -> bool {
        let now = self.news();
        std::mem::replace(&mut self.seen, now) != now
    }

    /// Whether `poll` would say yes: to be asked before sleeping on the rank's doorbell.
    #[inline]
    pub fn has_events(&self) -> bool {
        self.news() != self.seen
    }

    #[inline]
    fn news(&self) -> u64 {
        self.segment.rank(self.rank).window_news.load(Ordering::Acquire)
    }

    /// Tells a peer that there is news for it.
    fn ring(&self, peer: u32) {
        let page = self.segment.rank(peer);
        page.window_news.fetch_add(1, Ordering::Release);
        page.bell.ring();
    }

    /// Makes our record for a window of `members` members; its offset in our arena, or nothing if that is full. The window frees it.
    pub fn record(&self, allocator: &mut Allocator, members: usize) -> Option<u64> {
        Record::create(allocator, members).map(|record| record.offset())
    }

    /// Where memory of this process lies, if that is in an arena: whose, and at which offset.
    pub fn locate(&self, span: Span) -> Option<(u32, u64)> {
        self.segment.locate(span.address(), span.bytes() as u64)
    }

    /// The address in this process of an offset in the arena of `peer`.
    pub fn span(&self, peer: u32, offset: u64, bytes: u64) -> Result<Option<Span>> {
        Ok(self.segment.arena(peer)?.span(offset, bytes))
    }

    /// Whether this process can reach the private memory of a peer by cross-memory attach.
    pub fn reaches(&self, peer: u32) -> bool {
        peer == self.rank || *self.reaches[peer as usize].get_or_init(|| cma::reaches(&self.segment, peer))
    }

    /// Makes the box by which we ask others for private memory that we cannot reach.
    pub fn may_ask(&mut self, allocator: &mut Allocator) -> Result<()> {
        if self.asker.is_none() {
            self.asker = Some(Asker::new(allocator)?);
        }
        Ok(())
    }

    /// Starts the thread that serves those who cannot reach our private memory.
    pub fn serve(&mut self, allocator: &mut Allocator) -> Result<()> {
        self.server.start(&self.segment, self.rank, allocator).map(drop)
    }

    fn next_window(&mut self) -> u64 {
        self.windows += 1;
        self.windows
    }
}

/// What a member of a dynamic window has attached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions {
    version: Option<u64>,
    /// Address, bytes, memory; ascending, without overlap, none empty.
    known: Arc<[(usize, usize, Memory)]>,
}

impl Regions {
    /// The region that holds the byte at `address`.
    fn find(&self, address: usize) -> Option<&(usize, usize, Memory)> {
        let after = self.known.partition_point(|region| region.0 <= address);
        self.known[..after].last().filter(|region| address - region.0 < region.1)
    }
}
