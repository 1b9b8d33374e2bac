// SPDX-License-Identifier: BSD-3-Clause
//! The oldest entries of a queue while all have one key. Most programs have no other entries.

use std::collections::VecDeque;

/// A queue of entries that all have one key, the oldest first. Each has a number by which it can be removed.
#[derive(Debug)]
pub(crate) struct EntryRun<K, V> {
    /// The key that all entries have. It means nothing while the run is empty.
    key: Option<K>,
    values: VecDeque<(u32, V)>,
    /// The number that the next entry gets. It wraps around; by then the entries that had the same numbers
    /// are long gone.
    next_number: u32,
}

impl<K: Copy + PartialEq, V> EntryRun<K, V> {
    pub(crate) fn new() -> Self {
        EntryRun { key: None, values: VecDeque::new(), next_number: 0 }
    }

    /// Returns the key that all entries have, or None while there are no entries.
    #[inline]
    pub(crate) fn key(&self) -> Option<&K> {
        if self.values.is_empty() { None } else { self.key.as_ref() }
    }

    /// Whether an entry with this key may be pushed: all entries have that key, or there are none.
    #[inline]
    pub(crate) fn admits(&self, key: &K) -> bool {
        self.values.is_empty() || self.key.as_ref() == Some(key)
    }

    /// Puts an entry at the end. Its key must be one that `admits` accepts. Returns the entry's number.
    #[inline]
    pub(crate) fn push(&mut self, key: K, value: V) -> u32 {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        if self.values.is_empty() {
            self.key = Some(key);
        }
        self.values.push_back((number, value));
        number
    }

    /// The oldest entry.
    #[inline]
    pub(crate) fn front(&self) -> Option<&V> {
        self.values.front().map(|(_, value)| value)
    }

    /// Takes the oldest entry.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<V> {
        self.values.pop_front().map(|(_, value)| value)
    }

    /// Takes the entry with a number. This walks the run.
    pub(crate) fn remove(&mut self, number: u32) -> Option<V> {
        let at = self.values.iter().position(|(other, _)| *other == number)?;
        self.values.remove(at).map(|(_, value)| value)
    }

    /// Takes the oldest entry that `wanted` accepts, and its key. This walks the run.
    pub(crate) fn take_named(&mut self, wanted: impl Fn(&K, &V) -> bool) -> Option<(K, V)> {
        let key = self.key?;
        let at = self.values.iter().position(|(_, value)| wanted(&key, value))?;
        self.values.remove(at).map(|(_, value)| (key, value))
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// All entries by age, each with the key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter().filter_map(|(_, value)| Some((self.key.as_ref()?, value)))
    }
}
