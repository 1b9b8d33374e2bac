//! Matching: which receive takes which message (MPI 5.0, section 3.5). Pure: no I/O, no clock, no bytes.
//!
//! A receive names a context, and a source and a tag or anything in their place; a message names all three. A message goes
//! to the receive that was posted first among those that fit; a receive takes the message that arrived first among those
//! that fit. Both questions are answered without walking a queue: wildcards make four *classes* of pattern, a posted
//! receive is filed under its own pattern, and a message is filed under each of the four patterns that fit it. So a message
//! looks in at most four places and takes the oldest receive found, and a receive looks in one place. Who comes to an empty queue is
//! not filed at all, but kept beside the table and asked first, since it is older than all that come while it is there.
//!
//! Always true here: what is filed under one key is kept in order of arrival; all links are indices; once the tables
//! have grown to the largest number of entries seen, nothing allocates.
//!
//! Read next: `filed.rs` (the hash table whose chains are queues), `tests/against_walk.rs` (both queues against a plain walk).
#![forbid(unsafe_code)]

mod filed;

use filed::{Filed, Key};

/// What a message carries and matching compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The communication context: messages of different contexts never match.
    pub context: u64,
    /// The peer that sent the message.
    pub source: u32,
    /// The tag.
    pub tag: i32,
}

/// What a receive or a probe asks for; `None` takes anything (MPI_ANY_SOURCE, MPI_ANY_TAG).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The communication context.
    pub context: u64,
    /// The peer wanted.
    pub source: Option<u32>,
    /// The tag wanted.
    pub tag: Option<i32>,
}

impl Pattern {
    /// Whether a message with this envelope may be taken by this pattern.
    pub fn fits(&self, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.source.is_none_or(|source| source == envelope.source)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// Names an entry while it is in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(u32);

impl Entry {
    /// The one that is not filed.
    const OLDEST: Entry = Entry(u32::MAX);
}

/// Receives that wait for a message.
#[derive(Debug)]
pub struct Posted<T> {
    /// The receive that was posted when no other waited: the oldest. Most programs have no other, and then nothing is filed.
    oldest: Option<(Pattern, T)>,
    filed: Filed<(Pattern, T), 1>,
    /// How many entries each class has: most programs use one class, so three look-ups are spared.
    per_class: [u32; CLASSES],
}

/// Messages that wait for a receive.
#[derive(Debug)]
pub struct Unexpected<T> {
    /// As with the receives.
    oldest: Option<(Envelope, T)>,
    filed: Filed<(Envelope, T), CLASSES>,
}

/// Exact; any source; any tag; any of both.
const CLASSES: usize = 4;

impl<T> Posted<T> {
    /// An empty queue.
    pub fn new() -> Posted<T> {
        Posted { oldest: None, filed: Filed::new(), per_class: [0; CLASSES] }
    }

    /// Puts a receive at the end of the queue.
    #[inline]
    pub fn push(&mut self, pattern: Pattern, receive: T) -> Entry {
        if self.is_empty() {
            self.oldest = Some((pattern, receive));
            return Entry::OLDEST;
        }
        let key = Key::of_pattern(&pattern);
        self.per_class[key.class()] += 1;
        Entry(self.filed.push([key], (pattern, receive)))
    }

    /// Takes the first posted receive that fits the message.
    #[inline]
    pub fn take(&mut self, envelope: &Envelope) -> Option<T> {
        if let Some((pattern, _)) = &self.oldest
            && pattern.fits(envelope)
        {
            return self.oldest.take().map(|(_, receive)| receive);
        }
        let mut first: Option<(u64, u32)> = None;
        for class in 0..CLASSES {
            if self.per_class[class] == 0 {
                continue;
            }
            if let Some(index) = self.filed.first(&Key::of_envelope(envelope, class)) {
                let age = (self.filed.sequence(index), index);
                first = Some(first.map_or(age, |other| other.min(age)));
            }
        }
        first.map(|(_, index)| self.remove(Entry(index)))
    }

    /// Takes back a receive: for MPI_Cancel. The entry must be in the queue.
    pub fn remove(&mut self, entry: Entry) -> T {
        if entry == Entry::OLDEST {
            return self.oldest.take().expect("the entry is in the queue").1;
        }
        let (pattern, receive) = self.filed.remove(entry.0);
        self.per_class[Key::of_pattern(&pattern).class()] -= 1;
        receive
    }

    /// Receives in the queue.
    pub fn len(&self) -> usize {
        self.filed.len() + usize::from(self.oldest.is_some())
    }

    /// Whether no receive waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All receives in the order posted. It sorts: for descriptions, not for matching.
    pub fn iter(&self) -> impl Iterator<Item = (&Pattern, &T)> {
        self.oldest.iter().chain(self.filed.in_order()).map(|(pattern, receive)| (pattern, receive))
    }
}

impl<T> Unexpected<T> {
    /// An empty queue.
    pub fn new() -> Unexpected<T> {
        Unexpected { oldest: None, filed: Filed::new() }
    }

    /// Puts a message at the end of the queue.
    #[inline]
    pub fn push(&mut self, envelope: Envelope, message: T) -> Entry {
        if self.is_empty() {
            self.oldest = Some((envelope, message));
            return Entry::OLDEST;
        }
        let keys = std::array::from_fn(|class| Key::of_envelope(&envelope, class));
        Entry(self.filed.push(keys, (envelope, message)))
    }

    /// Looks at the first message that fits: a probe.
    pub fn peek(&self, pattern: &Pattern) -> Option<(&Envelope, &T)> {
        if let Some((envelope, message)) = &self.oldest
            && pattern.fits(envelope)
        {
            return Some((envelope, message));
        }
        let index = self.find(pattern)?;
        let (envelope, message) = self.filed.get(index);
        Some((envelope, message))
    }

    /// Takes the first message that fits: a receive, or a matched probe.
    #[inline]
    pub fn take(&mut self, pattern: &Pattern) -> Option<(Envelope, T)> {
        if let Some((envelope, _)) = &self.oldest
            && pattern.fits(envelope)
        {
            return self.oldest.take();
        }
        let index = self.find(pattern)?;
        Some(self.filed.remove(index))
    }

    /// Takes a message that `wanted` names, wherever it is in the queue: for MPI_Cancel. It walks.
    pub fn take_named(&mut self, wanted: impl Fn(&Envelope, &T) -> bool) -> Option<(Envelope, T)> {
        if self.oldest.as_ref().is_some_and(|(envelope, message)| wanted(envelope, message)) {
            return self.oldest.take();
        }
        let index = self.filed.position(|(envelope, message)| wanted(envelope, message))?;
        Some(self.filed.remove(index))
    }

    #[inline]
    fn find(&self, pattern: &Pattern) -> Option<u32> {
        if self.filed.len() == 0 {
            return None;
        }
        self.filed.first(&Key::of_pattern(pattern))
    }

    /// Messages in the queue.
    pub fn len(&self) -> usize {
        self.filed.len() + usize::from(self.oldest.is_some())
    }

    /// Whether no message waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All messages in the order of arrival. It sorts: for descriptions, not for matching.
    pub fn iter(&self) -> impl Iterator<Item = (&Envelope, &T)> {
        self.oldest.iter().chain(self.filed.in_order()).map(|(envelope, message)| (envelope, message))
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
