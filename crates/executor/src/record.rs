// SPDX-License-Identifier: BSD-3-Clause
//! What lies in shared memory: the record of an instance, and the directory by which peers find it.
//!
//! A record is 24 words of head and 4 words for every step. Its owner links and unlinks it; its driver writes
//! `published`, `done` and `state`; the receiver of a send writes that send's `done`. Peers read the first
//! cache line, once.
//!
//! Invariants: a reader may follow stale links, into a record in use for another operation. So the owner
//! clears the `stamp` (incarnation and sequence) before the record changes and writes it last. A reader
//! trusts only what it has read between two equal stamps.

use crate::checked::{EdgeStep, pair};
use crate::fault::{Corruption, Fault};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use transport::shm::Arena;

/// The number of words in the head of a record, before those of its steps.
pub const HEAD_WORDS: u64 = 24;
/// The number of words that a record has for each step.
pub const STEP_WORDS: u64 = 4;
/// The bit of a `Published` or `Done` word that will not change any more. The other bits count bytes.
pub const COMPLETE: u64 = 1 << 63;
/// The bit that a driver sets in a send's `Published` word, with `COMPLETE`, if it has given the send up.
pub const GIVEN_UP: u64 = 1 << 62;
/// The bit of a send's `Done` that its receiver sets if it cannot read the bytes: the sender is to copy them
/// to its arena.
pub const ASKS: u64 = 1 << 62;
/// The bits of a `Published` or `Done` word that count bytes.
pub const BYTES: u64 = GIVEN_UP - 1;
/// The bit of a send's `Address` word that says that the rest is an offset into the sender's arena, not an
/// address in its process.
pub const IN_ARENA: u64 = 1 << 63;
/// The bit of a send's `Address` word that says, with `IN_ARENA`, that the driver first packs the bytes
/// there.
pub const STAGED: u64 = 1 << 62;
/// The bit of a send's `Total` word that marks a message: a receive of another length takes what fits.
pub const MESSAGE: u64 = 1 << 63;
/// The value of `Head::State` if the proxy could not drive the instance to its end: the rank goes on.
pub const RETURNED: u64 = 1;
/// The value of `Head::State` if the instance is locally complete: the user's buffers are free, but peers
/// have yet to take or to acknowledge bytes. It stays in the directory.
pub const LOCAL: u64 = 2;

/// The value of `Head::Claim` once the bytes of a message have started to come.
const STARTED: u64 = 1;
/// The value of `Head::Claim` once the rank has withdrawn the receive of a message.
const WITHDRAWN: u64 = 2;

/// The number of buckets in a rank's directory.
pub const BUCKETS: usize = 1024;
/// The most records that a look follows in a bucket of a directory. A longer chain is corrupt.
const HOPS_MAX: usize = 1 << 16;

/// The words at the start of a record, by index.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Head {
    /// The incarnation in the high half, the sequence in the low half; 0 while the record is not in the
    /// directory.
    Stamp = 0,
    /// The context of the comm whose operation it is.
    Context = 1,
    /// The offset in the arena of the next record in the bucket; 0 at the end.
    Next = 2,
    /// The program's number, unique in the job.
    Program = 3,
    /// The offset in the arena of the table of sends (`CheckedSchedule::sends`).
    SendsAt = 4,
    /// The number of entries of the table of sends. Each has two words.
    SendCount = 5,
    /// The number of steps of the record.
    Steps = 6,
    /// `COMPLETE` once the driver touches nothing any more, `LOCAL` or `RETURNED` before.
    State = 8,
    /// The first of the four words of a `Fault`.
    Fault = 9,
    /// The offset in the arena of the schedule's words, which a proxy reads.
    ProgramAt = 13,
    /// The number of the schedule's words.
    ProgramWords = 14,
    /// The offset in the arena of the parameters' words, which a proxy reads.
    ParametersAt = 15,
    /// The number of the parameters' words.
    ParametersWords = 16,
    /// The number of the parameters: parameters with the same number are the same.
    ParametersVersion = 17,
    /// Who drives, for reports: 0 for the rank, else 1 + the index of the proxy.
    Driver = 18,
    /// The time in nanoseconds at which the instance was complete. It is stored only where operations are
    /// timed.
    Completed = 19,
    /// The processor time in nanoseconds that the driver took for the instance. It is stored only where
    /// operations are timed.
    CpuNs = 20,
    /// What became of the receive of a message: `STARTED`, `WITHDRAWN`, or 0 while neither has happened.
    Claim = 21,
}

