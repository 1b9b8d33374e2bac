// SPDX-License-Identifier: BSD-3-Clause
//! Sleep and wake-up (futex) on a word of memory that several processes share.

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Why `wait` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A call of `wake` or a signal woke the thread, or it woke without a reason: the caller must check its
    /// condition again.
    Called,
    /// The word did not have the value that the caller expected, so the thread did not sleep.
    Changed,
    /// The timeout has passed.
    TimedOut,
}

/// Sleeps while `word` has the value `expected`, until another thread calls `wake` or `timeout` has passed
/// (None: no limit). It may return early, so the caller must check its condition again.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
    let time = timeout.map(|t| Timespec {
        tv_sec: t.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: t.subsec_nanos().into(),
    });
    // Not PRIVATE: the word lies in memory that other processes map at other addresses.
    match futex::wait(word, Flags::empty(), expected, time.as_ref()) {
        Err(Errno::AGAIN) => Woken::Changed,
        Err(Errno::TIMEDOUT) => Woken::TimedOut,
        _ => Woken::Called,
    }
}

/// Wakes up to `count` threads of any process that sleep in `wait` on `word`. Returns how many it has woken.
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    futex::wake(word, Flags::empty(), count).unwrap_or(0)
}

/// Sleeps like `wait`, while the low 32 bits of `word` equal the low 32 bits of `expected`.
pub fn wait_low(word: &AtomicU64, expected: u64, timeout: Option<Duration>) -> Woken {
    wait(low_half(word), expected as u32, timeout)
}

/// Wakes up to `count` threads that sleep in `wait_low` on `word`. Returns how many it has woken.
pub fn wake_low(word: &AtomicU64, count: u32) -> usize {
    wake(low_half(word), count)
}

/// Returns the low 32 bits of a word as a word of its own, whose value only the kernel reads.
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let halves = std::ptr::from_ref(word).cast::<AtomicU32>();
    let low = halves.wrapping_add(usize::from(cfg!(target_endian = "big")));
    // SAFETY: lies inside `word`, which is borrowed for as long, is aligned, and is valid whatever it holds.
    unsafe { &*low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn wait_sees_change_timeout_and_wake() {
        let word = Arc::new(AtomicU32::new(1));
        assert_eq!(wait(&word, 0, None), Woken::Changed);
        assert_eq!(wait(&word, 1, Some(Duration::from_millis(1))), Woken::TimedOut);
        let sleeper = {
            let word = word.clone();
            std::thread::spawn(move || {
                while word.load(Ordering::Acquire) == 1 {
                    wait(&word, 1, None);
                }
            })
        };
        word.store(2, Ordering::Release);
        wake(&word, u32::MAX);
        sleeper.join().unwrap();
    }
}
