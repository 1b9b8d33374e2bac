// SPDX-License-Identifier: BSD-3-Clause
//! The record of a window's member: atomic words in its arena, which all members on the host use.
//!
//! An origin locks, posts or completes by writing into the records of other members, and rings the members
//! that wait. The lock is a queue of tickets (numbers), served in the order of requests; readers with
//! consecutive tickets hold the lock together (MPI 5.0, section 12.5.3). Invariant: no function here blocks,
//! except `latch` and `unlatched`, which wait for other members' updates. Updates are short.

use error::Result;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;
use sys::futex;
use transport::shm::{Allocator, Arena, ArenaWords, LocalRank, Segment};

// Words of a record. Words that different processes write at different times are in different cache lines.
/// The index of the word that counts the tickets for the lock that were given out.
const TICKETS: usize = 0;
/// The index of the word that says whose turn it is to take a shared lock: the number of that ticket.
const READING: usize = 1;
/// The index of the word that says whose turn it is to take an exclusive lock: the number of that ticket.
/// This is also the number of tickets that were released.
const WRITING: usize = 2;
/// The index of the latch, which a process shuts while it updates memory without atomic instructions. The
/// word is 0 if open, 1 if shut, and 2 if shut while others may sleep until it opens.
const LATCH: usize = 16;
/// The index of the word that counts access epochs (MPI_Win_start to MPI_Win_complete) whose target is the
/// record's owner: how many all members together have ended.
const COMPLETES: usize = 32;
/// The index of the version of the table of attached regions. The version is odd while the table is being
/// changed.
const VERSION: usize = 48;
/// The index of the word with the offset of the table of attached regions in the owner's arena.
const TABLE: usize = 49;
/// The index of the word with the number of rows of the table of attached regions.
const REGIONS: usize = 50;
/// The index at which the words for the members begin. First comes a cache line for each member. The line's
/// first word says whether that member is in an atomic update. Then come the peers that wait for tickets
/// (ticket t at t modulo members), and the number of posts of each member.
const MEMBERS: usize = 64;

const LINE: usize = 8;

fn words(members: usize) -> usize {
    MEMBERS + (LINE + 2) * members
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The lock admits other holders that share it (MPI_LOCK_SHARED).
    Shared,
    /// The lock admits no other holder (MPI_LOCK_EXCLUSIVE).
    Exclusive,
}

/// The record of one member of a window, its owner: locks and counters in shared memory, opened by this
/// process.
#[derive(Clone, Debug)]
pub(crate) struct MemberRecord {
    arena: Arena,
    offset: u64,
    words: ArenaWords,
    members: usize,
}

impl MemberRecord {
    /// Makes this process's record for a window, in its own arena. Errors: the arena has no room
    /// (MPI_ERR_NO_MEM).
    pub fn create(allocator: &mut Allocator, members: usize) -> Result<MemberRecord> {
        let offset = allocator.alloc(words(members) as u64 * 8)?;
        let arena = allocator.arena().clone();
        let words = arena.words_ref(offset, words(members))?;
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        Ok(MemberRecord { arena, offset, words, members })
    }

    /// Opens the record that peer `peer` has made at `offset` of its arena.
    pub fn open(segment: &Segment, peer: LocalRank, offset: u64, members: usize) -> Result<MemberRecord> {
        let arena = segment.arena(peer)?;
        let words = arena.words_ref(offset, words(members))?;
        Ok(MemberRecord { arena, offset, words, members })
    }

