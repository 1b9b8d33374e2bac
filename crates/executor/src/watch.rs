// SPDX-License-Identifier: BSD-3-Clause
//! How a rank watches its proxy. The rank takes its operations back only when the proxy is certainly dead.
//!
//! A stalled proxy may wake up at any time and write. So the rank first kills it, and then waits until its
//! process has ended. This is called the fence. The rank kills through a pidfd, which cannot hit another
//! process. A proxy that can run but gets no core has not stalled.

use std::sync::atomic::Ordering;
use std::time::Duration;
use sys::process::{ProcessHandle, Stat};
use transport::shm::{Segment, State};

/// The time between two looks at the proxy's process, in nanoseconds. Each look costs a system call.
const LOOK_NS: u64 = 1_000_000;

/// What a rank knows about its proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The proxy lives, as far as this rank knows.
    Alive,
    /// The proxy has certainly ended.
    Dead,
    /// The proxy has certainly ended. This rank was the first to kill it or cut it off, because it had
    /// stalled.
    Fenced,
}

/// Watches a rank's proxy: finds out whether it is alive, and kills it if it has stalled.
pub struct ProxyWatch {
    segment: Segment,
    proxy: u32,
    timeout_ns: u64,
    /// The number of the proxy's endpoint, if it runs on another computer. None if it runs on this host.
    remote_endpoint: Option<u32>,
    process: Option<ProcessHandle>,
    beat: u64,
    /// For how long the heartbeat has stood still, in nanoseconds.
    still_ns: u64,
    /// The time at which this rank last looked at the heartbeat, in nanoseconds. 0 from the time at which the
    /// proxy gets work until the first look.
    looked_ns: u64,
    /// The proxy's processor time, in nanoseconds, when this rank first found that the heartbeat had stood
    /// still for longer than the time-out. None if it has not found this since the heartbeat last changed.
    still_cpu_ns: Option<u64>,
    killed: bool,
    /// Whether this rank was the first of the proxy's ranks to kill it.
    first: bool,
    ended: bool,
}

impl ProxyWatch {
    /// Makes a watch over the proxy with the index `proxy`, which has stalled if its heartbeat stands still
    /// for longer than `timeout_ms`. The pidfd of the proxy is opened only when the proxy first gets work.
    pub fn new(segment: Segment, proxy: u32, timeout_ms: u64) -> ProxyWatch {
        let remote_endpoint = segment.has_dpu().then(|| segment.proxy_endpoint(proxy));
        ProxyWatch {
            remote_endpoint,
            segment,
            proxy,
            timeout_ns: timeout_ms.saturating_mul(1_000_000),
            process: None,
            beat: 0,
            still_ns: 0,
            looked_ns: 0,
            still_cpu_ns: None,
            killed: false,
            first: false,
            ended: false,
        }
    }

    /// Whether the rank may give the proxy work now: the proxy runs, and is not being killed.
    #[inline]
    pub fn takes_work(&mut self) -> bool {
        if self.ended || self.killed {
            return false;
        }
        let page = self.segment.proxy(self.proxy);
        if let Some(endpoint) = self.remote_endpoint {
            return !self.segment.is_gone(endpoint);
        }
        if page.state() != State::Running {
            return false;
        }
        if self.process.is_none() {
            // The process still runs after it was opened, so it is the proxy and no later owner of its pid.
            self.process = ProcessHandle::open(page.pid.load(Ordering::Acquire)).ok();
            return page.state() == State::Running;
        }
        true
    }

    /// Starts to time the heartbeat anew, since the proxy gets work after a pause.
    pub fn start(&mut self) {
        (self.still_ns, self.looked_ns) = (0, 0);
    }

