// SPDX-License-Identifier: BSD-3-Clause
//! A window: what each member exposes, and which epochs are open (MPI 5.0, sections 12.2 and 12.5).
//!
//! Invariants: operations at members on this host move their bytes before they return, so closing or flushing
//! an epoch only orders memory and informs others. Before the caller closes or flushes an epoch that reaches
//! other hosts, it waits until members there have answered (`is_quiet`). Functions here never wait: the
//! caller asks again until they succeed.

use crate::far::RemoteMember;
use crate::message::MessageKind;
use crate::process::Rma;
use crate::record::{Lock, MemberRecord};
use crate::target::{AttachedRegions, LocalTarget, TargetMemory};
use error::{Class, Result, fail};
use std::sync::atomic::{Ordering, fence};
use sys::Span;
use transport::shm::{Allocator, LocalRank};

/// How a window was made (MPI_WIN_CREATE_FLAVOR), which says whose memory it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// The window has memory of the program (MPI_Win_create).
    Create,
    /// The window has memory that this library allocated (MPI_Win_allocate).
    Allocate,
    /// The window has memory that this library allocated and that all members map (MPI_Win_allocate_shared).
    Shared,
    /// The window has no memory until the program attaches some (MPI_Win_create_dynamic).
    Dynamic,
}

/// What a member exposes in a window: the facts that it sends to all others in an allgather when the window
/// is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The offset, in the member's arena, of the member's record: its locks and counters.
    pub record: u64,
    /// The address of the member's memory in the member's process.
    pub base: usize,
    pub bytes: u64,
    /// The number of bytes in one unit of displacement at this member.
    pub disp_unit: i64,
    /// The rank whose arena holds the memory, and the memory's offset there; None if it is in no arena.
    pub mapped: Option<(u32, u64)>,
}

impl Exposure {
    pub const WORDS: usize = 6;

    pub fn to_words(self) -> [u64; Exposure::WORDS] {
        let (rank, offset) = self.mapped.map_or((u64::MAX, 0), |(rank, offset)| (u64::from(rank), offset));
        [self.record, self.base as u64, self.bytes, self.disp_unit as u64, rank, offset]
    }

    pub fn from_words(words: &[u64]) -> Exposure {
        let mapped = u32::try_from(words[4]).ok().map(|rank| (rank, words[5]));
        let (record, base, bytes) = (words[0], words[1] as usize, words[2]);
        Exposure { record, base, bytes, disp_unit: words[3] as i64, mapped }
    }

    /// Whether other members need the kernel or the owner's thread to reach the memory, because it is in no
    /// arena.
    pub fn is_private(&self) -> bool {
        self.mapped.is_none() && self.bytes > 0
    }
}

/// The access epoch that is open at this process, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessEpoch {
    Closed,
    /// The epoch after a fence. It counts as open only once an operation was issued in it (MPI 5.0, section
    /// 12.5.1); `used` says whether one was.
    Fence {
        used: bool,
    },
    Start,
    /// One or several epochs of MPI_Win_lock. The number says how many members this process has locked.
    Locks(usize),
    LockAll,
}

/// A member of a window, and the epochs that this process has open at it.
pub(crate) struct WindowMember {
    pub host: MemberHost,
    /// The lock of the member that this process holds or waits for; None if this process has asked for none.
    held: Option<HeldLock>,
    /// Whether the member is a target of the open epoch of MPI_Win_start.
    started: bool,
    /// How many of the member's posts (MPI_Win_post) this process has matched by an MPI_Win_start.
    answered: u64,
}

/// Whether a member is on this host or on another, and what this process needs to reach it.
pub(crate) enum MemberHost {
    /// A member on this host, whose memory this process reads and writes itself.
    Own(LocalTarget),
    /// A member on another host, which this process asks by messages to carry out operations.
    Other(Box<RemoteMember>),
}

