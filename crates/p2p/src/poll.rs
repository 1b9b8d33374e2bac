// SPDX-License-Identifier: BSD-3-Clause
//! Progress: takes packets of all peers, sends packets that wait, and reads peers' memory.

use crate::consume::{PostedQueue, Tally};
use crate::state::{Connection, P2p, connection};
use error::{Error, Result};

/// The most packets that one poll takes from one peer before it goes on to the next peer.
const PACKETS_PER_PEER: usize = 32;

impl P2p {
    /// Makes progress: takes packets of all peers, sends packets that wait, and reads a part of a long
    /// message from a peer's memory. Returns whether anything was done.
    #[inline]
    pub fn poll(&mut self) -> Result<bool> {
        self.post_deferred();
        let mut fault = self.note_writers();
        let mut moved = false;
        for i in 0..self.writers.len() {
            match self.take_packets(self.writers[i]) {
                Ok(taken) => moved |= taken,
                Err(error) => fault = fault.and(Err(error)),
            }
        }
        if !self.blocked.is_empty() {
            moved |= self.flush_blocked();
        }
        if !self.matcher.fallbacks.is_empty() {
            self.matcher.fall_back_to_reading();
        }
        if self.matcher.pulls_open > 0 {
            moved |= self.advance_pulls();
        }
        moved |= self.advance_read();
        fault.map(|()| moved)
    }

    /// Adds to `writers` the peers that have now written to this process for the first time, and connects to
    /// them.
    #[inline]
    pub(crate) fn note_writers(&mut self) -> Result<()> {
        let before = self.writers.len();
        self.reach.arrivals(|peer| self.writers.push(peer));
        if self.writers.len() > before { self.connect_writers(before) } else { Ok(()) }
    }

    /// Connects to the peers in `writers` from index `first` on. Removes a peer from the list if `connect`
    /// fails, and returns that error. If a peer is twice in the list, a new process has the peer's number by
    /// now.
    #[cold]
    fn connect_writers(&mut self, first: usize) -> Result<()> {
        let mut fault = Ok(());
        for i in (first..self.writers.len()).rev() {
            let number = self.writers[i];
            self.renew(number);
            if self.writers[..i].contains(&number) {
                self.writers.swap_remove(i);
            }
        }
        for i in (first..self.writers.len()).rev() {
            if let Err(error) = self.connect(self.writers[i]) {
                self.writers.swap_remove(i);
                fault = Err(error);
            }
        }
        fault
    }

    #[inline]
    pub(crate) fn take_packets(&mut self, number: u32) -> Result<bool> {
        let peer = connection(&mut self.peers, number);
        let Connection { route, lane } = peer;
        let mut fault = Ok(());
        let mut tally = Tally::default();
        let mut taken = 0;
        while taken < PACKETS_PER_PEER && fault.is_ok() {
            let polled = route.poll(|header, payload| {
                fault = self.matcher.consume(lane, header, payload, &mut PostedQueue, &mut tally).map(|_| ());
            });
            match polled {
                Ok(true) => taken += 1,
                Ok(false) => break,
                Err(error) => fault = Err(named(number, error)),
            }
        }
        if taken == 0 {
            return fault.map(|()| false);
        }
        tally.count_and_return_credit(&self.matcher, &mut peer.route);
        peer.give_credit_back();
        if peer.lane.has_work() && !peer.lane.blocked {
            self.flush(number);
        }
        fault.map(|()| true)
    }

    /// Sends what it can to the peers in `blocked`, for which packets wait. Returns whether any packet has
    /// left.
    #[cold]
    fn flush_blocked(&mut self) -> bool {
        let mut moved = false;
        for i in (0..self.blocked.len()).rev() {
            let peer = connection(&mut self.peers, self.blocked[i]);
            moved |= peer.flush(&mut self.matcher);
            if !peer.lane.has_work() {
                peer.lane.blocked = false;
                self.blocked.swap_remove(i);
            }
        }
        moved
    }
}

/// Adds the peer's number to the sentence of an error that the peer's packets have caused.
#[cold]
fn named(peer: u32, mut error: Error) -> Error {
    error.message = format!("peer {peer}: {}", error.message);
    error
}
