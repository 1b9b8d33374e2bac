// SPDX-License-Identifier: BSD-3-Clause
//! Contact with a peer: its address, whether a packet of it has come, and whether it is lost.

use super::{Net, Peers, Remote, TICK_NS};
use crate::packet::{Header, Sent};
use crate::wire::{ANSWER, GONE, PROBE};
use fabric::Address;

/// How often this process probes a peer of which no packet has come yet.
const ASK_NS: u64 = 20_000_000;

impl Net {
    /// Whether a packet of a peer has come. If not, this process probes the peer now and then and sends
    /// nothing else to it. Else a send could complete although its bytes wait here until the next MPI call,
    /// since a provider connects only while it is called (MPI 5.0, section 3.5, "Progress").
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

    /// Reports to other hosts once this rank's proxy has ended.
    pub(super) fn tell_of_proxy(&mut self) {
        let Some(teller) = &mut self.teller else { return };
        let header = Header { kind: GONE, tag: teller.proxy as i32, context: 0 };
        for number in teller.untold(&self.peers.segment) {
            // A process that cannot be reached will not ask this rank for anything.
            let is_over =
                self.peers.is_lost(number) || self.send(number, false, &header, 0, |_| ()) == Sent::Done;
            self.teller.iter_mut().filter(|_| is_over).for_each(|teller| teller.told.push(number));
        }
    }

    /// The address of a peer, looked up the first time. None if the peer is lost, or its name is not known
    /// yet.
    pub(super) fn resolve(&mut self, number: u32) -> Option<Address> {
        self.peers.lose_if_gone(number);
        match self.peers.get(number) {
            Some(Remote { lost: Some(_), .. }) => None,
            Some(Remote { address: Some(address), .. }) => Some(*address),
            _ => self.connect(number),
        }
    }

    /// The address at which a peer exposes memory, by the name that the peer has sent. None if the peer is
    /// lost.
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

    /// Sends a packet to the endpoint from which this process has read all that it wanted, if the network
    /// would else acknowledge the last bytes late. A TCP sender with BBR takes such a pause for the rate of
    /// the network.
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
            // The segment still has the name of the earlier process.
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
    /// Whether a peer is lost: no packet reaches it any more.
    pub(super) fn is_lost(&self, number: u32) -> bool {
        self.get(number).is_some_and(|peer| peer.lost.is_some())
    }

    /// Takes the provider's report that it failed to deliver to an address. The peer is lost, except on a
    /// young connection, where the packet is sent again.
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

    /// Marks a proxy that has ended as lost. Not every provider reports it: tcp of libfabric 2 tries to
    /// connect again and again, and has no room meanwhile.
    pub(super) fn lose_if_gone(&mut self, number: u32) {
        if self.segment.is_gone(number) {
            self.lose(number, "its process has ended");
        }
    }

    /// Marks a peer as lost. The next poll of a rank that is lost returns the reason as an error.
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
