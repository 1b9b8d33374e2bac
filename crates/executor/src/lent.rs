// SPDX-License-Identifier: BSD-3-Clause
//! A proxy on another computer (a data processing unit): what it knows of the memory of its ranks, which it
//! reaches by RDMA only.
//!
//! Its segment is a mirror of the host's: a rank's record lies there at the offset that it has in the rank's
//! arena, fetched once for each set of parameters. Scratch lies in both: it is read here and written to both.
//! User's buffers lie with the rank alone.
//!
//! Invariants: a rank's memory changes in the order in which a proxy of its host would change it: bytes, the
//! `done` that counts them, the bytes of steps that follow. Nobody else hears of any of it before it has
//! arrived (`settle`). `published` stays here, since a rank that goes on publishes anew.
//!
//! Read next: `caller/lending.rs` (the rank's side), `transport/lend.rs`.

use crate::fault::{Corruption, Fault};
use crate::record::{Field, Head, InstanceRecord};
use std::cell::{RefCell, RefMut};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use sys::{Block, Span};
use transport::lend::{Borrower, Lender, Lent};
use transport::shm::{Arena, LocalRank};

/// Ranges that a rank lends for one instance, at most.
pub(crate) const LENT_MAX: usize = 120;
/// Extents that a rank's arena can have, besides the first, if it is to lend instances.
pub(crate) const EXTENTS_MAX: usize = 64;
/// A rank lends parts of its arena by their offsets, from this address on, which no process has.
pub(crate) const ARENA: u64 = 1 << 62;

/// How a proxy reads and writes what ranks have lent. A trait, because tests simulate it.
pub trait Borrow {
    /// See `Borrower`.
    fn meet(&mut self, rank: u32, name: &[u8], heartbeat: Lent) -> bool;
    /// See `Borrower`.
    fn is_lost(&self, rank: u32) -> bool;
    /// See `Borrower`.
    fn read(&mut self, rank: u32, pieces: &[(Lent, u64, usize)], to: Span) -> bool;
    /// See `Borrower`.
    fn write(&mut self, rank: u32, pieces: &[(Lent, u64, usize)], from: Span) -> bool;
    /// See `Borrower`.
    fn settle(&mut self);
    /// See `Borrower`.
    fn beat(&mut self);
}

impl Borrow for Borrower {
    fn meet(&mut self, rank: u32, name: &[u8], heartbeat: Lent) -> bool {
        Borrower::meet(self, rank, name, heartbeat)
    }

    fn is_lost(&self, rank: u32) -> bool {
        Borrower::is_lost(self, rank)
    }

    fn read(&mut self, rank: u32, pieces: &[(Lent, u64, usize)], to: Span) -> bool {
        Borrower::read(self, rank, pieces, to)
    }

    fn write(&mut self, rank: u32, pieces: &[(Lent, u64, usize)], from: Span) -> bool {
        Borrower::write(self, rank, pieces, from)
    }

    fn settle(&mut self) {
        Borrower::settle(self)
    }

    fn beat(&mut self) {
        Borrower::beat(self)
    }
}

/// How a rank lends memory. A trait, because tests simulate it.
pub trait Lend {
    /// See `Lender`.
    fn name(&self) -> &[u8];
    /// See `Lender`.
    fn lend(&mut self, span: Span) -> Option<Lent>;
    /// See `Lender`.
    fn take_back(&mut self, lent: &Lent);
    /// See `Lender`.
    fn close(&mut self);
}

impl Lend for Lender {
    fn name(&self) -> &[u8] {
        Lender::name(self)
    }

    fn lend(&mut self, span: Span) -> Option<Lent> {
        Lender::lend(self, span)
    }

    fn take_back(&mut self, lent: &Lent) {
        Lender::take_back(self, lent);
    }

    fn close(&mut self) {
        Lender::close(self);
    }
}

/// A rank's proxy on another computer.
pub(crate) struct Lending {
    pub way: Box<dyn Lend>,
    /// The proxy's endpoint.
    pub proxy: u32,
    /// Whether it has answered.
    pub is_welcome: bool,
}

/// The memory that ranks have lent to this proxy.
pub(crate) struct LentMemory {
    way: RefCell<Box<dyn Borrow>>,
    ranks: RefCell<HashMap<LocalRank, Known>>,
}

/// What a rank has said.
#[derive(Default)]
struct Known {
    /// By the offset of the instance's record.
    lent: Vec<(u64, Vec<Lent>)>,
}

impl LentMemory {
    pub fn new(way: Box<dyn Borrow>) -> LentMemory {
        LentMemory { way: RefCell::new(way), ranks: RefCell::default() }
    }

    /// A rank joins; false if what it says makes no sense.
    pub fn meet(&self, rank: LocalRank, name: &[u8], heartbeat: Lent) -> bool {
        self.ranks.borrow_mut().insert(rank, Known::default());
        self.way.borrow_mut().meet(rank.peer(), name, heartbeat)
    }

