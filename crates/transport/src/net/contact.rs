// SPDX-License-Identifier: BSD-3-Clause
//! Contact with a peer: its address, whether a packet of it has come, and whether it is lost.

use super::{Net, PeerRecord, Peers, TICK_NS};
use crate::packet::{Header, Sent};
use crate::wire::{ANSWER, GONE, PROBE};
use fabric::Address;

/// How often this process probes a peer from which no packet has come yet, in nanoseconds.
const PROBE_NS: u64 = 20_000_000;

impl Net {
    /// Whether a packet from a peer has come. Until then this process sends the peer only probes. A provider
    /// makes a connection only while this process calls it. Without the connection, the bytes of a completed
    /// send could wait here until the next MPI call (MPI 5.0, section 3.5, "Progress").
    pub(super) fn is_in_contact(&mut self, number: u32) -> bool {
        let peer = self.peers.at(number);
        if peer.has_sent {
            return true;
        }
        let now = sys::clock::now();
        if now >= peer.next_probe {
            if !std::mem::replace(&mut peer.is_unsettled, true) {
                self.peers.unsettled.push(number);
            }
            let has_left = self.send_unnumbered(number, Header { kind: PROBE, tag: 0, context: 0 });
            self.peers.at(number).next_probe = now + if has_left { PROBE_NS } else { TICK_NS };
        }
        false
    }

    /// Sends other hosts the report that this rank's proxy has ended. Does so only once the proxy has ended.
    pub(super) fn report_proxy_end(&mut self) {
        let Some(reports) = &mut self.proxy_end_reports else { return };
        let header = Header { kind: GONE, tag: reports.proxy as i32, context: 0 };
        for number in reports.unreported(&self.peers.segment) {
            // A process that cannot be reached will not ask this rank for anything.
            let is_over =
                self.peers.is_lost(number) || self.send(number, false, &header, 0, |_| ()) == Sent::Done;
            self.proxy_end_reports
                .iter_mut()
                .filter(|_| is_over)
                .for_each(|reports| reports.reported.push(number));
        }
    }

    /// Returns the address of a peer's endpoint, which the first call looks up by the endpoint's name.
    /// Returns None if the name is not known yet, or the peer is lost.
    pub(super) fn resolve(&mut self, number: u32) -> Option<Address> {
        self.peers.lose_if_gone(number);
        match self.peers.get(number) {
            Some(PeerRecord { lost: Some(_), .. }) => None,
            Some(PeerRecord { address: Some(address), .. }) => Some(*address),
            _ => self.connect(number),
        }
    }

    /// Returns the address at which a peer exposes memory, looked up by the endpoint's name that the peer has
    /// sent. Returns None if the peer is lost.
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

    /// Sends a packet to the endpoint whose memory this process has finished reading, so that the endpoint
    /// soon learns that the last bytes have come. Needed only on some networks: a TCP sender with the BBR
    /// algorithm takes a late acknowledgement for a slow network.
    pub(crate) fn acknowledge(&mut self, number: u32, name: &[u8]) {
        if self.endpoint.has_target_packets()
            && let Some(target) = self.target(number, name)
        {
            self.send_unnumbered_to(target, number, Header { kind: ANSWER, tag: 0, context: 0 });
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

    /// Handles the provider's report that a packet to address `to` was not delivered. The peer is then lost,
    /// unless this process still stores copies of the packets to the peer: then the copy is sent again.
    pub(super) fn undelivered(&mut self, to: Address, said: &str) {
        let is_there =
            |peer: &Option<Box<PeerRecord>>| peer.as_ref().is_some_and(|peer| peer.address == Some(to));
        if let Some(index) = self.all.iter().position(is_there) {
            let number = self.number(index);
            if !self.at(number).sequence.stores_copies() {
                self.lose(number, said);
            }
        }
    }

    /// Marks a proxy as lost if it has ended. Not every provider reports such an end: tcp of libfabric 2
    /// tries to connect again and again, and takes no packets meanwhile.
    pub(super) fn lose_if_gone(&mut self, number: u32) {
        if self.segment.is_gone(number) {
            self.lose(number, "its process has ended");
        }
    }

    /// Marks a peer as lost, for the reason `why`. The next `Net::take` from that peer returns the reason as
    /// an error.
    pub(super) fn lose(&mut self, number: u32, why: &str) {
        let (is_rank, now) = (self.index(number) < self.ranks, self.now);
        let peer = self.at(number);
        if peer.lost.is_none() {
            peer.lost = Some((now, why.to_owned()));
            peer.unreported_loss = Some(why.to_owned());
            if is_rank && !std::mem::replace(&mut peer.is_in_arrivals, true) {
                self.arrivals.push(number);
            }
        }
    }
}