    /// Returns the record's offset in its owner's arena.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words[at]
    }

    fn waiter(&self, ticket: u64) -> &AtomicU64 {
        self.word(MEMBERS + LINE * self.members + (ticket % self.members as u64) as usize)
    }

    /// Takes the next ticket in the queue for the lock of the owner's memory.
    #[inline]
    pub fn take_ticket(&self) -> u64 {
        self.word(TICKETS).fetch_add(1, Ordering::SeqCst)
    }

    /// Takes the lock if it is the turn of `ticket`, and returns whether it did. If not, the record notes
    /// that peer `me` is to be rung when its turn may have come. A shared lock lets others in: calls `ring`
    /// with the peer that waits next, if there is one.
    #[inline]
    pub fn try_grant(&self, ticket: u64, lock: Lock, me: u32, ring: impl FnOnce(u32)) -> bool {
        let turn = self.word(if lock == Lock::Shared { READING } else { WRITING });
        if turn.load(Ordering::Acquire) != ticket {
            self.waiter(ticket).store(u64::from(me) + 1, Ordering::Relaxed);
            // Either this process sees its turn below, or the process that passes the turn sees whom to ring
            // (`ring_next`).
            fence(Ordering::SeqCst);
            if turn.load(Ordering::Acquire) != ticket {
                return false;
            }
        }
        if lock == Lock::Shared {
            // The next reader may enter.
            turn.swap(ticket + 1, Ordering::SeqCst);
            self.ring_next(ticket + 1, ring);
        }
        true
    }

    /// Releases the lock that was taken with `ticket`. Calls `ring` with the peer that waits next, whose turn
    /// it may now be.
    #[inline]
    pub fn release(&self, ticket: u64, lock: Lock, ring: impl FnOnce(u32)) {
        if lock == Lock::Exclusive {
            self.word(READING).swap(ticket + 1, Ordering::SeqCst);
        }
        // The word is added to, not stored: readers may have come and gone after a writer.
        let next = self.word(WRITING).fetch_add(1, Ordering::SeqCst) + 1;
        self.ring_next(next, ring);
    }

    /// Calls `ring` with the peer that waits with `ticket`, whose turn may have come. No fence is needed,
    /// because the turn was updated, and is read here, in sequentially consistent order. One ring too many is
    /// harmless.
    #[inline]
    fn ring_next(&self, ticket: u64, ring: impl FnOnce(u32)) {
        if self.word(TICKETS).load(Ordering::SeqCst) > ticket
            && let Some(peer) = self.waiter(ticket).load(Ordering::SeqCst).checked_sub(1)
        {
            ring(peer as u32);
        }
    }

    /// Returns the word that says whether a member is in an atomic update of the owner's memory: 1 if it is,
    /// 0 if not.
    #[inline(always)]
    fn busy(&self, member: usize) -> &AtomicU64 {
        self.word(MEMBERS + LINE * member)
    }

    /// Shuts the latch, the lock for updates. Until the returned guard is dropped, no other process updates
    /// memory of the record's owner, so the caller keeps it only briefly.
    #[inline(always)]
    pub fn latch(&self) -> Latched<'_> {
        let latch = self.word(LATCH);
        if latch.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            self.wait_for_latch();
        }
        // Either this process sees that a member is busy, or the member sees that the latch is shut.
        for member in 0..self.members {
            while self.busy(member).load(Ordering::SeqCst) != 0 {
                sys::cpu::yield_cpu();
            }
        }
        Latched(latch)
    }

    #[cold]
    fn wait_for_latch(&self) {
        let latch = self.word(LATCH);
        for _ in 0..LATCH_LOOKS {
            std::hint::spin_loop();
            if latch.load(Ordering::Relaxed) == 0
                && latch.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
        // Other processes may sleep, so the latch stays marked, and opening it wakes the next.
        while latch.swap(2, Ordering::SeqCst) != 0 {
            futex::wait_low(latch, 2, Some(Duration::from_millis(100)));
        }
    }

    /// Waits until the latch, the lock for updates, is open, and keeps it open until the returned guard is
    /// dropped. Meanwhile the caller may update one element by an atomic instruction. `member` is this
    /// process's rank in the window. Only one thread of a process may call this or hold the guard at a time.
    #[inline(always)]
    pub fn unlatched(&self, member: usize) -> Unlatched<'_> {
        let busy = self.busy(member);
        busy.swap(1, Ordering::SeqCst);
        if self.word(LATCH).load(Ordering::SeqCst) != 0 {
            self.let_latched_pass(busy);
        }
        Unlatched(busy)
    }

    #[cold]
    fn let_latched_pass(&self, busy: &AtomicU64) {
        let latch = self.word(LATCH);
        loop {
            busy.store(0, Ordering::Release);
            while latch.load(Ordering::Relaxed) != 0 {
                sys::cpu::yield_cpu();
            }
            busy.swap(1, Ordering::SeqCst);
            if latch.load(Ordering::SeqCst) == 0 {
                return;
            }
        }
    }

    /// Counts a post (MPI_Win_post): member `poster` has opened its window to the record's owner.
    pub fn post(&self, poster: usize) {
        self.word(MEMBERS + (LINE + 1) * self.members + poster).fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how often member `poster` has opened its window to the record's owner (MPI_Win_post).
    pub fn posts(&self, poster: usize) -> u64 {
        self.word(MEMBERS + (LINE + 1) * self.members + poster).load(Ordering::Acquire)
    }

    /// Counts in the record that this process has ended an access epoch whose target is the record's owner
    /// (MPI_Win_complete).
    pub fn complete(&self) {
        self.word(COMPLETES).fetch_add(1, Ordering::AcqRel);
    }

    pub fn completes(&self) -> u64 {
        self.word(COMPLETES).load(Ordering::Acquire)
    }

    #[inline]
    pub fn version(&self) -> u64 {
        self.word(VERSION).load(Ordering::Acquire)
    }

    /// Replaces the owner's table of attached regions by a table at `offset` of its arena, which `fill`
    /// writes: `regions` rows of `ROW` words.
    pub fn publish(&self, offset: u64, regions: usize, fill: impl FnOnce()) {
        let version = self.version();
        self.word(VERSION).store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        fill();
        self.word(TABLE).store(offset, Ordering::Relaxed);
        self.word(REGIONS).store(regions as u64, Ordering::Relaxed);
        self.word(VERSION).store(version + 2, Ordering::Release);
    }

    /// Reads the owner's table of attached regions. Returns its version and its words. Errors: the words
    /// cannot be mapped (MPI_ERR_NO_MEM and others).
    pub fn table(&self) -> Result<(u64, Vec<u64>)> {
        loop {
            let version = self.version();
            let (offset, rows) =
                (self.word(TABLE).load(Ordering::Relaxed), self.word(REGIONS).load(Ordering::Relaxed));
            let words = self.arena.words(offset, rows.saturating_mul(ROW as u64) as usize);
            let copy = words.map(|words| words.iter().map(|word| word.load(Ordering::Relaxed)).collect());
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.word(VERSION).load(Ordering::Relaxed) == version {
                return Ok((version, copy?));
            }
            sys::cpu::yield_cpu();
        }
    }

    pub fn arena(&self) -> &Arena {
        &self.arena
    }
}

