// SPDX-License-Identifier: BSD-3-Clause
//! The state that all windows of a process share.
//!
//! | state | who changes it | who uses it |
//! |---|---|---|
//! | `window_news`, in shared memory | a peer that passes a lock, posts or completes | `poll`, `has_events` |
//! | `outbox` | calls that ask a member on another host, or answer it | abi, by `next_outgoing` |
//! | `waiting` | `Window::queue` adds a lock request of another host, `grant` ends it | `has_lock_waiters` |
//! | `reaches` | the first access to a peer's private memory tries the kernel | `LocalTarget::transfer_far` |
//! | `mailbox` | `make_mailbox` makes it if some peer cannot be reached | `LocalTarget::transfer_far` |
//! | `server` | `start_server` starts its thread; dropping it ends the thread | peers that cannot reach us |

use crate::message::{self, IncomingMessage};
use crate::outbox::Outbox;
use crate::pieces::Scratch;
use crate::record::MemberRecord;
use crate::serve::{MemoryServer, OwnMailbox};
use error::{Class, Error, Result};
use std::cell::OnceCell;
use std::sync::atomic::Ordering;
use sys::{Block, Span};
use transport::shm::{Allocator, LocalRank, Segment, cma};

pub struct Rma {
    pub(crate) segment: Segment,
    pub(crate) rank: LocalRank,
    /// For each rank of the host: whether cross-memory attach reaches that rank's private memory. A rank's
    /// cell is empty until this was tried.
    reaches: Box<[OnceCell<bool>]>,
    /// The value of the rank's counter of news (locks, posts, completions) at the latest `poll`.
    seen: u64,
    windows: u64,
    pub(crate) server: MemoryServer,
    pub(crate) mailbox: Option<OwnMailbox>,
    /// Messages about windows to peers on other hosts, until the caller takes them (`next_outgoing`).
    pub(crate) outbox: Outbox,
    /// The number of locks of this process's windows for which members on other hosts wait.
    pub(crate) waiting: usize,
    pub(crate) scratch: Scratch,
}

impl Rma {
    pub fn new(segment: Segment, rank: LocalRank) -> Rma {
        let reaches = (0..segment.shape().ranks).map(|_| OnceCell::new()).collect();
        let (server, scratch) = (MemoryServer::default(), Scratch::default());
        let outbox = Outbox::default();
        Rma {
            segment,
            rank,
            reaches,
            seen: 0,
            windows: 0,
            server,
            mailbox: None,
            outbox,
            waiting: 0,
            scratch,
        }
    }

    /// Takes the next message to a peer on another host, with the peer's number. Returns None if no message
    /// waits. The caller must deliver messages to one peer in order.
    pub fn next_outgoing(&mut self) -> Option<(u32, Block)> {
        self.outbox.next()
    }

    #[inline(always)]
    pub fn has_outgoing(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether members on other hosts wait for locks of this process's windows. Then the caller must call
    /// `Window::grant` for each window.
    #[inline]
    pub fn has_lock_waiters(&self) -> bool {
        self.waiting > 0
    }

    /// Answers a request with an error, since the window that a peer on another host names is not open here.
    pub fn refuse(&mut self, peer: u32, message: &IncomingMessage) {
        let error = Error::new(Class::Win, format!("the window is not open at peer {}", self.rank));
        if message.kind.is_request() {
            self.outbox.send(peer, message::failed(message.key, &error));
        }
    }

    /// Whether peers on this host have counted news (locks, posts, completions) for this process since the
    /// last call.
    #[inline]
    pub fn poll(&mut self) -> bool {
        let now = self.news();
        std::mem::replace(&mut self.seen, now) != now
    }

    /// Whether `poll` would return true. This does not count as a poll; the rank asks it before it sleeps on
    /// its doorbell.
    #[inline]
    pub fn has_events(&self) -> bool {
        self.news() != self.seen
    }

    #[inline]
    fn news(&self) -> u64 {
        self.segment.rank(self.rank).window_news.load(Ordering::Acquire)
    }

    /// Counts news (a lock, post or completion) for a peer on this host, and rings its doorbell.
    pub(crate) fn ring(&self, peer: LocalRank) {
        let page = self.segment.rank(peer);
        page.window_news.fetch_add(1, Ordering::Release);
        page.bell.ring();
    }

    /// Counts news (a lock, post or completion) for the peer that a shared record names, and rings its
    /// doorbell. An invalid number is ignored; only a broken process writes one.
    pub(crate) fn ring_named(&self, peer: u32) {
        if let Some(peer) = self.segment.local(peer) {
            self.ring(peer);
        }
    }

    /// Makes the record (locks and counters in shared memory) of this process in a window of `members`
    /// members. Returns its offset in the arena, or MPI_ERR_NO_MEM if the arena has no room. `Window::free`
    /// frees it.
    pub fn record(&self, allocator: &mut Allocator, members: usize) -> Result<u64> {
        MemberRecord::create(allocator, members).map(|record| record.offset())
    }

    /// Returns the rank whose arena holds the memory `span`, and the memory's offset there; None if it is in
    /// no arena.
    pub fn locate(&self, span: Span) -> Option<(u32, u64)> {
        let (rank, offset) = self.segment.locate(span.address(), span.bytes() as u64)?;
        Some((rank.peer(), offset))
    }

    /// Returns where `bytes` bytes at `offset` in the arena of `peer` are mapped in this process.
    pub fn span(&self, peer: u32, offset: u64, bytes: u64) -> Result<Span> {
        self.segment.arena(self.segment.require(peer)?)?.span(offset, bytes)
    }

    /// Whether this process reaches the private memory of a peer by cross-memory attach.
    pub fn reaches(&self, peer: LocalRank) -> bool {
        peer == self.rank || *self.reaches[peer.index()].get_or_init(|| cma::reaches(&self.segment, peer))
    }

    /// Makes the mailbox (words in this process's arena) by which this process asks peers to copy private
    /// memory that it cannot reach.
    pub fn make_mailbox(&mut self, allocator: &mut Allocator) -> Result<()> {
        if self.mailbox.is_none() {
            self.mailbox = Some(OwnMailbox::new(allocator)?);
        }
        Ok(())
    }

    /// Starts the thread that copies this process's private memory for peers that cannot reach it.
    pub fn start_server(&mut self, allocator: &mut Allocator) -> Result<()> {
        self.server.start(&self.segment, self.rank, allocator).map(drop)
    }

    pub(crate) fn next_window(&mut self) -> u64 {
        self.windows += 1;
        self.windows
    }
}
