// SPDX-License-Identifier: BSD-3-Clause
//! What lies in shared memory: the record of an instance (one started schedule), and each rank's directory,
//! in which peers find the record.
//!
//! A record has 24 words of head and 4 words for each step. The rank that started the instance links the
//! record into its directory and unlinks it. The driver writes `published`, `done` and `state`. The receiver
//! of a send writes that send's `done`.
//!
//! Invariants: a reader may follow a stale link into a record that is in use for another operation. So the
//! rank clears the `stamp` (incarnation and sequence) before it changes the record, and writes the new stamp
//! last. A reader trusts only what it has read between two equal stamps.

use crate::checked::{EdgeStep, pair};
use crate::fault::{Corruption, Fault};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use transport::shm::Arena;

/// The number of words in the head of a record, before those of its steps.
pub const HEAD_WORDS: u64 = 24;
/// The number of words that a record has for each step.
pub const STEP_WORDS: u64 = 4;
/// The bit of a step's `Published` or `Done` word that says that the word does not change any more. The other
/// bits count bytes.
pub const COMPLETE: u64 = 1 << 63;
/// The bit of a send's `Published` word that says, with `COMPLETE`, that the send has failed: its driver has
/// given it up.
pub const GIVEN_UP: u64 = 1 << 62;
/// The bit of a send's `Done` word by which its receiver asks the sender for a copy in the arena, since it
/// cannot read the original bytes.
pub const ASKS: u64 = 1 << 62;
/// The bits of a step's `Published` or `Done` word that count bytes.
pub const BYTES: u64 = GIVEN_UP - 1;
/// The bit of a send's `Address` word that says that the other bits are an offset in the sender's arena.
/// Without it they are an address in the sender's process.
pub const IN_ARENA: u64 = 1 << 63;
/// The bit of a send's `Address` word that says, with `IN_ARENA`, that a copy lies there, into which the
/// sender's driver copies the send's bytes.
pub const STAGED: u64 = 1 << 62;
/// The bit of a send's `Total` word that marks a message, not a part of a collective. Its receive takes as
/// many bytes as fit.
pub const MESSAGE: u64 = 1 << 63;
/// The value of `Head::State` if the proxy could not drive the operation to its end. The rank then drives it
/// on.
pub const RETURNED: u64 = 1;
/// The value of `Head::State` if the operation is locally complete: the user's buffers are free, but peers
/// still need bytes or have yet to confirm them. The record stays in the directory.
pub const LOCAL: u64 = 2;

/// The value of `Head::Claim` once the bytes of a message have started to come.
const STARTED: u64 = 1;
/// The value of `Head::Claim` once the rank has withdrawn the receive of a message.
const WITHDRAWN: u64 = 2;

/// The number of buckets in a rank's directory. Each is a chain of records.
pub const BUCKETS: usize = 1024;
/// The most records that a look-up follows in one bucket of a directory. A longer chain is corrupt.
const HOPS_MAX: usize = 1 << 16;

/// The words at the start of an instance's record. The value of each variant is the index of its word.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Head {
    /// The record's incarnation (how often it was used) in the high half, the operation's number in the low
    /// half. It is 0 while the record is not in the directory.
    Stamp = 0,
    /// The context of the comm to which the operation belongs.
    Context = 1,
    /// The offset in the arena of the next record in the same bucket of the directory; 0 at the end.
    Next = 2,
    /// The number of the rank's program (its stored schedule), unique in the job.
    Program = 3,
    /// The offset in the arena of the table in which peers find this rank's sends (`CheckedSchedule::sends`).
    SendsAt = 4,
    /// The number of entries in the table at `SendsAt`. Each entry has two words.
    SendCount = 5,
    /// The number of steps that the record counts.
    Steps = 6,
    /// How far the operation is: `LOCAL`, `RETURNED`, or `COMPLETE` once the driver touches the record no
    /// more. It is 0 before.
    State = 8,
    /// The index of the first of the four words that encode why the operation failed. The words are 0 if it
    /// has not.
    Fault = 9,
    /// The offset in the arena of the words that encode the schedule for a proxy.
    ProgramAt = 13,
    /// The number of words that encode the schedule for a proxy.
    ProgramWords = 14,
    /// The offset in the arena of the words that encode the start's parameters for a proxy.
    ParametersAt = 15,
    /// The number of words that encode the start's parameters for a proxy.
    ParametersWords = 16,
    /// The version number of the parameters. A proxy that knows the version need not decode the parameters
    /// again.
    ParametersVersion = 17,
    /// The driver of the operation: 0 for the rank, else 1 + the index of the proxy. Only reports use it.
    Driver = 18,
    /// The time in nanoseconds at which the operation was complete. It is stored only where operations are
    /// timed.
    Completed = 19,
    /// The processor time in nanoseconds that the driver took for the operation. It is stored only where
    /// operations are timed.
    CpuNs = 20,
    /// What became of the receive of a message: 0 at first, `STARTED` once bytes may come, `WITHDRAWN` once
    /// the rank has withdrawn it.
    Claim = 21,
}

