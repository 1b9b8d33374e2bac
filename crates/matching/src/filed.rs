//! A hash table whose chains are queues, by index.
//!
//! Each entry is filed under `KEYS` keys at once, by one doubly linked *place* per key; place `entry * KEYS + i` is entry's
//! i-th. A chain holds all places whose keys hash to its bucket, in order of arrival, so the first place with a given key is
//! the oldest entry under that key. Entries with other keys may stand before it in the chain; the table keeps more buckets
//! than places, so few do.

use crate::pattern::{CLASSES, Envelope, Pattern};

/// A pattern as compared and hashed: fields that take anything are zero, and the class says which those are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    context: u64,
    source: u32,
    tag: i32,
    class: u32,
}

const ANY_SOURCE: usize = 1;
const ANY_TAG: usize = 2;

impl Key {
    #[inline]
    pub(crate) fn of_pattern(pattern: &Pattern) -> Key {
        let any_source = if pattern.source.is_none() { ANY_SOURCE } else { 0 };
        let any_tag = if pattern.tag.is_none() { ANY_TAG } else { 0 };
        Key {
            context: pattern.context,
            source: pattern.source.unwrap_or(0),
            tag: pattern.tag.unwrap_or(0),
            class: (any_source | any_tag) as u32,
        }
    }

    /// The pattern of a class that fits this envelope.
    #[inline]
    pub(crate) fn of_envelope(envelope: &Envelope, class: usize) -> Key {
        debug_assert!(class < CLASSES);
        Key {
            context: envelope.context,
            source: if class & ANY_SOURCE == 0 { envelope.source } else { 0 },
            tag: if class & ANY_TAG == 0 { envelope.tag } else { 0 },
            class: class as u32,
        }
    }

    pub(crate) fn class(&self) -> usize {
        self.class as usize
    }

    /// Mixes by multiplication; the high bits are the good ones, and the bucket is taken from them.
    #[inline]
    fn hash(&self) -> u64 {
        let pair = u64::from(self.source) << 32 | u64::from(self.tag as u32);
        let mixed = self.context.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) ^ pair;
        (mixed.wrapping_add(u64::from(self.class) << 61)).wrapping_mul(0xd1b5_4a32_d192_ed03)
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    before: u32,
    after: u32,
}

/// First and last place of a chain.
#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u32,
    last: u32,
}

#[derive(Debug)]
struct Slot<V> {
    /// Order of arrival; for a free slot, the next free one.
    sequence: u64,
    value: Option<V>,
}

#[derive(Debug)]
pub(crate) struct Filed<V, const KEYS: usize> {
    slots: Vec<Slot<V>>,
    /// `KEYS` for each slot.
    places: Vec<Place>,
    /// A power of two of them.
    chains: Vec<Chain>,
    /// 64 minus the logarithm of the number of chains.
    shift: u32,
    free: u32,
    len: usize,
    next_sequence: u64,
}

const NONE: u32 = u32::MAX;
const EMPTY: Chain = Chain { first: NONE, last: NONE };
const FIRST_CHAINS: usize = 64;