/// The words that a record has for each step, by index.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Field {
    /// The bytes of a send that its receiver may take from `Address`, with the bits `COMPLETE` and
    /// `GIVEN_UP`.
    Published = 0,
    /// The bytes of the step that are done, with the bit `COMPLETE`. The receiver of a send writes those of
    /// the send.
    Done = 1,
    /// Where the bytes of a send lie, with the bits `IN_ARENA` and `STAGED`.
    Address = 2,
    /// The length of a send in bytes, with the bit `MESSAGE`.
    Total = 3,
}

/// Returns the bytes that a record of so many steps takes in an arena.
pub fn record_bytes(steps: usize) -> u64 {
    8 * (HEAD_WORDS + STEP_WORDS * steps as u64)
}

/// A record at some offset of an arena, checked to lie wholly inside it.
#[derive(Clone, Debug)]
pub struct InstanceRecord {
    arena: Arena,
    at: u64,
    steps: u32,
}

impl InstanceRecord {
    /// The record at offset `at`. Errors: it does not lie inside the arena.
    #[inline]
    pub fn new(arena: &Arena, at: u64, steps: u32) -> error::Result<InstanceRecord> {
        arena.words(at, (record_bytes(steps as usize) / 8) as usize)?;
        Ok(InstanceRecord { arena: arena.clone(), at, steps })
    }

    /// Returns the offset of the record in its arena.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The record's number of steps.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// The arena in which the record lies.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Returns a word of the record's head, to be read or written.
    #[inline]
    pub fn head(&self, head: Head) -> &AtomicU64 {
        self.head_word(head as u64)
    }

    #[inline]
    fn head_word(&self, index: u64) -> &AtomicU64 {
        self.arena.word(self.at + 8 * index).expect("checked when the record was made")
    }

    /// A word of step `step`, which must be below the number of steps.
    #[inline]
    pub fn step(&self, step: u32, field: Field) -> &AtomicU64 {
        assert!(step < self.steps);
        let index = HEAD_WORDS + STEP_WORDS * u64::from(step) + field as u64;
        self.arena.word(self.at + 8 * index).expect("checked when the record was made")
    }

    /// Stores why the instance fails; the first reason stays.
    pub fn set_fault(&self, fault: Fault) {
        if self.fault().is_none() {
            let words = fault.words();
            for index in (0..4).rev() {
                self.head_word(Head::Fault as u64 + index).store(words[index as usize], Ordering::Release);
            }
        }
    }

    /// Returns how many of its `bytes` bytes a send has published, and whether that is final. Errors: why the
    /// driver of rank `peer` has given the send up, or that the word is corrupt.
    #[inline]
    pub fn published(&self, step: u32, bytes: u64, peer: u32) -> Result<(u64, bool), Fault> {
        let word = self.step(step, Field::Published).load(Ordering::Acquire);
        let (have, is_whole) = (word & BYTES, word & COMPLETE != 0);
        if word & GIVEN_UP != 0 || have > bytes || is_whole && have < bytes {
            let cause = self.fault().filter(|fault| fault.voids());
            return Err(cause.unwrap_or(Fault::Corrupt { peer, what: Corruption::Progress }));
        }
        Ok((have, is_whole))
    }

    /// Whether a send was given up of which the receiver has not taken notice yet.
    pub fn has_unseen_failure(&self) -> bool {
        (0..self.steps).any(|step| {
            self.step(step, Field::Published).load(Ordering::Acquire) & GIVEN_UP != 0
                && self.step(step, Field::Done).load(Ordering::Acquire) & COMPLETE == 0
        })
    }

