// SPDX-License-Identifier: BSD-3-Clause
//! The memory of ranks that a proxy on another computer (a DPU) has imported, and reaches by RDMA.
//!
//! The proxy's segment mirrors the host's. A rank's record lies there at its offset in the rank's arena, and
//! the proxy fetches it once for each set of parameters. Scratch buffers lie in the rank's arena and in the
//! mirror: the proxy reads the mirror, and writes both. The user's buffers lie in the rank's memory alone.
//!
//! Invariants: a rank's memory changes in the order in which a proxy of its host would change it: bytes, the
//! `done` that counts them, the bytes of steps that follow. The rank learns of the changes by an announcement
//! that follows them, other processes only when the changes have arrived (`is_settled`). `published` stays in
//! the mirror: a rank that drives the instance on publishes anew.
//!
//! Read next: `caller/export.rs` (what the rank does), `transport/import.rs`.

use crate::fault::{Corruption, Fault};
use crate::note::{to_bytes, to_words};
use crate::record::{Field, Head, InstanceRecord};
use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use sys::{Block, Span};
use transport::export::{ExportedRange, Exporter};
use transport::import::Importer;
use transport::pending_read::PendingRead;
use transport::shm::{Arena, LocalRank};

/// The most ranges of memory that a rank exports to a proxy on another computer for one instance.
pub(crate) const RANGES_MAX: usize = 120;
/// The most extents (parts that are mapped as a whole) that a rank's arena may have besides the first. A rank
/// with more extents exports no instances.
pub(crate) const EXTENTS_MAX: usize = 64;
/// The most bytes of a user's buffers that travel in a note, so that its receiver need not fetch them. In
/// tests it is so small that some buffers are longer.
pub(crate) const VALUES_BYTES_MAX: usize = if cfg!(test) { 32 } else { 256 };
/// The first of the addresses under which a rank exports parts of its arena: each is `ARENA` plus an offset
/// in the arena. No memory of a process has such addresses.
pub(crate) const ARENA: u64 = 1 << 62;

/// How a proxy reads and writes what ranks have exported. This is a trait because tests simulate it.
pub trait Import {
    /// Adds a rank, whose exporter's endpoint has the name `name`. `heartbeat` is the rank's word to which
    /// `beat` writes. Returns false if the name is not valid (`Importer::add_rank`).
    fn add_rank(&mut self, rank: u32, name: &[u8], heartbeat: ExportedRange) -> bool;
    /// Gives up the connection to a rank that is about to end (`Importer::remove_rank`).
    fn remove_rank(&mut self, rank: u32);
    /// Whether the memory of a rank is out of reach for good (`Importer::is_lost`).
    fn is_lost(&self, rank: u32) -> bool;
    /// Reads parts of a rank's exported memory into `to`, one after the other. Each element of `pieces` is an
    /// exported range, the offset in it, and the length in bytes. Returns false if the rank is lost
    /// (`Importer::read`).
    fn read(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)], to: Span) -> bool;
    /// Writes the bytes `from` to parts of a rank's exported memory, one after the other. Each element of
    /// `pieces` is an exported range, the offset in it, and the length in bytes. Returns false if the rank is
    /// lost (`Importer::write`).
    fn write(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)], from: Span) -> bool;
    /// Makes a rank look at what this proxy has written to the rank's memory before (`Importer::announce`).
    fn announce(&mut self, rank: u32);
    /// Starts to read parts of a rank's exported memory. Each element of `pieces` is an exported range, the
    /// offset in it, and the length in bytes. The returned read holds their bytes, one after the other
    /// (`Importer::start_read`).
    fn start_read(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)]) -> PendingRead;
    /// Waits until no read of these ranges of a rank is under way (`Importer::finish_reads`).
    fn finish_reads(&mut self, rank: u32, ranges: &[ExportedRange]);
    /// Starts a check whether all writes to ranks so far have arrived. `is_settled` returns true once they
    /// have (`Importer::start_settling`).
    fn start_settling(&mut self);
    /// Whether all writes to ranks before the last `start_settling` have arrived (`Importer::is_settled`).
    fn is_settled(&mut self) -> bool;
    /// Handles the reads and writes of ranks' memory that have ended (`Importer::poll`).
    fn poll(&mut self);
    /// Shows all ranks that this proxy lives (`Importer::beat`).
    fn beat(&mut self);
}

