//! A rank watches the proxy that executes for it, and takes its work back only when it is certainly dead.
//!
//! A stalled process may wake up at any time and write. So the rank first kills it through a pidfd, which
//! never names another process, and waits for its end: the fence.

use std::sync::atomic::Ordering;
use std::time::Duration;
use sys::process::Process;
use transport::shm::{Segment, State};

/// How often a rank looks, in nanoseconds: a look costs a system call.
const LOOK_NS: u64 = 1_000_000;

/// Index into a proxy's `scalars`: 1 once a rank kills it and reports that, so that `mpirun` does not.
pub const FENCED: usize = 0;

/// What a rank knows about its proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works, as far as is known.
    Alive,
    /// It has ended for certain.
    Dead,
    /// It has ended for certain: this rank was the first to kill it, because it had stalled.
    Fenced,
}

/// The watch over one proxy.
pub struct ProxyWatch {
    segment: Segment,
    proxy: u32,
    timeout_ns: u64,
    process: Option<Process>,
    beat: u64,
    /// How long its heartbeat has stood still, and when this rank last looked; 0: not since work began.
    still_ns: u64,
    looked_ns: u64,
    killed: bool,
    /// Whether this rank was the first to kill it.
    first: bool,
    ended: bool,
}

impl ProxyWatch {
    /// A watch over a proxy. Nothing is opened before the proxy first gets work.
    pub fn new(segment: Segment, proxy: u32, timeout_ms: u64) -> ProxyWatch {
        ProxyWatch {
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
            // It still runs after it was opened, so the process is the proxy and no later owner of its pid.
            self.process = Process::open(page.pid.load(Ordering::Acquire)).ok();
            return page.state() == State::Running;
        }
        true
    }

    /// Work begins after a pause: the heartbeat counts from now.
    pub fn begin(&mut self) {
        (self.still_ns, self.looked_ns) = (0, 0);
    }

    /// Checks the proxy; called while it has work.
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
        // A long gap between two looks (the whole machine may have stopped) counts as one look.
        self.still_ns += since.min(self.timeout_ns / 8);
        if self.still_ns > self.timeout_ns && !self.killed {
            // Without a pidfd there is no fence: mpirun will see the proxy's end.
            if let Some(process) = &self.process {
                let first = page.scalars[FENCED].swap(1, Ordering::Relaxed) == 0;
                self.killed = process.kill().is_ok();
                self.first = self.killed && first;
            }
        }
        Health::Alive
    }
}