    /// Returns why the instance fails, or None if it has not failed.
    pub fn fault(&self) -> Option<Fault> {
        Fault::from_words(
            [0, 1, 2, 3].map(|index| self.head_word(Head::Fault as u64 + index).load(Ordering::Acquire)),
        )
    }

    /// Returns copies of the words of the head, from the word `first` on.
    pub fn words_from(&self, first: Head) -> Vec<u64> {
        (first as u64..HEAD_WORDS).map(|index| self.head_word(index).load(Ordering::Acquire)).collect()
    }

    /// The offset of a word of a step in the arena.
    pub fn offset_of(&self, step: u32, field: Field) -> u64 {
        self.at + 8 * (HEAD_WORDS + STEP_WORDS * u64::from(step) + field as u64)
    }

    /// Claims a receive for its driver, which may then start to write. Returns false if the rank has
    /// withdrawn it.
    pub fn start_receive(&self) -> bool {
        let claim = self.head(Head::Claim);
        let seen = claim.compare_exchange(0, STARTED, Ordering::AcqRel, Ordering::Acquire);
        seen.is_ok() || seen == Err(STARTED)
    }

    /// Withdraws a receive, unless it has started. Returns whether this call withdrew it.
    pub fn withdraw(&self) -> bool {
        let claim = self.head(Head::Claim);
        claim.compare_exchange(0, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the receive of a message was withdrawn (true) or has started (false); None while neither has
    /// happened.
    pub fn claim(&self) -> Option<bool> {
        match self.head(Head::Claim).load(Ordering::Acquire) {
            0 => None,
            claim => Some(claim == WITHDRAWN),
        }
    }

    /// Whether the receive was withdrawn.
    pub fn is_withdrawn(&self) -> bool {
        self.head(Head::Claim).load(Ordering::Acquire) == WITHDRAWN
    }

    /// Sets all words to 0, in memory that held something else before.
    pub fn clear(&self) {
        for index in 0..HEAD_WORDS + STEP_WORDS * u64::from(self.steps) {
            self.head_word(index).store(0, Ordering::Relaxed);
        }
    }

    /// Sets the fault and the progress words to 0, for another start.
    pub fn reset(&self) {
        self.head(Head::State).store(0, Ordering::Relaxed);
        self.head(Head::Fault).store(0, Ordering::Relaxed);
        self.head(Head::Claim).store(0, Ordering::Relaxed);
        for step in 0..self.steps {
            self.step(step, Field::Published).store(0, Ordering::Relaxed);
            self.step(step, Field::Done).store(0, Ordering::Relaxed);
        }
    }

    /// Enters the record into its rank's directory, after every other word has been written.
    pub fn link(&self, directory: &[AtomicU64], stamp: u64, context: u64) {
        let bucket = &directory[bucket(context, stamp as u32)];
        self.head(Head::Context).store(context, Ordering::Relaxed);
        self.head(Head::Next).store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        self.head(Head::Stamp).store(stamp, Ordering::Release);
        bucket.store(self.at, Ordering::Release);
    }

    /// Removes the record from its rank's directory. Peers find it no more, but may still be reading it.
    pub fn unlink(&self, directory: &[AtomicU64]) {
        let stamp = self.head(Head::Stamp).load(Ordering::Relaxed);
        let mut link = &directory[bucket(self.head(Head::Context).load(Ordering::Relaxed), stamp as u32)];
        for _ in 0..HOPS_MAX {
            let at = link.load(Ordering::Relaxed);
            if at == self.at {
                link.store(self.head(Head::Next).load(Ordering::Relaxed), Ordering::Release);
                break;
            }
            // In a corrupt directory the record may be missing. Its stamp then tells readers that it has
            // gone.
            let next = at.checked_add(8 * Head::Next as u64).filter(|_| at != 0);
            let Some(next) = next.and_then(|next| self.arena.word(next).ok()) else { break };
            link = next;
        }
        self.head(Head::Stamp).store(0, Ordering::Release);
        // A reader that sees any later change of the record also sees that its stamp has gone.
        fence(Ordering::Release);
    }
}

/// Returns which bucket of a directory holds the instance of this context and sequence.
fn bucket(context: u64, sequence: u32) -> usize {
    let mixed = (context ^ u64::from(sequence).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 54) as usize & (BUCKETS - 1)
}

/// What a look into a directory has found.
pub enum Lookup {
    /// The record, and the stamp that it had before and after it was read.
    Here(InstanceRecord, u64),
    /// The record is certainly not there.
    Absent,
    /// The directory changed during the look: look again.
    Unclear,
}

/// Looks for the instance (context, sequence) of the rank with this directory and arena, for a process that
/// `Fault` names `by`.
pub fn find(
    directory: &[AtomicU64],
    arena: &Arena,
    by: u32,
    context: u64,
    sequence: u32,
) -> Result<Lookup, Fault> {
    let peer = arena.rank().peer();
    let lost = |bytes: u64| move |error: error::Error| Fault::of_arena(by, peer, bytes, &error);
    let wanted = bucket(context, sequence);
    let mut at = directory[wanted].load(Ordering::Acquire);
    for _ in 0..HOPS_MAX {
        if at == 0 {
            return Ok(Lookup::Absent);
        }
        let words = arena.words(at, Head::Steps as usize + 1).map_err(lost(8 * HEAD_WORDS))?;
        let word = |head: Head| &words[head as usize];
        let (stamp, key, next) = (word(Head::Stamp), word(Head::Context), word(Head::Next));
        let before = stamp.load(Ordering::Acquire);
        let (key, next) = (key.load(Ordering::Acquire), next.load(Ordering::Acquire));
        let steps = word(Head::Steps).load(Ordering::Acquire);
        // A record that left this bucket meanwhile may lead anywhere.
        if before == 0 || stamp.load(Ordering::Acquire) != before || bucket(key, before as u32) != wanted {
            return Ok(Lookup::Unclear);
        }
        if key == context && before as u32 == sequence {
            let steps =
                u32::try_from(steps).map_err(|_| Fault::Corrupt { peer, what: Corruption::Offset })?;
            let bytes = record_bytes(steps as usize);
            let record = InstanceRecord::new(arena, at, steps).map_err(lost(bytes))?;
            return Ok(Lookup::Here(record, before));
        }
        at = next;
    }
    Err(Fault::Corrupt { peer, what: Corruption::Chain })
}

/// Returns the step that sends to rank `to` on this edge, from the table of sends of a peer's record. `Fault`
/// names the looking process `by`.
pub fn find_send(record: &InstanceRecord, by: u32, to: u32, edge: u32) -> Result<u32, Fault> {
    let peer = record.arena.rank().peer();
    let corrupt = |what| Fault::Corrupt { peer, what };
    let at = record.head(Head::SendsAt).load(Ordering::Acquire);
    let count = record.head(Head::SendCount).load(Ordering::Acquire);
    let word = |index: u64| {
        let offset = index.checked_mul(8).and_then(|offset| at.checked_add(offset));
        let word = record.arena.word(offset.ok_or(corrupt(Corruption::Offset))?);
        let bytes = count.saturating_mul(16);
        word.map(|word| word.load(Ordering::Acquire))
            .map_err(|error| Fault::of_arena(by, peer, bytes, &error))
    };
    let key = EdgeStep::key(to, edge);
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match word(2 * middle)?.cmp(&key) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => {
                let step = word(2 * middle + 1)?;
                let step = u32::try_from(step).ok().filter(|&step| step < record.steps);
                return step.ok_or(corrupt(Corruption::Edge));
            }
        }
    }
    Err(corrupt(Corruption::Edge))
}