impl Import for Importer {
    fn add_rank(&mut self, rank: u32, name: &[u8], heartbeat: ExportedRange) -> bool {
        Importer::add_rank(self, rank, name, heartbeat)
    }

    fn remove_rank(&mut self, rank: u32) {
        Importer::remove_rank(self, rank)
    }

    fn is_lost(&self, rank: u32) -> bool {
        Importer::is_lost(self, rank)
    }

    fn read(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)], to: Span) -> bool {
        Importer::read(self, rank, pieces, to)
    }

    fn write(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)], from: Span) -> bool {
        Importer::write(self, rank, pieces, from)
    }

    fn announce(&mut self, rank: u32) {
        Importer::announce(self, rank)
    }

    fn start_read(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)]) -> PendingRead {
        Importer::start_read(self, rank, pieces)
    }

    fn finish_reads(&mut self, rank: u32, ranges: &[ExportedRange]) {
        Importer::finish_reads(self, rank, ranges)
    }

    fn start_settling(&mut self) {
        Importer::start_settling(self)
    }

    fn is_settled(&mut self) -> bool {
        Importer::is_settled(self)
    }

    fn poll(&mut self) {
        if !Importer::poll(self) && self.is_reading() {
            // The exporter's thread, or another proxy, may need this core.
            sys::cpu::yield_cpu();
        }
    }

    fn beat(&mut self) {
        Importer::beat(self)
    }
}

/// How a rank exports memory. This is a trait because tests simulate it.
pub trait Export {
    /// Returns the name of the endpoint at which a proxy reaches this rank's memory (`Exporter::name`).
    fn name(&self) -> &[u8];
    /// Exports the memory `span`. Returns its key and address, or None if the exporter refuses it
    /// (`Exporter::export`).
    fn export(&mut self, span: Span) -> Option<ExportedRange>;
    /// Takes back the access to an exported range (`Exporter::revoke`).
    fn revoke(&mut self, range: &ExportedRange);
    /// Takes back the access to all exported ranges, for good (`Exporter::close`).
    fn close(&mut self);
}

impl Export for Exporter {
    fn name(&self) -> &[u8] {
        Exporter::name(self)
    }

    fn export(&mut self, span: Span) -> Option<ExportedRange> {
        Exporter::export(self, span)
    }

    fn revoke(&mut self, range: &ExportedRange) {
        Exporter::revoke(self, range);
    }

    fn close(&mut self) {
        Exporter::close(self);
    }
}

/// What a rank knows about its proxy on another computer.
pub(crate) struct RemoteProxy {
    pub exporter: Box<dyn Export>,
    /// The number of the proxy's endpoint, to which the rank sends notes (fixed-size messages).
    pub endpoint: u32,
    /// Whether the proxy has confirmed that this rank has joined.
    pub is_welcome: bool,
}

/// The memory of ranks on another computer. This proxy may read and write the parts that the ranks have
/// exported.
pub(crate) struct ImportedMemory {
    importer: RefCell<Box<dyn Import>>,
    ranks: RefCell<HashMap<LocalRank, RankExports>>,
    /// The ranks that the next `announce_all` must tell that their memory was written.
    unannounced: RefCell<HashSet<LocalRank>>,
}

/// The ranges and values that one rank has exported, by instance.
#[derive(Default)]
struct RankExports {
    exports: Vec<InstanceExport>,
}

/// The ranges and values that a rank has exported for one instance.
struct InstanceExport {
    /// The offset of the instance's record in the rank's arena.
    at: u64,
    ranges: Vec<ExportedRange>,
    values: Vec<InlineValue>,
}

/// A user's buffer of a few bytes that no step changes: its address in the rank's process, and a copy of the
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InlineValue {
    pub address: u64,
    pub bytes: Vec<u8>,
}

