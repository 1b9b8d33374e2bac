// SPDX-License-Identifier: BSD-3-Clause
//! Simulates memory that ranks export to proxies on other computers. Writes arrive late, but in their order.
//! A read takes effect after the writes before it, and at times after those that follow. What a rank has
//! revoked cannot be reached any more.

use crate::{Export, Import};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use sys::Span;
use sys::remote;
use transport::export::ExportedRange;
use transport::pending_read::{PendingRead, ReadHandle};
use transport::shm::Segment;

/// For each key, the exported range, and the rank that exports it.
pub type Keys = Rc<RefCell<HashMap<u64, (u32, ExportedRange)>>>;

pub struct RankMemory {
    pub rank: u32,
    pub keys: Keys,
}

impl Export for RankMemory {
    fn name(&self) -> &[u8] {
        b"memory"
    }

    fn export(&mut self, span: Span) -> Option<ExportedRange> {
        let mut keys = self.keys.borrow_mut();
        // Revoked keys are not used again.
        let key = keys.keys().max().unwrap_or(&0) + 1 + u64::from(self.rank);
        let range =
            ExportedRange { address: span.address() as u64, bytes: span.bytes() as u64, key, base: 7 };
        keys.insert(key, (self.rank, range));
        // The latest key stays known.
        keys.insert(key + 10, (u32::MAX, ExportedRange::default()));
        Some(range)
    }

    fn revoke(&mut self, range: &ExportedRange) {
        self.keys.borrow_mut().remove(&range.key);
    }

    fn close(&mut self) {
        let mut keys = self.keys.borrow_mut();
        keys.values_mut().filter(|key| key.0 == self.rank).for_each(|key| key.0 = u32::MAX);
    }
}

/// An access of a proxy to a rank's memory. Each variant begins with the rank's number.
pub enum SimulatedAccess {
    Write(u32, ExportedRange, u64, Vec<u8>),
    Read(u32, Vec<(ExportedRange, u64, usize)>, ReadHandle),
    Announce(u32),
}

pub struct ProxyMemory {
    pub keys: Keys,
    /// The host's segment, in which ranks see announcements.
    pub segment: Segment,
    pub under_way: VecDeque<SimulatedAccess>,
    pub lost: HashSet<u32>,
    pub met: HashSet<u32>,
    pub turn: u32,
    /// Three numbers of accesses: those that have started, those that have ended, and those that must have
    /// ended before `is_settled` returns true.
    pub counts: [u64; 3],
}

impl ProxyMemory {
    pub fn new(keys: &Keys, segment: &Segment) -> ProxyMemory {
        let (under_way, lost, met) = Default::default();
        ProxyMemory {
            keys: keys.clone(),
            segment: segment.clone(),
            under_way,
            lost,
            met,
            turn: 0,
            counts: [0; 3],
        }
    }

    /// Returns the address of the `bytes` bytes at the offset `at` of an exported range. None if rank `rank`
    /// does not export the range any more.
    fn reaches(&mut self, rank: u32, range: ExportedRange, at: u64, bytes: u64) -> Option<usize> {
        let known = self.keys.borrow().get(&range.key).copied();
        assert!(known.is_some(), "a proxy accesses what rank {rank} has taken back after an operation");
        let Some((_, known)) = known.filter(|known| known.0 == rank && !self.is_lost(rank)) else {
            self.lost.insert(rank);
            return None;
        };
        assert_eq!((known.bytes, known.base), (range.bytes, range.base));
        assert!(at + bytes <= range.bytes, "an access outside of what was exported");
        Some((known.address + at) as usize)
    }

    fn start(&mut self, access: SimulatedAccess) {
        self.counts[0] += 1;
        self.under_way.push_back(access);
    }

    /// Returns a pseudo-random number from 0 to 15.
    fn random(&mut self) -> u32 {
        self.turn = self.turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.turn >> 28
    }

    fn deliver(&mut self, count: usize) {
        for _ in 0..count.min(self.under_way.len()) {
            let is_read = matches!(self.under_way[0], SimulatedAccess::Read(..));
            let at = usize::from(is_read && self.under_way.len() > 1 && self.random() < 8);
            self.counts[1] += 1;
            match self.under_way.remove(at).expect("an access") {
                SimulatedAccess::Write(rank, range, at, bytes) => {
                    if let Some(address) = self.reaches(rank, range, at, bytes.len() as u64) {
                        let from = sys::Block::of(&bytes);
                        remote::write(sys::process::id(), &[(address, bytes.len())], &[from.span()]).unwrap();
                    }
                }
                SimulatedAccess::Read(rank, pieces, handle) => {
                    let mut done = 0;
                    for (range, at, bytes) in pieces {
                        let Some(address) = self.reaches(rank, range, at, bytes as u64) else {
                            handle.fail();
                            break;
                        };
                        let block = sys::Block::new(bytes);
                        remote::read(sys::process::id(), &[(address, bytes)], &[block.span()]).unwrap();
                        handle.store(done, block.span());
                        done += bytes;
                    }
                }
                SimulatedAccess::Announce(rank) => {
                    let rank = self.segment.local(rank).expect("a rank of this host");
                    crate::proxy::announced(self.segment.rank(rank));
                }
            }
        }
    }
}

impl Import for ProxyMemory {
    fn add_rank(&mut self, rank: u32, name: &[u8], _: ExportedRange) -> bool {
        self.met.insert(rank);
        name == b"memory"
    }

    fn remove_rank(&mut self, rank: u32) {
        self.met.remove(&rank);
    }

    fn is_lost(&self, rank: u32) -> bool {
        self.lost.contains(&rank) || !self.met.contains(&rank)
    }

    fn read(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)], to: Span) -> bool {
        self.deliver(usize::MAX);
        let mut done = 0;
        for &(range, at, bytes) in pieces {
            let Some(address) = self.reaches(rank, range, at, bytes as u64) else { return false };
            remote::read(sys::process::id(), &[(address, bytes)], &[to.slice(done, bytes)]).unwrap();
            done += bytes;
        }
        true
    }

    fn write(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)], from: Span) -> bool {
        let mut done = 0;
        for &(range, at, bytes) in pieces {
            let mut copy = vec![0; bytes];
            from.slice(done, bytes).read(&mut copy);
            self.start(SimulatedAccess::Write(rank, range, at, copy));
            done += bytes;
        }
        self.poll();
        !self.is_lost(rank)
    }

    fn announce(&mut self, rank: u32) {
        self.start(SimulatedAccess::Announce(rank));
    }

    fn start_read(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)]) -> PendingRead {
        let (read, handle) = PendingRead::new(pieces.iter().map(|piece| piece.2).sum());
        self.start(SimulatedAccess::Read(rank, pieces.to_vec(), handle));
        read
    }

    fn finish_reads(&mut self, _: u32, _: &[ExportedRange]) {
        self.deliver(usize::MAX);
    }

    fn start_settling(&mut self) {
        self.counts[2] = self.counts[0];
    }

    fn is_settled(&mut self) -> bool {
        self.counts[1] >= self.counts[2]
    }

    fn poll(&mut self) {
        let count = self.random() as usize / 4;
        self.deliver(count);
    }

    /// Delivers one access that is under way. A real proxy shows here that it lives, while the simulation
    /// reports deaths in another way.
    fn beat(&mut self) {
        self.deliver(1);
    }
}
