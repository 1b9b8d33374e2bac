// SPDX-License-Identifier: BSD-3-Clause
//! A page of counters, and the page of this process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Counter;

/// The number of words of a page: more than there are counters, so that a new counter does not change the
/// layout of the job's segment.
pub const WORDS: usize = 128;

/// The counters of one rank or proxy. All zero is a valid page, so fresh shared memory is one.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CounterPage {
    words: [AtomicU64; WORDS],
}

const _: () = assert!(Counter::ALL.len() <= WORDS);
// The page lies in the segment, once for each rank and proxy: 16 lines of the cache.
const _: () = assert!(size_of::<CounterPage>() == 1024);

impl CounterPage {
    /// A page of zeros.
    pub const fn new() -> CounterPage {
        CounterPage { words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// The value of a counter. Any process may read it at any time.
    pub fn value(&self, counter: Counter) -> u64 {
        self.words[counter as usize].load(Ordering::Relaxed)
    }

    /// Adds `n` to a counter. Only the page's owner does so, one thread at a time; two at once could lose a
    /// count, no more.
    #[inline]
    pub fn count(&self, counter: Counter, n: u64) {
        let word = &self.words[counter as usize];
        word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The word of a counter, for libraries beside this one that count by themselves.
    pub fn word(&self, counter: Counter) -> &AtomicU64 {
        &self.words[counter as usize]
    }

    /// Sets a counter to `value`, if it is measured elsewhere (processor time) or rises and falls.
    #[inline]
    pub fn set(&self, counter: Counter, value: u64) {
        self.words[counter as usize].store(value, Ordering::Relaxed);
    }

    /// All counters that are not zero, each with its value.
    pub fn values(&self) -> impl Iterator<Item = (Counter, u64)> {
        Counter::ALL.iter().map(|&counter| (counter, self.value(counter))).filter(|(_, value)| *value != 0)
    }
}

impl Default for CounterPage {
    fn default() -> CounterPage {
        CounterPage::new()
    }
}

static ATTACHED: OnceLock<&'static CounterPage> = OnceLock::new();
static PRIVATE: CounterPage = CounterPage::new();

/// Counts into `page` from now on, and adds what was counted so far. The first call of a process decides;
/// later calls change nothing (tests with several ranks in one process share the first page).
pub fn attach(page: &'static CounterPage) {
    if ATTACHED.set(page).is_ok() {
        for (counter, value) in PRIVATE.values() {
            page.count(counter, value);
        }
    }
}

/// The page in which this process counts: that of `attach`, before that a private one.
#[inline]
pub fn page() -> &'static CounterPage {
    ATTACHED.get().copied().unwrap_or(&PRIVATE)
}

/// Adds `n` to a counter of this process.
#[inline]
pub fn count(counter: Counter, n: u64) {
    page().count(counter, n);
}

/// Sets a counter of this process to `value`.
#[inline]
pub fn set(counter: Counter, value: u64) {
    page().set(counter, value);
}

/// The value of a counter of this process.
pub fn value(counter: Counter) -> u64 {
    page().value(counter)
}