impl InlineValue {
    /// Returns the `bytes` bytes at the address `address` of the rank's process. None if this value does not
    /// hold them all.
    fn find(&self, (address, bytes): (usize, usize)) -> Option<&[u8]> {
        let at = usize::try_from((address as u64).checked_sub(self.address)?).ok()?;
        self.bytes.get(at..at.checked_add(bytes)?)
    }
}

impl ImportedMemory {
    pub fn new(importer: Box<dyn Import>) -> ImportedMemory {
        let (ranks, unannounced) = Default::default();
        ImportedMemory { importer: RefCell::new(importer), ranks, unannounced }
    }

    /// Adds a rank that joins, whose exporter's endpoint has the name `name`. `heartbeat` is the rank's word
    /// for this proxy's heartbeat. Returns false if the name is not valid.
    pub fn add_rank(&self, rank: LocalRank, name: &[u8], heartbeat: ExportedRange) -> bool {
        self.ranks.borrow_mut().insert(rank, RankExports::default());
        self.importer.borrow_mut().add_rank(rank.peer(), name, heartbeat)
    }

    /// Gives up the connection to a rank that is about to end, and forgets what it has exported.
    pub fn remove_rank(&self, rank: LocalRank) {
        self.ranks.borrow_mut().remove(&rank);
        self.importer.borrow_mut().remove_rank(rank.peer());
    }

    /// Whether a rank's memory is out of reach, because the rank has left or has fenced this proxy.
    pub fn is_lost(&self, rank: LocalRank) -> bool {
        self.importer.borrow().is_lost(rank.peer())
    }

    /// Adds the ranges and values that a rank exports for the instance whose record lies at `at`. Returns
    /// false, and adds nothing, if the rank has not joined or the instance was added before.
    pub fn add_instance(&self, rank: LocalRank, at: u64, submission: &Submission) -> bool {
        let Some(mut known) = self.exports_of(rank) else { return false };
        let is_new = known.exports.iter().all(|export| export.at != at);
        if is_new {
            known.exports.push(InstanceExport {
                at,
                ranges: submission.ranges.clone(),
                values: submission.values.clone(),
            });
        }
        is_new
    }

    /// Forgets the copied values of an instance, once the user may change the buffers that they come from. A
    /// later instance may have the same buffers with other bytes.
    pub fn forget_values(&self, rank: LocalRank, at: u64) {
        if let Some(mut known) = self.exports_of(rank) {
            known
                .exports
                .iter_mut()
                .filter(|export| export.at == at)
                .for_each(|export| export.values.clear());
        }
    }

    /// Forgets the ranges of an instance that has ended.
    pub fn remove_instance(&self, rank: LocalRank, at: u64) {
        if let Some(mut known) = self.exports_of(rank) {
            known.exports.retain(|export| export.at != at);
        }
    }

    /// Returns the address at which a rank exports the byte at an offset in its arena. None if the offset is
    /// too large.
    pub fn address(&self, offset: u64) -> Option<u64> {
        (offset < ARENA).then_some(ARENA + offset)
    }

    /// Reads parts of a rank's memory into `to`, one after the other. Each element of `pieces` is an address
    /// in the rank's process and a length in bytes.
    pub fn read(&self, rank: LocalRank, pieces: &[(usize, usize)], to: Span) -> Result<(), Fault> {
        if let &[piece] = pieces
            && self.with_value(rank, piece, |value| to.write(value))
        {
            return Ok(());
        }
        let places = self.find_ranges(rank, pieces)?;
        self.check_reached(rank, self.importer.borrow_mut().read(rank.peer(), &places, to))
    }

    /// Starts to read a part of a rank's memory. `piece` is its address in the rank's process and its length
    /// in bytes. The returned read holds the bytes.
    pub fn start_read(&self, rank: LocalRank, piece: (usize, usize)) -> Result<PendingRead, Fault> {
        let (read, handle) = PendingRead::new(piece.1);
        if self.with_value(rank, piece, |value| handle.store(0, Block::of(value).span())) {
            return Ok(read);
        }
        Ok(self.importer.borrow_mut().start_read(rank.peer(), &self.find_ranges(rank, &[piece])?))
    }

