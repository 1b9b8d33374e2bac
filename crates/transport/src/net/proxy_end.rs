// SPDX-License-Identifier: BSD-3-Clause
//! In a job without `mpirun`, ranks tell other hosts that their proxy has ended.
//!
//! Each rank that the proxy served sends this report to all other hosts, in the rank's own MPI calls. From
//! then on the other hosts ask the rank for the bytes that it sends, and it answers in its MPI calls, too.

use crate::shm::Segment;
use crate::wire::Wire;

/// How often a rank checks whether its proxy has ended and an endpoint still lacks the report of that end, in
/// nanoseconds.
const LOOK_NS: u64 = 1_000_000;

/// What a rank knows about the end of its proxy, and to whom it has reported that end.
pub(super) struct ProxyEndReports {
    /// The number of the proxy's endpoint.
    pub proxy: u32,
    /// The endpoints to which this rank has reported that the proxy has ended.
    pub reported: Vec<u32>,
    /// Whether, at the last check, the proxy had ended and an endpoint still lacked the report.
    pub is_unfinished: bool,
    looks_at: u64,
}

impl ProxyEndReports {
    /// Makes the state for the rank with endpoint `number` to report the end of its proxy. Returns None if it
    /// need not report: `mpirun` does so, proxies serve no ranks of other hosts, or the endpoint is not that
    /// of a rank on this host.
    pub fn of(segment: &Segment, number: u32) -> Option<ProxyEndReports> {
        let is_needed =
            segment.proxies_are_servers() && !segment.has_launcher() && segment.local(number).is_some();
        let proxy = segment.proxy_endpoint_of(number);
        is_needed.then(|| ProxyEndReports { proxy, reported: Vec::new(), is_unfinished: false, looks_at: 0 })
    }

    /// Returns the endpoints to which the rank must now report that its proxy has ended. Returns an empty
    /// list if the time of the next check has not come.
    pub fn unreported(&mut self, segment: &Segment) -> Vec<u32> {
        if !segment.is_gone(self.proxy) {
            return Vec::new();
        }
        let now = sys::clock::now();
        if now < self.looks_at {
            return Vec::new();
        }
        self.looks_at = now + LOOK_NS;
        let mut all = segment.report_endpoints();
        all.retain(|number| !self.reported.contains(number));
        self.is_unfinished = !all.is_empty();
        all
    }
}

/// Handles a rank's report that its proxy has ended. Ignores the report unless the rank is on another host
/// and that proxy serves the rank.
pub(super) fn receive_report(segment: &Segment, wire: &Wire) {
    let proxy = wire.header.tag as u32;
    let is_theirs = segment.local(wire.source).is_none() && segment.proxy_endpoint_of(wire.source) == proxy;
    if is_theirs && !segment.is_gone(proxy) {
        segment.set_endpoint(proxy, &[]);
        segment.ring_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::packet::Header;
    use crate::sequence::Stamp;
    use crate::shm::Shape;
    use crate::wire::GONE;

    /// Makes the segment of host 0, in a job of two hosts with two ranks and one proxy each.
    fn host() -> Segment {
        let (segment, _fd) = Segment::create(Shape { ranks: 4, proxies: 1, arena_bytes: 1 }).unwrap();
        segment.set_nodes(0, 2, &[0, 0, 1, 1], 1);
        segment
    }

    #[test]
    fn a_rank_tells_the_proxies_of_other_hosts_once_its_own_has_ended() {
        let segment = host();
        let mut reports = ProxyEndReports::of(&segment, 1).unwrap();
        assert!(reports.unreported(&segment).is_empty() && !reports.is_unfinished);
        segment.set_endpoint(segment.proxy_endpoint(0), &[]);
        let there = segment.proxy_endpoint_of(2);
        assert_eq!((reports.unreported(&segment), reports.is_unfinished), (vec![there], true));
        reports.reported.push(there);
        // If the other host's proxy has ended, too, its ranks must get the report.
        segment.set_endpoint(there, &[]);
        reports.looks_at = 0;
        assert_eq!((reports.unreported(&segment), reports.is_unfinished), (vec![2, 3], true));
        reports.reported.extend([2, 3]);
        reports.looks_at = 0;
        assert!(reports.unreported(&segment).is_empty() && !reports.is_unfinished);
        segment.job().launcher.store(1, std::sync::atomic::Ordering::Relaxed);
        assert!(ProxyEndReports::of(&segment, 1).is_none(), "mpirun tells them");
    }

    #[test]
    fn only_a_proxys_own_ranks_are_believed() {
        let segment = host();
        let (own, theirs) = (segment.proxy_endpoint(0), segment.proxy_endpoint_of(2));
        let say = |source, proxy: u32| {
            let header = Header { kind: GONE, tag: proxy as i32, context: 0 };
            let stamp = Stamp { number: 0, answered: 0, wants_answer: false };
            receive_report(&segment, &Wire { source, generation: 0, header, secret: 1, consumed: 0, stamp });
            (segment.is_gone(own), segment.is_gone(theirs))
        };
        for (source, proxy) in [(2, own), (1, own), (1, theirs), (theirs, theirs), (2, 3), (2, theirs + 1)] {
            assert_eq!(say(source, proxy), (false, false), "{source:x} of {proxy:x}");
        }
        assert_eq!(say(3, theirs), (false, true));
    }
}
