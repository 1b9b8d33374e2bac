// SPDX-License-Identifier: BSD-3-Clause
//! Moving on everything that can move.

use crate::consume::{Queue, Tally};
use crate::state::{Connection, P2p, known};
use error::{Error, Result};

/// Packets taken from one peer before the next one's turn.
const PACKETS_PER_PEER: usize = 32;

impl P2p {
    /// Takes packets, sends what waits, reads a piece of a long message. Returns whether anything moved.
    #[inline]
    pub fn poll(&mut self) -> Result<bool> {
        self.settle();
        let mut fault = self.greet();
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
            self.matcher.lose_patience();
        }
        if self.matcher.pulls_open > 0 {
            moved |= self.advance_pulls();
        }
        moved |= self.advance_read();
        fault.map(|()| moved)
    }

    /// Notes peers that have written for the first time.
    #[inline]
    pub(crate) fn greet(&mut self) -> Result<()> {
        let before = self.writers.len();
        self.reach.arrivals(|peer| self.writers.push(peer));
        if self.writers.len() > before { self.connect_writers(before) } else { Ok(()) }
    }

    /// A peer that cannot be connected is not looked at again: its ring has another reader. One that is
    /// looked at already is another process, which has the place of the one before.
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
        let peer = known(&mut self.peers, number);
        let Connection { route, lane } = peer;
        let mut fault = Ok(());
        let mut tally = Tally::default();
        let mut taken = 0;
        while taken < PACKETS_PER_PEER && fault.is_ok() {
            let polled = route.poll(|header, payload| {
                fault = self.matcher.consume(lane, header, payload, &mut Queue, &mut tally).map(|_| ());
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
        tally.settle(&self.matcher, &mut peer.route);
        peer.give_credit_back();
        if peer.lane.has_work() && !peer.lane.blocked {
            self.flush(number);
        }
        fault.map(|()| true)
    }

    /// Tries again where packets wait.
    #[cold]
    fn flush_blocked(&mut self) -> bool {
        let mut moved = false;
        for i in (0..self.blocked.len()).rev() {
            let peer = known(&mut self.peers, self.blocked[i]);
            moved |= peer.flush(&mut self.matcher);
            if !peer.lane.has_work() {
                peer.lane.blocked = false;
                self.blocked.swap_remove(i);
            }
        }
        moved
    }
}

/// Names the peer in an error.
#[cold]
fn named(peer: u32, mut error: Error) -> Error {
    error.message = format!("peer {peer}: {}", error.message);
    error
}
