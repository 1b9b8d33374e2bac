// SPDX-License-Identifier: BSD-3-Clause
//! Matching: which receive takes which message (MPI 5.0, section 3.5). It does no I/O, reads no clock and
//! moves no bytes.
//!
//! A message goes to the oldest posted receive that fits it. A receive takes the oldest message that fits it.
//! Neither search walks a queue. Wildcards make four *classes* of pattern: the hash table has a receive under
//! its own pattern, and a message under each of the four that fit it. While all waiting entries are alike, a
//! *run* holds them instead. A search looks into the run first, since the entries in the run are older than
//! those in the hash table.
//!
//! Invariants: entries with one key stay in order of arrival; all links are indices; a table allocates only
//! when it holds more entries than ever. Read next: `run.rs`, `filed.rs`, `tests/against_walk.rs`.
#![forbid(unsafe_code)]

mod filed;
mod pattern;
mod run;

use filed::{FiledTable, PatternKey};
use pattern::CLASSES;
pub use pattern::{Envelope, Pattern};
use run::EntryRun;

/// Names a waiting receive or message, while it is in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEntry(EntryLocation);

/// Where an entry of a queue is: in the run, while all entries are alike, or in the hash table. The variant
/// holds the entry's number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryLocation {
    Run(u32),
    Filed(u32),
}

/// The posted queue: receives that wait for a message.
#[derive(Debug)]
pub struct Posted<T> {
    run: EntryRun<Pattern, T>,
    filed: FiledTable<(Pattern, T), 1>,
    /// For each class of pattern (which fields are wildcards), the number of receives in the hash table.
    /// Classes without receives need no look-up.
    per_class: [u32; CLASSES],
}

/// The unexpected queue: messages that have come and wait for a receive.
#[derive(Debug)]
pub struct Unexpected<T> {
    run: EntryRun<Envelope, T>,
    filed: FiledTable<(Envelope, T), CLASSES>,
}

impl<T> Posted<T> {
    /// Makes an empty posted queue.
    pub fn new() -> Posted<T> {
        Posted { run: EntryRun::new(), filed: FiledTable::new(), per_class: [0; CLASSES] }
    }

    /// Puts a receive at the end of the queue. Returns its name, by which `remove` finds it.
    #[inline(always)]
    pub fn push(&mut self, pattern: Pattern, receive: T) -> QueueEntry {
        if self.filed.len() == 0 && self.run.admits(&pattern) {
            return QueueEntry(EntryLocation::Run(self.run.push(pattern, receive)));
        }
        let key = PatternKey::of_pattern(&pattern);
        self.per_class[key.class()] += 1;
        QueueEntry(EntryLocation::Filed(self.filed.push([key], (pattern, receive))))
    }

    /// Takes the oldest receive that fits this message. None if no receive fits.
    #[inline(always)]
    pub fn take(&mut self, envelope: &Envelope) -> Option<T> {
        if self.run.key().is_some_and(|pattern| pattern.fits(envelope)) {
            return self.run.pop();
        }
        if self.filed.len() == 0 {
            return None;
        }
        let mut first: Option<(u64, u32)> = None;
        for class in 0..CLASSES {
            if self.per_class[class] == 0 {
                continue;
            }
            if let Some(index) = self.filed.first(&PatternKey::of_envelope(envelope, class)) {
                let age = (self.filed.sequence(index), index);
                first = Some(first.map_or(age, |other| other.min(age)));
            }
        }
        first.map(|(_, index)| self.remove_filed(index))
    }

    /// Removes a receive from the queue, for MPI_Cancel, and returns it. `entry` must still be in the queue.
    pub fn remove(&mut self, entry: QueueEntry) -> T {
        match entry.0 {
            EntryLocation::Run(number) => self.run.remove(number).expect("the entry is in the queue"),
            EntryLocation::Filed(number) => self.remove_filed(number),
        }
    }

    fn remove_filed(&mut self, number: u32) -> T {
        let (pattern, receive) = self.filed.remove(number);
        self.per_class[PatternKey::of_pattern(&pattern).class()] -= 1;
        receive
    }

