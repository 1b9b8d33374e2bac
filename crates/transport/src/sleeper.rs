//! What wakes a process that sleeps on its bell when something arrives from another host.

use crate::shm::{Doorbell, LocalRank, Segment};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long the watching thread sleeps before it looks whether its process has left the network.
const WATCH: Duration = Duration::from_secs(1);

/// A process of this host that has an endpoint.
#[derive(Clone, Copy, Debug)]
pub enum Member {
    /// A rank.
    Rank(LocalRank),
    /// A proxy, by its number on this host.
    Proxy(u32),
}

impl Member {
    /// The number of its endpoint.
    pub(crate) fn number(self, segment: &Segment) -> u32 {
        match self {
            Member::Rank(rank) => rank.peer(),
            Member::Proxy(proxy) => segment.proxy_endpoint(proxy),
        }
    }

    fn bell(self, segment: &Segment) -> &Doorbell {
        match self {
            Member::Rank(rank) => &segment.rank(rank).bell,
            Member::Proxy(proxy) => &segment.proxy(proxy).bell,
        }
    }
}

/// The thread that watches the network while the process sleeps on its bell.
pub(crate) struct Sleeper {
    /// 1 while the process may be asleep.
    armed: AtomicU32,
}

impl Sleeper {
    /// Nothing where a thread or a descriptor is not to be had.
    pub(crate) fn start(fd: OwnedFd, segment: Segment, member: Member) -> Option<Arc<Sleeper>> {
        let sleeper = Arc::new(Sleeper { armed: AtomicU32::new(0) });
        let watching = Arc::downgrade(&sleeper);
        let watch = move || {
            sys::signal::block_all();
            while let Some(sleeper) = watching.upgrade() {
                if sleeper.armed.load(Ordering::Acquire) == 0 {
                    sys::futex::wait(&sleeper.armed, 0, Some(WATCH));
                } else if sys::process::readable(&fd, Some(WATCH)).unwrap_or(true) {
                    sleeper.armed.store(0, Ordering::Release);
                    member.bell(&segment).ring();
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