    /// Whether a rank's memory is out of reach, because it has left or has fenced this proxy.
    pub fn is_lost(&self, rank: LocalRank) -> bool {
        self.way.borrow().is_lost(rank.peer())
    }

    /// A rank lends ranges for the instance whose record lies at `at`. False if it has not joined, or if the
    /// instance has some.
    pub fn bind(&self, rank: LocalRank, at: u64, lent: Vec<Lent>) -> bool {
        let Some(mut known) = self.known(rank) else { return false };
        let is_new = known.lent.iter().all(|(other, _)| *other != at);
        if is_new {
            known.lent.push((at, lent));
        }
        is_new
    }

    /// Nothing is done for the instance any more.
    pub fn release(&self, rank: LocalRank, at: u64) {
        if let Some(mut known) = self.known(rank) {
            known.lent.retain(|(other, _)| *other != at);
        }
    }

    /// The address by which a rank has lent a place in its arena.
    pub fn address(&self, offset: u64) -> Option<u64> {
        (offset < ARENA).then_some(ARENA + offset)
    }

    /// Reads pieces of a rank's memory: addresses in its process, and lengths.
    pub fn read(&self, rank: LocalRank, pieces: &[(usize, usize)], to: Span) -> Result<(), Fault> {
        let places = self.places(rank, pieces)?;
        self.answer(rank, self.way.borrow_mut().read(rank.peer(), &places, to))
    }

    /// Writes pieces of a rank's memory.
    pub fn write(&self, rank: LocalRank, pieces: &[(usize, usize)], from: Span) -> Result<(), Fault> {
        let places = self.places(rank, pieces)?;
        self.answer(rank, self.way.borrow_mut().write(rank.peer(), &places, from))
    }

    /// Copies a part of a rank's arena to the same place of its mirror.
    pub fn pull(&self, rank: LocalRank, mirror: &Arena, at: u64, bytes: u64) -> Result<(), Fault> {
        let outside = Fault::Corrupt { peer: rank.peer(), what: Corruption::Offset };
        if bytes == 0 {
            return Ok(());
        }
        let span = mirror.span(at, bytes).map_err(|_| outside)?;
        let address = self.address(at).ok_or(outside)?;
        self.read(rank, &[(address as usize, bytes as usize)], span)
    }

    /// Writes a step's `done` to the rank, after the bytes that it counts, and before those of steps that
    /// follow.
    pub fn tell(&self, rank: LocalRank, record: &InstanceRecord, step: u32) -> Result<(), Fault> {
        if record.fault().is_some() {
            self.report(rank, record)?;
        }
        let done = record.step(step, Field::Done).load(Ordering::Relaxed);
        self.write_at(rank, record.place(step, Field::Done), &done.to_ne_bytes())
    }

    /// Writes what a send within the host has published to its rank, after the bytes.
    pub fn publish(&self, rank: LocalRank, record: &InstanceRecord, step: u32) -> Result<(), Fault> {
        let published = record.step(step, Field::Published).load(Ordering::Relaxed);
        self.write_at(rank, record.place(step, Field::Published), &published.to_ne_bytes())
    }

    /// Writes to the rank why an instance fails, if it does, and what it took. The rank may have a fault of
    /// its own steps.
    pub fn report(&self, rank: LocalRank, record: &InstanceRecord) -> Result<(), Fault> {
        let first = if record.fault().is_some() { Head::Fault } else { Head::Completed };
        let bytes: Vec<u8> = record.report(first).iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.write_at(rank, record.at() + 8 * first as u64, &bytes)
    }

    /// Writes a record's state, by which the rank knows that nothing more is written.
    pub fn write_state(&self, rank: LocalRank, at: u64, state: u64) -> Result<(), Fault> {
        self.write_at(rank, at.saturating_add(8 * Head::State as u64), &state.to_ne_bytes())
    }

    /// Waits until all that was written has arrived.
    pub fn settle(&self) {
        self.way.borrow_mut().settle();
    }

    /// Shows the ranks that this proxy lives.
    pub fn beat(&self) {
        self.way.borrow_mut().beat();
    }

    fn write_at(&self, rank: LocalRank, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let outside = Fault::Corrupt { peer: rank.peer(), what: Corruption::Offset };
        let address = self.address(offset).ok_or(outside)?;
        self.write(rank, &[(address as usize, bytes.len())], Block::of(bytes).span())
    }