    /// Calls `with` with the bytes at `piece` (an address in the rank's process and a length) if a copy of
    /// these bytes came in the note that submitted the operation. Returns false if no copy came.
    fn with_value(&self, rank: LocalRank, piece: (usize, usize), with: impl FnOnce(&[u8])) -> bool {
        let Some(known) = self.exports_of(rank) else { return false };
        let mut values = known.exports.iter().flat_map(|export| &export.values);
        values.find_map(|value| value.find(piece)).map(with).is_some()
    }

    /// Writes the bytes `from` to parts of a rank's memory, one after the other. Each element of `pieces` is
    /// an address in the rank's process and a length in bytes.
    pub fn write(&self, rank: LocalRank, pieces: &[(usize, usize)], from: Span) -> Result<(), Fault> {
        let places = self.find_ranges(rank, pieces)?;
        self.check_reached(rank, self.importer.borrow_mut().write(rank.peer(), &places, from))
    }

    /// Copies a part of a rank's arena to the same offset in the mirror.
    pub fn pull(&self, rank: LocalRank, mirror: &Arena, at: u64, bytes: u64) -> Result<(), Fault> {
        let outside = Fault::Corrupt { peer: rank.peer(), what: Corruption::Offset };
        if bytes == 0 {
            return Ok(());
        }
        let span = mirror.span(at, bytes).map_err(|_| outside)?;
        let address = self.address(at).ok_or(outside)?;
        self.read(rank, &[(address as usize, bytes as usize)], span)
    }

    /// Writes a step's `done` word to the rank. The bytes that it counts arrive before it, the bytes of later
    /// steps after it.
    pub fn write_done(&self, rank: LocalRank, record: &InstanceRecord, step: u32) -> Result<(), Fault> {
        if record.fault().is_some() {
            self.write_report(rank, record)?;
        }
        let done = record.step(step, Field::Done).load(Ordering::Relaxed);
        self.write_at(rank, record.offset_of(step, Field::Done), &done.to_ne_bytes())
    }

    /// Writes the `published` word of a send within the host to the rank, after the bytes that it counts.
    pub fn write_published(&self, rank: LocalRank, record: &InstanceRecord, step: u32) -> Result<(), Fault> {
        let published = record.step(step, Field::Published).load(Ordering::Relaxed);
        self.write_at(rank, record.offset_of(step, Field::Published), &published.to_ne_bytes())
    }

    /// Writes the instance's fault and the proxy's times to the rank. Without a fault here it writes only the
    /// times, so that it does not overwrite a fault of the rank's own steps.
    pub fn write_report(&self, rank: LocalRank, record: &InstanceRecord) -> Result<(), Fault> {
        let first = if record.fault().is_some() { Head::Fault } else { Head::Completed };
        let bytes: Vec<u8> = record.words_from(first).iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.write_at(rank, record.at() + 8 * first as u64, &bytes)
    }

    /// Writes the word `Claim` of a message's receive to the rank, before the first byte of the message.
    pub fn write_claim(&self, rank: LocalRank, record: &InstanceRecord) -> Result<(), Fault> {
        let claim = record.head(Head::Claim).load(Ordering::Relaxed);
        self.write_at(rank, record.at() + 8 * Head::Claim as u64, &claim.to_ne_bytes())
    }

    /// Waits until no read of the ranges that a rank exports for an instance is under way. Some reads can
    /// still be under way although the operation does not need them, after its receiver has withdrawn or
    /// failed.
    pub fn finish_reads(&self, rank: LocalRank, at: u64) {
        if let Some(known) = self.exports_of(rank)
            && let Some(export) = known.exports.iter().find(|export| export.at == at)
        {
            self.importer.borrow_mut().finish_reads(rank.peer(), &export.ranges);
        }
    }

    /// Writes the `State` word of a record to the rank. After `LOCAL` nothing more is read or written in the
    /// user's buffers, and after `COMPLETE` nothing of the instance.
    pub fn write_state(&self, rank: LocalRank, at: u64, state: u64) -> Result<(), Fault> {
        self.write_at(rank, at.saturating_add(8 * Head::State as u64), &state.to_ne_bytes())
    }

