// SPDX-License-Identifier: BSD-3-Clause
//! The endpoints by which processes on different hosts reach each other, and their numbers. A rank's endpoint
//! has the rank's number. A proxy's endpoint has a number with the bit `PROXY`.

use super::pages::{PeerEntry, RANKS_MAX};
use super::{LocalRank, Segment};
use std::sync::atomic::Ordering;

/// The bit that is set in the number of a proxy's endpoint.
pub(crate) const PROXY: u32 = 1 << 31;
/// The most endpoints of proxies in a job.
pub(super) const PROXY_ENDPOINTS: u32 = RANKS_MAX;
/// The value of `PeerEntry::name_bytes` that says that the endpoint's process has ended.
const GONE: u16 = u16::MAX;

/// A process of this host that has an endpoint in the network.
#[derive(Clone, Copy, Debug)]
pub enum EndpointOwner {
    /// A rank of this host.
    Rank(LocalRank),
    /// A proxy of this host, by its number among the proxies of this host.
    Proxy(u32),
}

impl EndpointOwner {
    /// Returns the number that the process's endpoint has in the whole job.
    pub(crate) fn number(self, segment: &Segment) -> u32 {
        match self {
            EndpointOwner::Rank(rank) => rank.peer(),
            EndpointOwner::Proxy(proxy) => segment.proxy_endpoint(proxy),
        }
    }
}

/// Returns the number in the whole job of the endpoint of proxy `proxy` on host `node`. Each host has
/// `proxies` proxies.
pub fn proxy_endpoint(node: u32, proxies: u32, proxy: u32) -> u32 {
    PROXY | node.wrapping_mul(proxies).wrapping_add(proxy)
}

impl Segment {
    /// Returns the number in the whole job of the endpoint of proxy `proxy` on this host.
    pub fn proxy_endpoint(&self, proxy: u32) -> u32 {
        proxy_endpoint(self.job().node.load(Ordering::Relaxed), self.shape().proxies, proxy)
    }

    /// Whether proxies are servers in this job: another host that needs the bytes that a rank sends asks that
    /// rank's proxy. All hosts have the same answer.
    pub fn proxies_are_servers(&self) -> bool {
        let all = || u64::from(self.shape().proxies) * u64::from(self.job().nodes.load(Ordering::Relaxed));
        self.has_nodes() && (1..=u64::from(PROXY_ENDPOINTS)).contains(&all())
    }

    /// Returns the number of the endpoint that serves a rank of another host: that of its proxy, or the
    /// rank's own if it has no proxy or the proxy has ended.
    pub fn server_of(&self, peer: u32) -> u32 {
        let proxy = self.proxy_endpoint_of(peer);
        if self.is_gone(proxy) { peer } else { proxy }
    }

    /// Whether the job has an `mpirun`, which tells all hosts when a proxy or rank has ended.
    pub(crate) fn has_launcher(&self) -> bool {
        self.job().launcher.load(Ordering::Relaxed) != 0
    }

    /// Rings the doorbells of all ranks and proxies of this host.
    pub(crate) fn ring_all(&self) {
        let ranks = (0..self.shape().ranks).filter_map(|rank| self.local(rank));
        ranks.for_each(|rank| self.rank(rank).bell.ring());
        (0..self.shape().proxies).for_each(|proxy| self.proxy(proxy).bell.ring());
    }

    /// Returns the number of the endpoint of the proxy that serves a rank, even if that proxy has ended.
    pub(crate) fn proxy_endpoint_of(&self, rank: u32) -> u32 {
        let proxies = self.shape().proxies.max(1);
        proxy_endpoint(self.node_of(rank), proxies, rank % proxies)
    }

    /// Returns the endpoints to which a rank sends a report that is meant for all other hosts: those that
    /// serve the ranks of other hosts.
    pub(crate) fn report_endpoints(&self) -> Vec<u32> {
        let own = self.job().node.load(Ordering::Relaxed);
        let elsewhere =
            (0..self.shape().ranks).filter(|rank| ![own, u32::MAX].contains(&self.node_of(*rank)));
        let mut all: Vec<u32> = elsewhere.map(|rank| self.server_of(rank)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether the job has an endpoint of this number.
    pub fn is_endpoint(&self, number: u32) -> bool {
        self.endpoint_entry(number).is_some()
    }

    /// Records that the process of a proxy's endpoint has ended. From then on each rank that it served is
    /// reached by its own endpoint.
    pub(super) fn set_gone(&self, number: u32) {
        if let Some(entry) = self.endpoint_entry(number).filter(|_| number & PROXY != 0) {
            entry.name_bytes.store(GONE, Ordering::Release);
        }
    }

    /// Whether endpoint `number` is that of a proxy that has ended or does not exist. False for a rank's
    /// endpoint.
    #[inline]
    pub fn is_gone(&self, number: u32) -> bool {
        number & PROXY != 0
            && self
                .endpoint_entry(number)
                .is_none_or(|entry| entry.name_bytes.load(Ordering::Acquire) == GONE)
    }

    pub(super) fn endpoint_entry(&self, number: u32) -> Option<&PeerEntry> {
        let ranks = self.shape().ranks;
        let at = match number & PROXY {
            0 => Some(number).filter(|rank| *rank < ranks),
            _ => {
                let all = self.shape().proxies.saturating_mul(self.job().nodes.load(Ordering::Relaxed));
                let proxy = number & !PROXY;
                (proxy < all.min(PROXY_ENDPOINTS)).then(|| ranks + proxy)
            }
        }?;
        Some(self.entry(at))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shm::Shape;

    #[test]
    fn a_proxy_answers_for_its_ranks_until_it_is_gone() {
        let (segment, _fd) = Segment::create(Shape { ranks: 4, proxies: 2, arena_bytes: 1 }).unwrap();
        segment.set_nodes(0, 1, &[0; 4], 1);
        assert!(!segment.proxies_are_servers(), "there is one host");
        segment.set_nodes(1, 2, &[0, 1, 0, 1], 1);
        assert!(segment.proxies_are_servers());
        let [own, other] = [segment.proxy_endpoint(0), segment.server_of(0)];
        assert_eq!((own & !PROXY, other & !PROXY, segment.server_of(2)), (2, 0, other));
        segment.set_endpoint(other, b"there");
        assert_eq!((segment.endpoint(other), segment.endpoint(0)), (Some(b"there".to_vec()), None));
        segment.set_endpoint(other, &[]);
        assert_eq!((segment.server_of(0), segment.server_of(2), segment.endpoint(other)), (0, 2, None));
        assert_eq!(segment.report_endpoints(), [0, 2], "the second proxy of host 0 serves nobody");
        // A number that no host has is no endpoint, and a rank's endpoint is never gone.
        segment.set_endpoint(1, b"here");
        segment.set_endpoint(1, &[]);
        assert_eq!(segment.endpoint(1), Some(b"here".to_vec()));
        assert_eq!(
            [own, other, 3, 4, PROXY | 4].map(|it| segment.is_endpoint(it)),
            [true, true, true, false, false]
        );
        assert!(segment.is_gone(PROXY | 4) && !segment.is_gone(1) && segment.local(PROXY).is_none());
    }
}
