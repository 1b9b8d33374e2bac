//! Sleeping on a word of memory that several processes share.

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Why `wait` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// By `wake`, by a signal, or for no reason: look again.
    Called,
    /// The word was no longer what the caller expected.
    Changed,
    /// The time was over.
    TimedOut,
}

/// Sleeps while `word` is `expected`, until somebody wakes or `timeout` is over. May return early: look again.
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

/// Wakes up to `count` sleepers on `word`, in any process; returns how many.
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    futex::wake(word, Flags::empty(), count).unwrap_or(0)
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