#[derive(Clone, Copy, Debug)]
struct HeldLock {
    lock: Lock,
    /// The ticket in the queue of the member's record, or 0 for a member on another host. None under
    /// MPI_MODE_NOCHECK, where the program excludes conflicts.
    ticket: Option<u64>,
}

pub struct Window {
    pub flavor: Flavor,
    /// A number that names the window in messages to other hosts, and is the same at all members.
    pub key: u64,
    /// A number that names the window to the thread of this process that copies private memory for peers
    /// (`serve.rs`).
    pub(crate) id: u64,
    pub(crate) rank: usize,
    pub(crate) members: Vec<WindowMember>,
    /// The ranks, in the window, of the members on other hosts.
    pub(crate) away: Vec<usize>,
    /// Whether this process has written to a target without atomic instructions since the latest flush.
    pub(crate) stored: bool,
    access: AccessEpoch,
    /// How many completions this member's record must have counted for the open exposure epoch to end. None
    /// if no exposure epoch is open.
    posted: Option<u64>,
    /// The number of completions in all earlier exposure epochs of this process.
    completed: u64,
    /// The memory that this process has attached to the window. It is empty unless the window is dynamic.
    pub(crate) attached: Vec<AttachedRegion>,
    /// The offset, in this process's arena, of its table of attached regions, and the number of rows that fit
    /// it. None before the first region of a dynamic window is attached.
    pub(crate) table: Option<(u64, usize)>,
}

/// A region of memory that this member has attached to a dynamic window.
pub(crate) struct AttachedRegion {
    pub span: Span,
    /// The rank whose arena holds the memory, and the memory's offset there; None if it is in no arena.
    pub mapped: Option<(LocalRank, u64)>,
}

impl Window {
    /// Makes a window of the processes `peers`; `exposures` says what each of them exposes, in the same
    /// order. `memory` is what this process exposes, None if nothing. `key` names the window in messages.
    pub fn new(
        rma: &mut Rma,
        (flavor, key): (Flavor, u64),
        (rank, peers): (u32, &[u32]),
        exposures: &[Exposure],
        memory: Option<Span>,
    ) -> Result<Window> {
        let (mut members, mut away) = (Vec::with_capacity(peers.len()), Vec::new());
        for (member, (&peer, exposure)) in peers.iter().zip(exposures).enumerate() {
            let &Exposure { record, base, bytes, disp_unit, mapped } = exposure;
            let Some(peer) = rma.segment.local(peer) else {
                away.push(member);
                members.push(WindowMember::new(MemberHost::Other(Box::new(RemoteMember::new(
                    peer, bytes, disp_unit,
                )))));
                continue;
            };
            let memory = match (flavor, mapped, memory) {
                (Flavor::Dynamic, ..) => TargetMemory::Dynamic(AttachedRegions::default()),
                (_, Some((owner, offset)), _) => {
                    let span = rma.span(owner, offset, bytes)?;
                    TargetMemory::Mapped(span)
                }
                (_, None, Some(span)) if member == rank as usize => TargetMemory::own(span)?,
                _ => TargetMemory::Private(base),
            };
            let record = MemberRecord::open(&rma.segment, peer, record, peers.len())?;
            let target = LocalTarget { record, me: rank as usize, peer, bytes, disp_unit, memory };
            members.push(WindowMember::new(MemberHost::Own(target)));
        }
        let id = rma.next_window();
        if let Some(span) = memory.filter(|_| exposures[rank as usize].mapped.is_none()) {
            rma.server.expose(id, span);
        }
        Ok(Window {
            flavor,
            key,
            id,
            rank: rank as usize,
            members,
            away,
            stored: false,
            access: AccessEpoch::Closed,
            posted: None,
            completed: 0,
            attached: Vec::new(),
            table: None,
        })
    }

