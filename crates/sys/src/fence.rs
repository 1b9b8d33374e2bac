// SPDX-License-Identifier: BSD-3-Clause
//! A memory fence with a cheap side (`light`) and an expensive side (`heavy`): membarrier(2), since Linux
//! 4.16.
//!
//! If two threads each store something and then load what the other stores, both need a fence in between;
//! else both may miss the other's store. If one of them does so far more often, the rare side can fence for
//! both: the kernel then makes every running thread of the processes that have joined execute a fence.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// linux/membarrier.h
const GLOBAL_EXPEDITED: i32 = 2;
/// linux/membarrier.h
const REGISTER_GLOBAL_EXPEDITED: i32 = 4;

/// Whether `join` was called.
static TRIED: AtomicBool = AtomicBool::new(false);
/// Whether a call of `heavy` in another process makes the threads of this process execute a fence.
static JOINED: AtomicBool = AtomicBool::new(false);

/// Makes `light` cheap in this process, if the kernel allows it.
pub fn join() {
    TRIED.store(true, Ordering::Relaxed);
    JOINED.store(membarrier(REGISTER_GLOBAL_EXPEDITED), Ordering::Relaxed);
}

/// The fence of the frequent side.
#[inline]
pub fn light() {
    if JOINED.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The fence of the rare side. Takes some microseconds and interrupts every core where a joined process runs;
/// in a process that has not tried to join it is an ordinary fence. Either all processes have tried to join
/// or none has. False if the kernel refused: then the fence may not have reached processes that joined.
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