/// Combines incarnation and sequence into the stamp of one use of a record.
pub fn stamp(incarnation: u32, sequence: u32) -> u64 {
    pair(incarnation.max(1), sequence)
}

/// Writes words into an arena where its owner has allocated memory for them.
pub fn write_words(arena: &Arena, at: u64, words: &[u64]) {
    for (index, &word) in words.iter().enumerate() {
        let target = arena.word(at + 8 * index as u64).expect("the owner writes where it allocated");
        target.store(word, Ordering::Relaxed);
    }
}

/// Copies words out of an arena, if they lie inside it.
pub fn read_words(arena: &Arena, at: u64, count: u64, into: &mut Vec<u64>) -> Option<()> {
    into.clear();
    let words = arena.words(at, usize::try_from(count).ok()?).ok()?;
    into.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::shm::{Allocator, Segment, Shape};

    fn records(count: usize) -> (Segment, Vec<InstanceRecord>) {
        let (segment, _fd) = Segment::create(Shape { ranks: 1, proxies: 0, arena_bytes: 1 << 20 }).unwrap();
        let mut allocator = Allocator::new(segment.arena(segment.local(0).unwrap()).unwrap(), 16 << 20);
        let records = (0..count).map(|_| {
            let at = allocator.alloc(record_bytes(2)).unwrap();
            let record = InstanceRecord::new(allocator.arena(), at, 2).unwrap();
            record.clear();
            record.head(Head::Steps).store(2, Ordering::Relaxed);
            record
        });
        let records = records.collect();
        (segment, records)
    }

    fn found(segment: &Segment, context: u64, sequence: u32) -> Option<u64> {
        let arena = segment.arena(segment.local(0).unwrap()).unwrap();
        match find(&segment.rank(segment.local(0).unwrap()).directory[..], &arena, 0, context, sequence) {
            Ok(Lookup::Here(record, _)) => Some(record.at()),
            Ok(Lookup::Absent) => None,
            _ => Some(0),
        }
    }

    #[test]
    fn records_are_found_whatever_shares_their_bucket() {
        let (segment, records) = records(3);
        let directory = &segment.rank(segment.local(0).unwrap()).directory[..];
        let same: Vec<u32> =
            (0..100_000).filter(|&sequence| bucket(9, sequence) == bucket(9, 0)).take(3).collect();
        for (record, &sequence) in records.iter().zip(&same) {
            record.link(directory, stamp(1, sequence), 9);
        }
        for gone in [1, 2, 0] {
            assert_eq!(found(&segment, 9, same[gone]), Some(records[gone].at()));
            records[gone].unlink(directory);
            assert_eq!(found(&segment, 9, same[gone]), None);
        }
        assert!(directory.iter().all(|head| head.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn a_stale_link_finds_nothing_and_says_so() {
        let (segment, records) = records(1);
        let directory = &segment.rank(segment.local(0).unwrap()).directory[..];
        records[0].link(directory, stamp(1, 5), 9);
        records[0].unlink(directory);
        // This is what a reader sees that read the head of the chain before the record left.
        directory[bucket(9, 5)].store(records[0].at(), Ordering::Relaxed);
        assert_eq!(found(&segment, 9, 5), Some(0), "unclear");
        // The record is used again, for a key of another bucket.
        directory[bucket(9, 5)].store(0, Ordering::Relaxed);
        let other = (6..).find(|&sequence| bucket(9, sequence) != bucket(9, 5)).unwrap();
        records[0].link(directory, stamp(2, other), 9);
        directory[bucket(9, 5)].store(records[0].at(), Ordering::Relaxed);
        assert_eq!(found(&segment, 9, 5), Some(0), "unclear");
        assert_eq!(found(&segment, 9, other), Some(records[0].at()));
    }

    #[test]
    fn sends_are_found_or_refused() {
        let (segment, records) = records(1);
        let arena = segment.arena(segment.local(0).unwrap()).unwrap();
        write_words(
            &arena,
            4096 * 8,
            &[EdgeStep::key(1, 0), 0, EdgeStep::key(1, 7), 1, EdgeStep::key(2, 0), 9],
        );
        records[0].head(Head::SendsAt).store(4096 * 8, Ordering::Relaxed);
        records[0].head(Head::SendCount).store(3, Ordering::Relaxed);
        let edge = Err(Fault::Corrupt { peer: 0, what: Corruption::Edge });
        assert_eq!((find_send(&records[0], 0, 1, 0), find_send(&records[0], 0, 1, 7)), (Ok(0), Ok(1)));
        assert_eq!(find_send(&records[0], 0, 1, 3), edge);
        // A step that the record does not have.
        assert_eq!(find_send(&records[0], 0, 2, 0), edge);
    }
}