    /// Frees this process's record and its table of attached regions. The caller has made sure that no member
    /// uses these any more.
    pub fn free(self, rma: &mut Rma, allocator: &mut Allocator) {
        rma.server.conceal(self.id, None);
        allocator.free(self.mine().record.offset());
        self.table.map(|(offset, _)| allocator.free(offset));
    }

    /// Returns this process's own entry among the members.
    pub(crate) fn mine(&self) -> &LocalTarget {
        self.here(self.rank).expect("a process is on its own host")
    }

    /// Returns how to reach a member on this host; None if the member is on another host.
    #[inline(always)]
    pub(crate) fn here(&self, member: usize) -> Option<&LocalTarget> {
        match &self.members[member].host {
            MemberHost::Own(target) => Some(target),
            MemberHost::Other(_) => None,
        }
    }

    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns the index of rank `rank` in `members`. Errors: the window has no such rank (MPI_ERR_RANK).
    #[inline(always)]
    fn member(&self, rank: i32) -> Result<usize> {
        match usize::try_from(rank) {
            Ok(at) if at < self.members.len() => Ok(at),
            _ => fail!(Class::Rank, "rank {rank} is not in this window of {} processes", self.members.len()),
        }
    }

    /// Returns the index of rank `rank` as the target of an operation. Errors: no access epoch is open for
    /// this rank (MPI_ERR_RMA_SYNC).
    #[inline(always)]
    pub fn target(&mut self, rank: i32) -> Result<usize> {
        match self.open_target(rank) {
            Some(member) => Ok(member),
            None => Err(self.closed(rank)),
        }
    }

    /// Returns the index of rank `rank` if an access epoch is open for this rank; otherwise None.
    #[inline(always)]
    pub(crate) fn open_target(&mut self, rank: i32) -> Option<usize> {
        let member = usize::try_from(rank).ok().filter(|member| *member < self.members.len())?;
        // A lock is held only in epochs of MPI_Win_lock and MPI_Win_lock_all.
        (self.members[member].held.is_some() || self.is_open(member)).then_some(member)
    }

    /// Whether an access epoch of a fence or of MPI_Win_start is open for a member. In a fence's epoch, notes
    /// that an operation uses it.
    fn is_open(&mut self, member: usize) -> bool {
        match &mut self.access {
            AccessEpoch::Fence { used } => {
                *used = true;
                true
            }
            AccessEpoch::Start => self.members[member].started,
            AccessEpoch::LockAll | AccessEpoch::Locks(_) | AccessEpoch::Closed => false,
        }
    }

    /// Returns the index of rank `rank` as the target of an operation that has an MPI request (such as
    /// MPI_Rput). Errors: this process does not hold the lock of that rank (MPI_ERR_RMA_SYNC; MPI 5.0,
    /// section 12.3.5).
    #[inline]
    pub fn locked_target(&mut self, rank: i32) -> Result<usize> {
        if !matches!(self.access, AccessEpoch::Locks(_) | AccessEpoch::LockAll) {
            fail!(
                Class::RmaSync,
                "operations with a request need an epoch of MPI_Win_lock or MPI_Win_lock_all"
            );
        }
        self.target(rank)
    }

    #[cold]
    fn closed(&self, rank: i32) -> error::Error {
        if let Err(error) = self.member(rank) {
            return error;
        }
        let open = match self.access {
            AccessEpoch::Closed => "no access epoch is open",
            AccessEpoch::Start => "the epoch of MPI_Win_start is for other ranks",
            _ => "the epoch of MPI_Win_lock is for other ranks",
        };
        error::Error::new(Class::RmaSync, format!("an operation on rank {rank}, but {open}"))
    }