    /// Returns the proxy's health, and kills the proxy if it has stalled. The rank calls this while the proxy
    /// has work.
    pub fn look(&mut self) -> Health {
        let page = self.segment.proxy(self.proxy);
        let is_gone = self.remote_endpoint.is_some_and(|endpoint| self.segment.is_gone(endpoint));
        if self.ended || is_gone || page.state() == State::Dead {
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
            (self.beat, self.still_ns, self.still_cpu_ns) = (beat, 0, None);
            return Health::Alive;
        }
        // A long gap between two looks (the whole machine may have stopped) counts as one look.
        self.still_ns += since.min(self.timeout_ns / 8);
        if self.still_ns > self.timeout_ns && self.remote_endpoint.is_some() {
            // The rank revokes its memory, which fences the proxy as well as a kill does.
            self.segment.proxy(self.proxy).fenced.store(1, Ordering::Relaxed);
            (self.ended, self.first) = (true, true);
            return Health::Fenced;
        }
        if self.still_ns > self.timeout_ns && !self.killed && !self.starves() {
            // Without a pidfd the rank cannot fence: mpirun will see the proxy's end.
            if let Some(process) = &self.process {
                let first = self.segment.proxy(self.proxy).fenced.swap(1, Ordering::Relaxed) == 0;
                self.killed = process.kill().is_ok();
                self.first = self.killed && first;
            }
        }
        Health::Alive
    }

    /// Whether a proxy whose heartbeat stands still only lacks a core: it can run, but has used less
    /// processor time than the time-out since this was first asked. If so, the standstill is timed from 0
    /// again.
    fn starves(&mut self) -> bool {
        let stat = Stat::of(self.segment.proxy(self.proxy).pid.load(Ordering::Relaxed));
        let Some(stat) = stat.filter(|stat| stat.is_runnable) else { return false };
        let before = *self.still_cpu_ns.get_or_insert(stat.cpu_ns);
        let starves = stat.cpu_ns.saturating_sub(before) < self.timeout_ns;
        if starves {
            self.still_ns = 0;
        }
        starves
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;
    use transport::shm::Shape;

    const LOOP: &str = "echo; while :; do :; done";

    /// A child process that is killed when the test ends.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    /// Starts a shell that runs `script`, by the command line `words` followed by `sh -c script`. Returns
    /// once the script has written its first byte.
    fn start(words: &[&str], script: &str) -> Running {
        let words: Vec<&str> = words.iter().copied().chain(["sh", "-c", script]).collect();
        let mut child = Command::new(words[0]).args(&words[1..]).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Running(child)
    }

    /// Lets a process stand for a proxy whose heartbeat has stopped, and watches it until it counts as unwell
    /// or `look_for` has passed. Returns its health, and whether the watch has killed the process.
    fn health_of(proxy: &Running, look_for: Duration) -> (Health, bool) {
        let (segment, _fd) = Segment::create(Shape { ranks: 1, proxies: 1, arena_bytes: 1 << 20 }).unwrap();
        segment.proxy(0).pid.store(proxy.0.id(), Ordering::Relaxed);
        segment.proxy(0).set_state(State::Running);
        let mut watch = ProxyWatch::new(segment, 0, 100);
        assert!(watch.takes_work());
        let started = Instant::now();
        loop {
            let health = watch.look();
            if health != Health::Alive || started.elapsed() > look_for {
                return (health, watch.killed);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_proxy_that_sleeps_or_loops_is_killed_and_one_that_gets_no_core_is_not() {
        let long = Duration::from_secs(60);
        for script in ["echo; exec sleep 100", LOOP] {
            let proxy = start(&["env"], script);
            assert_eq!(health_of(&proxy, long), (Health::Fenced, true), "{script}");
        }
        let core = sys::cpu::allowed().unwrap()[0].to_string();
        let proxy = start(&["taskset", "-c", &core, "chrt", "--idle", "0"], LOOP);
        let _other = start(&["taskset", "-c", &core], LOOP);
        assert_eq!(health_of(&proxy, Duration::from_secs(1)), (Health::Alive, false));
    }
}
