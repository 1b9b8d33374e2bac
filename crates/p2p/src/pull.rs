// SPDX-License-Identifier: BSD-3-Clause
//! Pulls: receives whose network reads the message in the sender's memory (by RDMA, where the provider has
//! it).
//!
//! The sender exposes its buffer from the offer on until the send ends. The receiver reads the buffer in
//! parts by a few reads at a time, which may end in any order, and then sends TAKEN. If a read fails, the
//! receiver waits for the other reads, asks for the whole message in packets, and never pulls from this peer
//! again.
//!
//! Reads are short and few: over tcp the bytes of one read and the request of another, in the opposite
//! direction, share one connection, and the request would wait behind the bytes.
//!
//! Invariant: a receive that pulls does not end before all its reads have ended.

use crate::lane::OutgoingPacket;
use crate::request::{FINAL_ATTEMPT, PIECES_MAX, Pulling, Request, RequestStage};
use crate::state::{Matcher, P2p, connection};
use telemetry::Counter;
use transport::route::{Pull, RemoteRange, Route};

impl Request {
    /// Returns the range in which the network of a peer can read the memory of this send; the first call
    /// exposes it. Returns None if the message is shorter than `bytes_min` or has gaps, or if the route has
    /// no such reads.
    pub(crate) fn expose(&mut self, route: &Route, bytes_min: usize) -> Option<RemoteRange> {
        let stretch = self.data.stretch().filter(|stretch| stretch.bytes() >= bytes_min.max(1))?;
        let exposed = &mut self.sending().exposed;
        if exposed.is_none() {
            *exposed = route.expose(stretch).map(Box::new);
        }
        exposed.as_ref().map(|exposed| exposed.remote_range())
    }
}

impl Matcher {
    /// Starts network reads for the receive `ours`, until `PIECES_MAX` reads are under way or all bytes are
    /// asked for. Returns false if the route has no room for another read.
    fn start_pulls(&mut self, route: &mut Route, ours: u64) -> bool {
        let request = self.requests.get_mut(ours).expect("a receive that pulls is known");
        let into = request.data.stretch().expect("only a buffer without gaps is pulled into");
        let RequestStage::Pulling(pulling) = &mut request.stage else { unreachable!("it pulls") };
        while pulling.wants_more() {
            let Some(own) = &pulling.own else {
                pulling.own = route.expose(into.slice(0, pulling.end as usize));
                pulling.has_failed = pulling.own.is_none();
                continue;
            };
            let bytes = pulling.left().min(self.pull_piece_bytes as u64) as usize;
            let to = into.slice(pulling.next as usize, bytes);
            match route.pull(pulling.far, pulling.next, to, own, ours) {
                Pull::Full => return false,
                Pull::Never => pulling.has_failed = true,
                Pull::Started => {
                    (pulling.next, pulling.under_way) = (pulling.next + bytes as u64, pulling.under_way + 1)
                }
            }
        }
        true
    }
}

impl P2p {
    /// Handles the network reads that have ended, for all receives, and starts further reads. Returns whether
    /// any read has ended or started.
    #[cold]
    pub(crate) fn advance_pulls(&mut self) -> bool {
        let mut ended = Vec::new();
        self.reach.pulled(|ours, is_done| ended.push((ours, is_done)));
        let mut moved = !ended.is_empty();
        for (ours, is_done) in ended {
            let request = self.matcher.requests.get_mut(ours).expect("it waits for its reads");
            let RequestStage::Pulling(pulling) = &mut request.stage else { unreachable!("it pulls") };
            let could_not = pulling.under_way == PIECES_MAX;
            pulling.under_way -= 1;
            pulling.has_failed |= !is_done;
            if could_not && pulling.wants_more() {
                self.matcher.pulling.push_back(ours);
            }
            self.end_pull(ours);
        }
        for _ in 0..self.matcher.pulling.len() {
            let Some(ours) = self.matcher.pulling.pop_front() else { break };
            // The receive may have ended since, by a read that failed.
            let Some(Request { stage: RequestStage::Pulling(pulling), .. }) = self.matcher.requests.get(ours)
            else {
                continue;
            };
            let before = pulling.left();
            let peer = connection(&mut self.peers, pulling.peer);
            if !self.matcher.start_pulls(&mut peer.route, ours) {
                self.matcher.pulling.push_back(ours);
            }
            moved |= self.left_to_pull(ours) != before;
            moved |= self.end_pull(ours);
        }
        moved
    }

    fn left_to_pull(&self, ours: u64) -> u64 {
        match self.matcher.requests.get(ours) {
            Some(Request { stage: RequestStage::Pulling(pulling), .. }) => pulling.left(),
            _ => 0,
        }
    }

    /// Ends the receive `ours` if the network has read all its bytes. If a read has failed, asks for the
    /// bytes in packets instead. Returns false if reads are still under way, or are to be started.
    fn end_pull(&mut self, ours: u64) -> bool {
        let Some(Request { stage, outcome, .. }) = self.matcher.requests.get_mut(ours) else { return false };
        let RequestStage::Pulling(pulling) = stage else { return false };
        let Pulling { peer, theirs, end, under_way, has_failed, .. } = **pulling;
        if under_way > 0 || !has_failed && pulling.left() > 0 {
            return false;
        }
        self.matcher.pulls_open -= 1;
        let lane = &mut connection(&mut self.peers, peer).lane;
        if has_failed {
            lane.unreadable = true;
            *stage = RequestStage::Filling { peer, theirs, attempt: FINAL_ATTEMPT, next: 0, end };
            lane.push(OutgoingPacket::Ask { theirs, ours, attempt: FINAL_ATTEMPT, next: 0, end });
        } else {
            debug_assert!(outcome.source_peer == peer);
            self.matcher.counters.count(Counter::PulledBytes, end);
            lane.push(OutgoingPacket::Taken { theirs });
            self.matcher.chooser.end_fetch();
            self.matcher.complete(ours);
        }
        self.flush(peer);
        true
    }
}
