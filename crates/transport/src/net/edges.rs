// SPDX-License-Identifier: BSD-3-Clause
//! Packets about edges of collectives, and peers that can carry none any more.

use super::{Held, Peers, Remote};
use crate::packet::Header;
use std::collections::VecDeque;

/// Packets without an answer beyond which no more bytes of edges leave. What a peer must know soon, such as
/// that an operation has ended, would wait behind them: a network of 1 Gbit/s takes 4 ms for these.
const WINDOW: u32 = 8;
/// A longer payload has bytes of an edge, not only a note about it.
const NOTE_BYTES_MAX: usize = 256;

/// The bit of a pull's token that says that it is for an edge.
pub(crate) const EDGE_PULL: u64 = 1 << 63;

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

    /// A pull has ended.
    pub(super) fn pull_ended(&mut self, token: u64, is_there: bool) {
        match token & EDGE_PULL {
            0 => self.pulled.push((token, is_there)),
            _ => self.pulled_edges.push((token as u32, is_there)),
        }
    }

    /// Whether a packet about an edge may leave.
    pub(crate) fn has_window(&self, number: u32, bytes: usize) -> bool {
        let in_flight = |peer: &Remote| peer.sequence.in_flight();
        bytes <= NOTE_BYTES_MAX || self.get(number).map_or(0, in_flight) < WINDOW
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
    /// Whether an answer to a packet is wanted, so that the window of edges moves on. Packets the other way
    /// mostly have answered before.
    pub(super) fn moves_window(&self, header: &Header, number: u32) -> bool {
        header.is_edge() && number.is_multiple_of(WINDOW / 4) && self.sequence.in_flight() >= WINDOW / 2
    }

    /// Where a packet waits.
    pub(super) fn queue(&mut self, header: &Header) -> &mut VecDeque<(Header, Held)> {
        if header.is_edge() { &mut self.edges } else { &mut self.inbox }
    }
}