/// The words that a record has for each step. The value of each variant is the index among these words.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Field {
    /// The number of bytes of a send that its receiver may take, with the bits `COMPLETE` and `GIVEN_UP`.
    Published = 0,
    /// The number of bytes of the step that are done, with the bit `COMPLETE`. For a send, the receiver
    /// writes this word, and may set `ASKS`.
    Done = 1,
    /// Where the bytes of a send lie, with the bits `IN_ARENA` and `STAGED`.
    Address = 2,
    /// The length of a send in bytes, with the bit `MESSAGE`.
    Total = 3,
}

/// Returns the length in bytes of a record for `steps` steps.
pub fn record_bytes(steps: usize) -> u64 {
    8 * (HEAD_WORDS + STEP_WORDS * steps as u64)
}

/// An instance's record at some offset of an arena. It lies inside the arena as a whole.
#[derive(Clone, Debug)]
pub struct InstanceRecord {
    arena: Arena,
    at: u64,
    steps: u32,
}

impl InstanceRecord {
    /// Returns the record for `steps` steps at the offset `at`. Errors: it would not lie inside the arena.
    #[inline]
    pub fn new(arena: &Arena, at: u64, steps: u32) -> error::Result<InstanceRecord> {
        arena.words(at, (record_bytes(steps as usize) / 8) as usize)?;
        Ok(InstanceRecord { arena: arena.clone(), at, steps })
    }

    /// Returns the offset of the record in its arena.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns for how many steps the record has words.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Returns the arena in which the record lies.
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

    /// Returns a word of the step `step`, which must be below the number of steps.
    #[inline]
    pub fn step(&self, step: u32, field: Field) -> &AtomicU64 {
        assert!(step < self.steps);
        let index = HEAD_WORDS + STEP_WORDS * u64::from(step) + field as u64;
        self.arena.word(self.at + 8 * index).expect("checked when the record was made")
    }

    /// Stores why the operation fails. If a reason is stored already, it stays.
    pub fn set_fault(&self, fault: Fault) {
        if self.fault().is_none() {
            let words = fault.words();
            for index in (0..4).rev() {
                self.head_word(Head::Fault as u64 + index).store(words[index as usize], Ordering::Release);
            }
        }
    }

    /// Returns how many of a send's `bytes` bytes are published, and whether these are all. Errors: why rank
    /// `peer` has given the send up, or that the send's `Published` word is corrupt.
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

    /// Whether a send has failed and its receiver has not seen that yet.
    pub fn has_unseen_failure(&self) -> bool {
        (0..self.steps).any(|step| {
            self.step(step, Field::Published).load(Ordering::Acquire) & GIVEN_UP != 0
                && self.step(step, Field::Done).load(Ordering::Acquire) & COMPLETE == 0
        })
    }

    /// Returns why the operation fails, or None if it has not failed.
    pub fn fault(&self) -> Option<Fault> {
        Fault::from_words(
            [0, 1, 2, 3].map(|index| self.head_word(Head::Fault as u64 + index).load(Ordering::Acquire)),
        )
    }

    /// Returns copies of the words of the head, from `first` to the last.
    pub fn words_from(&self, first: Head) -> Vec<u64> {
        (first as u64..HEAD_WORDS).map(|index| self.head_word(index).load(Ordering::Acquire)).collect()
    }

