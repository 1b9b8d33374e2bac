// SPDX-License-Identifier: BSD-3-Clause
//! A page of counters in shared memory, and the page in which this process counts.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Counter;

/// The number of words in a page of counters. There are fewer counters, so that a new counter does not change
/// the layout of the job's shared segment.
pub const WORDS: usize = 128;

/// The counters of one rank or proxy. A page of zeros is valid, so fresh shared memory is such a page.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CounterPage {
    words: [AtomicU64; WORDS],
}

const _: () = assert!(Counter::ALL.len() <= WORDS);
// The page lies in the segment, once for each rank and proxy: 16 lines of the cache.
const _: () = assert!(size_of::<CounterPage>() == 1024);

impl CounterPage {
    /// Makes a page in which all counters are 0.
    pub const fn new() -> CounterPage {
        CounterPage { words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// Returns the value of a counter. Any process may read it at any time.
    pub fn value(&self, counter: Counter) -> u64 {
        self.words[counter as usize].load(Ordering::Relaxed)
    }

    /// Adds `n` to a counter. Only the process that owns the page does so, one thread at a time. If two
    /// threads did so at once, a count could be lost, no more.
    #[inline]
    pub fn count(&self, counter: Counter, n: u64) {
        let word = &self.words[counter as usize];
        word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Returns the word of a counter. Other libraries in this process, such as `liboshmem.so`, count in it
    /// themselves.
    pub fn word(&self, counter: Counter) -> &AtomicU64 {
        &self.words[counter as usize]
    }

    /// Sets a counter to `value`. This is for a counter that is measured elsewhere (processor time), or that
    /// rises and falls.
    #[inline]
    pub fn set(&self, counter: Counter, value: u64) {
        self.words[counter as usize].store(value, Ordering::Relaxed);
    }

    /// Returns all counters that are not zero, each with its value.
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

/// Makes this process count in `page` from now on, and adds to it what was counted before. Only the first
/// call has an effect (tests with several ranks in one process share the first page).
pub fn attach(page: &'static CounterPage) {
    if ATTACHED.set(page).is_ok() {
        for (counter, value) in PRIVATE.values() {
            page.count(counter, value);
        }
    }
}

/// Returns the page in which this process counts: the page that `attach` got, or before that call a private
/// one.
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

/// Returns the value of a counter of this process.
pub fn value(counter: Counter) -> u64 {
    page().value(counter)
}
