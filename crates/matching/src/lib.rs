// SPDX-License-Identifier: BSD-3-Clause
//! Matching: which receive takes which message (MPI 5.0, section 3.5). It does no I/O, reads no clock and
//! moves no bytes.
//!
//! A message goes to the receive that was posted first among those that fit; a receive takes the message that
//! arrived first among those that fit. Neither walks a queue. Wildcards make four *classes* of pattern: a
//! receive is filed under its own pattern, a message under each of the four that fit it. While all waiting
//! entries are alike they are not filed, but kept in a *run*. The run is asked first: its entries are older
//! than all that are filed.
//!
//! Invariants: entries under one key are kept in order of arrival; all links are indices; a table that has
//! grown to the most entries seen allocates no more. Read next: `run.rs`, `filed.rs`,
//! `tests/against_walk.rs`.
#![forbid(unsafe_code)]

mod filed;
mod pattern;
mod run;

use filed::{FiledTable, PatternKey};
use pattern::CLASSES;
pub use pattern::{Envelope, Pattern};
use run::EntryRun;

/// Names a receive or a message while it is in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEntry(EntryLocation);

/// Where an entry is: in the run or in the table, under this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryLocation {
    Run(u32),
    Filed(u32),
}

/// The queue of receives that wait for a message.
#[derive(Debug)]
pub struct Posted<T> {
    run: EntryRun<Pattern, T>,
    filed: FiledTable<(Pattern, T), 1>,
    /// The number of filed receives in each class of pattern. Most programs use one class, which saves three
    /// look-ups.
    per_class: [u32; CLASSES],
}

/// The queue of messages that wait for a receive.
#[derive(Debug)]
pub struct Unexpected<T> {
    run: EntryRun<Envelope, T>,
    filed: FiledTable<(Envelope, T), CLASSES>,
}

impl<T> Posted<T> {
    /// Makes an empty queue of receives.
    pub fn new() -> Posted<T> {
        Posted { run: EntryRun::new(), filed: FiledTable::new(), per_class: [0; CLASSES] }
    }

    /// Puts a receive at the end of the queue.
    #[inline(always)]
    pub fn push(&mut self, pattern: Pattern, receive: T) -> QueueEntry {
        if self.filed.len() == 0 && self.run.admits(&pattern) {
            return QueueEntry(EntryLocation::Run(self.run.push(pattern, receive)));
        }
        let key = PatternKey::of_pattern(&pattern);
        self.per_class[key.class()] += 1;
        QueueEntry(EntryLocation::Filed(self.filed.push([key], (pattern, receive))))
    }

    /// Takes the receive that was posted first among those that fit this message; None if none does.
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

    /// Removes a receive from the queue, for MPI_Cancel. `entry` must still be in the queue.
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

    /// Counts the waiting receives that ask for exactly this source and tag. Returns None if a receive with a
    /// wildcard could take such a message first.
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

    /// The number of receives in the queue.
    pub fn len(&self) -> usize {
        self.run.len() + self.filed.len()
    }

    /// Whether no receive waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All receives in the order in which they were posted. This sorts: it is for descriptions, not for
    /// matching.
    pub fn iter(&self) -> impl Iterator<Item = (&Pattern, &T)> {
        self.run.iter().chain(self.filed.in_order().map(|(pattern, receive)| (pattern, receive)))
    }
}

impl<T> Unexpected<T> {
    /// Makes an empty queue of messages.
    pub fn new() -> Unexpected<T> {
        Unexpected { run: EntryRun::new(), filed: FiledTable::new() }
    }

    /// Puts a message at the end of the queue.
    #[inline]
    pub fn push(&mut self, envelope: Envelope, message: T) -> QueueEntry {
        if self.filed.len() == 0 && self.run.admits(&envelope) {
            return QueueEntry(EntryLocation::Run(self.run.push(envelope, message)));
        }
        let keys = std::array::from_fn(|class| PatternKey::of_envelope(&envelope, class));
        QueueEntry(EntryLocation::Filed(self.filed.push(keys, (envelope, message))))
    }

    /// Returns the message that arrived first among those that fit the pattern of a probe; None if none does.
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

    /// Takes the message that arrived first among those that fit the pattern of a receive or a matched probe;
    /// None if none does.
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

    /// Takes a message that `wanted` accepts, wherever it is in the queue, for a recalled offer. This walks
    /// the queue.
    pub fn take_named(&mut self, wanted: impl Fn(&Envelope, &T) -> bool) -> Option<(Envelope, T)> {
        if let Some(taken) = self.run.take_named(&wanted) {
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

    /// The number of messages in the queue.
    pub fn len(&self) -> usize {
        self.run.len() + self.filed.len()
    }

    /// Whether no message waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All messages in the order of arrival. This sorts: it is for descriptions, not for matching.
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