    /// Adds `rank` to the ranks that the next `announce_all` tells to look at their instances.
    pub fn announce(&self, rank: LocalRank) {
        self.unannounced.borrow_mut().insert(rank);
    }

    /// Tells the ranks for which `announce` was called that their memory was written, so that they look at
    /// their instances. Then forgets these ranks.
    pub fn announce_all(&self) {
        let mut importer = self.importer.borrow_mut();
        self.unannounced.borrow_mut().drain().for_each(|rank| importer.announce(rank.peer()));
    }

    /// Starts a check whether all writes to ranks so far have arrived. `is_settled` returns true once they
    /// have.
    pub fn start_settling(&self) {
        self.importer.borrow_mut().start_settling();
    }

    /// Whether all writes to ranks before the last `start_settling` have arrived.
    pub fn is_settled(&self) -> bool {
        self.importer.borrow_mut().is_settled()
    }

    /// Handles the reads and writes of ranks' memory that have ended.
    pub fn poll(&self) {
        self.importer.borrow_mut().poll();
    }

    /// Shows the ranks that this proxy lives.
    pub fn beat(&self) {
        self.importer.borrow_mut().beat();
    }

    fn write_at(&self, rank: LocalRank, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let outside = Fault::Corrupt { peer: rank.peer(), what: Corruption::Offset };
        let address = self.address(offset).ok_or(outside)?;
        self.write(rank, &[(address as usize, bytes.len())], Block::of(bytes).span())
    }

    fn exports_of(&self, rank: LocalRank) -> Option<RefMut<'_, RankExports>> {
        RefMut::filter_map(self.ranks.borrow_mut(), |ranks| ranks.get_mut(&rank)).ok()
    }

    /// Returns, for each element of `pieces` (an address and a length), the exported range that holds it, the
    /// offset in that range, and the length. Errors: the rank has exported no such memory.
    fn find_ranges(
        &self,
        rank: LocalRank,
        pieces: &[(usize, usize)],
    ) -> Result<Vec<(ExportedRange, u64, usize)>, Fault> {
        // EFAULT.
        let not_exported = Fault::Unreachable { peer: rank.peer(), code: 14 };
        let known = self.exports_of(rank).ok_or(not_exported)?;
        let find = |&(address, bytes): &(usize, usize)| {
            let all = known.exports.iter().flat_map(|export| &export.ranges);
            let place =
                |range: &ExportedRange| Some((*range, range.find(address as u64, bytes as u64)?, bytes));
            all.filter_map(place).next().ok_or(not_exported)
        };
        pieces.iter().map(find).collect()
    }

    fn check_reached(&self, rank: LocalRank, is_done: bool) -> Result<(), Fault> {
        // ECONNRESET.
        if is_done { Ok(()) } else { Err(Fault::Unreachable { peer: rank.peer(), code: 104 }) }
    }
}

/// Makes the words that follow a note of kind `Join`: the name of the endpoint of the rank's exporter, and
/// the range to which the proxy writes its heartbeat.
pub(crate) fn join_words(name: &[u8], heartbeat: &ExportedRange) -> Vec<u64> {
    let mut words = heartbeat.words().to_vec();
    words.push(name.len() as u64);
    words.extend(to_words(name));
    words
}

/// Decodes words that `join_words` has made. Returns None for other words.
pub(crate) fn read_join(words: &[u64]) -> Option<(Vec<u8>, ExportedRange)> {
    let (heartbeat, rest) = words.split_at_checked(ExportedRange::WORDS)?;
    let heartbeat = ExportedRange::from_words(heartbeat)?;
    let (&bytes, name) = rest.split_first()?;
    if bytes > 8 * name.len() as u64 || heartbeat.bytes < 8 {
        return None;
    }
    Some((to_bytes(name, bytes as usize), heartbeat))
}

/// What a rank tells its proxy on another computer when it gives the proxy an instance: the words that follow
/// a note of kind `Submit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Submission {
    /// The stamp of the instance's record: how often the record was used, and the operation's number.
    pub stamp: u64,
    /// The number of the rank's program (its stored schedule).
    pub program: u64,
    /// The version number of the parameters with which the instance was started.
    pub version: u64,
    pub steps: u32,
    /// The offsets at which the extents of the rank's arena end. The proxy's mirror of the arena has the same
    /// extents.
    pub extents: Vec<u64>,
    pub values: Vec<InlineValue>,
    pub ranges: Vec<ExportedRange>,
}