impl<V, const KEYS: usize> Filed<V, KEYS> {
    pub(crate) fn new() -> Self {
        Filed {
            slots: Vec::new(),
            places: Vec::new(),
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

    /// Files a value under its keys, behind all others.
    #[inline(always)]
    pub(crate) fn push(&mut self, keys: [Key; KEYS], value: V) -> u32 {
        if (self.len + 1) * KEYS > self.chains.len() {
            self.grow();
        }
        let slot = self.take_slot();
        self.slots[slot as usize] = Slot { sequence: self.next_sequence, value: Some(value) };
        self.next_sequence += 1;
        self.len += 1;
        for (i, key) in keys.into_iter().enumerate() {
            self.append(slot * KEYS as u32 + i as u32, key);
        }
        slot
    }

    /// The oldest entry under a key.
    #[inline(always)]
    pub(crate) fn first(&self, key: &Key) -> Option<u32> {
        let mut at = self.chains[self.bucket(key)].first;
        while at != NONE {
            let place = &self.places[at as usize];
            if place.key == *key {
                return Some(at / KEYS as u32);
            }
            at = place.after;
        }
        None
    }

    /// Takes an entry out.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> V {
        for i in 0..KEYS as u32 {
            self.unlink(slot * KEYS as u32 + i);
        }
        let taken = &mut self.slots[slot as usize];
        let value = taken.value.take().expect("the entry is in the queue");
        taken.sequence = u64::from(self.free);
        self.free = slot;
        self.len -= 1;
        value
    }

    pub(crate) fn get(&self, slot: u32) -> &V {
        self.slots[slot as usize].value.as_ref().expect("the entry is in the queue")
    }

    pub(crate) fn sequence(&self, slot: u32) -> u64 {
        self.slots[slot as usize].sequence
    }

    /// An entry that `wanted` names. It walks.
    pub(crate) fn position(&self, wanted: impl Fn(&V) -> bool) -> Option<u32> {
        self.slots.iter().position(|slot| slot.value.as_ref().is_some_and(&wanted)).map(|slot| slot as u32)
    }

    /// All values by age.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &V> {
        let mut live: Vec<(u64, &V)> = self
            .slots
            .iter()
            .filter_map(|slot| slot.value.as_ref().map(|value| (slot.sequence, value)))
            .collect();
        live.sort_unstable_by_key(|(sequence, _)| *sequence);
        live.into_iter().map(|(_, value)| value)
    }

    #[inline]
    fn bucket(&self, key: &Key) -> usize {
        (key.hash() >> self.shift) as usize
    }

    #[inline]
    fn take_slot(&mut self) -> u32 {
        if self.free != NONE {
            let slot = self.free;
            self.free = self.slots[slot as usize].sequence as u32;
            return slot;
        }
        let slot = self.slots.len() as u32;
        assert!(
            (self.slots.len() + 1) * KEYS < NONE as usize,
            "more than 2^30 receives or messages in a queue"
        );
        self.slots.push(Slot { sequence: 0, value: None });
        let unlinked =
            Place { key: Key { context: 0, source: 0, tag: 0, class: 0 }, before: NONE, after: NONE };
        self.places.extend([unlinked; KEYS]);
        slot
    }

    #[inline]
    fn append(&mut self, at: u32, key: Key) {
        let bucket = self.bucket(&key);
        let last = self.chains[bucket].last;
        self.places[at as usize] = Place { key, before: last, after: NONE };
        self.chains[bucket].last = at;
        match last {
            NONE => self.chains[bucket].first = at,
            last => self.places[last as usize].after = at,
        }
    }

    #[inline]
    fn unlink(&mut self, at: u32) {
        let Place { key, before, after } = self.places[at as usize];
        let bucket = self.bucket(&key);
        match before {
            NONE => self.chains[bucket].first = after,
            before => self.places[before as usize].after = after,
        }
        match after {
            NONE => self.chains[bucket].last = before,
            after => self.places[after as usize].before = before,
        }
    }

    /// Doubles the number of chains and files everything again, oldest first, so that chains stay in order.
    #[cold]
    fn grow(&mut self) {
        let chains = self.chains.len() * 2;
        self.chains = vec![EMPTY; chains];
        self.shift -= 1;
        let mut live: Vec<(u64, u32)> = Vec::with_capacity(self.len);
        for (slot, Slot { sequence, value }) in self.slots.iter().enumerate() {
            if value.is_some() {
                live.push((*sequence, slot as u32));
            }
        }
        live.sort_unstable();
        for (_, slot) in live {
            for at in slot * KEYS as u32..(slot + 1) * KEYS as u32 {
                self.append(at, self.places[at as usize].key);
            }
        }
    }
}
