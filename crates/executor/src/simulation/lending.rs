// SPDX-License-Identifier: BSD-3-Clause
//! Memory that ranks of a simulated job lend to proxies on other computers: writes arrive later, in their
//! order; what a rank takes back is out of reach from then on.

use crate::{Borrow, Lend};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use sys::Span;
use sys::remote;
use transport::lend::Lent;

/// The ranges that are lent, by key: of which rank.
pub type Keys = Rc<RefCell<HashMap<u64, (u32, Lent)>>>;

pub struct RankMemory {
    pub rank: u32,
    pub keys: Keys,
}

impl Lend for RankMemory {
    fn name(&self) -> &[u8] {
        b"memory"
    }

    fn lend(&mut self, span: Span) -> Option<Lent> {
        let mut keys = self.keys.borrow_mut();
        // Those that were taken back are not used again.
        let key = keys.keys().max().unwrap_or(&0) + 1 + u64::from(self.rank);
        let lent = Lent { address: span.address() as u64, bytes: span.bytes() as u64, key, base: 7 };
        keys.insert(key, (self.rank, lent));
        // The latest key stays known.
        keys.insert(key + 10, (u32::MAX, Lent::default()));
        Some(lent)
    }

    fn take_back(&mut self, lent: &Lent) {
        self.keys.borrow_mut().remove(&lent.key);
    }

    fn close(&mut self) {
        self.keys.borrow_mut().retain(|_, (rank, _)| *rank != self.rank);
    }
}

type Write = (u32, Lent, u64, Vec<u8>);

pub struct ProxyMemory {
    pub keys: Keys,
    pub under_way: VecDeque<Write>,
    pub lost: HashSet<u32>,
    pub met: HashSet<u32>,
    pub turn: u32,
}

impl ProxyMemory {
    pub fn new(keys: &Keys) -> ProxyMemory {
        let (under_way, lost, met) = Default::default();
        ProxyMemory { keys: keys.clone(), under_way, lost, met, turn: 0 }
    }

    /// Where a piece of what was lent lies, if it still is; the rank may have given it another address.
    fn reaches(&mut self, rank: u32, lent: Lent, at: u64, bytes: u64) -> Option<usize> {
        let known = self.keys.borrow().get(&lent.key).copied();
        let Some((_, known)) = known.filter(|known| known.0 == rank && !self.is_lost(rank)) else {
            self.lost.insert(rank);
            return None;
        };
        assert_eq!((known.bytes, known.base), (lent.bytes, lent.base));
        assert!(at + bytes <= lent.bytes, "an access outside of what was lent");
        Some((known.address + at) as usize)
    }

    fn deliver(&mut self, writes: usize) {
        for (rank, lent, at, bytes) in
            self.under_way.drain(..writes.min(self.under_way.len())).collect::<Vec<_>>()
        {
            if let Some(address) = self.reaches(rank, lent, at, bytes.len() as u64) {
                let from = sys::Block::of(&bytes);
                remote::write(sys::process::id(), &[(address, bytes.len())], &[from.span()]).unwrap();
            }
        }
    }
}

impl Borrow for ProxyMemory {
    fn meet(&mut self, rank: u32, name: &[u8], _: Lent) -> bool {
        self.met.insert(rank);
        name == b"memory"
    }

    fn is_lost(&self, rank: u32) -> bool {
        self.lost.contains(&rank) || !self.met.contains(&rank)
    }

    fn read(&mut self, rank: u32, pieces: &[(Lent, u64, usize)], to: Span) -> bool {
        self.deliver(usize::MAX);
        let mut done = 0;
        for &(lent, at, bytes) in pieces {
            let Some(address) = self.reaches(rank, lent, at, bytes as u64) else { return false };
            remote::read(sys::process::id(), &[(address, bytes)], &[to.slice(done, bytes)]).unwrap();
            done += bytes;
        }
        true
    }

    fn write(&mut self, rank: u32, pieces: &[(Lent, u64, usize)], from: Span) -> bool {
        let mut done = 0;
        for &(lent, at, bytes) in pieces {
            let mut copy = vec![0; bytes];
            from.slice(done, bytes).read(&mut copy);
            self.under_way.push_back((rank, lent, at, copy));
            done += bytes;
        }
        self.turn = self.turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.deliver((self.turn >> 28) as usize / 4);
        !self.is_lost(rank)
    }

    fn settle(&mut self) {
        self.deliver(usize::MAX);
    }

    // Deaths are told otherwise here.
    fn beat(&mut self) {}
}