impl Submission {
    pub fn words(&self) -> Vec<u64> {
        let mut words = vec![self.stamp, self.program, self.version, self.steps.into()];
        words.push(self.extents.len() as u64);
        words.extend(&self.extents);
        words.push(self.values.len() as u64);
        for value in &self.values {
            words.extend([value.address, value.bytes.len() as u64]);
            words.extend(to_words(&value.bytes));
        }
        words.extend(self.ranges.iter().flat_map(ExportedRange::words));
        words
    }

    pub fn read(words: &[u64]) -> Option<Submission> {
        let (&[stamp, program, version, steps, extents], rest) = words.split_first_chunk()?;
        let extents = usize::try_from(extents).ok().filter(|count| *count <= EXTENTS_MAX)?;
        let (extents, rest) = rest.split_at_checked(extents)?;
        let (&count, mut rest) = rest.split_first()?;
        let mut values = Vec::new();
        for _ in 0..count {
            let (&[address, bytes], after) = rest.split_first_chunk()?;
            let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= VALUES_BYTES_MAX)?;
            let (words, after) = after.split_at_checked(bytes.div_ceil(8))?;
            values.push(InlineValue { address, bytes: to_bytes(words, bytes) });
            rest = after;
        }
        let ranges: Option<Vec<ExportedRange>> =
            rest.chunks(ExportedRange::WORDS).map(ExportedRange::from_words).collect();
        let ranges = ranges.filter(|ranges| ranges.len() <= RANGES_MAX)?;
        Some(Submission {
            stamp,
            program,
            version,
            steps: steps.try_into().ok()?,
            extents: extents.to_vec(),
            values,
            ranges,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: u64) -> ExportedRange {
        ExportedRange { address, bytes: 8, key: 5, base: 0 }
    }

    #[test]
    fn orders_come_back_and_nonsense_is_none() {
        let joined = (b"an endpoint".to_vec(), range(64));
        let words = join_words(&joined.0, &joined.1);
        assert_eq!(read_join(&words), Some(joined));
        for cut in 0..words.len() {
            assert_eq!(read_join(&words[..cut]), None, "{cut} words");
        }
        let (stamp, program, version, steps) = (1, 2, 3, 4);
        let values = vec![
            InlineValue { address: 64, bytes: vec![7; 11] },
            InlineValue { address: 5, bytes: Vec::new() },
        ];
        let submission = Submission {
            stamp,
            program,
            version,
            steps,
            extents: vec![5, 6],
            values,
            ranges: vec![range(8), range(16)],
        };
        let words = submission.words();
        assert_eq!(Submission::read(&words), Some(submission));
        for cut in [0, 3, 4, 6, 7, 8, 10, 12, 13, 20] {
            assert_eq!(Submission::read(&words[..cut]), None, "{cut} words");
        }
        assert_eq!(Submission::read(&[1, 2, 3, 1 << 32, 0]), None);
        // A range that ends beyond the last address.
        assert_eq!(Submission::read(&[1, 2, 3, 4, 0, 0, u64::MAX, 8, 0, 0]), None);
        // A value that is longer than any.
        let long = [&[1, 2, 3, 4, 0, 1, 64, 1 + VALUES_BYTES_MAX as u64][..], &[0; 64]].concat();
        assert_eq!(Submission::read(&long), None);
        let many = |extents: usize, count: usize| {
            let (extents, values, ranges) = (vec![1; extents], Vec::new(), vec![range(8); count]);
            Submission::read(&Submission { stamp, program, version, steps, extents, values, ranges }.words())
        };
        assert!(many(EXTENTS_MAX, RANGES_MAX).is_some());
        assert!(many(EXTENTS_MAX + 1, 0).is_none() && many(0, RANGES_MAX + 1).is_none());
        assert_eq!(Submission::read(&[1, 2, 3, 4, u64::MAX]), None);
    }
}
