// SPDX-License-Identifier: BSD-3-Clause
//! The way to a peer: where it is, and whether it has been heard.

use super::{Net, Remote, TICK_NS};
use crate::packet::Header;
use crate::wire::{ANSWER, PROBE};
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

    /// Where a peer is; the first time, looked up. Nothing if it is lost, or if its address has not come yet.
    pub(super) fn resolve(&mut self, number: u32) -> Option<Address> {
        match self.peers.get(number) {
            Some(Remote { lost: Some(_), .. }) => None,
            Some(Remote { address: Some(address), .. }) => Some(*address),
            _ => self.connect(number),
        }
    }

    /// Where a peer that is not lost exposes memory, by the name that it has said.
    pub(crate) fn target(&mut self, number: u32, name: &[u8]) -> Option<Address> {
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
