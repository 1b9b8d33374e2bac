// SPDX-License-Identifier: BSD-3-Clause
//! The run: the oldest entries of a queue of receives or messages, as long as all have the same key. In most
//! programs a queue has no other entries.

use std::collections::VecDeque;

/// A queue of receives or messages that all have the same key, the oldest first. Each has a number by which
/// it can be removed.
#[derive(Debug)]
pub(crate) struct EntryRun<K, V> {
    /// The key of all entries. It has no meaning while there are no entries.
    key: Option<K>,
    values: VecDeque<(u32, V)>,
    /// The number of the next entry. Numbers wrap around, but by then the earlier entries with the same
    /// numbers are gone.
    next_number: u32,
}

impl<K: Copy + PartialEq, V> EntryRun<K, V> {
    pub(crate) fn new() -> Self {
        EntryRun { key: None, values: VecDeque::new(), next_number: 0 }
    }

    /// Returns the key of all entries. None while there are no entries.
    #[inline]
    pub(crate) fn key(&self) -> Option<&K> {
        if self.values.is_empty() { None } else { self.key.as_ref() }
    }

    /// Whether an entry with this key may be added: all entries have this key, or there are no entries.
    #[inline]
    pub(crate) fn admits(&self, key: &K) -> bool {
        self.values.is_empty() || self.key.as_ref() == Some(key)
    }

    /// Adds an entry at the end. `admits` must have accepted its key. Returns the entry's number.
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

    /// Returns the oldest entry. None if there are no entries.
    #[inline]
    pub(crate) fn front(&self) -> Option<&V> {
        self.values.front().map(|(_, value)| value)
    }

    /// Takes the oldest entry. None if there are no entries.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<V> {
        self.values.pop_front().map(|(_, value)| value)
    }

    /// Takes the entry with the number `number`. None if it is not there. The time grows with the run.
    pub(crate) fn remove(&mut self, number: u32) -> Option<V> {
        let at = self.values.iter().position(|(other, _)| *other == number)?;
        self.values.remove(at).map(|(_, value)| value)
    }

    /// Takes the oldest entry for which `wanted` returns true, with its key. None if there is none. The time
    /// grows with the run.
    pub(crate) fn take_where(&mut self, wanted: impl Fn(&K, &V) -> bool) -> Option<(K, V)> {
        let key = self.key?;
        let at = self.values.iter().position(|(_, value)| wanted(&key, value))?;
        self.values.remove(at).map(|(_, value)| (key, value))
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns all entries, the oldest first, each with the key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter().filter_map(|(_, value)| Some((self.key.as_ref()?, value)))
    }
}
