// SPDX-License-Identifier: BSD-3-Clause
//! A memory fence between two threads, cheap for the one (`light`) and expensive for the other (`heavy`):
//! membarrier(2), since Linux 4.16.
//!
//! If two threads each store something and then load what the other stores, both need a fence in between.
//! Without the fences both may miss the other's store. If one of the threads does this far more often, the
//! other one can fence for both. The kernel then makes every running thread of the processes that have called
//! `join` execute a fence.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// The membarrier command that makes all running threads of registered processes execute a fence
/// (linux/membarrier.h).
const GLOBAL_EXPEDITED: i32 = 2;
/// The membarrier command that registers a process for `GLOBAL_EXPEDITED` (linux/membarrier.h).
const REGISTER_GLOBAL_EXPEDITED: i32 = 4;

/// Whether this process has called `join`, with or without success.
static TRIED: AtomicBool = AtomicBool::new(false);
/// Whether the kernel has registered this process, so that `heavy` in another process fences its threads.
static JOINED: AtomicBool = AtomicBool::new(false);

/// Registers this process for membarrier, if the kernel allows it. From then on `light` is cheap in this
/// process, and `heavy` in another process fences the threads of this one.
pub fn join() {
    TRIED.store(true, Ordering::Relaxed);
    JOINED.store(membarrier(REGISTER_GLOBAL_EXPEDITED), Ordering::Relaxed);
}

/// Fences the thread that often stores and then loads what the other thread stores. That thread calls this
/// between its store and its load. It is cheap once `join` has succeeded, since `heavy` in the other thread
/// then fences for both.
#[inline]
pub fn light() {
    if JOINED.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Fences for both threads. The thread that seldom stores and then loads what the other thread stores calls
/// this between its store and its load. Takes some us, and interrupts every core that runs a joined process.
/// Without `join` it is an ordinary fence: either all processes call `join` or none. Returns false if the
/// kernel refused: then the fence may not have reached the other thread.
pub fn heavy() -> bool {
    fence(Ordering::SeqCst);
    !TRIED.load(Ordering::Relaxed) || membarrier(GLOBAL_EXPEDITED)
}

fn membarrier(command: i32) -> bool {
    // SAFETY: the system call takes numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Goal: of two threads that each store and then load the other's store, at least one sees that store in
    /// every round.
    #[test]
    fn never_do_both_miss() {
        join();
        let (frequent, rare, round) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let seen = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for now in 1..=2000 {
                    while round.load(Ordering::Acquire) < now {
                        std::thread::yield_now();
                    }
                    frequent.store(now, Ordering::Relaxed);
                    light();
                    seen.store(u32::from(rare.load(Ordering::Relaxed) == now) + 2 * now, Ordering::Release);
                }
            });
            for now in 1..=2000 {
                round.store(now, Ordering::Release);
                rare.store(now, Ordering::Relaxed);
                assert!(heavy() || !JOINED.load(Ordering::Relaxed));
                let saw = frequent.load(Ordering::Relaxed) == now;
                while seen.load(Ordering::Acquire) / 2 < now {
                    std::thread::yield_now();
                }
                assert!(
                    saw || seen.load(Ordering::Relaxed) % 2 == 1,
                    "both missed the other's store in round {now}"
                );
            }
        });
    }
}
