// SPDX-License-Identifier: BSD-3-Clause
//! A thread that rings the doorbell of a sleeping rank when something arrives from another host.
//!
//! A proxy needs no such thread: it sleeps on its doorbell and on the network at once (`Doorbell::sleep_on`).
//! A rank cannot do so: sleeping on both takes a signal, and a rank's signals belong to the program.

use crate::shm::{LocalRank, Segment};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long the thread sleeps at most before it checks whether its process has left the network.
const WATCH: Duration = Duration::from_secs(1);

/// A thread that waits on the network's descriptor while the rank sleeps, and then rings the rank's doorbell.
pub(crate) struct Sleeper {
    /// 1 while the thread is to ring the doorbell when something arrives, 0 while the rank polls the network
    /// itself.
    armed: AtomicU32,
}

impl Sleeper {
    /// Starts the thread that waits until `fd` is readable and then rings the doorbell of `rank`. Returns
    /// None if the system cannot start a thread.
    pub(crate) fn start(fd: OwnedFd, segment: Segment, rank: LocalRank) -> Option<Arc<Sleeper>> {
        let sleeper = Arc::new(Sleeper { armed: AtomicU32::new(0) });
        let watching = Arc::downgrade(&sleeper);
        let watch = move || {
            sys::signal::block_all();
            sys::cpu::take_short_slices();
            while let Some(sleeper) = watching.upgrade() {
                if sleeper.armed.load(Ordering::Acquire) == 0 {
                    sys::futex::wait(&sleeper.armed, 0, Some(WATCH));
                } else if sys::process::readable(&fd, Some(WATCH)).unwrap_or(true) {
                    sleeper.armed.store(0, Ordering::Release);
                    segment.rank(rank).bell.ring();
                }
            }
        };
        std::thread::Builder::new().name("outboard-net".into()).spawn(watch).ok()?;
        Some(sleeper)
    }

    pub(crate) fn arm(&self) {
        if self.armed.swap(1, Ordering::AcqRel) == 0 {
            sys::futex::wake(&self.armed, 1);
        }
    }
}