/// The latch of a record, which this process has shut. Dropping it opens the latch.
pub(crate) struct Latched<'a>(&'a AtomicU64);

impl Drop for Latched<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.swap(0, Ordering::Release) == 2 {
            futex::wake_low(self.0, 1);
        }
    }
}

/// A guard that keeps a record's latch open until it is dropped. Its field is the word that says whether this
/// member is in an atomic update.
pub(crate) struct Unlatched<'a>(&'a AtomicU64);

impl Drop for Unlatched<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// How often a process looks at a shut latch before it sleeps: for about a microsecond, longer than most
/// updates.
const LATCH_LOOKS: u32 = 50;

/// The number of words in a row of the table of attached regions. They are the region's address, its bytes,
/// the rank of the arena that holds it plus 1, and its offset there.
pub(crate) const ROW: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::SmallRng};
    use std::sync::atomic::AtomicBool;
    use transport::shm::Shape;

    fn record(members: usize) -> MemberRecord {
        let (segment, _fd) = Segment::create(Shape { ranks: 1, proxies: 0, arena_bytes: 2 << 20 }).unwrap();
        let mut allocator = Allocator::new(segment.arena(segment.require(0).unwrap()).unwrap(), 16 << 20);
        let record = MemberRecord::create(&mut allocator, members).unwrap();
        MemberRecord::open(&segment, segment.require(0).unwrap(), record.offset(), members).unwrap()
    }

    #[test]
    fn tickets_are_served_in_order_and_readers_together() {
        let record = record(4);
        let granted = |ticket, lock| {
            let mut rung = None;
            (record.try_grant(ticket, lock, ticket as u32, |peer| rung = Some(peer)), rung)
        };
        let release = |ticket, lock| {
            let mut rung = None;
            record.release(ticket, lock, |peer| rung = Some(peer));
            rung
        };
        let tickets: Vec<u64> = (0..4).map(|_| record.take_ticket()).collect();
        assert_eq!(tickets, [0, 1, 2, 3]);
        let (write, read) = (Lock::Exclusive, Lock::Shared);
        assert_eq!(granted(1, read), (false, None));
        assert_eq!(granted(2, read), (false, None));
        assert_eq!(granted(3, write), (false, None));
        assert_eq!(granted(0, write), (true, None));
        assert_eq!(release(0, write), Some(1), "the next is rung");
        assert_eq!(granted(1, read), (true, Some(2)), "and rings the next reader");
        assert!(granted(2, read).0);
        assert!(!granted(3, write).0);
        release(2, read);
        assert!(!granted(3, write).0, "one still reads");
        assert_eq!(release(1, read), Some(3));
        assert!(granted(3, write).0);
        assert_eq!(release(3, write), None);
        assert_eq!(record.take_ticket(), 4);
        assert_eq!(granted(4, read), (true, None));
    }

    // Goal: a writer holds the lock alone. Method: threads with random kinds of locks count the threads
    // inside.
    #[test]
    fn writers_are_alone() {
        const THREADS: usize = 4;
        let record = record(THREADS);
        let (inside, writes) = (AtomicU64::new(0), AtomicU64::new(0));
        let expected: u64 = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..THREADS)
                .map(|me| {
                    let (record, inside, writes) = (record.clone(), &inside, &writes);
                    scope.spawn(move || {
                        let mut random = SmallRng::seed_from_u64(me as u64);
                        let mut mine = 0;
                        for _ in 0..500 {
                            let lock = if random.random_bool(0.5) { Lock::Shared } else { Lock::Exclusive };
                            let ticket = record.take_ticket();
                            while !record.try_grant(ticket, lock, me as u32, |_| ()) {
                                std::thread::yield_now();
                            }
                            let weight = if lock == Lock::Exclusive { 1000 } else { 1 };
                            let before = inside.fetch_add(weight, Ordering::SeqCst);
                            assert!(
                                before < 1000 && (lock == Lock::Shared || before == 0),
                                "{before} inside"
                            );
                            if lock == Lock::Exclusive {
                                mine += 1;
                                writes.store(writes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                            }
                            inside.fetch_sub(weight, Ordering::SeqCst);
                            record.release(ticket, lock, |_| ());
                        }
                        mine
                    })
                })
                .collect();
            runs.into_iter().map(|run| run.join().unwrap()).sum()
        });
        assert_eq!(writes.load(Ordering::Relaxed), expected);
    }

    // Goal: no turn is lost where a reader comes and goes before the writer ahead of it has left. Method:
    // threads read and write in turn without a pause, so that some thread is always leaving.
    #[test]
    fn readers_may_overtake_a_leaving_writer() {
        const LOOKS_MAX: u64 = 1 << 26;
        let (record, all_here) = (record(3), std::sync::Barrier::new(3));
        std::thread::scope(|scope| {
            for me in 0..3 {
                let (record, all_here) = (record.clone(), &all_here);
                scope.spawn(move || {
                    all_here.wait();
                    for round in 0..300_000 {
                        let lock = if (round + me) % 2 == 0 { Lock::Shared } else { Lock::Exclusive };
                        let ticket = record.take_ticket();
                        let mut looks = 0;
                        while !record.try_grant(ticket, lock, me, |_| ()) {
                            looks += 1;
                            assert!(looks < LOOKS_MAX, "{lock:?} lock of ticket {ticket} never comes");
                            if looks % 64 == 0 {
                                std::thread::yield_now();
                            }
                        }
                        record.release(ticket, lock, |_| ());
                    }
                });
            }
        });
    }

    // Goal: no update is lost. Method: some threads add to one element by an atomic instruction, others add
    // to all elements in the latch; each yields inside its update.
    #[test]
    fn the_latch_keeps_single_updates_out() {
        const THREADS: usize = 4;
        let record = record(THREADS);
        let elements: [AtomicU64; 3] = Default::default();
        std::thread::scope(|scope| {
            for me in 0..THREADS {
                let (record, elements) = (record.clone(), &elements);
                scope.spawn(move || {
                    for round in 0..3000 {
                        if (round + me).is_multiple_of(3) {
                            let add = |element: &AtomicU64| {
                                let sum = element.load(Ordering::Relaxed) + 1;
                                std::thread::yield_now();
                                element.store(sum, Ordering::Relaxed);
                            };
                            let _latched = record.latch();
                            elements.iter().for_each(add);
                        } else {
                            let element = &elements[round % 3];
                            let _unlatched = record.unlatched(me);
                            std::thread::yield_now();
                            element.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let total: u64 = elements.iter().map(|element| element.load(Ordering::Relaxed)).sum();
        assert_eq!(total, THREADS as u64 * (1000 * 3 + 2000));
    }

    #[test]
    fn the_latch_lets_one_in() {
        let record = record(1);
        let (inside, total) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _latched = record.latch();
                        assert!(!inside.swap(true, Ordering::Relaxed));
                        total.store(total.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        inside.store(false, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 8000);
    }
}