    fn known(&self, rank: LocalRank) -> Option<RefMut<'_, Known>> {
        RefMut::filter_map(self.ranks.borrow_mut(), |ranks| ranks.get_mut(&rank)).ok()
    }

    /// Which of the lent ranges hold these pieces. A fault: none does.
    fn places(&self, rank: LocalRank, pieces: &[(usize, usize)]) -> Result<Vec<(Lent, u64, usize)>, Fault> {
        // EFAULT.
        let not_lent = Fault::Unreachable { peer: rank.peer(), code: 14 };
        let known = self.known(rank).ok_or(not_lent)?;
        let find = |&(address, bytes): &(usize, usize)| {
            let all = known.lent.iter().flat_map(|(_, lent)| lent);
            let place = |lent: &Lent| Some((*lent, lent.find(address as u64, bytes as u64)?, bytes));
            all.filter_map(place).next().ok_or(not_lent)
        };
        pieces.iter().map(find).collect()
    }

    fn answer(&self, rank: LocalRank, is_done: bool) -> Result<(), Fault> {
        // ECONNRESET.
        if is_done { Ok(()) } else { Err(Fault::Unreachable { peer: rank.peer(), code: 104 }) }
    }
}

/// What a rank says first: its endpoint for memory, and where the heartbeat goes.
pub(crate) fn join_words(name: &[u8], heartbeat: &Lent) -> Vec<u64> {
    let mut words = heartbeat.words().to_vec();
    words.push(name.len() as u64);
    words.extend(name.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    }));
    words
}

/// The same, read.
pub(crate) fn read_join(words: &[u64]) -> Option<(Vec<u8>, Lent)> {
    let (heartbeat, rest) = words.split_at_checked(Lent::WORDS)?;
    let heartbeat = Lent::from_words(heartbeat)?;
    let (&bytes, name) = rest.split_first()?;
    let mut name: Vec<u8> = name.iter().flat_map(|word| word.to_ne_bytes()).collect();
    if bytes > name.len() as u64 || heartbeat.bytes < 8 {
        return None;
    }
    name.truncate(bytes as usize);
    Some((name, heartbeat))
}

/// What a rank says to have an instance driven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The record's stamp, and the numbers of its program and parameters.
    pub stamp: u64,
    pub program: u64,
    pub version: u64,
    pub steps: u32,
    /// Where the extents of the rank's arena end, which the mirror has alike.
    pub extents: Vec<u64>,
    pub lent: Vec<Lent>,
}

impl Launch {
    pub fn words(&self) -> Vec<u64> {
        let mut words = vec![self.stamp, self.program, self.version, self.steps.into()];
        words.push(self.extents.len() as u64);
        words.extend(&self.extents);
        words.extend(self.lent.iter().flat_map(Lent::words));
        words
    }

    pub fn read(words: &[u64]) -> Option<Launch> {
        let (&[stamp, program, version, steps, extents], rest) = words.split_first_chunk()?;
        let extents = usize::try_from(extents).ok().filter(|count| *count <= EXTENTS_MAX)?;
        let (extents, rest) = rest.split_at_checked(extents)?;
        let lent: Option<Vec<Lent>> = rest.chunks(Lent::WORDS).map(Lent::from_words).collect();
        let lent = lent.filter(|lent| lent.len() <= LENT_MAX)?;
        Some(Launch {
            stamp,
            program,
            version,
            steps: steps.try_into().ok()?,
            extents: extents.to_vec(),
            lent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(address: u64) -> Lent {
        Lent { address, bytes: 8, key: 5, base: 0 }
    }

    #[test]
    fn orders_come_back_and_nonsense_is_none() {
        let joined = (b"an endpoint".to_vec(), lent(64));
        let words = join_words(&joined.0, &joined.1);
        assert_eq!(read_join(&words), Some(joined));
        for cut in 0..words.len() {
            assert_eq!(read_join(&words[..cut]), None, "{cut} words");
        }
        let (stamp, program, version, steps) = (1, 2, 3, 4);
        let launch =
            Launch { stamp, program, version, steps, extents: vec![5, 6], lent: vec![lent(8), lent(16)] };
        let words = launch.words();
        assert_eq!(Launch::read(&words), Some(launch));
        for cut in [0, 3, 4, 6, 8, 14] {
            assert_eq!(Launch::read(&words[..cut]), None, "{cut} words");
        }
        assert_eq!(Launch::read(&[1, 2, 3, 1 << 32, 0]), None);
        // A range that leads beyond the end of all addresses.
        assert_eq!(Launch::read(&[1, 2, 3, 4, 0, u64::MAX, 8, 0, 0]), None);
        let many = |extents: usize, lents: usize| {
            let (extents, lent) = (vec![1; extents], vec![lent(8); lents]);
            Launch::read(&Launch { stamp, program, version, steps, extents, lent }.words())
        };
        assert!(many(EXTENTS_MAX, LENT_MAX).is_some());
        assert!(many(EXTENTS_MAX + 1, 0).is_none() && many(0, LENT_MAX + 1).is_none());
        assert_eq!(Launch::read(&[1, 2, 3, 4, u64::MAX]), None);
    }
}