    /// Returns the offset in the arena of a word of a step.
    pub fn offset_of(&self, step: u32, field: Field) -> u64 {
        self.at + 8 * (HEAD_WORDS + STEP_WORDS * u64::from(step) + field as u64)
    }

    /// Claims a message's receive for its driver, which may then write to the buffer. Returns false if the
    /// rank has withdrawn the receive.
    pub fn start_receive(&self) -> bool {
        let claim = self.head(Head::Claim);
        let seen = claim.compare_exchange(0, STARTED, Ordering::AcqRel, Ordering::Acquire);
        seen.is_ok() || seen == Err(STARTED)
    }

    /// Withdraws a message's receive, unless its bytes have started to come. Returns whether this call
    /// withdrew it.
    pub fn withdraw(&self) -> bool {
        let claim = self.head(Head::Claim);
        claim.compare_exchange(0, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns true if the receive of a message was withdrawn, false if its bytes have started to come, and
    /// None if neither has happened.
    pub fn claim(&self) -> Option<bool> {
        match self.head(Head::Claim).load(Ordering::Acquire) {
            0 => None,
            claim => Some(claim == WITHDRAWN),
        }
    }

    /// Whether this operation receives a message, and its rank has withdrawn the receive before the first
    /// byte came. Then no driver may write to the buffer.
    pub fn is_withdrawn(&self) -> bool {
        self.head(Head::Claim).load(Ordering::Acquire) == WITHDRAWN
    }

    /// Sets all words of the record to 0, since its memory held something else before.
    pub fn clear(&self) {
        for index in 0..HEAD_WORDS + STEP_WORDS * u64::from(self.steps) {
            self.head_word(index).store(0, Ordering::Relaxed);
        }
    }

    /// Sets the words that count progress, and the fault, to 0, for another start.
    pub fn reset(&self) {
        self.head(Head::State).store(0, Ordering::Relaxed);
        self.head(Head::Fault).store(0, Ordering::Relaxed);
        self.head(Head::Claim).store(0, Ordering::Relaxed);
        for step in 0..self.steps {
            self.step(step, Field::Published).store(0, Ordering::Relaxed);
            self.step(step, Field::Done).store(0, Ordering::Relaxed);
        }
    }

    /// Enters the record into its rank's directory. All other words of the record must have been written
    /// before.
    pub fn link(&self, directory: &[AtomicU64], stamp: u64, context: u64) {
        let bucket = &directory[bucket(context, stamp as u32)];
        self.head(Head::Context).store(context, Ordering::Relaxed);
        self.head(Head::Next).store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        self.head(Head::Stamp).store(stamp, Ordering::Release);
        bucket.store(self.at, Ordering::Release);
    }

    /// Removes the record from its rank's directory. Peers do not find it any more, but some may still be
    /// reading it.
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

/// Returns the index of the bucket of a directory that holds the operation with this context and number.
fn bucket(context: u64, sequence: u32) -> usize {
    let mixed = (context ^ u64::from(sequence).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 54) as usize & (BUCKETS - 1)
}

/// The result of a look-up in a rank's directory.
pub enum Lookup {
    /// The record was found. The number is its stamp, which was the same before and after the record was
    /// read.
    Here(InstanceRecord, u64),
    /// The operation is certainly not in the directory.
    Absent,
    /// The directory changed while it was read, so the caller must look up the operation again.
    Unclear,
}

/// Looks up the operation with the key (`context`, `sequence`) in the directory of a rank with the arena
/// `arena`. `by` is the number that stands for this process in a fault.
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

/// Returns the step of a peer's record that sends to rank `to` on the edge number `edge`. `by` is the number
/// that stands for this process in a fault.
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

/// Makes the stamp of a record, from how often the record was used (`incarnation`) and the operation's
/// number.
pub fn stamp(incarnation: u32, sequence: u32) -> u64 {
    pair(incarnation.max(1), sequence)
}

/// Writes words to an arena, into memory that its owner has allocated for them.
pub fn write_words(arena: &Arena, at: u64, words: &[u64]) {
    for (index, &word) in words.iter().enumerate() {
        let target = arena.word(at + 8 * index as u64).expect("the owner writes where it allocated");
        target.store(word, Ordering::Relaxed);
    }
}

/// Copies `count` words at the offset `at` of an arena to `into`. Returns None if they do not lie inside the
/// arena.
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
