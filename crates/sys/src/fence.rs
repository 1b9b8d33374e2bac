// SPDX-License-Identifier: BSD-3-Clause
//! A memory fence with a cheap side (`light`) and an expensive side (`heavy`): membarrier(2), since Linux
//! 4.16.
//!
//! If two threads each store something and then load what the other stores, both need a fence in between;
//! else both may miss the other's store. If one of them does so far more often, the rare side can fence for
//! both: the kernel then makes every running thread of the processes that have joined execute a fence.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// The command by which membarrier makes the threads of registered processes fence (linux/membarrier.h).
const GLOBAL_EXPEDITED: i32 = 2;
/// The command by which membarrier registers a process for that (linux/membarrier.h).
const REGISTER_GLOBAL_EXPEDITED: i32 = 4;

/// Whether this process has called `join`.
static TRIED: AtomicBool = AtomicBool::new(false);
/// Whether this process is registered, so that a call of `heavy` in another process makes its threads fence.
static JOINED: AtomicBool = AtomicBool::new(false);

/// Registers this process, if the kernel allows it: `light` is then cheap here, and `heavy` of others reaches
/// it.
pub fn join() {
    TRIED.store(true, Ordering::Relaxed);
    JOINED.store(membarrier(REGISTER_GLOBAL_EXPEDITED), Ordering::Relaxed);
}

/// Fences on the frequent side: between a store and the load of what the rare side stores.
#[inline]
pub fn light() {
    if JOINED.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Fences on the rare side, for both sides. Takes some microseconds and interrupts every core where a joined
/// process runs. Without `join` it is an ordinary fence: either all processes call `join` or none does.
/// Returns false if the kernel refused, so that the fence may not have reached the other side.
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

    /// Two threads store and look, as in the head comment; in no round may both miss the other's store.
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
