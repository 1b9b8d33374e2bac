// SPDX-License-Identifier: BSD-3-Clause
//! Texts that tell people what a rank waits for: a short one for every wait that lasts a while, and a full
//! report on request when a program hangs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A short text in shared memory. A reader may get a mixture of two texts while another process writes.
#[repr(C)]
#[derive(Debug)]
pub struct SharedText<const N: usize> {
    bytes: AtomicU32,
    words: [AtomicU64; N],
}

impl<const N: usize> SharedText<N> {
    /// Stores the text, cut to the bytes that fit.
    pub fn set(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(8 * N)];
        for (word, chunk) in self.words.iter().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
        }
        self.bytes.store(bytes.len() as u32, Ordering::Release);
    }

    /// Returns the text that is stored now.
    pub fn text(&self) -> String {
        let length = (self.bytes.load(Ordering::Acquire) as usize).min(8 * N);
        let words = self.words.iter().take(length.div_ceil(8));
        let mut bytes: Vec<u8> = words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(length);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The rank's latest wait that lasted long enough to be published: what the rank waits for, when the wait
/// started, and when it ended.
#[repr(C)]
#[derive(Debug)]
pub struct WaitRecord {
    /// When the current wait started, in nanoseconds of `sys::clock::now`; 0 while the rank does not wait.
    since: AtomicU64,
    /// When the latest wait ended, in nanoseconds of `sys::clock::now`; 0 if none has ended.
    ended: AtomicU64,
    text: SharedText<24>,
}

impl WaitRecord {
    /// Publishes a wait that started at `since`, in nanoseconds of `sys::clock::now`. `text` says in which
    /// call and for what the rank waits.
    pub fn start(&self, since: u64, text: &str) {
        self.text.set(text);
        self.since.store(since, Ordering::Release);
    }

    /// Publishes that the rank's wait ended at `now`, in nanoseconds of `sys::clock::now`.
    pub fn end(&self, now: u64) {
        self.ended.store(now, Ordering::Relaxed);
        self.since.store(0, Ordering::Release);
    }

    /// Returns when the rank's current wait started; None if the rank does not wait.
    pub fn since(&self) -> Option<u64> {
        Some(self.since.load(Ordering::Acquire)).filter(|since| *since != 0)
    }

    /// Returns when the rank's latest wait ended; None if no wait has ended.
    pub fn ended(&self) -> Option<u64> {
        Some(self.ended.load(Ordering::Relaxed)).filter(|ended| *ended != 0)
    }

    /// Returns the text that says what the rank waits for, or what it waited for last.
    pub fn text(&self) -> String {
        self.text.text()
    }

    pub(super) fn clear(&self) {
        self.since.store(0, Ordering::Relaxed);
        self.ended.store(0, Ordering::Relaxed);
        self.text.set("");
    }
}

/// A report of what a rank waits for, which another process requests. The rank writes it while it waits in an
/// MPI call.
#[repr(C)]
#[derive(Debug)]
pub struct WaitReport {
    asked: AtomicU32,
    answered: AtomicU32,
    text: SharedText<1024>,
}

impl WaitReport {
    /// Requests a report from the rank. The caller then rings the rank's doorbell, since the rank may sleep.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a report was requested since the rank last wrote one.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != self.answered.load(Ordering::Relaxed)
    }

    /// Stores `text` as the report for all requests so far. The rank calls it.
    pub fn answer(&self, text: &str) {
        let asked = self.asked.load(Ordering::Acquire);
        self.text.set(text);
        self.answered.store(asked, Ordering::Release);
    }

    /// Returns the report, once the rank has written it for the latest request; None before that.
    pub fn answered(&self) -> Option<String> {
        let answered = self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Relaxed);
        answered.then(|| self.text.text())
    }

    pub(super) fn clear(&self) {
        self.answered.store(self.asked.load(Ordering::Relaxed), Ordering::Relaxed);
        self.text.set("");
    }
}

#[cfg(test)]
mod tests {
    use crate::shm::{LocalRank, Segment, Shape};

    #[test]
    fn what_is_shown_is_read() {
        let (segment, _fd) = Segment::create(Shape { ranks: 1, proxies: 0, arena_bytes: 1 }).unwrap();
        let page = segment.rank(LocalRank(0));
        assert_eq!((page.wait.since(), page.wait.ended(), page.wait.text()), (None, None, String::new()));
        page.wait.start(5, "MPI_Recv on MPI_COMM_WORLD");
        assert_eq!((page.wait.since(), page.wait.text().as_str()), (Some(5), "MPI_Recv on MPI_COMM_WORLD"));
        page.wait.end(9);
        assert_eq!((page.wait.since(), page.wait.ended()), (None, Some(9)));
        assert!(!page.report.is_due());
        page.report.ask();
        assert!(page.report.is_due() && page.report.answered().is_none());
        page.report.answer(&"x".repeat(10_000));
        assert_eq!(page.report.answered().unwrap().len(), 8192);
        assert!(!page.report.is_due());
    }
}
