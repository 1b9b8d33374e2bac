// SPDX-License-Identifier: BSD-3-Clause
//! The way to a peer: where it is, and whether it has been heard.

use super::{Net, Peers, Remote, TICK_NS};
use crate::packet::{Header, Sent};
use crate::wire::{ANSWER, GONE, PROBE};
use fabric::Address;

/// How often a peer is asked that has not been heard yet.
const ASK_NS: u64 = 20_000_000;

impl Net {
    /// Whether a peer has been heard. If not, it is asked now and then, and nothing else goes to it: a send
    /// would be over, and its bytes wait here until this process calls MPI again, as a provider connects
    /// in its caller's time (MPI 5.0, section 3.5, "Progress").
    pub(super) fn is_met(&mut self, number: u32) -> bool {
        let peer = self.peers.at(number);
        if peer.is_heard {
            return true;
        }
        let now = sys::clock::now();
        if now >= peer.asked_next {
            if !std::mem::replace(&mut peer.is_open, true) {
                self.peers.open.push(number);
            }
            let is_asked = self.send_loose(number, Header { kind: PROBE, tag: 0, context: 0 });
            self.peers.at(number).asked_next = now + if is_asked { ASK_NS } else { TICK_NS };
        }
        false
    }

    /// Tells other hosts once this rank's proxy has ended.
    pub(super) fn tell_of_proxy(&mut self) {
        let Some(teller) = &mut self.teller else { return };
        let header = Header { kind: GONE, tag: teller.proxy as i32, context: 0 };
        for number in teller.untold(&self.peers.segment) {
            // A process that cannot be reached does not ask.
            let is_over =
                self.peers.is_lost(number) || self.send(number, false, &header, 0, |_| ()) == Sent::Done;
            self.teller.iter_mut().filter(|_| is_over).for_each(|teller| teller.told.push(number));
        }
    }

    /// Where a peer is; the first time, looked up. Nothing if it is lost, or if its address has not come yet.
    pub(super) fn resolve(&mut self, number: u32) -> Option<Address> {
        self.peers.lose_if_gone(number);
        match self.peers.get(number) {
            Some(Remote { lost: Some(_), .. }) => None,
            Some(Remote { address: Some(address), .. }) => Some(*address),
            _ => self.connect(number),
        }
    }

    /// Where a peer that is not lost exposes memory, by the name that it has said.
    pub(crate) fn target(&mut self, number: u32, name: &[u8]) -> Option<Address> {
        self.peers.lose_if_gone(number);
        self.peers.address(number)?;
        if let Some(address) = self.targets.get(name) {
            return Some(*address);
        }
        let address = self.endpoint.insert(name).ok()?;
        self.targets.insert(name.into(), address);
        Some(address)
    }

    /// Sends a packet to where this process has read all that it wanted, if the network acknowledges the last
    /// bytes late without one. With BBR a sender takes such a pause for the rate of the network.
    pub(crate) fn acknowledge(&mut self, number: u32, name: &[u8]) {
        if self.endpoint.has_target_packets()
            && let Some(target) = self.target(number, name)
        {
            self.send_loose_to(target, number, Header { kind: ANSWER, tag: 0, context: 0 });
        }
    }

    #[cold]
    fn connect(&mut self, number: u32) -> Option<Address> {
        let generation = self.peers.at(number).generation;
        if generation > self.peers.segment.generation(number) {
            // The name is still that of the process before.
            return None;
        }
        let name = self.peers.segment.endpoint(number)?;
        let inserted = self.endpoint.insert(&name);
        match inserted {
            Ok(address) => self.peers.at(number).address = Some(address),
            Err(error) => self.peers.lose(number, &error.message),
        }
        self.peers.address(number)
    }
}

impl Peers {
    /// Whether nothing reaches a peer any more.
    pub(super) fn is_lost(&self, number: u32) -> bool {
        self.get(number).is_some_and(|peer| peer.lost.is_some())
    }

    /// A provider has failed to deliver to an address. On a young connection the packet leaves again.
    pub(super) fn undelivered(&mut self, to: Address, said: &str) {
        let is_there =
            |peer: &Option<Box<Remote>>| peer.as_ref().is_some_and(|peer| peer.address == Some(to));
        if let Some(place) = self.all.iter().position(is_there) {
            let number = self.number(place);
            if !self.at(number).sequence.keeps() {
                self.lose(number, said);
            }
        }
    }

    /// A proxy that has ended takes nothing. Not every provider says so: tcp of libfabric 2 connects again
    /// and again, and has no room meanwhile.
    pub(super) fn lose_if_gone(&mut self, number: u32) {
        if self.segment.is_gone(number) {
            self.lose(number, "its process has ended");
        }
    }

    /// Nothing reaches a peer any more; who polls it is told.
    pub(super) fn lose(&mut self, number: u32, why: &str) {
        let (is_rank, now) = (self.place(number) < self.ranks, self.now);
        let peer = self.at(number);
        if peer.lost.is_none() {
            peer.lost = Some((now, why.to_owned()));
            peer.fault = Some(why.to_owned());
            if is_rank && !std::mem::replace(&mut peer.is_writer, true) {
                self.arrivals.push(number);
            }
        }
    }
}