    /// Returns how many waiting receives name exactly this source and tag. Returns None if a receive with a
    /// wildcard could take the message, too.
    pub fn exact(&self, envelope: &Envelope) -> Option<usize> {
        let mut many = 0;
        if let Some(pattern) = self.run.key()
            && pattern.fits(envelope)
        {
            if pattern.source.is_none() || pattern.tag.is_none() {
                return None;
            }
            many = self.run.len();
        }
        for class in (1..CLASSES).filter(|&class| self.per_class[class] > 0) {
            if self.filed.first(&PatternKey::of_envelope(envelope, class)).is_some() {
                return None;
            }
        }
        Some(many + self.filed.count(&PatternKey::of_envelope(envelope, 0)))
    }

    /// Returns the number of receives in the queue.
    pub fn len(&self) -> usize {
        self.run.len() + self.filed.len()
    }

    /// Whether no receive is in the queue.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all receives with their patterns, the oldest first. The call sorts the receives, so it is for
    /// reports only.
    pub fn iter(&self) -> impl Iterator<Item = (&Pattern, &T)> {
        self.run.iter().chain(self.filed.in_order().map(|(pattern, receive)| (pattern, receive)))
    }
}

impl<T> Unexpected<T> {
    /// Makes an empty unexpected queue.
    pub fn new() -> Unexpected<T> {
        Unexpected { run: EntryRun::new(), filed: FiledTable::new() }
    }

    /// Puts a message at the end of the queue. Returns its name.
    #[inline]
    pub fn push(&mut self, envelope: Envelope, message: T) -> QueueEntry {
        if self.filed.len() == 0 && self.run.admits(&envelope) {
            return QueueEntry(EntryLocation::Run(self.run.push(envelope, message)));
        }
        let keys = std::array::from_fn(|class| PatternKey::of_envelope(&envelope, class));
        QueueEntry(EntryLocation::Filed(self.filed.push(keys, (envelope, message))))
    }

    /// Returns the oldest message that fits the pattern of a probe, and leaves it in the queue. None if no
    /// message fits.
    pub fn peek(&self, pattern: &Pattern) -> Option<(&Envelope, &T)> {
        if let Some(envelope) = self.run.key()
            && pattern.fits(envelope)
        {
            return Some((envelope, self.run.front()?));
        }
        let index = self.find(pattern)?;
        let (envelope, message) = self.filed.get(index);
        Some((envelope, message))
    }

    /// Takes the oldest message that fits the pattern of a receive or a matched probe. None if no message
    /// fits.
    #[inline]
    pub fn take(&mut self, pattern: &Pattern) -> Option<(Envelope, T)> {
        if self.is_empty() { None } else { self.take_one(pattern) }
    }

    fn take_one(&mut self, pattern: &Pattern) -> Option<(Envelope, T)> {
        if let Some(&envelope) = self.run.key()
            && pattern.fits(&envelope)
        {
            return self.run.pop().map(|message| (envelope, message));
        }
        let index = self.find(pattern)?;
        Some(self.filed.remove(index))
    }

    /// Takes a message for which `wanted` returns true, to recall an offer that its sender withdraws. The
    /// time grows with the queue.
    pub fn take_where(&mut self, wanted: impl Fn(&Envelope, &T) -> bool) -> Option<(Envelope, T)> {
        if let Some(taken) = self.run.take_where(&wanted) {
            return Some(taken);
        }
        let index = self.filed.position(|(envelope, message)| wanted(envelope, message))?;
        Some(self.filed.remove(index))
    }

    #[inline]
    fn find(&self, pattern: &Pattern) -> Option<u32> {
        if self.filed.len() == 0 {
            return None;
        }
        self.filed.first(&PatternKey::of_pattern(pattern))
    }

    /// Returns the number of messages in the queue.
    pub fn len(&self) -> usize {
        self.run.len() + self.filed.len()
    }

    /// Whether no message is in the queue.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all messages with their envelopes, the oldest first. The call sorts the messages, so it is for
    /// reports only.
    pub fn iter(&self) -> impl Iterator<Item = (&Envelope, &T)> {
        self.run.iter().chain(self.filed.in_order().map(|(envelope, message)| (envelope, message)))
    }
}

impl<T> Default for Posted<T> {
    fn default() -> Self {
        Posted::new()
    }
}

impl<T> Default for Unexpected<T> {
    fn default() -> Self {
        Unexpected::new()
    }
}
