// SPDX-License-Identifier: BSD-3-Clause
//! The queue by which a rank submits instances (started collectives) to its proxy: their offsets in the
//! rank's arena. It has one writer and one reader.

use super::atomic::CacheLine;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most instances in the queue: submitted by the rank, and not yet taken by its proxy.
const ENTRIES: u64 = 128;

/// A queue of nonzero numbers from a rank to its proxy. If all its bytes are zero, it is valid and empty. The
/// counts of rank and proxy are in shared memory, so a new proxy continues where a dead one stopped.
#[repr(C)]
#[derive(Debug)]
pub struct SubmissionRing {
    /// How many numbers the rank has appended so far. Only the rank writes it.
    pushed: CacheLine<AtomicU64>,
    /// How many numbers have been taken so far. Only the proxy writes it; after the proxy's death, the rank
    /// does.
    popped: CacheLine<AtomicU64>,
    entries: [AtomicU64; ENTRIES as usize],
}

impl Default for SubmissionRing {
    fn default() -> SubmissionRing {
        SubmissionRing {
            pushed: CacheLine::default(),
            popped: CacheLine::default(),
            entries: [const { AtomicU64::new(0) }; ENTRIES as usize],
        }
    }
}

impl SubmissionRing {
    /// Appends the number `offset`. Returns false if the queue is full. Only the rank calls it, one thread at
    /// a time, and rings the proxy's doorbell afterwards.
    #[must_use]
    pub fn push(&self, offset: u64) -> bool {
        let pushed = self.pushed.0.load(Ordering::Relaxed);
        if pushed.wrapping_sub(self.popped.0.load(Ordering::Acquire)) >= ENTRIES {
            return false;
        }
        self.entries[(pushed % ENTRIES) as usize].store(offset, Ordering::Relaxed);
        self.pushed.0.store(pushed.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest number; None if the queue is empty. Only the proxy calls it, or the rank once the
    /// proxy is known to be dead.
    pub fn pop(&self) -> Option<u64> {
        let popped = self.popped.0.load(Ordering::Relaxed);
        if self.pushed.0.load(Ordering::Acquire) == popped {
            return None;
        }
        let offset = self.entries[(popped % ENTRIES) as usize].load(Ordering::Relaxed);
        self.popped.0.store(popped.wrapping_add(1), Ordering::Release);
        Some(offset)
    }

    /// Removes all numbers, since the rank that appended them has left.
    pub(crate) fn clear(&self) {
        self.popped.0.store(self.pushed.0.load(Ordering::Acquire), Ordering::Release);
    }

    /// Whether the queue holds no number.
    pub fn is_empty(&self) -> bool {
        self.pushed.0.load(Ordering::Acquire) == self.popped.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn fills_up_and_keeps_order() {
        let ring = SubmissionRing::default();
        assert!(ring.is_empty());
        for i in 1..=ENTRIES {
            assert!(ring.push(i));
        }
        assert!(!ring.push(999));
        assert_eq!(ring.pop(), Some(1));
        assert!(ring.push(ENTRIES + 1));
        for i in 2..=ENTRIES + 1 {
            assert_eq!(ring.pop(), Some(i));
        }
        assert_eq!(ring.pop(), None);
    }

    #[test]
    fn two_threads_lose_nothing() {
        let ring = Arc::new(SubmissionRing::default());
        let writer = {
            let ring = ring.clone();
            std::thread::spawn(move || {
                for i in 1..=20_000 {
                    while !ring.push(i) {
                        std::thread::yield_now();
                    }
                }
            })
        };
        for i in 1..=20_000 {
            let got = loop {
                match ring.pop() {
                    Some(got) => break got,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(got, i);
        }
        writer.join().unwrap();
    }
}
