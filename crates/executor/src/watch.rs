//! A rank watches the proxy that executes for it: is it alive, and if it stalls, is it dead for certain?
//!
//! A stalled process may wake up at any time and write. So before its work is taken over it is killed through a pidfd, which
//! cannot come to mean another process, and its end is waited for: the fence.

use std::sync::atomic::Ordering;
use std::time::Duration;
use sys::process::Process;
use transport::shm::{Segment, State};

/// How often a rank looks, in nanoseconds: a look costs a system call.
const LOOK_NS: u64 = 1_000_000;

/// Index into a proxy's `scalars`: 1 once a rank is about to kill it, and will say so; `mpirun` then says nothing.
pub const FENCED: usize = 0;

/// What a rank knows about its proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// As far as we know it works.
    Alive,
    /// It has ended for certain.
    Dead,
    /// It has ended for certain, because this rank, before all others, killed it for standing still.
    Fenced,
}

/// The watch over one proxy.
pub struct Watch {
    segment: Segment,
    proxy: u32,
    timeout_ns: u64,
    process: Option<Process>,
    beat: u64,
    /// For how long we have seen it stand still, and when we last looked; 0: not since work began.
    still_ns: u64,
    looked_ns: u64,
    killed: bool,
    /// Whether we were the first to kill it.
    first: bool,
    ended: bool,
}

impl Watch {
    /// A watch over a proxy. Nothing is opened before the proxy first gets work.
    pub fn new(segment: Segment, proxy: u32, timeout_ms: u64) -> Watch {
        Watch {
            segment,
            proxy,
            timeout_ns: timeout_ms.saturating_mul(1_000_000),
            process: None,
            beat: 0,
            still_ns: 0,
            looked_ns: 0,
            killed: false,
            first: false,
            ended: false,
        }
    }

    /// Whether the proxy can be given work now.
    #[inline]
    pub fn takes_work(&mut self) -> bool {
        if self.ended || self.killed {
            return false;
        }
        let page = self.segment.proxy(self.proxy);
        if page.state() != State::Running {
            return false;
        }
        if self.process.is_none() {
            // Still running after we took hold of it, the process is the proxy and no later owner of its pid.
            self.process = Process::open(page.pid.load(Ordering::Acquire)).ok();
            return page.state() == State::Running;
        }
        true
    }

    /// Work begins after a pause in which nobody looked: the heartbeat counts from now.
    pub fn begin(&mut self) {
        (self.still_ns, self.looked_ns) = (0, 0);
    }

    /// Looks after the proxy; called while work is out.
    pub fn look(&mut self) -> Health {
        let page = self.segment.proxy(self.proxy);
        if self.ended || page.state() == State::Dead {
            self.ended = true;
            return if self.first { Health::Fenced } else { Health::Dead };
        }
        let now = sys::clock::now();
        if now.wrapping_sub(self.looked_ns) < LOOK_NS {
            return Health::Alive;
        }
        let since = if self.looked_ns == 0 { 0 } else { now - self.looked_ns };
        self.looked_ns = now;
        if let Some(process) = &self.process
            && process.ended(Some(Duration::ZERO)).unwrap_or(false)
        {
            page.set_state(State::Dead);
            self.ended = true;
            return if self.first { Health::Fenced } else { Health::Dead };
        }
        let beat = page.heartbeat.load(Ordering::Relaxed);
        if beat != self.beat {
            (self.beat, self.still_ns) = (beat, 0);
            return Health::Alive;
        }
        // A gap in our own looking (the whole machine may have stood still) counts as one look.
        self.still_ns += since.min(self.timeout_ns / 8);
        if self.still_ns > self.timeout_ns && !self.killed {
            // Without a pidfd nothing is certain, so there is no fence: mpirun will see it end.
            if let Some(process) = &self.process {
                let first = page.scalars[FENCED].swap(1, Ordering::Relaxed) == 0;
                self.killed = process.kill().is_ok();
                self.first = self.killed && first;
            }
        }
        Health::Alive
    }
}
