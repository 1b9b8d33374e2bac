//! Packets about edges of collectives, and peers that can carry none any more.

use super::{Held, Peers, Remote};
use crate::packet::Header;
use std::collections::VecDeque;

/// How long the news that a process has ended may take to come, in nanoseconds.
const BROKEN_NS: u64 = 10_000_000_000;

impl Peers {
    /// The next packet about an edge.
    pub(crate) fn take_edge(&mut self) -> Option<(u32, Header, Held)> {
        while let Some(&number) = self.edged.last() {
            let peer = self.at(number);
            let next = peer.edges.pop_front();
            if peer.edges.is_empty() {
                peer.is_edged = false;
                self.edged.pop();
            }
            if let Some((header, packet)) = next {
                return Some((number, header, packet));
            }
        }
        None
    }

    /// Why a peer is lost, if that has lasted although its process has not ended.
    pub(crate) fn broken(&self) -> Option<String> {
        let now = sys::clock::now();
        let lasts = |(place, peer): (usize, &Option<Box<Remote>>)| {
            let (since, why) = peer.as_ref()?.lost.as_ref()?;
            let is_over = now.saturating_sub(*since) > BROKEN_NS;
            (is_over && !self.segment.is_gone(self.number(place))).then(|| why.clone())
        };
        self.all.iter().enumerate().find_map(lasts)
    }
}

impl Remote {
    /// Where a packet waits.
    pub(super) fn queue(&mut self, header: &Header) -> &mut VecDeque<(Header, Held)> {
        if header.is_edge() { &mut self.edges } else { &mut self.inbox }
    }
}