    /// Begins MPI_Win_fence: checks that it may be called now. The caller must then make a barrier of the
    /// members, and call `fenced`.
    pub fn may_fence(&self) -> Result<()> {
        match self.access {
            AccessEpoch::Closed | AccessEpoch::Fence { .. } => {}
            open => fail!(Class::RmaSync, "a fence while {} is open", open.describe()),
        }
        if self.posted.is_some() {
            fail!(Class::RmaSync, "a fence while the window is exposed by MPI_Win_post");
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Ends MPI_Win_fence, after the barrier. `opens` says whether an epoch may follow, because
    /// MPI_MODE_NOSUCCEED was not given.
    pub fn fenced(&mut self, opens: bool) -> Result<()> {
        fence(Ordering::SeqCst);
        self.access = if opens { AccessEpoch::Fence { used: false } } else { AccessEpoch::Closed };
        self.failure(None)
    }

    /// Checks that `call` may open an access epoch now: no epoch is open, except a fence's epoch without
    /// operations.
    #[inline]
    fn may_open(&self, call: &str) -> Result<()> {
        match self.access {
            AccessEpoch::Closed | AccessEpoch::Fence { used: false } => Ok(()),
            open => fail!(Class::RmaSync, "{call} while {} is open", open.describe()),
        }
    }

    /// Opens an exposure epoch for the members `origins` (MPI_Win_post).
    pub fn post(&mut self, rma: &mut Rma, origins: &[usize]) -> Result<()> {
        if self.posted.is_some() {
            fail!(Class::RmaSync, "MPI_Win_post while the window is exposed already");
        }
        if self.access == (AccessEpoch::Fence { used: true }) {
            fail!(Class::RmaSync, "MPI_Win_post while the epoch of a fence is open");
        }
        fence(Ordering::SeqCst);
        for &origin in origins {
            match &mut self.members[origin].host {
                MemberHost::Own(target) => {
                    target.record.post(self.rank);
                    rma.ring(target.peer);
                }
                MemberHost::Other(far) => far.send_request(&mut rma.outbox, self.key, MessageKind::Post, 0),
            }
        }
        self.posted = Some(self.completed + origins.len() as u64);
        Ok(())
    }

    /// Opens an access epoch for the members `targets` (MPI_Win_start). The caller must then wait until
    /// `has_started` is true.
    pub fn start(&mut self, targets: &[usize]) -> Result<()> {
        self.may_open("MPI_Win_start")?;
        self.access = AccessEpoch::Start;
        for &target in targets {
            self.members[target].started = true;
            self.members[target].answered += 1;
        }
        Ok(())
    }

    /// Whether all targets of MPI_Win_start have posted (MPI_Win_post).
    pub fn has_started(&self) -> bool {
        let mine = &self.mine().record;
        let posted =
            |(at, member): (usize, &WindowMember)| !member.started || mine.posts(at) >= member.answered;
        self.members.iter().enumerate().all(posted)
    }

    /// Ends the epoch of MPI_Win_start (MPI_Win_complete). The caller has waited until members on other hosts
    /// have answered (`is_quiet`).
    pub fn complete(&mut self, rma: &mut Rma) -> Result<()> {
        if self.access != AccessEpoch::Start {
            fail!(Class::RmaSync, "MPI_Win_complete without MPI_Win_start");
        }
        fence(Ordering::SeqCst);
        self.access = AccessEpoch::Closed;
        for member in self.members.iter_mut().filter(|member| member.started) {
            member.started = false;
            match &mut member.host {
                MemberHost::Own(target) => {
                    target.record.complete();
                    rma.ring(target.peer);
                }
                MemberHost::Other(far) => {
                    far.send_request(&mut rma.outbox, self.key, MessageKind::Complete, 0)
                }
            }
        }
        self.failure(None)
    }

    /// Whether all origins of the exposure epoch have completed (MPI_Win_test). If they have, this ends the
    /// epoch. MPI_Win_wait calls this until it returns true.
    pub fn has_completed(&mut self) -> Result<bool> {
        let Some(wanted) = self.posted else {
            fail!(Class::RmaSync, "a wait for the end of an exposure epoch without MPI_Win_post");
        };
        if self.mine().record.completes() < wanted {
            return Ok(false);
        }
        fence(Ordering::SeqCst);
        (self.posted, self.completed) = (None, wanted);
        Ok(true)
    }

    /// Asks for the lock of the member `rank` (MPI_Win_lock), and returns the member's index. The lock is
    /// held once `is_granted` is true. `check` is false under MPI_MODE_NOCHECK, where nothing is asked for.
    #[inline]
    pub fn lock(&mut self, rma: &mut Rma, rank: i32, lock: Lock, check: bool) -> Result<usize> {
        let member = self.member(rank)?;
        let locks = match self.access {
            AccessEpoch::Locks(locks) => locks,
            _ => {
                self.may_open("MPI_Win_lock")?;
                0
            }
        };
        if self.members[member].held.is_some() {
            fail!(Class::RmaSync, "MPI_Win_lock of rank {rank}, which is locked by this process already");
        }
        self.members[member].request_lock(rma, self.key, lock, check);
        self.access = AccessEpoch::Locks(locks + 1);
        Ok(member)
    }

    #[inline]
    pub fn is_granted(&self, rma: &Rma, member: usize) -> bool {
        let WindowMember { host, held, .. } = &self.members[member];
        match (held, host) {
            (Some(HeldLock { lock, ticket: Some(ticket) }), MemberHost::Own(target)) => {
                target.record.try_grant(*ticket, *lock, rma.rank.peer(), |peer| rma.ring_named(peer))
            }
            (Some(HeldLock { ticket: Some(_), .. }), MemberHost::Other(far)) => far.granted,
            _ => true,
        }
    }

    /// Opens the epoch of MPI_Win_lock_all. The caller must then ask for each member's lock by
    /// `request_lock`.
    pub fn lock_all(&mut self) -> Result<()> {
        self.may_open("MPI_Win_lock_all")?;
        self.access = AccessEpoch::LockAll;
        Ok(())
    }

    /// Asks for the shared lock of one member, for MPI_Win_lock_all.
    pub fn request_lock(&mut self, rma: &mut Rma, member: usize, check: bool) {
        self.members[member].request_lock(rma, self.key, Lock::Shared, check);
    }

    /// Releases the lock of one member (MPI_Win_unlock). If the member is on another host, the caller has
    /// waited until it has answered (`is_quiet`).
    #[inline]
    pub fn unlock(&mut self, rma: &mut Rma, rank: i32) -> Result<()> {
        let member = self.member(rank)?;
        let AccessEpoch::Locks(locks) = self.access else {
            fail!(Class::RmaSync, "MPI_Win_unlock of rank {rank}, but no epoch of MPI_Win_lock is open");
        };
        if !self.members[member].release(rma, self.key) {
            fail!(Class::RmaSync, "MPI_Win_unlock of rank {rank}, which is not locked by this process");
        }
        self.access = if locks > 1 { AccessEpoch::Locks(locks - 1) } else { AccessEpoch::Closed };
        self.failure(Some(rank))
    }

    /// Releases the locks of all members (MPI_Win_unlock_all). The caller has waited until members on other
    /// hosts have answered (`is_quiet`).
    pub fn unlock_all(&mut self, rma: &mut Rma) -> Result<()> {
        if self.access != AccessEpoch::LockAll {
            fail!(Class::RmaSync, "MPI_Win_unlock_all without MPI_Win_lock_all");
        }
        for member in &mut self.members {
            member.release(rma, self.key);
        }
        self.access = AccessEpoch::Closed;
        self.failure(None)
    }

    /// Carries out the last part of MPI_Win_flush and its variants, which only orders memory. Before that,
    /// the caller waits until members on other hosts have answered (`is_quiet`). A `rank` of None stands for
    /// all members.
    #[inline(always)]
    pub fn flush(&mut self, rank: Option<i32>) -> Result<()> {
        let open = match rank {
            Some(rank) => self.members[self.member(rank)?].held.is_some(),
            None => matches!(self.access, AccessEpoch::LockAll | AccessEpoch::Locks(_)),
        };
        if !open {
            fail!(Class::RmaSync, "a flush outside an epoch of MPI_Win_lock or MPI_Win_lock_all");
        }
        // Only stores that are not atomic need a full fence; loads and atomic updates are in order.
        fence(if std::mem::take(&mut self.stored) { Ordering::SeqCst } else { Ordering::AcqRel });
        if self.spans_hosts() { self.failure(rank) } else { Ok(()) }
    }

    /// Checks that the window may be freed: no epoch is open, except the epoch after a fence.
    pub fn may_free(&self) -> Result<()> {
        match self.access {
            AccessEpoch::Closed | AccessEpoch::Fence { .. } if self.posted.is_none() => Ok(()),
            AccessEpoch::Closed | AccessEpoch::Fence { .. } => {
                fail!(Class::RmaSync, "the window is freed while it is exposed by MPI_Win_post")
            }
            open => fail!(Class::RmaSync, "the window is freed while {} is open", open.describe()),
        }
    }

    /// Returns the lowest rank that has memory in the window, on this host or on another. None if there is
    /// none.
    pub fn first_with_memory(&self) -> Option<i32> {
        let bytes = |member: &WindowMember| match &member.host {
            MemberHost::Own(target) => target.bytes,
            MemberHost::Other(far) => far.bytes,
        };
        self.members.iter().position(|member| bytes(member) > 0).map(|rank| rank as i32)
    }

    /// Returns the size of a member's memory, its displacement unit, and its address in this process, for
    /// MPI_Win_shared_query. None if this process cannot address the memory.
    pub fn mapped(&self, rank: i32) -> Result<Option<(u64, i64, usize)>> {
        let member = self.member(rank)?;
        let Some(LocalTarget { bytes, disp_unit, memory, .. }) = self.here(member) else { return Ok(None) };
        Ok(match memory {
            TargetMemory::Mapped(span) | TargetMemory::Local(span) => {
                Some((*bytes, *disp_unit, span.address()))
            }
            _ => None,
        })
    }
}

impl WindowMember {
    fn new(host: MemberHost) -> WindowMember {
        WindowMember { host, held: None, started: false, answered: 0 }
    }

    #[inline]
    fn request_lock(&mut self, rma: &mut Rma, key: u64, lock: Lock, check: bool) {
        let ticket = match &mut self.host {
            _ if !check => None,
            MemberHost::Own(target) => Some(target.record.take_ticket()),
            MemberHost::Other(far) => {
                far.granted = false;
                far.send_request(&mut rma.outbox, key, MessageKind::Lock, u64::from(lock == Lock::Exclusive));
                Some(0)
            }
        };
        self.held = Some(HeldLock { lock, ticket });
    }

    /// Releases the lock of this member that this process holds. Returns false if it holds none.
    #[inline]
    fn release(&mut self, rma: &mut Rma, key: u64) -> bool {
        let Some(held) = self.held.take() else { return false };
        match (held.ticket, &mut self.host) {
            (Some(ticket), MemberHost::Own(target)) => {
                target.record.release(ticket, held.lock, |peer| rma.ring_named(peer));
            }
            (Some(_), MemberHost::Other(far)) => {
                far.send_request(&mut rma.outbox, key, MessageKind::Unlock, 0)
            }
            (None, _) => fence(Ordering::SeqCst),
        }
        true
    }
}

impl AccessEpoch {
    fn describe(self) -> &'static str {
        match self {
            AccessEpoch::Closed => "nothing",
            AccessEpoch::Fence { .. } => "the epoch of a fence",
            AccessEpoch::Start => "the epoch of MPI_Win_start",
            AccessEpoch::Locks(_) => "an epoch of MPI_Win_lock",
            AccessEpoch::LockAll => "the epoch of MPI_Win_lock_all",
        }
    }
}
