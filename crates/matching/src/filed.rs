// SPDX-License-Identifier: BSD-3-Clause
//! A hash table for the entries of a queue, receives or messages, in which each chain keeps the order of
//! arrival.
//!
//! Each entry has `KEYS` keys at once, and for each key a node in a doubly linked chain: the node of its i-th
//! key has the index `entry * KEYS + i`. A chain holds all nodes of its bucket in order of arrival. So the
//! first node with a key belongs to the oldest entry with that key. There are more buckets than nodes, so few
//! chains mix keys.

use crate::pattern::{CLASSES, Envelope, Pattern};

/// A pattern (context, source, tag, with wildcards) in the form that is compared and hashed. A field with a
/// wildcard is 0, and `class` says which fields have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PatternKey {
    context: u64,
    source: u32,
    tag: i32,
    class: u32,
}

const ANY_SOURCE: usize = 1;
const ANY_TAG: usize = 2;

impl PatternKey {
    #[inline]
    pub(crate) fn of_pattern(pattern: &Pattern) -> PatternKey {
        let any_source = if pattern.source.is_none() { ANY_SOURCE } else { 0 };
        let any_tag = if pattern.tag.is_none() { ANY_TAG } else { 0 };
        PatternKey {
            context: pattern.context,
            source: pattern.source.unwrap_or(0),
            tag: pattern.tag.unwrap_or(0),
            class: (any_source | any_tag) as u32,
        }
    }

    /// Returns the pattern that fits messages with this envelope and has wildcards in the fields that `class`
    /// names.
    #[inline]
    pub(crate) fn of_envelope(envelope: &Envelope, class: usize) -> PatternKey {
        debug_assert!(class < CLASSES);
        PatternKey {
            context: envelope.context,
            source: if class & ANY_SOURCE == 0 { envelope.source } else { 0 },
            tag: if class & ANY_TAG == 0 { envelope.tag } else { 0 },
            class: class as u32,
        }
    }

    pub(crate) fn class(&self) -> usize {
        self.class as usize
    }

    /// Returns a hash of the pattern, by multiplication. The table uses the high bits, which are mixed best.
    #[inline]
    fn hash(&self) -> u64 {
        let pair = u64::from(self.source) << 32 | u64::from(self.tag as u32);
        let mixed = self.context.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) ^ pair;
        (mixed.wrapping_add(u64::from(self.class) << 61)).wrapping_mul(0xd1b5_4a32_d192_ed03)
    }
}

#[derive(Clone, Copy, Debug)]
struct ChainNode {
    key: PatternKey,
    before: u32,
    after: u32,
}

/// The chain of one bucket: the indices of its first and its last node.
#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u32,
    last: u32,
}

#[derive(Debug)]
struct FiledEntry<V> {
    /// How many entries were added before this one. In a free entry, the index of the next free entry.
    sequence: u64,
    value: Option<V>,
}

#[derive(Debug)]
pub(crate) struct FiledTable<V, const KEYS: usize> {
    entries: Vec<FiledEntry<V>>,
    /// The nodes that link the entries into chains: `KEYS` nodes for each entry.
    nodes: Vec<ChainNode>,
    /// For each bucket, its chain. The number of buckets is a power of two.
    chains: Vec<Chain>,
    /// The number of bits by which a hash is shifted right to give its bucket: 64 minus log2 of the number of
    /// buckets.
    shift: u32,
    free: u32,
    len: usize,
    next_sequence: u64,
}

const NONE: u32 = u32::MAX;
const EMPTY: Chain = Chain { first: NONE, last: NONE };
const FIRST_CHAINS: usize = 64;

