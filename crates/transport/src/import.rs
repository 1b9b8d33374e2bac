// SPDX-License-Identifier: BSD-3-Clause
//! The memory that ranks have exported, as a proxy on another computer reaches it.
//!
//! The proxy's `Importer` reads and writes exported ranges by their keys, through staging buffers.
//!
//! Invariants: writes to one rank arrive in their order (FI_ORDER_WAW), before an announcement that follows
//! them (FI_ORDER_SAW), and before a read that follows them (FI_ORDER_RAW), by which `start_settling` learns
//! that they have arrived. An importer never again accesses a rank that it could not reach once.
//!
//! Read next: `export.rs`, by which a rank exports memory.

use crate::export::{ExportedRange, endpoint};
use crate::pending_read::{PendingRead, ReadHandle};
use crate::shm::Segment;
use error::Result;
use fabric::{Address, Endpoint, Event, ProviderChoice, Region, RemoteMemory, Sent};
use std::collections::{HashMap, HashSet};
use sys::{Block, Span};

/// The length of a staging buffer, through which an importer reads and writes, in bytes.
const STAGING_BYTES: usize = 64 << 10;
/// The number of an importer's staging buffers. Each read or write uses one while it is under way.
const STAGING: usize = 48;
/// How long a read or write of a rank's memory may take, in nanoseconds, before the rank counts as lost.
const SILENCE_NS: u64 = 5_000_000_000;

/// What the importer does with a part of a rank's memory.
#[derive(Clone, Copy)]
enum Access<'a> {
    /// Reads bytes of the rank's memory, as a part of the read with this handle. The numbers are the offset
    /// of the part in that read, and its length in bytes.
    Read(&'a ReadHandle, usize, usize),
    /// Writes the bytes of this span of the proxy's memory to the rank's memory.
    Write(Span),
}

/// A read or a write of a rank's memory that is under way and uses a staging buffer.
struct UnderWay {
    rank: u32,
    /// The key of the range that is read or written.
    key: u64,
    /// The address of the rank's exporter when the read or write started. Another process may have the rank's
    /// number by now.
    peer: Address,
    /// When the read or write started, in nanoseconds of `sys::clock::now`.
    since: u64,
    /// The handle of the read, the offset in the read to which the staging buffer's bytes go, and the number
    /// of these bytes. None for a write.
    read: Option<(ReadHandle, usize, usize)>,
}

/// A proxy's endpoint, by which it reads and writes the memory that ranks have exported.
pub struct Importer {
    endpoint: Endpoint,
    region: Region,
    staging: Block,
    /// The numbers of the staging buffers that are not in use.
    free: Vec<u32>,
    /// For each staging buffer, the read or write that uses it. None if the buffer is not in use.
    under_way: Vec<Option<UnderWay>>,
    /// For each rank, its exporter's address, and the range to which the importer writes its heartbeat.
    ranks: HashMap<u32, (Address, ExportedRange)>,
    /// The count that the last heartbeat wrote into the memory of the ranks.
    heartbeat: u64,
    /// When the last heartbeat was written, in nanoseconds of `sys::clock::now`.
    beaten: u64,
    /// The time between two heartbeats, in nanoseconds.
    beat_ns: u64,
    /// The ranks with writes that may not have arrived yet.
    written: HashSet<u32>,
    /// For each rank to which bytes were written before `start_settling`: the read that ends only after those
    /// writes have arrived.
    settling: Vec<(u32, PendingRead)>,
    lost: HashSet<u32>,
}

impl Importer {
    /// Opens the importer's endpoint. `beat_ns` is the time between two heartbeats, in nanoseconds. Errors
    /// (MPI_ERR_OTHER, MPI_ERR_NO_MEM): the endpoint cannot be opened.
    pub fn open(segment: &Segment, wanted: &ProviderChoice, beat_ns: u64) -> Result<Importer> {
        let mut endpoint = endpoint(segment, wanted, STAGING)?;
        let staging = Block::new(STAGING * STAGING_BYTES);
        // SAFETY: the block lives as long as the region, in one value.
        let region = unsafe { endpoint.register(staging.span()) }?;
        Ok(Importer {
            endpoint,
            region,
            staging,
            free: (0..STAGING as u32).collect(),
            under_way: (0..STAGING).map(|_| None).collect(),
            ranks: HashMap::new(),
            heartbeat: 0,
            beaten: 0,
            beat_ns,
            written: HashSet::new(),
            settling: Vec::new(),
            lost: HashSet::new(),
        })
    }