impl<V, const KEYS: usize> FiledTable<V, KEYS> {
    pub(crate) fn new() -> Self {
        FiledTable {
            entries: Vec::new(),
            nodes: Vec::new(),
            chains: vec![EMPTY; FIRST_CHAINS],
            shift: 64 - FIRST_CHAINS.trailing_zeros(),
            free: NONE,
            len: 0,
            next_sequence: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a value under `KEYS` keys, as the youngest entry. Returns the entry's index.
    #[inline(always)]
    pub(crate) fn push(&mut self, keys: [PatternKey; KEYS], value: V) -> u32 {
        if (self.len + 1) * KEYS > self.chains.len() {
            self.grow();
        }
        let entry = self.take_entry();
        self.entries[entry as usize] = FiledEntry { sequence: self.next_sequence, value: Some(value) };
        self.next_sequence += 1;
        self.len += 1;
        for (i, key) in keys.into_iter().enumerate() {
            self.append(entry * KEYS as u32 + i as u32, key);
        }
        entry
    }

    /// Returns the index of the oldest entry with this key. None if there is none.
    #[inline(always)]
    pub(crate) fn first(&self, key: &PatternKey) -> Option<u32> {
        let mut at = self.chains[self.bucket(key)].first;
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key == *key {
                return Some(at / KEYS as u32);
            }
            at = node.after;
        }
        None
    }

    /// Returns how many entries have this key. The time grows with the length of the chain.
    pub(crate) fn count(&self, key: &PatternKey) -> usize {
        let (mut at, mut many) = (self.chains[self.bucket(key)].first, 0);
        while at != NONE {
            let node = &self.nodes[at as usize];
            many += usize::from(node.key == *key);
            at = node.after;
        }
        many
    }

    /// Removes the entry with the index `entry`, and returns its value.
    #[inline]
    pub(crate) fn remove(&mut self, entry: u32) -> V {
        for i in 0..KEYS as u32 {
            self.unlink(entry * KEYS as u32 + i);
        }
        let taken = &mut self.entries[entry as usize];
        let value = taken.value.take().expect("the entry is in the queue");
        taken.sequence = u64::from(self.free);
        self.free = entry;
        self.len -= 1;
        value
    }

    pub(crate) fn get(&self, entry: u32) -> &V {
        self.entries[entry as usize].value.as_ref().expect("the entry is in the queue")
    }

    pub(crate) fn sequence(&self, entry: u32) -> u64 {
        self.entries[entry as usize].sequence
    }

    /// Returns the index of an entry for whose value `wanted` returns true. None if there is none. The time
    /// grows with the table.
    pub(crate) fn position(&self, wanted: impl Fn(&V) -> bool) -> Option<u32> {
        self.entries
            .iter()
            .position(|entry| entry.value.as_ref().is_some_and(&wanted))
            .map(|entry| entry as u32)
    }

    /// Returns the values of all entries, the oldest first. The call sorts the entries, so its time grows
    /// with the table.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &V> {
        let mut live: Vec<(u64, &V)> = self
            .entries
            .iter()
            .filter_map(|entry| entry.value.as_ref().map(|value| (entry.sequence, value)))
            .collect();
        live.sort_unstable_by_key(|(sequence, _)| *sequence);
        live.into_iter().map(|(_, value)| value)
    }

    #[inline]
    fn bucket(&self, key: &PatternKey) -> usize {
        (key.hash() >> self.shift) as usize
    }

    #[inline]
    fn take_entry(&mut self) -> u32 {
        if self.free != NONE {
            let entry = self.free;
            self.free = self.entries[entry as usize].sequence as u32;
            return entry;
        }
        let entry = self.entries.len() as u32;
        assert!(
            (self.entries.len() + 1) * KEYS < NONE as usize,
            "more than 2^30 receives or messages in a queue"
        );
        self.entries.push(FiledEntry { sequence: 0, value: None });
        let unlinked = ChainNode {
            key: PatternKey { context: 0, source: 0, tag: 0, class: 0 },
            before: NONE,
            after: NONE,
        };
        self.nodes.extend([unlinked; KEYS]);
        entry
    }

    #[inline]
    fn append(&mut self, at: u32, key: PatternKey) {
        let bucket = self.bucket(&key);
        let last = self.chains[bucket].last;
        self.nodes[at as usize] = ChainNode { key, before: last, after: NONE };
        self.chains[bucket].last = at;
        match last {
            NONE => self.chains[bucket].first = at,
            last => self.nodes[last as usize].after = at,
        }
    }

    #[inline]
    fn unlink(&mut self, at: u32) {
        let ChainNode { key, before, after } = self.nodes[at as usize];
        let bucket = self.bucket(&key);
        match before {
            NONE => self.chains[bucket].first = after,
            before => self.nodes[before as usize].after = after,
        }
        match after {
            NONE => self.chains[bucket].last = before,
            after => self.nodes[after as usize].before = before,
        }
    }

    /// Doubles the number of chains, and links all entries again, the oldest first, so that chains keep their
    /// order.
    #[cold]
    fn grow(&mut self) {
        let chains = self.chains.len() * 2;
        self.chains = vec![EMPTY; chains];
        self.shift -= 1;
        let mut live: Vec<(u64, u32)> = Vec::with_capacity(self.len);
        for (entry, FiledEntry { sequence, value }) in self.entries.iter().enumerate() {
            if value.is_some() {
                live.push((*sequence, entry as u32));
            }
        }
        live.sort_unstable();
        for (_, entry) in live {
            for at in entry * KEYS as u32..(entry + 1) * KEYS as u32 {
                self.append(at, self.nodes[at as usize].key);
            }
        }
    }
}