    /// Adds a rank. `name` is the name of the endpoint of the rank's exporter, and `heartbeat` the word to
    /// which this importer writes its heartbeat. Returns false if the name is not valid.
    pub fn add_rank(&mut self, rank: u32, name: &[u8], heartbeat: ExportedRange) -> bool {
        let Ok(address) = self.endpoint.insert(name) else { return false };
        self.lost.remove(&rank);
        self.written.remove(&rank);
        self.ranks.insert(rank, (address, heartbeat));
        true
    }

    /// Removes a rank whose process is about to end. To reach an ended process again and again would keep the
    /// other ranks waiting.
    pub fn remove_rank(&mut self, rank: u32) {
        self.ranks.remove(&rank);
    }

    /// Whether a rank's memory is out of reach, because a read or write of it has failed, or because the rank
    /// was not added or has been removed.
    pub fn is_lost(&self, rank: u32) -> bool {
        self.lost.contains(&rank) || !self.ranks.contains_key(&rank)
    }

    /// Reads parts of a rank's memory into `to`, one after the other. Each element of `pieces` is an exported
    /// range, the offset in it, and the length in bytes; `to` has room for all. Returns false if the rank is
    /// lost.
    pub fn read(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)], to: Span) -> bool {
        let handle = ReadHandle::new(to);
        self.start(rank, pieces, &handle);
        let has_all = self.wait(|_| handle.has_all().is_some(), rank) && handle.has_all() == Some(true);
        // What arrives later is stored nowhere.
        handle.fail();
        has_all
    }

    /// Starts a read like `read`, but does not wait for its end. The bytes go to memory of the returned
    /// `PendingRead`.
    pub fn start_read(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)]) -> PendingRead {
        let (read, handle) = PendingRead::new(pieces.iter().map(|piece| piece.2).sum());
        self.start(rank, pieces, &handle);
        read
    }

    /// Waits until no read of these ranges of a rank is under way, so that the rank may revoke the ranges.
    /// Such a read can be under way although its caller has dropped it.
    pub fn finish_reads(&mut self, rank: u32, ranges: &[ExportedRange]) {
        let of_ranges = |one: &UnderWay| ranges.iter().any(|range| range.key == one.key);
        let is_read = |one: &UnderWay| one.rank == rank && one.read.is_some() && of_ranges(one);
        self.wait(|this| !this.under_way.iter().flatten().any(is_read), rank);
    }

    /// Starts the parts of a read. If the rank is lost, the read fails.
    fn start(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)], handle: &ReadHandle) {
        let mut done = 0;
        for &(range, at, bytes) in pieces {
            for begin in (0..bytes).step_by(STAGING_BYTES) {
                let part = (bytes - begin).min(STAGING_BYTES);
                let access = Access::Read(handle, done + begin, part);
                if !self.access(rank, range, at + begin as u64, access) {
                    return handle.fail();
                }
            }
            done += bytes;
        }
    }

    /// Writes the bytes `from` to parts of a rank's memory. Each element of `pieces` is an exported range,
    /// the offset in it, and the length in bytes. The bytes may arrive after this returns: `is_settled` says
    /// when they have. Returns false if the rank is lost.
    pub fn write(&mut self, rank: u32, pieces: &[(ExportedRange, u64, usize)], from: Span) -> bool {
        let mut done = 0;
        for &(range, at, bytes) in pieces {
            for begin in (0..bytes).step_by(STAGING_BYTES) {
                let from = from.slice(done + begin, (bytes - begin).min(STAGING_BYTES));
                if !self.access(rank, range, at + begin as u64, Access::Write(from)) {
                    return false;
                }
                self.written.insert(rank);
            }
            done += bytes;
        }
        true
    }

    /// Starts a check whether all writes so far have arrived: reads a byte of each rank written to, since a
    /// read takes effect after the writes before it. `is_settled` returns true once all these reads have
    /// ended.
    pub fn start_settling(&mut self) {
        for rank in std::mem::take(&mut self.written) {
            if let Some(&(_, heartbeat)) = self.ranks.get(&rank) {
                let read = self.start_read(rank, &[(heartbeat, 0, 1)]);
                self.settling.push((rank, read));
            }
        }
    }

    /// Whether all writes before the last `start_settling` have arrived, except writes to lost ranks.
    pub fn is_settled(&mut self) -> bool {
        let Importer { settling, lost, .. } = self;
        settling.retain(|(rank, read)| read.bytes().is_none() && !lost.contains(rank));
        settling.is_empty()
    }

    /// Makes a rank look at what was written to its memory before: a packet of one byte follows the writes.
    /// Does nothing if the rank is lost.
    pub fn announce(&mut self, rank: u32) {
        self.attempt(rank, |this| this.endpoint.send(this.ranks[&rank].0, 1, |span| span.clear()));
    }

    /// Writes the heartbeat to all ranks if `beat_ns` has passed since the last one. A wait for one rank
    /// calls this, too, so that the other ranks see that this process lives.
    pub fn beat(&mut self) {
        let now = sys::clock::now();
        if now - self.beaten < self.beat_ns {
            return;
        }
        (self.beaten, self.heartbeat) = (now, self.heartbeat + 1);
        self.lose_silent(now);
        let word = Block::of(&self.heartbeat.to_ne_bytes());
        let reached = self.ranks.iter().filter(|(rank, _)| !self.lost.contains(rank));
        let reached: Vec<_> = reached.map(|(rank, (_, heartbeat))| (*rank, *heartbeat)).collect();
        for (rank, heartbeat) in reached {
            if !self.free.is_empty() {
                // A heartbeat without room is written the next time.
                if self.begin(rank, heartbeat, 0, Access::Write(word.span())).is_err() {
                    self.lost.insert(rank);
                }
            }
        }
    }

    /// Marks a rank as lost if a read or write of its memory has been under way for too long.
    fn lose_silent(&mut self, now: u64) {
        for UnderWay { rank, peer, since, read, .. } in self.under_way.iter().flatten() {
            if now.saturating_sub(*since) > SILENCE_NS {
                if self.ranks.get(rank).is_some_and(|(address, _)| address == peer) {
                    self.lost.insert(*rank);
                }
                read.iter().for_each(|(handle, ..)| handle.fail());
            }
        }
    }

    /// Waits for a free staging buffer and starts a read or write of a rank's memory through it. Returns
    /// false if the rank is lost.
    fn access(&mut self, rank: u32, range: ExportedRange, at: u64, access: Access) -> bool {
        self.attempt(rank, |this| match this.free.is_empty() {
            true => Ok(Sent::Full),
            false => this.begin(rank, range, at, access),
        })
    }

    /// Repeats `start` until it has started an access or sent a packet. Returns false if the rank is lost.
    /// The rank counts as lost after an error, or if this takes too long.
    fn attempt(&mut self, rank: u32, mut start: impl FnMut(&mut Importer) -> Result<Sent>) -> bool {
        let started = sys::clock::now();
        while !self.is_lost(rank) {
            match start(self) {
                Ok(Sent::Done) => return true,
                // The connection may not be there yet.
                Ok(Sent::Full) if sys::clock::now() - started < SILENCE_NS => self.idle(),
                Ok(Sent::Full) | Err(_) => drop(self.lost.insert(rank)),
            }
        }
        false
    }

    /// Starts a read or write of a rank's memory through a free staging buffer, which must exist. Errors:
    /// those of `Endpoint::read`.
    fn begin(&mut self, rank: u32, range: ExportedRange, at: u64, access: Access) -> Result<Sent> {
        let memory = RemoteMemory { key: range.key, base: range.base, bytes: range.bytes };
        let number = *self.free.last().expect("one is free");
        let bytes = match access {
            Access::Read(_, _, bytes) => bytes,
            Access::Write(from) => from.bytes(),
        };
        let (peer, buffer) = (self.ranks[&rank].0, self.buffer(number, bytes));
        let Importer { endpoint, region, .. } = self;
        let (sent, read) = match access {
            Access::Read(handle, offset, _) => {
                let read = Some((handle.clone(), offset, bytes));
                // SAFETY: the buffer is not in use until the token comes back, and lives as long as we do.
                (unsafe { endpoint.read(peer, memory, at, buffer, region, number.into()) }?, read)
            }
            Access::Write(from) => {
                from.copy_to(buffer);
                // SAFETY: the buffer is not in use until the token comes back, and lives as long as we do.
                (unsafe { endpoint.write(peer, memory, at, buffer, region, number.into()) }?, None)
            }
        };
        if sent == Sent::Done {
            self.free.pop();
            let one = UnderWay { rank, key: range.key, peer, since: sys::clock::now(), read };
            self.under_way[number as usize] = Some(one);
        }
        Ok(sent)
    }

    /// Polls until `done` returns true. Returns false if `rank` is lost. The rank counts as lost if the wait
    /// takes too long.
    fn wait(&mut self, done: impl Fn(&Importer) -> bool, rank: u32) -> bool {
        let started = sys::clock::now();
        while !done(self) {
            self.idle();
            if sys::clock::now() - started > SILENCE_NS {
                self.lost.insert(rank);
            }
            if self.is_lost(rank) {
                return false;
            }
        }
        !self.is_lost(rank)
    }

    /// Writes the heartbeat if it is due, and polls once.
    fn idle(&mut self) {
        self.beat();
        if !self.poll() {
            // The exporter's thread may need this core.
            sys::cpu::yield_cpu();
        }
    }

    /// Whether a read is under way.
    pub fn is_reading(&self) -> bool {
        self.under_way.iter().flatten().any(|one| one.read.is_some())
    }

    /// Handles reads and writes that have ended. Returns whether there was an event.
    pub fn poll(&mut self) -> bool {
        let Importer { endpoint, staging, free, under_way, lost, ranks, .. } = self;
        let mut packets = Vec::new();
        let polled = endpoint.poll(|event| match event {
            Event::Packet(packet) => packets.push(packet),
            Event::Undelivered(to, _) => {
                lost.extend(ranks.iter().filter(|(_, at)| at.0 == to).map(|(rank, _)| rank))
            }
            Event::Accessed(token) | Event::Failed(token, _) => {
                let is_done = matches!(event, Event::Accessed(_));
                let Some(UnderWay { rank, peer, read, .. }) = under_way[token as usize].take() else {
                    return;
                };
                free.push(token as u32);
                if !is_done && ranks.get(&rank).is_some_and(|(address, _)| *address == peer) {
                    lost.insert(rank);
                }
                match read {
                    Some((handle, at, bytes)) if is_done => {
                        handle.store(at, staging.span().slice(token as usize * STAGING_BYTES, bytes));
                    }
                    Some((handle, ..)) => handle.fail(),
                    None => {}
                }
            }
        });
        packets.into_iter().for_each(|packet| endpoint.release(packet));
        if polled.is_err() {
            lost.extend(ranks.keys());
        }
        polled.unwrap_or(false)
    }

    fn buffer(&self, number: u32, bytes: usize) -> Span {
        self.staging.span().slice(number as usize * STAGING_BYTES, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Exporter;
    use crate::shm::Shape;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    const BEAT_NS: u64 = 20_000_000;

    fn segment() -> Segment {
        let (segment, _fd) = Segment::create(Shape { ranks: 1, proxies: 1, arena_bytes: 1 }).unwrap();
        segment.job().address.set("127.0.0.1");
        segment
    }

    fn pair() -> (Exporter, Importer, Segment) {
        let segment = segment();
        let (exporter, importer) = join(&segment, || ());
        (exporter, importer, segment)
    }

    fn join(segment: &Segment, announced: impl Fn() + Send + Sync + 'static) -> (Exporter, Importer) {
        let exporter = Exporter::open(segment, &ProviderChoice::provider("tcp"), announced).unwrap();
        let mut importer = Importer::open(segment, &ProviderChoice::provider("tcp"), BEAT_NS).unwrap();
        let heartbeat = exporter.export(segment.heartbeat(0)).unwrap();
        assert!(importer.is_lost(0) && !importer.add_rank(0, b"no name", heartbeat));
        assert!(importer.add_rank(0, exporter.name(), heartbeat));
        (exporter, importer)
    }

    fn settle(importer: &mut Importer) {
        importer.start_settling();
        while !importer.is_settled() {
            importer.idle();
        }
    }

    fn pattern(bytes: usize) -> Block {
        Block::of(&(0..bytes).map(|at| (at * 7 + at / 251) as u8).collect::<Vec<_>>())
    }

    /// Goal: an importer reads and writes exported bytes of any length, in several parts, while the
    /// exporter's process does nothing.
    #[test]
    fn what_is_exported_is_read_and_written() {
        let (exporter, mut importer, _segment) = pair();
        for bytes in [1, 4096, STAGING_BYTES + 1, 3 * STAGING * STAGING_BYTES] {
            let (memory, other) = (pattern(bytes), Block::new(bytes));
            let range = exporter.export(memory.span()).unwrap();
            let half = bytes / 2;
            // The second half first.
            let pieces = [(range, half as u64, bytes - half), (range, 0, half)];
            assert!(importer.read(0, &pieces, other.span()), "{bytes} bytes");
            let (whole, parted) = (memory.to_vec(), other.to_vec());
            assert!(parted[..bytes - half] == whole[half..] && parted[bytes - half..] == whole[..half]);
            memory.span().clear();
            assert!(importer.write(0, &pieces, other.span()));
            settle(&mut importer);
            assert!(memory.to_vec() == whole, "{bytes} bytes");
            exporter.revoke(&range);
        }
    }

    /// Goal: when a rank learns of an announcement, all writes before it have arrived.
    #[test]
    fn an_announcement_comes_after_the_writes() {
        let (segment, count) = (segment(), Arc::new(AtomicU64::new(0)));
        let theirs = count.clone();
        let (exporter, mut importer) = join(&segment, move || {
            theirs.fetch_add(1, Ordering::Release);
        });
        let bytes = STAGING_BYTES + 8;
        let memory = Block::new(bytes);
        let range = exporter.export(memory.span()).unwrap();
        for number in 1..=100 {
            assert!(importer.write(0, &[(range, 0, bytes)], Block::of(&vec![number as u8; bytes]).span()));
            importer.announce(0);
            let announced = |_: &Importer| count.load(Ordering::Acquire) >= number;
            assert!(importer.wait(announced, 0), "announcement {number}");
            assert!(memory.to_vec() == vec![number as u8; bytes], "write {number}");
        }
    }

    /// Goal: an importer cannot change exported memory that was revoked, or whose exporter is closed, and
    /// then counts the rank as lost.
    #[test]
    fn what_was_revoked_is_out_of_reach() {
        for closes in [false, true] {
            let (exporter, mut importer, _segment) = pair();
            let (memory, other) = (Block::new(64), pattern(64));
            let range = exporter.export(memory.span()).unwrap();
            assert!(importer.write(0, &[(range, 0, 8)], other.span().slice(0, 8)));
            settle(&mut importer);
            assert!(!importer.is_lost(0));
            if closes {
                exporter.close()
            } else {
                exporter.revoke(&range)
            }
            importer.write(0, &[(range, 8, 8)], other.span().slice(8, 8));
            settle(&mut importer);
            assert!(importer.is_lost(0), "closes: {closes}");
            assert!(memory.to_vec()[..8] == other.to_vec()[..8] && memory.to_vec()[8..] == [0; 56]);
            assert!(!importer.read(0, &[(range, 0, 8)], memory.span().slice(0, 8)));
            assert_eq!(exporter.export(memory.span()).is_none(), closes);
        }
    }

    /// Goal: a rank can revoke a range although a read of it was dropped before it had ended.
    #[test]
    fn reads_end_before_their_range_is_revoked() {
        let (exporter, mut importer, _segment) = pair();
        let (memory, other) = (pattern(64), Block::new(64));
        let range = exporter.export(memory.span()).unwrap();
        assert!(importer.read(0, &[(range, 0, 64)], other.span()));
        // The exporter's thread does nothing while this is held.
        let held = exporter.lock();
        drop(importer.start_read(0, &[(range, 0, 64)]));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| importer.finish_reads(0, &[range]));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished(), "a read is under way");
            drop(held);
        });
        exporter.revoke(&range);
        let range = exporter.export(memory.span()).unwrap();
        assert!(importer.read(0, &[(range, 0, 64)], other.span()) && !importer.is_lost(0));
    }

    /// Goal: a read of a rank that has ended, if it fails late, does not mark the next process with the
    /// rank's number as lost.
    #[test]
    fn a_late_failure_is_of_the_process_that_has_ended() {
        let (exporter, mut importer, segment) = pair();
        let (memory, other) = (Block::new(64), pattern(64));
        let range = exporter.export(memory.span()).unwrap();
        assert!(importer.write(0, &[(range, 0, 64)], other.span()));
        settle(&mut importer);
        exporter.close();
        let read = importer.start_read(0, &[(range, 0, 64)]);
        assert!(read.bytes().is_none(), "it fails later");
        let next = Exporter::open(&segment, &ProviderChoice::provider("tcp"), || ()).unwrap();
        let heartbeat = next.export(segment.heartbeat(0)).unwrap();
        assert!(importer.add_rank(0, next.name(), heartbeat));
        while importer.under_way.iter().flatten().any(|one| one.peer != importer.ranks[&0].0) {
            importer.idle();
        }
        memory.span().clear();
        let range = next.export(memory.span()).unwrap();
        assert!(importer.write(0, &[(range, 0, 64)], other.span()));
        settle(&mut importer);
        assert!(!importer.is_lost(0) && memory.to_vec() == other.to_vec());
    }

    /// Goal: nothing waits for a rank that has parted, although its process has ended.
    #[test]
    fn nothing_waits_for_a_rank_that_has_parted() {
        let (exporter, mut importer, _segment) = pair();
        let memory = Block::new(64);
        let range = exporter.export(memory.span()).unwrap();
        assert!(importer.write(0, &[(range, 0, 64)], pattern(64).span()));
        importer.remove_rank(0);
        drop(exporter);
        importer.start_settling();
        assert!(importer.is_settled() && importer.is_lost(0), "it waits for writes to the rank");
        importer.announce(0);
        assert!(!importer.write(0, &[(range, 0, 64)], pattern(64).span()));
    }

    /// Goal: ranks see a heartbeat while the importer waits for another rank that does not answer.
    #[test]
    fn the_heart_beats_in_a_wait() {
        let (exporter, mut importer, segment) = pair();
        let silent = Exporter::open(&segment, &ProviderChoice::provider("tcp"), || ()).unwrap();
        let (memory, word) = (Block::new(64), Block::new(8));
        let range = silent.export(memory.span()).unwrap();
        let other = silent.export(word.span()).unwrap();
        assert!(importer.add_rank(1, silent.name(), other));
        assert!(importer.read(1, &[(range, 0, 64)], memory.span()));
        let heartbeat = &segment.proxy(0).heartbeat;
        std::thread::scope(|scope| {
            // Its thread does nothing while this is held.
            let held = silent.lock();
            let reader = scope.spawn(move || importer.read(1, &[(range, 0, 64)], Block::new(64).span()));
            let before = heartbeat.load(std::sync::atomic::Ordering::Relaxed);
            while heartbeat.load(std::sync::atomic::Ordering::Relaxed) < before + 3 {
                assert!(!reader.is_finished(), "nothing beats in a wait");
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(held);
            assert!(reader.join().unwrap());
        });
        drop(exporter);
    }
}
